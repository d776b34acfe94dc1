//! Handles that clients only cache: what is done with the file of a stream, or a directory above, asks for them first.

use std::time::{Duration, Instant};

use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, CreateRequestContext,
    DurableRequestV2, Lease, LeaseKey, LeaseState, LeaseVersion, OplockLevel, ShareAccess,
};
use smb::info::{FileInfoClass, RenameFlags};
use smb::{BreakNotification, Command, FileId, Guid, LeaseBreakAck, NtStatus};

use crate::support::{Fixture, Wire, new_name, set};

const ALL: ShareAccess = ShareAccess::READ.union(ShareAccess::WRITE).union(ShareAccess::DELETE);
const NO_DELETE: ShareAccess = ShareAccess::READ.union(ShareAccess::WRITE);
const KEPT: LeaseState = LeaseState::READ.union(LeaseState::WRITE);
const REPLACE: RenameFlags = RenameFlags::REPLACE_IF_EXISTS;

/// To cache all there is to cache under the lease `key`.
fn leased(request: &mut CreateRequest<'_>, key: u8) {
    request.oplock_level = OplockLevel::LEASE;
    request.contexts.push(CreateRequestContext::Lease(Lease {
        key: LeaseKey([key; 16]),
        state: KEPT | LeaseState::HANDLE,
        break_in_progress: false,
        version: LeaseVersion::V2 { parent: None, epoch: 0 },
    }));
}

/// Opens `name`, sharing `shares`, and caches the handle under the lease `key`.
fn caches(wire: &mut Wire, name: &str, key: u8, shares: ShareAccess) -> FileId {
    let opened = wire.open(name, |request| {
        request.share_access = shares;
        leased(request, key);
    });
    assert_eq!(opened.status, NtStatus::SUCCESS);
    opened.id
}

/// Opens what is there as an application does, with nothing cached.
fn opens(wire: &mut Wire, name: &str) -> FileId {
    let opened = wire.open(name, |open| open.disposition = CreateDisposition::OPEN);
    assert_eq!(opened.status, NtStatus::SUCCESS);
    opened.id
}

fn makes(wire: &mut Wire, names: &[&str]) {
    for name in names {
        let id = wire.open(name, |_| {}).id;
        assert_eq!(wire.close(id), NtStatus::SUCCESS);
    }
}

/// The next break is of a lease, and of cached handles alone: its key.
fn is_asked(wire: &mut Wire) -> LeaseKey {
    let (_, pdu) = wire.notification();
    let BreakNotification::Lease(broken) = BreakNotification::parse(&pdu).unwrap() else {
        panic!("a lease is broken as a lease")
    };
    assert_eq!(broken.new, KEPT);
    broken.lease_key
}

/// The application still uses the handle: only that closed ones are kept ends.
fn keeps_it_open(wire: &mut Wire, lease_key: LeaseKey) {
    let ack = LeaseBreakAck { lease_key, state: KEPT };
    let (header, _) = wire.ask(Command::OPLOCK_BREAK, |out| ack.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
}

fn start_set(wire: &mut Wire, id: FileId, class: FileInfoClass, buffer: &[u8]) -> u64 {
    wire.start(Command::SET_INFO, |out| set(id, class, buffer).emit(out))
}

fn finish(wire: &mut Wire, id: u64) -> NtStatus {
    wire.answer_to(id).0.status
}

fn until(what: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !what() {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
}

fn has(fixture: &Fixture, name: &str) -> bool {
    fixture.dir.path().join(name).exists()
}

#[test]
fn an_overwrite_waits_for_cached_handles_of_streams() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    makes(&mut one, &["f", "f:s"]);
    let cached = [("f:s", 1), ("f:t", 2)].map(|(name, key)| caches(&mut one, name, key, ALL));
    let waits = two.start_open("f", |open| open.disposition = CreateDisposition::OVERWRITE);
    for _ in cached {
        is_asked(&mut one);
    }
    for id in cached {
        assert_eq!(one.close(id), NtStatus::SUCCESS);
    }
    assert_eq!(two.finish_open(waits).status, NtStatus::SUCCESS);
    let gone = one.open("f:s", |open| open.disposition = CreateDisposition::OPEN);
    assert_eq!(gone.status, NtStatus::OBJECT_NAME_NOT_FOUND);
}

#[test]
fn an_open_with_delete_waits_for_cached_handles_that_share_none() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    let cached = caches(&mut one, "f:s", 1, NO_DELETE);
    let in_use = caches(&mut one, "f:t", 2, NO_DELETE);
    let waits = two.start_open("f", |_| {});
    let keys = [is_asked(&mut one), is_asked(&mut one)];
    assert_eq!(one.close(cached), NtStatus::SUCCESS);
    let key = LeaseKey([2; 16]);
    assert!(keys.contains(&key));
    keeps_it_open(&mut one, key);
    assert_eq!(two.finish_open(waits).status, NtStatus::SHARING_VIOLATION);
    assert_eq!(one.close(in_use), NtStatus::SUCCESS);

    let cached = caches(&mut one, "f:s", 3, NO_DELETE);
    let waits = two.start_open("f", |_| {});
    is_asked(&mut one);
    assert_eq!(one.close(cached), NtStatus::SUCCESS);
    assert_eq!(two.finish_open(waits).status, NtStatus::SUCCESS);
}

