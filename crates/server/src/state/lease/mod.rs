//! Leases and oplocks of one file: who may cache what, and who has to give it back.
//!
//! ```text
//!            break needed, W or H held                acknowledged, or the deadline passed
//!  +------+ --------------------------> +----------+ --------------------------> +------+
//!  | Held |                             | Breaking |                             | Held | (less)
//!  +------+ --------------------------> +----------+                             +------+
//!            only R held: less at once, nobody answers
//! ```
//!
//! Whoever wants more while a break is under way is remembered: the answer starts the next step at
//! once, RWH to RH to R to nothing, and those who wait wait for the last one. Not everybody waits:
//! what is held for reading and for handles is told to go, and only who needs the handles closed,
//! or what was written, has to know that it is gone.
//!
//! One table serves both. An oplock is a lease that one open alone holds: level II is R,
//! exclusive is RW, batch is RWH. The table knows no connections and no clock; it says who must be
//! told (`Notice`) and until when an answer is owed.
//!
//! Spec: MS-SMB2 §3.3.1.12, §3.3.4.6, §3.3.4.7, §3.3.5.22; MS-FSA §2.1.5.18, §2.1.4.12.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::caching::{Caching, Flavor, Intent};
use super::lease_note::{LeaseNote, NoteNumber};
use super::serial::OpenSerial;
use crate::access::IdentityMark;

/// Who holds a lease: a user at a client under a key of its choice, or one open alone.
///
/// Client and key are what anybody says: they are read on the wire, and named again. So the user is part of it, though
/// MS-SMB2 §3.3.1.12 knows a lease by the other two: who borrows them holds a lease of its own, breaks that of the other
/// user as any stranger would, and answers for nobody.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Owner {
    /// A lease: all opens of one user at one client that name the same key.
    Lease { client: [u8; 16], key: [u8; 16], user: IdentityMark },
    /// An oplock, or no caching at all.
    Open(OpenSerial),
}

/// One holder must be told that it now may cache less.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Notice<N> {
    pub(crate) owner: Owner,
    pub(crate) flavor: Flavor,
    pub(crate) notify: N,
    pub(crate) from: Caching,
    pub(crate) to: Caching,
    pub(crate) epoch: u16,
    pub(crate) needs_answer: bool,
}

#[derive(Debug)]
struct Lease<N> {
    owner: Owner,
    flavor: Flavor,
    notify: N,
    held: Caching,
    breaking: Option<Breaking>,
    epoch: u16,
    opens: usize,
    note: LeaseNote,
}

#[derive(Clone, Copy, Debug)]
struct Breaking {
    /// What was held when the first of the breaks began.
    from: Caching,
    /// What the holder was told to keep.
    to: Caching,
    /// What is left to it when all who want something have it.
    goal: Caching,
    deadline: Instant,
    /// Its holder was silent, and has been told another way.
    insisted: bool,
}

/// All leases and oplocks of one file. `N` is how the holder is reached.
#[derive(Debug)]
pub(crate) struct LeaseTable<N> {
    leases: Vec<Lease<N>>,
    break_timeout: Duration,
    /// The number of the note that became stale last.
    last_note: NoteNumber,
}

/// A lease or oplock as a report shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    pub(crate) owner: Owner,
    pub(crate) caching: Caching,
    /// What is left once the break is answered, and until when it has to be.
    pub(crate) breaking: Option<(Caching, Instant)>,
    pub(crate) opens: usize,
}

/// What a CREATE got.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Granted {
    pub(crate) caching: Caching,
    pub(crate) epoch: u16,
    /// A break of this lease is under way.
    pub(crate) breaking: bool,
    /// Of the lease, which is that of its first open.
    pub(crate) flavor: Flavor,
}

impl<N: Clone> LeaseTable<N> {
    pub(crate) fn new(break_timeout: Duration) -> Self {
        Self { leases: Vec::new(), break_timeout, last_note: NoteNumber::default() }
    }

