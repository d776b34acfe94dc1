//! Verifies of many bytes delay neither the end of a region, nor workers, nor the engine.

mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::Sender;

    use pmem::Medium;
    use rdma::{
        Access, Deregistration, EngineConfig, Event, MemoryRegion, Operation, QpId, WorkRequest,
    };

    use crate::support::slow::{Blocks, Slow};
    use crate::support::{Pair, flush, memory};

    const LEN: u32 = 4 << 20;

    fn verify(region: MemoryRegion, len: u32) -> Operation<'static> {
        let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
        Operation::Verify { rkey, remote_addr, len, expected: None }
    }

    /// A file of a device whose reads wait for permits, and a region of the file on a connection of
    /// its own.
    fn gated(pair: &mut Pair, file: u64) -> (Arc<Slow>, Sender<()>, QpId, QpId, MemoryRegion) {
        let slow = Slow::new(u64::from(LEN), Blocks::ALL).on(1, file);
        let permit = slow.gate_reads();
        let (client_qp, server_qp) = pair.another();
        let medium: Arc<dyn Medium> = slow.clone();
        let range = 0..medium.len();
        let region = pair.server.engine.register(server_qp, medium, range, Access::all()).unwrap();
        (slow, permit, client_qp, server_qp, region)
    }

    fn reading(pair: &mut Pair, slow: &Slow, reads: u64) {
        pair.until(|_, _| (slow.reads_begun.load(Ordering::SeqCst) >= reads).then_some(()));
    }

    #[test]
    fn a_region_ends_without_the_rest_of_its_verifies() {
        let mut pair = Pair::new();
        let (slow, permit, client_qp, qp, region) = gated(&mut pair, 1);
        for wr_id in 0..4 {
            pair.client.post(client_qp, wr_id, verify(region, LEN));
        }
        reading(&mut pair, &slow, 1);
        let outcome = pair.server.engine.deregister(qp, region.rkey).unwrap();
        assert_eq!(outcome, Deregistration::Pending);
        // Only the piece that had begun.
        permit.send(()).unwrap();
        let gone = Event::Deregistered { qp, rkey: region.rkey };
        pair.until(|_, server| server.take(|event| (*event == gone).then_some(())));
        pair.until(|_, server| server.disconnected(qp));
        assert_eq!(slow.log(), "r");
    }

    #[test]
    fn the_end_of_a_region_stops_no_work_on_another_region() {
        let mut pair = Pair::new();
        let (slow, permit, client_qp, qp, region) = gated(&mut pair, 1);
        let (medium, range) = (memory(4096), 0..4096);
        let other = pair.server.engine.register(qp, medium, range, Access::all()).unwrap();
        let share: u32 = 64 << 10;
        pair.client.post(client_qp, 1, verify(region, share));
        pair.client.post(client_qp, 2, verify(region, share));
        reading(&mut pair, &slow, 1);
        let outcome = pair.server.engine.deregister(qp, other.rkey).unwrap();
        assert_eq!(outcome, Deregistration::Done);
        (0..8).for_each(|_| permit.send(()).unwrap());
        for wr_id in 1..=2 {
            let completion = pair.completion();
            assert_eq!((completion.wr_id, completion.is_success()), (wr_id, true));
        }
    }

    #[test]
    fn a_connection_ends_without_the_rest_of_its_verifies() {
        let mut pair = Pair::new();
        let (slow, permit, client_qp, qp, region) = gated(&mut pair, 1);
        for wr_id in 0..4 {
            pair.client.post(client_qp, wr_id, verify(region, LEN));
        }
        reading(&mut pair, &slow, 1);
        pair.server.engine.disconnect(qp);
        permit.send(()).unwrap();
        pair.until(|_, server| server.disconnected(qp));
        assert_eq!(slow.log(), "r");
    }

    #[test]
    fn a_long_verify_yields_its_worker_between_pieces() {
        let mut pair = Pair::served(EngineConfig { workers_max: 1, ..EngineConfig::default() });
        let (slow, permit, client_qp, _, region) = gated(&mut pair, 1);
        pair.client.post(client_qp, 1, verify(region, LEN));
        reading(&mut pair, &slow, 1);
        let quick = Slow::new(4096, Blocks::ALL).on(1, 2);
        let (other, served) = pair.another();
        let theirs = pair.server.engine.register(served, quick, 0..4096, Access::all()).unwrap();
        pair.client.post(other, 2, flush(theirs.rkey, theirs.remote_addr_base, 8));
        pair.until(|_, server| (server.engine.stats().deferred_batches == 2).then_some(()));
        // A piece of 128 KiB and another of 1 MiB, read in parts of 16 KiB: a turn after the first, a commit after the
        // other.
        (0..72).for_each(|_| permit.send(()).unwrap());
        let completion = pair.completion();
        assert_eq!((completion.wr_id, completion.is_success()), (2, true));
        (72..256).for_each(|_| permit.send(()).unwrap());
        let completion = pair.completion();
        assert_eq!((completion.wr_id, completion.is_success()), (1, true));
        assert_eq!(completion.hash, Some(crc_of_zeros(LEN)));
    }

    /// CRC-32C, bit by bit.
    fn crc_of_zeros(len: u32) -> u32 {
        let byte = |crc: u32| (0..8).fold(crc, |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)));
        !(0..len).fold(u32::MAX, |crc, _| byte(crc))
    }

    #[test]
    fn verifies_of_many_files_leave_workers_for_placements_and_commits() {
        let mut pair = Pair::served(EngineConfig { workers_max: 4, ..EngineConfig::default() });
        let mut files = Vec::new();
        for file in 1..=6 {
            let (slow, permit, client_qp, _, region) = gated(&mut pair, file);
            pair.client.post(client_qp, file, verify(region, LEN));
            // The first pieces are ordinary work of a worker; the rest is long work.
            (0..8).for_each(|_| permit.send(()).unwrap());
            files.push((slow, permit));
        }
        let begun = |files: &[(Arc<Slow>, _)]| {
            let at_work = |slow: &Slow| {
                let begun = slow.reads_begun.load(Ordering::SeqCst);
                begun > u64::try_from(slow.log().len()).unwrap()
            };
            files.iter().filter(|(slow, _)| at_work(slow)).count()
        };
        pair.until(|_, _| (begun(&files) == 2).then_some(()));
        let quick = Slow::new(4096, Blocks::ALL).on(1, 9);
        let (other, served) = pair.another();
        let theirs = pair.server.engine.register(served, quick, 0..4096, Access::all()).unwrap();
        for wr_id in 100..120 {
            pair.client.post(other, wr_id, flush(theirs.rkey, theirs.remote_addr_base, 8));
            let completion = pair.completion();
            assert_eq!((completion.wr_id, completion.is_success()), (wr_id, true));
        }
        assert_eq!(begun(&files), 2, "half of the workers at most");
    }

    #[test]
    fn verifies_beyond_the_share_of_a_round_are_left_to_workers() {
        let mut pair = Pair::new();
        let medium = memory(128 << 10);
        let region = pair.target(&medium);
        let (qp, count) = (pair.client_qp, 16);
        for wr_id in 0..count {
            let request = WorkRequest::signaled(wr_id, verify(region, 128 << 10));
            pair.client.engine.post_send(qp, request).unwrap();
        }
        for wr_id in 0..count {
            let completion = pair.completion();
            assert_eq!((completion.wr_id, completion.is_success()), (wr_id, true));
        }
        let deferred = pair.server.engine.stats().deferred_operations;
        assert!(deferred >= count / 2, "{deferred} of {count}");
    }
}
