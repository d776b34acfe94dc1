//! What one region does for its clients.

use std::time::Duration;

use store::meta::record::Class;
use store::{Allocation, Outcome, Rights, StoreError};

use crate::daemon::Cluster;

const BOTH: Rights = Rights::READ.union(Rights::WRITE);

fn striped(size: u64) -> Allocation {
    Allocation { unit: 4096, ..Allocation::new(size, Class::Volatile) }
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 31 + seed + at / 251) % 251).unwrap()).collect()
}

#[test]
fn bytes_written_across_servers_are_read_by_another_client() {
    let cluster = Cluster::start(3);
    let store = cluster.store();
    let record = store.create("r", &striped(100_000)).unwrap();
    assert_eq!(record.pieces.len(), 3);
    let region = store.map("r", BOTH).unwrap();
    let bytes = pattern(100_000, 7);
    region.write(0, &bytes).unwrap();
    region.write(5000, &[9; 10_000]).unwrap();
    region.write_durable(99_999, &[1]).unwrap();
    region.commit(0, 100_000).unwrap();
    let other = cluster.store();
    let other = other.map("r", Rights::READ).unwrap();
    let mut expected = bytes;
    expected[5000..15_000].fill(9);
    expected[99_999] = 1;
    let mut out = vec![0; 100_000];
    other.read(0, &mut out).unwrap();
    assert!(out == expected);
    let (mut one, mut two) = ([0; 100], [0; 9000]);
    other.read_many(&mut [(4990, &mut one), (20_000, &mut two)]).unwrap();
    assert!(one == expected[4990..5090] && two == expected[20_000..29_000]);
    let refused = other.write(0, &[1]).unwrap_err();
    assert!(matches!(refused, StoreError::ReadOnly(_)), "{refused}");
    let refused = other.read(99_990, &mut [0; 11]).unwrap_err();
    assert!(matches!(refused, StoreError::OutOfRange { .. }), "{refused}");
}

#[test]
fn completions_come_by_the_queue_with_their_tickets() {
    let cluster = Cluster::start(2);
    let store = cluster.store();
    store.create("r", &striped(1 << 20)).unwrap();
    let region = store.map("r", BOTH).unwrap();
    let mut tickets = Vec::new();
    for at in 0..100_u8 {
        tickets.push(region.submit_write(u64::from(at) * 8192, &[at; 5000], false).unwrap());
    }
    for _ in 0..100 {
        let done = region.next_completion(Duration::from_secs(60)).unwrap();
        assert_eq!(done.outcome.unwrap(), Outcome::Done);
        tickets.retain(|ticket| *ticket != done.ticket);
    }
    assert!(tickets.is_empty() && region.outstanding() == 0);
    let none = region.next_completion(Duration::ZERO).unwrap_err();
    assert!(matches!(none, StoreError::NothingOutstanding));
    let ticket = region.submit_read(8192 * 7, 5000).unwrap();
    let done = region.next_completion(Duration::from_secs(60)).unwrap();
    assert_eq!((done.ticket, done.outcome.unwrap()), (ticket, Outcome::Bytes(vec![7; 5000])));
}

#[test]
fn words_are_changed_atomically_by_many_clients() {
    let cluster = Cluster::start(2);
    let store = cluster.store();
    store.create("one", &striped(8192)).unwrap();
    store.create("two", &Allocation { copies: 2, ..striped(8192) }).unwrap();
    let count = |name: &'static str| {
        let store = cluster.store();
        let region = store.map(name, BOTH).unwrap();
        (0..50).map(|_| region.fetch_add(4096, 1).unwrap()).collect::<Vec<_>>()
    };
    let mut seen = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| count("two"))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    seen.sort_unstable();
    assert_eq!(seen, (0..150).collect::<Vec<_>>());
    let region = store.map("one", BOTH).unwrap();
    assert_eq!(region.compare_swap(8, 0, 5).unwrap(), 0);
    assert_eq!(region.compare_swap(8, 0, 6).unwrap(), 5);
    assert_eq!(region.fetch_add(8, 0).unwrap(), 5);
    let refused = region.fetch_add(4, 1).unwrap_err();
    assert!(matches!(refused, StoreError::Misaligned(4)));
    let refused = store.map("two", BOTH).unwrap().compare_swap(0, 0, 1).unwrap_err();
    assert!(matches!(refused, StoreError::SwapOfCopies(2)));
}

#[test]
fn clients_wait_for_each_other_at_a_barrier() {
    let cluster = Cluster::start(1);
    let store = cluster.store();
    store.create("r", &striped(8192)).unwrap();
    let patience = Duration::from_secs(60);
    std::thread::scope(|scope| {
        for client in 0..3_u64 {
            let cluster = &cluster;
            scope.spawn(move || {
                let store = cluster.store();
                let region = store.map("r", BOTH).unwrap();
                for round in 1..=5_u64 {
                    region.write(client * 8, &round.to_le_bytes()).unwrap();
                    region.barrier(0, 3, patience).unwrap();
                    let mut words = [0; 24];
                    region.read(0, &mut words).unwrap();
                    for word in words.chunks(8) {
                        assert_eq!(u64::from_le_bytes(word.try_into().unwrap()), round);
                    }
                    region.barrier(1, 3, patience).unwrap();
                }
            });
        }
    });
    let region = store.map("r", BOTH).unwrap();
    assert_eq!(region.notify(7, 2).unwrap(), 2);
    assert_eq!(region.wait_above(7, 1, patience).unwrap(), 2);
    let late = region.wait_above(7, 2, Duration::from_millis(1)).unwrap_err();
    assert!(matches!(late, StoreError::Timeout), "{late}");
}

#[test]
fn a_freed_region_leaves_nothing_and_its_room_is_free_again() {
    let cluster = Cluster::start(2);
    let store = cluster.store();
    let wanted = Allocation { copies: 2, ..striped(1 << 20) };
    store.create("r", &wanted).unwrap();
    let again = store.create("r", &wanted).unwrap_err();
    assert!(matches!(again, StoreError::Exists(_)), "{again}");
    let region = store.map("r", BOTH).unwrap();
    region.write(0, &[1; 100]).unwrap();
    store.free("r").unwrap();
    assert!(region.read(0, &mut [0; 8]).is_err());
    assert!(matches!(store.info("r").unwrap_err(), StoreError::NoRegion(_)));
    store.create("r", &wanted).unwrap();
    let mut out = [1; 100];
    store.map("r", BOTH).unwrap().read(0, &mut out).unwrap();
    assert_eq!(out, [0; 100], "a new region is zeros");
    let large = store.create("large", &Allocation { copies: 3, ..wanted }).unwrap_err();
    assert!(large.to_string().contains("3 copies need as many servers"), "{large}");
    let large = store.create("large", &striped(1 << 40)).unwrap_err();
    assert!(large.to_string().contains("fits on 0 servers"), "{large}");
    assert_eq!(store.regions().unwrap().len(), 1);
}
