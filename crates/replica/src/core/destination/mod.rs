//! A destination: it follows a source, keeps what comes, and applies what is committed.

mod applying;
mod copies;
mod following;
mod receiving;

use std::collections::VecDeque;

use log::Lsn;

use super::event::Action;
use super::promotion::Promotion;
use super::{AfterLabel, Core, Role};
use crate::core::Mode;
use crate::dirty::DirtyMap;
use crate::format::Extent;
use crate::message::{ALIVE_EVERY_NS, Message, Peer, Refusal};
use crate::names::{Epoch, MemberId, MemberSet};

#[derive(Debug)]
pub(super) struct Destination {
    /// The connection that counts, and what is known of the other end.
    source: Option<Following>,
    /// Everything that the volumes may hold is below this.
    bound: Lsn,
    /// Everything below is known to be committed, and will be known after a crash: it may be applied.
    known: Lsn,
    /// The label is being stored because of that.
    is_noting: bool,
    /// Records below are of epochs that the source has forgotten: they are retained no longer.
    outgrown: Lsn,
    /// Copies that wait for records before them.
    copies: VecDeque<(Lsn, Extent)>,
    is_putting: bool,
    put: u64,
    put_durable: u64,
    is_flushing_copies: bool,
    /// What the source was told last.
    told: (Lsn, Lsn, Lsn, Lsn),
    pub(super) promotion: Option<Promotion>,
    said_alive: u64,
    /// Maps of the others, from when this member was the source.
    pub(super) dirty: Vec<(MemberId, DirtyMap)>,
}

#[derive(Debug)]
struct Following {
    peer: Peer,
    stage: Stage,
    heard: u64,
    /// Records of this connection are on their way into the ring.
    is_receiving: bool,
}

#[derive(Debug)]
enum Stage {
    /// It greeted, and gets its answer once nothing is under way here.
    Greeted,
    Answered,
    /// It said from where to go on; that is done once nothing is under way here.
    Told(Box<Told>),
    /// The volumes are being made durable first, and a snapshot is taken.
    Keeping(Box<Told>),
    /// The label is being stored.
    Cutting(Epoch),
    Streaming(Epoch),
}

#[derive(Debug)]
struct Told {
    history: crate::names::History,
    from: Lsn,
    chain: u32,
    committed: Lsn,
    in_sync: MemberSet,
    set_version: u64,
    with_copies: bool,
    volumes: Vec<u64>,
}

impl Destination {
    pub(super) fn new(bound: Lsn, dirty: Vec<(MemberId, DirtyMap)>) -> Self {
        Self {
            source: None,
            bound,
            known: Lsn(0),
            outgrown: Lsn(0),
            is_noting: false,
            copies: VecDeque::new(),
            is_putting: false,
            put: 0,
            put_durable: 0,
            is_flushing_copies: false,
            told: (Lsn(0), Lsn(0), Lsn(0), Lsn(0)),
            promotion: None,
            said_alive: 0,
            dirty,
        }
    }

    pub(super) fn connection(&self) -> Option<Peer> {
        self.source.as_ref().map(|source| source.peer)
    }

    /// Whether a source sends records to it.
    pub(super) fn is_streaming(&self) -> bool {
        self.source.as_ref().is_some_and(|it| matches!(it.stage, Stage::Streaming(_)))
    }

    pub(super) fn is_promoting(&self) -> bool {
        self.promotion.is_some()
    }
}

impl Core {
    pub(super) fn destination(&mut self) -> Option<&mut Destination> {
        match &mut self.role {
            Role::Destination(destination) => Some(destination),
            Role::Source(_) => None,
        }
    }

    /// At a destination, everything that its volumes may hold is below this.
    pub fn bound(&self) -> Option<Lsn> {
        match &self.role {
            Role::Destination(destination) => Some(destination.bound.max(self.applied)),
            Role::Source(_) => None,
        }
    }

    /// At a destination, the connection of its source.
    pub fn source_connection(&self) -> Option<Peer> {
        match &self.role {
            Role::Destination(destination) => destination.connection(),
            Role::Source(_) => None,
        }
    }

    /// At a destination that stays one, the connection on which its source sends records.
    pub fn streaming_from(&self) -> Option<Peer> {
        match &self.role {
            Role::Destination(destination) if !destination.is_promoting() => {
                destination.connection().filter(|_| destination.is_streaming())
            }
            _ => None,
        }
    }

    /// The connection in use, if it is this one.
    fn following(&mut self, peer: Peer) -> Option<&mut Following> {
        self.destination()?.source.as_mut().filter(|source| source.peer == peer)
    }

