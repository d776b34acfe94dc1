//! Times as clients know them: FILETIME, which counts 100 ns since 1601-01-01 UTC.
//!
//! Spec: MS-FSCC §2.1.1.

use rustix::fs::StatxTimestamp;

/// The FILETIME of a time of an inode.
pub(super) fn to_file_time(time: StatxTimestamp) -> u64 {
    file_time_of(time.tv_sec, time.tv_nsec)
}

/// The FILETIME of seconds and nanoseconds of the Unix epoch.
pub(super) fn file_time_of(seconds: i64, nanoseconds: u32) -> u64 {
    // Times before 1601 or after 60056 are clamped: no client can use them.
    let ticks = (i128::from(seconds) + UNIX_EPOCH_SECONDS) * TICKS_PER_SECOND
        + i128::from(nanoseconds / 100);
    u64::try_from(ticks.max(0)).unwrap_or(u64::MAX).min(i64::MAX.unsigned_abs())
}

/// The inverse: seconds and nanoseconds of the Unix epoch.
pub(super) fn from_file_time(ticks: u64) -> rustix::fs::Timespec {
    let ticks = i128::from(ticks);
    let seconds = ticks.div_euclid(TICKS_PER_SECOND) - UNIX_EPOCH_SECONDS;
    let nanoseconds = ticks.rem_euclid(TICKS_PER_SECOND) * 100;
    rustix::fs::Timespec {
        tv_sec: i64::try_from(seconds).expect("a u64 of 100 ns is under 2^41 seconds"),
        tv_nsec: i64::try_from(nanoseconds).expect("below one thousand million"),
    }
}

// From 1601-01-01 to 1970-01-01.
const UNIX_EPOCH_SECONDS: i128 = 11_644_473_600;
const TICKS_PER_SECOND: i128 = 10_000_000;

#[cfg(test)]
mod tests {
    use rustix::fs::{AtFlags, StatxFlags};

    use super::*;

    #[test]
    fn unix_and_windows_time_meet_at_the_known_epoch() {
        let mut stat: StatxTimestamp =
            rustix::fs::statx(rustix::fs::CWD, "/", AtFlags::empty(), StatxFlags::BASIC_STATS)
                .unwrap()
                .stx_mtime;
        stat.tv_sec = 0;
        stat.tv_nsec = 0;
        // 116444736000000000: the constant in every converter.
        assert_eq!(to_file_time(stat), 116_444_736_000_000_000);
        let back = from_file_time(116_444_736_000_000_001);
        assert_eq!((back.tv_sec, back.tv_nsec), (0, 100));
    }
}
