//! The read lease: a source lets read what it has only while no member can have become the source instead of it.
//!
//! ```text
//!   source   asks at T (its clock)  -- Lease --> member   promises at P (its clock): no source before P + lease + an eighth
//!            reads until T + lease  <-- Leased --
//! ```
//! Every member that could be promoted without force has to have promised: those in sync, and those that are about to be. The ask
//! comes before the promise, so the lease ends first as long as the *rates* of the two clocks differ by less than an
//! eighth; what the clocks show does not matter. Answered writes do not rest on any of this: they need the members in sync.

use super::event::Action;
use super::other::Link;
use super::{Core, Role};
use crate::message::{Message, Peer};
use crate::names::MemberSet;

/// At a source that has no witness: it was stopped so long that those in sync may follow another one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubt {
    /// Who has not been heard since.
    pub(super) of: MemberSet,
    /// When it went on.
    since: u64,
}

/// What a member has promised, and of when that is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Promise {
    /// It becomes no source before.
    until: u64,
    /// The clock has been looked at.
    has_begun: bool,
}

impl Core {
    /// Time has passed since the core was asked last: more than a lease only where this member was stopped, or its machine.
    pub(super) fn clock_goes_on(&mut self, now: u64) {
        let before = self.now;
        self.now = before.max(now);
        let lease = self.config.read_lease_ns;
        if lease == 0 {
            return;
        }
        if !std::mem::replace(&mut self.promise.has_begun, true) {
            // What an earlier life has promised is not known.
            if !self.is_blank() {
                self.promises(lease);
            }
            return;
        }
        // A witness would be asked before anybody in sync is left behind.
        if self.now.saturating_sub(before) < lease || self.config.has_witness {
            return;
        }
        let (now, me) = (self.now, self.config.me);
        let Some(source) = self.source() else { return };
        let changed = source.change.as_ref().map_or(MemberSet::NONE, |change| change.members);
        let of = MemberSet(source.doubt.of.0 | source.confirmed.0 | changed.0).without(me);
        source.doubt = Doubt { of, since: now };
    }

    fn promises(&mut self, lease: u64) {
        let until = self.now.saturating_add(lease).saturating_add(lease / DRIFT);
        self.promise.until = self.promise.until.max(until);
    }

    /// Whether this member has promised not to be the source yet.
    pub(super) fn has_promised(&self) -> bool {
        self.now < self.promise.until
    }

    /// A source asks whether it may let read. No longer promise is given than this member would remember after a crash.
    pub(super) fn hear_lease(&mut self, peer: Peer, asked: u64, for_ns: u64) {
        if self.destination().is_none_or(|it| it.promotion.is_some()) {
            return;
        }
        let for_ns = for_ns.min(self.config.read_lease_ns);
        self.promises(for_ns);
        self.send(peer, Message::Leased { asked, for_ns });
    }

    pub(super) fn is_leased(&mut self, peer: Peer, asked: u64, for_ns: u64) {
        let lease = self.config.read_lease_ns;
        let Some(source) = self.source() else { return };
        let Some(stream) = source.stream(peer) else { return };
        // An answer to what was not asked.
        if stream.asked.is_none_or(|last| asked > last) {
            self.act(Action::Disconnect(peer));
            return;
        }
        stream.leased_until = stream.leased_until.max(asked.saturating_add(for_ns.min(lease)));
        if asked >= source.doubt.since && source.doubt.of.contains(peer.member) {
            source.doubt.of = source.doubt.of.without(peer.member);
            self.act(Action::Room);
        }
    }

    /// Asks those that follow before what they have promised has passed.
    pub(super) fn ask_for_leases(&mut self) {
        let (now, lease, epoch) = (self.now, self.config.read_lease_ns, self.epoch());
        if lease == 0 {
            return;
        }
        let mut actions = Vec::new();
        let Role::Source(source) = &mut self.role else { return };
        let doubt = source.doubt;
        for other in &mut source.peers {
            let Link::Streaming(stream) = &mut other.link else { continue };
            let is_doubted = doubt.of.contains(other.member);
            let is_due = stream.asked.is_none_or(|asked| {
                now.saturating_sub(asked) >= lease / ASKS || (is_doubted && asked < doubt.since)
            });
            if is_due {
                stream.asked = Some(now);
                let ask = Message::Lease { epoch, asked: now, for_ns: lease };
                actions.push(Action::Send(stream.peer, ask));
            }
        }
        self.actions.append(&mut actions);
    }

    /// At a source, the moment of its clock until which nobody else can be the source without force: until then it may let read
    /// what it has. 0 at a destination.
    pub fn reads_until(&self) -> u64 {
        let Role::Source(source) = &self.role else { return 0 };
        if self.config.read_lease_ns == 0 {
            return u64::MAX;
        }
        if !source.doubt.of.is_empty() {
            return 0;
        }
        let changed = source.change.as_ref().map_or(MemberSet::NONE, |change| change.members);
        let may_be_promoted = MemberSet(source.confirmed.0 | changed.0);
        let others = source.peers.iter().filter(|other| may_be_promoted.contains(other.member));
        let until = others.map(|other| match &other.link {
            Link::Streaming(stream) => stream.leased_until,
            Link::Down | Link::Greeting(..) => 0,
        });
        until.fold(u64::MAX, u64::min)
    }

    /// At a source, the members for whose promise reads wait.
    pub fn reads_wait_for(&self) -> MemberSet {
        let Role::Source(source) = &self.role else { return MemberSet::NONE };
        if self.config.read_lease_ns == 0 {
            return MemberSet::NONE;
        }
        let changed = source.change.as_ref().map_or(MemberSet::NONE, |change| change.members);
        let may_be_promoted = MemberSet(source.confirmed.0 | changed.0);
        let lacks = source.peers.iter().filter(|other| {
            let is_leased =
                matches!(&other.link, Link::Streaming(it) if it.leased_until > self.now);
            may_be_promoted.contains(other.member) && !is_leased
        });
        lacks.fold(source.doubt.of, |all, other| all.with(other.member))
    }
}

/// Clocks may differ in their rates by less than one part in so many.
const DRIFT: u64 = 8;
/// So often in the time of a lease its members are asked anew.
const ASKS: u64 = 4;

#[cfg(test)]
mod tests;
