//! Handles that outlive the server.

use std::net::Shutdown;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use server::{ServerConfig, ShareConfig};
use smb::create::{
    CreateOptions, CreateRequestContext, CreateResponseContext, DurableReconnectV2,
    DurableRequestV2, Lease, LeaseKey, LeaseState, LeaseVersion, OplockLevel, ShareAccess,
};
use smb::info::{FileInfoClass, RenameFlags};
use smb::{
    BreakNotification, Command, Empty, FileId, Guid, LeaseBreakAck, LockElement, LockFlags,
    LockRequest, NtStatus,
};

use crate::support::crash::Writing;
use crate::support::skipped::skip;
use crate::support::{Fixture, Opened, Wire, new_name, read, set};

const GUID: Guid = Guid([5; 16]);

fn lease() -> Lease {
    let version = LeaseVersion::V2 { parent: None, epoch: 0 };
    let state = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
    Lease { key: LeaseKey([1; 16]), state, break_in_progress: false, version }
}

fn open_persistent(wire: &mut Wire, name: &str) -> Opened {
    let asked = DurableRequestV2 { timeout_ms: 0, persistent: true, create_guid: GUID };
    wire.open(name, |request| {
        request.oplock_level = OplockLevel::LEASE;
        request.share_access = ShareAccess::empty();
        request.contexts.push(CreateRequestContext::Lease(lease()));
        request.contexts.push(CreateRequestContext::DurableV2(asked));
    })
}

fn take_back(wire: &mut Wire, name: &str, file_id: FileId) -> Opened {
    let back = DurableReconnectV2 { file_id, create_guid: GUID, persistent: true };
    wire.open(name, |request| {
        request.oplock_level = OplockLevel::LEASE;
        request.contexts.push(CreateRequestContext::Lease(lease()));
        request.contexts.push(CreateRequestContext::DurableReconnectV2(back));
    })
}

fn is_persistent(opened: &Opened) -> bool {
    opened
        .response()
        .contexts
        .iter()
        .any(|context| matches!(context, CreateResponseContext::DurableV2 { persistent: true, .. }))
}

fn granted(opened: &Opened) -> Option<LeaseState> {
    opened.response().contexts.iter().find_map(|context| match context {
        CreateResponseContext::Lease(lease) => Some(lease.state),
        _ => None,
    })
}

#[test]
fn a_persistent_open_is_there_after_a_crash_with_its_share_mode_and_its_lease() {
    let server = Writing::start();
    let mut one = server.fixture.client(1);
    let opened = open_persistent(&mut one, "f");
    assert!(is_persistent(&opened));
    let after = server.crash();
    assert_eq!(after.fixture.running.status().orphans, 1);
    // It shares with nobody, and its lease is asked for in vain until it is taken back.
    let mut again = after.fixture.client(1);
    let back = take_back(&mut again, "f", opened.id);
    assert_eq!(back.status, NtStatus::SUCCESS);
    assert_eq!(back.id.persistent, opened.id.persistent);
    assert_eq!(granted(&back), Some(lease().state));
    assert_eq!(again.close(back.id), NtStatus::SUCCESS);
    assert_eq!(after.fixture.running.status().files, 0);
}

#[test]
fn a_persistent_open_comes_back_after_a_boot_from_where_nothing_was_lost() {
    let places = [(Path::new("/var/tmp"), true), (Path::new("/dev/shm"), false)];
    for (place, comes_back) in places {
        let server = Writing::start_in(place);
        let mut one = server.fixture.client(1);
        let opened = open_persistent(&mut one, "f");
        assert!(is_persistent(&opened));
        assert_eq!(one.write(opened.id, b"answered"), NtStatus::SUCCESS);
        let after = server.reboot();
        let back = take_back(&mut after.fixture.client(1), "f", opened.id);
        assert_eq!(back.status == NtStatus::SUCCESS, comes_back, "{}", place.display());
        // A crash of the server alone takes nothing from memory.
        assert_eq!(server.crash().fixture.running.status().orphans, 1);
    }
}

