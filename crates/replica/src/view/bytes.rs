//! A range of a volume as it is at a point, without a view.

use std::ops::Range;

use block::BlockDevice;
use log::Lsn;

use super::error::ViewError;
use super::records::{Go, Records, RecordsError, each};
use crate::format::{Extent, Kind};

/// The bytes of a range of a volume at the end of `range`, of which the volume holds everything before its begin. The volume may be
/// changed meanwhile by records of `range`, in order, and by no others that touch the extent: what it has of them already
/// is laid over it once more, and the last one counts.
///
/// # Errors
///
/// A record is gone or damaged, or the volume cannot be read.
pub fn bytes_at(
    records: &dyn Records,
    volume: &dyn BlockDevice,
    extent: Extent,
    range: Range<Lsn>,
) -> Result<Vec<u8>, ViewError> {
    let index = |of: u64| usize::try_from(of).expect("within the bytes");
    let mut bytes = vec![0; index(extent.len)];
    let failed = |at: Lsn| move |error| ViewError::Load { at, volume: extent.volume, error };
    // What a volume that is to grow does not have yet are zeroes.
    let there = volume.geometry().size.saturating_sub(extent.offset).min(extent.len);
    volume.read(extent.offset, &mut bytes[..index(there)]).map_err(failed(range.start))?;
    let end = extent.offset + extent.len;
    // The part of the extent that a record changes.
    let part = |offset: u64, len: u64| {
        let (from, to) = (offset.max(extent.offset), offset.saturating_add(len).min(end));
        (from < to).then_some(from..to)
    };
    each(
        records,
        range,
        |record| {
            record.kind == Kind::Write
                && record.volume == extent.volume
                && part(record.offset, record.len).is_some()
        },
        |record, payload| {
            let changed = part(record.offset, record.len);
            let Some(changed) = changed.filter(|_| record.volume == extent.volume) else {
                return Ok::<_, ViewError>(Go::On);
            };
            let into = index(changed.start - extent.offset)..index(changed.end - extent.offset);
            match record.kind {
                Kind::Write => {
                    let from = index(changed.start - record.offset);
                    let damaged = RecordsError::MediaDamaged { at: record.lsn };
                    let wrote = payload.get(from..from + into.len()).ok_or(damaged)?;
                    bytes[into].copy_from_slice(wrote);
                }
                Kind::Trim | Kind::Zero | Kind::Resize => bytes[into].fill(0),
                Kind::Verify | Kind::Mark | Kind::Epoch | Kind::Pad => {}
            }
            Ok(Go::On)
        },
    )?;
    Ok(bytes)
}