#[test]
fn an_open_leaves_cached_handles_of_streams_that_are_not_in_its_way() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    caches(&mut one, "f:s", 1, ALL);
    let deletes = opens(&mut two, "f");
    assert_eq!(two.close(deletes), NtStatus::SUCCESS);
    caches(&mut one, "f:t", 2, NO_DELETE);
    let reads = two.open("f", |open| open.desired_access = AccessMask::FILE_GENERIC_READ);
    assert_eq!(reads.status, NtStatus::SUCCESS);
    // What it was asked came before this is answered.
    makes(&mut one, &["g"]);
    assert!(one.unsolicited.is_empty());
}

#[test]
fn a_stream_without_delete_sharing_waits_for_cached_handles_of_its_file() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    let exclusive = |open: &mut CreateRequest<'_>| open.share_access = NO_DELETE;
    // The first of them makes the stream, the second finds it.
    for key in [1, 2] {
        let cached = caches(&mut one, "f", key, ALL);
        let waits = two.start_open("f:s", exclusive);
        is_asked(&mut one);
        assert_eq!(one.close(cached), NtStatus::SUCCESS);
        let opened = two.finish_open(waits);
        assert_eq!(opened.status, NtStatus::SUCCESS);
        assert_eq!(two.close(opened.id), NtStatus::SUCCESS);
    }
    caches(&mut one, "f", 3, ALL);
    let waits = two.start_open("f:s", exclusive);
    let key = is_asked(&mut one);
    keeps_it_open(&mut one, key);
    assert_eq!(two.finish_open(waits).status, NtStatus::SHARING_VIOLATION);
}

#[test]
fn a_rename_waits_for_cached_handles_of_streams() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    let cached = [("f:s", 1), ("f:t", 2)].map(|(name, key)| caches(&mut one, name, key, ALL));
    let file = opens(&mut two, "f");
    let to = new_name("g", RenameFlags::empty());
    let waits = start_set(&mut two, file, FileInfoClass::RENAME, &to);
    for _ in cached {
        is_asked(&mut one);
    }
    for id in cached {
        assert_eq!(one.close(id), NtStatus::SUCCESS);
    }
    assert_eq!(finish(&mut two, waits), NtStatus::SUCCESS);
    assert_eq!((has(&fixture, "f"), has(&fixture, "g")), (false, true));
    opens(&mut one, "g:s");
}

#[test]
fn a_rename_is_refused_where_a_stream_stays_open() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    caches(&mut one, "f:s", 1, ALL);
    let file = opens(&mut two, "f");
    let to = new_name("g", RenameFlags::empty());
    let waits = start_set(&mut two, file, FileInfoClass::RENAME, &to);
    let key = is_asked(&mut one);
    keeps_it_open(&mut one, key);
    assert_eq!(finish(&mut two, waits), NtStatus::ACCESS_DENIED);
    assert!(has(&fixture, "f"));
}

