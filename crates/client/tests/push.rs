//! Push mode end to end: Landfast's client and server, real sockets, real files.

#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

#[path = "support/fixture.rs"]
mod fixture;

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use client::{
    Client, ClientError, ConnectOptions, FallbackReason, OpenOptions, Path, Protection,
    RegionError, RegionSettings, blocking,
};
use fixture::{Fixture, bytes_at, provider, pushing, server_provider, settings};
use pmem::DurabilityClass;
use rdma::ProviderChoice;
use rustix::process::{PidfdFlags, PidfdGetfdFlags};
use server::{ShareConfig, Users};
use smb::NtStatus;
use smb::create::ShareAccess;
use smb::push::Refusal;

fn both_are_soft() -> bool {
    [provider(), server_provider()] == [ProviderChoice::Soft; 2]
}

fn pushes_and_commits(parent: &str) {
    let fixture = Fixture::start(parent, |_| {});
    let path = fixture.file(1 << 20);
    let client = fixture.client();
    let mut region = client.map("region", &pushing(), 4096..(1 << 20), settings()).unwrap();
    let Path::Push { has_flush, .. } = region.path() else { panic!("{}", region.path()) };
    // No adapter persists these pages itself; with adapters the commit is a message.
    assert_eq!(*has_flush, both_are_soft());
    region.write_commit(0, &[7; 4096]).unwrap();
    assert_eq!(bytes_at(&path, 4096, 4096), [7; 4096]);
    assert_eq!(bytes_at(&path, 0, 4096), [0; 4096]);
    region.atomic_write(4096, u64::from_le_bytes(*b"pointer!")).unwrap();
    region.commit(4096, 8).unwrap();
    assert_eq!(bytes_at(&path, 8192, 8), b"pointer!");
    let mut out = [0; 4096];
    region.read(0, &mut out).unwrap();
    assert_eq!(out, [7; 4096]);
    assert_eq!(fixture.running.status().regions, 1);
    drop(region);
    drop(client);
    fixture.runtime.block_on(fixture.running.shutdown());
}

#[test]
fn an_async_client_of_one_thread_maps_a_region_that_is_recalled_and_given_back() {
    let fixture = Fixture::start("/dev/shm", |_| {});
    let path = fixture.file(8192);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = ConnectOptions::default();
        let client = Client::connect(&fixture.url(), &options).await.unwrap();
        let short = client.map("region", &pushing(), 0..8193, settings()).await.unwrap_err();
        assert!(matches!(short, ClientError::ConfigRegion(_)), "{short}");
        let region = client.map("region", &pushing(), 0..8192, settings()).await.unwrap();
        let mapped = region.path().await.unwrap();
        assert!(matches!(mapped, Path::Push { .. }), "{mapped}");
        region.write_commit(0, b"committed".to_vec()).await.unwrap();
        assert_eq!(bytes_at(&path, 0, 9), b"committed");
        // Another client wants the file, and gets it when the region was given back.
        let other = Client::connect(&fixture.url(), &options).await.unwrap();
        let file = other.open("region", &OpenOptions::read_write()).await.unwrap();
        let mut bytes = [0; 9];
        file.read_at(0, &mut bytes).await.unwrap();
        assert_eq!(&bytes, b"committed");
        region.write_commit(16, b"by messages".to_vec()).await.unwrap();
        assert_eq!(bytes_at(&path, 16, 11), b"by messages");
    });
}

#[test]
fn a_region_that_is_closed_has_nothing_open_at_the_server_and_keeps_nobody_from_push_mode() {
    let fixture = Fixture::start("/dev/shm", |_| {});
    fixture.file(8192);
    let client = fixture.client();
    for turn in 0..50 {
        let region = client.map("region", &pushing(), 0..8192, settings()).unwrap();
        assert!(matches!(region.path(), Path::Push { .. }), "{turn}: {}", region.path());
        region.close().unwrap();
        let status = fixture.running.status();
        assert_eq!((status.opens, status.leases, status.regions), (0, 0, 0), "{turn}");
    }
}

