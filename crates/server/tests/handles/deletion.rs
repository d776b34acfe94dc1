//! Wishes to delete: what they name, who takes them back, and what is left of them after a crash.

use server::ShareConfig;
use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequestContext, DurableReconnectV2,
    DurableRequestV2, ShareAccess,
};
use smb::info::{FileInfoClass, RenameFlags};
use smb::{FileId, Guid, NtStatus};

use crate::support::crash::Writing;
use crate::support::{Fixture, Opened, Wire, crowd, new_name};

const GUID: Guid = Guid([5; 16]);

fn open_persistent(wire: &mut Wire, options: CreateOptions) -> Opened {
    let asked = DurableRequestV2 { timeout_ms: 0, persistent: true, create_guid: GUID };
    let opened = wire.open("f", |request| {
        request.options |= options;
        request.contexts.push(CreateRequestContext::DurableV2(asked));
    });
    assert_eq!(opened.status, NtStatus::SUCCESS);
    opened
}

fn take_back(wire: &mut Wire, file_id: FileId) -> FileId {
    let back = DurableReconnectV2 { file_id, create_guid: GUID, persistent: true };
    let back = wire.open("f", |request| {
        request.contexts.push(CreateRequestContext::DurableReconnectV2(back));
    });
    assert_eq!(back.status, NtStatus::SUCCESS);
    back.id
}

fn wish(wire: &mut Wire, id: FileId, delete: bool) {
    let status = wire.set(id, FileInfoClass::DISPOSITION, &[u8::from(delete)]);
    assert_eq!(status, NtStatus::SUCCESS);
}

fn has(fixture: &Fixture, name: &str) -> bool {
    fixture.dir.path().join(name).exists()
}

/// A client with `f` open, which has one more name, `g`.
fn linked(fixture: &Fixture) -> (Wire, FileId) {
    let mut wire = fixture.client(1);
    let opened = wire.open("f", |_| {});
    assert_eq!(opened.status, NtStatus::SUCCESS);
    std::fs::hard_link(fixture.dir.path().join("f"), fixture.dir.path().join("g")).unwrap();
    (wire, opened.id)
}

#[test]
fn a_wish_to_delete_taken_back_stays_taken_back_after_a_crash() {
    let server = Writing::start();
    let mut one = server.fixture.client(1);
    let opened = open_persistent(&mut one, CreateOptions::DELETE_ON_CLOSE);
    wish(&mut one, opened.id, false);
    let after = server.crash();
    let mut again = after.fixture.client(1);
    let back = take_back(&mut again, opened.id);
    assert_eq!(again.close(back), NtStatus::SUCCESS);
    assert!(has(&after.fixture, "f"));
}

#[test]
fn a_wish_to_delete_is_kept_after_a_crash() {
    let server = Writing::start();
    let mut one = server.fixture.client(1);
    let opened = open_persistent(&mut one, CreateOptions::empty());
    wish(&mut one, opened.id, true);
    // And once more, from a log that was written anew when the server started.
    let after = server.crash().crash();
    let mut again = after.fixture.client(1);
    assert_eq!(again.open("f", |_| {}).status, NtStatus::DELETE_PENDING);
    let back = take_back(&mut again, opened.id);
    assert_eq!(again.close(back), NtStatus::SUCCESS);
    assert!(!has(&after.fixture, "f"));
}

#[test]
fn a_wish_passed_on_by_a_closed_handle_is_kept_after_a_crash() {
    let server = Writing::start();
    let (mut one, mut two) = (server.fixture.client(1), server.fixture.client(2));
    let opened = open_persistent(&mut one, CreateOptions::empty());
    let other = two.open("f", |open| open.options |= CreateOptions::DELETE_ON_CLOSE);
    assert_eq!(two.close(other.id), NtStatus::SUCCESS);
    let after = server.crash();
    let mut again = after.fixture.client(1);
    let back = take_back(&mut again, opened.id);
    assert_eq!(again.close(back), NtStatus::SUCCESS);
    assert!(!has(&after.fixture, "f"));
}

#[test]
fn a_deletion_by_one_name_leaves_another_hard_link_that_is_open() {
    let fixture = Fixture::start();
    let (mut one, f) = linked(&fixture);
    let mut two = fixture.client(2);
    let g = two.open("g", crowd::to_read);
    assert_eq!(g.status, NtStatus::SUCCESS);
    wish(&mut one, f, true);
    // The other name is nobody's wish.
    let again = two.open("g", |_| {});
    assert_eq!(again.status, NtStatus::SUCCESS);
    assert_eq!(two.open("f", |_| {}).status, NtStatus::DELETE_PENDING);
    assert_eq!(one.close(f), NtStatus::SUCCESS);
    assert_eq!((has(&fixture, "f"), has(&fixture, "g")), (false, true));
    for id in [g.id, again.id] {
        assert_eq!(two.close(id), NtStatus::SUCCESS);
    }
    assert!(has(&fixture, "g"));
}

