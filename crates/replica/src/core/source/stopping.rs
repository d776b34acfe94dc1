//! How a source ends: because an operator wants it, or because there may be another one.

use super::Stage;
use crate::core::destination::Destination;
use crate::core::event::Action;
use crate::core::news::News;
use crate::core::{AfterLabel, Core, Role};
use crate::message::Peer;
use crate::names::MemberSet;

impl Core {
    /// An operator wants this member to be the source no more.
    pub(in crate::core) fn demote(&mut self) {
        if let Some(source) = self.source() {
            source.is_demoted = !source.is_stopping;
        }
        self.stop();
    }

    /// No more writes here, because there may be another source: what is committed is applied, then the member is a
    /// destination.
    pub(in crate::core) fn step_down(&mut self) {
        if let Some(source) = self.source() {
            source.is_demoted = false;
        }
        self.stop();
    }

    fn stop(&mut self) {
        let Some(source) = self.source() else { return };
        if std::mem::replace(&mut source.is_stopping, true) {
            return;
        }
        let peers: Vec<Peer> = source.connections().collect();
        for peer in peers {
            self.act(Action::Disconnect(peer));
        }
        self.act(Action::StopWriters);
    }

    pub(in crate::core) fn writers_have_stopped(&mut self) {
        if let Some(source) = self.source()
            && source.is_stopping
        {
            // Writers that were committed are through; what they had not reported is applied again.
            source.stage = Stage::Stopped;
            source.handing_over = None;
            source.change = None;
        }
    }

    pub(super) fn finish_stopping(&mut self) {
        let is_quiet = !self.applying && self.persisting.is_none() && self.checkpoint.is_idle();
        let (committed, epoch, me) = (self.committed, self.epoch(), self.config.me);
        let Some(source) = self.source() else { return };
        if source.stage != Stage::Stopped || source.connections().next().is_some() || !is_quiet {
            return;
        }
        // Who was alone in sync has all that was ever answered, and stays the one that has.
        let alone = MemberSet::of(me);
        let stays_in_sync =
            source.is_demoted && source.confirmed == alone && source.told.members == alone;
        // Records that a writer did not place end the order.
        self.order.cut(self.order.placed());
        let end = self.order.end();
        let dirty = match &mut self.role {
            Role::Source(source) => {
                source.peers.drain(..).map(|other| (other.member, other.dirty)).collect()
            }
            Role::Destination(_) => return,
        };
        let bound = committed.max(self.replayed).min(end);
        self.label.bound = bound;
        // Writers wrote to their volumes in any order: until all of it is applied again they are a mixture.
        self.replayed = bound;
        self.applied_apart.clear();
        self.label.handed_to = None;
        if std::mem::replace(&mut self.label.is_source, false) {
            // From here on another source may acknowledge what this member does not have. Who was to join and was not told is
            // not in sync.
            self.label.in_sync = if stays_in_sync { alone } else { MemberSet::NONE };
        }
        self.role = Role::Destination(Box::new(Destination::new(bound, dirty)));
        self.store_label(AfterLabel::Nothing);
        self.tell(News::IsDestination(epoch));
    }
}
