//! Every operation over a real connection, with the bytes that it moves.

mod tests {
    use crate::support::{Pair, bytes_of, flush, memory, pattern, write};
    use rdma::{Operation, Payload, Placement, PostError, QpConfig, WcOpcode, WcStatus};

    #[test]
    fn a_written_page_is_in_the_medium_when_its_flush_completes() {
        let mut pair = Pair::new();
        let medium = memory(1 << 20);
        let region = pair.target(&medium);
        let page = pattern(1, 4096);
        pair.post(1, write(&page, region, 8192));
        pair.post(2, flush(region.rkey, region.remote_addr_base + 8192, 4096));
        let first = pair.completion();
        assert_eq!((first.wr_id, first.opcode, first.len), (1, WcOpcode::Write, 4096));
        let second = pair.completion();
        assert_eq!(
            (second.wr_id, second.opcode, second.status),
            (2, WcOpcode::Flush, WcStatus::Success)
        );
        assert_eq!(bytes_of(&*medium, 8192, 4096), page);
        assert_eq!(bytes_of(&*medium, 0, 8192), vec![0; 8192], "and nowhere else");
        assert_eq!(pair.server.engine.stats().persists, 1);
    }

    #[test]
    fn a_read_returns_the_bytes_in_segments_of_any_size() {
        for fpdu_max in [256, 1500, u16::MAX] {
            let small = QpConfig { fpdu_max, ..QpConfig::default() };
            let mut pair = Pair::with(small, small);
            let (there, here) = (memory(1 << 20), memory(1 << 20));
            let bytes = pattern(7, 700_001);
            there.place(3, &bytes).unwrap();
            let region = pair.target(&there);
            let local = pair.local(&here);
            let (rkey, remote_addr) = (region.rkey, region.remote_addr_base + 3);
            pair.post(9, Operation::Read { local: local.slice(5, 700_001), rkey, remote_addr });
            let read = pair.completion();
            assert_eq!(
                (read.wr_id, read.opcode, read.status),
                (9, WcOpcode::Read, WcStatus::Success)
            );
            assert_eq!(bytes_of(&*here, 5, 700_001), bytes);
            assert_eq!(bytes_of(&*here, 0, 5), [0; 5]);
        }
    }

    #[test]
    fn a_message_fills_the_posted_receive_and_can_end_a_region() {
        let mut pair = Pair::new();
        let (inbox, other) = (memory(8192), memory(4096));
        let buffer = pair.target(&inbox);
        let doomed = pair.target(&other);
        let qp = pair.server_qp;
        pair.server.engine.post_recv(qp, 77, buffer.slice(1000, 3000)).unwrap();
        let payload = Payload::Inline(b"good morning");
        let invalidate = Some(doomed.rkey);
        pair.post(1, Operation::Send { payload, invalidate, solicited: true });
        let got = pair.until(|_, server| server.completion());
        assert_eq!((got.wr_id, got.opcode, got.len), (77, WcOpcode::Recv, 12));
        assert_eq!((got.solicited, got.invalidated), (true, Some(doomed.rkey)));
        assert_eq!(bytes_of(&*inbox, 1000, 12), b"good morning");
        assert!(pair.server.engine.deregister(qp, doomed.rkey).is_err(), "it is gone already");
    }

    #[test]
    fn an_immediate_number_arrives_and_leaves_the_receive_buffer_unchanged() {
        let mut pair = Pair::new();
        let inbox = memory(64);
        let buffer = pair.target(&inbox);
        let qp = pair.server_qp;
        pair.server.engine.post_recv(qp, 5, buffer.slice(0, 64)).unwrap();
        pair.post(1, Operation::Immediate { data: 0x0102_0304_0506_0708, solicited: false });
        let got = pair.until(|_, server| server.completion());
        assert_eq!((got.wr_id, got.opcode), (5, WcOpcode::RecvImmediate));
        assert_eq!(got.immediate, Some(0x0102_0304_0506_0708));
        assert_eq!(bytes_of(&*inbox, 0, 64), [0; 64]);
    }

