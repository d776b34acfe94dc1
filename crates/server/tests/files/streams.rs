//! Alternate data streams and extended attributes, byte by byte on real sockets.

use std::os::unix::fs::PermissionsExt as _;

use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequestContext, ShareAccess,
};
use smb::info::{
    Basic, Disposition, EndOfFile, FileAttributes, FileInfoClass, FullEa, RenameFlags, Stream,
};
use smb::{
    Command, FileId, FileTime, FlushRequest, Name, NtStatus, OutputResponse, QueryDirectoryFlags,
    QueryDirectoryRequest,
};

use crate::support::{Fixture, Wire};

fn streams(wire: &mut Wire, file_id: FileId) -> Vec<(String, u64)> {
    let (status, output) = wire.query(file_id, FileInfoClass::STREAM);
    assert_eq!(status, NtStatus::SUCCESS);
    let list = Stream::parse_list(&output).unwrap();
    let mut list: Vec<_> =
        list.iter().map(|stream| (stream.name.to_string(), stream.size)).collect();
    list.sort();
    list
}

fn opens(wire: &mut Wire, name: &str) -> NtStatus {
    let opened = wire.open(name, |open| open.disposition = CreateDisposition::OPEN);
    if opened.status == NtStatus::SUCCESS {
        assert_eq!(wire.close(opened.id), NtStatus::SUCCESS);
    }
    opened.status
}

fn stores(fixture: &Fixture) -> usize {
    let home = fixture.dir.path().join(".landfast-streams");
    std::fs::read_dir(home).map(Iterator::count).unwrap_or(0)
}

#[test]
fn a_stream_is_a_file_of_its_own_under_any_spelling() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let stream = wire.open("f.txt:Zone", |_| {}).id;
    assert_eq!(wire.write(stream, b"in the stream"), NtStatus::SUCCESS);
    let file = wire.open("f.txt", |_| {}).id;
    assert_eq!(wire.write(file, b"in the file"), NtStatus::SUCCESS);
    let again = wire.open("F.TXT:zONE:$data", |open| open.disposition = CreateDisposition::OPEN);
    assert_eq!(wire.read(again.id, 1000).1, b"in the stream");
    assert_eq!(wire.read(file, 1000).1, b"in the file");
    let listed = [("::$DATA".to_owned(), 11), (":Zone:$DATA".to_owned(), 13)];
    assert_eq!(streams(&mut wire, file), listed);
    assert_eq!(streams(&mut wire, stream), listed);
    assert_eq!(std::fs::read(fixture.dir.path().join("f.txt")).unwrap(), b"in the file");
    assert_eq!(opens(&mut wire, "f.txt:other"), NtStatus::OBJECT_NAME_NOT_FOUND);
    assert_eq!(opens(&mut wire, "f.txt:Zone:$FOO"), NtStatus::OBJECT_NAME_INVALID);
}

#[test]
fn streams_go_where_their_file_goes_and_end_with_it() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let stream = wire.open("old:s", |_| {}).id;
    assert_eq!(wire.write(stream, b"kept"), NtStatus::SUCCESS);
    let file = wire.open("old", |_| {}).id;
    let nothing = RenameFlags::empty();
    assert_eq!(wire.rename(file, "new", nothing), NtStatus::ACCESS_DENIED, "it is open");
    assert_eq!(wire.close(stream), NtStatus::SUCCESS);
    assert_eq!(wire.rename(file, "new", nothing), NtStatus::SUCCESS);
    let moved = wire.open("new:s", |open| open.disposition = CreateDisposition::OPEN).id;
    assert_eq!(wire.read(moved, 1000).1, b"kept");
    assert_eq!(stores(&fixture), 1);

    // The file waits for its stream, and nobody can open either meanwhile.
    let mut delete = Vec::new();
    Disposition { delete: true }.emit(&mut delete);
    assert_eq!(wire.set(file, FileInfoClass::DISPOSITION, &delete), NtStatus::SUCCESS);
    assert_eq!(wire.close(file), NtStatus::SUCCESS);
    assert!(fixture.dir.path().join("new").exists());
    assert_eq!(opens(&mut wire, "new"), NtStatus::DELETE_PENDING);
    assert_eq!(opens(&mut wire, "new:s"), NtStatus::DELETE_PENDING);
    assert_eq!(wire.close(moved), NtStatus::SUCCESS);
    assert!(!fixture.dir.path().join("new").exists());
    assert_eq!(stores(&fixture), 0);
}

