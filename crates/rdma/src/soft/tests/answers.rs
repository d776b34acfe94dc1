//! Each request gets its own answer, whatever has to wait; and these tests detect a responder that
//! mixes up answers, or forgets one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pmem::{AtomicOp, DurabilityClass, Medium, MediumError, StoreGranularity};

use super::super::planted::Planted;
use super::support::{Pair, bytes_of, flush, memory, pattern, write};
use crate::{LocalSlice, Operation, WorkCompletion};

/// Storage of which at any time some is cached and some is not.
#[derive(Debug)]
struct Moody {
    inner: Arc<dyn Medium>,
    numbers: AtomicU64,
}

impl Moody {
    fn new(seed: u64) -> Arc<Self> {
        let inner = memory(LEN);
        inner.place(0, &pattern(3, usize::try_from(LEN).unwrap())).unwrap();
        inner.place(WORD, &[0; 8]).unwrap();
        Arc::new(Self { inner, numbers: AtomicU64::new(seed) })
    }

    fn mood(&self) -> Result<(), MediumError> {
        let number = self.numbers.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        if mixed(number).is_multiple_of(3) { Err(MediumError::WouldBlock) } else { Ok(()) }
    }
}

impl Medium for Moody {
    fn class(&self) -> DurabilityClass {
        DurabilityClass::Storage
    }

    fn store_granularity(&self) -> StoreGranularity {
        StoreGranularity::Page
    }

    fn len(&self) -> u64 {
        LEN
    }

    fn try_place(&self, _offset: u64, _bytes: &[u8]) -> Result<(), MediumError> {
        Err(MediumError::WouldBlock)
    }

    fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.mood()?;
        self.inner.read(offset, out)
    }

    fn try_persist(&self, _offset: u64, _len: u64) -> Result<(), MediumError> {
        Err(MediumError::WouldBlock)
    }

    fn try_atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.mood()?;
        self.inner.atomic(offset, op)
    }

    fn place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.inner.place(offset, bytes)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.inner.read(offset, out)
    }

    fn persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.inner.persist(offset, len)
    }

    fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.inner.atomic(offset, op)
    }

    fn prepare(&self, _offset: u64, _len: u64) -> Result<(), MediumError> {
        Ok(())
    }
}

/// The finaliser of splitmix64.
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// A request, and the answer it must get.
#[derive(Clone, Copy, Debug)]
enum Wish {
    Read { offset: u64, len: u32 },
    Write,
    Flush,
    Add,
}

fn some_wishes(seed: u64) -> Vec<Wish> {
    let wish = |index: u64| {
        let number = mixed(seed.wrapping_mul(1000) + index);
        match number % 5 {
            0 | 1 => Wish::Read {
                offset: number >> 8 & 0xfff,
                len: u32::try_from(number >> 20 & 0xf_ffff).unwrap(),
            },
            2 => Wish::Write,
            3 => Wish::Flush,
            _ => Wish::Add,
        }
    };
    (0..WISHES).map(wish).collect()
}

/// Reads that leave less room in the transmit buffer than an answer takes, then answers.
fn wishes_that_fill_the_buffer() -> Vec<Wish> {
    let read = Wish::Read { offset: 0, len: 4 * 65_512 + 3900 };
    [read].into_iter().chain([Wish::Flush; 10]).collect()
}

/// Sends all requests without waiting for answers, at once or `paced`, and checks the answers.
fn check(wishes: &[Wish], medium: &Arc<dyn Medium>, paced: bool) -> Result<(), String> {
    let mut pair = Pair::new();
    let region = pair.target(medium);
    let mine = memory(LEN * 4);
    let local = pair.local(&mine);
    let (rkey, base) = (region.rkey, region.remote_addr_base);
    let (mut sink, mut sum) = (0, 0);
    let mut expected = HashMap::new();
    for (id, wish) in (0..).zip(wishes) {
        let (offset, before) = (sink, sum);
        match *wish {
            Wish::Read { offset: from, len } => {
                let local = LocalSlice { lkey: local.lkey, offset, len };
                pair.post(id, Operation::Read { local, rkey, remote_addr: base + from });
                sink += u64::from(len);
            }
            Wish::Write => pair.post(id, write(&[9; 100], region, SCRATCH)),
            Wish::Flush => pair.post(id, flush(rkey, base + SCRATCH, 100)),
            Wish::Add => {
                let remote_addr = base + WORD;
                pair.post(id, Operation::FetchAdd { rkey, remote_addr, add: id + 1, mask: 0 });
                sum += id + 1;
            }
        }
        expected.insert(id, (*wish, offset, before));
        if paced {
            // So a request meets earlier ones that are still at work.
            pair.client.engine.poll(&mut pair.client.events);
            pair.server.engine.poll(&mut pair.server.events);
        }
    }
    while !expected.is_empty() {
        let answer = next_answer(&mut pair)
            .ok_or_else(|| format!("{} requests are never answered", expected.len()))?;
        let Some((wish, offset, before)) = expected.remove(&answer.wr_id) else {
            return Err(format!("{answer:?} answers nothing"));
        };
        let is_right = match wish {
            Wish::Read { offset: from, len } => {
                let len = usize::try_from(len).unwrap();
                bytes_of(&*mine, offset, len) == bytes_of(&**medium, from, len)
            }
            Wish::Add => answer.atomic == Some(before),
            Wish::Write | Wish::Flush => true,
        };
        if !answer.is_success() || !is_right {
            return Err(format!("{wish:?} is answered with {answer:?}"));
        }
    }
    Ok(())
}

fn next_answer(pair: &mut Pair) -> Option<WorkCompletion> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        pair.client.engine.poll(&mut pair.client.events);
        pair.server.engine.poll(&mut pair.server.events);
        if let Some(answer) = pair.client.completion() {
            return Some(answer);
        }
    }
    None
}

fn check_all(seeds: u64) -> Result<(), String> {
    check(&wishes_that_fill_the_buffer(), &memory(LEN), false)?;
    (0..seeds).try_for_each(|seed| check(&some_wishes(seed), &(Moody::new(seed) as _), true))
}

#[test]
fn each_request_gets_its_own_answer_whichever_requests_wait() {
    check_all(20).unwrap();
}

#[test]
fn a_responder_that_mixes_up_or_forgets_answers_is_detected() {
    for fault in [Planted::CreditsTheOldest, Planted::ForgetsAFullBuffer] {
        let found = fault.during(|| check_all(100));
        assert!(found.is_err(), "{fault:?} went unnoticed");
    }
}

const LEN: u64 = 4 << 20;
/// A word that atomics add to, and bytes that are written; reads keep this distance from both.
const WORD: u64 = LEN - 4096;
const SCRATCH: u64 = LEN - 2048;
const WISHES: u64 = 12;
/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(3);
