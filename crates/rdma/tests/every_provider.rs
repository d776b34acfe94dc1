//! What every provider does, whichever it is: run here over `soft`, and in the guest over the
//! kernel's rxe and siw (`cargo xtask guest verbs`).
//!
//! What is not asked here: by which code a refusal is named, and what only `soft` can do.

#[cfg(test)]
mod support;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use pmem::Medium;
    use rdma::{
        Access, ConnectFailure, DisconnectReason, EngineConfig, Event, LocalSlice, MemoryRegion,
        Operation, Payload, PeerOperations, PollPolicy, PostError, QpConfig, QpId, Rkey, WcOpcode,
        WcStatus, WorkRequest,
    };

    use super::support::{
        End, Pair, address, bytes_of, established, flush, memory, pattern, provider, request,
        until, write,
    };

    fn end(config: EngineConfig) -> End {
        End::open(&*provider(), config)
    }

    /// Says where bytes differ, and not all of them.
    fn same(found: &[u8], expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        assert_eq!(found.len(), expected.len());
        let differs = found.iter().zip(expected).position(|(a, b)| a != b);
        assert_eq!(differs, None, "the first byte that differs");
    }

    /// Whether the device under test is known to break a rule (tests/guest/verbs.sh names them).
    fn has_gap(name: &str) -> bool {
        std::env::var("LANDFAST_RDMA_GAPS").is_ok_and(|gaps| gaps.split(',').any(|gap| gap == name))
    }

    fn failed(end: &mut End) -> Option<(ConnectFailure, Vec<u8>)> {
        end.take(|event| match event {
            Event::ConnectFailed { reason, private_data, .. } => {
                Some((*reason, private_data.clone()))
            }
            _ => None,
        })
    }

    /// A region of the server's that the client may write and read.
    fn target(pair: &mut Pair, medium: &Arc<dyn Medium>) -> MemoryRegion {
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let (qp, range) = (pair.server_qp, 0..medium.len());
        pair.server.engine.register(qp, Arc::clone(medium), range, access).unwrap()
    }

    fn read(local: LocalSlice, region: MemoryRegion, offset: u64) -> Operation<'static> {
        let remote_addr = region.remote_addr_base + offset;
        Operation::Read { local, rkey: region.rkey, remote_addr }
    }

    /// Everything written before is placed when this returns: the answer to a read says so
    /// (RFC 5040 §5.5; InfiniBand orders reads behind writes).
    fn barrier(pair: &mut Pair, region: MemoryRegion) {
        let local = pair.local(&memory(4096)).slice(0, 1);
        pair.post(u64::MAX, read(local, region, 0));
        pair.until(|client, _| client.completion().filter(|done| done.wr_id == u64::MAX));
    }

    #[test]
    fn the_provider_is_the_one_that_was_asked_for() {
        let asked = std::env::var("LANDFAST_RDMA_PROVIDER").unwrap_or_else(|_| "soft".into());
        assert_eq!(provider().name(), asked);
    }

    #[test]
    fn written_bytes_are_there_when_a_later_read_is_answered_and_nowhere_else() {
        let mut pair = Pair::of_any();
        let medium = memory(1 << 20);
        let region = target(&mut pair, &medium);
        let (page, long) = (pattern(1, 4096), pattern(2, 60_001));
        pair.post(1, write(&page, region, 8192));
        pair.post(2, write(&long, region, 200_003));
        let first = pair.completion();
        assert_eq!((first.wr_id, first.opcode, first.len), (1, WcOpcode::Write, 4096));
        assert_eq!(pair.completion().wr_id, 2);
        barrier(&mut pair, region);
        same(&bytes_of(&*medium, 0, 8192), vec![0; 8192]);
        same(&bytes_of(&*medium, 8192, 4096), page);
        same(&bytes_of(&*medium, 200_003, 60_001), long);
        same(&bytes_of(&*medium, 260_004, 1000), vec![0; 1000]);
    }

    #[test]
    fn a_region_begins_where_it_was_said_to() {
        let mut pair = Pair::of_any();
        let medium = memory(1 << 16);
        let (qp, access) = (pair.server_qp, Access::REMOTE_READ | Access::REMOTE_WRITE);
        let part = 8192..20_000;
        let region = pair.server.engine.register(qp, medium.clone(), part, access).unwrap();
        assert_eq!(region.len, 11_808);
        pair.post(1, write(b"first", region, 0));
        pair.post(2, write(b"last", region, region.len - 4));
        barrier(&mut pair, region);
        same(&bytes_of(&*medium, 8192, 5), b"first");
        same(&bytes_of(&*medium, 19_996, 4), b"last");
    }

    #[test]
    fn a_long_read_brings_every_byte() {
        let mut pair = Pair::of_any();
        let (there, here) = (memory(1 << 20), memory(1 << 20));
        let bytes = pattern(7, 700_001);
        there.place(3, &bytes).unwrap();
        let region = target(&mut pair, &there);
        let local = pair.local(&here);
        pair.post(9, read(local.slice(5, 700_001), region, 3));
        let done = pair.completion();
        assert_eq!((done.wr_id, done.opcode, done.status), (9, WcOpcode::Read, WcStatus::Success));
        same(&bytes_of(&*here, 5, 700_001), bytes);
        same(&bytes_of(&*here, 0, 5), [0; 5]);
    }

    #[test]
    fn bytes_come_from_registered_memory_too() {
        let mut pair = Pair::of_any();
        let (here, there) = (memory(1 << 20), memory(1 << 20));
        let bytes = pattern(3, 300_000);
        here.place(17, &bytes).unwrap();
        let (local, region) = (pair.local(&here), target(&mut pair, &there));
        let payload = Payload::Registered(local.slice(17, 300_000));
        let (rkey, remote_addr) = (region.rkey, region.remote_addr_base + 1);
        pair.post(1, Operation::Write { payload, rkey, remote_addr });
        barrier(&mut pair, region);
        same(&bytes_of(&*there, 1, 300_000), bytes);
    }

    #[test]
    fn messages_fill_posted_receives_in_order() {
        let mut pair = Pair::of_any();
        let inbox = memory(1 << 16);
        let (qp, access) = (pair.server_qp, Access::LOCAL_WRITE);
        let buffer = pair.server.engine.register(qp, inbox.clone(), 0..1 << 16, access).unwrap();
        for slot in 0..8_u64 {
            let slice = buffer.slice(slot * 4096, 4096);
            pair.server.engine.post_recv(qp, slot, slice).unwrap();
        }
        for number in 0..8_u8 {
            let bytes = pattern(number, 100 * usize::from(number));
            let payload = Payload::Inline(&bytes);
            let solicited = number == 3;
            let send = Operation::Send { payload, invalidate: None, solicited };
            pair.post(number.into(), send);
        }
        for number in 0..8_u8 {
            let got = pair.until(|_, server| server.completion());
            let len = 100 * usize::from(number);
            assert_eq!((got.wr_id, got.opcode), (number.into(), WcOpcode::Recv));
            assert_eq!(usize::try_from(got.len).unwrap(), len);
            let at = u64::from(number) * 4096;
            same(&bytes_of(&*inbox, at, len), pattern(number, len));
        }
    }

    #[test]
    fn both_ends_send() {
        let mut pair = Pair::of_any();
        let inbox = memory(4096);
        let (qp, access) = (pair.client_qp, Access::LOCAL_WRITE);
        let buffer = pair.client.engine.register(qp, inbox.clone(), 0..4096, access).unwrap();
        pair.client.engine.post_recv(qp, 5, buffer.slice(0, 4096)).unwrap();
        // The acceptor may speak once the dialling end has.
        let medium = memory(4096);
        let region = target(&mut pair, &medium);
        barrier(&mut pair, region);
        let payload = Payload::Inline(b"good evening");
        let send = Operation::Send { payload, invalidate: None, solicited: true };
        let server_qp = pair.server_qp;
        pair.server.post(server_qp, 1, send);
        let got = pair.until(|client, _| client.completion());
        assert_eq!((got.wr_id, got.opcode, got.len), (5, WcOpcode::Recv, 12));
        same(&bytes_of(&*inbox, 0, 12), b"good evening");
    }

    #[test]
    fn completions_come_in_posting_order_and_unsignaled_requests_are_silent() {
        let mut pair = Pair::of_any();
        let medium = memory(1 << 16);
        let region = target(&mut pair, &medium);
        let here = memory(1 << 16);
        let local = pair.local(&here);
        let mut order = Vec::new();
        for number in 0..200_u64 {
            let bytes = number.to_le_bytes();
            let quiet = WorkRequest::unsignaled(number, write(&bytes, region, number * 8));
            pair.client.engine.post_send(pair.client_qp, quiet).unwrap();
            if number % 50 == 49 {
                pair.post(number, read(local.slice(0, 1600), region, 0));
                order.push(pair.completion().wr_id);
            }
        }
        assert_eq!(order, [49, 99, 149, 199]);
        for number in 0..200_u64 {
            same(&bytes_of(&*here, number * 8, 8), number.to_le_bytes());
        }
        assert!(pair.client.events.is_empty());
    }

    #[test]
    fn more_bytes_than_an_engine_keeps_are_refused_and_taken_later() {
        let mut pair = Pair::of_any();
        let medium = memory(1 << 20);
        let region = target(&mut pair, &medium);
        let piece = vec![0xa5; pair.client.engine.inline_max()];
        let (mut taken, mut refused) = (0, 0);
        while taken < 64 {
            let quiet = WorkRequest::unsignaled(taken, write(&piece, region, 0));
            match pair.client.engine.post_send(pair.client_qp, quiet) {
                Ok(()) => taken += 1,
                Err(PostError::QueueFull) => {
                    refused += 1;
                    pair.until(|_, _| Some(()));
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(refused > 0, "4 MiB were taken at once");
        barrier(&mut pair, region);
        same(&bytes_of(&*medium, 0, piece.len()), &piece);
    }

    #[test]
    fn more_reads_than_the_peer_answers_at_once_wait_their_turn() {
        let narrow = QpConfig { ord: 2, ird: 2, ..QpConfig::default() };
        let provider = provider();
        let mut pair = Pair::of(&*provider, &*provider, narrow, narrow);
        let (there, here) = (memory(1 << 16), memory(1 << 16));
        there.place(0, &pattern(1, 32 * 512)).unwrap();
        let region = target(&mut pair, &there);
        let local = pair.local(&here);
        for number in 0..32_u64 {
            pair.post(number, read(local.slice(number * 512, 512), region, number * 512));
        }
        let order: Vec<_> = (0..32).map(|_| pair.completion().wr_id).collect();
        assert_eq!(order, (0..32).collect::<Vec<_>>());
        same(&bytes_of(&*here, 0, 32 * 512), pattern(1, 32 * 512));
    }

    #[test]
    fn a_full_queue_says_so_and_takes_more_when_it_has_drained() {
        let shallow = QpConfig { send_depth: 2, ..QpConfig::default() };
        let provider = provider();
        let mut pair = Pair::of(&*provider, &*provider, shallow, shallow);
        let (medium, here) = (memory(4096), memory(4096));
        let region = target(&mut pair, &medium);
        let local = pair.local(&here);
        let post = |pair: &mut Pair, wr_id| {
            let request = WorkRequest::signaled(wr_id, read(local.slice(0, 8), region, 0));
            pair.client.engine.post_send(pair.client_qp, request)
        };
        assert_eq!(post(&mut pair, 1), Ok(()));
        assert_eq!(post(&mut pair, 2), Ok(()));
        assert_eq!(post(&mut pair, 3), Err(PostError::QueueFull));
        pair.completion();
        assert_eq!(post(&mut pair, 3), Ok(()));
    }

    #[test]
    fn local_mistakes_are_refused_when_posting() {
        let mut pair = Pair::of_any();
        let medium = memory(4096);
        let region = target(&mut pair, &medium);
        let qp = pair.client_qp;
        let read_only =
            pair.client.engine.register(qp, medium.clone(), 0..4096, Access::empty()).unwrap();
        let mut refused = |operation| {
            let request = WorkRequest::signaled(0, operation);
            pair.client.engine.post_send(qp, request).unwrap_err()
        };
        let (rkey, remote_addr, lkey) = (region.rkey, region.remote_addr_base, read_only.lkey);
        let into = read(read_only.slice(0, 8), region, 0);
        assert_eq!(refused(into), PostError::ConfigLocalAccess(lkey));
        let payload = Payload::Registered(LocalSlice { lkey, offset: 4000, len: 97 });
        let beyond = Operation::Write { payload, rkey, remote_addr };
        assert_eq!(refused(beyond), PostError::ConfigLocalBounds(lkey));
        let payload = Payload::Inline(b"x");
        let wraps = Operation::Write { payload, rkey, remote_addr: u64::MAX };
        assert_eq!(refused(wraps), PostError::ConfigRemoteWrap(u64::MAX));
        let nobody = QpId { index: 4000, generation: 0 };
        let request = WorkRequest::signaled(0, wraps);
        let unknown = pair.client.engine.post_send(nobody, request);
        assert_eq!(unknown, Err(PostError::UnknownQp(nobody)));
    }

    /// Posts `operation` and sees both ends of its connection end, and no other connection.
    fn costs_its_connection(operation: impl FnOnce(&mut Pair, QpId) -> Operation<'static>) {
        let mut pair = Pair::of_any();
        let (client_qp, server_qp) = (pair.client_qp, pair.server_qp);
        let (other, other_server) = pair.another();
        let good = memory(4096);
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let good_region =
            pair.server.engine.register(other_server, good.clone(), 0..4096, access).unwrap();
        let operation = operation(&mut pair, other_server);
        pair.post(1, operation);
        pair.until(|client, _| client.disconnected(client_qp));
        let status = pair.client.completion().map(|completion| completion.status);
        if operation.is_answered() {
            // siw ends the stream and does not say which request was to blame.
            let told = [Some(WcStatus::RemoteAccess), Some(WcStatus::Flushed)];
            assert!(told.contains(&status), "{operation:?}: {status:?}");
        }
        let reason = pair.until(|_, server| server.disconnected(server_qp));
        assert_ne!(reason, DisconnectReason::Local, "{operation:?}");
        pair.client.events.clear();
        let local = memory(4096);
        let region =
            pair.client.engine.register(other, local, 0..4096, Access::LOCAL_WRITE).unwrap();
        pair.client.post(other, 7, write(b"alive", good_region, 0));
        pair.client.post(other, 8, read(region.slice(0, 5), good_region, 0));
        assert!(pair.completion().is_success());
        assert!(pair.completion().is_success());
        same(&bytes_of(&*good, 0, 5), b"alive");
    }

    fn write_at(rkey: Rkey, remote_addr: u64) -> Operation<'static> {
        Operation::Write { payload: Payload::Inline(b"bad bytes"), rkey, remote_addr }
    }

    fn of_page(pair: &mut Pair, qp: QpId, access: Access) -> MemoryRegion {
        pair.server.engine.register(qp, memory(4096), 0..4096, access).unwrap()
    }

    #[test]
    fn an_unknown_key_is_refused() {
        costs_its_connection(|_, _| write_at(Rkey(0xdead_beef), 0));
    }

    #[test]
    fn a_key_of_another_connection_is_refused() {
        costs_its_connection(|pair, other| {
            let region = of_page(pair, other, Access::REMOTE_WRITE | Access::REMOTE_READ);
            write_at(region.rkey, region.remote_addr_base)
        });
        costs_its_connection(|pair, other| {
            let region = of_page(pair, other, Access::REMOTE_WRITE | Access::REMOTE_READ);
            let local = pair.local(&memory(4096)).slice(0, 16);
            read(local, region, 0)
        });
    }

    #[test]
    fn nothing_reaches_beyond_its_region() {
        costs_its_connection(|pair, _| {
            let region = of_page(pair, pair.server_qp, Access::REMOTE_WRITE);
            write_at(region.rkey, region.remote_addr_base + 4096 - 8)
        });
        costs_its_connection(|pair, _| {
            let region = of_page(pair, pair.server_qp, Access::REMOTE_READ);
            let local = pair.local(&memory(4096)).slice(0, 16);
            read(local, region, 4096 - 15)
        });
    }

    #[test]
    fn a_missing_right_is_missed() {
        costs_its_connection(|pair, _| {
            let region = of_page(pair, pair.server_qp, Access::REMOTE_READ);
            write_at(region.rkey, region.remote_addr_base)
        });
        if has_gap("serves-reads-without-right") {
            let mut pair = Pair::of_any();
            let qp = pair.server_qp;
            let region = of_page(&mut pair, qp, Access::REMOTE_WRITE);
            let local = pair.local(&memory(4096)).slice(0, 16);
            pair.post(1, read(local, region, 0));
            assert!(pair.completion().is_success(), "the gap is closed: expect a refusal again");
            return;
        }
        costs_its_connection(|pair, _| {
            let region = of_page(pair, pair.server_qp, Access::REMOTE_WRITE);
            let local = pair.local(&memory(4096)).slice(0, 16);
            read(local, region, 0)
        });
    }

    #[test]
    fn a_region_is_of_no_use_after_it_was_deregistered() {
        costs_its_connection(|pair, _| {
            let region = of_page(pair, pair.server_qp, Access::REMOTE_WRITE);
            let gone = pair.server.engine.deregister(pair.server_qp, region.rkey).unwrap();
            assert_eq!(gone, rdma::Deregistration::Done);
            write_at(region.rkey, region.remote_addr_base)
        });
    }

    #[test]
    fn a_rejection_brings_its_reason() {
        let (mut client, mut server) = (end(EngineConfig::default()), end(EngineConfig::default()));
        let addr = server.engine.listen(address()).unwrap();
        client.engine.connect(addr, QpConfig::default(), b"let me in").unwrap();
        let id = until(&mut client, &mut server, |_, server| request(server));
        server.engine.reject(id, b"wrong token");
        let (reason, words) = until(&mut client, &mut server, |client, _| failed(client));
        assert_eq!((reason, &words[..]), (ConnectFailure::PeerRejected, &b"wrong token"[..]));
    }

    #[test]
    fn the_longest_private_data_of_push_mode_arrives_whole() {
        let (mut client, mut server) = (end(EngineConfig::default()), end(EngineConfig::default()));
        let addr = server.engine.listen(address()).unwrap();
        // Zeros at its end are its own.
        let mut token = pattern(9, 48);
        token[47] = 0;
        let qp = client.engine.connect(addr, QpConfig::default(), &token).unwrap();
        let (id, said, local) = until(&mut client, &mut server, |_, server| {
            server.take(|event| match event {
                Event::ConnectRequest { id, private_data, local, .. } => {
                    Some((*id, private_data.clone(), *local))
                }
                _ => None,
            })
        });
        assert_eq!((said, local), (token, addr));
        server.engine.accept(id, QpConfig::default(), &[0; 24]).unwrap();
        let answer = until(&mut client, &mut server, |client, _| established(client, qp));
        assert_eq!(answer, [0; 24]);
    }

    #[test]
    fn a_request_the_owner_does_not_answer_goes_away() {
        let short = EngineConfig {
            handshake_timeout: Duration::from_millis(300),
            ..EngineConfig::default()
        };
        let (mut client, mut server) = (end(EngineConfig::default()), end(short));
        let addr = server.engine.listen(address()).unwrap();
        client.engine.connect(addr, QpConfig::default(), &[]).unwrap();
        let id = until(&mut client, &mut server, |_, server| request(server));
        until(&mut client, &mut server, |_, server| {
            server.take(|event| (*event == Event::ConnectRequestGone { id }).then_some(()))
        });
        let late = server.engine.accept(id, QpConfig::default(), &[]);
        assert_eq!(late, Err(rdma::EngineError::UnknownConnection(id)));
        until(&mut client, &mut server, |client, _| failed(client));
    }

    #[test]
    fn nobody_listening_is_told() {
        let mut client = end(EngineConfig::default());
        let mut addr = address();
        addr.set_port(1);
        if client.engine.connect(addr, QpConfig::default(), &[]).is_ok() {
            let reason = loop {
                client.engine.wait(Some(Duration::from_secs(5)));
                client.engine.poll(&mut client.events);
                if let Some((reason, _)) = failed(&mut client) {
                    break reason;
                }
            };
            assert_ne!(reason, ConnectFailure::PeerSilent);
        }
    }

    #[test]
    fn a_goodbye_ends_both_sides_and_flushes_what_is_posted() {
        let mut pair = Pair::of_any();
        let (client_qp, server_qp) = (pair.client_qp, pair.server_qp);
        let inbox = memory(4096);
        let access = Access::LOCAL_WRITE;
        let buffer = pair.server.engine.register(server_qp, inbox, 0..4096, access).unwrap();
        pair.server.engine.post_recv(server_qp, 6, buffer.slice(0, 64)).unwrap();
        pair.client.engine.disconnect(client_qp);
        let reason = pair.until(|client, _| client.disconnected(client_qp));
        assert_eq!(reason, DisconnectReason::Local);
        let reason = pair.until(|_, server| server.disconnected(server_qp));
        assert_eq!(reason, DisconnectReason::PeerClosed);
        let flushed = pair.server.completion().unwrap();
        assert_eq!((flushed.wr_id, flushed.status), (6, WcStatus::Flushed));
        let gone = rdma::RegisterError::UnknownQp(server_qp);
        let engine = &mut pair.server.engine;
        assert_eq!(engine.deregister(server_qp, buffer.rkey), Err(gone));
        assert_eq!(
            engine.post_recv(server_qp, 1, buffer.slice(0, 1)),
            Err(PostError::UnknownQp(server_qp))
        );
        assert!(engine.capabilities(server_qp).is_none());
        // An end that is gone already is nothing to complain about.
        engine.disconnect(server_qp);
    }

    #[test]
    fn an_engine_that_is_dropped_ends_its_connections() {
        let pair = Pair::of_any();
        let (client_qp, server_qp) = (pair.client_qp, pair.server_qp);
        let Pair { client, mut server, .. } = pair;
        drop(client);
        let mut idle = end(EngineConfig::default());
        let reason = until(&mut idle, &mut server, |_, server| server.disconnected(server_qp));
        assert_ne!(reason, DisconnectReason::Local, "{client_qp}");
    }

    #[test]
    fn a_request_can_be_served_by_another_engine() {
        let (mut client, mut first) = (end(EngineConfig::default()), end(EngineConfig::default()));
        let addr = first.engine.listen(address()).unwrap();
        let client_qp = client.engine.connect(addr, QpConfig::default(), b"who?").unwrap();
        let id = until(&mut client, &mut first, |_, first| request(first));
        let handover = first.engine.hand_over(id).unwrap();
        let late = first.engine.accept(id, QpConfig::default(), &[]);
        assert_eq!(late, Err(rdma::EngineError::UnknownConnection(id)));
        let mut second = end(EngineConfig::default());
        let id = second.engine.take_over(handover).unwrap();
        let server_qp = second.engine.accept(id, QpConfig::default(), b"me").unwrap();
        let said = until(&mut client, &mut second, |client, _| established(client, client_qp));
        assert_eq!(said, b"me");
        let mut pair = Pair { client, server: second, client_qp, server_qp, addr };
        let medium = memory(4096);
        let region = target(&mut pair, &medium);
        pair.post(1, write(b"served", region, 0));
        barrier(&mut pair, region);
        same(&bytes_of(&*medium, 0, 6), b"served");
    }

    #[test]
    fn a_sleeping_engine_gets_up_for_its_peer_and_for_a_waker() {
        let mut pair = Pair::of_any();
        let inbox = memory(4096);
        let qp = pair.server_qp;
        let access = Access::LOCAL_WRITE;
        let buffer = pair.server.engine.register(qp, inbox, 0..4096, access).unwrap();
        pair.server.engine.post_recv(qp, 1, buffer.slice(0, 64)).unwrap();
        let Pair { mut client, mut server, client_qp, .. } = pair;
        let waker = server.engine.waker();
        let (told, heard) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            loop {
                server.engine.wait(Some(Duration::from_secs(20)));
                server.engine.poll(&mut server.events);
                if let Some(done) = server.completion() {
                    told.send(done.wr_id).unwrap();
                    break;
                }
            }
            // PollPolicy::Block sleeps at once, and only the waker ends this.
            server.engine.wait(None);
            server.engine.stats()
        });
        let payload = Payload::Inline(b"wake up");
        client.post(client_qp, 9, Operation::Send { payload, invalidate: None, solicited: false });
        let mut rounds = 0;
        let wr_id = loop {
            client.engine.poll(&mut client.events);
            match heard.recv_timeout(Duration::from_millis(1)) {
                Ok(wr_id) => break wr_id,
                Err(_) => rounds += 1,
            }
            assert!(rounds < 20_000, "the message woke nobody");
        };
        assert_eq!(wr_id, 1);
        waker.wake();
        let stats = sleeper.join().unwrap();
        assert!(stats.polls > 0);
    }

    #[test]
    fn flush_and_atomic_write_do_what_they_are_offered_for() {
        let mut pair = Pair::of_any();
        let can = pair.client.engine.capabilities(pair.client_qp).unwrap();
        let medium = memory(4096);
        let (qp, access) = (pair.server_qp, Access::PUSH);
        let region = pair.server.engine.register(qp, medium.clone(), 0..4096, access).unwrap();
        println!(
            "flush {}, atomic write {}, offers {:?}",
            can.flush, can.atomic_write, region.offers
        );
        pair.post(1, write(b"pushed", region, 0));
        assert!(pair.completion().is_success());
        if can.flush && region.offers.contains(PeerOperations::FLUSH) {
            pair.post(2, flush(region.rkey, region.remote_addr_base, 4096));
        } else if can.flush {
            let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
            let kind = rdma::Placement::Visibility;
            pair.post(2, Operation::Flush { rkey, remote_addr, len: 4096, kind });
        }
        if can.flush {
            let done = pair.completion();
            assert_eq!((done.opcode, done.status), (WcOpcode::Flush, WcStatus::Success));
            same(&bytes_of(&*medium, 0, 6), b"pushed");
        }
        let (rkey, remote_addr) = (region.rkey, region.remote_addr_base + 64);
        let store = Operation::AtomicWrite { rkey, remote_addr, value: 0x0102_0304_0506_0708 };
        if can.atomic_write && region.offers.contains(PeerOperations::ATOMIC_WRITE) {
            pair.post(3, store);
            let done = pair.completion();
            assert_eq!((done.opcode, done.status), (WcOpcode::AtomicWrite, WcStatus::Success));
            same(&bytes_of(&*medium, 64, 8), 0x0102_0304_0506_0708_u64.to_le_bytes());
            let odd = Operation::AtomicWrite { rkey, remote_addr: remote_addr + 4, value: 1 };
            let refused =
                pair.client.engine.post_send(pair.client_qp, WorkRequest::signaled(0, odd));
            assert_eq!(refused, Err(PostError::ConfigMisaligned(remote_addr + 4)));
        }
        if !can.atomic_write {
            let refused =
                pair.client.engine.post_send(pair.client_qp, WorkRequest::signaled(0, store));
            assert_eq!(refused, Err(PostError::PeerUnsupported));
        }
    }

    /// A device of persistent memory, where the guest has one.
    fn persistent_memory() -> Option<Arc<dyn Medium>> {
        let path = std::env::var_os("LANDFAST_RDMA_DAX")?;
        let device = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let medium = pmem::map_file(&device, 2 << 20, pmem::OpenOptions::default()).unwrap();
        assert_eq!(medium.class(), pmem::DurabilityClass::Pmem);
        Some(medium)
    }

    #[test]
    fn persistent_memory_is_registered_as_it_is_and_flushed_by_whoever_can() {
        let medium = persistent_memory().unwrap_or_else(|| memory(2 << 20));
        let mut pair = Pair::of_any();
        let can = pair.client.engine.capabilities(pair.client_qp).unwrap();
        let (qp, range) = (pair.server_qp, 4096..1 << 20);
        let region = pair.server.engine.register(qp, medium.clone(), range, Access::PUSH).unwrap();
        let offered = region.offers.contains(PeerOperations::FLUSH);
        println!("class {}, flush {}, offered {offered}", medium.class(), can.flush);
        if can.flush && medium.class() == pmem::DurabilityClass::Pmem {
            assert!(offered, "a device that flushes does so on persistent memory");
        }
        let bytes = pattern(5, 60_000);
        pair.post(1, write(&bytes, region, 100));
        assert!(pair.completion().is_success());
        if can.flush && offered {
            pair.post(2, flush(region.rkey, region.remote_addr_base + 100, 60_000));
            let done = pair.completion();
            assert_eq!((done.wr_id, done.status), (2, WcStatus::Success));
        } else {
            barrier(&mut pair, region);
            medium.persist_foreign(4196, 60_000).unwrap();
        }
        same(&bytes_of(&*medium, 4196, 60_000), &bytes);
        let gone = pair.server.engine.deregister(pair.server_qp, region.rkey);
        assert_eq!(gone, Ok(rdma::Deregistration::Done));
    }

    #[test]
    fn every_policy_of_polling_serves() {
        for polling in [PollPolicy::Adaptive, PollPolicy::Block, PollPolicy::Fixed(20)] {
            let config = EngineConfig { polling, ..EngineConfig::default() };
            let (plain, provider) = (QpConfig::default(), provider());
            let ends = (End::open(&*provider, config.clone()), End::open(&*provider, config));
            let mut pair = Pair::between(ends.0, ends.1, plain, plain);
            let medium = memory(4096);
            let region = target(&mut pair, &medium);
            pair.post(1, write(b"served", region, 0));
            barrier(&mut pair, region);
            same(&bytes_of(&*medium, 0, 6), b"served");
        }
    }
}