#[test]
fn a_file_that_is_emptied_or_replaced_loses_its_streams() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    for name in ["a:s", "b:s"] {
        let stream = wire.open(name, |_| {}).id;
        assert_eq!(wire.close(stream), NtStatus::SUCCESS);
    }
    let emptied = wire.open("a", |open| open.disposition = CreateDisposition::OVERWRITE).id;
    assert_eq!(streams(&mut wire, emptied), [("::$DATA".to_owned(), 0)]);
    let replace = RenameFlags::REPLACE_IF_EXISTS;
    assert_eq!(wire.rename(emptied, "b", replace), NtStatus::SUCCESS);
    assert_eq!(opens(&mut wire, "b:s"), NtStatus::OBJECT_NAME_NOT_FOUND);
    assert_eq!(stores(&fixture), 1, "the emptied file keeps its place");
}

#[test]
fn a_stream_is_renamed_within_its_file_and_deleted_alone() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let one = wire.open("f:one", |_| {}).id;
    assert_eq!(wire.write(one, b"1"), NtStatus::SUCCESS);
    let two = wire.open("f:two", |_| {}).id;
    assert_eq!(wire.close(two), NtStatus::SUCCESS);
    let nothing = RenameFlags::empty();
    assert_eq!(wire.rename(one, ":TWO", nothing), NtStatus::OBJECT_NAME_COLLISION);
    let replace = RenameFlags::REPLACE_IF_EXISTS;
    assert_eq!(wire.rename(one, ":TWO:$DATA", replace), NtStatus::SUCCESS);
    assert_eq!(streams(&mut wire, one), [("::$DATA".to_owned(), 0), (":TWO:$DATA".to_owned(), 1)]);
    let doomed = wire.open("f:two", |open| open.options = CreateOptions::DELETE_ON_CLOSE).id;
    assert_eq!(wire.close(doomed), NtStatus::SUCCESS);
    assert_eq!(wire.close(one), NtStatus::SUCCESS);
    assert_eq!(opens(&mut wire, "f:two"), NtStatus::OBJECT_NAME_NOT_FOUND);
    assert_eq!(opens(&mut wire, "f"), NtStatus::SUCCESS);
}

#[test]
fn a_stream_that_does_not_share_deleting_keeps_its_file() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let held = wire.open("f:s", |open| open.share_access = ShareAccess::READ).id;
    assert_eq!(opens(&mut wire, "f"), NtStatus::SHARING_VIOLATION);
    let looks = wire.open("f", |open| open.desired_access = AccessMask::FILE_GENERIC_READ);
    assert_eq!(looks.status, NtStatus::SUCCESS);
    assert_eq!(wire.close(held), NtStatus::SUCCESS);
    assert_eq!(opens(&mut wire, "f"), NtStatus::SUCCESS);
}

#[test]
fn a_copy_of_a_file_with_its_xattrs_has_none_of_its_streams() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let stream = wire.open("f:s", |_| {}).id;
    assert_eq!(wire.close(stream), NtStatus::SUCCESS);
    let (from, to) = (fixture.dir.path().join("f"), fixture.dir.path().join("copy"));
    let copied = std::process::Command::new("cp").args(["-a"]).args([&from, &to]).status().unwrap();
    assert!(copied.success());
    assert_eq!(opens(&mut wire, "copy:s"), NtStatus::OBJECT_NAME_NOT_FOUND);
    let own = wire.open("copy:s", |_| {}).id;
    assert_eq!(wire.write(own, b"its own"), NtStatus::SUCCESS);
    let first = wire.open("f:s", |_| {}).id;
    assert_eq!(wire.read(first, 1000).1, b"");
}

