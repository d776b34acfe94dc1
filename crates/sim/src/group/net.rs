//! Connections between members: each direction delivers in order, late, until the connection breaks.

use std::collections::VecDeque;
use std::sync::Arc;

use replica::message::{Message, Peer};
use replica::{Epoch, Lsn, MemberId};

use crate::disk::Stored;
use crate::tracks::Tracks;

/// What travels.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) message: Message,
    pub(crate) records: Vec<Arc<Stored>>,
    /// What the cells of a copy hold, or of digests.
    pub(crate) cells: Vec<u64>,
}

/// A connection. Side 0 dialed.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) number: u64,
    pub(crate) ends: [MemberId; 2],
    /// The lives of the processes at both ends.
    pub(crate) lives: [u64; 2],
    /// To each side.
    pub(crate) queues: [VecDeque<Parcel>; 2],
    pub(crate) is_known: [bool; 2],
    /// A side has been told that it is over.
    pub(crate) is_over: [bool; 2],
    /// Nothing is delivered any more, and nobody is told.
    pub(crate) is_silent: bool,
    /// An end wants it to be over: no message comes any more. Operations that are under way still do, until the target is
    /// through with it.
    pub(crate) is_closed: bool,
    /// Nothing is delivered to a side for a while.
    pub(crate) is_deaf: [bool; 2],
    /// What side 0 does to the ring of side 1, without its doing.
    pub(crate) way: Way,
    /// Where it goes several ways.
    pub(crate) tracks: Option<Box<Tracks>>,
}

/// One-sided operations of a connection: each places records, then makes them durable, then is answered.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// Records go by it: what went by messages before is durable there.
    pub(crate) is_used: bool,
    pub(crate) operations: VecDeque<Operation>,
    pub(crate) answers: VecDeque<Operation>,
    /// What the other end has not been told of.
    pub(crate) untold: VecDeque<Operation>,
}

#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) epoch: Epoch,
    pub(crate) from: Lsn,
    pub(crate) to: Lsn,
    pub(crate) records: Vec<Arc<Stored>>,
}

impl Connection {
    /// How the process at `side` calls it.
    pub(crate) fn peer(&self, side: usize) -> Peer {
        Peer { member: self.ends[1 - side], connection: self.number }
    }

    pub(crate) fn side_of(&self, member: MemberId) -> usize {
        usize::from(self.ends[0] != member)
    }
}
