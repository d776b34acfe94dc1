//! The time of day on the wire.

use basics::Clock;
use smb::FileTime;

/// The time of day in the unit of SMB.
pub(crate) fn file_time(clock: &Clock) -> FileTime {
    let since = clock.time_of_day().duration_since(std::time::UNIX_EPOCH);
    let ns = since.map_or(0, |elapsed| i128::try_from(elapsed.as_nanos()).unwrap_or(i128::MAX));
    FileTime::from_unix_ns(ns)
}