#[test]
fn an_open_of_a_server_that_did_not_write_through_does_not_come_back() {
    let server = Writing::start_on_disk();
    let mut one = server.fixture.client(1);
    let opened = open_persistent(&mut one, "f");
    assert!(is_persistent(&opened));
    assert_eq!(server.crash_of_an_older_server().fixture.running.status().orphans, 0);
}

#[test]
fn who_comes_back_is_asked_for_what_somebody_waits_for() {
    let server = Writing::start();
    for is_lost in [true, false] {
        let mut one = server.fixture.client(1);
        let opened = open_persistent(&mut one, "f");
        let mut other = server.fixture.client(2);
        // Asked while nobody is there to be told, or over a connection that tells nobody.
        if is_lost {
            one.stream.shutdown(Shutdown::Both).unwrap();
            while server.fixture.running.status().orphans == 0 {
                std::thread::yield_now();
            }
        }
        let waiting = other.start_open("f", |_| {});
        assert_eq!(other.receive().0.status, NtStatus::PENDING);
        let mut again = server.fixture.again(1, &one);
        let back = take_back(&mut again, "f", opened.id);
        assert_eq!(back.status, NtStatus::SUCCESS);
        let (_, pdu) = again.notification();
        assert!(matches!(BreakNotification::parse(&pdu), Ok(BreakNotification::Lease(_))));
        assert_eq!(again.close(back.id), NtStatus::SUCCESS);
        assert_eq!(other.finish_open(waiting).status, NtStatus::SUCCESS);
        other.ask(Command::LOGOFF, |out| Empty.emit(out));
    }
}

#[test]
fn a_lease_that_comes_back_after_a_crash_counts_on_from_what_its_client_knows() {
    let server = Writing::start();
    let opened = open_persistent(&mut server.fixture.client(1), "f");
    let after = server.crash();
    let mut again = after.fixture.client(1);
    let known = 7;
    let version = LeaseVersion::V2 { parent: None, epoch: known };
    let back = DurableReconnectV2 { file_id: opened.id, create_guid: GUID, persistent: true };
    let back = again.open("f", |request| {
        request.oplock_level = OplockLevel::LEASE;
        request.contexts.push(CreateRequestContext::Lease(Lease { version, ..lease() }));
        request.contexts.push(CreateRequestContext::DurableReconnectV2(back));
    });
    let told = back.response().contexts.iter().find_map(|context| match context {
        CreateResponseContext::Lease(lease) => Some(lease.version),
        _ => None,
    });
    assert_eq!(told, Some(version), "its state is what the client says");
    let mut other = after.fixture.client(2);
    let asked = other.start_open("f", |_| {});
    let (_, notice) = again.notification();
    let Ok(BreakNotification::Lease(notice)) = BreakNotification::parse(&notice) else {
        panic!("a break of the lease")
    };
    assert_eq!(notice.epoch, known + 1);
    again.close(back.id);
    assert_eq!(other.finish_open(asked).status, NtStatus::SUCCESS);
}

/// The state and the epoch of the lease in an answer.
fn lease_of(opened: &Opened) -> Option<(LeaseState, u16)> {
    opened.response().contexts.iter().find_map(|context| match context {
        CreateResponseContext::Lease(Lease {
            state,
            version: LeaseVersion::V2 { epoch, .. },
            ..
        }) => Some((*state, *epoch)),
        _ => None,
    })
}

