//! The thread of a shared engine, which drives async regions.
//!
//! ```text
//!   start(region) --queue--> seats: each turn, every seat takes its requests and finishes its operations
//!                            nothing happened: one wait, for all of them
//! ```

use std::fmt::Debug;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::engine::Hub;

/// One region on the thread.
pub(super) trait Seat: Debug {
    /// Does all work that needs no waiting.
    fn turn(&mut self) -> Turn;

    /// How long the thread may wait for this region; `None`: no operation is outstanding.
    fn patience(&self) -> Option<Duration>;
}

/// What a turn has shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Turn {
    /// There was something to do.
    Worked,
    /// There was nothing to do.
    Idle,
    /// Nobody can ask for anything any more, and nothing is outstanding.
    Over,
}

/// Makes a seat on the thread, which may take long: it maps the region.
pub(super) type Arrival = Box<dyn FnOnce() -> Box<dyn Seat> + Send>;

/// See the module. The thread ends with the last region and the value.
#[derive(Debug)]
pub(super) struct SharedThread {
    hub: Weak<Hub>,
    arrivals: Mutex<Option<Sender<Arrival>>>,
}

impl SharedThread {
    /// The thread of an engine; it starts with the first region.
    pub(super) fn of(hub: &Arc<Hub>) -> Self {
        Self { hub: Arc::downgrade(hub), arrivals: Mutex::new(None) }
    }

    /// Hands a region to the thread; `false`: the host starts no thread.
    pub(super) fn start(&self, arrival: Arrival) -> bool {
        let Some(hub) = self.hub.upgrade() else { return false };
        let waker = hub.waker.clone();
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = match &*arrivals {
            Some(sender) => sender.clone(),
            None => {
                let (sender, inbox) = channel();
                let thread = std::thread::Builder::new().name("landfast-region".into());
                if thread.spawn(move || run(&hub, &inbox)).is_err() {
                    return false;
                }
                arrivals.insert(sender).clone()
            }
        };
        let is_sent = sender.send(arrival).is_ok();
        waker.wake();
        is_sent
    }
}

impl Drop for SharedThread {
    fn drop(&mut self) {
        *self.arrivals.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        if let Some(hub) = self.hub.upgrade() {
            hub.waker.wake();
        }
    }
}

fn run(hub: &Hub, arrivals: &Receiver<Arrival>) {
    let mut seats: Vec<Box<dyn Seat>> = Vec::new();
    loop {
        let mut is_idle = true;
        match arrivals.try_recv() {
            Ok(arrival) => {
                seats.push(arrival());
                is_idle = false;
            }
            Err(TryRecvError::Disconnected) if seats.is_empty() => return,
            Err(_) => {}
        }
        seats.retain_mut(|seat| {
            let turn = seat.turn();
            is_idle &= turn == Turn::Idle;
            turn != Turn::Over
        });
        if is_idle {
            let patience = seats.iter().filter_map(|seat| seat.patience()).min();
            hub.wait(None, patience);
        }
    }
}
