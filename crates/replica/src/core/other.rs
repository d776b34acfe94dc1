//! Another member, as a source knows it.

use log::Lsn;

use super::config::Mode;
use super::joining::Greeting;
use crate::dirty::DirtyMap;
use crate::format::Extent;
use crate::message::Peer;
use crate::names::MemberId;

/// Another member, as the source knows it.
#[derive(Debug)]
pub(super) struct Other {
    pub(super) member: MemberId,
    pub(super) mode: Mode,
    pub(super) link: Link,
    /// What it lacks.
    pub(super) dirty: DirtyMap,
    /// The number of the last order to store its map; one of before, where this source has given none.
    pub(super) dirty_ordered: u64,
    /// What it lacks is not known: copies are compared first.
    pub(super) compares: bool,
    /// When the oldest record was made of those that its map says it lacks; 0 where that is not known any more.
    pub(super) lacks_since_ns: Option<u64>,
    /// Everything below was durable there when it was last heard of. Holds commits back while it is in sync.
    pub(super) known: Lsn,
    pub(super) is_suspended: bool,
    /// Its connection ends once it is in sync no more, and has been told so.
    pub(super) leaves: bool,
}

#[derive(Debug)]
pub(super) enum Link {
    Down,
    /// Said hello, or decides.
    Greeting(Peer, Greeting),
    Streaming(Box<Stream>),
}

/// A member that follows.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) peer: Peer,
    /// Ordered to be sent.
    pub(super) sent: Lsn,
    /// On its way: the driver reads below this no more.
    pub(super) shipped: Lsn,
    pub(super) placed: Lsn,
    pub(super) durable: Lsn,
    pub(super) applied: Lsn,
    /// Oldest record of its ring, once it has said so.
    pub(super) start: Option<Lsn>,
    pub(super) told_committed: Lsn,
    pub(super) copying: Option<Copying>,
    /// Commits wait for it already, and it is to be in sync.
    pub(super) joins: bool,
    pub(super) heard: u64,
    /// It is too far behind, and its connection ends.
    pub(super) is_dropped: bool,
    /// When it was asked for its promise last.
    pub(super) asked: Option<u64>,
    /// As far as it is concerned, reads may be answered until then.
    pub(super) leased_until: u64,
    /// The version of a set without it that it has not stored yet. Until then no record goes there: one that says what was
    /// committed without it would, after a crash, be taken for proof that its own log has lost that.
    pub(super) unaware: Option<u64>,
}

/// Copies under way to a member.
#[derive(Debug, Default)]
pub(super) struct Copying {
    pub(super) cursor: Option<Extent>,
    /// The driver is sending these.
    pub(super) sending: Option<Extent>,
    /// Sent, and not known to be durable: the count of messages with which they are.
    pub(super) outstanding: Vec<(Extent, u64)>,
    pub(super) sent: u64,
}

impl Stream {
    /// How far the member lets commits go.
    pub(super) fn allows(&self, mode: Mode) -> Lsn {
        if mode == Mode::SemiSync { self.placed } else { self.durable }
    }
}

impl Other {
    pub(super) fn connection(&self) -> Option<Peer> {
        match &self.link {
            Link::Down => None,
            Link::Greeting(peer, _) => Some(*peer),
            Link::Streaming(stream) => Some(stream.peer),
        }
    }

    /// Whether it has said what it has: it is no source.
    pub(super) fn is_here(&self) -> bool {
        match &self.link {
            Link::Down => false,
            Link::Greeting(_, greeting) => greeting.is_decided() || greeting.is_told(),
            Link::Streaming(_) => true,
        }
    }

    /// Whether it knows, or may know, of a set, and is connected.
    pub(super) fn was_told(&self) -> bool {
        match &self.link {
            Link::Down => false,
            Link::Greeting(_, greeting) => greeting.is_told(),
            Link::Streaming(_) => true,
        }
    }

    /// Everything below is durable there, as far as is known.
    pub(super) fn known(&self) -> Lsn {
        match &self.link {
            Link::Streaming(stream) => stream.durable,
            Link::Down | Link::Greeting(..) => self.known,
        }
    }

    /// Whether an operator has suspended it, and it has and gets everything all the same: nobody waits for it in vain.
    pub(super) fn is_kept_while_suspended(&self) -> bool {
        let follows = matches!(&self.link, Link::Streaming(stream) if stream.copying.is_none());
        self.is_suspended && follows
    }

    pub(super) fn is_copying(&self) -> bool {
        matches!(&self.link, Link::Streaming(stream) if stream.copying.is_some())
    }

    /// Ring space below is not read for it any more.
    pub(super) fn shipped(&self) -> Option<Lsn> {
        match &self.link {
            Link::Streaming(stream) if stream.sent > stream.shipped => Some(stream.shipped),
            _ => None,
        }
    }

    /// Whether a member that was in sync is so no more: it is gone, lacks what was committed, or is not to be waited for.
    pub(super) fn is_over(&self, committed: Lsn) -> bool {
        match &self.link {
            Link::Down | Link::Greeting(..) => true,
            Link::Streaming(stream) => {
                stream.copying.is_some()
                    || self.mode == Mode::Async
                    || self.is_suspended
                    || stream.allows(self.mode) < committed
            }
        }
    }
}
