//! Databases: what the URI of one says, and what lies in its log and beside it.

use landfast_sqlite::{LOGS_MAX, Params};
use logged::{Change, LOG_LEN_MAX, LOG_LEN_MIN, Side};

/// The parameters of a URI: lines `name=value`.
pub(crate) fn params(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let value_of = |name: &str| {
        let lines = text.lines().filter_map(|line| line.split_once('='));
        lines.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    };
    if let Ok(params) = Params::parse(value_of)
        && let Some(members) = params.members
    {
        assert!((1..=LOGS_MAX).contains(&members.places.len()));
        assert!((LOG_LEN_MIN..=LOG_LEN_MAX).contains(&members.len));
    }
}

/// A record of the log of a file.
pub(crate) fn record(data: &[u8]) {
    if let Ok((key, change)) = Change::parse(data) {
        let mut out = vec![0; change.record_len()];
        change.emit(key, &mut out);
        assert_eq!(out, data);
    }
}

/// The file beside a database.
pub(crate) fn side(data: &[u8]) {
    if let Ok(Some(side)) = Side::parse(data) {
        assert_eq!(side.emit(), data);
    }
}