#[test]
fn a_lease_that_was_taken_from_a_client_that_was_away_does_not_come_back_after_a_crash() {
    let server = Writing::start_with(Path::new("/var/tmp"), |config| {
        config.limits.break_timeout = Duration::from_millis(200);
    });
    let mut one = server.fixture.client(1);
    let asked = DurableRequestV2 { timeout_ms: 0, persistent: true, create_guid: GUID };
    let opened = one.open("f", |request| {
        request.oplock_level = OplockLevel::LEASE;
        request.contexts.push(CreateRequestContext::Lease(lease()));
        request.contexts.push(CreateRequestContext::DurableV2(asked));
    });
    assert!(is_persistent(&opened));
    assert_eq!(lease_of(&opened), Some((lease().state, 1)));
    one.stream.shutdown(Shutdown::Both).unwrap();
    while server.fixture.running.status().orphans == 0 {
        std::thread::yield_now();
    }
    // Without a break in between it comes back whole.
    let whole = take_back(&mut server.crash().fixture.client(1), "f", opened.id);
    assert_eq!(lease_of(&whole), Some((lease().state, 1)));
    let mut other = server.fixture.client(2);
    let theirs = other.open("f", |_| {});
    assert_eq!(theirs.status, NtStatus::SUCCESS);
    assert_eq!(other.write(theirs.id, b"newer"), NtStatus::SUCCESS);
    assert_eq!(other.close(theirs.id), NtStatus::SUCCESS);
    let back = take_back(&mut server.crash().fixture.client(1), "f", opened.id);
    assert_eq!(back.status, NtStatus::SUCCESS);
    assert_eq!(lease_of(&back), Some((LeaseState::empty(), 2)));
}

fn open_as_instance(wire: &mut Wire, version: u64) -> Opened {
    let asked = DurableRequestV2 { timeout_ms: 0, persistent: true, create_guid: GUID };
    wire.open("f", |request| {
        request.oplock_level = OplockLevel::LEASE;
        request.contexts.push(CreateRequestContext::Lease(lease()));
        request.contexts.push(CreateRequestContext::DurableV2(asked));
        request.contexts.push(CreateRequestContext::AppInstanceId(Guid([7; 16])));
        request.contexts.push(CreateRequestContext::AppInstanceVersion { high: 0, low: version });
    })
}

#[test]
fn an_instance_of_an_application_keeps_its_place_after_a_crash() {
    let server = Writing::start();
    let mut one = server.fixture.client(1);
    let opened = open_as_instance(&mut one, 8);
    assert!(is_persistent(&opened));
    let after = server.crash();
    let earlier = open_as_instance(&mut after.fixture.client(2), 7);
    assert_eq!(earlier.status, NtStatus::FILE_FORCED_CLOSED);
    assert_eq!(after.fixture.running.status().orphans, 1);
    // A later one does not wait for it, and gets all of its lease.
    let later = open_as_instance(&mut after.fixture.client(3), 9);
    assert_eq!((later.status, granted(&later)), (NtStatus::SUCCESS, Some(lease().state)));
    let back = take_back(&mut after.fixture.client(1), "f", opened.id);
    assert_eq!(back.status, NtStatus::OBJECT_NAME_NOT_FOUND);
}

#[test]
fn what_was_closed_does_not_come_back() {
    let server = Writing::start();
    let mut one = server.fixture.client(1);
    let opened = open_persistent(&mut one, "f");
    assert_eq!(one.close(opened.id), NtStatus::SUCCESS);
    let after = server.crash();
    assert_eq!(after.fixture.running.status().orphans, 0);
}

#[test]
fn a_persistent_open_whose_user_lost_its_rights_stays_lost() {
    let server = Writing::start();
    let mut one = server.fixture.client(1);
    let opened = open_persistent(&mut one, "f");
    let user = || Some(vec!["user".to_owned()]);
    let reads = server.crash_into(|config| config.shares[0].readers = user());
    assert_eq!(reads.fixture.running.status().orphans, 0);
    let mut again = reads.fixture.client(1);
    assert!(take_back(&mut again, "f", opened.id).status.is_error());
    let frozen = server.crash_into(|config| config.shares[0].read_only = true);
    assert_eq!(frozen.fixture.running.status().orphans, 0);
    let gone = server.crash_into(|config| config.shares[0].users = Some(vec!["other".to_owned()]));
    assert_eq!(gone.fixture.running.status().orphans, 0);
    // The others would have it back.
    let kept = server.crash_into(|config| config.shares[0].users = user());
    assert_eq!(kept.fixture.running.status().orphans, 1);
}

