//! The members of an open log: writes go to all that are in sync, and only what all of them have is durable.
//!
//! ```text
//!   place and commit everywhere --> all did      --> durable
//!                               `-> some failed  --> the rest records, durably, that these are out --> durable
//! ```
//! A member that failed is out only once every member that is left has it on its label: a crash in between leaves a
//! label that asks for the failed member, and opening then refuses rather than to miss what it may have acknowledged.

use std::sync::Arc;

use pmem::Medium;

use crate::create::unit_of;
use crate::error::LogError;
use crate::format::{Header, Label, record::HEADER_LEN};
use crate::lsn::Lsn;
use crate::members::{MEMBERS_MAX, MemberSet};
#[cfg(test)]
use crate::planted::Planted;
use crate::ring::Ring;
use crate::scan::to_u64;
use crate::staging::Batch;
use crate::store::{Store, StoreError, Worth};

/// One member that is here.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) number: usize,
    /// The sequence of its last label.
    pub(crate) sequence: u64,
    pub(crate) store: Box<dyn Store>,
}

/// The members in sync, and what their labels say.
#[derive(Debug)]
pub(crate) struct Mirror {
    label: Label,
    members: Vec<Member>,
    failed: Vec<(usize, StoreError)>,
    /// Too few members are left: nothing is durable any more, whatever those that are left say.
    is_broken: bool,
}

impl Mirror {
    /// Members whose labels are about to say `label`: see [`Mirror::put_labels`].
    pub(crate) fn new(label: Label, members: Vec<Member>) -> Self {
        Self { label, members, failed: Vec::new(), is_broken: false }
    }

    pub(crate) fn label(&self) -> &Label {
        &self.label
    }

    /// Whether too few members are left.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Members that failed since the log was opened, each with its reason.
    pub(crate) fn failed(&self) -> &[(usize, StoreError)] {
        &self.failed
    }

    /// What a commit is worth at each member in sync.
    pub(crate) fn worths(&self) -> Vec<(usize, Worth)> {
        self.members.iter().map(|member| (member.number, member.store.worth())).collect()
    }

    /// The memory of the only member, where a commit is made by instructions of this processor alone.
    pub(crate) fn only_memory(&self) -> Option<Arc<dyn Medium>> {
        match &self.members[..] {
            [only] if only.store.worth().is_quick() && !self.is_broken => only.store.memory(),
            _ => None,
        }
    }

    /// The only member has failed where a thread placed its own record. That ends the log, also where a newcomer is in sync
    /// by now: nobody has the record, and nothing behind its room can be durable.
    pub(crate) fn only_failed(&mut self, cause: StoreError) -> LogError {
        // Threads that place their records side by side also fail side by side.
        let Some(member) = self.members.first().filter(|_| !self.is_broken) else {
            return LogError::Broken;
        };
        let member = member.number;
        self.is_broken = true;
        self.failed.push((member, cause.clone()));
        LogError::Store { member, cause }
    }

    /// Makes a batch durable at every member in sync.
    pub(crate) fn harden(&mut self, batch: &Batch) -> Result<(), LogError> {
        let ring = self.ring();
        #[cfg(test)]
        let mut is_first = true;
        self.each(|store| {
            #[cfg(test)]
            let is_skipped = Planted::SkipsCommit.is_here()
                || Planted::AcknowledgesBeforeMembers.is_here() && !std::mem::take(&mut is_first);
            for (at, offset, len) in ring.pieces(batch.range()) {
                let from = usize::try_from(at.since(batch.start)).expect("within the batch");
                let len = usize::try_from(len).expect("within the batch");
                store.place(offset, &batch.bytes[from..from + len])?;
                #[cfg(test)]
                if is_skipped {
                    continue;
                }
                store.begin_commit(offset, to_u64(len))?;
            }
            Ok(())
        })
    }

    /// Changes the labels of every member in sync. What needs the change comes when this has returned.
    pub(crate) fn put_labels(&mut self, change: impl FnOnce(&mut Label)) -> Result<(), LogError> {
        if self.is_broken {
            return Err(LogError::Broken);
        }
        change(&mut self.label);
        let failed = self.try_labels();
        self.leave_out(failed)
    }

    /// The planted fault of a trim without labels.
    #[cfg(test)]
    pub(crate) fn forget_to_label(&mut self, start: Lsn) {
        self.label.start = start;
    }

    /// Takes a member in that has every record up to `durable`.
    pub(crate) fn admit(&mut self, member: Member) -> Result<(), LogError> {
        if self.is_broken {
            return Err(LogError::Broken);
        }
        let (number, newest) = (member.number, self.label.clone());
        self.label.in_sync = self.label.in_sync.with(number);
        self.label.set_epoch += 1;
        self.label.unit = self.label.unit.max(unit_of(&*member.store));
        let count = u8::try_from(number + 1).expect("at most MEMBERS_MAX");
        self.label.members = self.label.members.max(count);
        self.members.push(member);
        // The newcomer first: if it fails now, no other label asks for it.
        let newcomer = self.members.len() - 1;
        if let Err(cause) = self.label_at(newcomer) {
            self.members.pop();
            self.label = newest;
            // Its label may be there all the same. The next newcomer may get its number: two epochs tell them apart.
            self.put_labels(|label| label.set_epoch += 1)?;
            self.put_labels(|label| label.set_epoch += 1)?;
            return Err(LogError::Store { member: number, cause });
        }
        self.put_labels(|_| {})
    }