#[test]
fn a_region_on_tmpfs_is_written_committed_and_read_by_one_sided_rdma() {
    pushes_and_commits("/dev/shm");
}

#[test]
fn a_region_is_written_committed_and_read_through_shared_memory() {
    let fixture = Fixture::start("/dev/shm", |config| config.rdma_provider = ProviderChoice::Shm);
    let path = fixture.file(1 << 20);
    let shm = RegionSettings { provider: ProviderChoice::Shm, ..RegionSettings::default() };
    let client = fixture.client();
    let mut region = client.map("region", &pushing(), 0..(1 << 20), shm).unwrap();
    let shown = region.path().to_string();
    assert!(shown.starts_with("push by provider shm"), "{shown}");
    region.write_commit(4096, &[7; 4096]).unwrap();
    assert_eq!(bytes_at(&path, 4096, 4096), [7; 4096]);
    let mut out = [0; 4096];
    region.read(4096, &mut out).unwrap();
    assert_eq!(out, [7; 4096]);
}

#[test]
fn a_client_of_the_servers_host_uses_shared_memory_if_both_allow_it() {
    for (server_allows, client_allows, expected) in
        [(true, true, "shm"), (false, true, "soft"), (true, false, "soft")]
    {
        let fixture = Fixture::start("/dev/shm", |config| {
            config.rdma_provider = ProviderChoice::Soft;
            config.rdma_same_host = server_allows;
            config.rdma_threads = 2;
        });
        let path = fixture.file(1 << 20);
        let client = fixture.client();
        let settings = RegionSettings { same_host: client_allows, ..RegionSettings::default() };
        let mut region = client.map("region", &pushing(), 0..(1 << 20), settings).unwrap();
        let Path::Push { provider, has_flush: true, .. } = *region.path() else {
            panic!("{}", region.path())
        };
        assert_eq!(provider, expected);
        region.write_commit(4096, &[7; 4096]).unwrap();
        assert_eq!(bytes_at(&path, 4096, 4096), [7; 4096]);
    }
}

#[test]
fn a_region_on_a_disk_is_written_committed_and_read_by_one_sided_rdma() {
    if server_provider() == ProviderChoice::Soft {
        pushes_and_commits("/var/tmp");
    } else {
        is_not_pushed_and_says_so("/var/tmp");
    }
}

/// A device reaches only memory, and a file that is written by system calls has none.
fn is_not_pushed_and_says_so(parent: &str) {
    let fixture = Fixture::start(parent, |_| {});
    let path = fixture.file(1 << 20);
    let client = fixture.client();
    let mut region = client.map("region", &pushing(), 0..(1 << 20), settings()).unwrap();
    let reason = FallbackReason::NotGranted(Refusal::SHARE_NOT_CAPABLE);
    assert_eq!(region.path().reason(), Some(reason));
    region.write_commit(0, &[7; 4096]).unwrap();
    assert_eq!(bytes_at(&path, 0, 4096), [7; 4096]);
}

/// A node in the share for the guest's device of persistent memory, and the bytes of the device.
fn persistent_memory(share: &std::path::Path) -> Option<Arc<dyn pmem::Medium>> {
    let path = std::env::var_os("LANDFAST_RDMA_DAX")?;
    let copied = Command::new("cp").arg("-a").arg(&path).arg(share.join("region")).status();
    assert!(copied.unwrap().success());
    let device = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    Some(pmem::map_file(&device, 2 << 20, pmem::OpenOptions::default()).unwrap())
}

