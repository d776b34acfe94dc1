//! Dates and times of day, in UTC, out of counted time.
//!
//! Eras of 400 years that begin in March have the same number of days each, and the leap day at their end.

use crate::dtyp::FileTime;

/// A moment as calendars and clocks show it, in UTC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Civil {
    /// From 1601 on.
    pub year: u64,
    /// 1 to 12.
    pub month: u64,
    /// 1 to 31.
    pub day: u64,
    /// 0 is Sunday.
    pub weekday: u64,
    /// 0 to 23.
    pub hour: u64,
    /// 0 to 59.
    pub minute: u64,
    /// 0 to 59.
    pub second: u64,
    /// Hundredths of a second.
    pub hundredth: u64,
}

impl FileTime {
    /// The calendar's view of it.
    pub fn civil(self) -> Civil {
        let (seconds, hundredth) = (self.0 / 10_000_000, self.0 / 100_000 % 100);
        let (days, rest) = (seconds / 86_400, seconds % 86_400);
        // From the first of March of the year 0 to the first of January 1601.
        let shifted = days + 584_694;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Civil {
            year: year_of_era + era * 400 + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            // The first of January 1601 was a Monday.
            weekday: (days + 1) % 7,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
            hundredth,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(days: i64) -> (u64, u64, u64, u64) {
        let at = FileTime::from_unix_ns(i128::from(days) * 86_400_000_000_000).civil();
        (at.year, at.month, at.day, at.weekday)
    }

    #[test]
    fn days_become_dates() {
        assert_eq!(date(0), (1970, 1, 1, 4));
        assert_eq!(date(11_016), (2000, 2, 29, 2));
        assert_eq!(date(20_777), (2026, 11, 20, 5));
        assert_eq!(date(-1), (1969, 12, 31, 3));
        assert_eq!(date(-3_653), (1960, 1, 1, 5));
        assert_eq!(date(-25_508), (1900, 3, 1, 4));
        assert_eq!(date(-134_774), (1601, 1, 1, 1));
        assert!(FileTime(u64::MAX).civil().year > 60_000);
    }

    #[test]
    fn a_time_of_day_has_hundredths() {
        let at = FileTime::from_unix_ns(((13 * 60 + 14) * 60 + 15) * 1_000_000_000 + 160_000_000);
        let at = at.civil();
        assert_eq!((at.hour, at.minute, at.second, at.hundredth), (13, 14, 15, 16));
    }
}
