//! Files that become symbolic links: a request takes nothing from other clients, and a failure changes nothing.

use smb::create::{AccessMask, CreateDisposition, CreateOptions, ShareAccess};
use smb::fsctl::SymlinkReparse;
use smb::info::{FileInfoClass, InfoType, SecurityInformation};
use smb::{ControlCode, FileId, Name, NtStatus};

use super::client::{NO_MODE, client, close, make, on_disk, open_as, set, unlink};
use crate::support::{Fixture, Wire};

fn become_link(wire: &mut Wire, id: FileId, target: &str) -> NtStatus {
    let name = Name::new(target).unwrap();
    let mut input = Vec::new();
    SymlinkReparse { relative: true, substitute: name.clone(), print: name }.emit(&mut input);
    wire.control(id, ControlCode::SET_REPARSE_POINT, &input).0
}

fn change_attributes(wire: &mut Wire, name: &str) -> FileId {
    let opened = open_as(wire, name, NO_MODE, |open| {
        open.desired_access = AccessMask::WRITE_ATTRIBUTES;
        open.disposition = CreateDisposition::OPEN;
    });
    assert_eq!(opened.status, NtStatus::SUCCESS);
    opened.id
}

#[test]
fn a_file_that_another_client_has_open_does_not_become_a_link() {
    let fixture = Fixture::start();
    let (mut wire, mut other) = (client(&fixture, 1), fixture.client(2));
    let theirs = other.open("victim", |open| open.share_access = ShareAccess::empty()).id;
    let ours = change_attributes(&mut wire, "victim");
    assert_eq!(become_link(&mut wire, ours, "elsewhere"), NtStatus::ACCESS_DENIED);
    assert_eq!(other.write(theirs, b"acknowledged"), NtStatus::SUCCESS);
    assert_eq!(other.close(theirs), NtStatus::SUCCESS);
    assert_eq!(std::fs::read(on_disk(&fixture, "victim")).unwrap(), b"acknowledged");
    close(&mut wire, ours);
}

#[test]
fn a_file_with_streams_does_not_become_a_link() {
    let fixture = Fixture::start_in(std::path::Path::new("/var/tmp"), |_| {});
    let (mut wire, mut other) = (client(&fixture, 1), fixture.client(2));
    let file = make(&mut wire, "f", 0o644);
    let stream = other.open("f:s", |_| {}).id;
    assert_eq!(other.write(stream, b"kept"), NtStatus::SUCCESS);
    assert_eq!(become_link(&mut wire, file, "x"), NtStatus::ACCESS_DENIED, "it is open");
    assert_eq!(other.close(stream), NtStatus::SUCCESS);
    assert_eq!(become_link(&mut wire, file, "x"), NtStatus::NOT_SUPPORTED, "it has data");
    let again = other.open("f:s", |open| open.disposition = CreateDisposition::OPEN);
    assert_eq!(again.status, NtStatus::SUCCESS);
    close(&mut wire, file);
}

#[test]
fn a_file_whose_link_cannot_be_made_keeps_its_name() {
    let fixture = Fixture::start();
    let mut wire = client(&fixture, 1);
    let file = make(&mut wire, "f", 0o644);
    assert_eq!(become_link(&mut wire, file, &"x".repeat(5_001)), NtStatus::OBJECT_NAME_INVALID);
    assert!(on_disk(&fixture, "f").symlink_metadata().unwrap().is_file());
    assert_eq!(become_link(&mut wire, file, "x"), NtStatus::SUCCESS);
    assert!(on_disk(&fixture, "f").symlink_metadata().unwrap().is_symlink());
    close(&mut wire, file);
}

#[test]
fn a_write_to_a_file_that_became_a_link_is_refused() {
    let fixture = Fixture::start();
    let mut wire = client(&fixture, 1);
    let file = make(&mut wire, "f", 0o644);
    assert_eq!(become_link(&mut wire, file, "x"), NtStatus::SUCCESS);
    assert_eq!(wire.write(file, b"nowhere"), NtStatus::INVALID_DEVICE_REQUEST);
    assert_eq!(wire.read(file, 1).0, NtStatus::INVALID_DEVICE_REQUEST);
    close(&mut wire, file);
    let link = open_as(&mut wire, "f", NO_MODE, |open| {
        open.disposition = CreateDisposition::OPEN;
        open.options = CreateOptions::OPEN_REPARSE_POINT;
    });
    assert_eq!(link.status, NtStatus::SUCCESS);
    assert_eq!(
        wire.write(link.id, b"nowhere"),
        NtStatus::INVALID_DEVICE_REQUEST,
        "the link itself"
    );
    close(&mut wire, link.id);
}

#[test]
fn a_link_is_not_called_deleted_by_the_handle_of_the_file_that_it_was() {
    let fixture = Fixture::start();
    let mut wire = client(&fixture, 1);
    let file = open_as(&mut wire, "f", 0o644, |open| {
        open.disposition = CreateDisposition::CREATE;
        open.desired_access |= AccessMask::DELETE;
    });
    assert_eq!(become_link(&mut wire, file.id, "x"), NtStatus::SUCCESS);
    let (class, none) =
        ((InfoType::FILE, FileInfoClass::DISPOSITION), SecurityInformation::empty());
    assert_eq!(set(&mut wire, file.id, class, none, &[1]), NtStatus::CANNOT_DELETE);
    close(&mut wire, file.id);
    unlink(&mut wire, "f");
    assert!(!on_disk(&fixture, "f").is_symlink());
}

#[test]
fn a_file_that_does_not_become_a_link_takes_no_place_of_its_user() {
    let fixture = Fixture::start_with(|config| config.limits.user_opens_max = 4);
    let mut wire = client(&fixture, 1);
    let file = make(&mut wire, "f", 0o644);
    for _ in 0..5 {
        let refused = become_link(&mut wire, file, &"x".repeat(5_001));
        assert_eq!(refused, NtStatus::OBJECT_NAME_INVALID);
    }
    let others = ["g", "h"].map(|name| make(&mut wire, name, 0o644));
    others.into_iter().for_each(|other| close(&mut wire, other));
    assert_eq!(become_link(&mut wire, file, "x"), NtStatus::SUCCESS);
    close(&mut wire, file);
}

#[test]
fn a_directory_becomes_a_link_only_while_it_is_empty() {
    let fixture = Fixture::start();
    let mut wire = client(&fixture, 1);
    let directory =
        open_as(&mut wire, "d", 0o755, |open| open.options = CreateOptions::DIRECTORY_FILE).id;
    std::fs::write(on_disk(&fixture, "d/f"), "stays").unwrap();
    assert_ne!(become_link(&mut wire, directory, "x"), NtStatus::SUCCESS);
    assert_eq!(std::fs::read(on_disk(&fixture, "d/f")).unwrap(), b"stays");
    std::fs::remove_file(on_disk(&fixture, "d/f")).unwrap();
    assert_eq!(become_link(&mut wire, directory, "x"), NtStatus::SUCCESS);
    assert!(on_disk(&fixture, "d").symlink_metadata().unwrap().is_symlink());
    close(&mut wire, directory);
}
