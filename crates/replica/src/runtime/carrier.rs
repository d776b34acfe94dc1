//! What a thread needs that carries to a member; `carry` has what it does.

use std::collections::VecDeque;

use log::Lsn;

use crate::message::Peer;
use crate::names::Epoch;
use crate::one_sided::Channel;

/// What its thread needs.
#[derive(Debug, Default)]
pub(super) struct Carrier {
    pub(super) bytes: Vec<u8>,
    pub(super) way: Option<Way>,
}

/// The one-sided way to a member.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) peer: Peer,
    pub(super) channel: Box<Channel>,
    /// Records go by it: all that went by messages before is durable there.
    pub(super) is_used: bool,
    pub(super) epoch: Epoch,
    /// The ranges that are durable there and of which the member has not been told, by their ends.
    pub(super) untold: VecDeque<Lsn>,
    /// The member has been told of everything below.
    pub(super) told: Lsn,
}
