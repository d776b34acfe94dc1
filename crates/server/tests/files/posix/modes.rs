//! Modes and owners: given when a file is made, changed, and what the server keeps to itself.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequestContext, PosixResponse,
};
use smb::info::security::{Ace, Control, Dacl, SecurityDescriptor, Sid};
use smb::info::{FileAttributes, FileInfoClass, InfoType, SecurityInformation};
use smb::{Command, FileId, NtStatus};

use super::client::{
    NO_MODE, client, close, facts, info, make, on_disk, open_as, query, set, unlink,
};
use crate::support::{self, Fixture, Wire};

fn describe(
    wire: &mut Wire,
    file_id: FileId,
    parts: SecurityInformation,
    given: &SecurityDescriptor,
) -> NtStatus {
    let mut buffer = Vec::new();
    given.emit(&mut buffer);
    set(wire, file_id, (InfoType::SECURITY, FileInfoClass(0)), parts, &buffer)
}

pub(crate) fn chmod(wire: &mut Wire, file_id: FileId, mode: u32) -> NtStatus {
    // As cifs.ko writes it: an entry that grants nothing.
    let ace = Ace::allow(AccessMask::empty(), Sid::unix_mode(mode));
    let given = SecurityDescriptor {
        control: Control::empty(),
        owner: None,
        group: None,
        dacl: Dacl::Aces(vec![ace]),
    };
    describe(wire, file_id, SecurityInformation::DACL, &given)
}

fn chown(wire: &mut Wire, file_id: FileId, owner: Sid) -> NtStatus {
    let given = SecurityDescriptor {
        control: Control::empty(),
        owner: Some(owner),
        group: None,
        dacl: Dacl::Absent,
    };
    describe(wire, file_id, SecurityInformation::OWNER, &given)
}

#[test]
fn a_file_has_the_mode_it_was_made_with_and_the_one_it_is_given() {
    let fixture = Fixture::start();
    let mut wire = client(&fixture, 1);
    // With the kind of file in stat's bits, as cifs.ko sends it.
    let made =
        open_as(&mut wire, "f", 0o100_642, |open| open.disposition = CreateDisposition::CREATE);
    let found = std::fs::metadata(on_disk(&fixture, "f")).unwrap();
    assert_eq!(found.permissions().mode() & 0o7777, 0o642);
    let expected = PosixResponse {
        links: 1,
        reparse_tag: 0,
        mode: 0o642,
        owner: Sid::unix_user(found.uid()),
        group: Sid::unix_group(found.gid()),
    };
    assert_eq!(facts(&made), expected);
    assert_eq!(chmod(&mut wire, made.id, 0o1705), NtStatus::SUCCESS);
    let known = info(&mut wire, made.id);
    assert_eq!((known.facts.mode, known.inode), (0o1705, found.ino()));

    let parts = SecurityInformation::OWNER | SecurityInformation::GROUP | SecurityInformation::DACL;
    let bytes = query(&mut wire, made.id, InfoType::SECURITY, 0, parts).unwrap();
    let descriptor = SecurityDescriptor::parse(&bytes).unwrap();
    assert_eq!(descriptor.owner.and_then(|sid| sid.to_unix_user()), Some(found.uid()));
    assert_eq!(descriptor.group.and_then(|sid| sid.to_unix_group()), Some(found.gid()));
    let Dacl::Aces(aces) = descriptor.dacl else { panic!("it has an access list") };
    let mode = Ace::allow(AccessMask::empty(), Sid::unix_mode(0o1705));
    assert_eq!(aces[0], mode);

    // cifs.ko says read-only of what nobody may write; the mode says that, and may be changed.
    let still = open_as(&mut wire, "still", 0o444, |open| {
        open.disposition = CreateDisposition::CREATE;
        open.attributes = FileAttributes::READONLY;
    });
    assert_eq!(wire.write(still.id, b"by who made it"), NtStatus::SUCCESS);
    close(&mut wire, still.id);
    unlink(&mut wire, "still");

    let directory = open_as(&mut wire, "d", 0o40_711, |open| {
        open.disposition = CreateDisposition::CREATE;
        open.options = CreateOptions::DIRECTORY_FILE;
    });
    assert_eq!(facts(&directory).mode, 0o10_711, "kind 1: a directory");
    assert_eq!(chmod(&mut wire, directory.id, 0o2755), NtStatus::SUCCESS);
    let below = open_as(&mut wire, "d/e", 0o700, |open| {
        open.disposition = CreateDisposition::CREATE;
        open.options = CreateOptions::DIRECTORY_FILE;
    });
    assert_eq!(facts(&below).mode, 0o12_700, "the group's bit comes from above");
}

