//! What operators see of a member.

use log::Lsn;

use super::other::Link;
use super::{Core, Role};
use crate::names::{Epoch, MemberId, MemberSet};

/// A member as its operator sees it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Status {
    /// Whether it is the source.
    pub is_source: bool,
    /// Whether writers may come.
    pub is_ready: bool,
    /// Whether it is about to be the source: while one member is, no other is to be promoted.
    pub is_promoting: bool,
    /// At a destination: the member at the other end of its connection. What that one has sent may still come,
    /// and may promote it.
    pub follows: Option<MemberId>,
    /// The newest epoch that it knows.
    pub epoch: Epoch,
    /// Who is in sync, as far as it knows.
    pub in_sync: MemberSet,
    /// Whether its volumes are a copy at one moment.
    pub is_consistent: bool,
    /// Whether it can be the source: storage works, it is no member of whom nothing is known yet, and the volumes are a
    /// copy at one moment with what the ring holds.
    pub may_be_source: bool,
    /// The oldest record of its ring.
    pub start: Lsn,
    /// Where the next record goes.
    pub end: Lsn,
    /// Everything below is durable here.
    pub durable: Lsn,
    /// Everything below is committed.
    pub committed: Lsn,
    /// Everything below is in the volumes.
    pub applied: Lsn,
    /// Bytes of the ring.
    pub capacity: u64,
    /// Whether storage failed.
    pub has_failed: bool,
    /// At a source: for whose word that nobody else is the source reads wait.
    pub reads_wait_for: MemberSet,
    /// At a source: who may be the source by now. It begins, or goes on, once they have been heard of.
    pub waits_for: MemberSet,
    /// At a source: the other members.
    pub others: Vec<(MemberId, MemberState)>,
}

/// Another member, as a source sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MemberState {
    /// Whether it follows.
    pub is_connected: bool,
    /// Whether it follows, or has said what it has, and is no source.
    pub is_here: bool,
    /// Whether it gets copies.
    pub is_copying: bool,
    /// Everything below is durable there.
    pub durable: Lsn,
    /// Everything below is in its volumes.
    pub applied: Lsn,
    /// Bytes that are to be copied to it.
    pub lacks: u64,
    /// When the oldest record that it lacks was made, in nanoseconds since 1970; 0 where that is so long ago that nothing
    /// says when; `None` if it lacks none.
    pub lacks_since_ns: Option<u64>,
    /// Whether an operator has suspended it.
    pub is_suspended: bool,
}

impl Core {
    /// See [`Status`].
    pub fn status(&self) -> Status {
        let (mut is_promoting, mut follows) = (false, None);
        let mut waits_for = MemberSet::NONE;
        let (is_ready, in_sync, others) = match &self.role {
            Role::Destination(destination) => {
                is_promoting = destination.is_promoting();
                follows = destination.connection().map(|peer| peer.member);
                (false, self.label.in_sync, Vec::new())
            }
            Role::Source(source) => {
                let others = source.peers.iter().map(|other| {
                    let durable = other.known();
                    let stream = match &other.link {
                        Link::Streaming(stream) => Some(stream),
                        Link::Down | Link::Greeting(..) => None,
                    };
                    let state = MemberState {
                        is_connected: stream.is_some(),
                        is_here: other.is_here(),
                        is_copying: other.is_copying(),
                        durable,
                        applied: stream.map_or(Lsn(0), |stream| stream.applied),
                        lacks: other.dirty.bytes(),
                        lacks_since_ns: other
                            .lacks_since_ns
                            .or_else(|| self.order.time_of(durable)),
                        is_suspended: other.is_suspended,
                    };
                    (other.member, state)
                });
                waits_for = source.waits_for();
                (source.is_ready(), source.confirmed, others.collect())
            }
        };
        Status {
            is_source: self.is_source(),
            is_ready,
            is_promoting,
            follows,
            epoch: self.label.history.current(),
            in_sync,
            is_consistent: self.is_consistent(),
            may_be_source: !self.has_failed && !self.is_blank() && self.may_become_consistent(),
            start: self.order.start(),
            end: self.order.end(),
            durable: self.order.durable(),
            committed: self.committed,
            applied: self.applied,
            capacity: self.order.capacity(),
            has_failed: self.has_failed,
            reads_wait_for: self.reads_wait_for(),
            waits_for,
            others,
        }
    }
}
