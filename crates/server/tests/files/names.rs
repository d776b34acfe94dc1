//! Names: what those meant that went a moment ago, and how paths may be written.

use smb::create::{CreateDisposition, CreateOptions};
use smb::info::{
    Basic, FileAttributes, FileInfoClass, FileName, FsAttribute, FsAttributes, FsInfoClass,
    InfoType, RenameFlags,
};
use smb::{FileTime, NtStatus};

use crate::support::{Fixture, Wire};

const LONG: &str = "An annual report.text";
const THEN: FileTime = FileTime(0x01c0_0000_0000_0000);

fn rename(wire: &mut Wire, from: &str, to: &str) {
    let file = wire.open(from, |open| open.disposition = CreateDisposition::OPEN).id;
    assert_eq!(wire.rename(file, to, RenameFlags::empty()), NtStatus::SUCCESS);
    assert_eq!(wire.close(file), NtStatus::SUCCESS);
}

fn remove(wire: &mut Wire, name: &str) {
    let doomed = wire.open(name, |open| {
        open.disposition = CreateDisposition::OPEN;
        open.options = CreateOptions::DELETE_ON_CLOSE;
    });
    assert_eq!(doomed.status, NtStatus::SUCCESS, "{name}");
    assert_eq!(wire.close(doomed.id), NtStatus::SUCCESS);
}

/// Makes a file that is not there yet, and says when it was created.
fn make(wire: &mut Wire, name: &str) -> FileTime {
    let made = wire.open(name, |open| open.disposition = CreateDisposition::CREATE);
    assert_eq!(made.status, NtStatus::SUCCESS, "{name}");
    assert_eq!(wire.close(made.id), NtStatus::SUCCESS);
    made.response().creation_time
}

/// The same, of a file that was created long ago.
fn make_old(wire: &mut Wire, name: &str) {
    make(wire, name);
    let file = wire.open(name, |_| {}).id;
    let mut basic = Vec::new();
    Basic {
        creation_time: THEN,
        last_access_time: FileTime::ZERO,
        last_write_time: FileTime::ZERO,
        change_time: FileTime::ZERO,
        attributes: FileAttributes::empty(),
    }
    .emit(&mut basic);
    assert_eq!(wire.set(file, FileInfoClass::BASIC, &basic), NtStatus::SUCCESS);
    assert_eq!(wire.close(file), NtStatus::SUCCESS);
}

fn created(wire: &mut Wire, name: &str) -> FileTime {
    let file = wire.open(name, |open| open.disposition = CreateDisposition::OPEN);
    assert_eq!(file.status, NtStatus::SUCCESS, "{name}");
    assert_eq!(wire.close(file.id), NtStatus::SUCCESS);
    file.response().creation_time
}

fn short_name(wire: &mut Wire, name: &str) -> String {
    let file = wire.open(name, |open| open.disposition = CreateDisposition::OPEN).id;
    let answer = wire.query(file, FileInfoClass::ALTERNATE_NAME).1;
    assert_eq!(wire.close(file), NtStatus::SUCCESS);
    FileName::parse(&answer).unwrap().name.to_string()
}

fn listed(fixture: &Fixture) -> Vec<String> {
    let names = std::fs::read_dir(fixture.dir.path()).unwrap();
    let mut names: Vec<_> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_made_again_by_its_short_name_has_its_long_name_and_its_age() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    make_old(&mut wire, LONG);
    let short = short_name(&mut wire, LONG);
    remove(&mut wire, &short);
    assert_eq!(listed(&fixture), [""; 0]);
    assert_eq!(make(&mut wire, &short.to_lowercase()), THEN);
    assert_eq!(listed(&fixture), [LONG]);
    // As programs save that know short names only: aside, and another one in its place.
    make(&mut wire, "new.tmp");
    rename(&mut wire, &short, "old.bak");
    rename(&mut wire, "new.tmp", &short);
    assert_eq!(listed(&fixture), [LONG, "old.bak"]);
    assert_eq!((created(&mut wire, LONG), created(&mut wire, "old.bak")), (THEN, THEN));
}

