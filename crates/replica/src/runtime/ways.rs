//! What a source knows of its one-sided ways to members; `making_ways` has how they come about.

use std::collections::BTreeMap;

use crate::message::{Peer, Ticket};
use crate::names::MemberId;
use crate::one_sided::Channel;

/// What is known of the ways of a source.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// A member has invited.
    pub(super) invited: BTreeMap<MemberId, (Peer, u16, Ticket)>,
    /// It has been asked to map its ring on the connection.
    pub(super) dialed: BTreeMap<MemberId, (Peer, Box<Channel>)>,
    /// For whoever carries to the member next.
    pub(super) ready: BTreeMap<MemberId, (Peer, Box<Channel>)>,
    /// Those to whom records go by a way.
    pub(super) used: BTreeMap<MemberId, Peer>,
    /// Why they do not.
    pub(super) failures: BTreeMap<MemberId, String>,
}

impl Ways {
    /// A new way to the member; once.
    pub(super) fn ready(&mut self, member: MemberId) -> Option<(Peer, Box<Channel>)> {
        self.ready.remove(&member)
    }

    /// Records go there by messages, because of this.
    pub(super) fn failed(&mut self, member: MemberId, why: String) {
        self.used.remove(&member);
        self.failures.insert(member, why);
    }

    /// A connection has ended, and its way with it.
    pub(super) fn lost(&mut self, peer: Peer) {
        self.invited.retain(|_, (of, ..)| *of != peer);
        self.dialed.retain(|_, (of, _)| *of != peer);
        self.ready.retain(|_, (of, _)| *of != peer);
        self.used.retain(|_, of| *of != peer);
    }

    /// Whether records go to the member by a way.
    pub(super) fn is_used(&self, member: MemberId) -> bool {
        self.used.contains_key(&member)
    }

    /// Why they do not.
    pub(super) fn failure(&self, member: MemberId) -> Option<&str> {
        self.failures.get(&member).map(String::as_str)
    }
}
