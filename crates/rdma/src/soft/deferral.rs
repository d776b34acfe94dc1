//! The operations of a queue pair that may block: the batch that a worker runs and the batch that
//! collects meanwhile.
//!
//! ```text
//!              push                  submit (engine, when no batch is running)
//!   (inline) ---------> collecting ----------------------------------------> running
//!       ^                    ^                                                  |
//!       |                    | push, while anything is collecting or running    |
//!       +--------------------+--------------------------------------------------+
//!                                      returned, nothing collecting
//! ```
//!
//! Once an operation is deferred, everything the peer sends later queues behind it, so that
//! operations keep the order of the peer whatever medium they touch. An atomic that waits for its turn among the
//! requests ([`super::responder`]) is not deferred: a Write behind it is placed before it, as RFC 5040 §5.5 lets it be.

use std::sync::Arc;

use basics::Key;
use pmem::Medium;

use super::batch::{After, Batch, Deferred, Target, Withdrawn, Work};

/// See the module. A queue pair that never defers allocates nothing for it.
#[derive(Debug)]
pub(super) struct Deferral {
    key: Key,
    collecting: Option<Box<Batch>>,
    spare: Option<Box<Batch>>,
    /// Marks what is withdrawn of the batch that a worker has.
    running: Option<Arc<Withdrawn>>,
}

impl Deferral {
    pub(super) fn new(key: Key) -> Self {
        Self { key, collecting: None, spare: None, running: None }
    }

    /// Whether later operations must queue here.
    pub(super) fn is_active(&self) -> bool {
        self.running.is_some() || self.collecting.is_some()
    }

    /// Whether a worker has a batch.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether the queue pair has to stop reading.
    pub(super) fn is_full(&self) -> bool {
        self.collecting.as_ref().is_some_and(|batch| batch.is_full())
    }

    /// Appends an operation on checked memory.
    pub(super) fn push(
        &mut self,
        tag: u32,
        medium: &Arc<dyn Medium>,
        offset: u64,
        len: u64,
        work: Work,
        after: After,
    ) {
        let target = Target { tag, medium: Arc::clone(medium), offset, len };
        self.append(Some(target), work, after);
    }

    /// Appends a placement and stages its bytes.
    pub(super) fn push_place(
        &mut self,
        tag: u32,
        medium: &Arc<dyn Medium>,
        offset: u64,
        bytes: &[u8],
        after: After,
    ) {
        let payload = &mut self.batch().payload;
        let start = payload.len();
        payload.extend_from_slice(bytes);
        let work = Work::Place(start..payload.len());
        let len = u64::try_from(bytes.len()).expect("a frame's length fits 64 bits");
        self.push(tag, medium, offset, len, work, after);
    }

    /// Appends an entry that only keeps its place in the order.
    pub(super) fn push_mark(&mut self, after: After) {
        self.append(None, Work::Nothing, after);
    }

    fn append(&mut self, target: Option<Target>, work: Work, after: After) {
        self.batch().operations.push(Deferred { target, work, after, result: 0 });
    }

    fn batch(&mut self) -> &mut Batch {
        let (key, spare) = (self.key, &mut self.spare);
        self.collecting
            .get_or_insert_with(|| spare.take().unwrap_or_else(|| Box::new(Batch::new(key))))
    }

    /// The batch to submit now, if there is one and none is running.
    pub(super) fn take_to_submit(&mut self) -> Option<Box<Batch>> {
        if self.running.is_some() {
            return None;
        }
        let batch = self.collecting.take()?;
        self.running = Some(Arc::clone(batch.withdrawn()));
        Some(batch)
    }

    /// Takes back the memory of a batch whose results were applied.
    pub(super) fn returned(&mut self, mut batch: Box<Batch>) {
        self.running = None;
        batch.clear();
        self.spare = Some(batch);
    }