    /// Starts whatever breaks `intent` of `by` makes necessary. Those who are told are returned;
    /// whether the caller has to wait says [`LeaseTable::must_wait`].
    pub(crate) fn start_breaks(
        &mut self,
        by: Owner,
        intent: Intent,
        now: Instant,
    ) -> Vec<Notice<N>> {
        let deadline = now + self.break_timeout;
        let last_note = &mut self.last_note;
        self.leases
            .iter_mut()
            .filter(|lease| lease.owner != by || (intent == Intent::Modify && lease.is_level_ii()))
            .filter_map(|lease| lease.start_break(intent, deadline, last_note))
            .collect()
    }

    /// Whether `intent` of `by` has to wait for breaks, or for their notes.
    pub(crate) fn must_wait(&self, by: Owner, intent: Intent) -> bool {
        self.in_the_way(by, intent).next().is_some() || self.stale_note(by).is_some()
    }

    /// A lease of another owner that is not whole any more, which the log does not say yet: a crash would give its holder,
    /// who may have been away, what somebody else was promised meanwhile.
    pub(crate) fn stale_note(&self, by: Owner) -> Option<Owner> {
        let is_stale = |lease: &&Lease<N>| lease.owner != by && lease.note.is_stale();
        self.leases.iter().find(is_stale).map(|lease| lease.owner)
    }

    /// The log is about to say what this owner holds: what it may say.
    pub(crate) fn note(&mut self, owner: Owner) -> Option<Granted> {
        let lease = self.leases.iter_mut().find(|lease| lease.owner == owner)?;
        let mut granted = lease.granted();
        if lease.breaking.is_some() || lease.note.is_stale() {
            granted.caching = Caching::NONE;
        } else if lease.held != Caching::NONE {
            lease.note = LeaseNote::Held;
        }
        Some(granted)
    }

    /// Whether the log still says of this owner what is not true any more.
    pub(crate) fn has_stale_note(&self, owner: Owner) -> bool {
        self.leases.iter().any(|lease| lease.owner == owner && lease.note.is_stale())
    }

    /// The notes that `by` waits for and nobody writes yet: somebody is about to.
    pub(crate) fn begin_notes(&mut self, by: Owner) -> HashMap<Owner, NoteNumber> {
        let others = self.leases.iter_mut().filter(|lease| lease.owner != by);
        others.filter_map(|lease| Some((lease.owner, lease.note.begin()?))).collect()
    }

    /// The log says of every open that these owners had when their notes began to be written that nothing is held.
    pub(crate) fn notes_are_right(&mut self, written: &HashMap<Owner, NoteNumber>) {
        for lease in &mut self.leases {
            if let Some(written) = written.get(&lease.owner) {
                lease.note.is_right(*written);
            }
        }
    }

    /// Whether the note of an owner may have been overtaken by a break while it was written.
    pub(crate) fn is_note_whole(&self, owner: Owner) -> bool {
        let lease = self.leases.iter().find(|lease| lease.owner == owner);
        lease.is_none_or(|lease| lease.note == LeaseNote::Held)
    }

    /// Whose breaks `intent` of `by` has to wait for, and until when.
    pub(crate) fn in_the_way(
        &self,
        by: Owner,
        intent: Intent,
    ) -> impl Iterator<Item = (Owner, Instant)> {
        self.leases
            .iter()
            .filter(move |lease| lease.owner != by)
            .filter_map(|lease| Some((lease, lease.breaking?)))
            .filter(move |(lease, breaking)| {
                intent.leaves(lease.flavor, breaking.from) != breaking.from
            })
            .filter(move |(_, breaking)| intent.waits_for(breaking.from))
            .map(|(lease, breaking)| (lease.owner, breaking.deadline))
    }

