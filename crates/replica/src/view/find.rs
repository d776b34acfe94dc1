//! Where a point lies in the order, and which points can be had.

use std::collections::VecDeque;

use log::Lsn;

use super::error::{Available, ViewError};
use super::point::Point;
use super::records::{Go, Records, RecordsError, each};
use crate::format::{Kind, Record};

/// A mark that a view can be made at.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mark {
    /// Its name.
    pub name: String,
    /// The point: everything below this.
    pub at: Lsn,
    /// When it was made, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Whether the member's volumes are beyond it, so that no view can be made at it.
    pub is_past: bool,
}

/// How far the volumes are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Position {
    /// Everything below this is in them.
    pub(super) applied: Lsn,
    /// Nothing at or above this is.
    pub(super) floor: Lsn,
}

/// The LSN of a point: a record's end.
pub(super) fn find(
    records: &dyn Records,
    position: Position,
    point: &Point,
) -> Result<Lsn, ViewError> {
    let kept = records.kept();
    let from = position.applied;
    if kept.start > from {
        let gone = RecordsError::Gone { at: from, oldest: kept.start };
        return Err(gone.into());
    }
    let found = match point {
        Point::Latest => Some(kept.end),
        Point::Lsn(lsn) if *lsn > kept.end || *lsn < from => None,
        Point::Lsn(lsn) => Some(end_below(records, from, *lsn)?),
        Point::Time(time) => at_time(records, from, *time)?,
        Point::Mark(name) => {
            let marks = marks(records, from)?;
            let newest = marks.into_iter().rev().find(|mark| mark.name == *name);
            let unknown = || ViewError::ConfigNoMark { name: name.clone() };
            Some(newest.filter(|mark| !mark.is_past).ok_or_else(unknown)?.at)
        }
    };
    match found.filter(|found| *found >= position.floor) {
        Some(found) => Ok(found),
        None => Err(ViewError::ConfigOutOfRange {
            point: point.clone(),
            available: available(records, position)?,
        }),
    }
}

/// The last end of a record that is not beyond `lsn`.
fn end_below(records: &dyn Records, from: Lsn, lsn: Lsn) -> Result<Lsn, ViewError> {
    let mut found = from;
    each(
        records,
        from..records.kept().end,
        |_| false,
        |record, _| {
            if record.end() > lsn {
                return Ok::<_, ViewError>(Go::NoFurther);
            }
            found = record.end();
            Ok(Go::On)
        },
    )?;
    Ok(found)
}

/// The start of the first record that was made after `time`. A clock that went back is not believed: what follows a
/// record that is too late is left out. `None` if that record is not there any more.
fn at_time(records: &dyn Records, from: Lsn, time: u64) -> Result<Option<Lsn>, ViewError> {
    let kept = records.kept();
    let (mut found, mut is_known) = (kept.end, false);
    each(
        records,
        kept.start..kept.end,
        |_| false,
        |record, _| {
            if record.time_ns > time {
                found = record.lsn;
                return Ok::<_, ViewError>(Go::NoFurther);
            }
            is_known = true;
            Ok(Go::On)
        },
    )?;
    // Of a time before the first record nothing is known; of one behind the last record nothing else is.
    Ok((found >= from && (is_known || kept.is_empty())).then_some(found))
}

/// The marks that the ring has, oldest first; the newest [`MARKS_MAX`].
pub(super) fn marks(records: &dyn Records, applied: Lsn) -> Result<Vec<Mark>, ViewError> {
    let mut marks = VecDeque::new();
    let is_mark = |record: &Record| record.kind == Kind::Mark;
    each(records, records.kept(), is_mark, |record, payload| {
        if is_mark(record) {
            let name = std::str::from_utf8(payload);
            let name = name.map_err(|_| RecordsError::MediaDamaged { at: record.lsn })?.to_owned();
            let (at, time_ns) = (record.end(), record.time_ns);
            if marks.len() == MARKS_MAX {
                marks.pop_front();
            }
            marks.push_back(Mark { name, at, time_ns, is_past: at < applied });
        }
        Ok::<_, ViewError>(Go::On)
    })?;
    Ok(marks.into())
}

/// The points that can be had.
pub(super) fn available(records: &dyn Records, position: Position) -> Result<Available, ViewError> {
    let to = records.kept().end;
    let (mut first_ns, mut last_ns) = (None, None);
    each(
        records,
        position.applied..to,
        |_| false,
        |record, _| {
            if record.lsn >= position.floor {
                first_ns.get_or_insert(record.time_ns);
            }
            last_ns = Some(record.time_ns);
            Ok::<_, ViewError>(Go::On)
        },
    )?;
    Ok(Available { from: position.floor, to, first_ns, last_ns })
}

/// Marks that are listed or looked for at most: a mark a second for 18 hours.
pub const MARKS_MAX: usize = 65_536;