#[test]
fn a_mode_may_come_as_an_access_list_too() {
    let fixture = Fixture::start();
    let mut wire = client(&fixture, 1);
    // Mounted with modefromsid: a client that knows the extensions and does not use them.
    let ace = Ace::allow(AccessMask::empty(), Sid::unix_mode(0o640));
    let all = Ace::allow(AccessMask::FILE_ALL, Sid::everyone());
    let given = SecurityDescriptor {
        control: Control::empty(),
        owner: None,
        group: None,
        dacl: Dacl::Aces(vec![ace, all]),
    };
    let mut bytes = Vec::new();
    given.emit(&mut bytes);
    let request = support::create("f", |open| {
        open.desired_access |= AccessMask::WRITE_DAC;
        open.contexts.push(CreateRequestContext::SecurityDescriptor(&bytes));
    });
    let id = wire.start(Command::CREATE, |out| request.emit(out));
    let made = wire.finish_open(id);
    let mode = || std::fs::metadata(on_disk(&fixture, "f")).unwrap().permissions().mode() & 0o7777;
    assert_eq!((made.status, mode()), (NtStatus::SUCCESS, 0o640));
    assert_eq!(chmod(&mut wire, made.id, 0o600), NtStatus::SUCCESS);
    assert_eq!(mode(), 0o600);
}

#[test]
fn nobody_gets_the_rights_of_the_server() {
    let fixture = Fixture::start();
    let mut wire = client(&fixture, 1);
    let made = open_as(&mut wire, "f", 0o6755, |open| open.disposition = CreateDisposition::CREATE);
    assert_eq!(facts(&made).mode, 0o755);
    for mode in [0o4755, 0o2755] {
        assert_eq!(chmod(&mut wire, made.id, mode), NtStatus::PRIVILEGE_NOT_HELD);
    }
    assert_eq!(info(&mut wire, made.id).facts.mode, 0o755);
    let reader = open_as(&mut wire, "f", NO_MODE, |open| {
        open.desired_access = AccessMask::FILE_GENERIC_READ;
    });
    assert_eq!(chmod(&mut wire, reader.id, 0o600), NtStatus::ACCESS_DENIED);
}

#[test]
fn an_owner_is_set_or_it_is_said_that_the_server_may_not() {
    let fixture = Fixture::start();
    let mut wire = client(&fixture, 1);
    let file = make(&mut wire, "f", 0o644);
    let own = std::fs::metadata(on_disk(&fixture, "f")).unwrap().uid();
    assert_eq!(chown(&mut wire, file, Sid::unix_user(own)), NtStatus::SUCCESS, "nothing to do");
    let expected = if own == 0 { NtStatus::SUCCESS } else { NtStatus::PRIVILEGE_NOT_HELD };
    // The spelling of NFS servers.
    let other = Sid::new(5, &[88, 1, 12_345]).unwrap();
    assert_eq!(chown(&mut wire, file, other), expected);
    let now = std::fs::metadata(on_disk(&fixture, "f")).unwrap().uid();
    assert_eq!(now, if own == 0 { 12_345 } else { own });
    assert_eq!(info(&mut wire, file).facts.owner, Sid::unix_user(now));
    assert_eq!(chown(&mut wire, file, Sid::everyone()), NtStatus::INVALID_OWNER);
    // An access list that is more than a mode.
    let given = SecurityDescriptor {
        control: Control::empty(),
        owner: None,
        group: None,
        dacl: Dacl::Aces(vec![Ace::allow(AccessMask::FILE_ALL, Sid::everyone())]),
    };
    let said = describe(&mut wire, file, SecurityInformation::DACL, &given);
    assert_eq!(said, NtStatus::NOT_SUPPORTED);
}
