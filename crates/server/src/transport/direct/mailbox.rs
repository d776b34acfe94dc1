//! The mailbox through which other threads reach a peer: a queue of its own, and one doorbell of
//! the engine thread.
//!
//! ```text
//!   task: post(item) --> queue --> rung already, or attended? nothing more to do
//!                                  else: id into the doorbell, wake the engine
//!   engine: collect() takes all items, in order
//! ```
//!
//! The lock is held for a push or a swap and is shared by one connection's tasks and the engine
//! thread, never by two connections. The doorbell is lock-free and holds each peer at most once.
//! The queue is bounded: every frame answers a request that took a credit or breaks a lease once,
//! and transfers take room first (`remote`).

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use basics::ordered::{Mutex, MutexGuard};
use rdma::Waker;
use smbdirect::Token;

use super::peer::Home;
use super::spares::Spares;
use super::table::DirectId;
use super::transfers::{Pull, Push};
use crate::connections::Parcel;
use crate::connections::waiting::Bell;
use crate::lock_order as order;
use crate::state::Room;

/// An item for a peer to handle, in order.
#[derive(Debug)]
pub(super) enum Item {
    /// Frames to send, each with its length prefix, and the room they take.
    Frames(Parcel),
    /// Bytes for the peer's memory; later items leave later.
    Push(Push),
    /// The final answer to a message, a later item, invalidates the token that the peer named.
    Invalidate { message_id: u64, token: Token },
    /// Bytes to fetch from the peer's memory.
    Pull(Pull),
    /// A task returns the SMB side of the connection.
    Home(Box<Home>),
    /// There may be room again for requests of the connection; that of the long request which waits first, if it is one.
    Room(Option<Room>),
}

/// The queue of one peer.
#[derive(Debug)]
pub(super) struct Mailbox {
    id: DirectId,
    doorbell: Arc<Doorbell>,
    state: Mutex<State, order::Connection>,
    /// Bytes of pushes that no account counts and that are not posted.
    uncounted: AtomicUsize,
    // Not items: behind answers that the peer does not take these would wait with them.
    is_to_close: AtomicBool,
    is_evicted: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<Item>,
    /// The engine thread knows that the queue has items.
    noticed: bool,
    closed: bool,
    fetched: Option<Fetched>,
    spares: Spares,
}

impl State {
    /// For the next frames, if there can be any.
    fn keep(&mut self, buffer: Vec<u8>) {
        if !self.closed {
            self.spares.keep(buffer);
        }
    }
}

/// The connection has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone;

/// The bytes of the WRITE in progress.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) descriptors: Vec<u8>,
    pub(super) data: Vec<u8>,
}

impl Fetched {
    /// Bytes of memory.
    pub(super) fn held(&self) -> usize {
        self.descriptors.capacity() + self.data.capacity()
    }
}

impl Mailbox {
    pub(super) fn new(id: DirectId, doorbell: Arc<Doorbell>) -> Self {
        Self {
            id,
            doorbell,
            state: Mutex::default(),
            uncounted: AtomicUsize::new(0),
            is_to_close: AtomicBool::new(false),
            is_evicted: AtomicBool::new(false),
        }
    }

    /// Ends the connection, when earlier items have left or have had their time.
    pub(super) fn close_in_order(&self) {
        self.is_to_close.store(true, Ordering::Release);
        self.call();
    }

    /// Whether the connection has to end in order.
    pub(super) fn is_to_close(&self) -> bool {
        self.is_to_close.load(Ordering::Acquire)
    }

    /// Whether the connection has to make room for a new one, if no user has logged on; asked once.
    pub(super) fn take_evicted(&self) -> bool {
        self.is_evicted.load(Ordering::Relaxed) && self.is_evicted.swap(false, Ordering::AcqRel)
    }

    // Has the engine thread look at the connection.
    fn call(&self) {
        let mut state = self.state();
        let ring = !state.closed && !mem::replace(&mut state.noticed, true);
        drop(state);
        if ring {
            self.doorbell.ring(self.id);
        }
    }