#[test]
fn where_streams_are_kept_no_client_can_see_or_name() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let stream = wire.open("f:s", |_| {}).id;
    assert_eq!(wire.close(stream), NtStatus::SUCCESS);
    assert_eq!(stores(&fixture), 1);
    for name in [".landfast-streams", ".LANDFAST-streams\\x", "f\\.landfast-streams"] {
        assert_eq!(opens(&mut wire, name), NtStatus::OBJECT_NAME_INVALID, "{name}");
    }
    let root = wire.open("", |open| open.desired_access = AccessMask::FILE_GENERIC_READ).id;
    let request = QueryDirectoryRequest {
        class: FileInfoClass::NAMES,
        flags: QueryDirectoryFlags::empty(),
        file_index: 0,
        file_id: root,
        output_length_max: 4096,
        pattern: Name::new("*").unwrap(),
    };
    let (_, pdu) = wire.ask(Command::QUERY_DIRECTORY, |out| request.emit(out));
    let listed = OutputResponse::parse(&pdu).unwrap().output;
    let list = smb::info::DirectoryEntry::parse_list(FileInfoClass::NAMES, listed).unwrap();
    let names: Vec<_> = list.iter().map(|entry| entry.name.to_string()).collect();
    assert_eq!(names, [".", "..", "f"]);
}

#[test]
fn extended_attributes_are_set_listed_and_removed() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let list = |pairs: &[(&str, &str)]| {
        let list: Vec<_> = pairs
            .iter()
            .map(|(name, value)| FullEa {
                flags: 0,
                name: name.as_bytes(),
                value: value.as_bytes(),
            })
            .collect();
        let mut bytes = Vec::new();
        FullEa::emit_list(&list, &mut bytes);
        bytes
    };
    let first: &'static [u8] = list(&[("ONE", "1"), ("TWO", "22")]).leak();
    let opened = wire.open("f", |open| {
        open.contexts.push(CreateRequestContext::ExtendedAttributes(first));
    });
    assert_eq!(opened.status, NtStatus::SUCCESS);
    let file = opened.id;
    assert_eq!(wire.query(file, FileInfoClass::FULL_EA), (NtStatus::SUCCESS, first.to_vec()));
    // Names are the same in any case; an empty value removes.
    let change = list(&[("one", "new"), ("Two", "")]);
    assert_eq!(wire.set(file, FileInfoClass::FULL_EA, &change), NtStatus::SUCCESS);
    let left = list(&[("ONE", "new")]);
    assert_eq!(wire.query(file, FileInfoClass::FULL_EA).1, left);
    let ours = list(&[("landfast.dos", "x")]);
    assert_eq!(wire.set(file, FileInfoClass::FULL_EA, &ours), NtStatus::INVALID_EA_NAME);
    let none = list(&[("ONE", "")]);
    assert_eq!(wire.set(file, FileInfoClass::FULL_EA, &none), NtStatus::SUCCESS);
    assert_eq!(wire.query(file, FileInfoClass::FULL_EA).0, NtStatus::NO_EAS_ON_FILE);
}

#[test]
fn a_change_time_that_was_set_stays_until_the_file_changes() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let file = wire.open("f", |_| {}).id;
    let time = FileTime(0x01d0_0000_0000_0000);
    let mut basic = Vec::new();
    let (zero, attributes) = (FileTime::ZERO, FileAttributes::empty());
    Basic {
        creation_time: zero,
        last_access_time: zero,
        last_write_time: zero,
        change_time: time,
        attributes,
    }
    .emit(&mut basic);
    assert_eq!(wire.set(file, FileInfoClass::BASIC, &basic), NtStatus::SUCCESS);
    let seen = |wire: &mut Wire| {
        Basic::parse(&wire.query(file, FileInfoClass::BASIC).1).unwrap().change_time
    };
    assert_eq!(seen(&mut wire), time);
    // The clock of inodes ticks in steps; what falls into the same step is not told apart.
    while seen(&mut wire) == time {
        assert_eq!(wire.write(file, b"changed"), NtStatus::SUCCESS);
    }
    assert!(seen(&mut wire) > time);
}