    #[test]
    fn atomics_return_the_word_before_the_operation() {
        let mut pair = Pair::new();
        let medium = memory(4096);
        let region = pair.target(&medium);
        let (rkey, remote_addr) = (region.rkey, region.remote_addr_base + 64);
        pair.post(1, Operation::AtomicWrite { rkey, remote_addr, value: 40 });
        pair.post(2, Operation::FetchAdd { rkey, remote_addr, add: 2, mask: 0 });
        let (compare_mask, swap_mask) = (u64::MAX, u64::MAX);
        let swap = |compare, swap| Operation::CompareSwap {
            rkey,
            remote_addr,
            compare,
            compare_mask,
            swap,
            swap_mask,
        };
        pair.post(3, swap(41, 1));
        pair.post(4, swap(42, 7));
        let results: Vec<_> = (0..4).map(|_| pair.completion().atomic).collect();
        assert_eq!(results, [None, Some(40), Some(42), Some(42)]);
        assert_eq!(bytes_of(&*medium, 64, 8), 7_u64.to_le_bytes(), "this machine is little-endian");
    }

    #[test]
    fn a_verify_returns_the_hash_of_the_stored_bytes() {
        let mut pair = Pair::new();
        let medium = memory(1 << 20);
        medium.place(100, b"123456789").unwrap();
        let region = pair.target(&medium);
        let (rkey, remote_addr) = (region.rkey, region.remote_addr_base + 100);
        // The check value of CRC-32C in every catalogue.
        let expected = Some(0xe306_9283);
        pair.post(1, Operation::Verify { rkey, remote_addr, len: 9, expected: None });
        assert_eq!(pair.completion().hash, expected);
        pair.post(2, Operation::Verify { rkey, remote_addr, len: 9, expected });
        assert!(pair.completion().is_success());
        // A worker computes the hash of a long range.
        let remote_addr = region.remote_addr_base;
        pair.post(3, Operation::Verify { rkey, remote_addr, len: 1 << 20, expected: None });
        let whole =
            crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes_of(&*medium, 0, 1 << 20));
        assert_eq!(pair.completion().hash.map(u64::from), Some(whole));
        assert_eq!(pair.server.engine.stats().deferred_operations, 1);
    }

    #[test]
    fn a_flush_for_visibility_persists_nothing() {
        let mut pair = Pair::new();
        let medium = memory(4096);
        let region = pair.target(&medium);
        let (rkey, remote_addr, kind) =
            (region.rkey, region.remote_addr_base, Placement::Visibility);
        pair.post(1, Operation::Flush { rkey, remote_addr, len: 4096, kind });
        assert!(pair.completion().is_success());
        assert_eq!(pair.server.engine.stats().persists, 0);
    }

    #[test]
    fn requests_beyond_the_limit_of_the_peer_wait_their_turn() {
        let narrow = QpConfig { ord: 2, ird: 2, ..QpConfig::default() };
        let mut pair = Pair::with(narrow, narrow);
        let medium = memory(1 << 16);
        let region = pair.target(&medium);
        for i in 0..32_u64 {
            let bytes = pattern(u8::try_from(i).unwrap(), 512);
            pair.post(2 * i, write(&bytes, region, i * 512));
            pair.post(2 * i + 1, flush(region.rkey, region.remote_addr_base + i * 512, 512));
        }
        let order: Vec<_> = (0..64).map(|_| pair.completion().wr_id).collect();
        assert_eq!(order, (0..64).collect::<Vec<_>>(), "completions come in posting order");
        for i in 0..32_u64 {
            let bytes = pattern(u8::try_from(i).unwrap(), 512);
            assert_eq!(bytes_of(&*medium, i * 512, 512), bytes);
        }
    }

    #[test]
    fn a_peer_without_our_profile_gets_plain_iwarp() {
        let plain = QpConfig { announce: false, ..QpConfig::default() };
        let mut pair = Pair::with(plain, QpConfig::default());
        let capabilities = pair.client.engine.capabilities(pair.client_qp).unwrap();
        assert!(!capabilities.flush && !capabilities.verify && !capabilities.atomic_write);
        let medium = memory(1 << 20);
        let region = pair.target(&medium);
        let flush = rdma::WorkRequest::signaled(0, flush(region.rkey, region.remote_addr_base, 1));
        let refused = pair.client.engine.post_send(pair.client_qp, flush);
        assert_eq!(refused, Err(PostError::PeerUnsupported));
        let bytes = pattern(1, 200_000);
        let here = memory(1 << 20);
        let local = pair.local(&here);
        let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
        for (i, piece) in bytes.chunks(50_000).enumerate() {
            let offset = u64::try_from(i * 50_000).unwrap();
            pair.post(1, write(piece, region, offset));
            pair.completion();
        }
        pair.post(2, Operation::Read { local: local.slice(0, 200_000), rkey, remote_addr });
        pair.until(|client, _| client.completion().filter(|completion| completion.wr_id == 2));
        assert_eq!(bytes_of(&*here, 0, 200_000), bytes);
    }
}
