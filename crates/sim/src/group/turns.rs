//! Moments at which something has just changed: members die there, or are not heard. And what has to be so there.

use replica::core::{Action, News};
use replica::format::{Contents, Label};
use replica::message::Message;

use crate::disk::Disk;
use crate::member::Writer;
use crate::plan::MS;
use crate::world::{What, World};

impl World<'_> {
    /// Whether what a member decides may be decided now.
    pub(crate) fn must_be_so(&mut self, member: u8, action: &Action) {
        if !matches!(action, Action::Send(_, Message::TakeOver { .. })) {
            return;
        }
        let Some(process) = self.process(member) else { return };
        if !process.writers.iter().all(|writer| matches!(writer, Writer::Idle)) {
            self.fault = Some(format!("member {member} hands over while writes are not answered"));
        }
    }

    /// In some plans members die just after a change, and who is to take over is not heard.
    pub(crate) fn may_turn(&mut self, member: u8, action: &Action) {
        if !self.plan.turns || self.heals {
            return;
        }
        let one_in = match action {
            Action::Send(peer, Message::TakeOver { .. }) => {
                if self.chance.happens(1, 3) {
                    self.loses_one_way(peer.member.0, member);
                }
                return;
            }
            Action::Tell(News::InSync(_)) => 2,
            Action::Tell(News::OutOfSync(_) | News::CopyBegins(..) | News::IsSource(_)) => 8,
            Action::Tell(News::CopyEnds(_)) | Action::TakeSnapshot { .. } => 8,
            Action::StoreDirty { .. } => 6,
            _ => return,
        };
        if self.chance.happens(1, one_in) {
            self.falls_soon(member);
        }
    }

    fn falls_soon(&mut self, member: u8) {
        let life = self.members[usize::from(member)].life;
        let delay = self.chance.skewed(1000, 10 * MS);
        self.later(delay, What::Falls(member, life));
    }
}

/// What is wrong where volumes become a mixture, as the label that is being stored says, and nothing is kept from before.
pub(crate) fn mixes_without_a_copy(disk: &Disk, label: &Label) -> Option<&'static str> {
    let is_mixed = |of: &Label| of.contents != Contents::Consistent;
    let is_kept = !is_mixed(label) || is_mixed(&disk.label) || disk.snapshot.is_some();
    (!is_kept).then_some("becomes a mixture, and keeps no copy from before")
}
