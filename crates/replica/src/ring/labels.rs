//! Finds the label in force.

use pmem::Medium;

use super::error::RingError;
use crate::format::{FormatError, Geometry, LABEL_LEN, Label};

/// The label in force, how it says that the memory is divided, and its slot.
pub(super) fn newest_label(medium: &dyn Medium) -> Result<(Label, Geometry, u8), RingError> {
    let (first, second) = (label_at(medium, 0)?, label_at(medium, 1)?);
    match (first, second) {
        // A version that we do not know may be the newer one.
        (Err(first @ FormatError::LabelVersion { .. }), second) => {
            Err(RingError::NoLabel { first, second: second.err().unwrap_or(FormatError::NoLabel) })
        }
        (first, Err(second @ FormatError::LabelVersion { .. })) => {
            Err(RingError::NoLabel { first: first.err().unwrap_or(FormatError::NoLabel), second })
        }
        (Ok((first, _)), Ok((second, geometry))) if second.sequence > first.sequence => {
            Ok((second, geometry, 1))
        }
        (Ok((label, geometry)), _) => Ok((label, geometry, 0)),
        (Err(_), Ok((label, geometry))) => Ok((label, geometry, 1)),
        (Err(first), Err(second)) => Err(RingError::NoLabel { first, second }),
    }
}

type Found = Result<(Label, Geometry), FormatError>;

/// The label of a slot.
pub(super) fn label_at(medium: &dyn Medium, slot: u8) -> Result<Found, RingError> {
    let mut bytes = [0; LABEL_LEN];
    let offset = Geometry::label(slot);
    if medium.len() < offset + LABEL_LEN as u64 {
        return Ok(Err(FormatError::NoLabel));
    }
    medium.read(offset, &mut bytes)?;
    Ok(Label::decode(&bytes))
}
