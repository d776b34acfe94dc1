//! Regions of files that are mapped lazily, end to end: real sockets, a real file on a disk, a budget far below the file.

#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

#[path = "support/fixture.rs"]
mod fixture;

use client::{OpenOptions, Path};
use fixture::{Fixture, bytes_at, pushing, server_provider, settings};
use rdma::ProviderChoice;
use server::report::PagesRow;
use tree::Residency;

const BUDGET: u64 = 1 << 20;
const LEN: u64 = 12 << 20;

fn lazily(residency: Residency) -> Fixture {
    Fixture::start("/var/tmp", |config| {
        config.flash_budget = Some(BUDGET);
        config.shares[0].residency = residency;
    })
}

/// A flash region has no memory that an adapter could reach.
fn is_soft() -> bool {
    server_provider() == ProviderChoice::Soft
}

fn pages(fixture: &Fixture) -> Option<PagesRow> {
    fixture.running.observer().report(10).unwrap().regions.rows[0].pages
}

#[test]
fn a_region_of_twelve_budgets_is_written_committed_and_read() {
    if !is_soft() {
        return;
    }
    let fixture = lazily(Residency::Automatic);
    let path = fixture.file(LEN);
    let client = fixture.client();
    let mut region = client.map("region", &pushing(), 0..LEN, settings()).unwrap();
    let Path::Push { has_flush: true, .. } = region.path() else { panic!("{}", region.path()) };
    let piece = |number: u64| -> Vec<u8> {
        (0..64 << 10).map(|at: u64| u8::try_from((at / 7 + number * 3) % 251).unwrap()).collect()
    };
    for number in 0..LEN >> 16 {
        region.write(number << 16, &piece(number)).unwrap();
    }
    region.commit(0, LEN).unwrap();
    let mut out = vec![0; 64 << 10];
    for number in (0..LEN >> 16).rev() {
        assert!(
            bytes_at(&path, number << 16, 64 << 10) == piece(number),
            "piece {number} is durable"
        );
        region.read(number << 16, &mut out).unwrap();
        assert!(out == piece(number), "piece {number}");
    }
    region.atomic_write(8, u64::from_le_bytes(*b"pointer!")).unwrap();
    region.commit(8, 8).unwrap();
    assert_eq!(bytes_at(&path, 8, 8), b"pointer!");
    let found = pages(&fixture).expect("it is longer than the budget");
    assert!(found.misses > 0 && found.lost == 0, "{found:?}");
    let flash = fixture.running.observer().report(0).unwrap().flash.unwrap();
    assert!(flash.budget == BUDGET && flash.resident <= BUDGET && flash.evictions > 0, "{flash:?}");
}

#[test]
fn another_client_reads_what_was_placed_in_a_lazy_region_and_not_committed() {
    if !is_soft() {
        return;
    }
    let fixture = lazily(Residency::Lazy);
    let path = fixture.file(LEN);
    let client = fixture.client();
    let mut region = client.map("region", &pushing(), 0..LEN, settings()).unwrap();
    region.write(5000, b"placed").unwrap();
    let mut out = [0; 6];
    region.read(5000, &mut out).unwrap();
    assert_eq!(&out, b"placed");
    let other = fixture.client();
    let file = other.open("region", &OpenOptions::read_write()).unwrap();
    assert_eq!(file.read_at(5000, &mut out).unwrap(), 6);
    assert_eq!(&out, b"placed");
    // What this client writes the first finds again, and both are in the file.
    file.write_at(5003, b"by SMB, beyond").unwrap();
    file.set_len(LEN + 100).unwrap();
    file.flush().unwrap();
    assert_eq!(bytes_at(&path, 5000, 17), b"plaby SMB, beyond");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), LEN + 100);
}

#[test]
fn a_file_within_the_budget_is_mapped_as_before_unless_its_share_says_lazy() {
    if !is_soft() {
        return;
    }
    for (residency, len, is_lazy) in [
        (Residency::Automatic, BUDGET, false),
        (Residency::Automatic, BUDGET + 1, true),
        (Residency::Lazy, 8192, true),
        (Residency::Eager, LEN, false),
    ] {
        let fixture = lazily(residency);
        fixture.file(len);
        let client = fixture.client();
        let mut region = client.map("region", &pushing(), 0..len, settings()).unwrap();
        region.write_commit(0, b"bytes").unwrap();
        assert_eq!(pages(&fixture).is_some(), is_lazy, "{residency:?} {len}");
    }
}