#[test]
fn records_and_their_pointer_are_durable_in_persistent_memory() {
    let devices = std::env::var_os("LANDFAST_RDMA_DAX").into_iter().map(Into::into);
    let fixture = Fixture::start("/dev/shm", |config| config.shares[0].devices = devices.collect());
    let device = persistent_memory(fixture.share.path());
    let is_device = device.is_some();
    let medium = device.unwrap_or_else(|| {
        let file = std::fs::File::options().read(true).write(true).open(fixture.file(2 << 20));
        pmem::map_file(&file.unwrap(), 2 << 20, pmem::OpenOptions::default()).unwrap()
    });
    let client = fixture.client();
    let mut region = client.map("region", &pushing(), 4096..(1 << 20), settings()).unwrap();
    let &Path::Push { class, is_emulated, has_flush, .. } = region.path() else {
        panic!("{}", region.path())
    };
    println!("{}", region.path());
    // The class follows the device's memory; an adapter that can flush gets an RDMA Flush.
    assert_eq!((class == DurabilityClass::Pmem, is_emulated), (is_device, !is_device));
    let is_native =
        is_device && std::env::var("LANDFAST_RDMA_FLUSH").is_ok_and(|how| how == "native");
    assert_eq!(has_flush, both_are_soft() || is_native);
    assert_eq!(region.orders_atomic_writes(), has_flush);
    for number in 1..=20 {
        let record = [u8::try_from(number).unwrap(); 4096];
        region.write_commit(number * 8192, &record).unwrap();
        region.atomic_write(0, number * 8192).unwrap();
        region.commit(0, 8).unwrap();
        let mut found = [0; 4096];
        medium.read(4096, &mut found[..8]).unwrap();
        assert_eq!(found[..8], (number * 8192).to_le_bytes());
        medium.read(4096 + number * 8192, &mut found).unwrap();
        assert_eq!(found, record);
    }
}

#[test]
fn an_invalid_region_is_refused_with_advice() {
    let fixture = Fixture::start("/dev/shm", |_| {});
    fixture.file(8192);
    let client = fixture.client();
    let refused = |range, settings| {
        client.map("region", &pushing(), range, settings).unwrap_err().to_string()
    };
    assert_eq!(
        refused(4096..8193, settings()),
        "the file has 8192 bytes and the region ends at 8193: lengthen it by set_len first"
    );
    refused(0..u64::MAX, settings());
    assert_eq!(
        refused(8192..8192, settings()),
        "nothing lies in 8192..8192: a region has at least one byte"
    );
    #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
    refused(8192..4096, settings());
    refused(0..8192, RegionSettings { unconfirmed_bytes: 0, ..settings() });
    // None of the refused requests left anything behind.
    let region = client.map("region", &pushing(), 0..8192, settings()).unwrap();
    assert!(matches!(region.path(), Path::Push { .. }), "{}", region.path());
}

#[test]
fn another_client_gets_the_file_after_a_recall_without_loss() {
    let fixture = Fixture::start("/dev/shm", |config| {
        config.push.grace = Duration::from_millis(500);
    });
    let path = fixture.file(1 << 20);
    let holder = fixture.client();
    let mut region = holder.map("region", &pushing(), 0..(1 << 20), settings()).unwrap();
    region.write_commit(0, &[1; 4096]).unwrap();
    assert!(matches!(region.path(), Path::Push { .. }), "{:?}", region.path());
    // The other client opens the file while the holder goes on: the lease is broken, the region
    // returned or taken, and the holder continues over SMB.
    let other = fixture.client();
    let opening = std::thread::spawn(move || {
        let file = other.open("region", &OpenOptions::read_write()).unwrap();
        let mut out = [0; 4096];
        file.read_at(0, &mut out).unwrap();
        (other, file, out)
    });
    let mut last = 1;
    // Well before the server's timeout for the holder, which has to answer the break.
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !opening.is_finished() {
        assert!(std::time::Instant::now() < deadline, "the break is acknowledged");
        last = 1 + last % 200;
        region.write_commit(4096, &[last; 4096]).unwrap();
    }
    let (_other, _file, out) = opening.join().unwrap();
    assert_eq!(out, [1; 4096]);
    region.write_commit(8192, &[9; 4096]).unwrap();
    assert!(matches!(region.path(), Path::Messages { .. }), "{:?}", region.path());
    assert_eq!(bytes_at(&path, 4096, 4096), [last; 4096]);
    assert_eq!(bytes_at(&path, 8192, 4096), [9; 4096]);
    assert_eq!(fixture.running.status().regions, 0);
}

