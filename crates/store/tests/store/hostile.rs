//! What a daemon holds for peers that prove nothing, and for those that misuse what they have.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use store::ids::{ClientId, RegionId};
use store::meta::record::Class;
use store::token::Claims;
use store::wire::{GREETING_LEN, Nonces, Request, parse_greeting, reply};
use store::{Allocation, Rights, StoreError, StoreKey};

use crate::daemon::Cluster;

const BOTH: Rights = Rights::READ.union(Rights::WRITE);

/// Longer than any answer takes, and shorter than a daemon waits for a client that says nothing.
const PATIENCE: Duration = Duration::from_secs(5);

fn greeted(control: SocketAddr) -> (TcpStream, Nonces) {
    let mut stream = TcpStream::connect(control).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut greeting = [0; GREETING_LEN];
    stream.read_exact(&mut greeting).unwrap();
    let daemon = parse_greeting(&greeting).unwrap().0;
    let client = [5; 16];
    stream.write_all(&reply(&client)).unwrap();
    (stream, Nonces { daemon, client })
}

#[test]
fn a_connection_that_proves_nothing_ends_with_its_first_answer() {
    let cluster = Cluster::start(1);
    let store = cluster.store();
    let control = store.servers().unwrap()["s0"].control;
    let (mut stream, nonces) = greeted(control);
    let other = StoreKey::draw(&basics::Environment::host()).unwrap();
    let expires_ms = u64::MAX;
    let (region, client, rights) = (RegionId(0), ClientId(1), Rights::ADMIN);
    let forged = other.issue(Claims { region, client, expires_ms, generation: 0, rights });
    stream.write_all(&Request::Ping.seal(0, &forged, &nonces)).unwrap();
    let mut answers = Vec::new();
    stream.read_to_end(&mut answers).expect("the daemon ends the connection");
    assert_eq!(answers.len(), 60, "one refusal");
}

#[test]
fn a_frame_longer_than_any_request_ends_the_connection_at_once() {
    let cluster = Cluster::start(1);
    let control = cluster.store().servers().unwrap()["s0"].control;
    let (mut stream, _) = greeted(control);
    stream.write_all(&1000_u32.to_le_bytes()).unwrap();
    assert_eq!(stream.read_to_end(&mut Vec::new()).expect("the daemon ends the connection"), 0);
}

#[test]
fn a_thousand_connections_that_say_nothing_leave_room_for_a_client() {
    let cluster = Cluster::start(1);
    let store = cluster.store();
    store.create("r", &Allocation::new(8192, Class::Volatile)).unwrap();
    let control = store.servers().unwrap()["s0"].control;
    let silent: Vec<TcpStream> = (0..400).map(|_| TcpStream::connect(control).unwrap()).collect();
    let region = store.map("r", BOTH).unwrap();
    region.write(0, &[1; 8]).unwrap();
    drop(silent);
}

#[test]
fn a_token_to_read_changes_no_counter() {
    let cluster = Cluster::start(1);
    let store = cluster.store();
    store.create("r", &Allocation::new(8192, Class::Volatile)).unwrap();
    let token = store.token("r", Rights::READ, Duration::from_secs(60)).unwrap();
    let reader = cluster.stranger().map_by_token("r", token).unwrap();
    let refused = reader.notify(0, 1).unwrap_err();
    assert!(matches!(&refused, StoreError::ReadOnly(name) if name == "r"), "{refused}");
    let region = store.map("r", BOTH).unwrap();
    assert_eq!(region.notify(0, 1).unwrap(), 1);
    assert_eq!(reader.wait_above(0, 0, PATIENCE).unwrap(), 1);
}

#[test]
fn giving_one_mapping_back_leaves_another_of_the_same_client_alone() {
    let cluster = Cluster::start(1);
    let store = cluster.store();
    store.create("r", &Allocation::new(8192, Class::Volatile)).unwrap();
    let region = store.map("r", BOTH).unwrap();
    for before in 0..200 {
        let other = store.map("r", BOTH).unwrap();
        let ticket = region.submit_fetch_add(0, 1).unwrap();
        drop(other);
        let done = region.next_completion(PATIENCE).unwrap();
        assert_eq!(done.ticket, ticket);
        assert_eq!(done.outcome.unwrap(), store::Outcome::Word(before));
        assert_eq!(region.fetch_add(8, 1).unwrap(), before);
    }
}
