//! Symbolic links: kept as they are, and none leads out of the share.

use std::os::unix::fs::symlink;

use smb::create::{AccessMask, CreateDisposition, CreateOptions, CreateRequestContext};
use smb::fsctl::{ReparsePoint, SymlinkReparse};
use smb::info::{FileInfoClass, RenameFlags};
use smb::{ControlCode, ErrorResponse, FileId, Name, NtStatus, SymlinkError};

use super::client::{NO_MODE, client, close, info, make, on_disk, open, open_as, unlink};
use crate::support::{Fixture, Wire, new_name};

fn make_link(wire: &mut Wire, name: &str, target: &str) -> NtStatus {
    make_link_as(wire, name, target, true)
}

fn make_link_as(wire: &mut Wire, name: &str, target: &str, relative: bool) -> NtStatus {
    let file = open_as(wire, name, NO_MODE, |open| {
        open.disposition = CreateDisposition::CREATE;
        open.options = CreateOptions::OPEN_REPARSE_POINT;
    });
    let name = Name::new(target).unwrap();
    let mut input = Vec::new();
    SymlinkReparse { relative, substitute: name.clone(), print: name }.emit(&mut input);
    let status = wire.control(file.id, ControlCode::SET_REPARSE_POINT, &input).0;
    if status == NtStatus::SUCCESS {
        assert_eq!(info(wire, file.id).facts.mode >> 12, 2, "the handle is the link's");
    }
    close(wire, file.id);
    status
}

#[test]
fn a_link_is_a_link_and_leads_nowhere_outside() {
    let fixture = Fixture::start();
    let mut wire = client(&fixture, 1);
    let directory =
        open_as(&mut wire, "d", 0o755, |open| open.options = CreateOptions::DIRECTORY_FILE);
    close(&mut wire, directory.id);
    let file = make(&mut wire, "f", 0o644);
    close(&mut wire, file);
    assert_eq!(make_link(&mut wire, "d/link", "../f"), NtStatus::SUCCESS);
    assert_eq!(std::fs::read_link(on_disk(&fixture, "d/link")).unwrap().to_str(), Some("../f"));

    let stopped = {
        let id = wire.start_open("d/link", |open| {
            open.contexts.push(CreateRequestContext::Posix { mode: NO_MODE });
            open.disposition = CreateDisposition::OPEN;
        });
        wire.answer_to(id)
    };
    assert_eq!(stopped.0.status, NtStatus::STOPPED_ON_SYMLINK);
    let ErrorResponse::Contexts(contexts) = ErrorResponse::parse(&stopped.1).unwrap() else {
        panic!("the answer says where to")
    };
    let error = SymlinkError::parse(contexts[0].data).unwrap();
    assert_eq!((error.substitute.as_str(), error.relative), ("../f", true));

    let link = open_as(&mut wire, "d/link", NO_MODE, |open| {
        open.desired_access = AccessMask::READ_ATTRIBUTES;
        open.disposition = CreateDisposition::OPEN;
        open.options = CreateOptions::OPEN_REPARSE_POINT;
    });
    let known = info(&mut wire, link.id);
    assert_eq!((known.facts.mode >> 12, known.facts.reparse_tag), (2, 0xa000_000c));
    assert_eq!(known.end_of_file, 4);
    let (status, bytes) = wire.control(link.id, ControlCode::GET_REPARSE_POINT, &[]);
    assert_eq!(status, NtStatus::SUCCESS);
    let Ok(ReparsePoint::Symlink(read)) = ReparsePoint::parse(&bytes) else { panic!("a link") };
    assert_eq!(read.substitute.as_str(), "../f");
    close(&mut wire, link.id);

    // Others are led on, as before.
    let mut windows = fixture.client(2);
    assert_eq!(windows.open("d\\link", |_| {}).status, NtStatus::SUCCESS);

    for outside in ["/etc/passwd", "../../x", "x/../../../y"] {
        assert_eq!(make_link(&mut wire, "d/bad", outside), NtStatus::ACCESS_DENIED, "{outside}");
        assert!(on_disk(&fixture, "d/bad").symlink_metadata().unwrap().is_file());
        unlink(&mut wire, "d/bad");
    }
    // As cifs.ko writes /etc/passwd.
    let said = make_link_as(&mut wire, "d/bad", "etc/passwd", false);
    assert_eq!(said, NtStatus::ACCESS_DENIED);
    // Made by somebody on the server.
    symlink("/etc/passwd", on_disk(&fixture, "out")).unwrap();
    assert_eq!(open(&mut wire, "out").status, NtStatus::ACCESS_DENIED);
    unlink(&mut wire, "d/link");
    on_disk(&fixture, "d/link").symlink_metadata().unwrap_err();
    assert!(on_disk(&fixture, "f").exists());
}

