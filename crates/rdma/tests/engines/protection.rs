//! Forbidden operations of a peer: each is answered as the specification says and ends only the
//! connection of that peer.

mod tests {
    use pmem::DurabilityClass;
    use rdma::{
        Access, DisconnectReason, MemoryRegion, Operation, Payload, Placement, QpId, Rkey,
        TerminateCode, WcStatus,
    };

    use crate::support::{Pair, bytes_of, flush, memory, write};

    /// Registers a page of the server's with some rights.
    fn region(pair: &mut Pair, qp: QpId, access: Access) -> MemoryRegion {
        pair.server.engine.register(qp, memory(4096), 0..4096, access).unwrap()
    }

    /// Posts `operation` on a connection of its own and checks how that connection ends.
    fn ends_with(
        expected: (u8, u8, u8),
        operation: impl FnOnce(&mut Pair, QpId) -> Operation<'static>,
    ) {
        let mut pair = Pair::new();
        let (client_qp, server_qp) = (pair.client_qp, pair.server_qp);
        let (other, other_server) = pair.another();
        let good = region(&mut pair, other_server, Access::PUSH);
        let operation = operation(&mut pair, other_server);
        let (layer, etype, code) = expected;
        let code = TerminateCode { layer, etype, code };
        pair.post(1, operation);
        let reason = pair.until(|_, server| server.disconnected(server_qp));
        assert_eq!(reason, DisconnectReason::PeerViolation(code), "{operation:?}");
        let reason = pair.until(|client, _| client.disconnected(client_qp));
        assert_eq!(reason, DisconnectReason::PeerTerminated(code), "{operation:?}");
        let status = pair.client.completion().map(|completion| completion.status);
        if operation.is_answered() {
            let expected =
                if etype == 1 { WcStatus::RemoteAccess } else { WcStatus::RemoteOperation };
            assert_eq!(status, Some(expected), "{operation:?}");
        } else {
            assert_eq!(status, Some(WcStatus::Success), "TCP had taken {operation:?}");
        }
        // The other connection has not noticed anything.
        pair.client.events.clear();
        pair.client.post(other, 7, flush(good.rkey, good.remote_addr_base, 8));
        assert!(pair.completion().is_success());
    }

