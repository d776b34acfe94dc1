//! Why a member refuses, as a field: a code, then what belongs to it.

use super::error::WireError;
use super::field::{Field, Take};
use crate::message::Refusal;

const OTHER_GROUP: u8 = 1;
const OLD_EPOCH: u8 = 2;
const IS_SOURCE: u8 = 3;
const OTHER_VOLUME: u8 = 4;
const OTHER_CAPACITY: u8 = 5;
const OUT_OF_ORDER: u8 = 6;
const FAILED: u8 = 7;

impl Field for Refusal {
    fn put(&self, field: &'static str, out: &mut Vec<u8>) -> Result<(), WireError> {
        match self {
            Self::OtherGroup(group) => {
                out.push(OTHER_GROUP);
                group.put(field, out)
            }
            Self::OldEpoch { newest } => {
                out.push(OLD_EPOCH);
                newest.put(field, out)
            }
            Self::IsSource(epoch) => {
                out.push(IS_SOURCE);
                epoch.put(field, out)
            }
            Self::OtherVolume { volume, size } => {
                out.push(OTHER_VOLUME);
                volume.put(field, out)?;
                size.put(field, out)
            }
            Self::OtherCapacity(capacity) => {
                out.push(OTHER_CAPACITY);
                capacity.put(field, out)
            }
            Self::OutOfOrder => OUT_OF_ORDER.put(field, out),
            Self::Failed => FAILED.put(field, out),
        }
    }

    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError> {
        Ok(match take.field::<u8>(field)? {
            OTHER_GROUP => Self::OtherGroup(take.field(field)?),
            OLD_EPOCH => Self::OldEpoch { newest: take.field(field)? },
            IS_SOURCE => Self::IsSource(take.field(field)?),
            OTHER_VOLUME => {
                Self::OtherVolume { volume: take.field(field)?, size: take.field(field)? }
            }
            OTHER_CAPACITY => Self::OtherCapacity(take.field(field)?),
            OUT_OF_ORDER => Self::OutOfOrder,
            FAILED => Self::Failed,
            _ => return Err(WireError::Value(field)),
        })
    }
}
