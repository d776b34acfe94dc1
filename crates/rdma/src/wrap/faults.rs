//! A provider that injects faults, the same faults for the same seed.
//!
//! - bytes that arrive are flipped: the CRC must catch every one;
//! - connections are cut in the middle of a frame;
//! - events are held back for some polls, in their order.
//!
//! No bytes are dropped from the middle of a stream: TCP never loses bytes, and MPA would see no
//! difference from a flipped length.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pmem::Medium;

use crate::interface::{
    Access, ConnectionId, Deregistration, Engine, EngineConfig, EngineError, EngineStats, Event,
    Handover, LocalSlice, MemoryRegion, PostError, Provider, QpCapabilities, QpConfig, QpId,
    RegisterError, Rkey, Waker, WireHook, WireVerdict, WorkRequest,
};

/// The kinds of faults, and how often they occur. All zero: none.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FaultPlan {
    /// Where the random numbers begin.
    pub seed: u64,
    /// Average distance in bytes between flipped bits of a received stream; 0 for none.
    pub corrupt_every: u64,
    /// Average length in bytes after which a received stream is cut; 0 for never.
    pub cut_after: u64,
    /// Events are held back for up to this many polls.
    pub delay_polls_max: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Faults<P> {
    inner: P,
    plan: FaultPlan,
    engines: AtomicU64,
}

impl<P: Provider> Faults<P> {
    /// Injects faults into the engines of `inner` as `plan` says; each engine gets different ones.
    pub fn new(inner: P, plan: FaultPlan) -> Self {
        Self { inner, plan, engines: AtomicU64::new(0) }
    }
}

impl<P: Provider> Provider for Faults<P> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn is_device(&self) -> bool {
        self.inner.is_device()
    }

    fn open_engine(&self, mut config: EngineConfig) -> Result<Box<dyn Engine>, EngineError> {
        let engine = self.engines.fetch_add(1, Ordering::Relaxed);
        let mut random = Random(self.plan.seed ^ Random(engine).next());
        if self.plan.corrupt_every != 0 || self.plan.cut_after != 0 {
            let next = config.wire_hook.take();
            let (plan, seed) = (self.plan, random.next());
            let hook = FaultHook { plan, seed, streams: Mutex::new(HashMap::new()), next };
            config.wire_hook = Some(Arc::new(hook));
        }
        let inner = self.inner.open_engine(config)?;
        let (delay_max, held) = (self.plan.delay_polls_max, VecDeque::new());
        Ok(Box::new(FaultyEngine { inner, delay_max, random, held, fresh: Vec::new() }))
    }
}

/// Injects faults into the bytes.
#[derive(Debug)]
struct FaultHook {
    plan: FaultPlan,
    seed: u64,
    streams: Mutex<HashMap<u64, StreamFaults>>,
    next: Option<Arc<dyn WireHook>>,
}

/// Bytes until the next fault of each kind, `None` for never.
#[derive(Debug)]
struct StreamFaults {
    random: Random,
    until_corrupt: Option<u64>,
    until_cut: Option<u64>,
}

impl WireHook for FaultHook {
    fn opened(&self, stream: u64, local: SocketAddr, peer: SocketAddr, active: bool) {
        let mut random = Random(self.seed ^ Random(stream).next());
        let until_corrupt = random.around(self.plan.corrupt_every);
        let until_cut = random.around(self.plan.cut_after);
        let faults = StreamFaults { random, until_corrupt, until_cut };
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).insert(stream, faults);
        if let Some(next) = &self.next {
            next.opened(stream, local, peer, active);
        }
    }

    fn sent(&self, stream: u64, bytes: &[u8]) {
        if let Some(next) = &self.next {
            next.sent(stream, bytes);
        }
    }

    fn received(&self, stream: u64, bytes: &mut [u8]) -> WireVerdict {
        // A capture shows the bytes that arrived, before the fault.
        if let Some(next) = &self.next
            && next.received(stream, bytes) == WireVerdict::Cut
        {
            return WireVerdict::Cut;
        }
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        match streams.get_mut(&stream) {
            Some(faults) => faults.apply(self.plan, bytes),
            None => WireVerdict::Pass,
        }
    }

    fn closed(&self, stream: u64) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).remove(&stream);
        if let Some(next) = &self.next {
            next.closed(stream);
        }
    }
}

impl StreamFaults {
    fn apply(&mut self, plan: FaultPlan, bytes: &mut [u8]) -> WireVerdict {
        let len = u64::try_from(bytes.len()).expect("a buffer's length fits 64 bits");
        let mut start = 0;
        while let Some(until) = self.until_corrupt
            && let Some(byte) = usize::try_from(start + until).ok().and_then(|at| bytes.get_mut(at))
        {
            *byte ^= 1 << (self.random.next() % 8);
            start += until + 1;
            self.until_corrupt = self.random.around(plan.corrupt_every);
        }
        self.until_corrupt = self.until_corrupt.map(|until| until - (len - start));
        match self.until_cut {
            Some(until) if until < len => WireVerdict::Cut,
            until => {
                self.until_cut = until.map(|until| until - len);
                WireVerdict::Pass
            }
        }
    }
}

