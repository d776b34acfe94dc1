//! The hand-over: a member in sync that has everything becomes the source instead of this one.
//!
//! ```text
//!   wanted -- all is durable there --> the label names the member -- it is durable --> told
//!   told -- it leads a newer epoch ----------------------------------> no source any more
//!        -- it comes back and follows; a witness is asked first -----> source as before
//!        -- silent ---> it may be the source: nothing is acknowledged or read without it, and nobody else is told,
//!                       until it is heard, the witness has agreed that it is in sync no more, or an operator answers for it
//! ```
//! The label says so after a crash, too: a source that has forgotten whom it told would hand over to a second member.

use super::event::Action;
use super::news::{Denial, News};
use super::other::Link;
use super::source::{HandOver, Source};
use super::{AfterLabel, Core};
use crate::message::{Message, Peer};
use crate::names::{Epoch, MemberId, MemberSet};

impl Core {
    // Once everything is durable at the member that takes over, and nothing more comes, it is named, and then told.
    pub(super) fn hand_over(&mut self) {
        let (end, applied, committed) = (self.order.end(), self.applied, self.committed);
        let (now, stored) = (self.now, self.stored);
        let Some(source) = self.source() else { return };
        let Some(HandOver { to, nonce, named, told: None }) = source.handing_over else { return };
        if source.change.is_some() || source.is_stopping || source.may_be_elsewhere().is_some() {
            return;
        }
        let is_confirmed = source.confirmed.contains(to);
        let Some(other) = source.peer_mut(to) else { return };
        let peer = match &other.link {
            // Who is in sync no more by now may lack what is acknowledged after this.
            _ if !is_confirmed => None,
            Link::Streaming(stream) => {
                let has_all = stream.durable >= end && committed >= end && applied >= end;
                if !has_all {
                    return;
                }
                Some(stream.peer)
            }
            Link::Down | Link::Greeting(..) => None,
        };
        let Some(peer) = peer else {
            source.handing_over = None;
            self.tell(News::Denied(Denial::NotInSync));
            self.act(Action::Room);
            return;
        };
        match named {
            None => {
                self.label.handed_to = Some(to);
                self.store_label(AfterLabel::Nothing);
                let named = Some(self.label.sequence);
                if let Some(source) = self.source() {
                    source.handing_over = Some(HandOver { to, nonce, named, told: None });
                }
            }
            Some(sequence) if stored < sequence => {}
            Some(_) => {
                source.handing_over = Some(HandOver { to, nonce, named, told: Some(now) });
                // From here on it may be the source: nothing is acknowledged without it until it is heard of.
                source.unseen = source.unseen.with(to);
                self.tell_to_take_over(peer, nonce);
            }
        }
    }

    fn tell_to_take_over(&mut self, peer: Peer, nonce: u64) {
        let (end, epoch) = (self.order.end(), self.epoch());
        let next = Epoch { number: epoch.number + 1, restart: 0, nonce };
        self.send(peer, Message::TakeOver { epoch, end, next });
    }

    /// The member that was to take over has come back as an ordinary one, or is silent: this member goes on.
    pub(super) fn has_not_taken_over(&mut self) {
        let Some(source) = self.source() else { return };
        source.handing_over = None;
        self.tell(News::Denied(Denial::NotTakenOver));
        self.act(Action::Room);
    }

    /// The label names the member no more that was to take over, once that one cannot be the source.
    pub(super) fn forget_hand_over(&mut self) {
        let Some(to) = self.label.handed_to else { return };
        let Some(source) = self.source() else { return };
        let is_under_way = source.handing_over.is_some_and(|it| it.named.is_some());
        let may_be = is_under_way || source.unseen.contains(to);
        if source.has_begun() && !source.is_stopping && !may_be {
            self.label.handed_to = None;
            self.store_label(AfterLabel::Nothing);
        }
    }

    /// The witness has taken a proposal: who had come back before it was made is not the source there, and a request of an
    /// earlier life of that member comes too late.
    pub(super) fn has_asked_for(&mut self, number: u64) {
        let Some(source) = self.source() else { return };
        let mut heard = Vec::new();
        for other in &mut source.peers {
            if let Link::Greeting(_, greeting) = &mut other.link
                && greeting.asked == Some(number)
            {
                greeting.is_agreed = true;
                heard.push(other.member);
            }
        }
        for member in heard {
            let Some(source) = self.source() else { return };
            source.unseen = source.unseen.without(member);
            if source.handing_over.is_some_and(|it| it.told.is_some() && it.to == member) {
                self.has_not_taken_over();
            }
            self.go_on_greeting(member);
        }
    }
}

impl Source {
    /// A member that may be the source by now: it was told to take over, or was in sync before this source was started or
    /// stopped, and has not been heard of since.
    pub(super) fn may_be_elsewhere(&self) -> Option<MemberId> {
        self.waits_for().iter().next()
    }

    /// All of those.
    pub(super) fn waits_for(&self) -> MemberSet {
        MemberSet(self.unseen.0 | self.doubt.of.0)
    }

    /// Whether somebody has come back who may have become the source at the witness; the proposal of this number asks for all
    /// of them.
    pub(super) fn asks_for_doubted(&mut self, number: u64) -> bool {
        let (unseen, confirmed) = (self.unseen, self.confirmed);
        let mut asks = false;
        for other in &mut self.peers {
            let (is_unseen, is_confirmed) =
                (unseen.contains(other.member), confirmed.contains(other.member));
            if let Link::Greeting(_, greeting) = &mut other.link
                && greeting.is_decided()
                && !greeting.is_agreed
                && (is_unseen || (is_confirmed && greeting.gets_copies()))
            {
                greeting.asked = Some(number);
                asks = true;
            }
        }
        asks
    }
}

#[cfg(test)]
mod tests;
