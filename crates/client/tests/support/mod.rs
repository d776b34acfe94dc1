//! Code that the tests against different servers share.

use client::{Client, ConnectOptions, OpenOptions, Protection};
use smb::NtStatus;
use smb::create::LeaseState;
use smb::crypto::{Cipher, SigningAlgorithm};

/// Bytes in which every misplaced piece is detected.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at / 7 + at / 4096) % 251).unwrap()).collect()
}

/// Runs every operation of a client on a file once.
pub(crate) async fn exercise(client: &Client) {
    client.echo().await.unwrap();
    client.create_directory("dir").await.unwrap();
    let file = client.open("dir/file", &OpenOptions::create()).await.unwrap();
    let data = pattern(300_000);
    file.write_at(0, &data).await.unwrap();
    file.write_through_at(300_000, b"through").await.unwrap();
    file.flush().await.unwrap();
    let mut out = vec![0; 400_000];
    assert_eq!(file.read_at(0, &mut out).await.unwrap(), 300_007);
    assert_eq!(out[..300_000], data);
    assert_eq!(file.read_at(1 << 30, &mut out).await.unwrap(), 0);
    file.set_len(1000).await.unwrap();
    assert_eq!(file.stat().await.unwrap().len, 1000);
    file.close().await.unwrap();
    client.rename("dir/file", "dir/other", false).await.unwrap();
    assert_eq!(client.stat("dir/other").await.unwrap().len, 1000);
    let names: Vec<_> = client.list("dir").await.unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), ["other"]);
    client.delete("dir/other").await.unwrap();
    client.delete("dir").await.unwrap();
    assert_eq!(
        client.stat("dir").await.unwrap_err().status(),
        Some(NtStatus::OBJECT_NAME_NOT_FOUND)
    );
}

/// Runs every operation with each cipher and with each signing algorithm of 3.1.1.
pub(crate) async fn exercise_every_algorithm(connect: impl AsyncFn(&ConnectOptions) -> Client) {
    for cipher in Cipher::PREFERENCE {
        let encryption = Protection::Required;
        let options =
            ConnectOptions { ciphers: vec![cipher], encryption, ..ConnectOptions::default() };
        let client = connect(&options).await;
        assert_eq!(client.negotiated().cipher, Some(cipher));
        exercise(&client).await;
    }
    for algorithm in SigningAlgorithm::PREFERENCE {
        let options =
            ConnectOptions { signing_algorithms: vec![algorithm], ..ConnectOptions::default() };
        let client = connect(&options).await;
        assert_eq!(client.negotiated().signing, algorithm);
        exercise(&client).await;
    }
}

/// The second client opens the file whose lease the first holds, and gets it after the break.
pub(crate) async fn break_a_lease(first: Client, second: Client) {
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
