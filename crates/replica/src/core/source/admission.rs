//! Changes that writers want to make get their places in the order.

use crate::core::order::Entry;
use crate::core::{Core, Role};
use crate::format::{Encoding, Kind, PAYLOAD_MAX, RECORD_ALIGN, RECORD_HEADER_LEN, Record};
use crate::names::EPOCHS_MAX;

/// A change that a writer wants to make.
#[derive(Clone, Copy, Debug)]
pub struct Draft {
    /// What it does.
    pub kind: Kind,
    /// How the payload is stored.
    pub encoding: Encoding,
    /// The volume.
    pub volume: u8,
    /// Bytes of the payload as stored.
    pub stored: u32,
    /// Where.
    pub offset: u64,
    /// How long.
    pub len: u64,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
}

/// A change that has its place. The writer puts the records into the ring and says [`crate::core::Event::Placed`] for each.
#[derive(Clone, Copy, Debug)]
pub struct Admitted {
    /// Fills what is left of the ring, and comes first.
    pub pad: Option<Record>,
    /// The change.
    pub record: Record,
}

/// A change that has no place.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Denied {
    /// The member is not the source.
    #[error("this member of the group is not the source")]
    NotSource,
    /// Not now: wait for [`crate::core::Action::Room`].
    #[error("the ring is full, or too few members are in sync")]
    NotNow,
    /// Storage failed.
    #[error("the storage of this member failed")]
    Failed,
    /// A payload is longer than [`PAYLOAD_MAX`], or too long for the ring.
    #[error("the payload is too long")]
    TooLong,
}

impl Core {
    /// Gives a change its place in the order. `seal` is the checksum of the header of a record.
    ///
    /// # Errors
    ///
    /// See [`Denied`].
    pub fn submit(
        &mut self,
        draft: Draft,
        seal: impl Fn(&Record) -> u32,
    ) -> Result<Admitted, Denied> {
        if self.has_failed {
            return Err(Denied::Failed);
        }
        if draft.stored > PAYLOAD_MAX + draft.encoding.tag_len() {
            return Err(Denied::TooLong);
        }
        let least = self.config.least_in_sync;
        let Role::Source(source) = &self.role else { return Err(Denied::NotSource) };
        if source.is_stopping {
            return Err(Denied::NotSource);
        }
        let is_open =
            source.is_ready() && source.handing_over.is_none() && source.confirmed.len() >= least;
        let span = (RECORD_HEADER_LEN + u64::from(draft.stored)).next_multiple_of(RECORD_ALIGN);
        // Wherever it would begin, the ring has to have room for it once it is empty.
        if span > self.order.capacity() / 2 {
            return Err(Denied::TooLong);
        }
        let left = self.order.until_wrap();
        let pads = left < span;
        let wanted = if pads { left + span } else { span };
        // With a record of one epoch more the label would forget the oldest, and those of that one were lost.
        let is_known = self.epochs_held() < EPOCHS_MAX;
        if !is_open || !is_known || !self.order.has_room(wanted) {
            return Err(Denied::NotNow);
        }
        let pad = pads.then(|| {
            let stored = u32::try_from(left - RECORD_HEADER_LEN).unwrap_or(u32::MAX);
            let nothing = Draft { kind: Kind::Pad, stored, offset: 0, len: 0, volume: 0, ..draft };
            let encoding = match draft.encoding.is_sealed() {
                true => Encoding::Sealed,
                false => Encoding::Plain,
            };
            self.append(Draft { encoding, ..nothing }, &seal)
        });
        let record = self.append(draft, &seal);
        Ok(Admitted { pad, record })
    }

    fn append(&mut self, draft: Draft, seal: &impl Fn(&Record) -> u32) -> Record {
        let record = Record {
            lsn: self.order.end(),
            epoch: self.label.history.current().tag(),
            chain: self.order.chain(),
            kind: draft.kind,
            encoding: draft.encoding,
            volume: draft.volume,
            stored: draft.stored,
            offset: draft.offset,
            len: draft.len,
            time_ns: draft.time_ns,
            committed: self.committed,
        };
        let entry = Entry::of(&record, seal(&record));
        self.order.push(entry);
        self.takes_size(&entry);
        record
    }
}
