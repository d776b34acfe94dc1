//! A client knows what it was granted when it has the answer to its CREATE: a break of it must not
//! come before.
//!
//! ```text
//!   CREATE grants --> waiting --- a break: kept ---> the answer is queued: what was kept follows it
//!                        |
//!                        +------- the answer is queued --> told --- a break: at once
//! ```
//!
//! On a share of a disk the two meet: the answer is built on one thread while another one opens the
//! same file. A client that is asked to give back a handle it has never heard of does not answer, and
//! the other one waits until the time for that is over.
//!
//! Spec: MS-SMB2 §3.3.4.6, §3.3.4.7 name an open or a lease the client has.

use std::sync::Arc;

use crate::lock_order as order;
use basics::ordered::{Mutex, MutexGuard};
/// Whether the client has been told. `T` is what may be sent to it from then on.
#[derive(Debug)]
pub(crate) struct Told<T> {
    /// `None` once it has.
    kept: Mutex<Option<Vec<T>>, order::Told>,
}

impl<T> Default for Told<T> {
    /// It has.
    fn default() -> Self {
        Self { kept: Mutex::new(None) }
    }
}

impl<T> Told<T> {
    /// It has not; it has when the other half is given up.
    pub(crate) fn waiting(send: fn(T)) -> (Arc<Self>, Answering<T>) {
        let told = Arc::new(Self { kept: Mutex::new(Some(Vec::new())) });
        (Arc::clone(&told), Answering { told, send })
    }

    /// Whether the answer is still to be queued.
    pub(crate) fn is_waiting(&self) -> bool {
        self.lock().is_some()
    }

    /// Keeps what has to wait; gives back what need not.
    pub(crate) fn keep(&self, item: T) -> Result<(), T> {
        match &mut *self.lock() {
            Some(kept) => {
                kept.push(item);
                Ok(())
            }
            None => Err(item),
        }
    }

    /// Whether anything waits for that.
    #[cfg(test)]
    pub(crate) fn has_kept(&self) -> bool {
        self.lock().as_ref().is_some_and(|kept| !kept.is_empty())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<T>>, order::Told> {
        self.kept.lock()
    }
}

/// Held until the answer is queued, or there will be none.
#[derive(Debug)]
pub(crate) struct Answering<T> {
    told: Arc<Told<T>>,
    send: fn(T),
}

impl<T> Drop for Answering<T> {
    fn drop(&mut self) {
        // Sent under the lock: what comes from now on leaves behind it.
        let mut kept = self.told.lock();
        kept.take().into_iter().flatten().for_each(self.send);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        static SENT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    #[test]
    fn what_comes_before_the_answer_follows_it_in_order() {
        let (told, answering) = Told::waiting(|item| SENT.with_borrow_mut(|sent| sent.push(item)));
        assert_eq!((told.keep(1), told.keep(2)), (Ok(()), Ok(())));
        assert!(told.is_waiting() && SENT.with_borrow(Vec::is_empty));
        drop(answering);
        assert_eq!(SENT.with_borrow(Clone::clone), [1, 2]);
        assert_eq!((told.keep(3), told.is_waiting()), (Err(3), false));
        assert_eq!(Told::default().keep(4), Err(4));
    }
}
