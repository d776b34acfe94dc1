//! A forbidden operation of a peer ends the connection of that peer, and no other.

use rdma::{Access, DisconnectReason, MemoryRegion, Operation, Payload, QpId, Rkey, WcStatus};

use super::support::{Pair, bytes_of, memory, write};
use super::{has_gap, read, same};

/// Posts `operation` and checks that both ends of its connection end, and no other connection.
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
        // siw ends the stream and does not report which request was to blame.
        let told = [Some(WcStatus::RemoteAccess), Some(WcStatus::Flushed)];
        assert!(told.contains(&status), "{operation:?}: {status:?}");
    }
    let reason = pair.until(|_, server| server.disconnected(server_qp));
    assert_ne!(reason, DisconnectReason::Local, "{operation:?}");
    pair.client.events.clear();
    let local = memory(4096);
    let region = pair.client.engine.register(other, local, 0..4096, Access::LOCAL_WRITE).unwrap();
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
fn no_operation_reaches_beyond_its_region() {
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
fn an_operation_without_its_right_is_refused() {
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
fn a_deregistered_region_is_refused() {
    costs_its_connection(|pair, _| {
        let region = of_page(pair, pair.server_qp, Access::REMOTE_WRITE);
        let gone = pair.server.engine.deregister(pair.server_qp, region.rkey).unwrap();
        assert_eq!(gone, rdma::Deregistration::Done);
        write_at(region.rkey, region.remote_addr_base)
    });
}
