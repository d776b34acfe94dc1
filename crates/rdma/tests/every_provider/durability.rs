//! Flush and atomic write, if the device has them, and persistent memory.

use std::sync::Arc;

use pmem::Medium;
use rdma::{
    Access, Operation, PeerOperations, PostError, WcOpcode, WcStatus, WorkCompletion, WorkRequest,
};

use super::support::{Pair, bytes_of, flush, memory, pattern, write};
use super::{barrier, read, same};

#[test]
fn offered_flush_and_atomic_write_work() {
    let mut pair = Pair::of_any();
    let can = pair.client.engine.capabilities(pair.client_qp).unwrap();
    let medium = memory(4096);
    let (qp, access) = (pair.server_qp, Access::PUSH);
    let region = pair.server.engine.register(qp, medium.clone(), 0..4096, access).unwrap();
    println!("flush {}, atomic write {}, offers {:?}", can.flush, can.atomic_write, region.offers);
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
        let refused = pair.client.engine.post_send(pair.client_qp, WorkRequest::signaled(0, odd));
        assert_eq!(refused, Err(PostError::ConfigMisaligned(remote_addr + 4)));
    }
    if !can.atomic_write {
        let refused = pair.client.engine.post_send(pair.client_qp, WorkRequest::signaled(0, store));
        assert_eq!(refused, Err(PostError::PeerUnsupported));
    }
}

#[test]
fn a_write_its_flush_and_its_read_are_done_in_order() {
    let mut pair = Pair::of_any();
    let can = pair.client.engine.capabilities(pair.client_qp).unwrap();
    let (there, here) = (memory(1 << 16), memory(1 << 16));
    let (qp, access) = (pair.server_qp, Access::PUSH);
    let region = pair.server.engine.register(qp, there.clone(), 0..1 << 16, access).unwrap();
    let local = pair.local(&here);
    let bytes = pattern(11, 4096);
    let mut posted = vec![WcOpcode::Write, WcOpcode::Read];
    pair.post(1, write(&bytes, region, 512));
    if can.flush && region.offers.contains(PeerOperations::FLUSH) {
        pair.post(2, flush(region.rkey, region.remote_addr_base + 512, 4096));
        posted.insert(1, WcOpcode::Flush);
    }
    pair.post(3, read(local.slice(0, 4096), region, 512));
    let done: Vec<_> = posted.iter().map(|_| pair.completion()).collect();
    assert!(done.iter().all(WorkCompletion::is_success), "{done:?}");
    assert_eq!(done.iter().map(|done| done.opcode).collect::<Vec<_>>(), posted);
    same(&bytes_of(&*here, 0, 4096), &bytes);
    same(&bytes_of(&*there, 512, 4096), bytes);
}

/// A device of persistent memory, if the guest has one.
fn persistent_memory() -> Option<Arc<dyn Medium>> {
    let path = std::env::var_os("LANDFAST_RDMA_DAX")?;
    let device = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let medium = pmem::map_file(&device, 2 << 20, pmem::OpenOptions::default()).unwrap();
    assert_eq!(medium.class(), pmem::DurabilityClass::Pmem);
    Some(medium)
}

#[test]
fn persistent_memory_is_registered_and_flushed_by_device_or_server() {
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
    // The guest says which operations its devices have, so that no operation is left untested in
    // silence.
    if std::env::var("LANDFAST_RDMA_FLUSH").is_ok_and(|how| how == "native") {
        assert!(can.flush && medium.class() == pmem::DurabilityClass::Pmem);
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