#[test]
fn a_renamed_file_is_found_again_and_one_put_in_its_place_is_not() {
    let server = Writing::start();
    let mut one = server.fixture.client(1);
    let opened = open_persistent(&mut one, "f");
    assert_eq!(one.rename(opened.id, "g", RenameFlags::empty()), NtStatus::SUCCESS);
    let after = server.crash();
    assert_eq!(take_back(&mut after.fixture.client(1), "g", opened.id).status, NtStatus::SUCCESS);
    drop(after);
    replace(&server.fixture.dir.path().join("g"));
    assert_eq!(server.crash().fixture.running.status().orphans, 0);
}

#[test]
fn a_persistent_open_does_not_come_back_on_another_file_with_the_inode_number_of_its_own() {
    let server = Writing::start_on_disk();
    let path = server.fixture.dir.path().join("f");
    let mut one = server.fixture.client(1);
    let opened = open_persistent(&mut one, "f");
    assert!(is_persistent(&opened));
    let inode = std::fs::metadata(&path).unwrap().ino();
    let opens = server.log.path().join("opens");
    let noted = std::fs::read(&opens).unwrap();
    // The server dies with the open: its handle no longer keeps the number.
    assert_eq!(one.close(opened.id), NtStatus::SUCCESS);
    std::fs::write(&opens, noted).unwrap();
    std::fs::remove_file(&path).unwrap();
    for other in 0..1_000 {
        std::fs::write(&path, "somebody else's").unwrap();
        if std::fs::metadata(&path).unwrap().ino() == inode {
            break;
        }
        std::fs::rename(&path, path.with_extension(other.to_string())).unwrap();
    }
    if !path.exists() {
        skip("the file system of /var/tmp gives no inode number again, as ext4 does");
        return;
    }
    let after = server.crash();
    assert_eq!(after.fixture.running.status().orphans, 0);
    let back = take_back(&mut after.fixture.client(1), "f", opened.id);
    assert_eq!(back.status, NtStatus::OBJECT_NAME_NOT_FOUND);
}

// Another inode under the same name; the first one stays taken.
fn replace(path: &Path) {
    std::fs::rename(path, path.with_extension("old")).unwrap();
    std::fs::write(path, "somebody else's").unwrap();
}

fn locked(wire: &mut Wire, file_id: FileId, sequence: u32, locks: &[(u64, LockFlags)]) -> NtStatus {
    let element = |&(offset, flags)| LockElement { offset, length: 10, flags };
    let locks = locks.iter().map(element).collect();
    let request = LockRequest { lock_sequence: sequence, file_id, locks };
    wire.ask(Command::LOCK, |out| request.emit(out)).0.status
}

fn reads(wire: &mut Wire, file_id: FileId, offset: u64) -> NtStatus {
    wire.ask(Command::READ, |out| read(file_id, offset, 1).emit(out)).0.status
}