#[test]
fn a_deletion_of_a_symbolic_link_leaves_its_open_target() {
    let fixture = Fixture::start();
    let (mut one, mut two) = (fixture.client(1), fixture.client(2));
    let (link, target) = (fixture.dir.path().join("link"), fixture.dir.path().join("target"));
    std::fs::write(&target, "precious").unwrap();
    std::os::unix::fs::symlink("target", &link).unwrap();
    let held = two.open("target", |_| {}).id;
    let doomed = one.open("link", |open| open.options = CreateOptions::DELETE_ON_CLOSE);
    assert_eq!(one.close(doomed.id), NtStatus::SUCCESS);
    assert_eq!(two.close(held), NtStatus::SUCCESS);
    assert!(!link.is_symlink(), "the link has gone");
    assert_eq!(std::fs::read(&target).unwrap(), b"precious");
}

#[test]
fn two_names_of_one_file_that_are_both_to_go_both_go() {
    let fixture = Fixture::start();
    let (mut one, f) = linked(&fixture);
    let mut two = fixture.client(2);
    let g = two.open("g", |_| {});
    wish(&mut one, f, true);
    wish(&mut two, g.id, true);
    assert_eq!(two.close(g.id), NtStatus::SUCCESS);
    assert_eq!((has(&fixture, "f"), has(&fixture, "g")), (true, false));
    assert_eq!(one.close(f), NtStatus::SUCCESS);
    assert!(!has(&fixture, "f"));
}

#[test]
fn a_deletion_is_done_though_the_last_handle_is_of_a_read_only_share() {
    let fixture = Fixture::start_with(|config| {
        let mut again = ShareConfig::new("again", &config.shares[0].path);
        again.read_only = true;
        config.shares.push(again);
    });
    let mut one = fixture.client(1);
    let opened = one.open("f", |_| {});
    let mut two = fixture.client(2);
    assert_eq!(two.enter("again"), NtStatus::SUCCESS);
    let last = two.open("f", |open| {
        crowd::to_read(open);
        open.share_access = ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE;
        open.disposition = CreateDisposition::OPEN;
    });
    assert_eq!(last.status, NtStatus::SUCCESS);
    wish(&mut one, opened.id, true);
    assert_eq!(one.close(opened.id), NtStatus::SUCCESS);
    assert_eq!(two.close(last.id), NtStatus::SUCCESS);
    assert!(!has(&fixture, "f"));
}

#[test]
fn a_wish_to_delete_follows_its_file_to_another_name() {
    let fixture = Fixture::start();
    let mut one = fixture.client(1);
    let (opened, last) = (one.open("f", |_| {}), one.open("f", |_| {}));
    wish(&mut one, opened.id, true);
    assert_eq!(one.rename(last.id, "h", RenameFlags::empty()), NtStatus::SUCCESS);
    assert_eq!(one.close(opened.id), NtStatus::SUCCESS);
    assert!(has(&fixture, "h"));
    assert_eq!(one.close(last.id), NtStatus::SUCCESS);
    assert!(!has(&fixture, "h"));
}

#[test]
fn nothing_is_made_in_a_directory_that_is_to_go() {
    let fixture = Fixture::start();
    let (mut one, mut two) = (fixture.client(1), fixture.client(2));
    let open_directory = |wire: &mut Wire, access| {
        wire.open("d", |request| {
            request.options = CreateOptions::DIRECTORY_FILE;
            request.desired_access = access;
        })
        .id
    };
    let directory = open_directory(&mut one, AccessMask::MAXIMUM_ALLOWED);
    let file = two.open("f", |_| {}).id;
    let make = |wire: &mut Wire, options| {
        wire.open("d\\new", |request| {
            request.options = options;
            request.disposition = CreateDisposition::CREATE;
        })
    };
    wish(&mut one, directory, true);
    for options in [CreateOptions::empty(), CreateOptions::DIRECTORY_FILE] {
        assert_eq!(make(&mut two, options).status, NtStatus::DELETE_PENDING);
    }
    wish(&mut one, directory, false);
    // The wish stays with whoever else has it open.
    let _kept = open_directory(&mut two, AccessMask::READ_DATA);
    wish(&mut one, directory, true);
    assert_eq!(one.close(directory), NtStatus::SUCCESS);
    assert_eq!(two.rename(file, "d\\f", RenameFlags::empty()), NtStatus::DELETE_PENDING);
    assert_eq!(
        two.set(file, FileInfoClass::LINK, &new_name("d\\f", RenameFlags::empty())),
        NtStatus::DELETE_PENDING
    );
    assert!(has(&fixture, "f"));
}

#[test]
fn a_directory_that_something_is_made_in_is_not_to_go() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let directory = wire.open("d", |request| request.options = CreateOptions::DIRECTORY_FILE).id;
    assert_eq!(wire.open("d\\new", |_| {}).status, NtStatus::SUCCESS);
    let refused = wire.set(directory, FileInfoClass::DISPOSITION, &[1]);
    assert_eq!(refused, NtStatus::DIRECTORY_NOT_EMPTY);
    assert_eq!(wire.close(directory), NtStatus::SUCCESS);
    assert!(has(&fixture, "d/new"));
}