// Makes the stream `name` of its file the unnamed one.
fn promote(wire: &mut Wire, name: &str) -> NtStatus {
    let stream = wire.open(name, |open| {
        open.disposition = CreateDisposition::OPEN;
        open.desired_access = AccessMask::FILE_GENERIC_READ | AccessMask::DELETE;
    });
    assert_eq!(stream.status, NtStatus::SUCCESS);
    let status = wire.rename(stream.id, "::$DATA", RenameFlags::REPLACE_IF_EXISTS);
    assert_eq!(wire.close(stream.id), NtStatus::SUCCESS);
    status
}

fn with_stream(wire: &mut Wire, name: &str) {
    for (name, bytes) in [(name, b"the file"), (&format!("{name}:s"), b"a stream")] {
        let id = wire.open(name, |_| {}).id;
        assert_eq!(wire.write(id, bytes), NtStatus::SUCCESS);
        assert_eq!(wire.close(id), NtStatus::SUCCESS);
    }
}

#[test]
fn a_stream_takes_the_place_of_a_file_that_is_free_alone() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    let holds = |name: &str| std::fs::read(fixture.dir.path().join(name)).unwrap();
    with_stream(&mut one, "f");

    // Somebody has the file open, alone or not, and locks it.
    let alone = one.open("f", |open| open.share_access = ShareAccess::empty()).id;
    assert_eq!(promote(&mut two, "f:s"), NtStatus::ACCESS_DENIED);
    assert_eq!(one.close(alone), NtStatus::SUCCESS);
    let shared = one.open("f", |_| {}).id;
    assert_eq!(promote(&mut two, "f:s"), NtStatus::ACCESS_DENIED);
    assert_eq!(one.close(shared), NtStatus::SUCCESS);
    assert_eq!(holds("f"), b"the file");

    // Without leave to replace.
    let stream = two.open("f:s", |_| {}).id;
    let refused = two.rename(stream, "::$DATA", RenameFlags::empty());
    assert_eq!(refused, NtStatus::OBJECT_NAME_COLLISION);
    assert_eq!(two.close(stream), NtStatus::SUCCESS);

    with_stream(&mut one, "r");
    let id = one.open("r", |open| open.desired_access = AccessMask::WRITE_ATTRIBUTES).id;
    let leave = FileTime::ZERO;
    let read_only = Basic {
        creation_time: leave,
        last_access_time: leave,
        last_write_time: leave,
        change_time: leave,
        attributes: FileAttributes::READONLY,
    };
    let mut buffer = Vec::new();
    read_only.emit(&mut buffer);
    assert_eq!(one.set(id, FileInfoClass::BASIC, &buffer), NtStatus::SUCCESS);
    assert_eq!(one.close(id), NtStatus::SUCCESS);
    assert_eq!(promote(&mut two, "r:s"), NtStatus::ACCESS_DENIED);
    assert_eq!(holds("r"), b"the file");

    assert_eq!(promote(&mut two, "f:s"), NtStatus::SUCCESS);
    assert_eq!(holds("f"), b"a stream");
    assert_eq!(opens(&mut one, "f:s"), NtStatus::OBJECT_NAME_NOT_FOUND);
    assert_eq!(opens(&mut one, "f"), NtStatus::SUCCESS);
}

#[test]
fn a_handle_of_a_stream_that_became_its_file_takes_no_more_bytes() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    with_stream(&mut one, "f");
    let stream = one.open("f:s", |_| {}).id;
    // What somebody else would write to the stream would be lost.
    let others = two.open("f:s", |_| {}).id;
    let replace = RenameFlags::REPLACE_IF_EXISTS;
    assert_eq!(one.rename(stream, "::$DATA", replace), NtStatus::ACCESS_DENIED);
    assert_eq!(two.write(others, b"A"), NtStatus::SUCCESS);
    assert_eq!(two.close(others), NtStatus::SUCCESS);
    assert_eq!(one.rename(stream, "::$DATA", replace), NtStatus::SUCCESS);
    assert_eq!(one.write(stream, b"lost"), NtStatus::FILE_CLOSED);
    let mut cut = Vec::new();
    EndOfFile { end_of_file: 0 }.emit(&mut cut);
    assert_eq!(one.set(stream, FileInfoClass::END_OF_FILE, &cut), NtStatus::FILE_CLOSED);
    assert_eq!(one.read(stream, 8).0, NtStatus::FILE_CLOSED);
    assert_eq!(one.close(stream), NtStatus::SUCCESS);
    assert_eq!(std::fs::read(fixture.dir.path().join("f")).unwrap(), b"A stream");
}