#[test]
fn byte_range_locks_are_there_after_a_crash_and_those_given_back_are_not() {
    let server = Writing::start();
    std::fs::write(server.fixture.dir.path().join("f"), [7; 100]).unwrap();
    let mut one = server.fixture.client(1);
    let asked = DurableRequestV2 { timeout_ms: 0, persistent: true, create_guid: GUID };
    // Without a lease: others may have the file open too.
    let opened = one.open("f", |request| {
        request.contexts.push(CreateRequestContext::DurableV2(asked));
    });
    assert!(is_persistent(&opened));
    let alone = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    let shared = LockFlags::SHARED | LockFlags::FAIL_IMMEDIATELY;
    let all = [(0, alone), (20, alone), (40, shared)];
    assert_eq!(locked(&mut one, opened.id, 0x11, &all), NtStatus::SUCCESS);
    // All or none.
    let clash = [(60, alone), (0, alone)];
    assert_eq!(locked(&mut one, opened.id, 0x21, &clash), NtStatus::LOCK_NOT_GRANTED);
    let unlock = [(20, LockFlags::UNLOCK)];
    assert_eq!(locked(&mut one, opened.id, 0x31, &unlock), NtStatus::SUCCESS);
    let after = server.crash();
    let mut other = after.fixture.client(2);
    let id = other.open("f", |_| {}).id;
    let held = NtStatus::FILE_LOCK_CONFLICT;
    let found: Vec<_> = [0, 20, 40, 60].iter().map(|&at| reads(&mut other, id, at)).collect();
    assert_eq!(found, [held, NtStatus::SUCCESS, NtStatus::SUCCESS, NtStatus::SUCCESS]);
    let refused = NtStatus::LOCK_NOT_GRANTED;
    assert_eq!(locked(&mut other, id, 0, &[(40, alone)]), refused, "held by readers");
    assert_eq!(locked(&mut other, id, 0, &[(60, alone)]), NtStatus::SUCCESS, "never taken");
    let back = DurableReconnectV2 { file_id: opened.id, create_guid: GUID, persistent: true };
    let mut again = after.fixture.client(1);
    let back = again.open("f", |request| {
        request.contexts.push(CreateRequestContext::DurableReconnectV2(back));
    });
    assert_eq!(back.status, NtStatus::SUCCESS);
    // The answer may have been lost: asked again nothing is done again.
    assert_eq!(locked(&mut again, back.id, 0x11, &all), NtStatus::SUCCESS);
    assert_eq!(locked(&mut again, back.id, 0x31, &unlock), NtStatus::SUCCESS);
    assert_eq!(reads(&mut again, back.id, 0), NtStatus::SUCCESS);
    assert_eq!(locked(&mut again, back.id, 0, &[(0, LockFlags::UNLOCK)]), NtStatus::SUCCESS);
    assert_eq!(reads(&mut other, id, 0), NtStatus::SUCCESS);
    assert_eq!(again.close(back.id), NtStatus::SUCCESS);
    assert_eq!(locked(&mut other, id, 0, &[(40, alone)]), NtStatus::SUCCESS);
}

#[test]
fn a_crash_before_a_rename_that_was_noted_loses_nothing() {
    let server = Writing::start();
    let mut one = server.fixture.client(1);
    let opened = open_persistent(&mut one, "f");
    assert_eq!(one.rename(opened.id, "g", RenameFlags::empty()), NtStatus::SUCCESS);
    // As if the machine had gone down between the note and the deed.
    let dir = server.fixture.dir.path();
    std::fs::rename(dir.join("g"), dir.join("f")).unwrap();
    let after = server.crash();
    assert_eq!(take_back(&mut after.fixture.client(1), "f", opened.id).status, NtStatus::SUCCESS);
}

#[test]
fn two_renames_by_others_and_a_power_failure_lose_no_persistent_open() {
    let server = Writing::start_on_disk();
    let mut one = server.fixture.client(1);
    // Without a lease: others may have the file open too.
    let asked = DurableRequestV2 { timeout_ms: 0, persistent: true, create_guid: GUID };
    let opened = one.open("f", |request| {
        request.contexts.push(CreateRequestContext::DurableV2(asked));
    });
    assert!(is_persistent(&opened));
    let mut other = server.fixture.client(2);
    let id = other.open("f", |_| {}).id;
    let synced = || server.fixture.running.status().directories_synced;
    assert_eq!(other.rename(id, "g", RenameFlags::empty()), NtStatus::SUCCESS);
    let before = synced();
    assert_eq!(other.rename(id, "h", RenameFlags::empty()), NtStatus::SUCCESS);
    // A power failure takes back what was not synced.
    let durable = if synced() > before { "g" } else { "f" };
    let dir = server.fixture.dir.path();
    std::fs::rename(dir.join("h"), dir.join(durable)).unwrap();
    let back = DurableReconnectV2 { file_id: opened.id, create_guid: GUID, persistent: true };
    let back = server.reboot().fixture.client(1).open(durable, |request| {
        request.contexts.push(CreateRequestContext::DurableReconnectV2(back));
    });
    assert_eq!(back.status, NtStatus::SUCCESS, "{durable}");
}

