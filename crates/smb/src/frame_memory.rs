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
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A frame without what its transport puts in front.
#[derive(Debug)]
pub struct InFrame {
    bytes: Vec<u8>,
    /// Gone where its connection is.
    home: Weak<Spares>,
}

impl InFrame {
    /// How many bytes of memory it takes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

impl From<Vec<u8>> for InFrame {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, home: Weak::new() }
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
        if let Some(home) = self.home.upgrade() {
            home.keep(mem::take(&mut self.bytes));
        }
    }
}

/// Memory of long frames that were dealt with, of one connection.
#[derive(Debug)]
pub struct Spares(Mutex<Kept>);

#[derive(Debug)]
struct Kept {
    /// The one used last is at the end.
    buffers: Vec<Vec<u8>>,
    /// How many bytes may be kept.
    most: usize,
}

impl Default for Spares {
    fn default() -> Self {
        Self::keeping(SPARES_MAX)
    }
}

impl Spares {
    /// Memory of which at most so many bytes are kept.
    #[must_use]
    pub fn keeping(most: usize) -> Self {
        Self(Mutex::new(Kept { buffers: Vec::new(), most }))
    }

    /// A frame of `len` bytes, whatever they are: in memory used last, if there is some of about that length, so that a
    /// short frame never keeps the memory of a long one.
    pub fn frame(self: &Arc<Self>, len: usize) -> InFrame {
        let kept = {
            let mut kept = self.lock();
            kept.position_for(len).map(|at| kept.buffers.remove(at))
        };
        let bytes = match kept {
            None => vec![0; len],
            Some(mut bytes) => {
                bytes.resize(len, 0);
                bytes
            }
        };
        InFrame { bytes, home: Arc::downgrade(self) }
    }

    /// Whether a frame of so many bytes would take no new memory.
    #[must_use]
    pub fn has_for(&self, len: usize) -> bool {
        self.lock().position_for(len).is_some()
    }

    /// How many bytes may be kept.
    #[must_use]
    pub fn most(&self) -> usize {
        self.lock().most
    }

    /// Keeps at most so many bytes from now on, and gives the rest back.
    pub fn keep_at_most(&self, bytes: usize) {
        let mut kept = self.lock();
        kept.most = bytes;
        kept.make_room(0);
    }

    /// Whether there is anything to give back.
    pub fn is_empty(&self) -> bool {
        self.lock().buffers.is_empty()
    }

    fn keep(&self, bytes: Vec<u8>) {
        let mut kept = self.lock();
        if bytes.capacity() <= kept.most {
            kept.make_room(bytes.capacity());
            kept.buffers.push(bytes);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn position_for(&self, len: usize) -> Option<usize> {
        let fits = |room: usize| room >= len && room - len <= len / SLACK;
        self.buffers.iter().rposition(|buffer| fits(buffer.capacity()))
    }

    // What was not used for longest goes first.
    fn make_room(&mut self, bytes: usize) {
        let mut held: usize = self.buffers.iter().map(Vec::capacity).sum();
        let mut gone = 0;
        while gone < self.buffers.len()
            && (held + bytes > self.most || self.buffers.len() - gone >= COUNT_MAX)
        {
            held -= self.buffers[gone].capacity();
            gone += 1;
        }
        self.buffers.drain(..gone);
    }
}

/// The most bytes that are kept for a connection: four frames of 1 MiB, or as many small ones as are ever under way.
pub const SPARES_MAX: usize = 5 << 20;
const COUNT_MAX: usize = 64;
/// A frame's memory is longer than the frame by this part of it at most: it counts by the length of the frame.
const SLACK: usize = 4;

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
        assert!(
            (1 << 20..=SPARES_MAX).contains(&held(&spares)),
            "{} bytes are kept",
            held(&spares)
        );
        drop((0..100).map(|_| spares.frame(40_000)).collect::<Vec<_>>());
        assert!(spares.lock().buffers.len() <= COUNT_MAX && held(&spares) <= SPARES_MAX);
        assert!(spares.has_for(40_000), "what was used last is kept");
        spares.keep_at_most(0);
        assert!(spares.is_empty());
        drop(spares.frame(40_000));
        assert!(spares.is_empty(), "nothing may be kept");
        drop(InFrame::from(vec![1; 10]));
    }

    fn held(spares: &Spares) -> usize {
        spares.lock().buffers.iter().map(Vec::capacity).sum()
    }

    #[test]
    fn frames_that_outlive_their_connection_keep_none_of_its_memory() {
        let spares = Arc::new(Spares::default());
        let (kept, held) = (spares.frame(1 << 20), spares.frame(1 << 10));
        drop(kept);
        let connection = Arc::downgrade(&spares);
        drop(spares);
        assert!(connection.upgrade().is_none(), "all that was kept is gone");
        assert_eq!(held.len(), 1 << 10);
    }

    #[test]
    fn a_short_frame_never_keeps_the_memory_of_a_long_one() {
        let spares = Arc::new(Spares::default());
        for _ in 0..10 {
            drop(spares.frame(5 << 20));
            let short = spares.frame(33 << 10);
            assert!(short.capacity() <= short.len() + short.len() / SLACK, "{}", short.capacity());
            mem::forget(short);
        }
    }
}