#[test]
fn a_stream_that_is_open_is_not_replaced_by_another() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    for name in ["f:one", "f:two"] {
        let id = one.open(name, |_| {}).id;
        assert_eq!(one.write(id, name.as_bytes()), NtStatus::SUCCESS);
        assert_eq!(one.close(id), NtStatus::SUCCESS);
    }
    let held = one.open("f:two", |_| {}).id;
    let taker = two.open("f:one", |_| {}).id;
    let replace = RenameFlags::REPLACE_IF_EXISTS;
    assert_eq!(two.rename(taker, ":two", replace), NtStatus::ACCESS_DENIED);
    assert_eq!(one.write(held, b"KEPT"), NtStatus::SUCCESS);
    assert_eq!(one.close(held), NtStatus::SUCCESS);
    let kept = one.open("f:two", |_| {}).id;
    assert_eq!(one.read(kept, 100).1, b"KEPTo");
    assert_eq!(one.close(kept), NtStatus::SUCCESS);
    assert_eq!(two.rename(taker, ":two", replace), NtStatus::SUCCESS);
}

#[test]
fn an_overwrite_removes_no_stream_that_is_open() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    let all = ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE;
    for how in [
        CreateDisposition::OVERWRITE,
        CreateDisposition::OVERWRITE_IF,
        CreateDisposition::SUPERSEDE,
    ] {
        for shares in [ShareAccess::empty(), all] {
            with_stream(&mut one, "f");
            let stream = one.open("f:s", |open| open.share_access = shares).id;
            let refused = two.open("f", |open| {
                open.desired_access = AccessMask::FILE_GENERIC_READ | AccessMask::WRITE_DATA;
                open.disposition = how;
            });
            assert_eq!(refused.status, NtStatus::SHARING_VIOLATION);
            assert_eq!(std::fs::read(fixture.dir.path().join("f")).unwrap(), b"the file");
            assert_eq!(one.write(stream, b"A"), NtStatus::SUCCESS);
            let flush = FlushRequest { file_id: stream };
            let flushed = one.ask(Command::FLUSH, |out| flush.emit(out)).0.status;
            assert_eq!(flushed, NtStatus::SUCCESS);
            assert_eq!(one.close(stream), NtStatus::SUCCESS);
            let stream = one.open("f:s", |open| open.disposition = CreateDisposition::OPEN).id;
            assert_eq!(one.read(stream, 100).1, b"A stream");
            assert_eq!(one.close(stream), NtStatus::SUCCESS);
            let emptied = two.open("f", |open| open.disposition = how);
            assert_eq!(emptied.status, NtStatus::SUCCESS);
            assert_eq!(opens(&mut one, "f:s"), NtStatus::OBJECT_NAME_NOT_FOUND);
            assert_eq!(two.close(emptied.id), NtStatus::SUCCESS);
        }
    }
}

#[test]
fn streams_are_nobody_elses_to_read_on_the_machine() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let id = wire.open("f:s", |_| {}).id;
    assert_eq!(wire.write(id, b"private"), NtStatus::SUCCESS);
    let homes = fixture.dir.path().join(".landfast-streams");
    let mode = || std::fs::metadata(&homes).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o700);
    // As servers before have left it.
    std::fs::set_permissions(&homes, std::fs::Permissions::from_mode(0o755)).unwrap();
    let _next = fixture.another(|_| {});
    assert_eq!(mode(), 0o700);
}
