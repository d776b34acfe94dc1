//! A member in a region of another machine.

use remote::{Messages, Path, RemoteRegion};
use thiserror::Error;

use super::{Store, StoreError, Worth};

/// A mapped region as a store.
///
/// The store works in push mode alone: one-sided writes, and commits that need no program of the other side. A region
/// that is recalled, or whose connection is lost, ends the store, because its owner can no longer be sure to be the
/// only one who appends. Open the region again, and the log with it.
///
/// Dropped in push mode it waits until the server has let go of the file, so that the log can be opened again at once; not in a
/// task of an async runtime, where nothing may block.
#[derive(Debug)]
pub struct RemoteStore<M: Messages> {
    /// There until the drop.
    region: Option<RemoteRegion<M>>,
    worth: Worth,
    begun: usize,
}

impl<M: Messages> RemoteStore<M> {
    /// A store of the whole region.
    ///
    /// # Errors
    ///
    /// The region is not in push mode; the error says why.
    pub fn new(mut region: RemoteRegion<M>) -> Result<Self, StoreError> {
        // Before the look at the path: a recall that comes in between ends the region too.
        region.end_with_push();
        let worth = match region.path() {
            Path::Push { class, is_emulated, .. } => {
                Worth { class: *class, is_emulated: *is_emulated, is_remote: true }
            }
            fallen @ Path::Messages { .. } => return Err(NotMapped::error(fallen)),
        };
        Ok(Self { region: Some(region), worth, begun: 0 })
    }

    fn region(&mut self) -> &mut RemoteRegion<M> {
        self.region.as_mut().expect("it is there until the drop")
    }

    fn check(&self) -> Result<(), StoreError> {
        let region = self.region.as_ref().expect("it is there until the drop");
        match region.path() {
            Path::Push { .. } => Ok(()),
            fallen @ Path::Messages { .. } => Err(NotMapped::error(fallen)),
        }
    }
}

impl<M: Messages> Store for RemoteStore<M> {
    fn len(&self) -> u64 {
        self.region.as_ref().map_or(0, RemoteRegion::len)
    }

    fn worth(&self) -> Worth {
        self.worth
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.region().read(offset, out).map_err(StoreError::new)
    }

    fn place(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.check()?;
        self.region().write(offset, bytes).map_err(StoreError::new)
    }

    fn begin_commit(&mut self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.check()?;
        self.region().submit_commit(offset, len).map_err(StoreError::new)?;
        self.begun += 1;
        Ok(())
    }

    fn end_commit(&mut self) -> Result<(), StoreError> {
        let mut outcome = Ok(());
        for _ in 0..std::mem::take(&mut self.begun) {
            let finished = self.region().finish(&mut []).map(drop).map_err(StoreError::new);
            outcome = outcome.and(finished);
        }
        // A commit that a message made is durable too, but nothing may follow it.
        outcome
    }

    /// The server commits whatever is in the range, whoever placed it.
    fn settle(&mut self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.begin_commit(offset, len)?;
        self.end_commit()
    }
}

impl<M: Messages> Drop for RemoteStore<M> {
    fn drop(&mut self) {
        // One that has left push mode may have lost its server, who would be waited for in vain.
        if self.check().is_ok()
            && let Some(region) = self.region.take()
        {
            let _ = region.close();
        }
    }
}

/// The region is not, or no longer, in push mode.
#[derive(Debug, Error)]
#[error("the region of the log is not in push mode: {0}")]
struct NotMapped<M: Messages>(Path<M>);

impl<M: Messages> NotMapped<M> {
    fn error(path: &Path<M>) -> StoreError {
        StoreError::new(Self(path.clone()))
    }
}