    /// Grants a lease or oplock to an open, or joins it to the lease its client already holds.
    ///
    /// `alone`: no other owner has this file open.
    pub(crate) fn grant(
        &mut self,
        owner: Owner,
        flavor: Flavor,
        wanted: Caching,
        alone: bool,
        first_epoch: u16,
        notify: N,
    ) -> Granted {
        let wanted = wanted.sanitized();
        // Another holder's W was broken before this open got here; H and R can be shared.
        // Cached handles go with no oplock: its holder could not be told that they have to go.
        let others = || self.leases.iter().filter(|lease| lease.owner != owner);
        let others_write = others().any(|lease| lease.left().contains(Caching::WRITE));
        let others_handles = others()
            .any(|lease| lease.flavor != Flavor::Oplock && lease.left().contains(Caching::HANDLE));
        let others_oplock = others()
            .any(|lease| lease.flavor == Flavor::Oplock && lease.left().contains(Caching::READ));
        // An open that only looks may hold a lease all the same.
        let alone = alone && others().all(|lease| lease.left() == Caching::NONE);
        let only_read = Caching(wanted.0 & Caching::READ.0);
        let possible = match flavor {
            _ if others_write => Caching::NONE,
            Flavor::Oplock if others_handles => Caching::NONE,
            _ if alone => wanted,
            // Two exclusive oplocks cannot be; what is left of them is level II.
            Flavor::Oplock => only_read,
            Flavor::LeaseV1 | Flavor::LeaseV2 if others_oplock => only_read,
            Flavor::LeaseV1 | Flavor::LeaseV2 => wanted.without(Caching::WRITE),
        };
        if let Some(lease) = self.leases.iter_mut().find(|lease| lease.owner == owner) {
            lease.opens += 1;
            // MS-SMB2 §3.3.5.9.8: a lease is only ever widened here, never while it breaks, and
            // only as far as was asked for: what cannot be had whole is not had in part.
            let widens = possible == wanted && wanted != lease.held && wanted.contains(lease.held);
            if lease.breaking.is_none() && widens {
                lease.held = possible;
                lease.epoch = lease.epoch.wrapping_add(1);
            }
            return lease.granted();
        }
        if flavor == Flavor::Oplock && possible == Caching::NONE {
            return Granted { caching: Caching::NONE, epoch: 0, breaking: false, flavor };
        }
        // It counts changes, and none is none.
        let counted = u16::from(possible != Caching::NONE);
        let epoch = first_epoch.wrapping_add(counted);
        let lease = Lease {
            owner,
            flavor,
            notify,
            held: possible,
            breaking: None,
            epoch,
            opens: 1,
            note: LeaseNote::None,
        };
        let granted = lease.granted();
        self.leases.push(lease);
        granted
    }

    /// Gives an owner what it held in an earlier life of the server: what the notes of all its opens say. Where there are
    /// several none caches writes: which of them did is not known.
    pub(crate) fn restore(&mut self, owner: Owner, flavor: Flavor, held: Caching, epoch: u16)
    where
        N: Default,
    {
        if let Some(lease) = self.leases.iter_mut().find(|lease| lease.owner == owner) {
            lease.opens += 1;
            lease.held = Caching(lease.held.0 & held.0).sanitized();
            if (1..=EPOCHS_AHEAD).contains(&epoch.wrapping_sub(lease.epoch)) {
                lease.epoch = epoch;
            }
        } else {
            let notify = N::default();
            let (held, breaking, note) = (held.sanitized(), None, LeaseNote::Held);
            self.leases.push(Lease {
                owner,
                flavor,
                notify,
                held,
                breaking,
                epoch,
                opens: 1,
                note,
            });
        }
        if self.leases.len() > 1 {
            for lease in &mut self.leases {
                lease.held = match lease.flavor {
                    Flavor::Oplock => Caching(lease.held.0 & Caching::READ.0),
                    Flavor::LeaseV1 | Flavor::LeaseV2 => lease.held.without(Caching::WRITE),
                };
            }
        }
    }

    /// A holder that comes back after a crash names the epoch it knows, which the note of its lease is behind. What it is
    /// told from now on is newer: it would ignore the rest (MS-SMB2 §3.2.5.19.2).
    pub(crate) fn catch_up(&mut self, owner: Owner, known: Caching, epoch: u16) {
        let Some(lease) = self.leases.iter_mut().find(|lease| lease.owner == owner) else { return };
        if (1..=EPOCHS_AHEAD).contains(&epoch.wrapping_sub(lease.epoch)) {
            let is_news = lease.breaking.is_some() || lease.held != known;
            lease.epoch = epoch.wrapping_add(u16::from(is_news));
        }
    }

