//! The flushes of a batch that are not settled yet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pmem::{DurabilityClass, Medium};

use super::{Failure, Site, Target, Turn, site_of_medium};

/// Ranges that the peer asked to be durable and that are not yet known to be durable.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    ranges: VecDeque<Flush>,
}

/// One range.
#[derive(Debug)]
pub(super) struct Flush {
    pub(super) first_index: usize,
    pub(super) medium: Arc<dyn Medium>,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// How many of the flushes are settled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Settled {
    /// All of them.
    All,
    /// Up to one of a file on storage.
    Commit(Site),
    /// As far as the turn went.
    Turn(Site),
}

impl Flushes {
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Notes a range; joins it to an earlier one where one persist serves both.
    pub(super) fn add(&mut self, index: usize, target: &Target) {
        let (start, end) = (target.offset, target.offset + target.len);
        // A file on storage is synchronised whole, whatever the range. A flush of memory walks
        // its cache lines, so only ranges that touch may be joined.
        let whole = target.medium.class() == DurabilityClass::Storage;
        let joins = |flush: &&mut Flush| {
            Arc::ptr_eq(&flush.medium, &target.medium)
                && (whole || (start <= flush.end && flush.start <= end))
        };
        match self.ranges.iter_mut().find(joins) {
            Some(flush) => {
                flush.start = flush.start.min(start);
                flush.end = flush.end.max(end);
            }
            None => self.ranges.push_back(Flush {
                first_index: index,
                medium: Arc::clone(&target.medium),
                start,
                end,
            }),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn first(&self) -> Option<&Flush> {
        self.ranges.front()
    }

    pub(super) fn take_first(&mut self) -> Option<Flush> {
        self.ranges.pop_front()
    }

    /// Makes the ranges durable, up to the first range in a file on storage or the end of the turn.
    /// A failure counts against the first flush that needed the range, and ends the others
    /// unflushed: after a failure nothing is flushed into success.
    pub(super) fn settle(
        &mut self,
        persists: &mut u64,
        turn: &mut Turn<'_>,
        is_withdrawn: impl Fn(usize) -> bool,
    ) -> Result<Settled, (usize, Failure)> {
        while let Some(Flush { first_index, medium, start, end }) = self.ranges.front_mut() {
            if medium.class() == DurabilityClass::Storage {
                return Ok(Settled::Commit(site_of_medium(medium)));
            }
            let len = *end - *start;
            let piece = len.min(turn.bytes_left);
            if piece == 0 && len > 0 {
                return Ok(Settled::Turn(site_of_medium(medium)));
            }
            let persisted = if turn.stop.load(Ordering::Relaxed) {
                Err(Failure::Stopped)
            } else if is_withdrawn(*first_index) {
                Err(Failure::Withdrawn)
            } else {
                medium.persist(*start, piece).map_err(Failure::Medium)
            };
            let index = *first_index;
            if let Err(failure) = persisted {
                self.ranges.clear();
                return Err((index, failure));
            }
            turn.bytes_left -= piece;
            *start += piece;
            if piece == len {
                *persists += 1;
                self.ranges.pop_front();
            }
        }
        Ok(Settled::All)
    }
}
