//! Connections: how they are established, fail, and end.

mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant, SystemTime};

    use basics::{Clock, Environment, ManualClock};
    use rdma::{
        Access, ConnectFailure, DisconnectReason, EngineConfig, Event, Operation, Payload,
        PollPolicy, QpConfig, SoftProvider, WcStatus, WireHook, WireVerdict,
    };

    use crate::support::{End, Pair, bytes_of, flush, memory, pattern, request, until, write};

    fn end(config: EngineConfig) -> End {
        End::open(&SoftProvider, config)
    }

    fn failed(end: &mut End) -> Option<(ConnectFailure, Vec<u8>)> {
        end.take(|event| match event {
            Event::ConnectFailed { reason, private_data, .. } => {
                Some((*reason, private_data.clone()))
            }
            _ => None,
        })
    }

    #[test]
    fn a_rejection_over_ipv6_carries_its_reason() {
        let (mut client, mut server) = (end(EngineConfig::default()), end(EngineConfig::default()));
        let addr = server.engine.listen("[::1]:0".parse().unwrap()).unwrap();
        client.engine.connect(addr, QpConfig::default(), b"let me in").unwrap();
        let id = until(&mut client, &mut server, |_, server| request(server));
        server.engine.reject(id, b"wrong token");
        let (reason, words) = until(&mut client, &mut server, |client, _| failed(client));
        assert_eq!((reason, &words[..]), (ConnectFailure::PeerRejected, &b"wrong token"[..]));
    }

    #[test]
    fn a_dial_to_a_closed_port_fails_at_once() {
        let mut client = end(EngineConfig::default());
        let addr = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        };
        // The host may refuse while dialling or a moment later.
        if client.engine.connect(addr, QpConfig::default(), &[]).is_ok() {
            let reason = loop {
                client.engine.wait(Some(Duration::from_secs(5)));
                client.engine.poll(&mut client.events);
                if let Some((reason, _)) = failed(&mut client) {
                    break reason;
                }
            };
            assert!(matches!(reason, ConnectFailure::HostIo { .. }));
        }
    }

    #[test]
    fn a_peer_that_closes_is_dialled_in_every_form_of_start_up() {
        let mut client = end(EngineConfig::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        client.engine.connect(addr, QpConfig::default(), &[]).unwrap();
        let peer = std::thread::spawn(move || {
            (0..3)
                .map(|_| {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut frame = [0; 24];
                    stream.read_exact(&mut frame).unwrap();
                    // Revision, and flag A of the enhanced word.
                    (frame[17], frame[20] & 0x80)
                })
                .collect::<Vec<_>>()
        });
        let reason = loop {
            client.engine.wait(Some(Duration::from_millis(10)));
            client.engine.poll(&mut client.events);
            if let Some((reason, _)) = failed(&mut client) {
                break reason;
            }
        };
        assert_eq!(reason, ConnectFailure::PeerClosed);
        let attempts = peer.join().unwrap();
        assert_eq!(attempts[..2], [(2, 0), (2, 0x80)]);
        assert_eq!(attempts[2].0, 1);
    }

    #[test]
    fn a_handshake_with_a_silent_peer_ends_on_both_sides() {
        let short = EngineConfig {
            handshake_timeout: Duration::from_millis(30),
            polling: PollPolicy::Block,
            ..EngineConfig::default()
        };
        let (mut client, mut server) = (end(short.clone()), end(short));
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let start = Instant::now();
        client.engine.connect(silent.local_addr().unwrap(), QpConfig::default(), &[]).unwrap();
        let addr = server.engine.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut mute = TcpStream::connect(addr).unwrap();
        let reason = until(&mut client, &mut server, |client, _| failed(client));
        assert_eq!(reason.0, ConnectFailure::PeerSilent);
        assert!(start.elapsed() >= Duration::from_millis(30));
        mute.set_nonblocking(true).unwrap();
        until(&mut client, &mut server, |_, _| matches!(mute.read(&mut [0]), Ok(0)).then_some(()));
    }

    /// A server with room for `max` handshakes that never run out of time.
    fn crowded(max: u32) -> Pair {
        Pair::served(EngineConfig {
            handshakes_max: max,
            handshake_timeout: Duration::from_secs(3600),
            ..EngineConfig::default()
        })
    }

    fn is_closed(stream: &mut TcpStream) -> bool {
        stream.set_nonblocking(true).unwrap();
        match stream.read(&mut [0]) {
            Ok(len) => len == 0,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }

    #[test]
    fn half_open_connections_are_bounded_and_disturb_no_established_connection() {
        let mut pair = Pair::new();
        let medium = memory(4096);
        let region = pair.target(&medium);
        let mut mute: Vec<_> = (0..400).map(|_| TcpStream::connect(pair.addr).unwrap()).collect();
        let max = usize::try_from(EngineConfig::default().handshakes_max).unwrap();
        let dropped = u64::try_from(400 - max).unwrap();
        pair.until(|_, server| (server.engine.stats().handshakes_dropped >= dropped).then_some(()));
        pair.post(1, flush(region.rkey, region.remote_addr_base, 8));
        assert!(pair.completion().is_success());
        // The oldest made room. The newest may still send, and is closed for what it sends.
        pair.until(|_, _| mute[..400 - max].iter_mut().all(is_closed).then_some(()));
        assert!(!mute[400 - max..].iter_mut().any(is_closed));
        mute[399].write_all(b"GET / HTTP/1.1\r\n\r\n..").unwrap();
        pair.until(|_, _| is_closed(&mut mute[399]).then_some(()));
    }

    #[test]
    fn a_connection_is_accepted_while_silent_ones_hold_every_place() {
        let mut pair = crowded(8);
        let mut mute = Vec::new();
        for round in 1..=20 {
            mute.extend((0..8).map(|_| TcpStream::connect(pair.addr).unwrap()));
            pair.until(|_, server| {
                (server.engine.stats().handshakes_dropped >= 8 * (round - 1)).then_some(())
            });
            // No deadline ever makes room here: a new connection without a place would wait for
            // ever.
            pair.another();
        }
    }

    #[test]
    fn a_flood_of_silent_connections_drops_no_pending_request() {
        let mut pair = crowded(8);
        let client_qp = pair.client.engine.connect(pair.addr, QpConfig::default(), &[]).unwrap();
        let id = pair.until(|_, server| request(server));
        let mute: Vec<_> = (0..100).map(|_| TcpStream::connect(pair.addr).unwrap()).collect();
        pair.until(|_, server| (server.engine.stats().handshakes_dropped >= 93).then_some(()));
        pair.server.engine.accept(id, QpConfig::default(), &[]).unwrap();
        pair.until(|client, _| crate::support::established(client, client_qp));
        drop(mute);
    }

    #[test]
    fn a_flood_of_unanswered_requests_leaves_half_of_the_places() {
        let mut pair = crowded(8);
        let (mut asked, mut streams) = (Vec::new(), Vec::new());
        let mut ask = |pair: &mut Pair| {
            let mut stream = TcpStream::connect(pair.addr).unwrap();
            // RFC 5044 §7.1.1: CRC wanted, revision 1, no private data.
            stream.write_all(b"MPA ID Req Frame\x40\x01\x00\x00").unwrap();
            streams.push(stream);
            asked.push(pair.until(|_, server| request(server)));
        };
        for _ in 0..5 {
            ask(&mut pair);
        }
        let mut silent: Vec<_> = (0..3).map(|_| TcpStream::connect(pair.addr).unwrap()).collect();
        // From here on each request finds the table full, with more than half of it asked.
        for _ in 0..50 {
            ask(&mut pair);
        }
        pair.until(|_, server| (server.engine.stats().handshakes_dropped >= 50).then_some(()));
        assert!(!silent.iter_mut().any(is_closed), "they may still speak");
        let mut gone = Vec::new();
        while let Some(id) = pair.server.take(|event| match event {
            Event::ConnectRequestGone { id } => Some(*id),
            _ => None,
        }) {
            gone.push(id);
        }
        assert_eq!(gone, asked[..50], "the oldest that asked went, each in its turn");
    }

    #[test]
    fn a_handed_over_request_that_is_dropped_is_closed() {
        let mut pair = Pair::new();
        let mut stream = TcpStream::connect(pair.addr).unwrap();
        stream.write_all(b"MPA ID Req Frame\x40\x01\x00\x00").unwrap();
        let id = pair.until(|_, server| request(server));
        drop(pair.server.engine.hand_over(id));
        pair.until(|_, _| is_closed(&mut stream).then_some(()));
    }

    #[test]
    fn a_thousand_connections_are_served_side_by_side() {
        let mut pair = Pair::new();
        let medium = memory(1 << 20);
        let mut others = Vec::new();
        for _ in 0..1000 {
            let (client_qp, server_qp) = pair.another();
            let range = 0..1 << 20;
            let region = pair
                .server
                .engine
                .register(server_qp, medium.clone(), range, Access::PUSH)
                .unwrap();
            others.push((client_qp, region));
        }
        for (i, (qp, region)) in (0_u64..).zip(&others) {
            let bytes = i.to_be_bytes();
            pair.client.post(*qp, 2 * i, write(&bytes, *region, 8 * i));
            let addr = region.remote_addr_base + 8 * i;
            pair.client.post(*qp, 2 * i + 1, flush(region.rkey, addr, 8));
        }
        let mut done = 0;
        pair.until(|client, _| {
            while let Some(completion) = client.completion() {
                assert!(completion.is_success());
                done += 1;
            }
            (done == 2000).then_some(())
        });
        for i in 0..1000_u64 {
            assert_eq!(bytes_of(&*medium, 8 * i, 8), i.to_be_bytes());
        }
    }

    #[test]
    fn a_disconnect_flushes_open_requests_and_loses_no_sent_bytes() {
        let mut pair = Pair::new();
        let medium = memory(1 << 17);
        let region = pair.target(&medium);
        let (client_qp, server_qp) = (pair.client_qp, pair.server_qp);
        let bytes = pattern(5, 60_000);
        pair.post(1, write(&bytes, region, 0));
        pair.post(2, flush(region.rkey, region.remote_addr_base, 1));
        pair.client.engine.disconnect(client_qp);
        let statuses: Vec<_> = (0..2).map(|_| pair.completion().status).collect();
        assert_eq!(statuses, [WcStatus::Flushed, WcStatus::Flushed]);
        let reason = pair.until(|client, _| client.disconnected(client_qp));
        assert_eq!(reason, DisconnectReason::Local);
        let reason = pair.until(|_, server| server.disconnected(server_qp));
        assert_eq!(reason, DisconnectReason::PeerClosed);
        assert_eq!(bytes_of(&*medium, 0, 60_000), bytes);
    }

    #[test]
    fn the_end_of_a_peer_flushes_posted_receives() {
        let mut pair = Pair::new();
        let inbox = memory(64);
        let buffer = pair.target(&inbox);
        let qp = pair.server_qp;
        for wr_id in 0..3 {
            pair.server.engine.post_recv(qp, wr_id, buffer.slice(0, 64)).unwrap();
        }
        drop(std::mem::replace(&mut pair.client, end(EngineConfig::default())));
        let flushed: Vec<_> = (0..3)
            .map(|_| pair.until(|_, server| server.completion()))
            .map(|completion| (completion.wr_id, completion.status))
            .collect();
        assert_eq!(flushed, [0, 1, 2].map(|wr_id| (wr_id, WcStatus::Flushed)));
        pair.until(|_, server| server.disconnected(qp));
    }

    #[test]
    fn a_peer_that_does_not_drain_its_reads_costs_a_bounded_amount() {
        let mut pair = Pair::new();
        let (there, here) = (memory(64 << 20), memory(64 << 20));
        let (region, local) = (pair.target(&there), pair.local(&here));
        let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
        let len = 64 << 20;
        for wr_id in 0..8 {
            let local = local.slice(0, len);
            pair.post(wr_id, Operation::Read { local, rkey, remote_addr });
        }
        // The client transmits and then never reads its input.
        pair.client.engine.poll(&mut pair.client.events);
        let (other, _) = (pair.addr, ());
        let mut third = end(EngineConfig::default());
        let qp = third.engine.connect(other, QpConfig::default(), &[]).unwrap();
        let id = until(&mut third, &mut pair.server, |_, server| request(server));
        let served = pair.server.engine.accept(id, QpConfig::default(), &[]).unwrap();
        until(&mut third, &mut pair.server, |third, _| crate::support::established(third, qp));
        let quick =
            pair.server.engine.register(served, memory(4096), 0..4096, Access::PUSH).unwrap();
        let mut sent = 0;
        for wr_id in 0..200 {
            third.post(qp, wr_id, flush(quick.rkey, quick.remote_addr_base, 8));
            until(&mut third, &mut pair.server, |third, _| third.completion());
            sent = pair.server.engine.stats().bytes_sent;
        }
        // TCP's own buffers hold some answers, but not one of eight times 64 MiB.
        assert!(sent < 32 << 20, "{sent} bytes were sent to a peer that does not read");
        // Once the client reads, all the bytes arrive.
        for _ in 0..8 {
            assert!(pair.completion().is_success());
        }
    }

    #[test]
    fn two_sides_that_read_from_each_other_never_deadlock() {
        let mut pair = Pair::new();
        let (there, here) = (memory(8 << 20), memory(8 << 20));
        there.place(0, &pattern(1, 4 << 20)).unwrap();
        here.place(0, &pattern(2, 4 << 20)).unwrap();
        let theirs = pair.target(&there);
        let (client_qp, server_qp) = (pair.client_qp, pair.server_qp);
        let range = 0..8 << 20;
        let ours =
            pair.client.engine.register(client_qp, here.clone(), range, Access::all()).unwrap();
        for wr_id in 0..16 {
            let read = |local: rdma::MemoryRegion, remote: rdma::MemoryRegion| Operation::Read {
                local: local.slice(4 << 20, 4 << 20),
                rkey: remote.rkey,
                remote_addr: remote.remote_addr_base,
            };
            pair.client.post(client_qp, wr_id, read(ours, theirs));
            pair.server.post(server_qp, wr_id, read(theirs, ours));
        }
        let mut done = 0;
        pair.until(|client, server| {
            done += usize::from(client.completion().is_some_and(|c| c.is_success()));
            done += usize::from(server.completion().is_some_and(|c| c.is_success()));
            (done == 32).then_some(())
        });
        assert_eq!(bytes_of(&*here, 4 << 20, 4 << 20), pattern(1, 4 << 20));
        assert_eq!(bytes_of(&*there, 4 << 20, 4 << 20), pattern(2, 4 << 20));
    }

    #[test]
    fn an_accepting_side_may_post_before_the_first_frame_of_its_peer() {
        let plain = QpConfig { announce: false, ..QpConfig::default() };
        let mut pair = Pair::with(plain, plain);
        let inbox = memory(64);
        let buffer = pair.local(&inbox);
        let (client_qp, server_qp) = (pair.client_qp, pair.server_qp);
        pair.client.engine.post_recv(client_qp, 1, buffer.slice(0, 64)).unwrap();
        let send = |text| Operation::Send {
            payload: Payload::Inline(text),
            invalidate: None,
            solicited: false,
        };
        // RFC 5044 §7.1.2: the acceptor may not send before the peer's first frame.
        pair.server.post(server_qp, 5, send(b"welcome"));
        for _ in 0..100 {
            pair.server.engine.poll(&mut pair.server.events);
        }
        assert!(pair.server.completion().is_none());
        pair.post(
            9,
            Operation::Write { payload: Payload::Inline(&[]), rkey: rdma::Rkey(0), remote_addr: 0 },
        );
        pair.until(|client, _| client.completion().filter(|c| c.wr_id == 1));
        assert_eq!(bytes_of(&*inbox, 0, 7), b"welcome");
    }

    /// A hook that counts the streams that were closed.
    #[derive(Debug, Default)]
    struct Closed(AtomicUsize);

    impl WireHook for Closed {
        fn opened(&self, _: u64, _: SocketAddr, _: SocketAddr, _: bool) {}
        fn sent(&self, _: u64, _: &[u8]) {}
        fn received(&self, _: u64, _: &mut [u8]) -> WireVerdict {
            WireVerdict::Pass
        }
        fn closed(&self, _: u64) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_peer_that_never_closes_is_not_waited_for_beyond_a_second() {
        let (clock, closed) =
            (Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH)), Arc::new(Closed::default()));
        let mut pair = Pair::served(EngineConfig {
            wire_hook: Some(closed.clone()),
            environment: Environment { clock: Clock::given(clock.clone()), ..Environment::host() },
            ..EngineConfig::default()
        });
        // From here on the client looks at nothing, so it does not close.
        pair.server.engine.disconnect(pair.server_qp);
        let id = pair.server_qp;
        while pair.server.disconnected(id).is_none() {
            pair.server.engine.poll(&mut pair.server.events);
        }
        // An engine looks at its deadlines once in some rounds.
        let go_on = |server: &mut End| {
            for _ in 0..1_000 {
                server.engine.poll(&mut server.events);
            }
        };
        clock.advance(Duration::from_millis(999));
        go_on(&mut pair.server);
        assert_eq!(closed.0.load(Ordering::SeqCst), 0, "the last bytes may be on their way");
        clock.advance(Duration::from_millis(1));
        go_on(&mut pair.server);
        assert_eq!(closed.0.load(Ordering::SeqCst), 1);
    }
}