#[test]
fn a_file_that_takes_the_place_of_another_was_created_when_that_was() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    make_old(&mut wire, "doc");
    assert!(make(&mut wire, "new") > THEN);
    rename(&mut wire, "doc", "bak");
    rename(&mut wire, "new", "DOC");
    // In the spelling that was asked for.
    assert_eq!(listed(&fixture), ["DOC", "bak"]);
    assert_eq!(created(&mut wire, "doc"), THEN);
    remove(&mut wire, "doc");
    assert_eq!(make(&mut wire, "doc"), THEN);
    // Once for each that went, in its own directory, and not for directories.
    rename(&mut wire, "doc", "elsewhere");
    assert_eq!(make(&mut wire, "doc"), THEN);
    rename(&mut wire, "elsewhere", "again");
    assert_eq!(
        wire.open("d", |open| open.options = CreateOptions::DIRECTORY_FILE).status,
        NtStatus::SUCCESS
    );
    assert!(make(&mut wire, "d\\elsewhere") > THEN);
    let directory = wire.open("elsewhere", |open| open.options = CreateOptions::DIRECTORY_FILE);
    assert!(directory.response().creation_time > THEN);
}

#[test]
fn a_name_is_not_given_back_that_was_not_lost_or_has_been_taken() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    make_old(&mut wire, LONG);
    let short = short_name(&mut wire, LONG);
    // Who knew the long name says it again if it is meant.
    remove(&mut wire, LONG);
    make(&mut wire, &short);
    assert_eq!(listed(&fixture), std::slice::from_ref(&short));
    remove(&mut wire, &short);
    make_old(&mut wire, LONG);
    remove(&mut wire, &short);
    // Taken by a program on the server itself, in another case; then the short name leads there.
    std::fs::write(fixture.dir.path().join(LONG.to_uppercase()), b"theirs").unwrap();
    let there = wire.open(&short, |open| open.disposition = CreateDisposition::CREATE);
    assert_eq!(there.status, NtStatus::OBJECT_NAME_COLLISION);
    assert_eq!(listed(&fixture), [LONG.to_uppercase()]);
}

#[test]
fn a_slash_separates_names_as_a_backslash_does() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let directory = wire.open("d", |open| open.options = CreateOptions::DIRECTORY_FILE).id;
    make(&mut wire, "d/file");
    assert_eq!(wire.open("D/FILE:stream", |_| {}).status, NtStatus::SUCCESS);
    assert_eq!(wire.close(directory), NtStatus::SUCCESS);
    assert!(fixture.dir.path().join("d/file").is_file());
    make(&mut wire, "d\\other");
    rename(&mut wire, "d/other", "d/renamed");
    assert!(fixture.dir.path().join("d/renamed").is_file());
    for (odd, status) in [
        ("/d", NtStatus::INVALID_PARAMETER),
        ("d//file", NtStatus::OBJECT_NAME_INVALID),
        ("d/file:a/b", NtStatus::OBJECT_NAME_INVALID),
        ("d/../../etc", NtStatus::OBJECT_PATH_SYNTAX_BAD),
    ] {
        assert_eq!(wire.open(odd, |_| {}).status, status, "{odd}");
    }
}

#[test]
fn a_share_says_of_its_names_what_ntfs_says() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let file = wire.open("File", |_| {}).id;
    let answer = wire.query_of(file, InfoType::FILE_SYSTEM, FsInfoClass::ATTRIBUTE.0).1;
    let attributes = FsAttribute::parse(&answer).unwrap().attributes;
    let names = FsAttributes::CASE_SENSITIVE_SEARCH | FsAttributes::CASE_PRESERVED_NAMES;
    assert!(attributes.contains(names), "{attributes:?}");
    assert_eq!(
        wire.open("fILE", |open| open.disposition = CreateDisposition::OPEN).status,
        NtStatus::SUCCESS
    );
}