/// Delays the events.
#[derive(Debug)]
struct FaultyEngine {
    inner: Box<dyn Engine>,
    delay_max: u32,
    random: Random,
    /// Events and the polls each still waits once it is first in line.
    held: VecDeque<(u32, Event)>,
    fresh: Vec<Event>,
}

impl FaultyEngine {
    fn hold_and_release(&mut self, events: &mut Vec<Event>) -> usize {
        self.inner.poll(&mut self.fresh);
        for event in self.fresh.drain(..) {
            let delay = self.random.next() % (u64::from(self.delay_max) + 1);
            self.held.push_back((u32::try_from(delay).unwrap_or(0), event));
        }
        let before = events.len();
        while let Some((delay, event)) = self.held.pop_front() {
            if delay > 0 {
                self.held.push_front((delay - 1, event));
                break;
            }
            events.push(event);
        }
        events.len() - before
    }
}

impl Engine for FaultyEngine {
    fn listen(&mut self, addr: SocketAddr) -> Result<SocketAddr, EngineError> {
        self.inner.listen(addr)
    }

    fn connect(
        &mut self,
        addr: SocketAddr,
        config: QpConfig,
        private_data: &[u8],
    ) -> Result<QpId, EngineError> {
        self.inner.connect(addr, config, private_data)
    }

    fn accept(
        &mut self,
        request: ConnectionId,
        config: QpConfig,
        private_data: &[u8],
    ) -> Result<QpId, EngineError> {
        self.inner.accept(request, config, private_data)
    }

    fn reject(&mut self, request: ConnectionId, private_data: &[u8]) {
        self.inner.reject(request, private_data);
    }

    fn hand_over(&mut self, request: ConnectionId) -> Option<Handover> {
        self.inner.hand_over(request)
    }

    fn take_over(&mut self, handover: Handover) -> Option<ConnectionId> {
        self.inner.take_over(handover)
    }

    fn register(
        &mut self,
        qp: QpId,
        medium: Arc<dyn Medium>,
        range: Range<u64>,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        self.inner.register(qp, medium, range, access)
    }

    fn deregister(&mut self, qp: QpId, rkey: Rkey) -> Result<Deregistration, RegisterError> {
        self.inner.deregister(qp, rkey)
    }

    fn post_send(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError> {
        self.inner.post_send(qp, request)
    }

    fn post_recv(&mut self, qp: QpId, wr_id: u64, buffer: LocalSlice) -> Result<(), PostError> {
        self.inner.post_recv(qp, wr_id, buffer)
    }

    fn disconnect(&mut self, qp: QpId) {
        self.inner.disconnect(qp);
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> usize {
        self.hold_and_release(events)
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        // The next poll releases the held events; a sleep would hold them for ever.
        if self.held.is_empty() {
            self.inner.wait(timeout);
        }
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn capabilities(&self, qp: QpId) -> Option<QpCapabilities> {
        self.inner.capabilities(qp)
    }

    fn inline_max(&self) -> usize {
        self.inner.inline_max()
    }

    fn stats(&self) -> EngineStats {
        self.inner.stats()
    }
}

/// The splitmix64 sequence: small, and every seed is a good one.
#[derive(Clone, Copy, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly from nothing to twice `average`; `None` when that is 0.
    fn around(&mut self, average: u64) -> Option<u64> {
        (average != 0).then(|| self.next() % average.saturating_mul(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(seed: u64, pieces: usize) -> Vec<u8> {
        let plan = FaultPlan { seed, corrupt_every: 100, ..FaultPlan::default() };
        let streams = Mutex::new(HashMap::new());
        let hook = FaultHook { plan, seed, streams, next: None };
        let address = "127.0.0.1:1".parse().unwrap();
        hook.opened(1, address, address, true);
        let mut bytes = vec![0; 10_000];
        for piece in bytes.chunks_mut(pieces) {
            assert_eq!(hook.received(1, piece), WireVerdict::Pass);
        }
        bytes
    }

    #[test]
    fn a_seed_flips_the_same_bits_however_the_stream_is_cut() {
        let bytes = broken(7, 10_000);
        assert_eq!(bytes, broken(7, 13));
        assert_ne!(bytes, broken(8, 13));
        let flipped = bytes.iter().filter(|byte| **byte != 0).count();
        assert!((50..200).contains(&flipped), "{flipped} of 10,000 bytes, about 100 expected");
    }
}