#[test]
fn a_rename_through_another_share_of_the_directory_loses_no_persistent_open() {
    let log = tempfile::tempdir().unwrap();
    let below = |config: &mut ServerConfig| config.shares[0].path.push("p");
    let fixture = Fixture::start_with(|config| {
        let above = config.shares[0].path.clone();
        below(config);
        let top = config.shares[0].path.clone();
        std::fs::create_dir(&top).unwrap();
        config.shares[0].persistent_opens = Some(log.path().join("opens"));
        config.shares.push(ShareConfig::new("again", top));
        config.shares.push(ShareConfig::new("above", above));
    });
    let server = Writing { fixture, log };
    let mut one = server.fixture.client(1);
    let asked = DurableRequestV2 { timeout_ms: 0, persistent: true, create_guid: GUID };
    let opened = one.open("f", |request| {
        request.contexts.push(CreateRequestContext::DurableV2(asked));
    });
    assert!(is_persistent(&opened));
    for (share, from, to) in [("again", "f", "g"), ("above", "p\\g", "p\\h")] {
        let mut other = server.fixture.client(2);
        assert_eq!(other.enter(share), NtStatus::SUCCESS);
        let id = other.open(from, |_| {}).id;
        assert_eq!(other.rename(id, to, RenameFlags::empty()), NtStatus::SUCCESS, "{share}");
        other.close(id);
    }
    let back = DurableReconnectV2 { file_id: opened.id, create_guid: GUID, persistent: true };
    let back = server.crash_into(below).fixture.client(1).open("h", |request| {
        request.contexts.push(CreateRequestContext::DurableReconnectV2(back));
    });
    assert_eq!(back.status, NtStatus::SUCCESS);
}

#[test]
fn the_bytes_of_a_persistent_open_that_waits_for_a_later_try_are_not_replaced_by_a_stream() {
    let server = Writing::start_on_disk();
    let dir = server.fixture.dir.path();
    std::fs::create_dir(dir.join("d")).unwrap();
    let mut one = server.fixture.client(1);
    let opened = open_persistent(&mut one, "d\\f");
    assert!(is_persistent(&opened));
    // ELOOP stands for whatever keeps the server from looking.
    std::fs::rename(dir.join("d"), dir.join("away")).unwrap();
    std::os::unix::fs::symlink("d", dir.join("d")).unwrap();
    let blind = server.crash_into(|config| {
        let top = config.shares[0].path.clone();
        config.shares.push(ShareConfig::new("again", top));
    });
    let mut other = blind.fixture.client(2);
    let stream = other.open("away\\f:s", |_| {});
    assert_eq!(stream.status, NtStatus::SUCCESS);
    let promoted = other.rename(stream.id, "::$DATA", RenameFlags::REPLACE_IF_EXISTS);
    assert_eq!(promoted, NtStatus::ACCESS_DENIED);
    assert_eq!(other.enter("again"), NtStatus::SUCCESS);
    assert_eq!(other.open("away\\f", |_| {}).status, NtStatus::SHARING_VIOLATION);
    std::fs::remove_file(dir.join("d")).unwrap();
    std::fs::rename(dir.join("away"), dir.join("d")).unwrap();
}

#[test]
fn a_persistent_open_whose_file_cannot_be_reached_waits_for_a_later_try() {
    let server = Writing::start();
    let dir = server.fixture.dir.path();
    std::fs::create_dir(dir.join("d")).unwrap();
    let mut one = server.fixture.client(1);
    let opened = open_persistent(&mut one, "d\\f");
    assert!(is_persistent(&opened));
    // ELOOP stands for whatever keeps the server from looking.
    let hide = || {
        std::fs::rename(dir.join("d"), dir.join("away")).unwrap();
        std::os::unix::fs::symlink("d", dir.join("d")).unwrap();
    };
    let show = || {
        std::fs::remove_file(dir.join("d")).unwrap();
        std::fs::rename(dir.join("away"), dir.join("d")).unwrap();
    };
    hide();
    let blind = server.crash();
    assert_eq!(blind.fixture.running.status().orphans, 0);
    let mut again = blind.fixture.client(1);
    let unavailable = take_back(&mut again, "d\\f", opened.id).status;
    // Nobody else takes the file from its owner meanwhile, by whatever name.
    let mut other = blind.fixture.client(2);
    let refused = other.open("away\\f", |_| {}).status;
    // The next server finds the note too.
    let next = blind.crash();
    show();
    assert_eq!(unavailable, NtStatus::FILE_NOT_AVAILABLE);
    assert_eq!(refused, NtStatus::SHARING_VIOLATION);
    assert_eq!(take_back(&mut again, "d\\f", opened.id).status, NtStatus::SUCCESS);
    let mut later = next.fixture.client(1);
    assert_eq!(take_back(&mut later, "d\\f", opened.id).status, NtStatus::SUCCESS);
}

