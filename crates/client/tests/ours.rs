//! The client against our own server, both in this process, over real sockets.

#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

mod support;

use client::{Client, ConnectOptions, OpenOptions, Protection, SmbUrl};
use server::{Running, Server, ServerConfig, ShareConfig, Users};
use smb::create::LeaseState;
use smb::crypto::{Cipher, SigningAlgorithm};
use smb::negotiate::Dialect;
use support::{exercise, pattern};

struct Fixture {
    running: Running,
    _share: tempfile::TempDir,
}

impl Fixture {
    async fn start() -> Self {
        let share = tempfile::tempdir().unwrap();
        let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        config.shares.push(ShareConfig::new("share", share.path().to_owned()));
        config.users = Users::with_passwords([("user", "secret")]);
        Self { running: Server::start(config).await.unwrap(), _share: share }
    }

    async fn client(&self, options: &ConnectOptions) -> Client {
        let port = self.running.tcp_address().port();
        let url: SmbUrl = format!("smb://user:secret@127.0.0.1:{port}/share").parse().unwrap();
        Client::connect(&url, options).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_dialect_works_signed_and_encrypted() {
    let fixture = Fixture::start().await;
    for dialect in [
        Dialect::SMB_2_0_2,
        Dialect::SMB_2_1,
        Dialect::SMB_3_0,
        Dialect::SMB_3_0_2,
        Dialect::SMB_3_1_1,
    ] {
        let dialects = vec![dialect];
        let options = ConnectOptions { dialects, ..ConnectOptions::default() };
        exercise(&fixture.client(&options).await).await;
        if dialect >= Dialect::SMB_3_0 {
            let options = ConnectOptions { encryption: Protection::Required, ..options };
            exercise(&fixture.client(&options).await).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_cipher_and_every_signing_algorithm_works() {
    let fixture = Fixture::start().await;
    for cipher in Cipher::PREFERENCE {
        let encryption = Protection::Required;
        let options =
            ConnectOptions { ciphers: vec![cipher], encryption, ..ConnectOptions::default() };
        let client = fixture.client(&options).await;
        assert_eq!(client.negotiated().cipher, Some(cipher));
        exercise(&client).await;
    }
    for algorithm in SigningAlgorithm::PREFERENCE {
        let options =
            ConnectOptions { signing_algorithms: vec![algorithm], ..ConnectOptions::default() };
        let client = fixture.client(&options).await;
        assert_eq!(client.negotiated().signing, algorithm);
        exercise(&client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_client_breaks_the_lease_of_the_first() {
    let fixture = Fixture::start().await;
    let first = fixture.client(&ConnectOptions::default()).await;
    let second = fixture.client(&ConnectOptions::default()).await;
    let options = OpenOptions::create().with_full_lease();
    let mut holder = first.open("leased", &options).await.unwrap();
    let lease = holder.lease().unwrap();
    assert_eq!(lease.state(), LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE);
    let opening = tokio::spawn(async move { second.open("leased", &OpenOptions::read()).await });
    let found = lease.next_break().await.unwrap();
    assert!(found.ack_required && !found.new.contains(LeaseState::WRITE));
    lease.acknowledge(found).await.unwrap();
    opening.await.unwrap().unwrap().close().await.unwrap();
    holder.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_files_go_there_and_back_in_many_requests_at_once() {
    let fixture = Fixture::start().await;
    let client = fixture.client(&ConnectOptions::default()).await;
    let file = client.open("large", &OpenOptions::create()).await.unwrap();
    let data = pattern(20 << 20);
    file.write_at(0, &data).await.unwrap();
    let mut out = vec![0; data.len()];
    assert_eq!(file.read_at(0, &mut out).await.unwrap(), data.len());
    assert!(out == data);
    file.close().await.unwrap();
}
