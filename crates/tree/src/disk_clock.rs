//! The clock of inode times: the kernel's, whatever clock the server uses.
//!
//! Times that are compared with inode times, or stored among them, come from here.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::file_time::file_time_of;

/// The time of day since 1970.
pub(super) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The time of day as a FILETIME.
pub(super) fn file_time() -> u64 {
    let now = since_epoch();
    file_time_of(i64::try_from(now.as_secs()).unwrap_or(i64::MAX), now.subsec_nanos())
}
