//! The bytes of writes, reads and messages arrive where they were sent, and nowhere else.

use rdma::{Access, Operation, Payload, WcOpcode, WcStatus};

use super::support::{Pair, bytes_of, memory, pattern, write};
use super::{barrier, read, same, target};

#[test]
fn a_read_finds_the_bytes_written_before_only_in_their_range() {
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
fn the_first_byte_of_a_region_is_that_of_its_range() {
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
fn a_long_read_returns_every_byte() {
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
fn writes_and_sends_take_bytes_from_registered_memory() {
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
    // The acceptor may send once the initiator has sent.
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
