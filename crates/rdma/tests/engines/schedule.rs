//! Any schedule of operations, polls and frame sizes ends with the bytes a plain array would have.

mod tests {
    use std::sync::Arc;

    use pmem::Medium;
    use proptest::prelude::*;
    use rdma::{MemoryRegion, Operation, Payload, PostError, QpConfig, WorkRequest};

    use crate::support::slow::{Blocks, Slow};
    use crate::support::{Pair, bytes_of, flush, memory, pattern};

    /// Bytes of the shared region: few enough that operations overlap.
    const LEN: u64 = 40_000;

    #[derive(Clone, Debug)]
    enum Act {
        Write { offset: u64, len: usize, seed: u8, registered: bool },
        Read { offset: u64, len: u32 },
        Flush { offset: u64, len: u32 },
        AtomicWrite { word: u64, value: u64 },
        FetchAdd { word: u64, add: u64 },
        Send { len: usize, seed: u8 },
        PollClient,
        PollServer,
    }

    fn act() -> impl Strategy<Value = Act> {
        let place = (0..LEN - 10_000, 0..10_000_usize);
        prop_oneof![
            4 => (place, any::<u8>(), any::<bool>()).prop_map(
                |((offset, len), seed, registered)| Act::Write { offset, len, seed, registered }
            ),
            3 => (0..LEN - 10_000, 0..10_000_u32).prop_map(|(offset, len)| Act::Read { offset, len }),
            3 => (0..LEN - 10_000, 0..10_000_u32).prop_map(|(offset, len)| Act::Flush { offset, len }),
            1 => (0..LEN / 8, any::<u64>()).prop_map(|(word, value)| Act::AtomicWrite { word, value }),
            1 => (0..LEN / 8, any::<u64>()).prop_map(|(word, add)| Act::FetchAdd { word, add }),
            2 => (0..3000_usize, any::<u8>()).prop_map(|(len, seed)| Act::Send { len, seed }),
            3 => Just(Act::PollClient),
            3 => Just(Act::PollServer),
        ]
    }

    /// One connection, and the expected content of its far memory at the end.
    struct Run {
        pair: Pair,
        region: MemoryRegion,
        source: (Arc<dyn Medium>, MemoryRegion),
        sink: (Arc<dyn Medium>, MemoryRegion),
        model: Vec<u8>,
        messages: Vec<Vec<u8>>,
        posted: u64,
        completed: u64,
    }

    impl Run {
        fn post(&mut self, operation: Operation<'_>) {
            loop {
                let request = WorkRequest::signaled(self.posted, operation);
                match self.pair.client.engine.post_send(self.pair.client_qp, request) {
                    Ok(()) => break,
                    Err(PostError::QueueFull) => self.progress(),
                    Err(error) => panic!("{error}"),
                }
            }
            self.posted += 1;
        }

        fn progress(&mut self) {
            self.pair.until(|_, _| Some(()));
            self.check_completions();
        }

        fn check_completions(&mut self) {
            while let Some(completion) = self.pair.client.completion() {
                assert!(completion.is_success(), "{completion:?}");
                assert_eq!(completion.wr_id, self.completed, "completions come in order");
                self.completed += 1;
            }
        }

        fn drain(&mut self) {
            while self.completed < self.posted {
                self.progress();
            }
        }

