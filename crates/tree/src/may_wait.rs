//! The leave to wait for a disk, whatever lies there.
//!
//! A request occupies a reactor for 1 ms at most. What always waits for a disk, such as the log of persistent opens, whose
//! share may lie in memory, takes this leave, which threads that may wait have: no way that a request takes on a reactor
//! comes there. `cargo xtask tidy` lists who gives leaves.

use std::marker::PhantomData;

/// See the module. It stays on its thread.
#[derive(Clone, Copy, Debug)]
pub struct MayWait(PhantomData<*const ()>);

impl MayWait {
    /// For whoever has brought its work to a thread that may wait.
    pub fn here() -> Self {
        Self(PhantomData)
    }
}
