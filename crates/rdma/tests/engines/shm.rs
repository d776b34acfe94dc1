//! Provider `shm`: engines that sleep on full rings, and a peer that is another process.

mod tests {
    use std::process::Command;
    use std::sync::mpsc::{TryRecvError, channel};
    use std::thread;
    use std::time::Duration;

    use rdma::{
        Access, DisconnectReason, EngineConfig, Operation, Payload, PollPolicy, QpConfig, Rkey,
        ShmProvider, SoftProvider, WcOpcode,
    };

    use crate::support::{
        End, Pair, address, bytes_of, established, flush, memory, pattern, request,
    };

    /// How long a sleeper is given before the test takes it to be lost.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn pair() -> Pair {
        Pair::of(&ShmProvider, &ShmProvider, QpConfig::default(), QpConfig::default())
    }

    /// Sleeps until the engine has a completion.
    fn completion(end: &mut End) -> rdma::WorkCompletion {
        loop {
            if let Some(done) = end.completion() {
                return done;
            }
            let sleeps = end.engine.stats().sleeps;
            end.engine.wait(Some(PATIENCE));
            let found = end.engine.poll(&mut end.events);
            assert!(found > 0, "nothing came; asleep {} times", end.engine.stats().sleeps - sleeps);
        }
    }

    #[test]
    fn engines_that_sleep_on_full_rings_lose_no_byte_and_no_bell() {
        const LEN: u64 = 16 << 20;
        const PIECE: u32 = 1 << 20;
        let mut pair = pair();
        let (there, here, back) = (memory(LEN), memory(LEN), memory(LEN));
        let bytes = pattern(3, usize::try_from(LEN).unwrap());
        here.place(0, &bytes).unwrap();
        let (region, source, sink) = (pair.target(&there), pair.local(&here), pair.local(&back));
        let Pair { mut client, mut server, client_qp, .. } = pair;
        let waker = server.engine.waker();
        let (stop, stopped) = channel::<()>();
        let serving = thread::spawn(move || {
            while stopped.try_recv() == Err(TryRecvError::Empty) {
                server.engine.wait(None);
                server.engine.poll(&mut server.events);
            }
            server.engine.stats()
        });
        let pieces = || (0..LEN).step_by(usize::try_from(PIECE).unwrap());
        for offset in pieces() {
            let (rkey, remote_addr) = (region.rkey, region.remote_addr_base + offset);
            let payload = Payload::Registered(source.slice(offset, PIECE));
            client.post(client_qp, 1, Operation::Write { payload, rkey, remote_addr });
        }
        for offset in pieces() {
            let (rkey, remote_addr) = (region.rkey, region.remote_addr_base + offset);
            let local = sink.slice(offset, PIECE);
            client.post(client_qp, 2, Operation::Read { local, rkey, remote_addr });
        }
        for _ in pieces().chain(pieces()) {
            assert!(completion(&mut client).is_success());
        }
        drop(stop);
        waker.wake();
        let served = serving.join().unwrap();
        assert!(bytes_of(&*there, 0, bytes.len()) == bytes, "what was written");
        assert!(bytes_of(&*back, 0, bytes.len()) == bytes, "what was read back");
        assert!(served.sleeps > 0, "the server never slept");
    }

    #[test]
    fn engines_that_spin_ask_epoll_only_now_and_then() {
        let spin = EngineConfig { polling: PollPolicy::Spin, ..EngineConfig::default() };
        let ends = (End::open(&ShmProvider, spin.clone()), End::open(&ShmProvider, spin));
        let plain = QpConfig::default();
        let mut pair = Pair::between(ends.0, ends.1, plain, plain);
        let capabilities = pair.client.engine.capabilities(pair.client_qp).unwrap();
        assert!(!capabilities.crc, "nothing on the way could change a byte");
        let medium = memory(4096);
        let region = pair.target(&medium);
        let before = pair.client.engine.stats();
        for wr_id in 0..100 {
            pair.post(wr_id, flush(region.rkey, region.remote_addr_base, 8));
            assert!(pair.completion().is_success());
        }
        let spent = pair.client.engine.stats() - before;
        let looks = spent.polls / 64 + 1;
        assert!(spent.epoll_calls <= looks, "{} in {} rounds", spent.epoll_calls, spent.polls);
        assert_eq!(spent.sleeps, 0);
    }

    #[test]
    fn a_listener_of_another_provider_is_not_found() {
        let mut server = End::open(&SoftProvider, EngineConfig::default());
        let addr = server.engine.listen(address()).unwrap();
        let mut client = End::open(&ShmProvider, EngineConfig::default());
        let refused = client.engine.connect(addr, QpConfig::default(), &[]).unwrap_err();
        assert!(refused.to_string().contains("refused"), "{refused}");
    }

    #[test]
    fn a_write_that_comes_after_its_region_was_revoked_ends_the_connection() {
        let mut pair = pair();
        let medium = memory(4096);
        let region = pair.target(&medium);
        let gone = pair.server.engine.deregister(pair.server_qp, region.rkey);
        assert_eq!(gone, Ok(rdma::Deregistration::Done));
        let payload = Payload::Inline(b"late");
        let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
        pair.post(1, Operation::Write { payload, rkey, remote_addr });
        let (client_qp, server_qp) = (pair.client_qp, pair.server_qp);
        let reason = pair.until(|_, server| server.disconnected(server_qp));
        assert!(matches!(reason, DisconnectReason::PeerViolation(_)), "{reason}");
        let reason = pair.until(|client, _| client.disconnected(client_qp));
        assert!(matches!(reason, DisconnectReason::PeerTerminated(_)), "{reason}");
        assert_eq!(bytes_of(&*medium, 0, 4), [0; 4]);
    }

    /// Where the process that a test starts is to dial.
    const DIAL: &str = "LANDFAST_TEST_SHM_DIAL";

    #[test]
    fn another_process_writes_and_commits_and_its_death_ends_its_connection() {
        let blocks = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
        let mut server = End::open(&ShmProvider, blocks);
        let addr = server.engine.listen(address()).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "shm::tests::the_other_process", "--ignored"])
            .env(DIAL, addr.to_string())
            .spawn()
            .unwrap();
        let id = awaited(&mut server, request);
        let qp = server.engine.accept(id, QpConfig::default(), &[]).unwrap();
        let medium = memory(1 << 16);
        let range = 0..1 << 16;
        let region = server.engine.register(qp, medium.clone(), range, Access::PUSH).unwrap();
        awaited(&mut server, |server| established(server, qp));
        let mut words = region.rkey.0.to_le_bytes().to_vec();
        words.extend(region.remote_addr_base.to_le_bytes());
        let payload = Payload::Inline(&words);
        server.post(qp, 1, Operation::Send { payload, invalidate: None, solicited: false });
        let expected = pattern(5, 4096);
        while bytes_of(&*medium, 512, 4096) != expected {
            server.engine.wait(Some(Duration::from_millis(1)));
            server.engine.poll(&mut server.events);
            assert_eq!(child.try_wait().unwrap(), None, "the other process gave up");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let reason = awaited(&mut server, |server| server.disconnected(qp));
        assert_ne!(reason, DisconnectReason::Local);
    }

    fn awaited<T>(end: &mut End, mut pick: impl FnMut(&mut End) -> Option<T>) -> T {
        loop {
            if let Some(picked) = pick(end) {
                return picked;
            }
            end.engine.wait(Some(PATIENCE));
            assert!(end.engine.poll(&mut end.events) > 0, "nothing came: {:?}", end.events);
        }
    }

    #[test]
    #[ignore = "a test runs it as a process of its own, and kills it"]
    fn the_other_process() {
        let addr = std::env::var(DIAL).expect("a test starts this").parse().unwrap();
        let blocks = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
        let mut client = End::open(&ShmProvider, blocks);
        let qp = client.engine.connect(addr, QpConfig::default(), &[]).unwrap();
        let inbox = memory(4096);
        let access = Access::LOCAL_WRITE;
        let buffer = client.engine.register(qp, inbox.clone(), 0..4096, access).unwrap();
        client.engine.post_recv(qp, 1, buffer.slice(0, 12)).unwrap();
        assert_eq!(completion(&mut client).opcode, WcOpcode::Recv);
        let words = bytes_of(&*inbox, 0, 12);
        let rkey = Rkey(u32::from_le_bytes(words[..4].try_into().unwrap()));
        let remote_addr = u64::from_le_bytes(words[4..].try_into().unwrap()) + 512;
        let bytes = pattern(5, 4096);
        let payload = Payload::Inline(&bytes);
        client.post(qp, 2, Operation::Write { payload, rkey, remote_addr });
        client.post(qp, 3, flush(rkey, remote_addr, 4096));
        assert!(completion(&mut client).is_success());
        assert!(completion(&mut client).is_success());
        // Until it is killed, or the test that should kill it is gone.
        while client.disconnected(qp).is_none() {
            client.engine.wait(None);
            client.engine.poll(&mut client.events);
        }
    }

    #[test]
    fn more_connections_than_are_asked_directly_are_all_served() {
        let mut pair = pair();
        let others: Vec<_> = (0..8).map(|_| pair.another()).collect();
        let medium = memory(1 << 16);
        for (place, (client_qp, server_qp)) in (1..).zip(others) {
            let (access, range) = (Access::all(), 0..1 << 16);
            let region = pair.server.engine.register(server_qp, medium.clone(), range, access);
            let region = region.unwrap();
            let bytes = [u8::try_from(place).unwrap(); 64];
            let (rkey, remote_addr) = (region.rkey, region.remote_addr_base + place * 64);
            let payload = Payload::Inline(&bytes);
            pair.client.post(client_qp, place, Operation::Write { payload, rkey, remote_addr });
            pair.client.post(client_qp, place, flush(rkey, remote_addr, 64));
            assert!(pair.completion().is_success());
            assert!(pair.completion().is_success());
            assert_eq!(bytes_of(&*medium, place * 64, 64), bytes);
        }
    }
}