#[test]
fn only_something_new_and_empty_becomes_a_link() {
    let fixture = Fixture::start();
    let mut wire = client(&fixture, 1);
    let file = make(&mut wire, "f", 0o644);
    assert_eq!(wire.write(file, b"data"), NtStatus::SUCCESS);
    let name = Name::new("x").unwrap();
    let mut input = Vec::new();
    SymlinkReparse { relative: true, substitute: name.clone(), print: name }.emit(&mut input);
    let refused = wire.control(file, ControlCode::SET_REPARSE_POINT, &input).0;
    assert_eq!(refused, NtStatus::NOT_SUPPORTED);
    assert_eq!(std::fs::read(on_disk(&fixture, "f")).unwrap(), b"data");
    // A device, by the tag of NFS.
    let empty = make(&mut wire, "e", 0o644);
    let nfs = b"\x14\0\0\x80\x08\0\0\0CHR\0\0\0\0\0";
    let refused = wire.control(empty, ControlCode::SET_REPARSE_POINT, nfs).0;
    assert_eq!(refused, NtStatus::NOT_SUPPORTED);
    let mut windows = fixture.client(2);
    let other = windows.open("w", |_| {}).id;
    let refused = windows.control(other, ControlCode::SET_REPARSE_POINT, &input).0;
    assert_eq!(refused, NtStatus::NOT_SUPPORTED);
}

fn open_link(wire: &mut Wire, name: &str) -> FileId {
    let opened = open_as(wire, name, NO_MODE, |open| {
        open.disposition = CreateDisposition::OPEN;
        open.options = CreateOptions::OPEN_REPARSE_POINT;
    });
    assert_eq!(opened.status, NtStatus::SUCCESS, "{name}");
    opened.id
}

fn make_directories(wire: &mut Wire, names: &[&str]) {
    for name in names {
        let made = open_as(wire, name, 0o755, |open| open.options = CreateOptions::DIRECTORY_FILE);
        close(wire, made.id);
    }
}

#[test]
fn a_link_is_not_moved_to_where_it_leads_out() {
    let fixture = Fixture::start();
    let mut wire = client(&fixture, 1);
    make_directories(&mut wire, &["p", "p/q", "p/q/r"]);
    assert_eq!(make_link(&mut wire, "p/q/link", "../../f"), NtStatus::SUCCESS);
    let link = open_link(&mut wire, "p/q/link");
    let nothing = RenameFlags::empty();
    for out in ["up", "p/up"] {
        assert_eq!(wire.rename(link, out, nothing), NtStatus::ACCESS_DENIED, "{out}");
        let linked = wire.set(link, FileInfoClass::LINK, &new_name(out, nothing));
        assert_eq!(linked, NtStatus::ACCESS_DENIED, "{out}");
        on_disk(&fixture, out).symlink_metadata().unwrap_err();
    }
    assert_eq!(wire.rename(link, "p/q/r/link", nothing), NtStatus::SUCCESS);
    close(&mut wire, link);

    // Nor with a directory it lies in.
    for (directory, out) in [("p/q", "q"), ("p/q/r", "r")] {
        let id = open(&mut wire, directory).id;
        let moved = wire.rename(id, out, nothing);
        let stays_inside = directory == "p/q";
        let expected = if stays_inside { NtStatus::SUCCESS } else { NtStatus::ACCESS_DENIED };
        assert_eq!(moved, expected, "{directory}");
        if stays_inside {
            assert_eq!(wire.rename(id, directory, nothing), NtStatus::SUCCESS);
        }
        close(&mut wire, id);
    }
    unlink(&mut wire, "p/q/r/link");
    let id = open(&mut wire, "p/q/r").id;
    assert_eq!(wire.rename(id, "r", nothing), NtStatus::SUCCESS);
}

#[test]
fn no_link_leads_out_behind_another_link() {
    let fixture = Fixture::start();
    let mut wire = client(&fixture, 1);
    make_directories(&mut wire, &["p", "p/q"]);
    assert_eq!(make_link(&mut wire, "p/here", ".."), NtStatus::SUCCESS);
    assert_eq!(make_link(&mut wire, "p/q/bad", "../here/../x"), NtStatus::ACCESS_DENIED);
    // By its path it would lie three directories deep; by its place it lies in one.
    assert_eq!(make_link(&mut wire, "p/here/p/bad", "../../x"), NtStatus::ACCESS_DENIED);
    assert_eq!(make_link(&mut wire, "p/here/p/good", "../x"), NtStatus::SUCCESS);
}

#[test]
fn no_link_leads_to_where_streams_are_kept() {
    let fixture = Fixture::start();
    let mut wire = client(&fixture, 1);
    let stream = fixture.client(2).open("f:s", |_| {});
    assert_eq!(stream.status, NtStatus::SUCCESS);
    make_directories(&mut wire, &["d"]);
    for (name, target) in [("a", ".landfast-streams"), ("d/b", "../.landfast-streams/x")] {
        assert_eq!(make_link(&mut wire, name, target), NtStatus::ACCESS_DENIED, "{target}");
    }
}
