//! Media whose operations block: operations keep their order, commits are shared, and no other
//! connection waits.

mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use pmem::Medium;
    use rdma::{
        Access, Deregistration, DisconnectReason, EngineConfig, Event, MemoryRegion, Operation,
        Payload, QpId, WcStatus,
    };

    use crate::support::slow::{Blocks, Slow};
    use crate::support::{End, Pair, bytes_of, flush, memory, pattern, until, write};

    fn target(pair: &mut Pair, medium: &Arc<Slow>) -> MemoryRegion {
        let medium: Arc<dyn Medium> = medium.clone();
        pair.target(&medium)
    }

    /// One more connection, with a region of `medium`.
    fn another_target(pair: &mut Pair, medium: &Arc<dyn Medium>) -> (QpId, MemoryRegion) {
        let (client_qp, server_qp) = pair.another();
        let (medium, range) = (Arc::clone(medium), 0..medium.len());
        let engine = &mut pair.server.engine;
        (client_qp, engine.register(server_qp, medium, range, Access::all()).unwrap())
    }

    #[test]
    fn a_flush_that_waits_delays_no_other_connection() {
        let mut pair = Pair::new();
        let (slow, permit) = Slow::gated(4096, Blocks::PERSIST);
        let region = target(&mut pair, &slow);
        let (other, served) = pair.another();
        let medium = memory(4096);
        let quick = pair.server.engine.register(served, medium, 0..4096, Access::PUSH).unwrap();

        pair.post(1, write(b"slow", region, 0));
        pair.post(2, flush(region.rkey, region.remote_addr_base, 4));
        assert_eq!(pair.completion().wr_id, 1);
        pair.until(|_, _| (slow.begun.load(Ordering::SeqCst) == 1).then_some(()));
        for wr_id in 100..200 {
            pair.client.post(other, wr_id, flush(quick.rkey, quick.remote_addr_base, 64));
            let completion = pair.completion();
            assert_eq!((completion.qp, completion.wr_id), (other, wr_id));
        }
        permit.send(()).unwrap();
        assert_eq!(pair.completion().wr_id, 2);
    }

    #[test]
    fn connections_that_wait_for_a_file_delay_no_other_file_or_device() {
        let mut pair = Pair::served(EngineConfig { workers_max: 4, ..EngineConfig::default() });
        let (hung, permit) = Slow::gated(4096, Blocks::PERSIST);
        let hung = hung.on(1, 1);
        let medium: Arc<dyn Medium> = hung.clone();
        for wr_id in 0..20 {
            let (qp, region) = another_target(&mut pair, &medium);
            pair.client.post(qp, wr_id, flush(region.rkey, region.remote_addr_base, 8));
        }
        pair.until(|_, server| (server.engine.stats().deferred_batches == 20).then_some(()));
        pair.until(|_, _| (hung.begun.load(Ordering::SeqCst) == 1).then_some(()));
        for (device, file) in [(1, 2), (2, 1), (3, 1)] {
            let quick: Arc<dyn Medium> = Slow::new(4096, Blocks::ALL).on(device, file);
            let (qp, region) = another_target(&mut pair, &quick);
            for wr_id in 100..120 {
                pair.client.post(qp, wr_id, flush(region.rkey, region.remote_addr_base, 8));
                let completion = pair.completion();
                assert_eq!((completion.qp, completion.wr_id), (qp, wr_id), "{device}, {file}");
                assert!(completion.is_success());
            }
        }
        assert_eq!(hung.begun.load(Ordering::SeqCst), 1, "one worker for the commits of a file");
        (0..20).for_each(|_| permit.send(()).unwrap());
        for _ in 0..20 {
            assert!(pair.completion().is_success());
        }
    }

    #[test]
    fn all_connections_that_flush_a_file_during_a_commit_share_the_next() {
        let mut pair = Pair::new();
        let (slow, permit) = Slow::gated(4096, Blocks::ALL);
        let medium: Arc<dyn Medium> = slow.clone().on(1, 1);
        let targets: Vec<_> =
            (0..CONNECTIONS).map(|_| another_target(&mut pair, &medium)).collect();
        let post = |pair: &mut Pair, wr_id: u64, (qp, region): (QpId, MemoryRegion)| {
            let request = rdma::WorkRequest::unsignaled(wr_id, write(b"x", region, 0));
            pair.client.engine.post_send(qp, request).unwrap();
            pair.client.post(qp, wr_id, flush(region.rkey, region.remote_addr_base, 1));
        };
        let (first, others) = targets.split_first().unwrap();
        post(&mut pair, 0, *first);
        pair.until(|_, _| (slow.begun.load(Ordering::SeqCst) == 1).then_some(()));
        for (wr_id, target) in (1..).zip(others) {
            post(&mut pair, wr_id, *target);
        }
        // All of the connections have placed their bytes; a few may not be laid aside yet.
        let all = usize::try_from(CONNECTIONS).unwrap();
        pair.until(|_, _| (slow.log().matches('w').count() == all).then_some(()));
        (0..CONNECTIONS).for_each(|_| permit.send(()).unwrap());
        for _ in 0..CONNECTIONS {
            assert!(pair.completion().is_success());
        }
        let commits = slow.begun.load(Ordering::SeqCst);
        assert!(commits <= 3, "{commits} commits for {CONNECTIONS} connections");
    }

    /// Far more connections than there are workers.
    const CONNECTIONS: u64 = 200;

    #[test]
    fn a_connection_on_two_devices_takes_no_worker_of_one_to_the_other() {
        let mut pair = Pair::served(EngineConfig { workers_max: 1, ..EngineConfig::default() });
        let quick = Slow::new(4096, Blocks::ALL).on(1, 1);
        let (hung, permit) = Slow::gated(4096, Blocks::ALL);
        let hung = hung.on(2, 1);
        let (near, far) = (target(&mut pair, &quick), target(&mut pair, &hung));
        let medium: Arc<dyn Medium> = quick.clone();
        let (other, theirs) = another_target(&mut pair, &medium);
        pair.post(1, write(b"one", near, 0));
        pair.post(2, flush(near.rkey, near.remote_addr_base, 3));
        pair.post(3, write(b"two", far, 0));
        pair.post(4, flush(far.rkey, far.remote_addr_base, 3));
        let (rkey, remote_addr) = (near.rkey, near.remote_addr_base + 8);
        pair.post(5, Operation::AtomicWrite { rkey, remote_addr, value: 3 });
        pair.until(|_, _| (hung.begun.load(Ordering::SeqCst) == 1).then_some(()));
        pair.client.post(other, 9, flush(theirs.rkey, theirs.remote_addr_base, 8));
        let mut mine = Vec::new();
        loop {
            let completion = pair.completion();
            if completion.qp == other {
                assert!(completion.is_success());
                break;
            }
            mine.push(completion.wr_id);
        }
        assert!(!quick.log().contains('a'), "what comes after a flush waits for it");
        permit.send(()).unwrap();
        while mine.len() < 5 {
            mine.push(pair.completion().wr_id);
        }
        assert_eq!(mine, [1, 2, 3, 4, 5]);
        assert_eq!((quick.log(), hung.log()), ("wppa".into(), "wp".into()));
    }

    #[test]
    fn no_operation_begins_after_its_engine_is_dropped() {
        let mut pair = Pair::new();
        let (slow, permit) = Slow::gated(4096, Blocks::PERSIST);
        let region = target(&mut pair, &slow);
        let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
        pair.post(1, flush(rkey, remote_addr, 8));
        pair.until(|_, _| (slow.begun.load(Ordering::SeqCst) == 1).then_some(()));
        pair.post(2, flush(rkey, remote_addr, 8));
        pair.post(3, Operation::AtomicWrite { rkey, remote_addr, value: 1 });
        pair.until(|_, server| (server.engine.stats().frames_received >= 4).then_some(()));
        permit.send(()).unwrap();
        pair.until(|_, _| (slow.begun.load(Ordering::SeqCst) == 2).then_some(()));
        drop(pair);
        permit.send(()).unwrap();
        // The worker releases the medium when it ends.
        while Arc::strong_count(&slow) > 1 {
            std::thread::yield_now();
        }
        assert_eq!(slow.log(), "pp", "the flush had begun, the store behind it had not");
    }

    #[test]
    fn flushes_that_arrive_during_one_persist_share_the_next() {
        let mut pair = Pair::new();
        let (slow, permit) = Slow::gated(1 << 16, Blocks::PERSIST);
        let region = target(&mut pair, &slow);
        let post = |pair: &mut Pair, i: u64| {
            pair.post(2 * i, write(&pattern(1, 512), region, 512 * i));
            pair.post(2 * i + 1, flush(region.rkey, region.remote_addr_base + 512 * i, 512));
        };
        post(&mut pair, 0);
        pair.until(|_, _| (slow.begun.load(Ordering::SeqCst) == 1).then_some(()));
        for i in 1..10 {
            post(&mut pair, i);
        }
        // Nine writes and nine flushes have been received behind the flush that runs.
        pair.until(|_, server| (server.engine.stats().frames_received >= 20).then_some(()));
        permit.send(()).unwrap();
        permit.send(()).unwrap();
        let order: Vec<_> = (0..20).map(|_| pair.completion().wr_id).collect();
        assert_eq!(order, (0..20).collect::<Vec<_>>());
        assert_eq!(slow.begun.load(Ordering::SeqCst), 2);
        assert_eq!(slow.log(), "wpwwwwwwwwwp");
    }

    #[test]
    fn an_atomic_write_waits_for_the_flush_before_it() {
        let mut pair = Pair::new();
        let slow = Slow::new(4096, Blocks::PERSIST);
        let region = target(&mut pair, &slow);
        let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
        pair.post(1, write(b"record", region, 64));
        pair.post(2, flush(rkey, remote_addr + 64, 6));
        pair.post(3, Operation::AtomicWrite { rkey, remote_addr, value: 1 });
        pair.post(4, flush(rkey, remote_addr, 8));
        for wr_id in 1..=4 {
            assert_eq!(pair.completion().wr_id, wr_id);
        }
        assert_eq!(slow.log(), "wpap");
    }

    #[test]
    fn operations_happen_in_order_even_if_all_of_them_block() {
        let mut pair = Pair::new();
        let slow = Slow::new(1 << 20, Blocks::ALL);
        let region = target(&mut pair, &slow);
        let inbox = Slow::new(4096, Blocks::ALL);
        let buffer = target(&mut pair, &inbox);
        let qp = pair.server_qp;
        pair.server.engine.post_recv(qp, 50, buffer.slice(0, 100)).unwrap();
        let here: Arc<dyn Medium> = Slow::new(1 << 20, Blocks::ALL);
        let local = pair.local(&here);
        let bytes = pattern(9, 300_000);
        let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
        here.place(500_000, &bytes).unwrap();
        let payload = Payload::Registered(local.slice(500_000, 300_000));
        pair.post(1, Operation::Write { payload, rkey, remote_addr: remote_addr + 8 });
        let payload = Payload::Inline(b"after the write");
        pair.post(2, Operation::Send { payload, invalidate: None, solicited: false });
        pair.post(3, Operation::FetchAdd { rkey, remote_addr, add: 5, mask: 0 });
        pair.post(4, Operation::Read { local: local.slice(3, 300_008), rkey, remote_addr });
        pair.post(5, flush(rkey, remote_addr, 300_008));
        for wr_id in 1..=5 {
            let completion = pair.completion();
            assert_eq!((completion.wr_id, completion.status), (wr_id, WcStatus::Success));
        }
        let received = pair.until(|_, server| server.completion());
        assert_eq!((received.wr_id, received.len), (50, 15));
        assert_eq!(bytes_of(&*inbox, 0, 15), b"after the write");
        assert_eq!(bytes_of(&*here, 3, 8), 5_u64.to_le_bytes());
        assert_eq!(bytes_of(&*here, 11, 300_000), bytes);
        assert_eq!(bytes_of(&*slow, 8, 300_000), bytes);
    }

    #[test]
    fn a_queue_pair_with_too_much_deferred_work_is_parked_and_resumed() {
        let mut pair = Pair::new();
        let (slow, permit) = Slow::gated(4 << 20, Blocks::ALL);
        let region = target(&mut pair, &slow);
        pair.post(0, flush(region.rkey, region.remote_addr_base, 1));
        pair.until(|_, _| (slow.begun.load(Ordering::SeqCst) == 1).then_some(()));
        let bytes = pattern(4, 32_768);
        let (qp, mut posted) = (pair.client_qp, 0);
        let mut post_some = |client: &mut End| {
            while posted < 128 {
                let operation = write(&bytes, region, posted * 32_768);
                let request = rdma::WorkRequest::unsignaled(posted, operation);
                if client.engine.post_send(qp, request).is_err() {
                    return None;
                }
                posted += 1;
            }
            Some(())
        };
        // 4 MiB behind a flush that hangs: the server stages a part of it and then stops reading.
        pair.until(|client, server| {
            post_some(client);
            (server.engine.stats().parks > 0).then_some(())
        });
        permit.send(()).unwrap();
        pair.until(|client, _| post_some(client));
        permit.send(()).unwrap();
        let last = flush(region.rkey, region.remote_addr_base, 1);
        let last = rdma::WorkRequest::signaled(999, last);
        pair.until(|client, _| client.engine.post_send(qp, last).ok());
        pair.until(|client, _| client.completion().filter(|completion| completion.wr_id == 999));
        assert_eq!(bytes_of(&*slow, 127 * 32_768, 32_768), bytes);
    }

    #[test]
    fn a_failed_flush_ends_its_connection_and_everything_behind_it() {
        let mut pair = Pair::new();
        let (slow, permit) = Slow::gated(4096, Blocks::PERSIST);
        let region = target(&mut pair, &slow);
        let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
        pair.post(1, write(b"lost", region, 64));
        pair.post(2, flush(rkey, remote_addr + 64, 4));
        pair.post(3, Operation::AtomicWrite { rkey, remote_addr, value: 1 });
        pair.until(|_, _| (slow.begun.load(Ordering::SeqCst) == 1).then_some(()));
        slow.broken.store(true, Ordering::SeqCst);
        permit.send(()).unwrap();
        let statuses: Vec<_> = (0..3).map(|_| pair.completion().status).collect();
        assert_eq!(
            statuses,
            [WcStatus::Success, WcStatus::RemoteOperation, WcStatus::Flushed],
            "a write is done when TCP has it"
        );
        let (client_qp, server_qp) = (pair.client_qp, pair.server_qp);
        let reason = pair.until(|_, server| server.disconnected(server_qp));
        let code = rdma::TerminateCode { layer: 0, etype: 2, code: 7 };
        assert_eq!(reason, DisconnectReason::MediaFailed(code));
        let reason = pair.until(|client, _| client.disconnected(client_qp));
        assert_eq!(reason, DisconnectReason::PeerTerminated(code));
        assert_eq!(slow.log(), "w", "the pointer was never published");
    }

    #[test]
    fn a_flush_ahead_of_a_placement_that_fails_is_still_carried_out() {
        let mut pair = Pair::new();
        let (slow, permit) = Slow::gated(4096, Blocks::PERSIST);
        let shrunk = Slow::new(4096, Blocks::ALL);
        shrunk.broken.store(true, Ordering::SeqCst);
        let (region, lost) = (target(&mut pair, &slow), target(&mut pair, &shrunk));
        pair.post(1, flush(region.rkey, region.remote_addr_base, 1));
        pair.until(|_, _| (slow.begun.load(Ordering::SeqCst) == 1).then_some(()));
        pair.post(2, write(b"kept", region, 0));
        pair.post(3, flush(region.rkey, region.remote_addr_base, 4));
        pair.post(4, write(b"lost", lost, 0));
        pair.until(|_, server| (server.engine.stats().frames_received >= 5).then_some(()));
        permit.send(()).unwrap();
        permit.send(()).unwrap();
        let qp = pair.server_qp;
        let reason = pair.until(|_, server| server.disconnected(qp));
        assert!(matches!(reason, DisconnectReason::MediaFailed(_)), "{reason:?}");
        assert_eq!(slow.log(), "pwp");
    }

    #[test]
    fn a_medium_that_panics_costs_its_connection_and_not_the_worker() {
        let mut pair = Pair::served(EngineConfig { workers_max: 1, ..EngineConfig::default() });
        let mad = Slow::new(4096, Blocks::PERSIST);
        mad.panics.store(true, Ordering::SeqCst);
        let region = target(&mut pair, &mad);
        let calm: Arc<dyn Medium> = Slow::new(4096, Blocks::PERSIST);
        let (other, quiet) = another_target(&mut pair, &calm);
        let qp = pair.server_qp;
        pair.post(1, flush(region.rkey, region.remote_addr_base, 8));
        let reason = pair.until(|_, server| server.disconnected(qp));
        assert!(matches!(reason, DisconnectReason::LocalFault(_)), "{reason:?}");
        assert!(!pair.completion().is_success());
        pair.client.post(other, 2, flush(quiet.rkey, quiet.remote_addr_base, 8));
        let completion = pair.completion();
        assert_eq!((completion.qp, completion.is_success()), (other, true));
    }

    #[test]
    fn a_deregistered_region_is_reported_gone_when_its_work_ends() {
        let mut pair = Pair::new();
        let (slow, permit) = Slow::gated(4096, Blocks::PERSIST);
        let region = target(&mut pair, &slow);
        pair.post(1, flush(region.rkey, region.remote_addr_base, 8));
        pair.until(|_, _| (slow.begun.load(Ordering::SeqCst) == 1).then_some(()));
        let qp = pair.server_qp;
        let outcome = pair.server.engine.deregister(qp, region.rkey).unwrap();
        assert_eq!(outcome, Deregistration::Pending);
        assert!(!pair.server.events.contains(&Event::Deregistered { qp, rkey: region.rkey }));
        permit.send(()).unwrap();
        pair.until(|_, server| {
            let gone = Event::Deregistered { qp, rkey: region.rkey };
            server.take(|event| (*event == gone).then_some(()))
        });
        assert!(pair.completion().is_success(), "it had begun before the region ended");
    }

    #[test]
    fn an_operation_not_begun_when_its_region_ended_never_begins() {
        let mut pair = Pair::new();
        let (slow, permit) = Slow::gated(4096, Blocks::PERSIST);
        let region = target(&mut pair, &slow);
        pair.post(1, flush(region.rkey, region.remote_addr_base, 8));
        pair.until(|_, _| (slow.begun.load(Ordering::SeqCst) == 1).then_some(()));
        pair.post(2, write(b"late", region, 0));
        pair.until(|_, server| (server.engine.stats().frames_received >= 3).then_some(()));
        let qp = pair.server_qp;
        let outcome = pair.server.engine.deregister(qp, region.rkey).unwrap();
        assert_eq!(outcome, Deregistration::Pending);
        permit.send(()).unwrap();
        pair.until(|_, server| server.disconnected(qp));
        assert_eq!(slow.log(), "p");
        assert_eq!(bytes_of(&*slow, 0, 4), [0; 4]);
    }

    #[test]
    fn the_end_of_a_connection_is_reported_after_its_worker_ends() {
        let mut pair = Pair::new();
        let (slow, permit) = Slow::gated(4096, Blocks::PERSIST);
        let region = target(&mut pair, &slow);
        pair.post(1, flush(region.rkey, region.remote_addr_base, 8));
        pair.until(|_, _| (slow.begun.load(Ordering::SeqCst) == 1).then_some(()));
        let (client_qp, server_qp) = (pair.client_qp, pair.server_qp);
        pair.client.engine.disconnect(client_qp);
        until(&mut pair.client, &mut pair.server, |client, _| client.disconnected(client_qp));
        for _ in 0..1000 {
            pair.server.engine.poll(&mut pair.server.events);
        }
        assert_eq!(pair.server.disconnected(server_qp), None);
        permit.send(()).unwrap();
        pair.until(|_, server| server.disconnected(server_qp));
    }

    // The store and the write before it arrive while the read is answered. The write waits for a worker, and the store
    // behind it, but not only there: the swap waits for the end of the read.
    #[test]
    fn a_request_for_a_worker_overtakes_no_request_that_waits() {
        let mut pair = Pair::new();
        let len = 8 << 20;
        let slow = Slow::new(len, Blocks { place: true, ..Blocks::default() });
        let region = target(&mut pair, &slow);
        let own = memory(len);
        let local = pair.local(&own).slice(0, u32::try_from(len).unwrap());
        let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
        pair.post(1, Operation::Read { local, rkey, remote_addr });
        let (compare, swap, compare_mask, swap_mask) = (0, 1, u64::MAX, u64::MAX);
        let swapped =
            Operation::CompareSwap { rkey, remote_addr, compare, compare_mask, swap, swap_mask };
        pair.post(2, swapped);
        pair.post(3, write(b"behind", region, 4096));
        pair.post(4, Operation::AtomicWrite { rkey, remote_addr, value: 5 });
        let completions = [1, 2, 3, 4].map(|_| pair.completion());
        assert!(completions.iter().all(rdma::WorkCompletion::is_success));
        let swap = completions.iter().find(|completion| completion.wr_id == 2).unwrap();
        assert_eq!(swap.atomic, Some(0), "the store came after the swap");
        assert_eq!(bytes_of(&*slow, 0, 8), 5_u64.to_le_bytes());
    }
}
