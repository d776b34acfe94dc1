//! A lock of one writer or many readers, with a rank.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};

use super::held::{Held, register};
use super::rank::Rank;

/// [`std::sync::RwLock`] with a rank. A reader may not read again: a writer that waits in between would stop both.
pub struct RwLock<T: ?Sized, R: Rank> {
    rank: PhantomData<fn() -> R>,
    inner: std::sync::RwLock<T>,
}

impl<T, R: Rank> RwLock<T, R> {
    /// A lock that nobody holds.
    pub fn new(value: T) -> Self {
        register::<R>();
        Self { rank: PhantomData, inner: std::sync::RwLock::new(value) }
    }
}

impl<T: ?Sized, R: Rank> RwLock<T, R> {
    /// Takes the lock as a reader, once no writer holds it.
    ///
    /// # Panics
    ///
    /// Out of order, where the environment asks for that: see [the module](super).
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T, R> {
        let held = Held::take();
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        RwLockReadGuard { inner, held }
    }

    /// Takes the lock as a reader if that needs no wait; the order does not matter then.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T, R>> {
        let inner = match self.inner.try_read() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(inner)) => inner.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(RwLockReadGuard { inner, held: Held::take_free() })
    }

    /// Takes the lock as the writer if nobody holds it; the order does not matter then.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T, R>> {
        let inner = match self.inner.try_write() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(inner)) => inner.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(RwLockWriteGuard { inner, held: Held::take_free() })
    }

    /// Takes the lock as the writer, once nobody holds it.
    ///
    /// # Panics
    ///
    /// As [`RwLock::read`].
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T, R> {
        let held = Held::take();
        let inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        RwLockWriteGuard { inner, held }
    }
}

impl<T: Default, R: Rank> Default for RwLock<T, R> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug, R: Rank> fmt::Debug for RwLock<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// The lock of an [`RwLock`] as a reader, released when dropped.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized, R: Rank> {
    // Dropped first: the rank is held as long as the lock.
    inner: std::sync::RwLockReadGuard<'a, T>,
    #[expect(dead_code, reason = "held, not read")]
    held: Held<R>,
}

impl<T: ?Sized, R: Rank> Deref for RwLockReadGuard<'_, T, R> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

/// The lock of an [`RwLock`] as the writer, released when dropped.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized, R: Rank> {
    // Dropped first: the rank is held as long as the lock.
    inner: std::sync::RwLockWriteGuard<'a, T>,
    #[expect(dead_code, reason = "held, not read")]
    held: Held<R>,
}

impl<T: ?Sized, R: Rank> Deref for RwLockWriteGuard<'_, T, R> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized, R: Rank> DerefMut for RwLockWriteGuard<'_, T, R> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
