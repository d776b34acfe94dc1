//! How a thread that may not wait has bytes of media brought to memory: it begins reads, and looks for their ends beside
//! its other events.
//!
//! ```text
//!   try_read: WouldBlock -> try_fetch: begun -> submit ... descriptor readable -> collect -> try_read
//!                                      not begun -> read, on a thread that may wait
//! ```

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;

/// Reads of one thread that are under way. [`crate::Medium::new_fetcher`] makes it, [`crate::Medium::try_fetch`] begins
/// reads with it. A fetcher that is dropped lets its reads end, without waiting for them.
pub trait Fetcher: Send + fmt::Debug {
    /// For the media that made it.
    fn as_any(&mut self) -> &mut dyn Any;

    /// Hands the kernel what was begun since the last call. `false`: the kernel took none or a part, call again.
    fn submit(&mut self) -> bool;

    /// Whether a read has ended that nobody has collected. Costs a load.
    fn has_ended(&mut self) -> bool;

    /// Takes in what came, and calls `each` with the tag of every caller that waited for it, and whether it could be read.
    /// What could not is a miss again: the waiting form then tells the error to those who ask.
    fn collect(&mut self, each: &mut dyn FnMut(u64, bool));

    /// Readable when a read has ended.
    fn descriptor(&self) -> BorrowedFd<'_>;
}
