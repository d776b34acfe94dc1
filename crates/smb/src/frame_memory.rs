//! Frames that came from a peer, and their memory, which is used again.
//!
//! ```text
//!   Spares --take--> InFrame --parsed, dealt with--> dropped
//!      ^----------------keep----------------------------'
//! ```
//!
//! A WRITE or an answer of 64 KiB or 1 MiB in fresh memory costs more for its pages than for its
//! bytes: the allocator gives such memory back to the system when it is freed.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// A frame without what its transport puts in front.
#[derive(Debug)]
pub struct InFrame {
    bytes: Vec<u8>,
    home: Option<Arc<Spares>>,
}

impl From<Vec<u8>> for InFrame {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, home: None }
    }
}

impl Deref for InFrame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for InFrame {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for InFrame {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            home.keep(mem::take(&mut self.bytes));
        }
    }
}

/// Memory of long frames that were dealt with, of one connection.
#[derive(Debug, Default)]
pub struct Spares(Mutex<Vec<Vec<u8>>>);

impl Spares {
    /// A frame of `len` bytes, whatever they are: in memory used last, if there is any.
    pub fn frame(self: &Arc<Self>, len: usize) -> InFrame {
        let mut bytes = self.lock().pop().unwrap_or_default();
        bytes.resize(len, 0);
        InFrame { bytes, home: Some(Arc::clone(self)) }
    }

    /// Whether there is anything to give back.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Gives the memory back: nothing has come for a while.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn keep(&self, bytes: Vec<u8>) {
        let mut spares = self.lock();
        let held: usize = spares.iter().map(Vec::capacity).sum();
        if spares.len() < COUNT_MAX && held + bytes.capacity() <= BYTES_MAX {
            spares.push(bytes);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes kept for a connection: four frames of 1 MiB, or as many small ones as are ever under way.
const BYTES_MAX: usize = 5 << 20;
const COUNT_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_memory_is_returned_and_bounded() {
        let spares = Arc::new(Spares::default());
        let first = spares.frame(100_000);
        let place = first.as_ptr();
        drop(first);
        let again = spares.frame(90_000);
        assert_eq!((again.as_ptr(), again.len()), (place, 90_000));
        drop(again);
        let many: Vec<_> = (0..100).map(|_| spares.frame(1 << 20)).collect();
        drop(many);
        let held: usize = spares.lock().iter().map(Vec::capacity).sum();
        assert!((1 << 20..=BYTES_MAX).contains(&held), "{held} bytes are kept");
        spares.clear();
        assert!(spares.is_empty());
        drop(InFrame::from(vec![1; 10]));
    }
}
