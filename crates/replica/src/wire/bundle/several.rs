//! A link of several connections: how frames go out and are taken.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::super::codec;
use super::super::error::LinkError;
use super::super::pace::Pace;
use super::bounds::{CAP_OF_SEVERAL, INLINE_MAX};
use super::frames;
use super::state::State;
use crate::message::Message;
use crate::names::MemberId;

/// The connections of a link, and what goes over them.
pub(in crate::wire) struct Bundle {
    pub(super) member: MemberId,
    /// Where the first connection leads.
    address: SocketAddr,
    /// All that is sent counts together.
    pub(super) pace: Arc<Mutex<Pace>>,
    state: Mutex<State>,
    /// Rings when something has come, when there is room for more to send, and when a connection is missing.
    pub(super) came: Condvar,
    pub(super) room: Condvar,
    pub(super) missing: Condvar,
}

impl Bundle {
    pub(in crate::wire) fn new(
        member: MemberId,
        address: SocketAddr,
        pace: Arc<Mutex<Pace>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            member,
            address,
            pace,
            state: Mutex::default(),
            came: Condvar::new(),
            room: Condvar::new(),
            missing: Condvar::new(),
        })
    }

    pub(in crate::wire) const fn member(&self) -> MemberId {
        self.member
    }

    pub(in crate::wire) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(in crate::wire) fn connections(&self) -> usize {
        self.lock().parts.len()
    }

    #[cfg(test)]
    pub(in crate::wire) fn busy(&self) -> usize {
        self.lock().parts.iter().filter(|part| part.waits > 0).count()
    }

    /// Ends the link.
    pub(in crate::wire) fn close(&self) {
        self.ends(&mut self.lock(), LinkError::Closed);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link has ended, because of this; the first reason stays.
    pub(super) fn ends(&self, state: &mut State, why: LinkError) {
        state.end.get_or_insert(why);
        for part in &state.parts {
            part.socket.close();
            part.bell.notify_all();
        }
        [&self.came, &self.room, &self.missing].into_iter().for_each(Condvar::notify_all);
    }

    /// Sends a frame, once there is room for it.
    fn send(&self, head: Vec<u8>, payload: &[&[u8]]) -> Result<(), LinkError> {
        let payload = payload.concat();
        let len = head.len() + payload.len();
        let cap = self.pace.lock().unwrap_or_else(PoisonError::into_inner).per_second();
        let mut state = self.lock();
        while state.end.is_none() && !state.flow.has_room(len) {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.end.is_some() {
            return Err(LinkError::Closed);
        }
        state.goes_over_one = cap.is_some_and(|cap| cap < CAP_OF_SEVERAL);
        let Some(at) = state.idlest() else { return Err(LinkError::Closed) };
        let over = state.parts[at].number;
        let frame = state.flow.send(head, payload, over);
        let part = &mut state.parts[at];
        let (is_idle, of) = (part.waits == 0, part.number);
        let sender = Arc::clone(&part.sender);
        part.waits += len;
        // What is short goes at once, where nothing is before it: waking a thread would cost more.
        let free = (is_idle && len <= INLINE_MAX).then(|| sender.try_lock().ok()).flatten();
        let Some(mut free) = free else {
            part.queue.push_back(frame);
            part.bell.notify_one();
            return Ok(());
        };
        let got = state.flow.got();
        drop(state);
        let sent = frames::send(&mut free, &frame, got);
        drop(free);
        let mut state = self.lock();
        match sent {
            Ok(()) => state.has_gone(of, len),
            Err(error) => self.has_lost(&mut state, of, error),
        }
        Ok(())
    }

    /// Waits for the next frame in order.
    fn receive(&self) -> Result<(Message, Vec<u8>), LinkError> {
        let mut state = self.lock();
        loop {
            if let Some(LinkError::Closed) = &state.end {
                return Err(LinkError::Closed);
            }
            // What came before the other end went counts.
            if let Some(taken) = state.take() {
                return Ok(taken);
            }
            if let Some(why) = state.end.take() {
                state.end = Some(LinkError::Closed);
                return Err(why);
            }
            state = self.came.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bundle(to {} at {})", self.member, self.address)
    }
}

/// Sends over several connections. When it is dropped the link ends.
#[derive(Debug)]
pub(in crate::wire) struct BundleSender(Arc<Bundle>);

impl BundleSender {
    pub(in crate::wire) fn new(bundle: &Arc<Bundle>) -> Self {
        Self(Arc::clone(bundle))
    }

    pub(in crate::wire) fn send(
        &self,
        message: &Message,
        payload: &[&[u8]],
    ) -> Result<(), LinkError> {
        let len: usize = payload.iter().map(|part| part.len()).sum();
        let len = u32::try_from(len).map_err(|_| codec::WireError::PayloadLen {
            len: u64::try_from(len).unwrap_or(u64::MAX),
        })?;
        let mut head = Vec::new();
        codec::encode(message, len, &mut head)?;
        self.0.send(head, payload)
    }
}

impl Drop for BundleSender {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Receives from several connections. When it is dropped the link ends.
#[derive(Debug)]
pub(in crate::wire) struct BundleReceiver {
    bundle: Arc<Bundle>,
    /// The payload of the last message, and how much of it was taken.
    payload: Vec<u8>,
    at: usize,
}

impl BundleReceiver {
    pub(in crate::wire) fn new(bundle: &Arc<Bundle>) -> Self {
        Self { bundle: Arc::clone(bundle), payload: Vec::new(), at: 0 }
    }

    pub(in crate::wire) fn receive(&mut self) -> Result<(Message, u32), LinkError> {
        if self.payload_left() > 0 {
            self.bundle.close();
            return Err(LinkError::PayloadUnread(self.payload_left()));
        }
        let (message, payload) = self.bundle.receive()?;
        (self.payload, self.at) = (payload, 0);
        Ok((message, self.payload_left()))
    }

    pub(in crate::wire) fn payload(&mut self, out: &mut [u8]) -> Result<(), LinkError> {
        let left = self.payload_left();
        let Some(part) = self.payload[self.at..].get(..out.len()) else {
            self.bundle.close();
            return Err(LinkError::PayloadBeyond { wanted: out.len(), left });
        };
        out.copy_from_slice(part);
        self.at += out.len();
        Ok(())
    }

    pub(in crate::wire) fn payload_left(&self) -> u32 {
        u32::try_from(self.payload.len() - self.at).unwrap_or(u32::MAX)
    }
}

impl Drop for BundleReceiver {
    fn drop(&mut self) {
        self.bundle.close();
    }
}