    /// A holder answers a break. What it keeps, and whom to tell of the next step if more is
    /// wanted.
    pub(crate) fn acknowledge(
        &mut self,
        owner: Owner,
        kept: Caching,
        now: Instant,
    ) -> Result<(Caching, Option<Notice<N>>), AcknowledgeError> {
        let deadline = now + self.break_timeout;
        let lease = self
            .leases
            .iter_mut()
            .find(|lease| lease.owner == owner)
            .ok_or(AcknowledgeError::NoSuchLease)?;
        let breaking = lease.breaking.ok_or(AcknowledgeError::NotBreaking)?;
        // MS-SMB2 §3.3.5.22.2: it may keep less than it was left, never more.
        if !breaking.to.contains(kept) {
            return Err(AcknowledgeError::KeepsTooMuch);
        }
        let kept = kept.sanitized();
        lease.held = kept;
        lease.breaking = None;
        let left = Caching(kept.0 & breaking.goal.0).sanitized();
        if left == kept {
            return Ok((kept, None));
        }
        // Handles go before what they read: RH to R, and only then to nothing.
        let to = if kept == Caching::READ.union(Caching::HANDLE) && left == Caching::NONE {
            Caching::READ
        } else {
            left
        };
        let next = Breaking { to, deadline, insisted: false, ..breaking };
        Ok((kept, Some(lease.tell(next))))
    }

    /// Takes by force what was not given back in time: of whom.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Owner> {
        let mut taken = Vec::new();
        for lease in &mut self.leases {
            if lease.breaking.is_some_and(|breaking| breaking.deadline <= now) {
                // MS-SMB2 §3.3.6.5: a holder that does not answer loses everything.
                lease.held = Caching::NONE;
                lease.breaking = None;
                taken.push(lease.owner);
            }
        }
        taken
    }

    /// One open of the owner was closed; the last one takes the lease with it: then this is true.
    pub(crate) fn close(&mut self, owner: Owner) -> bool {
        let found = self.leases.iter().position(|lease| lease.owner == owner);
        let Some(at) = found else { return false };
        self.leases[at].opens = self.leases[at].opens.saturating_sub(1);
        let has_gone = self.leases[at].opens == 0;
        if has_gone {
            self.leases.remove(at);
        }
        has_gone
    }

    /// What an owner holds now.
    #[cfg(test)]
    pub(crate) fn held(&self, owner: Owner) -> Caching {
        let lease = self.leases.iter().find(|lease| lease.owner == owner);
        lease.map_or(Caching::NONE, |lease| lease.held)
    }

    /// What was told to holders of leases who have not answered, and were not asked a second time.
    pub(crate) fn insist(&mut self) -> Vec<Notice<N>> {
        let leases = self.leases.iter_mut().filter(|lease| lease.flavor != Flavor::Oplock);
        let silent = leases.filter_map(|lease| {
            let breaking = lease.breaking.as_mut()?;
            (!std::mem::replace(&mut breaking.insisted, true)).then(|| lease.owed())?
        });
        silent.collect()
    }

    /// What `owner` was told and has not answered, to be told again.
    pub(crate) fn owed(&self, owner: Owner) -> Option<Notice<N>> {
        self.leases.iter().find(|lease| lease.owner == owner)?.owed()
    }

    /// Whether `owner` holds exactly this, and nobody asks for it back.
    pub(crate) fn is_held_whole(&self, owner: Owner, whole: Caching) -> bool {
        let lease = self.leases.iter().find(|lease| lease.owner == owner);
        lease.is_some_and(|lease| lease.held == whole && lease.breaking.is_none())
    }

    /// Whether `owner` holds at least this, and nobody asks for any of it back.
    pub(crate) fn is_held_with(&self, owner: Owner, part: Caching) -> bool {
        let lease = self.leases.iter().find(|lease| lease.owner == owner);
        lease.is_some_and(|lease| lease.held.contains(part) && lease.breaking.is_none())
    }

    /// Whether an owner has kept every right since its lease counted `epoch` changes. A break that is under way has taken
    /// nothing yet: whoever wants something waits until it is answered, or its time is over.
    pub(crate) fn is_whole_since(&self, owner: Owner, epoch: u16) -> bool {
        let mine = self.leases.iter().find(|lease| lease.owner == owner);
        mine.is_some_and(|lease| {
            let broken = u16::from(lease.breaking.is_some());
            lease.held == Caching::COMPLETE && lease.epoch == epoch.wrapping_add(broken)
        })
    }

    /// What an owner holds, as a CREATE would be told; `None` if nothing was ever granted.
    pub(crate) fn granted(&self, owner: Owner) -> Option<Granted> {
        self.leases.iter().find(|lease| lease.owner == owner).map(Lease::granted)
    }

    /// Whether anybody caches anything that a change by `by` makes stale.
    pub(crate) fn is_stale_after(&self, by: Owner) -> bool {
        let is_other = |lease: &Lease<N>| lease.owner != by && lease.held != Caching::NONE;
        let is_stale = |lease: &Lease<N>| is_other(lease) || lease.is_level_ii();
        self.leases.iter().any(is_stale) || self.stale_note(by).is_some()
    }

    /// Those that grant anything, for a report.
    pub(crate) fn holdings(&self) -> impl Iterator<Item = Holding> {
        self.leases.iter().filter(|lease| lease.held != Caching::NONE).map(|lease| Holding {
            owner: lease.owner,
            caching: lease.held,
            breaking: lease.breaking.map(|breaking| (breaking.to, breaking.deadline)),
            opens: lease.opens,
        })
    }

    /// Leases and oplocks on this file that grant anything.
    pub(crate) fn len(&self) -> usize {
        self.leases.iter().filter(|lease| lease.held != Caching::NONE).count()
    }
}

