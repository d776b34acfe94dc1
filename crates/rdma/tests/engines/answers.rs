//! The result of a worker is credited to the request it was made for, and every answer leaves.

mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use pmem::Medium;
    use rdma::{MemoryRegion, Operation};

    use crate::support::cold::{Cold, Permits};
    use crate::support::{Pair, bytes_of, flush, memory, pattern, write};

    const LEN: usize = 8 << 20;

    /// A read of a file whose second half is not cached is in transmission; behind it a store
    /// waits.
    struct Streaming {
        pair: Pair,
        file: Arc<Cold>,
        permits: Permits,
        region: MemoryRegion,
        mine: Arc<dyn Medium>,
    }

    impl Streaming {
        /// `store` is posted as request 3, while the read, request 1, is in transmission.
        fn start(store: impl FnOnce(MemoryRegion) -> Operation<'static>) -> Self {
            let mut pair = Pair::new();
            let inner = memory(u64::try_from(LEN).unwrap());
            inner.place(0, &pattern(3, LEN)).unwrap();
            let (file, permits) = Cold::new(inner);
            let medium: Arc<dyn Medium> = file.clone();
            let region = pair.target(&medium);
            let mine = memory(u64::try_from(LEN).unwrap());
            let local = pair.local(&mine).slice(0, u32::try_from(LEN).unwrap());
            let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
            pair.post(1, Operation::Read { local, rkey, remote_addr });
            for _ in 0..2 {
                pair.client.engine.poll(&mut pair.client.events);
                pair.server.engine.poll(&mut pair.server.events);
            }
            pair.post(2, write(&pattern(3, 1), region, 0));
            pair.post(3, store(region));
            let mut streaming = Self { pair, file, permits, region, mine };
            streaming.until(|file| file.begun.load(Ordering::SeqCst) == 1);
            streaming.until(|file| file.misses.load(Ordering::SeqCst) == 1);
            streaming
        }

        fn until(&mut self, so: impl Fn(&Cold) -> bool) {
            let file = Arc::clone(&self.file);
            self.pair.until(|_, _| so(&file).then_some(()));
        }

        fn run(&mut self, rounds: usize) {
            for _ in 0..rounds {
                self.pair.client.engine.poll(&mut self.pair.client.events);
                self.pair.server.engine.poll(&mut self.pair.server.events);
            }
        }
    }

    #[test]
    fn a_read_continues_with_its_own_bytes_after_a_flush_ends() {
        let store = |region: MemoryRegion| flush(region.rkey, region.remote_addr_base, 1);
        let mut streaming = Streaming::start(store);
        // The missing bytes are cached by now, and the flush ends before the worker's read.
        streaming.file.warm.store(true, Ordering::SeqCst);
        streaming.permits.store.send(()).unwrap();
        streaming.run(3000);
        streaming.permits.fetch.send(()).unwrap();
        let done: Vec<_> = (0..3).map(|_| streaming.pair.completion()).collect();
        assert!(done.iter().all(rdma::WorkCompletion::is_success));
        assert!(bytes_of(&*streaming.mine, 0, LEN) == pattern(3, LEN), "as they are in the file");
    }

    #[test]
    fn an_atomic_gets_its_own_word_as_answer() {
        let mut streaming = Streaming::start(|region| {
            let (rkey, remote_addr) = (region.rkey, region.remote_addr_base + 8);
            Operation::FetchAdd { rkey, remote_addr, add: 1, mask: 0 }
        });
        let word = bytes_of(&*memory_of(&pattern(3, 16)), 8, 8);
        streaming.permits.store.send(()).unwrap();
        for _ in 0..LEN.div_ceil(1 << 16) {
            streaming.permits.fetch.send(()).unwrap();
        }
        assert_eq!(streaming.region.len, u64::try_from(LEN).unwrap());
        let done: Vec<_> = (0..3).map(|_| streaming.pair.completion()).collect();
        let added = done.iter().find(|completion| completion.wr_id == 3).unwrap();
        assert_eq!(added.atomic.map(native), Some(word), "the word before");
    }

    fn memory_of(bytes: &[u8]) -> Arc<dyn Medium> {
        let medium = memory(u64::try_from(bytes.len()).unwrap());
        medium.place(0, bytes).unwrap();
        medium
    }

    #[expect(clippy::host_endian_bytes, reason = "a word in memory, not on a wire")]
    fn native(word: u64) -> Vec<u8> {
        word.to_ne_bytes().to_vec()
    }

    #[test]
    fn answers_that_found_no_room_leave_without_further_input() {
        let mut pair = Pair::new();
        let region = pair.target(&memory(1 << 20));
        let mine = memory(1 << 20);
        // After the read the transmit buffer has room for some answers, but not for all.
        let local = pair.local(&mine).slice(0, 4 * 65_512 + 3900);
        let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
        pair.post(1, Operation::Read { local, rkey, remote_addr });
        for wr_id in 2..12 {
            pair.post(wr_id, flush(rkey, remote_addr, 64));
        }
        for wr_id in 1..12 {
            assert_eq!(pair.completion().wr_id, wr_id);
        }
    }
}