#[test]
fn an_unmapped_region_delays_no_client_that_waits_for_its_lease() {
    let fixture = Fixture::start("/dev/shm", |config| config.rdma_listen = None);
    fixture.file(1 << 20);
    let holder = fixture.client();
    let region = holder.map("region", &pushing(), 0..(1 << 20), settings()).unwrap();
    assert!(matches!(region.path(), Path::Messages { .. }), "{:?}", region.path());
    let began = std::time::Instant::now();
    let other = fixture.client();
    let _file = other.open("region", &OpenOptions::read_write()).unwrap();
    // Below the 35 seconds after which a server takes a lease by force.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[test]
fn a_client_that_ignores_a_recall_loses_its_region_to_smb() {
    let fixture = Fixture::start("/dev/shm", |config| {
        config.push.grace = Duration::from_millis(100);
        config.limits.break_timeout = Duration::from_millis(200);
    });
    let path = fixture.file(8192);
    let holder = fixture.client();
    let mut region = holder.map("region", &pushing(), 0..8192, settings()).unwrap();
    region.write_commit(0, &[1; 4096]).unwrap();
    // The holder's thread is busy: it neither unmaps nor acknowledges.
    let other = fixture.client();
    let file = other.open("region", &OpenOptions::read_write()).unwrap();
    file.write_at(4096, &[2; 4096]).unwrap();
    region.write_commit(0, &[3; 100]).unwrap();
    assert!(matches!(region.path(), Path::Messages { .. }), "{:?}", region.path());
    assert_eq!(bytes_at(&path, 0, 100), [3; 100]);
    assert_eq!(bytes_at(&path, 4096, 4096), [2; 4096]);
}

#[test]
fn uncommitted_bytes_of_an_idle_holder_overwrite_nothing_of_the_next() {
    let fixture = Fixture::start("/dev/shm", |config| {
        config.push.grace = Duration::from_millis(100);
    });
    let path = fixture.file(1 << 20);
    let holder = fixture.client();
    let mut region = holder.map("region", &pushing(), 0..(1 << 20), settings()).unwrap();
    region.write(0, b"the holder's older bytes").unwrap();
    // The answer to this read shows that the bytes are in the file.
    region.read(0, &mut [0; 8]).unwrap();
    let other = fixture.client();
    let file = other.open("region", &OpenOptions::read_write()).unwrap();
    file.write_at(0, b"the other's newer bytes!").unwrap();
    file.flush().unwrap();
    file.close().unwrap();
    let elsewhere = region.write_commit(8192, b"elsewhere");
    assert!(matches!(elsewhere, Err(RegionError::Broken)), "{elsewhere:?}");
    assert_eq!(bytes_at(&path, 0, 24), b"the other's newer bytes!");
    assert_eq!(region.lost().first(), Some(&(0..24)));
    // A new open of the file works again.
    drop(region);
    let mut region = holder.map("region", &pushing(), 0..(1 << 20), settings()).unwrap();
    region.write_commit(8192, b"elsewhere").unwrap();
    assert_eq!(bytes_at(&path, 8192, 9), b"elsewhere");
}

/// Ends the connections of this process to `server`, as a way that resets them does.
fn cut(server: std::net::SocketAddr) {
    let own = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).unwrap();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let number = entry.unwrap().file_name().to_str().unwrap().parse().unwrap();
        let copy = rustix::process::pidfd_getfd(&own, number, PidfdGetfdFlags::empty());
        let peer = copy.ok().map(|copy| (rustix::net::getpeername(&copy), copy));
        if let Some((Ok(Some(peer)), copy)) = peer
            && std::net::SocketAddr::try_from(peer) == Ok(server)
        {
            rustix::net::shutdown(copy, rustix::net::Shutdown::Both).unwrap();
        }
    }
}

