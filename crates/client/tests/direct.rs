//! The client over SMB Direct against Landfast's server: long answers, and calls that their callers give up.

#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

#[path = "support/fixture.rs"]
mod fixture;

use std::pin::pin;
use std::task::Poll;

use basics::Environment;
use client::transport::direct::{self, DirectConfig};
use client::{Client, ConnectOptions, OpenOptions, Protection, initiator};
use fixture::{Fixture, provider};
use smb::create::AccessMask;

async fn over_direct(fixture: &Fixture, options: &ConnectOptions) -> Client {
    let address = fixture.running.rdma_address().unwrap();
    let provider = provider().provider();
    let transport = direct::connect(&*provider, address, DirectConfig::default()).await.unwrap();
    let mut proof = initiator(&fixture.url(), &Environment::host()).unwrap();
    let client = Client::over(transport, &mut proof, "127.0.0.1", "share", options).await.unwrap();
    // Each answer brings credits, up to as many as the client wants.
    for _ in 0..20 {
        client.echo().await.unwrap();
    }
    client
}

fn sealed() -> ConnectOptions {
    ConnectOptions { encryption: Protection::Required, ..ConnectOptions::default() }
}

#[test]
fn a_listing_of_thousands_of_long_names_comes_over_smb_direct() {
    let fixture = Fixture::start("/dev/shm", |_| {});
    let big = fixture.share.path().join("big");
    std::fs::create_dir(&big).unwrap();
    for number in 0..6000 {
        std::fs::File::create(big.join(format!("{number:04}{}", "y".repeat(92)))).unwrap();
    }
    fixture.runtime.block_on(async {
        for options in [ConnectOptions::default(), sealed()] {
            let client = over_direct(&fixture, &options).await;
            assert_eq!(client.list("big").await.unwrap().len(), 6000);
            client.echo().await.unwrap();
        }
    });
}

#[test]
fn sealed_reads_and_writes_of_any_length_go_over_smb_direct() {
    let fixture = Fixture::start("/dev/shm", |_| {});
    fixture.runtime.block_on(async {
        for len in [1_000_000, 1 << 20, 4 << 20] {
            let client = over_direct(&fixture, &sealed()).await;
            let file = client.open("sealed", &OpenOptions::read_write()).await.unwrap();
            let data: Vec<u8> = (0..len).map(|at: u32| (at % 251).try_into().unwrap()).collect();
            file.write_at(0, &data).await.unwrap();
            let mut out = vec![0; data.len()];
            assert_eq!(file.read_at(0, &mut out).await.unwrap(), data.len());
            assert!(out == data, "{len} bytes");
        }
    });
}

#[test]
fn calls_that_are_given_up_or_fail_lose_no_memory_of_the_pool() {
    let fixture = Fixture::start("/dev/shm", |_| {});
    fixture.file(4 << 20);
    fixture.runtime.block_on(async {
        let client = over_direct(&fixture, &ConnectOptions::default()).await;
        let file = client.open("region", &OpenOptions::read()).await.unwrap();
        let only_write =
            OpenOptions { access: AccessMask::FILE_GENERIC_WRITE, ..OpenOptions::read_write() };
        let unreadable = client.open("region", &only_write).await.unwrap();
        let mut out = vec![0; 4 << 20];
        let mut small = vec![0; 64 << 10];
        // Each of them takes all of the pool.
        for round in 0..8 {
            if round % 2 == 0 {
                unreadable.read_at(0, &mut out).await.unwrap_err();
            } else {
                let mut reading = pin!(file.read_at(0, &mut out));
                // Sent, and given up before the answer.
                std::future::poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx).is_ready())).await;
            }
            assert_eq!(file.read_at(0, &mut small).await.unwrap(), small.len());
        }
        assert_eq!(file.read_at(0, &mut out).await.unwrap(), out.len());
    });
}