    pub(super) fn send_to_source(&mut self, peer: Peer, message: Message) {
        if self.following(peer).is_some() {
            self.send(peer, message);
        }
    }

    pub(super) fn hear_as_destination(&mut self, peer: Peer, message: Message) {
        let now = self.now;
        if let Message::Hello { .. } = message {
            self.hear_hello(peer, message);
            return;
        }
        let Some(following) = self.following(peer) else {
            self.act(Action::Disconnect(peer));
            return;
        };
        following.heard = now;
        let streams = match following.stage {
            Stage::Streaming(epoch) => Some(epoch),
            _ => None,
        };
        match message {
            Message::Follow {
                history,
                from,
                chain,
                committed,
                in_sync,
                set_version,
                with_copies,
                volumes,
            } => {
                let told = Told {
                    history,
                    from,
                    chain,
                    committed,
                    in_sync,
                    set_version,
                    with_copies,
                    volumes,
                };
                self.hear_follow(peer, told);
            }
            Message::Committed { epoch, to } if streams == Some(epoch) => self.hear_committed(to),
            Message::Copy { epoch, at, extent, .. } if streams == Some(epoch) => {
                self.hear_copy(peer, at, extent);
            }
            Message::Consistent { epoch, at } if streams == Some(epoch) => self.hear_consistent(at),
            Message::InSync { epoch, version, members } if streams == Some(epoch) => {
                self.hear_in_sync(peer, version, members);
            }
            Message::TakeOver { epoch, end, next } if streams == Some(epoch) => {
                self.hear_take_over(peer, end, next);
            }
            Message::Lease { epoch, asked, for_ns } if streams == Some(epoch) => {
                self.hear_lease(peer, asked, for_ns);
            }
            // Whoever carries the connection answers with digests.
            Message::Compare { epoch, .. }
            | Message::Fetch { epoch, .. }
            | Message::Reserve { epoch, .. }
                if streams == Some(epoch) => {}
            Message::Alive => {}
            _ => {
                self.send(peer, Message::Refused(Refusal::OutOfOrder));
                self.act(Action::Disconnect(peer));
            }
        }
    }

    /// Whether nothing is under way by which the order of this member changes.
    pub(super) fn is_quiet(&self) -> bool {
        let Role::Destination(destination) = &self.role else { return false };
        !self.applying
            && self.persisting.is_none()
            && self.checkpoint.is_idle()
            && !destination.is_putting
            && !destination.is_flushing_copies
            && !destination.source.as_ref().is_some_and(|source| source.is_receiving)
            && self.order.durable() >= self.order.end()
    }

    pub(super) fn go_on_as_destination(&mut self) {
        self.answer_hello();
        self.follow();
        self.apply();
        self.put_copies();
        self.report();
        self.go_on_promoting();
    }

    fn hear_in_sync(&mut self, peer: Peer, version: u64, members: MemberSet) {
        self.label.in_sync = members;
        self.label.set_version = version;
        self.store_label(AfterLabel::SetKnown(peer, version));
    }

    pub(super) fn source_is_lost(&mut self, peer: Peer) {
        if self.following(peer).is_none() {
            return;
        }
        if let Some(destination) = self.destination() {
            destination.source = None;
            destination.copies.clear();
        }
        self.act(Action::Room);
    }

    // The source hears how far this member is when that has changed.
    fn report(&mut self) {
        let order = &self.order;
        let now =
            (order.placed(), order.durable(), self.applied.min(order.durable()), order.start());
        let semi = self.config.my_mode == Mode::SemiSync;
        let Some(destination) = self.destination() else { return };
        let Some(following) = &destination.source else { return };
        if !matches!(following.stage, Stage::Streaming(_)) {
            return;
        }
        let (peer, told) = (following.peer, destination.told);
        let is_new = now.1 != told.1 || now.3 != told.3 || (semi && now.0 != told.0);
        if is_new {
            destination.told = now;
            let (placed, to, applied, start) = now;
            self.send(peer, Message::Durable { placed, to, applied, start });
        }
    }

    pub(super) fn tick_as_destination(&mut self) {
        let (now, silence) = (self.now, self.config.silence_ns);
        let Some(destination) = self.destination() else { return };
        let says = now.saturating_sub(destination.said_alive) >= ALIVE_EVERY_NS;
        if says {
            destination.said_alive = now;
            // How far it has applied is told now and then.
            destination.told.1 = Lsn(u64::MAX);
        }
        let Some(following) = &destination.source else { return };
        let peer = following.peer;
        if now.saturating_sub(following.heard) > silence {
            self.act(Action::Disconnect(peer));
        } else if says {
            self.send(peer, Message::Alive);
        }
    }
}