#[test]
fn a_rename_waits_for_a_batch_oplock_of_a_stream() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    let cached = one.open("f:s", |open| open.oplock_level = OplockLevel::BATCH);
    assert_eq!(cached.response().oplock_level, OplockLevel::BATCH);
    let file = opens(&mut two, "f");
    let to = new_name("g", RenameFlags::empty());
    let waits = start_set(&mut two, file, FileInfoClass::RENAME, &to);
    let (_, pdu) = one.notification();
    let BreakNotification::Oplock(broken) = BreakNotification::parse(&pdu).unwrap() else {
        panic!("an oplock is broken as an oplock")
    };
    assert_eq!((broken.file_id, broken.level), (cached.id, OplockLevel::II));
    assert_eq!(one.close(cached.id), NtStatus::SUCCESS);
    assert_eq!(finish(&mut two, waits), NtStatus::SUCCESS);
}

#[test]
fn a_rename_or_link_over_a_file_waits_for_cached_handles_of_its_streams() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    makes(&mut two, &["f"]);
    for (class, key) in [(FileInfoClass::LINK, 1), (FileInfoClass::RENAME, 2)] {
        let cached = caches(&mut one, "g:s", key, ALL);
        let file = opens(&mut two, "f");
        let waits = start_set(&mut two, file, class, &new_name("g", REPLACE));
        is_asked(&mut one);
        assert_eq!(one.close(cached), NtStatus::SUCCESS);
        assert_eq!(finish(&mut two, waits), NtStatus::SUCCESS);
        assert_eq!(two.close(file), NtStatus::SUCCESS);
        let gone = one.open("g:s", |open| open.disposition = CreateDisposition::OPEN);
        assert_eq!(gone.status, NtStatus::OBJECT_NAME_NOT_FOUND);
        if class == FileInfoClass::LINK {
            std::fs::remove_file(fixture.dir.path().join("g")).unwrap();
        }
    }
}

#[test]
fn a_deletion_asks_for_cached_handles_of_streams_and_does_not_wait() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    let cached = caches(&mut one, "f:s", 1, ALL);
    let file = opens(&mut two, "f");
    assert_eq!(two.set(file, FileInfoClass::DISPOSITION, &[1]), NtStatus::SUCCESS);
    is_asked(&mut one);
    assert_eq!(two.close(file), NtStatus::SUCCESS);
    assert!(has(&fixture, "f"), "its stream is open");
    assert_eq!(one.close(cached), NtStatus::SUCCESS);
    assert!(!has(&fixture, "f"));
}

#[test]
fn an_open_that_deletes_on_close_waits_for_cached_handles_of_streams() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    let cached = caches(&mut one, "f:s", 1, ALL);
    let waits = two.start_open("f", |open| open.options = CreateOptions::DELETE_ON_CLOSE);
    is_asked(&mut one);
    assert_eq!(one.close(cached), NtStatus::SUCCESS);
    let opened = two.finish_open(waits);
    assert_eq!(opened.status, NtStatus::SUCCESS);
    assert_eq!(two.close(opened.id), NtStatus::SUCCESS);
    assert!(!has(&fixture, "f"));
}

#[test]
fn a_disconnected_handle_of_a_stream_gives_way_to_renames_and_deletions() {
    let fixture = Fixture::start();
    let mut two = fixture.client(2);
    let asked = DurableRequestV2 { timeout_ms: 0, persistent: false, create_guid: Guid([5; 16]) };
    let loses = |name: &str| {
        let mut one = fixture.client(1);
        let opened = one.open(name, |request| {
            leased(request, 1);
            request.contexts.push(CreateRequestContext::DurableV2(asked));
        });
        assert_eq!(opened.status, NtStatus::SUCCESS);
        drop(one);
        until(|| fixture.running.status().orphans == 1);
    };
    loses("f:s");
    let file = opens(&mut two, "f");
    assert_eq!(two.rename(file, "g", RenameFlags::empty()), NtStatus::SUCCESS);
    assert_eq!(fixture.running.status().orphans, 0);
    loses("g:s");
    assert_eq!(two.set(file, FileInfoClass::DISPOSITION, &[1]), NtStatus::SUCCESS);
    assert_eq!(two.close(file), NtStatus::SUCCESS);
    until(|| !has(&fixture, "g"));
}

