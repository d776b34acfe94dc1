//! The threads of a link of several connections: a reader and a writer of each, and a pulse.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::super::codec::HEAD_LEN;
use super::super::error::LinkError;
use super::super::link::{OneReceiver, OneSender};
use super::bounds::{PULSE, STALE};
use super::frames::{self, Mark};
use super::several::Bundle;
use super::state::{Part, State};

impl Bundle {
    /// Takes a connection in.
    pub(super) fn attach(
        self: &Arc<Self>,
        slot: usize,
        mut sender: OneSender,
        mut receiver: OneReceiver,
    ) -> Result<(), LinkError> {
        sender.share(&self.pace);
        let (socket, bell) = (Arc::clone(sender.socket()), Arc::default());
        let mut state = self.lock();
        if state.end.is_some() {
            socket.close();
            return Err(LinkError::Closed);
        }
        state.made += 1;
        let number = state.made;
        let sender = Arc::new(Mutex::new(sender));
        state.parts.push(Part {
            number,
            slot,
            socket,
            sender: Arc::clone(&sender),
            queue: std::collections::VecDeque::new(),
            owes: false,
            waits: 0,
            bell: Arc::clone(&bell),
        });
        drop(state);
        let (reads, writes) = (Arc::clone(self), Arc::clone(self));
        let spawned = spawn("read", move || reads.read(number, &mut receiver))
            .and_then(|()| spawn("write", move || writes.write(number, &sender)));
        spawned.inspect_err(|_| {
            self.has_lost(&mut self.lock(), number, LinkError::Closed);
        })
    }

    /// [`Bundle::attach`], of an end that does not make the connections.
    pub(in crate::wire) fn attach_next(
        self: &Arc<Self>,
        sender: OneSender,
        receiver: OneReceiver,
    ) -> Result<(), LinkError> {
        let slot = usize::try_from(self.lock().made).unwrap_or(usize::MAX);
        self.attach(slot, sender, receiver)
    }

    /// Has each connection say something now and then, and ends those over which nothing comes.
    pub(in crate::wire) fn beat(self: &Arc<Self>) -> Result<(), LinkError> {
        let bundle = Arc::downgrade(self);
        spawn("pulse", move || {
            while let Some(bundle) = bundle.upgrade() {
                let mut state = bundle.lock();
                if state.end.is_some() {
                    return;
                }
                let newest = state.parts.iter().map(|part| part.socket.heard()).max();
                for part in &mut state.parts {
                    part.owes = true;
                    part.bell.notify_one();
                    let heard = part.socket.heard();
                    if newest.is_some_and(|it| it.saturating_duration_since(heard) > STALE) {
                        tracing::warn!(member = %bundle.member, address = %part.socket.peer(),
                            "nothing comes over one of several connections: it is ended");
                        part.socket.close();
                    }
                }
                drop(state);
                drop(bundle);
                thread::sleep(PULSE);
            }
        })
    }

    /// A connection has ended; the link with it, if it was the last.
    pub(super) fn has_lost(&self, state: &mut State, number: u64, why: LinkError) {
        if !state.take_out(number) {
            return;
        }
        if state.parts.is_empty() {
            self.ends(state, why);
        } else if state.end.is_none() {
            tracing::info!(member = %self.member, error = %why, left = state.parts.len(), "a connection of several has ended");
            self.missing.notify_all();
        }
    }

    fn read(&self, number: u64, receiver: &mut OneReceiver) {
        let Err(error) = self.read_on(receiver);
        let mut state = self.lock();
        match error {
            // No connection brings what is not to be.
            error @ (LinkError::PeerAhead { .. }
            | LinkError::PeerGot { .. }
            | LinkError::Frame(_)) => {
                self.ends(&mut state, error);
                state.take_out(number);
            }
            error => self.has_lost(&mut state, number, error),
        }
    }

    fn read_on(&self, receiver: &mut OneReceiver) -> Result<std::convert::Infallible, LinkError> {
        loop {
            let head = receiver.receive_frame()?;
            let mark = Mark::decode(head, receiver.body())?;
            self.hears(mark.got)?;
            let Some(of) = mark.number else { continue };
            let (message, len) = receiver.receive()?;
            let all = HEAD_LEN + receiver.body().len() + usize::try_from(len).unwrap_or(usize::MAX);
            let mut payload = vec![0; usize::try_from(len).unwrap_or_default()];
            receiver.payload(&mut payload)?;
            let mut state = self.lock();
            let expected = state.flow.got();
            if state.flow.comes(of, message, payload, all)? && of == expected {
                self.came.notify_all();
            }
        }
    }

    fn hears(&self, got: u64) -> Result<(), LinkError> {
        self.lock().flow.has_got(got)?;
        self.room.notify_all();
        Ok(())
    }

    fn write(&self, number: u64, sender: &Mutex<OneSender>) {
        let mut state = self.lock();
        loop {
            let is_over = state.end.is_some();
            let expected = state.flow.got();
            let Some(part) = state.parts.iter_mut().find(|part| part.number == number) else {
                return;
            };
            let next = part.queue.pop_front();
            let owes = std::mem::take(&mut part.owes);
            if is_over {
                return;
            }
            if next.is_none() && !owes {
                let bell = Arc::clone(&part.bell);
                state = bell.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            drop(state);
            let mut sending = sender.lock().unwrap_or_else(PoisonError::into_inner);
            let sent = match &next {
                Some(frame) => frames::send(&mut sending, frame, expected),
                None => frames::say_got(&mut sending, expected),
            };
            drop(sending);
            state = self.lock();
            match sent {
                Ok(()) => state.has_gone(number, next.map_or(0, |frame| frame.bytes())),
                Err(error) => return self.has_lost(&mut state, number, error),
            }
        }
    }
}

fn spawn(what: &str, run: impl FnOnce() + Send + 'static) -> Result<(), LinkError> {
    let thread = thread::Builder::new().name(format!("replica-{what}"));
    thread.spawn(run).map(drop).map_err(LinkError::HostResources)
}

/// Runs on a thread of its own.
pub(super) fn apart(what: &str, run: impl FnOnce() + Send + 'static) -> Result<(), LinkError> {
    spawn(what, run)
}
