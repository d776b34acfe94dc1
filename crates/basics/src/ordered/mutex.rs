//! A mutex with a rank.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};

use super::held::{Held, register};
use super::rank::Rank;

/// [`std::sync::Mutex`] with a rank.
pub struct Mutex<T: ?Sized, R: Rank> {
    rank: PhantomData<fn() -> R>,
    inner: std::sync::Mutex<T>,
}

impl<T, R: Rank> Mutex<T, R> {
    /// A mutex that nobody holds.
    pub fn new(value: T) -> Self {
        register::<R>();
        Self { rank: PhantomData, inner: std::sync::Mutex::new(value) }
    }
}

impl<T: ?Sized, R: Rank> Mutex<T, R> {
    /// Takes the lock, once no other thread holds it.
    ///
    /// # Panics
    ///
    /// Out of order, where the environment asks for that: see [the module](super).
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T, R> {
        let held = Held::take();
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        MutexGuard { inner, held }
    }

    /// Takes the lock if nobody holds it. The order does not matter, as the caller does not wait.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, R>> {
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(inner)) => inner.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { inner, held: Held::take_free() })
    }

    /// Takes the locks of several mutexes of one rank, in order of their addresses; of a mutex that is named twice one
    /// lock. Threads that take several of them take them by this call, so they do so in one order.
    ///
    /// # Panics
    ///
    /// As [`Mutex::lock`].
    pub fn lock_all<'a>(mutexes: impl IntoIterator<Item = &'a Self>) -> AllGuards<'a, T, R> {
        let mut mutexes: Vec<_> = mutexes.into_iter().collect();
        mutexes.sort_unstable_by_key(|mutex| std::ptr::from_ref(*mutex).addr());
        mutexes.dedup_by_key(|mutex| std::ptr::from_ref(*mutex).addr());
        let held = (!mutexes.is_empty()).then(Held::take);
        let lock = |mutex: &'a Self| mutex.inner.lock().unwrap_or_else(PoisonError::into_inner);
        AllGuards { inner: mutexes.into_iter().map(lock).collect(), held }
    }
}

impl<T: Default, R: Rank> Default for Mutex<T, R> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug, R: Rank> fmt::Debug for Mutex<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// The lock of a [`Mutex`], released when dropped.
#[must_use = "the lock is released when this is dropped"]
pub struct MutexGuard<'a, T: ?Sized, R: Rank> {
    // Dropped first: the rank is held as long as the lock.
    pub(super) inner: std::sync::MutexGuard<'a, T>,
    pub(super) held: Held<R>,
}

impl<T: ?Sized, R: Rank> Deref for MutexGuard<'_, T, R> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized, R: Rank> DerefMut for MutexGuard<'_, T, R> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug, R: Rank> fmt::Debug for MutexGuard<'_, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// The locks that [`Mutex::lock_all`] has taken, released when dropped.
#[derive(Debug)]
#[must_use = "the locks are released when this is dropped"]
pub struct AllGuards<'a, T: ?Sized, R: Rank> {
    #[expect(dead_code, reason = "held, not read")]
    inner: Vec<std::sync::MutexGuard<'a, T>>,
    #[expect(dead_code, reason = "held, not read")]
    held: Option<Held<R>>,
}