    /// Takes a member out that has not failed.
    pub(crate) fn dismiss(&mut self, number: usize) -> Result<(), LogError> {
        let left = self.label.in_sync.without(number);
        if left.len() < usize::from(self.label.least_in_sync) {
            let (asked, members) = (self.label.least_in_sync, self.label.members);
            return Err(LogError::ConfigLeastInSync { asked, members });
        }
        self.members.retain(|member| member.number != number);
        self.put_labels(|label| {
            label.in_sync = left;
            label.set_epoch += 1;
        })
    }

    /// The smallest number that no member in sync has.
    pub(crate) fn free_number(&self) -> Option<usize> {
        (0..MEMBERS_MAX).find(|number| !self.label.in_sync.contains(*number))
    }

    /// Runs `read` on the members in sync, one after the other, until one succeeds.
    pub(crate) fn read_somewhere<T>(
        &mut self,
        mut read: impl FnMut(&mut dyn Store) -> Result<Option<T>, StoreError>,
    ) -> Result<Option<T>, LogError> {
        let mut last = Ok(None);
        for member in &mut self.members {
            match read(&mut *member.store) {
                Ok(Some(found)) => return Ok(Some(found)),
                Ok(None) => {}
                Err(cause) => last = Err(LogError::Store { member: member.number, cause }),
            }
        }
        last
    }

    /// The header of the record at `lsn`, if one begins there.
    pub(crate) fn header_at(&mut self, lsn: Lsn) -> Result<Option<Header>, LogError> {
        let offset = self.ring().offset(lsn);
        self.read_somewhere(|store| {
            let mut bytes = [0; HEADER_LEN];
            store.read(offset, &mut bytes)?;
            Ok(Header::parse(&bytes).map(|(header, _)| header).filter(|found| found.lsn == lsn))
        })
    }

    pub(crate) fn ring(&self) -> Ring {
        Ring { capacity: self.label.capacity }
    }

    /// Begins something at every member and waits for all; the members at which it failed are left out.
    fn each(
        &mut self,
        mut begin: impl FnMut(&mut dyn Store) -> Result<(), StoreError>,
    ) -> Result<(), LogError> {
        if self.is_broken {
            return Err(LogError::Broken);
        }
        let mut failed = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate() {
            if let Err(cause) = begin(&mut *member.store) {
                failed.push((index, cause));
            }
        }
        for (index, member) in self.members.iter_mut().enumerate() {
            let is_failed = failed.iter().any(|(known, _)| *known == index);
            if let Err(cause) = member.store.end_commit()
                && !is_failed
            {
                failed.push((index, cause));
            }
        }
        self.leave_out(failed)
    }

    /// Records that members are out, at all that are left, until a round has no failure.
    fn leave_out(&mut self, failed: Vec<(usize, StoreError)>) -> Result<(), LogError> {
        let mut failed = failed;
        while let Some((_, cause)) = failed.last().cloned() {
            let out = MemberSet::of(
                &failed.iter().map(|(index, _)| self.members[*index].number).collect::<Vec<_>>(),
            );
            for (index, cause) in failed.drain(..) {
                self.failed.push((self.members[index].number, cause));
            }
            self.members.retain(|member| !out.contains(member.number));
            let last = out.numbers().last().expect("at least one failed");
            let left = self.label.in_sync.minus(out);
            if left.len() < usize::from(self.label.least_in_sync) || left.is_empty() {
                self.is_broken = true;
                return Err(LogError::Store { member: last, cause });
            }
            tracing::warn!(members = %out, %cause, "members of the log are out of sync");
            self.label.in_sync = left;
            self.label.set_epoch += 1;
            failed = self.try_labels();
        }
        Ok(())
    }

    /// Writes the label to every member, to one slot and then to the other; the members at which that failed, by index.
    /// A copy that is damaged later leaves one that says the same, and nobody has built on a label with one copy.
    fn try_labels(&mut self) -> Vec<(usize, StoreError)> {
        for _copy in [0, 1] {
            let outcomes = (0..self.members.len()).map(|index| (index, self.label_at(index)));
            let failed: Vec<_> =
                outcomes.filter_map(|(index, outcome)| Some((index, outcome.err()?))).collect();
            if !failed.is_empty() {
                return failed;
            }
            #[cfg(test)]
            if Planted::LabelsOnce.is_here() {
                break;
            }
        }
        Vec::new()
    }

    fn label_at(&mut self, index: usize) -> Result<(), StoreError> {
        let member = &mut self.members[index];
        member.sequence += 1;
        let number = u8::try_from(member.number).expect("at most MEMBERS_MAX");
        let label = Label { sequence: member.sequence, member: number, ..self.label.clone() };
        let bytes = label.emit();
        member.store.place(label.slot(), &bytes)?;
        member.store.begin_commit(label.slot(), to_u64(bytes.len()))?;
        member.store.end_commit()
    }
}