#[test]
fn a_file_of_a_persistent_open_that_waits_for_a_later_try_keeps_its_name() {
    let server = Writing::start();
    let dir = server.fixture.dir.path();
    std::fs::create_dir_all(dir.join("d/e")).unwrap();
    let mut one = server.fixture.client(1);
    let opened = open_persistent(&mut one, "d\\e\\f");
    assert!(is_persistent(&opened));
    // ELOOP stands for whatever keeps the server from looking.
    std::fs::rename(dir.join("d/e"), dir.join("d/away")).unwrap();
    std::os::unix::fs::symlink("e", dir.join("d/e")).unwrap();
    let blind = server.crash();
    let mut other = blind.fixture.client(2);
    let directory = other.open("d", |open| open.options = CreateOptions::DIRECTORY_FILE).id;
    let moved = other.rename(directory, "elsewhere", RenameFlags::empty());
    let thief = other.open("thief", |_| {}).id;
    let replaced = other.rename(thief, "d\\away\\f", RenameFlags::REPLACE_IF_EXISTS);
    assert_eq!((moved, replaced), (NtStatus::ACCESS_DENIED, NtStatus::ACCESS_DENIED));
    std::fs::remove_file(dir.join("d/e")).unwrap();
    std::fs::rename(dir.join("d/away"), dir.join("d/e")).unwrap();
    let mut again = blind.fixture.client(1);
    assert_eq!(take_back(&mut again, "d\\e\\f", opened.id).status, NtStatus::SUCCESS);
    let to = new_name("elsewhere", RenameFlags::empty());
    let renames =
        other.start(Command::SET_INFO, |out| set(directory, FileInfoClass::RENAME, &to).emit(out));
    // Its client caches the handle, and says that the application uses it.
    let (_, pdu) = again.notification();
    let BreakNotification::Lease(asked) = BreakNotification::parse(&pdu).unwrap() else {
        panic!("a lease is broken as a lease")
    };
    let used = LeaseBreakAck { lease_key: asked.lease_key, state: asked.new };
    let (header, _) = again.ask(Command::OPLOCK_BREAK, |out| used.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
    assert_eq!(other.answer_to(renames).0.status, NtStatus::ACCESS_DENIED);
}

#[test]
fn a_share_without_a_log_grants_durable_handles_at_most() {
    let fixture = Fixture::start();
    let opened = open_persistent(&mut fixture.client(1), "f");
    assert!(!is_persistent(&opened));
    let durable = opened.response().contexts.iter().any(|context| {
        matches!(context, CreateResponseContext::DurableV2 { persistent: false, .. })
    });
    assert!(durable);
}

#[test]
fn a_stopped_server_leaves_its_persistent_opens_for_the_next() {
    let server = Writing::start();
    let mut one = server.fixture.client(1);
    let opened = open_persistent(&mut one, "f");
    drop(one);
    let after = server.crash();
    let Writing { fixture: Fixture { running, runtime, .. }, log } = after;
    assert!(runtime.block_on(running.shutdown()));
    let next = Writing { fixture: server.fixture, log }.crash();
    assert_eq!(take_back(&mut next.fixture.client(1), "f", opened.id).status, NtStatus::SUCCESS);
}
