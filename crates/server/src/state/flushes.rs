//! The flushes of a file: all opens of it share one group, which takes one descriptor.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use pmem::CommitGroup;
use tree::{Flushes, ShareError};

use super::account::Hold;

/// The group of a file, from its first flush on, and the place of the group's descriptor in the account of a user.
#[derive(Debug, Default)]
pub(super) struct SharedFlushes(OnceLock<(CommitGroup, Option<Hold>)>);

impl SharedFlushes {
    /// The flushes for a caller that pays for the descriptor with this place, if it is the first.
    pub(super) fn paid_by<P>(&self, place: P) -> impl Flushes
    where
        P: Fn() -> Result<Option<Hold>, ShareError>,
    {
        Paid { flushes: self, place }
    }
}

/// See [`SharedFlushes::paid_by`].
struct Paid<'a, P> {
    flushes: &'a SharedFlushes,
    place: P,
}

impl<P: Fn() -> Result<Option<Hold>, ShareError>> Flushes for Paid<'_, P> {
    fn group_of(&self, file: BorrowedFd<'_>) -> Result<&CommitGroup, ShareError> {
        let known = &self.flushes.0;
        if let Some((group, _)) = known.get() {
            return Ok(group);
        }
        let place = (self.place)()?;
        let failed = |_| ShareError::HandlesExhausted;
        let file = file.try_clone_to_owned().map_err(failed)?;
        let group = CommitGroup::of(&file.into()).map_err(failed)?;
        Ok(&known.get_or_init(|| (group, place)).0)
    }
}
