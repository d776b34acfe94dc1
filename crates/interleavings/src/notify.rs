//! `tokio::sync::Notify`, as far as its waiters are woken all at once.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use loom::sync::{Mutex, MutexGuard};

/// See the module.
#[derive(Debug)]
pub struct Notify {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How often all were woken.
    times: u64,
    waiting: Vec<Waker>,
}

/// A wait that is over once all have been woken after it was made.
#[derive(Debug)]
pub struct Notified<'a> {
    notify: &'a Notify,
    times: u64,
}

impl Default for Notify {
    fn default() -> Self {
        Self { state: Mutex::new(State::default()) }
    }
}

impl Notify {
    /// See `tokio::sync::Notify::notified`.
    pub fn notified(&self) -> Notified<'_> {
        Notified { notify: self, times: self.state().times }
    }

    /// See `tokio::sync::Notify::notify_waiters`.
    pub fn notify_waiters(&self) {
        let mut state = self.state();
        state.times += 1;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no model panics under it")
    }
}

impl Notified<'_> {
    /// See `tokio::sync::futures::Notified::enable`: here a wait is known from when it is made.
    pub fn enable(self: Pin<&mut Self>) -> bool {
        self.notify.state().times > self.times
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.notify.state();
        if state.times > self.times {
            return Poll::Ready(());
        }
        state.waiting.push(context.waker().clone());
        Poll::Pending
    }
}