#[test]
fn a_stream_opened_for_attributes_alone_excludes_no_deletion() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    makes(&mut one, &["f:s"]);
    let looks = |open: &mut CreateRequest<'_>| {
        open.desired_access = AccessMask::READ_ATTRIBUTES;
        open.share_access = ShareAccess::empty();
    };
    assert_eq!(one.open("f:s", looks).status, NtStatus::SUCCESS);
    opens(&mut two, "f");
    assert_eq!(one.open("f:s", looks).status, NtStatus::SUCCESS);
}

#[test]
fn the_rename_of_a_directory_waits_for_cached_handles_below() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    std::fs::create_dir_all(fixture.dir.path().join("d/e")).unwrap();
    makes(&mut two, &["d\\g"]);
    let names = [("d\\f", 1), ("d\\e\\f", 2), ("d\\g:s", 3)];
    let cached = names.map(|(name, key)| caches(&mut one, name, key, ALL));
    let beside = caches(&mut one, "f", 4, ALL);
    let directory = opens(&mut two, "d");
    let to = new_name("to", RenameFlags::empty());
    let waits = start_set(&mut two, directory, FileInfoClass::RENAME, &to);
    let mut asked = names.map(|_| is_asked(&mut one).0[0]);
    asked.sort_unstable();
    assert_eq!(asked, [1, 2, 3]);
    for id in cached {
        assert_eq!(one.close(id), NtStatus::SUCCESS);
    }
    assert_eq!(finish(&mut two, waits), NtStatus::SUCCESS);
    assert_eq!((has(&fixture, "d"), has(&fixture, "to/e/f")), (false, true));
    assert_eq!(one.close(beside), NtStatus::SUCCESS);
    assert!(one.unsolicited.is_empty(), "what is beside the directory is not asked for");
}

#[test]
fn the_rename_of_a_directory_is_refused_where_a_file_below_stays_open() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    std::fs::create_dir(fixture.dir.path().join("d")).unwrap();
    let used = caches(&mut one, "d\\f", 1, ALL);
    let directory = opens(&mut two, "d");
    let to = new_name("to", RenameFlags::empty());
    let waits = start_set(&mut two, directory, FileInfoClass::RENAME, &to);
    let key = is_asked(&mut one);
    keeps_it_open(&mut one, key);
    assert_eq!(finish(&mut two, waits), NtStatus::ACCESS_DENIED);
    assert_eq!(one.close(used), NtStatus::SUCCESS);
    assert_eq!(two.rename(directory, "to", RenameFlags::empty()), NtStatus::SUCCESS);
}

#[test]
fn a_disconnected_handle_below_a_directory_gives_way_to_its_rename() {
    let fixture = Fixture::start();
    let mut two = fixture.client(2);
    std::fs::create_dir(fixture.dir.path().join("d")).unwrap();
    let mut one = fixture.client(1);
    let asked = DurableRequestV2 { timeout_ms: 0, persistent: false, create_guid: Guid([5; 16]) };
    let opened = one.open("d\\f", |request| {
        leased(request, 1);
        request.contexts.push(CreateRequestContext::DurableV2(asked));
    });
    assert_eq!(opened.status, NtStatus::SUCCESS);
    drop(one);
    until(|| fixture.running.status().orphans == 1);
    let directory = opens(&mut two, "d");
    assert_eq!(two.rename(directory, "to", RenameFlags::empty()), NtStatus::SUCCESS);
    assert_eq!(fixture.running.status().orphans, 0);
}

#[test]
fn a_file_deleted_on_close_waits_for_no_handle_that_is_only_cached() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    for name in ["f", "f:s"] {
        makes(&mut one, &["f", "f:s"]);
        let deletes = two.open("f", |open| open.options = CreateOptions::DELETE_ON_CLOSE).id;
        let opened = one.open(name, |request| {
            request.disposition = CreateDisposition::OPEN;
            leased(request, 1);
        });
        assert_eq!(opened.status, NtStatus::SUCCESS);
        assert_eq!(two.close(deletes), NtStatus::SUCCESS);
        one.notification();
        assert!(has(&fixture, "f"), "{name}");
        assert_eq!(one.close(opened.id), NtStatus::SUCCESS);
        until(|| !has(&fixture, "f"));
    }
}
