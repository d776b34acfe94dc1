//! The frames that go to TCP in one call, with and without our profile at the peer.

mod tests {
    use std::net::SocketAddr;
    use std::sync::{Arc, Mutex};

    use rdma::{
        EngineConfig, Operation, PollPolicy, QpConfig, SoftProvider, WireHook, WireVerdict,
    };

    use crate::support::{End, Pair, bytes_of, memory, pattern, write};

    /// A hook that keeps the bytes of each call.
    #[derive(Debug, Default)]
    struct Calls(Mutex<Vec<Vec<u8>>>);

    impl WireHook for Calls {
        fn opened(&self, _: u64, _: SocketAddr, _: SocketAddr, _: bool) {}
        fn sent(&self, _: u64, bytes: &[u8]) {
            self.0.lock().unwrap().push(bytes.to_vec());
        }
        fn received(&self, _: u64, _: &mut [u8]) -> WireVerdict {
            WireVerdict::Pass
        }
        fn closed(&self, _: u64) {}
    }

    /// Lengths of the frames in one call, by their length fields (RFC 5044 §4.1).
    fn frames(mut call: &[u8]) -> Vec<usize> {
        let mut lengths = Vec::new();
        while let [high, low, ..] = call {
            let ulpdu = usize::from(u16::from_be_bytes([*high, *low]));
            let length = (2 + ulpdu).next_multiple_of(4) + 4;
            lengths.push(length);
            call = call.get(length..).unwrap_or_default();
        }
        lengths
    }

    /// Posts eight small writes at once; returns the calls that carried them.
    fn calls(announce: bool) -> Vec<Vec<usize>> {
        let hook = Arc::new(Calls::default());
        let blocks = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
        let watched = EngineConfig { wire_hook: Some(hook.clone()), ..blocks.clone() };
        let config = QpConfig { announce, ..QpConfig::default() };
        let client = End::open(&SoftProvider, watched);
        let server = End::open(&SoftProvider, blocks);
        let mut pair = Pair::between(client, server, config, config);
        let medium = memory(4096);
        let region = pair.target(&medium);
        hook.0.lock().unwrap().clear();
        // Lengths that need every kind of padding.
        for number in 0..8u8 {
            let bytes = vec![number + 1; 101 + usize::from(number)];
            pair.post(number.into(), write(&bytes, region, 256 * u64::from(number)));
        }
        for _ in 0..8 {
            assert!(pair.completion().is_success());
        }
        pair.until(|_, _| (bytes_of(&*medium, 256 * 7 + 107, 1) == [8]).then_some(()));
        let calls = hook.0.lock().unwrap();
        calls.iter().map(|call| frames(call)).collect()
    }

    #[test]
    fn answers_to_reads_received_together_leave_in_one_call() {
        let hook = Arc::new(Calls::default());
        let blocks = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
        let watched = EngineConfig { wire_hook: Some(hook.clone()), ..blocks.clone() };
        let client = End::open(&SoftProvider, blocks);
        let server = End::open(&SoftProvider, watched);
        let config = QpConfig::default();
        let mut pair = Pair::between(client, server, config, config);
        let (there, here) = (memory(READS * READ), memory(READS * READ));
        let bytes = pattern(7, usize::try_from(READS * READ).unwrap());
        there.place(0, &bytes).unwrap();
        let (region, local) = (pair.target(&there), pair.local(&here));
        hook.0.lock().unwrap().clear();
        for number in 0..READS {
            let local = local.slice(number * READ, u32::try_from(READ).unwrap());
            let remote_addr = region.remote_addr_base + number * READ;
            pair.post(number, Operation::Read { local, rkey: region.rkey, remote_addr });
        }
        for number in 0..READS {
            assert_eq!(pair.completion().wr_id, number);
        }
        assert_eq!(bytes_of(&*here, 0, bytes.len()), bytes);
        let calls = hook.0.lock().unwrap();
        let most = calls.iter().map(Vec::len).max().unwrap();
        assert!(most > 3 * usize::try_from(READ).unwrap(), "{most} bytes in the longest call");
    }

    const READS: u64 = 12;
    const READ: u64 = 65_536;

    #[test]
    fn a_peer_without_our_profile_gets_each_frame_in_a_call_of_its_own() {
        let calls = calls(false);
        assert!(calls.iter().all(|frames| frames.len() == 1), "{calls:?}");
        assert!(calls.len() >= 8, "{calls:?}");
    }

    #[test]
    fn a_peer_with_our_profile_gets_all_queued_frames_in_one_call() {
        let calls = calls(true);
        assert!(calls.iter().any(|frames| frames.len() >= 8), "{calls:?}");
    }
}