    /// Queues an item; drops it when the connection has ended.
    pub(super) fn post(&self, item: Item) -> Result<(), Gone> {
        let mut state = self.state();
        if state.closed {
            // What it holds ends without the lock.
            drop(state);
            drop(item);
            return Err(Gone);
        }
        state.items.push_back(item);
        let ring = !mem::replace(&mut state.noticed, true);
        drop(state);
        if ring {
            self.doorbell.ring(self.id);
        }
        Ok(())
    }

    /// The engine thread is about to handle a request: items posted by the handling need no bell. Returns an empty
    /// buffer with room for an answer of `answer` bytes.
    pub(super) fn attend(&self, fetched: Option<Fetched>, answer: usize) -> Vec<u8> {
        let mut state = self.state();
        state.noticed = true;
        state.fetched = fetched;
        state.spares.take(answer)
    }

    /// Moves the posted items to `items`, and keeps the buffers of `spent`; from here on the bell is needed.
    pub(super) fn collect(&self, items: &mut VecDeque<Item>, spent: &mut Vec<Vec<u8>>) {
        let mut state = self.state();
        items.append(&mut state.items);
        state.noticed = false;
        spent.drain(..).for_each(|buffer| state.keep(buffer));
        if let Some(Fetched { descriptors, data }) = state.fetched.take() {
            state.keep(descriptors);
            state.keep(data);
        }
    }

    /// The bytes that were fetched for the request in progress, if that request asks for them.
    pub(super) fn take_fetched(&self, len: usize, descriptors: &[u8]) -> Option<Vec<u8>> {
        let fits =
            |fetched: &mut Fetched| fetched.data.len() == len && fetched.descriptors == descriptors;
        let mut state = self.state();
        let Fetched { descriptors, data } = state.fetched.take_if(fits)?;
        state.keep(descriptors);
        Some(data)
    }

    /// An empty buffer with room for `len` bytes, reused if there is one.
    pub(super) fn buffer(&self, len: usize) -> Vec<u8> {
        self.state().spares.take(len)
    }

    /// Bytes for the peer's memory that no account counts, and that no RDMA Write moves yet.
    pub(super) fn uncounted(&self) -> usize {
        self.uncounted.load(Ordering::Relaxed)
    }

    pub(super) fn add_uncounted(&self, bytes: usize) {
        self.uncounted.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn remove_uncounted(&self, bytes: usize) {
        self.uncounted.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Takes back a buffer that is not needed any more.
    pub(super) fn recycle(&self, buffer: Vec<u8>) {
        self.state().keep(buffer);
    }

    /// Closes the mailbox of a connection that has ended. Returns the unhandled items.
    pub(super) fn close(&self) -> VecDeque<Item> {
        let mut state = self.state();
        state.closed = true;
        state.fetched = None;
        state.spares = Spares::default();
        mem::take(&mut state.items)
    }

    fn state(&self) -> MutexGuard<'_, State, order::Connection> {
        self.state.lock()
    }
}

impl Bell for Mailbox {
    fn ring(&self) {
        self.is_evicted.store(true, Ordering::Release);
        self.call();
    }
}

/// Tells the engine thread which peers have something in their mailbox.
#[derive(Debug)]
pub(super) struct Doorbell {
    calls: SyncSender<DirectId>,
    overflow: AtomicBool,
    waker: Waker,
}

impl Doorbell {
    /// A doorbell and the receiver of its calls.
    pub(super) fn new(waker: Waker) -> (Self, Receiver<DirectId>) {
        let (calls, list) = sync_channel(CALLS_MAX);
        (Self { calls, overflow: AtomicBool::new(false), waker }, list)
    }

    fn ring(&self, id: DirectId) {
        if self.calls.try_send(id).is_err() {
            self.overflow.store(true, Ordering::Release);
        }
        self.waker.wake();
    }

    /// Whether calls were lost, so that every peer has to be asked.
    pub(super) fn take_overflow(&self) -> bool {
        self.overflow.load(Ordering::Relaxed) && self.overflow.swap(false, Ordering::AcqRel)
    }
}

/// Calls recorded one by one; beyond that all peers are asked. A peer calls once until it is asked,
/// so the number of busy peers counts, not that of requests.
const CALLS_MAX: usize = 4096;