#[test]
fn a_region_of_a_file_opened_alone_loses_nothing_with_its_connection_and_is_pushed_again() {
    if !both_are_soft() {
        return;
    }
    let fixture = Fixture::start("/dev/shm", |_| {});
    let path = fixture.file(8192);
    let client = fixture.client();
    let alone = OpenOptions { share: ShareAccess::empty(), ..pushing() };
    let mut region = client.map("region", &alone, 0..8192, settings()).unwrap();
    region.write_commit(0, b"committed").unwrap();
    region.write(16, b"not committed").unwrap();
    cut(fixture.running.rdma_address().unwrap());
    region.commit(16, 13).unwrap();
    assert_eq!(bytes_at(&path, 0, 29), b"committed\0\0\0\0\0\0\0not committed");
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !matches!(region.path(), Path::Push { .. }) {
        assert!(std::time::Instant::now() < deadline, "{}", region.path());
        region.write_commit(0, b"committed").unwrap();
    }
    // Nobody else has got in.
    let refused = fixture.client().open("region", &OpenOptions::read()).err();
    assert_eq!(refused.and_then(|error| error.status()), Some(NtStatus::SHARING_VIOLATION));
}

#[test]
fn a_region_that_push_mode_was_refused_at_first_is_written_again_like_any_other() {
    if !both_are_soft() {
        return;
    }
    let fixture = Fixture::start("/dev/shm", |_| {});
    let path = fixture.file(8192);
    let (client, other) = (fixture.client(), fixture.client());
    let held = other.open("region", &OpenOptions::read()).unwrap();
    let mut region = client.map("region", &pushing(), 0..8192, settings()).unwrap();
    assert!(matches!(region.path(), Path::Messages { .. }), "{}", region.path());
    held.close().unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !matches!(region.path(), Path::Push { .. }) {
        assert!(std::time::Instant::now() < deadline, "{}", region.path());
        region.write_commit(0, b"committed").unwrap();
    }
    region.write(16, b"not committed").unwrap();
    cut(fixture.running.rdma_address().unwrap());
    region.commit(16, 13).unwrap();
    assert_eq!(bytes_at(&path, 0, 29), b"committed\0\0\0\0\0\0\0not committed");
}

