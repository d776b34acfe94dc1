//! The client against Landfast's server, both in this process, over real sockets.

#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

#[path = "support/fixture.rs"]
mod fixture;
mod support;

use client::{Client, ClientError, ConnectOptions, ErrorKind, OpenOptions, Protection, SmbUrl};
use fixture::Fixture;
use server::SigningPolicy;
use smb::NtStatus;
use smb::negotiate::Dialect;
use support::{break_a_lease, exercise, exercise_every_algorithm, pattern};
use tree::Admission;

/// Runs a test against a server of its own.
fn with_server(test: impl AsyncFnOnce(&Fixture)) {
    let fixture = Fixture::start("/dev/shm", |_| {});
    fixture.runtime.block_on(test(&fixture));
}

async fn connect(fixture: &Fixture, options: &ConnectOptions) -> Client {
    Client::connect(&fixture.url(), options).await.unwrap()
}

const DIALECTS: [Dialect; 5] = [
    Dialect::SMB_2_0_2,
    Dialect::SMB_2_1,
    Dialect::SMB_3_0,
    Dialect::SMB_3_0_2,
    Dialect::SMB_3_1_1,
];

#[test]
fn every_dialect_works_signed_and_encrypted() {
    with_server(async |fixture| {
        for dialect in DIALECTS {
            let dialects = vec![dialect];
            let options = ConnectOptions { dialects, ..ConnectOptions::default() };
            exercise(&connect(fixture, &options).await).await;
            if dialect >= Dialect::SMB_3_0 {
                let options = ConnectOptions { encryption: Protection::Required, ..options };
                exercise(&connect(fixture, &options).await).await;
            }
        }
    });
}

#[test]
fn every_dialect_works_without_required_signing() {
    let fixture = Fixture::start("/dev/shm", |config| config.signing = SigningPolicy::WhenAsked);
    fixture.runtime.block_on(async {
        for dialect in DIALECTS {
            let (dialects, signing) = (vec![dialect], Protection::IfRequired);
            let options = ConnectOptions { dialects, signing, ..ConnectOptions::default() };
            exercise(&connect(&fixture, &options).await).await;
        }
    });
}

#[test]
fn every_cipher_and_every_signing_algorithm_works() {
    with_server(async |fixture| {
        exercise_every_algorithm(async |options| connect(fixture, options).await).await;
    });
}

#[test]
fn a_second_client_breaks_the_lease_of_the_first() {
    with_server(async |fixture| {
        let options = ConnectOptions::default();
        break_a_lease(connect(fixture, &options).await, connect(fixture, &options).await).await;
    });
}

#[test]
fn large_files_are_written_and_read_in_many_parallel_requests() {
    with_server(async |fixture| {
        let client = connect(fixture, &ConnectOptions::default()).await;
        let file = client.open("large", &OpenOptions::create()).await.unwrap();
        let data = pattern(20 << 20);
        file.write_at(0, &data).await.unwrap();
        let mut out = vec![0; data.len()];
        assert_eq!(file.read_at(0, &mut out).await.unwrap(), data.len());
        assert!(out == data);
        file.close().await.unwrap();
    });
}

#[test]
fn a_range_that_ends_beyond_every_number_is_refused_and_the_file_goes_on() {
    with_server(async |fixture| {
        let client = connect(fixture, &ConnectOptions::default()).await;
        let file = client.open("short", &OpenOptions::create()).await.unwrap();
        for offset in [u64::MAX, u64::MAX - 1] {
            let refused = [
                file.write_at(offset, b"xx").await.unwrap_err(),
                file.write_through_at(offset, b"xx").await.unwrap_err(),
                file.read_at(offset, &mut [0; 5]).await.unwrap_err(),
            ];
            let is_config = |error: &ClientError| error.kind() == ErrorKind::Config;
            assert!(refused.iter().all(is_config), "{refused:?}");
        }
        file.write_at(0, b"xx").await.unwrap();
        assert_eq!(file.read_at(0, &mut [0; 5]).await.unwrap(), 2);
        file.close().await.unwrap();
    });
}

#[test]
fn a_url_without_a_user_connects_as_guest_unless_signing_is_required() {
    let fixture = Fixture::start("/dev/shm", |config| {
        config.shares[0].guests = Admission::Reading;
    });
    fixture.file(5);
    let port = fixture.running.tcp_address().port();
    let url: SmbUrl = format!("smb://127.0.0.1:{port}/share").parse().unwrap();
    let options = ConnectOptions { signing: Protection::IfRequired, ..ConnectOptions::default() };
    fixture.runtime.block_on(async {
        let refused = Client::connect(&url, &ConnectOptions::default()).await.unwrap_err();
        assert!(matches!(refused, ClientError::ConfigSigning), "{refused}");
        let client = Client::connect(&url, &options).await.unwrap();
        assert_eq!(client.stat("region").await.unwrap().len, 5);
        let denied = client.open("region", &OpenOptions::read_write()).await.unwrap_err();
        assert_eq!(denied.status(), Some(NtStatus::ACCESS_DENIED));
    });
}
