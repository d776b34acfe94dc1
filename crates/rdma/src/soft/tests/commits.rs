//! Many connections that commit one file share its flushes, and no crash loses an acknowledged
//! commit.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pmem::crash::{AckLog, Budget, CrashState, Recorder, Sabotage, Violation, check};
use pmem::{AtomicOp, DurabilityClass, Medium, MediumError, StoreGranularity};

use super::super::planted::Planted;
use super::support::{Pair, flush, write};
use crate::{Access, WorkRequest};

/// A recorded file; each flush takes until another connection has placed bytes, if a connection is
/// about to.
#[derive(Debug)]
struct Busy {
    recorder: Recorder,
    placed: AtomicU64,
}

impl Medium for Busy {
    fn class(&self) -> DurabilityClass {
        DurabilityClass::Storage
    }

    fn store_granularity(&self) -> StoreGranularity {
        StoreGranularity::Page
    }

    fn len(&self) -> u64 {
        self.recorder.len()
    }

    fn try_place(&self, _offset: u64, _bytes: &[u8]) -> Result<(), MediumError> {
        Err(MediumError::WouldBlock)
    }

    fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.recorder.try_read(offset, out)
    }

    fn try_persist(&self, _offset: u64, _len: u64) -> Result<(), MediumError> {
        Err(MediumError::WouldBlock)
    }

    fn try_atomic(&self, _offset: u64, _op: AtomicOp) -> Result<u64, MediumError> {
        Err(MediumError::WouldBlock)
    }

    fn place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        let outcome = self.recorder.place(offset, bytes);
        self.placed.fetch_add(1, Ordering::SeqCst);
        outcome
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.recorder.read(offset, out)
    }

    fn persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        let before = self.placed.load(Ordering::SeqCst);
        let outcome = self.recorder.persist(offset, len);
        for _ in 0..YIELDS {
            if self.placed.load(Ordering::SeqCst) >= before + 2 {
                break;
            }
            std::thread::yield_now();
        }
        outcome
    }

    fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.recorder.atomic(offset, op)
    }

    fn prepare(&self, _offset: u64, _len: u64) -> Result<(), MediumError> {
        Ok(())
    }
}

/// One acknowledged commit: its page and its byte.
#[derive(Clone, Copy, Debug)]
struct Committed {
    page: usize,
    byte: u8,
}

/// Each connection commits its page again and again, with two commits open.
fn stream(medium: &Arc<Busy>) -> (AckLog<Committed>, u64) {
    let mut pair = Pair::new();
    let file: Arc<dyn Medium> = Arc::clone(medium) as _;
    let mut writers = Vec::new();
    for page in 0..CONNECTIONS {
        let (client_qp, server_qp) = pair.another();
        let (file, range) = (Arc::clone(&file), 0..file.len());
        let engine = &mut pair.server.engine;
        let region = engine.register(server_qp, file, range, Access::PUSH).unwrap();
        writers.push((client_qp, region, page, 0_u8, VecDeque::new()));
    }
    let mut acks = AckLog::new();
    while writers.iter().any(|(.., byte, open)| *byte < COMMITS || !open.is_empty()) {
        for (qp, region, page, byte, open) in &mut writers {
            if *byte == COMMITS || open.len() == 2 {
                continue;
            }
            *byte += 1;
            let offset = u64::try_from(*page * PAGE).unwrap();
            let bytes = [*byte; PAGE];
            let place = write(&bytes, *region, offset);
            pair.client.engine.post_send(*qp, WorkRequest::unsignaled(0, place)).unwrap();
            pair.client.post(*qp, 1, flush(region.rkey, region.remote_addr_base + offset, 4096));
            open.push_back(Committed { page: *page, byte: *byte });
        }
        let completion = pair.completion();
        assert!(completion.is_success());
        let writer = writers.iter_mut().find(|(qp, ..)| *qp == completion.qp).unwrap();
        acks.note(medium.recorder.position(), writer.4.pop_front().unwrap());
    }
    (acks, pair.server.engine.stats().persists)
}

/// Each sector of a page has the bytes of the last acknowledged commit, or of a later commit.
fn nothing_is_lost(state: &CrashState<'_, Committed>) -> Result<(), String> {
    let mut promised = [0; CONNECTIONS];
    for (_, Committed { page, byte }) in state.acknowledged {
        promised[*page] = *byte;
    }
    for (page, (bytes, promised)) in state.image.chunks(PAGE).zip(promised).enumerate() {
        if let Some(found) = bytes.iter().find(|byte| **byte < promised) {
            return Err(format!("page {page} holds {found}, promised was {promised}"));
        }
    }
    Ok(())
}

fn crash_everywhere(recorder: Recorder) -> Result<u64, Violation<String>> {
    let medium = Arc::new(Busy { recorder, placed: AtomicU64::new(0) });
    let (acks, persists) = stream(&medium);
    let commits = u64::try_from(CONNECTIONS).unwrap() * u64::from(COMMITS);
    assert!(persists < commits / 2, "{persists} flushes for {commits} commits");
    let budget = Budget { states_per_point: 32, seed: 13 };
    check(&medium.recorder.log(), &acks, budget, |state| nothing_is_lost(&state))
}

#[test]
fn no_crash_loses_a_commit_that_shared_a_flush() {
    let states = crash_everywhere(Recorder::storage(CONNECTIONS * PAGE)).unwrap();
    assert!(states >= 5000, "only {states} states were tried");
}

#[test]
fn a_flush_that_counts_for_later_placements_is_detected() {
    let recorder = Recorder::storage(CONNECTIONS * PAGE);
    let found = Planted::CommitsForLatecomers.during(|| crash_everywhere(recorder));
    assert!(found.is_err(), "it went unnoticed");
    let early = Recorder::sabotaged(CONNECTIONS * PAGE, Sabotage::FlushBeganEarlier);
    assert!(crash_everywhere(early).is_err(), "a flush that began earlier went unnoticed");
}

const CONNECTIONS: usize = 12;
const PAGE: usize = 4096;
const COMMITS: u8 = 30;
/// How long a flush waits for another connection.
const YIELDS: usize = 2000;
