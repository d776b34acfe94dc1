//! Makes records of an order, as a source does.

use log::Lsn;

use crate::format::{
    Encoding, Geometry, Kind, Label, RECORD_HEADER_LEN, Record, header_sum, payload_sum,
};
use crate::names::{Epoch, EpochStart, GroupId, History, MemberId};
use crate::ring::{Ring, RingError};

pub(super) const GROUP: GroupId = GroupId(*b"sixteen bytes id");
/// Small, so that a crash image costs little: one map, of one volume, of one page.
pub(super) const GEOMETRY: Geometry =
    Geometry { capacity: 4096, maps: 1, volumes: 1, volume_pages: 1 };
/// The member whose map there is room for.
pub(super) const ABSENT: MemberId = MemberId(0);

/// The label of a member whose history is one epoch, which begins at 0.
pub(super) fn label() -> Label {
    Label {
        group: GROUP,
        member: MemberId(1),
        sequence: 1,
        history: epochs(&[(1, 7, 0)]),
        ..Label::default()
    }
}

/// A history of epochs with these numbers, nonces and starts.
pub(super) fn epochs(epochs: &[(u32, u64, u64)]) -> History {
    let epochs = epochs.iter().map(|(number, nonce, start)| EpochStart {
        epoch: Epoch { number: *number, restart: 0, nonce: *nonce },
        start: Lsn(*start),
        is_forced: false,
        is_sealed: false,
    });
    History::new(epochs.collect()).unwrap()
}

/// Where the next record goes, and what it says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub(super) lsn: Lsn,
    pub(super) chain: u32,
    pub(super) epoch: u32,
    pub(super) committed: Lsn,
}

impl Next {
    /// The first record of [`label`].
    pub(super) fn first() -> Self {
        Self { lsn: Lsn(0), chain: 0, epoch: 7, committed: Lsn(0) }
    }

    /// A record of a kind with this payload, which is not a pad; it is the next one after this call.
    pub(super) fn record(&mut self, kind: Kind, offset: u64, payload: &[u8]) -> Made {
        let stored = u32::try_from(payload.len()).unwrap();
        let sum = payload_sum(&GROUP, self.lsn, payload);
        self.make(kind, offset, u64::from(stored), stored, sum, payload)
    }

    pub(super) fn write(&mut self, offset: u64, payload: &[u8]) -> Made {
        self.record(Kind::Write, offset, payload)
    }

    pub(super) fn begin(&mut self, nonce: u64) -> Made {
        self.record(Kind::Epoch, 0, &nonce.to_le_bytes())
    }

    /// A pad that takes so many bytes.
    pub(super) fn pad(&mut self, len: u64) -> Made {
        let stored = u32::try_from(len - RECORD_HEADER_LEN).unwrap();
        self.make(Kind::Pad, 0, 0, stored, 0, &[])
    }

    fn make(
        &mut self,
        kind: Kind,
        offset: u64,
        len: u64,
        stored: u32,
        sum: u32,
        payload: &[u8],
    ) -> Made {
        let record = Record {
            lsn: self.lsn,
            epoch: self.epoch,
            chain: self.chain,
            kind,
            encoding: Encoding::Plain,
            volume: 0,
            stored,
            offset,
            len,
            time_ns: 0,
            committed: self.committed,
        };
        let header = record.encode(&GROUP, sum);
        self.lsn = record.end();
        self.chain = header_sum(&header);
        Made { record, header, payload: payload.to_vec() }
    }
}

/// A record with its bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Made {
    pub(super) record: Record,
    pub(super) header: [u8; 64],
    pub(super) payload: Vec<u8>,
}

impl Made {
    pub(super) fn place(&self, ring: &Ring) -> Result<(), RingError> {
        ring.place(self.record.lsn, &self.header, &self.payload)
    }

    pub(super) fn sum(&self) -> u32 {
        header_sum(&self.header)
    }
}
