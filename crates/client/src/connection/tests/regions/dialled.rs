//! Where a client dials for a push connection, and where not.

use remote::Invitation;
use smb::push::{PushAddress, PushConnect};

use super::*;
use crate::region::FallbackReason;

type Invited = Result<Invitation, FallbackReason>;

/// What a client of a server at 192.0.2.1 makes of a grant, and whether it asked for the server's interfaces.
fn invited(manners: impl FnOnce(&mut Manners)) -> (Invited, bool) {
    let own = "192.0.2.1".parse().unwrap();
    let (_runtime, site, mut control, _) = opened_at(vec![own], true, manners);
    let invited = control.invite();
    (invited, site.so_far().contains(&Asked::Interfaces))
}

fn addresses(list: &[&str]) -> Vec<SocketAddr> {
    list.iter().map(|address| address.parse().unwrap()).collect()
}

fn dialled(invited: Invited) -> Vec<SocketAddr> {
    invited.unwrap().listeners.iter().map(|listener| listener.address).collect()
}

#[test]
fn a_client_dials_the_servers_own_address_and_shows_a_proof_for_it_alone() {
    let own = addresses(&["192.0.2.1:5445", "[::ffff:192.0.2.1]:5446"]);
    let listed = own.clone();
    let (invited, has_asked) = invited(move |manners| manners.addresses = listed);
    let invited = invited.unwrap();
    assert!(!has_asked, "nothing is to be learned");
    assert!(invited.same_host.is_none());
    for (listener, address) in invited.listeners.iter().zip(&own) {
        assert_eq!(listener.address, *address);
        let shown = PushConnect::parse(&listener.private_data).unwrap();
        assert_eq!(shown.proof, PushToken::new([1; 32]).proof(PushAddress::Network(*address)));
    }
    assert_eq!(invited.listeners.len(), 2);
}

#[test]
fn a_client_dials_what_the_server_announces_and_nothing_that_each_machine_has_for_itself() {
    let listed = ["203.0.113.5:1", "192.0.2.1:2", "127.0.0.1:3", "198.51.100.9:4", "[fe80::1]:5"];
    let announced = ["127.0.0.1", "198.51.100.9", "fe80::1"];
    let (invited, has_asked) = invited(move |manners| {
        manners.addresses = addresses(&listed);
        manners.announced = announced.map(|address| address.parse().unwrap()).to_vec();
    });
    assert!(has_asked);
    assert_eq!(dialled(invited), addresses(&["192.0.2.1:2", "198.51.100.9:4"]));
}

#[test]
fn addresses_that_are_not_the_servers_are_a_reason_to_work_by_messages() {
    let foreign = || addresses(&["203.0.113.5:1"]);
    let (refused, _) = invited(|manners| manners.addresses = foreign());
    assert_eq!(refused.unwrap_err(), FallbackReason::PeerAddresses);
    // A listener on the client's own host is another matter.
    let here: SocketAddrV6 = "[fd00::7]:9".parse().unwrap();
    let (taken, _) = invited(|manners| {
        (manners.addresses, manners.same_host) = (foreign(), Some(here));
    });
    let taken = taken.unwrap();
    assert!(taken.listeners.is_empty());
    let listener = taken.same_host.unwrap();
    assert_eq!(listener.address, SocketAddr::V6(here));
    let shown = PushConnect::parse(&listener.private_data).unwrap();
    assert_eq!(shown.proof, PushToken::new([1; 32]).proof(PushAddress::SameHost(here)));
    // A server that names no address has no listener in a network.
    let (none, _) = invited(|_| {});
    assert!(none.unwrap().listeners.is_empty());
}

#[test]
fn a_client_whose_requests_are_not_signed_dials_nothing() {
    let own: IpAddr = "192.0.2.1".parse().unwrap();
    let at_own = |manners: &mut Manners| manners.addresses = addresses(&["192.0.2.1:1"]);
    let (_runtime, _site, mut control, _) = opened_at(vec![own], false, at_own);
    assert_eq!(control.invite().unwrap_err(), FallbackReason::ConfigUnsigned);
}

#[test]
fn a_client_says_what_the_server_refused_when_it_was_asked_for_another_token() {
    let (_runtime, site, mut control, _) = opened(|_| {});
    control.invite().unwrap();
    site.refuses(NtStatus::OBJECT_NAME_NOT_FOUND, |asked| matches!(asked, Asked::Open(..)));
    let gone = FallbackReason::Refused(NtStatus::OBJECT_NAME_NOT_FOUND);
    assert_eq!(control.invite().unwrap_err(), gone);
}
