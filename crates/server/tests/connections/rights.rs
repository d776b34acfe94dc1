//! Rights: who may not change a share changes nothing of it, by whatever way.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use server::ShareConfig;
use smb::create::{AccessMask, CreateDisposition, CreateOptions};
use smb::info::{Disposition, FileInfoClass, RenameFlags};
use smb::{Command, FileId, LockElement, LockFlags, LockRequest, NtStatus};
use tokio::runtime;
use tree::Admission;

use crate::support::{Fixture, Opened, Wire, new_name};

/// Shares "read", in which `user` and guests read, and "top", which lies in "data".
fn started() -> Fixture {
    Fixture::start_with(|config| {
        let path = config.shares[0].path.clone();
        fs::create_dir(path.join("top")).unwrap();
        for name in ["kept", "source"] {
            fs::write(path.join(name), name).unwrap();
        }
        let guests = Admission::Reading;
        let readers = Some(vec!["user".to_owned()]);
        config.shares.push(ShareConfig { guests, readers, ..ShareConfig::new("read", &path) });
        config.shares.push(ShareConfig::new("top", path.join("top")));
    })
}

/// A reader, and a guest, in the share they may read.
fn readers(fixture: &Fixture) -> [Wire; 2] {
    let mut reader = fixture.client(1);
    let mut guest = fixture.dial();
    guest.negotiate(2);
    guest.log_on_as("mallory", "whatever");
    for wire in [&mut reader, &mut guest] {
        assert_eq!(wire.enter("read"), NtStatus::SUCCESS);
    }
    [reader, guest]
}

fn open_as(wire: &mut Wire, name: &str, access: AccessMask, options: CreateOptions) -> Opened {
    wire.open(name, |open| {
        open.desired_access = access;
        open.disposition = CreateDisposition::OPEN;
        open.options = options;
    })
}

fn lock(wire: &mut Wire, file_id: FileId) -> NtStatus {
    let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    let locks = vec![LockElement { offset: 0, length: u64::MAX, flags }];
    let request = LockRequest { lock_sequence: 0, file_id, locks };
    wire.ask(Command::LOCK, |out| request.emit(out)).0.status
}

#[test]
fn a_reader_deletes_nothing_by_asking_for_the_maximum_allowed() {
    let fixture = started();
    let kept = fixture.dir.path().join("kept");
    let maximum = AccessMask::MAXIMUM_ALLOWED;
    for mut wire in readers(&fixture) {
        for access in [maximum, maximum | AccessMask::READ_ATTRIBUTES, AccessMask::GENERIC_READ] {
            let opened = open_as(&mut wire, "kept", access, CreateOptions::DELETE_ON_CLOSE);
            assert_eq!(opened.status, NtStatus::ACCESS_DENIED);
        }
        let opened = open_as(&mut wire, "kept", maximum, CreateOptions::empty());
        assert_eq!(opened.status, NtStatus::SUCCESS);
        assert!(kept.exists());
        // Whoever had it open would keep it.
        assert_eq!(wire.close(opened.id), NtStatus::SUCCESS);
    }
    let mut owner = fixture.client(3);
    let goes = open_as(&mut owner, "kept", maximum, CreateOptions::DELETE_ON_CLOSE);
    assert_eq!(owner.close(goes.id), NtStatus::SUCCESS);
    assert!(!kept.exists());
}

#[test]
fn a_reader_makes_no_link_and_replaces_nothing_by_one() {
    let fixture = started();
    let link = |wire: &mut Wire, to: &str, flags| {
        let looks = AccessMask::READ_ATTRIBUTES;
        let source = open_as(wire, "source", looks, CreateOptions::empty()).id;
        wire.set(source, FileInfoClass::LINK, &new_name(to, flags))
    };
    let replace = RenameFlags::REPLACE_IF_EXISTS;
    let holds = |name: &str| fs::read(fixture.dir.path().join(name)).ok();
    for mut wire in readers(&fixture) {
        assert_eq!(link(&mut wire, "new", RenameFlags::empty()), NtStatus::ACCESS_DENIED);
        assert_eq!(link(&mut wire, "kept", replace), NtStatus::ACCESS_DENIED);
        assert_eq!((holds("new"), holds("kept")), (None, Some(b"kept".to_vec())));
    }
    // Who may write needs no more than some handle.
    let mut owner = fixture.client(3);
    assert_eq!(link(&mut owner, "new", RenameFlags::empty()), NtStatus::SUCCESS);
    assert_eq!(link(&mut owner, "kept", replace), NtStatus::SUCCESS);
    assert_eq!(holds("kept"), Some(b"source".to_vec()));
}

