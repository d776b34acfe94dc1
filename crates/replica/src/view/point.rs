//! A point of a group's order, as an operator names it.
//!
//! ```text
//!   latest                            everything there is
//!   0x1a40, lsn:6720                  everything below an LSN
//!   2026-11-25T10:00:00Z, time:NS     everything made up to a time
//!   mark:NAME, NAME                   everything up to a mark
//! ```
//!
//! Spec: ours; times are those of RFC 3339 §5.6, in UTC.

use std::fmt;
use std::str::FromStr;

use log::Lsn;

/// A point of a group's order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Point {
    /// Everything there is.
    Latest,
    /// Everything below the LSN, or below the start of the record in which it lies.
    Lsn(Lsn),
    /// Everything that was made up to then: nanoseconds since 1970.
    Time(u64),
    /// Everything up to the newest mark of the name.
    Mark(String),
}

/// The text names no point.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "a point is `latest`, an LSN as 0x1a40, a time as 2026-11-25T10:00:00Z, or the name of a mark"
)]
pub struct NoPoint;

impl FromStr for Point {
    type Err = NoPoint;

    fn from_str(text: &str) -> Result<Self, NoPoint> {
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).map_err(|_| NoPoint),
            None => text.parse().map_err(|_| NoPoint),
        };
        if text == "latest" {
            return Ok(Self::Latest);
        }
        if let Some(name) = text.strip_prefix("mark:") {
            return mark(name);
        }
        if let Some(lsn) = text.strip_prefix("lsn:") {
            return Ok(Self::Lsn(Lsn(number(lsn)?)));
        }
        if text.starts_with("0x") {
            return Ok(Self::Lsn(Lsn(number(text)?)));
        }
        if let Some(time) = text.strip_prefix("time:") {
            return Ok(Self::Time(number(time)?));
        }
        parse_time(text).map_or_else(|| mark(text), |time| Ok(Self::Time(time)))
    }
}

fn mark(name: &str) -> Result<Point, NoPoint> {
    let is_name = (1..=MARK_LEN_MAX).contains(&name.len());
    is_name.then(|| Point::Mark(name.to_owned())).ok_or(NoPoint)
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("latest"),
            Self::Lsn(lsn) => write!(f, "{lsn}"),
            Self::Time(time) => write!(f, "{}", Utc(*time)),
            Self::Mark(name) => write!(f, "mark:{name}"),
        }
    }
}

/// A time in nanoseconds since 1970, shown as RFC 3339 writes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Utc(pub u64);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0 / SECOND, self.0 % SECOND);
        let (days, second) = (seconds / DAY, seconds % DAY);
        let (mut year, mut left) = (1970, days);
        while left >= year_len(year) {
            left -= year_len(year);
            year += 1;
        }
        let mut month = 1;
        while left >= month_len(year, month) {
            left -= month_len(year, month);
            month += 1;
        }
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}", left + 1)?;
        match nanos {
            0 => f.write_str("Z"),
            _ => write!(f, ".{nanos:09}Z"),
        }
    }
}

fn parse_time(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z')?;
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text, None),
    };
    let bytes = whole.as_bytes();
    let has_signs = bytes.len() == 19
        && [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')]
            .iter()
            .all(|(at, sign)| bytes[*at] == *sign);
    if !has_signs {
        return None;
    }
    let year = digits(whole.get(0..4)?)?;
    let [month, day, hour, minute, second] = [5, 8, 11, 14, 17].map(|at| {
        let field = whole.get(at..at + 2);
        field.and_then(digits)
    });
    let (month, day, hour, minute, second) = (month?, day?, hour?, minute?, second?);
    let is_time = year >= 1970
        && (1..=12).contains(&month)
        && (1..=month_len(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !is_time {
        return None;
    }
    let years: u64 = (1970..year).map(year_len).sum();
    let months: u64 = (1..month).map(|it| month_len(year, it)).sum();
    let seconds = (years + months + day - 1) * DAY + hour * 3600 + minute * 60 + second;
    let nanos = match fraction {
        None => 0,
        Some(part) if (1..=9).contains(&part.len()) => {
            let unit = 10_u64.pow(9 - u32::try_from(part.len()).ok()?);
            digits(part)? * unit
        }
        Some(_) => return None,
    };
    seconds.checked_mul(SECOND)?.checked_add(nanos)
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const fn year_len(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

const fn month_len(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Bytes of a mark's name at most, as [`crate::format::Kind::Mark`] has it.
const MARK_LEN_MAX: usize = 255;
const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_name_a_point_is_read() {
        let table = [
            ("latest", Point::Latest),
            ("0x1a40", Point::Lsn(Lsn(6720))),
            ("lsn:6720", Point::Lsn(Lsn(6720))),
            ("time:17", Point::Time(17)),
            ("1970-01-01T00:00:00Z", Point::Time(0)),
            ("2026-11-25T10:55:09.5Z", Point::Time(1_795_604_109_500_000_000)),
            ("2000-02-29T00:00:00Z", Point::Time(951_782_400_000_000_000)),
            ("before-upgrade", Point::Mark("before-upgrade".to_owned())),
            ("mark:latest", Point::Mark("latest".to_owned())),
            ("2026-11-25", Point::Mark("2026-11-25".to_owned())),
            ("2026-02-29T00:00:00Z", Point::Mark("2026-02-29T00:00:00Z".to_owned())),
        ];
        for (text, point) in table {
            assert_eq!(text.parse(), Ok(point), "{text}");
        }
        for text in ["", "mark:", "lsn:", "0x", "0xg", "time:x", &"n".repeat(256)] {
            assert_eq!(text.parse::<Point>(), Err(NoPoint), "{text}");
        }
    }

    #[test]
    fn a_time_that_is_shown_is_read_as_the_same() {
        for time in [0, 1, 951_782_400_000_000_000, 1_795_604_109_500_000_000, u64::MAX] {
            assert_eq!(Utc(time).to_string().parse(), Ok(Point::Time(time)), "{}", Utc(time));
        }
    }
}
