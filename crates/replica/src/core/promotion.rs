//! How a destination becomes the source: nothing reaches its ring any more, nothing is under way, and then it begins an
//! epoch.

use log::Lsn;

use super::Core;
use super::event::Action;
use super::news::Denial;
use super::source::Begins;
use crate::core::Mode;
use crate::format::Contents;
use crate::message::Peer;
use crate::names::{EPOCHS_MAX, Epoch, MemberSet};

/// A member that is to be the source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promotion {
    epoch: Epoch,
    by_force: bool,
    /// The source has handed over.
    is_handed: bool,
    is_revoked: bool,
}

impl Core {
    /// `above` is the newest epoch that the witness knows, as far as it was asked.
    pub(super) fn promote(
        &mut self,
        epoch: Epoch,
        above: u32,
        (was_in_sync, by_force): (bool, bool),
    ) -> Result<(), Denial> {
        // A witness knows better, and will be asked. But it takes the member for the one that it was before it lost all
        // that it had.
        let is_blank = self.is_blank() && above > 0;
        let has_witness = self.config.has_witness && !is_blank;
        let is_in_sync = has_witness || self.label.in_sync.contains(self.config.me);
        if !self.may_become_consistent() {
            return Err(Denial::Mixed);
        }
        // A source that goes on without a member tells that one nothing of it, and whether it could is not known here: what a file
        // says now may not be what the source ran by. With a witness it cannot.
        let alone = MemberSet::of(self.config.me);
        let may_be_left = !has_witness && !self.knows_set && self.label.in_sync != alone;
        let holds_all_epochs = self.holds_all_epochs();
        let destination = self.destination().ok_or(Denial::IsSource)?;
        // Of so many epochs it first applies, and frees, the oldest records: that is under way.
        if destination.promotion.is_some() || holds_all_epochs {
            return Err(Denial::Busy);
        }
        let lives = destination.is_streaming();
        if !by_force && !is_in_sync {
            return Err(Denial::NotInSync);
        }
        if !by_force && !was_in_sync && may_be_left {
            return Err(Denial::MayBeLeft);
        }
        if !by_force && lives {
            return Err(Denial::SourceLives);
        }
        self.begin_promotion(Promotion { epoch, by_force, is_handed: false, is_revoked: false });
        Ok(())
    }

    /// Whether the member never followed a source, nor was one.
    pub(super) fn is_blank(&self) -> bool {
        self.label.history.epochs().is_empty()
    }

    // One more would have the label forget the oldest.
    fn holds_all_epochs(&self) -> bool {
        let end = self.order.end();
        let begun = self.label.history.epochs().iter().filter(|it| it.start < end).count();
        begun >= EPOCHS_MAX && self.epochs_held() >= EPOCHS_MAX
    }

    // What is missing for a copy at one moment is in the ring.
    pub(super) fn may_become_consistent(&self) -> bool {
        match self.label.contents {
            Contents::Consistent => true,
            Contents::Mixed => false,
            Contents::MixedUntil(at) => self.order.end() >= at,
        }
    }

    pub(super) fn hear_take_over(&mut self, peer: Peer, end: Lsn, next: Epoch) {
        let is_under_way = self.destination().is_none_or(|it| it.promotion.is_some());
        let may_begin = self.may_become_consistent() && !self.holds_all_epochs();
        if is_under_way || self.order.end() != end || !may_begin {
            // The source waits until it is heard of anew.
            self.act(Action::Disconnect(peer));
            return;
        }
        self.begin_promotion(Promotion {
            epoch: next,
            by_force: false,
            is_handed: true,
            is_revoked: false,
        });
    }

    fn begin_promotion(&mut self, promotion: Promotion) {
        let Some(destination) = self.destination() else { return };
        destination.promotion = Some(promotion);
        if let Some(peer) = destination.connection() {
            self.act(Action::Disconnect(peer));
        }
        self.act(Action::Revoke);
    }

    pub(super) fn is_revoked(&mut self) {
        if let Some(promotion) = self.destination().and_then(|it| it.promotion.as_mut()) {
            promotion.is_revoked = true;
        }
    }

    pub(super) fn go_on_promoting(&mut self) {
        let is_quiet = self.is_quiet();
        let has_promised = self.has_promised();
        let is_semi = self.config.my_mode == Mode::SemiSync;
        let Some(destination) = self.destination() else { return };
        let Some(promotion) = destination.promotion else { return };
        if !promotion.is_revoked || destination.connection().is_some() || !is_quiet {
            return;
        }
        let Promotion { epoch, by_force, is_handed, .. } = promotion;
        // The source before may let read still. One that has handed over does not.
        if has_promised && !is_handed {
            return;
        }
        // A member that waits for no flush may have lost what it had said to have.
        let is_forced = by_force || (is_semi && !is_handed);
        let in_sync = MemberSet::of(self.config.me);
        let begins = Begins { epoch, is_forced, by_force, in_sync, is_promoted: true };
        self.become_source(begins, MemberSet::NONE);
    }
}
