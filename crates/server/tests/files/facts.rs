//! Facts of files that change with their bytes and names.

use smb::create::CreateOptions;
use smb::info::{Basic, EndOfFile, FileAttributes, FileInfoClass, RenameFlags, Standard};
use smb::{FileId, FileTime, NtStatus};

use crate::support::{Fixture, Wire};

const THEN: FileTime = FileTime(0x01c0_0000_0000_0000);

fn facts(wire: &mut Wire, id: FileId) -> Basic {
    Basic::parse(&wire.query(id, FileInfoClass::BASIC).1).unwrap()
}

fn set(wire: &mut Wire, id: FileId, last_write_time: FileTime, attributes: FileAttributes) {
    let (zero, mut buffer) = (FileTime::ZERO, Vec::new());
    Basic {
        creation_time: zero,
        last_access_time: zero,
        last_write_time,
        change_time: zero,
        attributes,
    }
    .emit(&mut buffer);
    assert_eq!(wire.set(id, FileInfoClass::BASIC, &buffer), NtStatus::SUCCESS);
}

#[test]
fn each_change_after_a_backup_sets_archive_again() {
    for directory in ["/var/tmp", "/dev/shm"] {
        let fixture = Fixture::start_in(directory.as_ref(), |_| {});
        let (mut wire, mut backup) = (fixture.client(1), fixture.client(2));
        let (file, fetched) = (wire.open("f", |_| {}).id, backup.open("f", |_| {}).id);
        let cut = |wire: &mut Wire| {
            let mut size = Vec::new();
            EndOfFile { end_of_file: 3 }.emit(&mut size);
            wire.set(file, FileInfoClass::END_OF_FILE, &size)
        };
        let changes: [&dyn Fn(&mut Wire) -> NtStatus; 3] =
            [&|wire| wire.write(file, b"changed"), &cut, &|wire| {
                wire.rename(file, "g", RenameFlags::empty())
            }];
        for change in changes {
            // The backup clears ARCHIVE by a handle of its own.
            set(&mut backup, fetched, FileTime::ZERO, FileAttributes::HIDDEN);
            assert_eq!(facts(&mut wire, file).attributes, FileAttributes::HIDDEN);
            assert_eq!(change(&mut wire), NtStatus::SUCCESS);
            let both = FileAttributes::HIDDEN | FileAttributes::ARCHIVE;
            assert_eq!(facts(&mut wire, file).attributes, both);
            if change(&mut wire) == NtStatus::SUCCESS {
                assert_eq!(facts(&mut wire, file).attributes, both, "set once, it stays");
            }
        }
    }
}

#[test]
fn a_write_time_that_a_handle_has_set_stays_through_its_writes() {
    for directory in ["/var/tmp", "/dev/shm"] {
        let fixture = Fixture::start_in(directory.as_ref(), |_| {});
        let (mut wire, mut other) = (fixture.client(1), fixture.client(2));
        let file = wire.open("f", |_| {}).id;
        set(&mut wire, file, THEN, FileAttributes::empty());
        assert_eq!(wire.write(file, b"flushed from a cache"), NtStatus::SUCCESS);
        assert_eq!(facts(&mut wire, file).last_write_time, THEN);
        set(&mut wire, file, FileTime::THAW, FileAttributes::empty());
        assert_eq!(wire.write(file, b"written later"), NtStatus::SUCCESS);
        let moved = facts(&mut wire, file).last_write_time;
        assert!(moved > THEN);
        set(&mut wire, file, FileTime::FREEZE, FileAttributes::empty());
        assert_eq!(wire.write(file, b"written frozen"), NtStatus::SUCCESS);
        assert_eq!(facts(&mut wire, file).last_write_time, moved);
        // Another handle has said nothing of its own writes.
        set(&mut wire, file, THEN, FileAttributes::empty());
        let theirs = other.open("f", |_| {}).id;
        assert_eq!(other.write(theirs, b"theirs"), NtStatus::SUCCESS);
        assert!(facts(&mut wire, file).last_write_time > THEN);
    }
}

#[test]
fn a_directory_has_one_link() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let directory = wire.open("d", |open| open.options = CreateOptions::DIRECTORY_FILE).id;
    let (_, standard) = wire.query(directory, FileInfoClass::STANDARD);
    assert_eq!(Standard::parse(&standard).unwrap().links, 1);
}
