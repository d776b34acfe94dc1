//! Waiting with a lock for what others change under it.

use std::sync::PoisonError;

use super::mutex::MutexGuard;
use super::rank::Rank;

/// [`std::sync::Condvar`] for mutexes with a rank. The thread counts as the holder while it waits: it takes no other
/// lock then.
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// One that nobody waits for.
    pub const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    /// Releases the lock until a notification, or for no reason, and takes it again.
    pub fn wait<'a, T, R: Rank>(&self, guard: MutexGuard<'a, T, R>) -> MutexGuard<'a, T, R> {
        let MutexGuard { inner, held } = guard;
        let inner = self.0.wait(inner).unwrap_or_else(PoisonError::into_inner);
        MutexGuard { inner, held }
    }

    /// [`Condvar::wait`], as often as `condition` holds.
    pub fn wait_while<'a, T, R: Rank>(
        &self,
        guard: MutexGuard<'a, T, R>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T, R> {
        let MutexGuard { inner, held } = guard;
        let inner = self.0.wait_while(inner, condition).unwrap_or_else(PoisonError::into_inner);
        MutexGuard { inner, held }
    }

    /// Wakes a thread that waits, if there is one.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