#[test]
fn a_lock_takes_the_right_to_read_or_write_bytes() {
    let fixture = started();
    let [mut reader, _] = readers(&fixture);
    let nothing = CreateOptions::empty();
    let looks = open_as(&mut reader, "kept", AccessMask::READ_ATTRIBUTES, nothing).id;
    assert_eq!(lock(&mut reader, looks), NtStatus::ACCESS_DENIED);
    let mut owner = fixture.client(3);
    for access in [AccessMask::DELETE, AccessMask::APPEND_DATA] {
        let id = open_as(&mut owner, "kept", access, nothing).id;
        assert_eq!(lock(&mut owner, id), NtStatus::ACCESS_DENIED);
    }
    for access in [AccessMask::READ_DATA, AccessMask::WRITE_DATA] {
        let id = open_as(&mut owner, "kept", access, nothing).id;
        assert_eq!(lock(&mut owner, id), NtStatus::SUCCESS);
        assert_eq!(owner.close(id), NtStatus::SUCCESS);
    }
}

#[test]
fn the_top_of_no_share_is_deleted_by_any_way_to_it() {
    let fixture = started();
    let mut wire = fixture.client(1);
    let all = AccessMask::MAXIMUM_ALLOWED;
    for name in ["", "top"] {
        let held = open_as(&mut wire, name, all, CreateOptions::DIRECTORY_FILE);
        assert_eq!(held.status, NtStatus::SUCCESS);
        let doomed = open_as(&mut wire, name, all, CreateOptions::DELETE_ON_CLOSE);
        assert_eq!(doomed.status, NtStatus::CANNOT_DELETE);
        let mut delete = Vec::new();
        Disposition { delete: true }.emit(&mut delete);
        let refused = wire.set(held.id, FileInfoClass::DISPOSITION, &delete);
        assert_eq!(refused, NtStatus::CANNOT_DELETE);
        assert_eq!(open_as(&mut wire, name, all, CreateOptions::empty()).status, NtStatus::SUCCESS);
    }
}

#[test]
fn a_directory_with_something_in_it_is_not_withheld_from_others() {
    let fixture = started();
    let path = fixture.dir.path().join("d");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("f"), "inside").unwrap();
    let mut wire = fixture.client(1);
    let all = AccessMask::MAXIMUM_ALLOWED;
    let held = open_as(&mut wire, "d", all, CreateOptions::empty()).id;
    let doomed = open_as(&mut wire, "d", all, CreateOptions::DELETE_ON_CLOSE);
    assert_eq!(wire.close(doomed.id), NtStatus::SUCCESS);
    assert_eq!(open_as(&mut wire, "d", all, CreateOptions::empty()).status, NtStatus::SUCCESS);
    // What is empty when the handle closes goes.
    fs::remove_file(path.join("f")).unwrap();
    let doomed = open_as(&mut wire, "d", all, CreateOptions::DELETE_ON_CLOSE);
    assert_eq!(wire.close(doomed.id), NtStatus::SUCCESS);
    let pending = open_as(&mut wire, "d", all, CreateOptions::empty());
    assert_eq!(pending.status, NtStatus::DELETE_PENDING);
    assert_eq!(wire.close(held), NtStatus::SUCCESS);
}

#[test]
fn who_deletes_what_the_server_may_not_learns_it_when_asking() {
    // Root may delete everything: the threads of the server are somebody else's then.
    let mut threads = runtime::Builder::new_multi_thread();
    threads.enable_all().on_thread_start(|| {
        if rustix::process::geteuid().is_root() {
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        }
    });
    let fixture = Fixture::start_on(threads.build().unwrap(), |config| {
        let share = &config.shares[0].path;
        fs::set_permissions(share, fs::Permissions::from_mode(0o777)).unwrap();
        fs::create_dir(share.join("fixed")).unwrap();
        fs::write(share.join("fixed/f"), "stays").unwrap();
        fs::set_permissions(share.join("fixed/f"), fs::Permissions::from_mode(0o666)).unwrap();
        fs::set_permissions(share.join("fixed"), fs::Permissions::from_mode(0o555)).unwrap();
    });
    let fixed = fixture.dir.path().join("fixed");
    let mut wire = fixture.client(1);
    let opened = open_as(&mut wire, "fixed\\f", AccessMask::DELETE, CreateOptions::empty());
    let mut delete = Vec::new();
    Disposition { delete: true }.emit(&mut delete);
    let refused = wire.set(opened.id, FileInfoClass::DISPOSITION, &delete);
    let on_close = CreateOptions::DELETE_ON_CLOSE;
    let doomed = open_as(&mut wire, "fixed\\f", AccessMask::DELETE, on_close);
    assert_eq!((refused, doomed.status), (NtStatus::ACCESS_DENIED, NtStatus::ACCESS_DENIED));
    assert_eq!(wire.close(opened.id), NtStatus::SUCCESS);
    assert!(fixed.join("f").exists());
    // Where it may, it does.
    let own = wire.open("own", |open| open.options = on_close);
    assert_eq!(wire.close(own.id), NtStatus::SUCCESS);
    assert!(!fixture.dir.path().join("own").exists());
    fs::set_permissions(&fixed, fs::Permissions::from_mode(0o755)).unwrap();
}