        fn act(&mut self, act: &Act) {
            let (rkey, base) = (self.region.rkey, self.region.remote_addr_base);
            match *act {
                Act::Write { offset, len, seed, registered } => {
                    let bytes = pattern(seed, len);
                    let payload = if registered {
                        // The bytes must not change until the completion.
                        self.drain();
                        self.source.0.place(0, &bytes).unwrap();
                        Payload::Registered(self.source.1.slice(0, u32::try_from(len).unwrap()))
                    } else {
                        Payload::Inline(&bytes)
                    };
                    self.post(Operation::Write { payload, rkey, remote_addr: base + offset });
                    let start = usize::try_from(offset).unwrap();
                    self.model[start..start + len].copy_from_slice(&bytes);
                }
                Act::Read { offset, len } => {
                    // A request posted behind a read may overtake it: look at once.
                    let local = self.sink.1.slice(0, len);
                    self.post(Operation::Read { local, rkey, remote_addr: base + offset });
                    self.drain();
                    let start = usize::try_from(offset).unwrap();
                    let len = usize::try_from(len).unwrap();
                    assert_eq!(bytes_of(&*self.sink.0, 0, len), self.model[start..start + len]);
                }
                Act::Flush { offset, len } => self.post(flush(rkey, base + offset, len)),
                Act::AtomicWrite { word, value } => {
                    // A request may overtake an atomic as well.
                    let remote_addr = base + 8 * word;
                    self.post(Operation::AtomicWrite { rkey, remote_addr, value });
                    self.drain();
                    self.word(word).copy_from_slice(&value.to_le_bytes());
                }
                Act::FetchAdd { word, add } => {
                    let remote_addr = base + 8 * word;
                    self.post(Operation::FetchAdd { rkey, remote_addr, add, mask: 0 });
                    self.drain();
                    let bytes = self.word(word);
                    let before = u64::from_le_bytes((&*bytes).try_into().unwrap());
                    bytes.copy_from_slice(&before.wrapping_add(add).to_le_bytes());
                }
                Act::Send { len, seed } => {
                    let bytes = pattern(seed, len);
                    let payload = Payload::Inline(&bytes);
                    self.post(Operation::Send { payload, invalidate: None, solicited: false });
                    self.messages.push(bytes);
                }
                Act::PollClient => {
                    let client = &mut self.pair.client;
                    client.engine.poll(&mut client.events);
                    self.check_completions();
                }
                Act::PollServer => {
                    let server = &mut self.pair.server;
                    server.engine.poll(&mut server.events);
                }
            }
        }

        fn word(&mut self, word: u64) -> &mut [u8] {
            let start = usize::try_from(8 * word).unwrap();
            &mut self.model[start..start + 8]
        }
    }

    fn run(acts: &[Act], fpdu_max: u16, ord: u8, blocks: Option<Blocks>) {
        let config = QpConfig { fpdu_max, ord, ird: ord, ..QpConfig::default() };
        let mut pair = Pair::with(config, config);
        let target: Arc<dyn Medium> = match blocks {
            Some(blocks) => Slow::new(LEN, blocks),
            None => memory(LEN),
        };
        let region = pair.target(&target);
        let inbox = memory(1 << 20);
        let buffers = pair.target(&inbox);
        let qp = pair.server_qp;
        for i in 0..200_u64 {
            pair.server.engine.post_recv(qp, i, buffers.slice(4096 * i, 4096)).unwrap();
        }
        let (source, sink) = (memory(16_384), memory(16_384));
        let source = (source.clone(), pair.local(&source));
        let sink = (sink.clone(), pair.local(&sink));
        let model = vec![0; usize::try_from(LEN).unwrap()];
        let messages = Vec::new();
        let mut run = Run { pair, region, source, sink, model, messages, posted: 0, completed: 0 };
        for act in acts {
            run.act(act);
        }
        // A flush answers for everything before it.
        run.post(flush(region.rkey, region.remote_addr_base, 1));
        run.drain();
        assert_eq!(bytes_of(&*target, 0, run.model.len()), run.model);
        for (i, message) in (0_u64..).zip(&run.messages) {
            let got = run.pair.until(|_, server| server.completion());
            assert_eq!((got.wr_id, usize::try_from(got.len).unwrap()), (i, message.len()));
            assert_eq!(&bytes_of(&*inbox, 4096 * i, message.len()), message);
        }
    }

    fn blocks() -> impl Strategy<Value = Option<Blocks>> {
        prop_oneof![
            Just(None),
            (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
                |(place, read, persist, atomic)| Some(Blocks { place, read, persist, atomic })
            ),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

        #[test]
        fn any_schedule_leaves_the_bytes_of_a_plain_array(
            acts in prop::collection::vec(act(), 1..80),
            fpdu_max in prop_oneof![Just(u16::MAX), 130..4000_u16],
            ord in 1..40_u8,
            blocks in blocks(),
        ) {
            run(&acts, fpdu_max, ord, blocks);
        }
    }
}
