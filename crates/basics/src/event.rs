//! Waiting for a state that others change.

use std::pin::pin;

use tokio::sync::Notify;

/// Returns once `reached` says so: [`found`] for a state that has nothing to tell.
pub async fn until(event: &Notify, mut reached: impl FnMut() -> bool) {
    found(event, || reached().then_some(())).await;
}

/// Returns what `look` finds, once it finds something. Whoever changes what it looks at calls
/// [`Notify::notify_waiters`] on `event` after the change.
///
/// The waiter is known to `event` before it looks, so no change between the look and the wait is missed. Nothing
/// happens between a look that finds something and the return: what it takes is not lost if the wait is given up.
pub async fn found<T>(event: &Notify, mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        let mut changed = pin!(event.notified());
        changed.as_mut().enable();
        if let Some(found) = look() {
            return found;
        }
        changed.await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_waiter_looks_again_after_each_change_and_at_no_other_time() {
        let (event, looks, reached) = (Notify::new(), Cell::new(0), Cell::new(false));
        let mut waiting = pin!(until(&event, || {
            looks.set(looks.get() + 1);
            reached.get()
        }));
        let mut poll = || waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!((poll(), poll(), looks.get()), (Poll::Pending, Poll::Pending, 1));
        event.notify_waiters();
        assert_eq!((poll(), looks.get()), (Poll::Pending, 2));
        reached.set(true);
        event.notify_waiters();
        assert_eq!((poll(), looks.get()), (Poll::Ready(()), 3));
    }

    #[test]
    fn what_a_look_finds_is_returned_once() {
        let (event, kept) = (Notify::new(), Cell::new(None));
        let mut waiting = pin!(found(&event, || kept.take()));
        let mut poll = || waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(poll(), Poll::Pending);
        kept.set(Some("it"));
        assert_eq!(poll(), Poll::Pending, "nobody has said that it is there");
        event.notify_waiters();
        assert_eq!((poll(), kept.take()), (Poll::Ready("it"), None));
    }

    #[test]
    fn a_change_while_a_waiter_looks_is_not_missed() {
        let (event, looks) = (Notify::new(), Cell::new(0));
        let mut waiting = pin!(until(&event, || {
            event.notify_waiters();
            looks.set(looks.get() + 1);
            looks.get() == 2
        }));
        let polled = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!((polled, looks.get()), (Poll::Ready(()), 2));
    }
}
