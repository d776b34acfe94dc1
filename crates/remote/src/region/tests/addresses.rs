//! Servers that name several addresses, some of which do not answer.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::thread;

use rdma::ConnectFailure;

use super::super::drive::share_of;
use super::*;

/// An address without a listener, whose port no other test gets.
const DESERTED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// An address whose listener closes every connection.
fn stranger() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().for_each(drop));
    address
}

#[test]
fn a_region_dials_the_next_address_if_one_does_not_answer() {
    let peer = Peer::start();
    peer.addresses.lock().unwrap().splice(0..0, [DESERTED, stranger(), DESERTED]);
    let mut region = peer.region();
    assert!(is_push(&region), "{}", region.path());
    region.write_commit(0, b"here").unwrap();
    assert_eq!(peer.bytes(0, 4), b"here");
    assert_eq!(peer.smb_writes.load(Ordering::SeqCst), 0);
}

#[test]
fn a_region_uses_the_network_if_its_host_lacks_the_shared_memory_name() {
    let peer = Peer::start();
    *peer.same_host.lock().unwrap() = Some("[fd00::1]:49152".parse().unwrap());
    let mut region = peer.region();
    assert!(region.path().to_string().starts_with("push by provider soft"), "{}", region.path());
    region.write_commit(0, b"here").unwrap();
    assert_eq!(peer.bytes(0, 4), b"here");
    assert_eq!(peer.smb_writes.load(Ordering::SeqCst), 0);
}

#[test]
fn a_region_without_a_reachable_address_reports_the_last_failure() {
    let peer = Peer::start();
    *peer.addresses.lock().unwrap() = vec![stranger(), DESERTED];
    let mut region = peer.region();
    let refused = ConnectFailure::HostIo { errno: 111 };
    let reason = FallbackReason::Unreachable(refused);
    assert_eq!(region.path().reason(), Some(reason));
    region.write_commit(0, b"here").unwrap();
    assert_eq!(peer.bytes(0, 4), b"here");
}

#[test]
fn a_region_of_a_server_without_addresses_works_over_smb() {
    let peer = Peer::start();
    peer.addresses.lock().unwrap().clear();
    let region = peer.region();
    assert_eq!(region.path().reason(), Some(FallbackReason::PeerIncapable));
}

#[test]
fn a_silent_address_leaves_time_for_the_others() {
    let all = Duration::from_secs(10);
    assert_eq!(share_of(all, 1), all);
    let first = share_of(all, 4);
    assert_eq!(first, all / 4);
    assert_eq!(share_of(all - first, 3), all / 4, "and what one did not need is shared");
    assert_eq!(share_of(all, 3), all / 3);
}
