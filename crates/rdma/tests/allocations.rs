//! A write and its flush allocate nothing, on either side, once the queues are warm.
//!
//! # Safety rules of this module
//!
//! The allocator counts and passes every request on to the system's, unchanged.
#![allow(unsafe_code)]

#[cfg(test)]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts in all threads: an allocation of a worker counts as well.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every method hands its arguments to the system's allocator and returns its answer.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, which is the same.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_len: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`, which is the same.
        unsafe { System.realloc(memory, layout, new_len) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use pmem::{AtomicOp, DurabilityClass, Medium, MediumError, StoreGranularity};
    use rdma::{
        Engine, EngineConfig, Event, MemoryRegion, Operation, PollPolicy, QpConfig, QpId,
        SoftProvider, WorkRequest,
    };

    use super::ALLOCATIONS;
    use super::support::{End, Pair, flush, memory, pattern, request, write};

    /// Posts a write and its flush, `depth` times, and waits for the last.
    fn round(pair: &mut Pair, region: MemoryRegion, page: &[u8], depth: u64) {
        for i in 0..depth {
            let (client, qp) = (&mut pair.client.engine, pair.client_qp);
            post(&mut **client, qp, i, write(page, region, 4096 * i));
            post(&mut **client, qp, i, flush(region.rkey, 4096 * i, 4096));
        }
        let mut open = 2 * depth;
        while open > 0 {
            pair.server.engine.poll(&mut pair.server.events);
            pair.client.engine.poll(&mut pair.client.events);
            for event in pair.client.events.drain(..) {
                assert!(matches!(event, Event::Completion(completion) if completion.is_success()));
                open -= 1;
            }
        }
    }

    fn post(client: &mut dyn Engine, qp: QpId, wr_id: u64, operation: Operation<'_>) {
        client.post_send(qp, WorkRequest::signaled(wr_id, operation)).unwrap();
    }

    /// Allocations of `rounds` rounds, after as many to warm up.
    fn allocations(medium: &Arc<dyn Medium>, depth: u64, rounds: usize) -> u64 {
        let mut pair = Pair::new();
        let region = pair.target(medium);
        let page = pattern(1, 4096);
        for _ in 0..rounds {
            round(&mut pair, region, &page, depth);
        }
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        for _ in 0..rounds {
            round(&mut pair, region, &page, depth);
        }
        ALLOCATIONS.load(Ordering::SeqCst) - before
    }

    /// Works until the engine has received this many bytes in all.
    fn receive(server: &mut End, bytes: u64) {
        while server.engine.stats().bytes_received < bytes {
            server.engine.poll(&mut server.events);
        }
    }

    /// Allocations when the first frame of a connection in two pieces comes after many whole ones.
    fn allocations_of_a_cut() -> u64 {
        let config = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
        let mut server = End::open(&SoftProvider, config);
        let addr = server.engine.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut peer = TcpStream::connect(addr).unwrap();
        // RFC 5044 §7.1.1: CRC, revision 1, no private data.
        peer.write_all(b"MPA ID Req Frame\x40\x01\x00\x00").unwrap();
        let id = loop {
            server.engine.poll(&mut server.events);
            if let Some(id) = request(&mut server) {
                break id;
            }
        };
        server.engine.accept(id, QpConfig::default(), &[]).unwrap();
        server.engine.poll(&mut server.events);
        peer.read_exact(&mut [0; 20]).unwrap();
        // RFC 5040 §4.3: an empty Write.
        let frame = *b"\x00\x0e\xc1\x40\x00\x00\x00\x01\0\0\0\0\0\0\0\0\xeb\xd3\x4c\x5f";
        let start = server.engine.stats();
        for number in 1..=100 {
            peer.write_all(&frame).unwrap();
            receive(&mut server, start.bytes_received + 20 * number);
        }
        server.events.clear();
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        peer.write_all(&frame[..9]).unwrap();
        receive(&mut server, start.bytes_received + 2009);
        peer.write_all(&frame[9..]).unwrap();
        receive(&mut server, start.bytes_received + 2020);
        let after = ALLOCATIONS.load(Ordering::SeqCst);
        let taken = server.engine.stats().frames_received - start.frames_received;
        assert_eq!((taken, server.events.len()), (101, 0));
        after - before
    }

    /// Storage as the engine sees it: places at once; a flush has to wait for a worker.
    #[derive(Debug)]
    struct Storage(Arc<dyn Medium>);

    impl Medium for Storage {
        fn class(&self) -> DurabilityClass {
            DurabilityClass::Storage
        }

        fn store_granularity(&self) -> StoreGranularity {
            StoreGranularity::Page
        }

        fn len(&self) -> u64 {
            self.0.len()
        }

        fn try_place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
            self.0.try_place(offset, bytes)
        }

        fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
            self.0.try_read(offset, out)
        }

        fn try_persist(&self, _offset: u64, _len: u64) -> Result<(), MediumError> {
            Err(MediumError::WouldBlock)
        }

        fn try_atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
            self.0.try_atomic(offset, op)
        }

        fn place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
            self.0.place(offset, bytes)
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
            self.0.read(offset, out)
        }

        fn persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
            self.0.persist(offset, len)
        }

        fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
            self.0.atomic(offset, op)
        }

        fn prepare(&self, offset: u64, len: u64) -> Result<(), MediumError> {
            self.0.prepare(offset, len)
        }
    }

    // All in one test, so that no other thread of the harness allocates meanwhile.
    #[test]
    fn a_write_and_its_flush_allocate_nothing_in_the_long_run() {
        let medium = memory(1 << 20);
        assert_eq!(allocations(&medium, 1, 2000), 0, "one at a time");
        assert_eq!(allocations(&medium, 16, 500), 0, "sixteen at a time");
        assert_eq!(allocations_of_a_cut(), 0, "a frame that TCP cuts in two");
        let storage: Arc<dyn Medium> = Arc::new(Storage(medium));
        // How much collects during a persist differs from run to run, so a buffer may still grow
        // once or twice; that is nothing per operation.
        let grown = allocations(&storage, 16, 500);
        assert!(grown <= 8, "{grown} allocations in 8,000 deferred flushes");
    }
}