    /// Drops the collected operations from the first that uses `tag` on; returns whether there was
    /// one. These operations had not begun, and never will.
    pub(super) fn cut_at(&mut self, tag: u32) -> bool {
        let Some(batch) = &mut self.collecting else { return false };
        let uses = |deferred: &Deferred| deferred.target.as_ref().is_some_and(|t| t.tag == tag);
        let Some(index) = batch.operations.iter().position(uses) else { return false };
        batch.operations.truncate(index);
        true
    }

    /// Withdraws the operations on a region from the batch that a worker has.
    pub(super) fn withdraw(&self, tag: u32) {
        if let Some(running) = &self.running {
            running.region(tag);
        }
    }

    /// Drops everything that has not begun, also in the batch that a worker has.
    pub(super) fn forget(&mut self) {
        self.collecting = None;
        if let Some(running) = &self.running {
            running.all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::OPERATIONS_MAX;
    use super::*;

    fn deferral() -> (Deferral, Arc<dyn Medium>) {
        let key = Key { index: 3, generation: 1 };
        (Deferral::new(key), pmem::anonymous(4096).unwrap())
    }

    #[test]
    fn operations_collect_while_a_worker_has_the_ones_before() {
        let (mut deferral, medium) = deferral();
        assert!(!deferral.is_active() && !deferral.is_running() && !deferral.is_full());
        assert!(deferral.take_to_submit().is_none());
        deferral.push_place(7, &medium, 16, b"first", After::Nothing);
        deferral.push_place(8, &medium, 32, b"second", After::Nothing);
        assert!(deferral.is_active() && !deferral.is_running());
        let batch = deferral.take_to_submit().unwrap();
        assert!(deferral.is_active() && deferral.is_running());
        assert_eq!(batch.payload, b"firstsecond");
        let found = batch.operations.iter().map(|operation| {
            let target = operation.target.as_ref().unwrap();
            let Work::Place(range) = operation.work.clone() else { panic!("{operation:?}") };
            (target.tag, target.offset, target.len, range)
        });
        assert_eq!(found.collect::<Vec<_>>(), [(7, 16, 5, 0..5), (8, 32, 6, 5..11)]);
        deferral.push_mark(After::Nothing);
        assert!(deferral.take_to_submit().is_none(), "one batch at a time");
        deferral.returned(batch);
        assert!(deferral.is_active() && !deferral.is_running());
        let batch = deferral.take_to_submit().unwrap();
        assert_eq!((batch.operations.len(), batch.payload.len()), (1, 0));
        deferral.returned(batch);
        assert!(!deferral.is_active());
        deferral.push_mark(After::Nothing);
        assert!(deferral.spare.is_none(), "its memory is used again");
    }

    #[test]
    fn a_queue_pair_stops_reading_when_a_batch_is_full() {
        let (mut deferral, _) = deferral();
        for _ in 1..OPERATIONS_MAX {
            deferral.push_mark(After::Nothing);
        }
        assert!(!deferral.is_full());
        deferral.push_mark(After::Nothing);
        assert!(deferral.is_full());
    }

    #[test]
    fn operations_from_the_first_on_a_region_that_ended_never_begin() {
        let (mut deferral, medium) = deferral();
        assert!(!deferral.cut_at(7));
        for tag in [6, 7, 8, 7] {
            deferral.push(tag, &medium, 0, 8, Work::Persist, After::Nothing);
        }
        assert!(!deferral.cut_at(9));
        assert!(deferral.cut_at(7));
        let batch = deferral.take_to_submit().unwrap();
        assert_eq!(batch.operations.len(), 1, "only what came before");
        assert!(!deferral.cut_at(6), "a worker has it");
        deferral.withdraw(6);
        assert!(batch.withdrawn().covers(6) && !batch.withdrawn().covers(7));
        deferral.push_mark(After::Nothing);
        deferral.forget();
        assert!(batch.withdrawn().covers(7), "the connection is over");
        assert!(deferral.is_running());
        deferral.returned(batch);
        assert!(deferral.take_to_submit().is_none());
        deferral.withdraw(6);
        deferral.forget();
    }
}
