//! The connections of a link, and what goes over them.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};

use super::super::error::LinkError;
use super::super::link::OneSender;
use super::super::socket::Socket;
use super::flow::{Flow, Frame};
use crate::message::Message;

/// A connection.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) number: u64,
    /// Which of the link's connections it is.
    pub(super) slot: usize,
    pub(super) socket: Arc<Socket>,
    pub(super) sender: Arc<Mutex<OneSender>>,
    /// What its thread sends next.
    pub(super) queue: VecDeque<Arc<Frame>>,
    /// It says next what was taken.
    pub(super) owes: bool,
    /// Bytes that are queued or being sent.
    pub(super) waits: usize,
    pub(super) bell: Arc<Condvar>,
}

impl Part {
    /// The least one sends next.
    const fn rank(&self, goes_over_one: bool) -> (usize, usize) {
        (if goes_over_one { 0 } else { self.waits }, self.slot)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) parts: Vec<Part>,
    /// Connections that there were.
    pub(super) made: u64,
    pub(super) flow: Flow,
    /// See [`super::bounds::CAP_OF_SEVERAL`].
    pub(super) goes_over_one: bool,
    pub(super) end: Option<LinkError>,
}

impl State {
    /// The place of the connection with the least to do; of the first one, where all go over one.
    pub(super) fn idlest(&self) -> Option<usize> {
        let all = self.parts.iter().enumerate();
        all.min_by_key(|(_, part)| part.rank(self.goes_over_one)).map(|(at, _)| at)
    }

    /// Bytes have gone over a connection.
    pub(super) fn has_gone(&mut self, number: u64, len: usize) {
        if let Some(part) = self.parts.iter_mut().find(|part| part.number == number) {
            part.waits = part.waits.saturating_sub(len);
        }
    }

    /// A connection is there no more: what it had goes over the others. `false` if it had been taken out before.
    pub(super) fn take_out(&mut self, number: u64) -> bool {
        let Some(at) = self.parts.iter().position(|part| part.number == number) else {
            return false;
        };
        let part = self.parts.swap_remove(at);
        part.socket.close();
        part.bell.notify_all();
        let Self { parts, flow, goes_over_one, .. } = self;
        for (frame, of) in flow.kept_over(number) {
            let idlest = parts.iter_mut().min_by_key(|part| part.rank(*goes_over_one));
            let Some(part) = idlest else { break };
            *of = part.number;
            part.waits += frame.bytes();
            part.queue.push_back(Arc::clone(frame));
            part.bell.notify_one();
        }
        true
    }

    /// Takes the next frame in order, if it is there.
    pub(super) fn take(&mut self) -> Option<(Message, Vec<u8>)> {
        let taken = self.flow.take()?;
        if self.flow.is_to_be_told()
            && let Some(at) = self.idlest()
        {
            self.parts[at].owes = true;
            self.parts[at].bell.notify_one();
        }
        Some(taken)
    }
}
