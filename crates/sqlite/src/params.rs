//! What the URI of a database says.
//!
//! ```text
//!   file:PATH?vfs=landfast&log=MEMBER[&log2=MEMBER...][&log_size=20M][&emulate=1][&give_up_log=1]
//!   [&give_up=log2,log3]
//! ```

use logged::{LOG_LEN_DEFAULT, LOG_LEN_MAX, LOG_LEN_MIN, MemberSet, Members, Place, PlaceError};
use thiserror::Error;

/// The parameters of one database.
#[derive(Clone, Debug)]
pub struct Params {
    /// The members of the log; `None` without `log=`.
    pub members: Option<Members>,
    /// Makes a new log where the old one is lost.
    pub give_up_log: bool,
    /// For tests: this call of a file, counted from 1, fails.
    pub fault: Option<u64>,
    /// For tests: all calls after it fail too.
    pub fault_stays: bool,
}

impl Params {
    /// Reads the parameters, of which `value_of` knows the values.
    ///
    /// # Errors
    ///
    /// A value makes no sense.
    pub fn parse(value_of: impl Fn(&str) -> Option<String>) -> Result<Self, ParamError> {
        let mut places: Vec<Place> = Vec::new();
        for (index, name) in LOG_NAMES.into_iter().enumerate() {
            let Some(text) = value_of(name) else { continue };
            if places.len() < index {
                return Err(ParamError::ConfigGap { name });
            }
            let place = text.parse().map_err(|why| ParamError::ConfigMember { name, why })?;
            if places.contains(&place) {
                return Err(ParamError::ConfigTwice { name });
            }
            places.push(place);
        }
        let len = match value_of("log_size") {
            Some(text) => size(&text).ok_or(ParamError::ConfigSize)?,
            None => LOG_LEN_DEFAULT,
        };
        let emulate_persistence = flag(&value_of, "emulate")?;
        let given_up = given_up(&value_of, places.len())?;
        let members =
            (!places.is_empty()).then_some(Members { places, len, emulate_persistence, given_up });
        let fault = match value_of("fault") {
            Some(text) => {
                Some(text.parse().map_err(|_| ParamError::ConfigNumber { name: "fault" })?)
            }
            None => None,
        };
        Ok(Self {
            members,
            give_up_log: flag(&value_of, "give_up_log")?,
            fault,
            fault_stays: flag(&value_of, "fault_stays")?,
        })
    }
}

fn flag(
    value_of: &impl Fn(&str) -> Option<String>,
    name: &'static str,
) -> Result<bool, ParamError> {
    match value_of(name).as_deref() {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(_) => Err(ParamError::ConfigFlag { name }),
    }
}

/// The members that are gone for good, by the names of their parameters.
fn given_up(
    value_of: &impl Fn(&str) -> Option<String>,
    members: usize,
) -> Result<MemberSet, ParamError> {
    let mut gone = MemberSet::default();
    for name in value_of("give_up").iter().flat_map(|text| text.split(',')) {
        let number = LOG_NAMES[..members].iter().position(|known| *known == name);
        gone = gone.with(number.ok_or(ParamError::ConfigGivenUp)?);
    }
    if members > 0 && gone.len() == members { Err(ParamError::ConfigGivenUp) } else { Ok(gone) }
}

/// Bytes, with K, M or G behind them; a whole number of pages within the bounds.
fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let bytes = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    (LOG_LEN_MIN..=LOG_LEN_MAX).contains(&bytes).then(|| bytes.next_multiple_of(4096))
}

/// Most members that a URI can name.
pub const LOGS_MAX: usize = LOG_NAMES.len();
const LOG_NAMES: [&str; 4] = ["log", "log2", "log3", "log4"];

/// A URI makes no sense.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum ParamError {
    /// A member is named where one before is not.
    #[error("{name} is given, and the member before it is not")]
    ConfigGap {
        /// The parameter.
        name: &'static str,
    },
    /// A member is no path and no address.
    #[error("{name}: {why}")]
    ConfigMember {
        /// The parameter.
        name: &'static str,
        /// Why not.
        why: PlaceError,
    },
    /// Two members are the same.
    #[error("{name} names a member that is named already")]
    ConfigTwice {
        /// The parameter.
        name: &'static str,
    },
    /// The size is no number of bytes that a log can have.
    #[error("log_size is a number of bytes from 256K to 64G")]
    ConfigSize,
    /// What is given up is no member, or all of them.
    #[error("give_up names members that are given, not all of them, as in give_up=log2,log3")]
    ConfigGivenUp,
    /// A switch is neither on nor off.
    #[error("{name} is 0 or 1")]
    ConfigFlag {
        /// The parameter.
        name: &'static str,
    },
    /// A number is none.
    #[error("{name} is a number")]
    ConfigNumber {
        /// The parameter.
        name: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<Params, ParamError> {
        Params::parse(|name| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn members_and_their_size_are_read() {
        let params =
            parse(&[("log", "/a"), ("log2", "smb://u:p@h/s/b"), ("log_size", "1M")]).unwrap();
        let members = params.members.unwrap();
        assert_eq!((members.places.len(), members.len), (2, 1 << 20));
        assert!(!members.emulate_persistence && members.given_up.is_empty());
        let params = parse(&[("log", "/a"), ("log2", "/b"), ("give_up", "log2")]).unwrap();
        assert!(params.members.unwrap().given_up.contains(1));
        assert!(parse(&[]).unwrap().members.is_none());
    }

    #[test]
    fn a_uri_that_makes_no_sense_is_refused() {
        for (pairs, error) in [
            (&[("log2", "/a")][..], ParamError::ConfigGap { name: "log2" }),
            (&[("log", "/a"), ("log2", "/a")], ParamError::ConfigTwice { name: "log2" }),
            (&[("log_size", "12Q")], ParamError::ConfigSize),
            (&[("log_size", "99999999999999999999G")], ParamError::ConfigSize),
            (&[("log_size", "1K")], ParamError::ConfigSize),
            (&[("log_size", "65G")], ParamError::ConfigSize),
            (&[("log_size", "")], ParamError::ConfigSize),
            (&[("emulate", "yes")], ParamError::ConfigFlag { name: "emulate" }),
            (&[("log", "/a"), ("give_up", "log2")], ParamError::ConfigGivenUp),
            (&[("log", "/a"), ("give_up", "log")], ParamError::ConfigGivenUp),
            (&[("fault", "x")], ParamError::ConfigNumber { name: "fault" }),
        ] {
            assert_eq!(parse(pairs).unwrap_err(), error);
        }
        let member = parse(&[("log", "smb://h/s")]).unwrap_err();
        assert!(matches!(member, ParamError::ConfigMember { name: "log", .. }));
    }
}
