//! What the tests against different servers have in common.

use client::{Client, OpenOptions};
use smb::NtStatus;

/// Bytes in which every misplaced piece shows.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at / 7 + at / 4096) % 251).unwrap()).collect()
}

/// Everything a client does with a file, once.
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