impl<N: Clone> Lease<N> {
    fn start_break(
        &mut self,
        intent: Intent,
        deadline: Instant,
        last_note: &mut NoteNumber,
    ) -> Option<Notice<N>> {
        let to = intent.leaves(self.flavor, self.held);
        if let Some(breaking) = &mut self.breaking {
            breaking.goal = Caching(breaking.goal.0 & to.0).sanitized();
            return None;
        }
        if to == self.held {
            return None;
        }
        self.note.break_off(last_note);
        // MS-SMB2 §3.3.4.7: counted once, however many steps it takes.
        self.epoch = self.epoch.wrapping_add(1);
        Some(self.tell(Breaking { from: self.held, to, goal: to, deadline, insisted: false }))
    }

    fn owed(&self) -> Option<Notice<N>> {
        let to = self.breaking?.to;
        let Self { owner, flavor, held: from, epoch, .. } = *self;
        let notify = self.notify.clone();
        Some(Notice { owner, flavor, notify, from, to, epoch, needs_answer: true })
    }

    // Level II is good until anybody changes the file, its holder included.
    fn is_level_ii(&self) -> bool {
        self.flavor == Flavor::Oplock && self.held == Caching::READ
    }

    // Starts a step of a break.
    fn tell(&mut self, breaking: Breaking) -> Notice<N> {
        let (from, to) = (self.held, breaking.to);
        // MS-SMB2 §2.2.23.2: only what the holder may have to write back or close is waited for.
        let needs_answer = from != Caching::READ;
        if needs_answer {
            self.breaking = Some(breaking);
        } else {
            self.held = to;
        }
        let (owner, flavor, epoch) = (self.owner, self.flavor, self.epoch);
        Notice { owner, flavor, notify: self.notify.clone(), from, to, epoch, needs_answer }
    }

    // What the holder has when it has answered.
    fn left(&self) -> Caching {
        self.breaking.map_or(self.held, |breaking| breaking.to)
    }

    fn granted(&self) -> Granted {
        let (breaking, flavor) = (self.breaking.is_some(), self.flavor);
        Granted { caching: self.held, epoch: self.epoch, breaking, flavor }
    }
}

/// An epoch that is at most so much ahead of another is newer: they wrap.
const EPOCHS_AHEAD: u16 = 0x7fff;

/// Why an acknowledgment is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AcknowledgeError {
    NoSuchLease,
    NotBreaking,
    KeepsTooMuch,
}

#[cfg(test)]
mod tests;