#[test]
fn a_write_that_many_requests_write_again_is_whole() {
    if !both_are_soft() {
        return;
    }
    let fixture = Fixture::start("/dev/shm", |_| {});
    let len = 5 << 20;
    let path = fixture.file(len);
    let client = fixture.client();
    let much = RegionSettings { unconfirmed_bytes: 8 << 20, ..settings() };
    let mut region = client.map("region", &pushing(), 0..len, much).unwrap();
    let bytes: Vec<u8> = (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect();
    region.write(0, &bytes).unwrap();
    cut(fixture.running.rdma_address().unwrap());
    region.commit(0, len).unwrap();
    assert!(matches!(region.path(), Path::Messages { .. }), "{}", region.path());
    assert!(bytes_at(&path, 0, bytes.len()) == bytes, "something is missing");
}

#[test]
fn mapping_a_renamed_file_again_creates_no_new_file() {
    let fixture = Fixture::start("/dev/shm", |_| {});
    let path = fixture.file(8192);
    let holder = fixture.client();
    let mut region = holder.map("region", &pushing(), 0..8192, settings()).unwrap();
    region.write_commit(0, &[1; 100]).unwrap();
    let other = fixture.client();
    let renaming = std::thread::spawn(move || other.rename("region", "moved", false));
    let refused = FallbackReason::Refused(NtStatus::OBJECT_NAME_NOT_FOUND);
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while region.path().reason() != Some(refused) {
        assert!(std::time::Instant::now() < deadline, "{}", region.path());
        region.write_commit(0, &[2; 100]).unwrap();
    }
    renaming.join().unwrap().unwrap();
    assert!(!path.exists(), "nobody asked for a new file");
    assert_eq!(bytes_at(&fixture.share.path().join("moved"), 0, 100), [2; 100]);
}

#[test]
fn a_mapped_file_is_deleted_after_its_region_has_ended() {
    let fixture = Fixture::start("/dev/shm", |config| {
        config.push.grace = Duration::from_millis(100);
        config.limits.break_timeout = Duration::from_millis(200);
    });
    let path = fixture.file(8192);
    let client = fixture.client();
    let region = client.map("region", &pushing(), 0..8192, settings()).unwrap();
    assert!(matches!(region.path(), Path::Push { .. }), "{:?}", region.path());
    let other = fixture.client();
    other.delete("region").unwrap();
    assert_eq!(fixture.running.status().regions, 0);
    drop(region);
    drop(client);
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while path.exists() {
        assert!(std::time::Instant::now() < deadline, "deleted with its last handle");
        std::thread::yield_now();
    }
}

#[test]
fn a_share_that_requires_encryption_is_not_pushed_with_reason() {
    let fixture = Fixture::start("/dev/shm", |config| config.shares[0].encrypt_required = true);
    fixture.file(8192);
    let client = fixture.client();
    let mut region = client.map("region", &pushing(), 0..8192, settings()).unwrap();
    assert!(matches!(region.path(), Path::Messages { .. }), "{:?}", region.path());
    region.write_commit(0, &[1; 100]).unwrap();
}

#[test]
fn a_client_that_requires_encryption_pushes_nothing_in_the_clear() {
    let fixture = Fixture::start("/dev/shm", |_| {});
    fixture.file(8192);
    let options = ConnectOptions { encryption: Protection::Required, ..ConnectOptions::default() };
    let client = blocking::Client::connect(&fixture.url(), &options).unwrap();
    let mut region = client.map("region", &pushing(), 0..8192, settings()).unwrap();
    let Path::Messages { reason, .. } = region.path() else { panic!("{}", region.path()) };
    assert!(matches!(reason, FallbackReason::ConfigEncrypted), "{reason}");
    region.write_commit(0, &[1; 100]).unwrap();
    assert_eq!(fixture.running.status().push_connections, 0);
}

#[test]
fn a_client_that_vanishes_leaves_no_region_behind() {
    let fixture = Fixture::start("/dev/shm", |_| {});
    let path = fixture.file(8192);
    let client = fixture.client();
    let mut region = client.map("region", &pushing(), 0..8192, settings()).unwrap();
    region.write_commit(0, &[1; 100]).unwrap();
    drop(region);
    drop(client);
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let status = fixture.running.status();
        if (status.regions, status.push_connections, status.opens) == (0, 0, 0) {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{status:?}");
        std::thread::yield_now();
    }
    assert_eq!(bytes_at(&path, 0, 100), [1; 100]);
}

#[test]
fn a_region_ends_when_its_share_starts_to_require_encryption() {
    let fixture = Fixture::start("/dev/shm", |_| {});
    let path = fixture.file(8192);
    let client = fixture.client();
    let mut region = client.map("region", &pushing(), 0..8192, settings()).unwrap();
    assert!(matches!(region.path(), Path::Push { .. }), "{}", region.path());
    region.write_commit(0, &[7; 4096]).unwrap();
    let mut share = ShareConfig::new("share", fixture.share.path());
    (share.emulate_persistence, share.encrypt_required) = (true, true);
    let users = Users::with_passwords([("user", "secret")]);
    let reloaded = fixture.runtime.block_on(fixture.running.reload(users, vec![share])).unwrap();
    assert_eq!(reloaded.sessions_ended, 1);
    assert_eq!(fixture.running.status().regions, 0);
    region.write_commit(0, &[9; 4096]).unwrap_err();
    assert_eq!(bytes_at(&path, 0, 4096), [7; 4096]);
}