    fn write_at(rkey: Rkey, remote_addr: u64) -> Operation<'static> {
        Operation::Write { payload: Payload::Inline(b"bad bytes"), rkey, remote_addr }
    }

    fn read_at(pair: &mut Pair, rkey: Rkey, remote_addr: u64) -> Operation<'static> {
        let local = pair.local(&memory(4096)).slice(0, 16);
        Operation::Read { local, rkey, remote_addr }
    }

    #[test]
    fn an_unknown_tag_is_refused() {
        ends_with((1, 1, 0), |_, _| write_at(Rkey(0xdead_beef), 0));
        ends_with((0, 1, 0), |pair, _| read_at(pair, Rkey(0xdead_beef), 0));
        ends_with((0, 1, 0), |_, _| flush(Rkey(0xdead_beef), 0, 0));
    }

    #[test]
    fn a_tag_of_another_connection_is_refused() {
        ends_with((1, 1, 2), |pair, other| {
            let region = region(pair, other, Access::all());
            write_at(region.rkey, region.remote_addr_base)
        });
        ends_with((0, 1, 3), |pair, other| {
            let region = region(pair, other, Access::all());
            read_at(pair, region.rkey, region.remote_addr_base)
        });
    }

    #[test]
    fn no_operation_reaches_beyond_its_region() {
        ends_with((1, 1, 1), |pair, _| {
            let region = region(pair, pair.server_qp, Access::all());
            write_at(region.rkey, region.remote_addr_base + 4096 - 8)
        });
        ends_with((0, 1, 1), |pair, _| {
            let region = region(pair, pair.server_qp, Access::all());
            read_at(pair, region.rkey, region.remote_addr_base + 4096 - 15)
        });
        ends_with((0, 1, 1), |pair, _| {
            let region = region(pair, pair.server_qp, Access::all());
            flush(region.rkey, region.remote_addr_base, 4097)
        });
        ends_with((0, 1, 1), |pair, _| {
            // The second page of a medium: the bytes before the region are out of bounds as well.
            let qp = pair.server_qp;
            let medium = memory(8192);
            let region =
                pair.server.engine.register(qp, medium, 4096..8192, Access::all()).unwrap();
            flush(region.rkey, region.remote_addr_base - 1, 8)
        });
    }

    #[test]
    fn an_operation_without_its_right_ends_with_the_specified_code() {
        let all_but = |missing: Access| Access::all().difference(missing);
        ends_with((1, 1, 0), |pair, _| {
            let region = region(pair, pair.server_qp, all_but(Access::REMOTE_WRITE));
            write_at(region.rkey, region.remote_addr_base)
        });
        ends_with((0, 1, 2), |pair, _| {
            let region = region(pair, pair.server_qp, all_but(Access::REMOTE_READ));
            read_at(pair, region.rkey, region.remote_addr_base)
        });
        ends_with((0, 1, 2), |pair, _| {
            let hashes = Access::REMOTE_READ | Access::REMOTE_VERIFY;
            let region = region(pair, pair.server_qp, all_but(hashes));
            let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
            Operation::Verify { rkey, remote_addr, len: 8, expected: None }
        });
        ends_with((0, 1, 2), |pair, _| {
            let region = region(pair, pair.server_qp, all_but(Access::FLUSH_PERSISTENCE));
            flush(region.rkey, region.remote_addr_base, 8)
        });
        ends_with((0, 1, 2), |pair, _| {
            let region = region(pair, pair.server_qp, all_but(Access::FLUSH_VISIBILITY));
            let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
            Operation::Flush { rkey, remote_addr, len: 8, kind: Placement::Visibility }
        });
        ends_with((0, 1, 2), |pair, _| {
            let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC_WRITE;
            let region = region(pair, pair.server_qp, all_but(writes));
            let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
            Operation::AtomicWrite { rkey, remote_addr, value: 8 }
        });
        ends_with((0, 1, 2), |pair, _| {
            let region = region(pair, pair.server_qp, all_but(Access::REMOTE_ATOMIC));
            let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
            Operation::FetchAdd { rkey, remote_addr, add: 1, mask: 0 }
        });
    }

    #[test]
    fn a_region_for_hashes_and_atomic_writes_takes_no_other_reads_and_writes() {
        let narrow = Access::REMOTE_VERIFY | Access::REMOTE_ATOMIC_WRITE;
        ends_with((1, 1, 0), |pair, _| {
            let region = region(pair, pair.server_qp, narrow);
            write_at(region.rkey, region.remote_addr_base)
        });
        ends_with((0, 1, 2), |pair, _| {
            let region = region(pair, pair.server_qp, narrow);
            read_at(pair, region.rkey, region.remote_addr_base)
        });
        let mut pair = Pair::new();
        let qp = pair.server_qp;
        let MemoryRegion { rkey, remote_addr_base: remote_addr, .. } =
            region(&mut pair, qp, narrow);
        pair.post(1, Operation::AtomicWrite { rkey, remote_addr, value: 9 });
        assert!(pair.completion().is_success());
        pair.post(2, Operation::Verify { rkey, remote_addr, len: 8, expected: None });
        assert!(pair.completion().is_success());
    }

    #[test]
    fn a_region_that_is_read_and_written_takes_hashes_and_atomic_writes() {
        let mut pair = Pair::new();
        let qp = pair.server_qp;
        let MemoryRegion { rkey, remote_addr_base: remote_addr, .. } =
            region(&mut pair, qp, Access::REMOTE_READ | Access::REMOTE_WRITE);
        pair.post(1, Operation::AtomicWrite { rkey, remote_addr, value: 9 });
        assert!(pair.completion().is_success());
        pair.post(2, Operation::Verify { rkey, remote_addr, len: 8, expected: None });
        assert!(pair.completion().is_success());
    }

    #[test]
    fn a_deregistered_region_is_refused() {
        ends_with((1, 1, 0), |pair, _| {
            let region = region(pair, pair.server_qp, Access::all());
            let gone = pair.server.engine.deregister(pair.server_qp, region.rkey).unwrap();
            assert_eq!(gone, rdma::Deregistration::Done);
            write_at(region.rkey, region.remote_addr_base)
        });
    }

    #[test]
    fn a_message_longer_than_its_receive_ends_the_connection() {
        let payload = Payload::Inline(b"nobody asked for this");
        let send = Operation::Send { payload, invalidate: None, solicited: false };
        ends_with((1, 2, 2), |_, _| send);
        ends_with((1, 2, 2), |_, _| Operation::Immediate { data: 1, solicited: false });
        let mut pair = Pair::new();
        let qp = pair.server_qp;
        let inbox = region(&mut pair, qp, Access::LOCAL_WRITE);
        pair.server.engine.post_recv(qp, 1, inbox.slice(0, 8)).unwrap();
        pair.post(1, send);
        let reason = pair.until(|_, server| server.disconnected(qp));
        let code = TerminateCode { layer: 1, etype: 2, code: 5 };
        assert_eq!(reason, DisconnectReason::PeerViolation(code));
    }

    #[test]
    fn a_peer_cannot_end_a_region_of_another_connection() {
        let mut pair = Pair::new();
        let (qp, (_, other)) = (pair.server_qp, pair.another());
        let inbox = region(&mut pair, qp, Access::LOCAL_WRITE);
        let foreign = region(&mut pair, other, Access::all());
        pair.server.engine.post_recv(qp, 1, inbox.slice(0, 64)).unwrap();
        let (payload, invalidate) = (Payload::Inline(b"die"), Some(foreign.rkey));
        pair.post(1, Operation::Send { payload, invalidate, solicited: false });
        let reason = pair.until(|_, server| server.disconnected(qp));
        let code = TerminateCode { layer: 0, etype: 1, code: 9 };
        assert_eq!(reason, DisconnectReason::PeerViolation(code));
        let alive = pair.server.engine.deregister(other, foreign.rkey);
        assert_eq!(alive, Ok(rdma::Deregistration::Done));
    }

    #[test]
    fn a_failed_verify_ends_the_connection_before_any_later_operation() {
        let mut pair = Pair::new();
        let (client_qp, qp) = (pair.client_qp, pair.server_qp);
        let medium = memory(4096);
        let region = pair.target(&medium);
        let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
        pair.post(1, Operation::Verify { rkey, remote_addr, len: 64, expected: Some(1) });
        pair.post(2, Operation::AtomicWrite { rkey, remote_addr, value: 9 });
        assert_eq!(pair.completion().status, WcStatus::RemoteOperation);
        assert_eq!(pair.completion().status, WcStatus::Flushed);
        pair.until(|client, _| client.disconnected(client_qp));
        pair.until(|_, server| server.disconnected(qp));
        assert_eq!(bytes_of(&*medium, 0, 8), [0; 8]);
    }

    #[test]
    fn a_persistence_flush_of_volatile_memory_is_refused() {
        let mut pair = Pair::new();
        let qp = pair.server_qp;
        let medium = pmem::anonymous(4096).unwrap();
        assert_eq!(medium.class(), DurabilityClass::Volatile);
        let region = pair.target(&medium);
        pair.post(1, write(b"gone tomorrow", region, 0));
        pair.post(2, flush(region.rkey, region.remote_addr_base, 13));
        pair.until(|_, server| server.disconnected(qp));
        assert!(pair.completion().is_success(), "the write was handed over");
        assert_eq!(pair.completion().status, WcStatus::RemoteAccess);
    }

    #[test]
    fn stale_names_are_refused() {
        let mut pair = Pair::new();
        let (client_qp, qp) = (pair.client_qp, pair.server_qp);
        let region = region(&mut pair, qp, Access::all());
        pair.client.engine.disconnect(client_qp);
        pair.until(|_, server| server.disconnected(qp));
        let engine = &mut pair.server.engine;
        let gone = rdma::RegisterError::UnknownQp(qp);
        assert_eq!(engine.deregister(qp, region.rkey), Err(gone));
        assert_eq!(engine.register(qp, memory(8), 0..8, Access::all()), Err(gone));
        let buffer = region.slice(0, 1);
        assert_eq!(engine.post_recv(qp, 1, buffer), Err(rdma::PostError::UnknownQp(qp)));
        assert!(engine.capabilities(qp).is_none());
    }
}
