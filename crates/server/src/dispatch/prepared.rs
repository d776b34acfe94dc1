//! A WRITE as far as it was found out on the spot: its open, its range, and where its data is.

use std::ops::Range;
use std::sync::Arc;

use smb::{Channel, WriteRequest};

use crate::connections::Link;
use crate::state::Open;
use crate::state::open::UnderWay;
use crate::state::range::LockRange;

/// A WRITE that may go ahead.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) open: Arc<Open>,
    pub(super) range: LockRange,
    pub(super) durable: bool,
}

/// A WRITE that may go ahead and has to wait: everything that was found out about it on the spot.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(super) plan: Plan,
    pub(super) source: Source,
    pub(super) under_way: UnderWay,
}

/// Where the data of a WRITE is.
#[derive(Debug)]
pub(super) enum Source {
    /// In the PDU.
    Pdu(Range<usize>),
    /// In the client's memory, which descriptors in the PDU name.
    Client(Range<usize>),
    /// Here: it was fetched from the client's memory.
    Fetched(Vec<u8>),
}

impl Source {
    pub(super) fn of(request: &WriteRequest<'_>, pdu: &[u8]) -> Self {
        match request.channel {
            Channel::NONE => Self::Pdu(place(pdu, request.data)),
            _ => Self::Client(place(pdu, request.channel_info)),
        }
    }

    /// The data, if it is here.
    pub(super) fn data<'a>(&'a self, pdu: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Pdu(place) => Some(&pdu[place.clone()]),
            Self::Client(_) => None,
            Self::Fetched(data) => Some(data),
        }
    }

    /// Gives memory for data of other WRITEs back.
    pub(super) fn recycle(self, link: &Link) {
        if let (Self::Fetched(data), Some(memory)) = (self, link.remote_memory()) {
            memory.recycle(data);
        }
    }
}

/// Where a part of a PDU lies in it. Nothing need not lie in it.
fn place(pdu: &[u8], part: &[u8]) -> Range<usize> {
    if part.is_empty() {
        return 0..0;
    }
    let start = part.as_ptr().addr() - pdu.as_ptr().addr();
    start..start + part.len()
}
