//! What an operator may want of a source.

use super::event::Wish;
use super::news::Denial;
use super::other::{Link, Other};
use super::source::{HandOver, Source, Stage};
use super::{AfterLabel, Core, Role};
use crate::dirty::DirtyMap;
use crate::names::MemberId;

impl Core {
    pub(super) fn wants_as_source(&mut self, wish: Wish) -> Result<(), Denial> {
        let full = DirtyMap::full(&self.config.volumes);
        let source = self.source().ok_or(Denial::NotSource)?;
        let member = match wish {
            Wish::Suspend(member)
            | Wish::Resume(member)
            | Wish::SetMode(member, _)
            | Wish::GoOnWithout(member)
            | Wish::Compare(member)
            | Wish::Reverse { to: member, .. } => member,
            Wish::Promote { .. } | Wish::Demote => return Err(Denial::IsSource),
        };
        let confirmed = source.confirmed;
        let is_changing = source.change.is_some() || source.handing_over.is_some();
        // It may be the source already: a second one would begin an epoch of the same number.
        if let (Wish::Reverse { .. }, Some(member)) = (wish, source.may_be_elsewhere()) {
            return Err(Denial::Unheard(member));
        }
        if let Wish::GoOnWithout(member) = wish {
            source.unseen = source.unseen.without(member);
            source.doubt.of = source.doubt.of.without(member);
        }
        let other = source.peer_mut(member).ok_or(Denial::NoSuchMember)?;
        match wish {
            Wish::Suspend(_) => {
                other.is_suspended = true;
                other.leaves = other.connection().is_some();
            }
            Wish::Resume(_) => {
                other.is_suspended = false;
                other.leaves = false;
            }
            Wish::SetMode(_, mode) => {
                other.mode = mode;
                let of = self.config.others.iter_mut().find(|(of, _)| *of == member);
                if let Some((_, configured)) = of {
                    *configured = mode;
                }
            }
            Wish::Compare(_) => {
                other.dirty = full;
                other.compares = true;
                if let Link::Streaming(stream) = &mut other.link {
                    stream.copying.get_or_insert_default();
                }
            }
            Wish::Reverse { to, nonce } => {
                if !confirmed.contains(to) {
                    return Err(Denial::NotInSync);
                }
                if is_changing {
                    return Err(Denial::Busy);
                }
                let source = self.source().ok_or(Denial::NotSource)?;
                source.handing_over = Some(HandOver { to, nonce, named: None, told: None });
            }
            Wish::GoOnWithout(_) | Wish::Promote { .. } | Wish::Demote => {}
        }
        // A source that starts again does as it was told.
        let suspended = match wish {
            Wish::Suspend(_) => self.label.suspended.with(member),
            Wish::Resume(_) => self.label.suspended.without(member),
            _ => self.label.suspended,
        };
        let is_new = std::mem::replace(&mut self.label.suspended, suspended) != suspended;
        // Before the witness agrees no label names the epoch; the one that does has this as well.
        let is_asking = |source: &mut Source| matches!(source.stage, Stage::Proposing(_));
        let is_named = !self.source().is_none_or(is_asking);
        if is_new && is_named {
            self.store_label(AfterLabel::Nothing);
        }
        Ok(())
    }

    /// Whether a member is suspended: the driver makes no connection to it then.
    pub fn is_suspended(&self, member: MemberId) -> bool {
        match &self.role {
            Role::Source(source) => {
                // Whom it waits for since it started again is heard first; who is in sync is sent to as long as it is.
                let is_needed = source.unseen.contains(member) || source.confirmed.contains(member);
                let suspends = |other: &Other| other.member == member && other.is_suspended;
                !is_needed && source.peers.iter().any(suspends)
            }
            Role::Destination(_) => false,
        }
    }
}
