//! The connections that a member has.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use log::Lsn;

use crate::digest::Digest;
use crate::format::Extent;
use crate::message::Peer;
use crate::names::MemberId;
use crate::wire::{Closer, Sender};

/// The connections that have not ended.
#[derive(Debug, Default)]
pub(super) struct Links {
    made: u64,
    open: BTreeMap<u64, Connected>,
    /// Why the last attempt to reach a member failed.
    failures: BTreeMap<MemberId, String>,
}

/// A connection whose other end has proved who it is.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) member: MemberId,
    /// Where the other end is.
    pub(super) address: SocketAddr,
    pub(super) sender: Arc<Mutex<Sender>>,
    pub(super) closer: Closer,
    /// It is to end.
    pub(super) is_ending: bool,
    /// When it is closed though not everything has been sent, in nanoseconds of the hub's clock.
    pub(super) closes_at: Option<u64>,
    /// Answers of the other end about its volumes, for the copier.
    pub(super) digests: VecDeque<(Extent, Vec<Digest>)>,
    /// What is asked for by [`crate::message::Message::Fetch`], by volume and offset, with the answers that have come.
    pub(super) fetches: BTreeMap<(u8, u64), Option<Fetched>>,
    /// The last answer of the other end to [`crate::message::Message::Reserve`].
    pub(super) reserved: Option<(Extent, u64)>,
}

/// An answer: the range at an LSN, and its bytes, if the other end has them.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) at: Lsn,
    pub(super) extent: Extent,
    pub(super) bytes: Option<Vec<u8>>,
}

impl Connected {
    pub(super) fn close(&mut self) {
        self.closer.close();
    }
}

impl Links {
    /// The oldest of too many of one member ends.
    pub(super) fn add(&mut self, connected: Connected) -> Peer {
        let member = connected.member;
        let mut same = self.open.values_mut().filter(|it| it.member == member);
        if let Some(oldest) = same.next()
            && same.count() + 1 >= LINKS_OF_MEMBER_MAX
        {
            oldest.close();
        }
        self.made += 1;
        let peer = Peer { member: connected.member, connection: self.made };
        self.failures.remove(&peer.member);
        self.open.insert(self.made, connected);
        peer
    }

    pub(super) fn get_mut(&mut self, peer: Peer) -> Option<&mut Connected> {
        self.open.get_mut(&peer.connection)
    }

    pub(super) fn remove(&mut self, peer: Peer) -> Option<Connected> {
        self.open.remove(&peer.connection)
    }

    pub(super) fn close_lingering(&mut self, now: u64) {
        for connected in self.open.values_mut() {
            if connected.closes_at.is_some_and(|limit| limit <= now) {
                connected.close();
            }
        }
    }

    pub(super) fn close_all(&mut self) {
        self.open.values_mut().for_each(Connected::close);
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn failed(&mut self, member: MemberId, why: String) {
        self.failures.insert(member, why);
    }

    /// The connections of the newest link to a member.
    pub(super) fn connections(&self, member: MemberId) -> Option<usize> {
        let newest = self.open.values().rev().find(|it| it.member == member)?;
        Some(newest.closer.connections())
    }

    /// Why a member was not reached, at the last attempt.
    pub(super) fn failure(&self, member: MemberId) -> Option<&str> {
        self.failures.get(&member).map(String::as_str)
    }
}

/// Connections of one member at once. It needs one; a second one ends the first.
pub(super) const LINKS_OF_MEMBER_MAX: usize = 4;
