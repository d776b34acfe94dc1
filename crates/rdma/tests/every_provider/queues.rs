//! Work queues: their order, their bounds, and the requests they refuse.

use rdma::{Access, LocalSlice, Operation, Payload, PostError, QpConfig, QpId, WorkRequest};

use super::support::{Pair, bytes_of, memory, pattern, provider, write};
use super::{barrier, read, same, target};

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
fn more_inline_bytes_than_the_queue_holds_are_refused_until_it_drains() {
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
fn reads_beyond_the_limit_of_the_peer_wait_their_turn() {
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
fn a_full_queue_refuses_requests_until_it_has_drained() {
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
fn invalid_local_slices_are_refused_when_posting() {
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
