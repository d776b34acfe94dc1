//! A token gives its rights and no more, for its time, until it is revoked; who has none changes nothing.

use std::time::Duration;

use store::ids::{ClientId, RegionId};
use store::meta::record::Class;
use store::token::Claims;
use store::{Allocation, Region, Rights, Store, StoreError, StoreKey, Token};

use crate::daemon::Cluster;

const BOTH: Rights = Rights::READ.union(Rights::WRITE);
const HOUR: Duration = Duration::from_secs(3600);

fn cluster() -> (Cluster, Store, Region) {
    let cluster = Cluster::start(1);
    let store = cluster.store();
    store.create("r", &Allocation::new(8192, Class::Volatile)).unwrap();
    let region = store.map("r", BOTH).unwrap();
    region.write(0, &[7; 64]).unwrap();
    (cluster, store, region)
}

fn is_unchanged(region: &Region) -> bool {
    let mut out = [0; 64];
    region.read(0, &mut out).unwrap();
    out == [7; 64]
}

#[test]
fn a_token_maps_its_region_with_its_rights() {
    let (cluster, store, region) = cluster();
    store.create("other", &Allocation::new(8192, Class::Volatile)).unwrap();
    let stranger = cluster.stranger();
    let token = store.token("r", Rights::READ, HOUR).unwrap().expose();
    let read = stranger.map_by_token("r", token.parse().unwrap()).unwrap();
    assert!(is_unchanged(&read));
    assert!(matches!(read.write(0, &[1]), Err(StoreError::ReadOnly(_))));
    let unfit = stranger.map_by_token("other", token.parse().unwrap()).unwrap_err();
    assert!(matches!(unfit, StoreError::TokenUnfit(_)), "{unfit}");
    let write = store.token("r", BOTH, HOUR).unwrap();
    stranger.map_by_token("r", write).unwrap().write(64, &[1]).unwrap();
    assert!(matches!(stranger.map("r", BOTH), Err(StoreError::NeedsKey(_))));
    assert!(matches!(stranger.free("r"), Err(StoreError::NeedsKey(_))));
    assert!(is_unchanged(&region));
}

/// Claims for the region, signed by `key`.
fn signed(region: &Region, key: &StoreKey, change: impl FnOnce(&mut Claims)) -> Token {
    let mut claims = Claims {
        region: region.record().id,
        client: ClientId(5),
        expires_ms: u64::MAX,
        generation: region.record().generation,
        rights: BOTH,
    };
    change(&mut claims);
    key.issue(claims)
}

#[test]
fn a_forged_or_expired_token_gets_an_error_and_changes_nothing() {
    let (cluster, _store, region) = cluster();
    let stranger = cluster.stranger();
    let (key, other) = (cluster.key(), StoreKey::draw(&basics::Environment::host()).unwrap());
    let wrong = [
        (signed(&region, &other, |_| {}), "not of this store"),
        (signed(&region, &key, |claims| claims.expires_ms = 1), "expired"),
        (signed(&region, &key, |claims| claims.generation = 0), "revoked"),
    ];
    for (token, why) in wrong {
        let refused = stranger.map_by_token("r", token).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    // Claims that were changed after they were signed.
    let text = signed(&region, &key, |claims| claims.rights = Rights::READ).expose();
    let at = text.find('-').unwrap() + 1 + 2 * 32;
    let mut changed = text.into_bytes();
    changed[at + 1] = b'3';
    let changed: Token = String::from_utf8(changed).unwrap().parse().unwrap();
    assert_eq!(changed.claims().rights, BOTH);
    let refused = stranger.map_by_token("r", changed).unwrap_err().to_string();
    assert!(refused.contains("not of this store"), "{refused}");
    assert!(is_unchanged(&region));
}

#[test]
fn a_token_that_expires_or_is_revoked_ends_what_was_mapped_by_it() {
    let (cluster, store, region) = cluster();
    let stranger = cluster.stranger();
    let soon = store.token("r", BOTH, Duration::from_millis(300)).unwrap();
    let short = stranger.map_by_token("r", soon).unwrap();
    short.write(0, &[7; 64]).unwrap();
    let mut error = None;
    basics_wait(|| {
        error = short.write(0, &[7; 64]).err();
        error.is_some()
    });
    assert!(error.unwrap().to_string().contains("expired"));
    let token = store.token("r", BOTH, HOUR).unwrap();
    let long = stranger.map_by_token("r", token).unwrap();
    long.write(0, &[7; 64]).unwrap();
    store.revoke("r").unwrap();
    let refused = long.write(0, &[1; 64]).unwrap_err().to_string();
    assert!(refused.contains("revoked"), "{refused}");
    // Who has the key maps again by itself.
    assert!(is_unchanged(&region));
    assert_ne!(region.record().id, RegionId(0));
}

/// Asks again and again, without a pause, until the answer is yes.
fn basics_wait(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

#[test]
fn a_stranger_costs_a_daemon_its_own_connection_alone() {
    use std::io::{Read as _, Write as _};
    let (cluster, store, region) = cluster();
    let control = store.servers().unwrap()["s0"].control;
    let frame = |len: u32, rest: &[u8]| [&len.to_le_bytes()[..], rest].concat();
    let reply = store::wire::reply(&[1; 16]);
    let wrong = [
        b"GET / HTTP/1.1\r\n\r\n GET / HTTP/1.1".to_vec(),
        [&reply[..], &frame(u32::MAX, &[])].concat(),
        [&reply[..], &frame(65_537, &[])].concat(),
        [&reply[..], &frame(10, &[0; 10])].concat(),
        [&reply[..], &frame(200, &[0xff; 200])].concat(),
    ];
    for bytes in wrong {
        let mut stream = std::net::TcpStream::connect(control).unwrap();
        stream.write_all(&bytes).unwrap();
        // The greeting, and then the end.
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() <= store::wire::GREETING_LEN, "{rest:?}");
    }
    assert!(is_unchanged(&region));
    drop(cluster);
}
