//! The reads that the engine itself has under way, for media that can bring bytes without a thread that waits.
//!
//! A miss that goes to a worker costs two hand-overs between threads. A medium with a [`Fetcher`] brings the bytes while the
//! engine goes on, and the engine finds their arrival among its other events.

use std::sync::Arc;

use basics::Key;
use pmem::{Fetcher, Medium};

use super::token::Token;
use crate::common::poller::{Interest, Poller};
use crate::interface::QpId;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    fetcher: Option<Box<dyn Fetcher>>,
    is_refused: bool,
    ended: Vec<(Key, bool)>,
}

impl Fetches {
    /// Makes the fetcher, if the medium has one and none is here.
    pub(super) fn prepare(&mut self, medium: &Arc<dyn Medium>, poller: &Poller) {
        if self.fetcher.is_some() || self.is_refused {
            return;
        }
        let Some(fetcher) = medium.new_fetcher() else { return };
        let token = Token::Fetches.to_bits();
        match poller.add(fetcher.descriptor(), token, Interest::READ) {
            Ok(()) => self.fetcher = Some(fetcher),
            // Its ends would not wake the engine: workers do without it.
            Err(_) => self.is_refused = true,
        }
    }

    pub(super) fn are_possible(&self) -> bool {
        self.fetcher.is_some()
    }

    /// Begins a read; `false`: a worker has to read.
    pub(super) fn begin(
        &mut self,
        medium: &Arc<dyn Medium>,
        offset: u64,
        len: u64,
        waiter: Option<QpId>,
    ) -> bool {
        let tag = waiter.map(|qp| (u64::from(qp.generation) << 32) | u64::from(qp.index));
        self.fetcher
            .as_deref_mut()
            .is_some_and(|fetcher| medium.try_fetch(fetcher, offset, len, tag))
    }

    /// Hands over what was begun. `false`: not all.
    pub(super) fn submit(&mut self) -> bool {
        self.fetcher.as_deref_mut().is_none_or(Fetcher::submit)
    }

    pub(super) fn have_ended(&mut self) -> bool {
        self.fetcher.as_deref_mut().is_some_and(Fetcher::has_ended)
    }

    /// Takes in what has come. `true`: something.
    pub(super) fn collect(&mut self) -> bool {
        let Some(fetcher) = self.fetcher.as_deref_mut() else { return false };
        if !fetcher.has_ended() {
            return false;
        }
        let ended = &mut self.ended;
        fetcher.collect(&mut |tag, has_come| {
            let index = u32::try_from(tag & u64::from(u32::MAX)).expect("the lower half");
            let generation = u32::try_from(tag >> 32).expect("the upper half");
            ended.push((Key { index, generation }, has_come));
        });
        true
    }

    /// A queue pair whose bytes have come or could not be read; the queue pair may be gone.
    pub(super) fn next(&mut self) -> Option<(Key, bool)> {
        self.ended.pop()
    }
}
