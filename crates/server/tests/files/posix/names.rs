//! Names: what they may be, and that they go and are moved while files are open.

use smb::create::{
    CreateDisposition, CreateOptions, CreateRequestContext, DurableReconnectV2, DurableRequestV2,
};
use smb::info::{
    Disposition, FileInfoClass, InfoType, PosixEntry, RenameFlags, SecurityInformation,
};
use smb::{
    Command, FileId, Guid, Name, NtStatus, OutputResponse, QueryDirectoryFlags,
    QueryDirectoryRequest,
};

use super::client::{client, close, info, make, on_disk, open, open_as, set, unlink};
use crate::support::crash::Writing;
use crate::support::{Fixture, Wire, new_name};

fn list(wire: &mut Wire, file_id: FileId) -> Result<Vec<PosixEntry>, NtStatus> {
    let request = QueryDirectoryRequest {
        class: FileInfoClass::POSIX,
        flags: QueryDirectoryFlags::RESTART_SCANS,
        file_index: 0,
        file_id,
        pattern: Name::new("*").unwrap(),
        output_length_max: 65536,
    };
    let (header, pdu) = wire.ask(Command::QUERY_DIRECTORY, |out| request.emit(out));
    match header.status {
        NtStatus::SUCCESS => {
            let output = OutputResponse::parse(&pdu).unwrap().output.to_vec();
            Ok(PosixEntry::parse_list(&output).unwrap())
        }
        status => Err(status),
    }
}

fn names(wire: &mut Wire, directory: &str) -> Vec<String> {
    let opened = open(wire, directory).id;
    let listed = list(wire, opened).unwrap();
    close(wire, opened);
    let mut names: Vec<_> = listed.iter().map(|entry| entry.name.to_string()).collect();
    names.sort();
    names
}

fn rename(wire: &mut Wire, file_id: FileId, to: &str, class: FileInfoClass) -> NtStatus {
    let buffer = new_name(to, RenameFlags::REPLACE_IF_EXISTS);
    set(wire, file_id, (InfoType::FILE, class), SecurityInformation::empty(), &buffer)
}

#[test]
fn names_are_what_a_file_system_takes() {
    let fixture = Fixture::start();
    let mut wire = client(&fixture, 1);
    let directory =
        open_as(&mut wire, "dir", 0o755, |open| open.options = CreateOptions::DIRECTORY_FILE);
    close(&mut wire, directory.id);
    let odd = ["Case", "case", "a:b", "trailing.", "space ", "*", "what?", "back\\slash", "<|>\""];
    for name in odd {
        let id = make(&mut wire, &format!("dir/{name}"), 0o644);
        assert_eq!(wire.write(id, name.as_bytes()), NtStatus::SUCCESS);
        close(&mut wire, id);
        assert_eq!(std::fs::read(on_disk(&fixture, "dir").join(name)).unwrap(), name.as_bytes());
    }
    let mut expected: Vec<String> =
        [".", ".."].iter().chain(&odd).map(ToString::to_string).collect();
    expected.sort();
    assert_eq!(names(&mut wire, "dir"), expected);
    assert_eq!(open(&mut wire, "dir/CASE").status, NtStatus::OBJECT_NAME_NOT_FOUND);
    assert_eq!(open(&mut wire, "DIR/case").status, NtStatus::OBJECT_PATH_NOT_FOUND);
    for climbing in ["../x", "dir/../x", "dir//case", "/dir"] {
        assert!(open(&mut wire, climbing).status.is_error(), "{climbing}");
    }
    // Others are shown what they can say.
    let mut windows = fixture.client(2);
    let listed = windows.open("dir", |open| open.disposition = CreateDisposition::OPEN).id;
    assert_eq!(list(&mut windows, listed), Err(NtStatus::INVALID_INFO_CLASS));
    assert_eq!(windows.open("dir\\case", |_| {}).status, NtStatus::SUCCESS);
    assert_eq!(windows.open("dir\\*", |_| {}).status, NtStatus::OBJECT_NAME_INVALID);
}

#[test]
fn a_name_goes_at_once_and_the_open_file_stays() {
    let fixture = Fixture::start();
    let (mut wire, mut other) = (client(&fixture, 1), client(&fixture, 2));
    let held = make(&mut other, "f", 0o644);
    unlink(&mut wire, "f");
    assert!(!on_disk(&fixture, "f").exists());
    assert_eq!(other.write(held, b"still there"), NtStatus::SUCCESS);
    assert_eq!(info(&mut other, held).facts.links, 0);
    let again = make(&mut wire, "f", 0o600);
    close(&mut other, held);
    assert!(on_disk(&fixture, "f").exists(), "the new one is another");
    close(&mut wire, again);

    // By a wish of its own handle, the name goes with that handle.
    let wisher = open(&mut wire, "f").id;
    let held = open(&mut other, "f").id;
    let mut delete = Vec::new();
    Disposition { delete: true }.emit(&mut delete);
    let none = SecurityInformation::empty();
    let class = (InfoType::FILE, FileInfoClass::DISPOSITION);
    assert_eq!(set(&mut wire, wisher, class, none, &delete), NtStatus::SUCCESS);
    close(&mut wire, wisher);
    assert!(!on_disk(&fixture, "f").exists());
    close(&mut other, held);

    // Who opened otherwise keeps the name until the last handle is closed.
    let mut windows = fixture.client(3);
    let held = windows.open("g", |_| {}).id;
    unlink(&mut wire, "g");
    assert_eq!(open(&mut wire, "g").status, NtStatus::DELETE_PENDING);
    close(&mut windows, held);
    assert!(!on_disk(&fixture, "g").exists());
}

#[test]
fn a_rename_replaces_what_is_open_and_moves_what_is_open_below() {
    let fixture = Fixture::start();
    let (mut wire, mut other) = (client(&fixture, 1), client(&fixture, 2));
    let new = make(&mut wire, "new", 0o600);
    assert_eq!(wire.write(new, b"new"), NtStatus::SUCCESS);
    let old = make(&mut other, "old", 0o600);
    assert_eq!(rename(&mut wire, new, "old", FileInfoClass::RENAME), NtStatus::SUCCESS);
    assert_eq!(std::fs::read(on_disk(&fixture, "old")).unwrap(), b"new");
    assert_eq!(info(&mut other, old).facts.links, 0);
    close(&mut other, old);
    // A second name, and the same name in other letters.
    assert_eq!(rename(&mut wire, new, "Old", FileInfoClass::LINK), NtStatus::SUCCESS);
    assert_eq!(info(&mut wire, new).facts.links, 2);
    close(&mut wire, new);

    std::fs::create_dir_all(on_disk(&fixture, "from/deep")).unwrap();
    std::fs::create_dir(on_disk(&fixture, "empty")).unwrap();
    std::fs::create_dir_all(on_disk(&fixture, "full/x")).unwrap();
    let below = make(&mut other, "from/deep/f", 0o600);
    let directory = open(&mut wire, "from").id;
    let replaced = rename(&mut wire, directory, "full", FileInfoClass::RENAME);
    assert_eq!(replaced, NtStatus::DIRECTORY_NOT_EMPTY);
    assert_eq!(rename(&mut wire, directory, "empty", FileInfoClass::RENAME), NtStatus::SUCCESS);
    assert!(on_disk(&fixture, "empty/deep/f").exists());
    // The open below knows where it is now.
    assert_eq!(rename(&mut other, below, "up", FileInfoClass::RENAME), NtStatus::SUCCESS);
    assert!(on_disk(&fixture, "up").exists());

    // Not over the head of somebody who opened otherwise.
    let mut windows = fixture.client(3);
    let held = windows.open("empty\\deep\\w", |_| {}).id;
    let refused = rename(&mut wire, directory, "third", FileInfoClass::RENAME);
    assert_eq!(refused, NtStatus::ACCESS_DENIED);
    close(&mut windows, held);
}

#[test]
fn a_directory_renamed_above_a_handle_that_writes_through_gets_a_durable_name() {
    for (options, is_synced) in
        [(CreateOptions::empty(), false), (CreateOptions::WRITE_THROUGH, true)]
    {
        let fixture = Fixture::start_in(std::path::Path::new("/var/tmp"), |_| {});
        std::fs::create_dir(on_disk(&fixture, "from")).unwrap();
        let mut wire = client(&fixture, 1);
        let below = open_as(&mut wire, "from/f", 0o600, |open| open.options = options);
        assert_eq!(below.status, NtStatus::SUCCESS);
        let directory = open(&mut wire, "from").id;
        let before = fixture.running.status().directories_synced;
        assert_eq!(rename(&mut wire, directory, "to", FileInfoClass::RENAME), NtStatus::SUCCESS);
        let after = fixture.running.status().directories_synced;
        assert_eq!(after > before, is_synced, "{options:?}");
    }
}

#[test]
fn a_persistent_open_below_a_directory_that_is_renamed_is_found_after_a_crash() {
    let server = Writing::start();
    let fixture = &server.fixture;
    std::fs::create_dir(on_disk(fixture, "from")).unwrap();
    let mut wire = client(fixture, 1);
    let create_guid = Guid([5; 16]);
    let asked = DurableRequestV2 { timeout_ms: 0, persistent: true, create_guid };
    let below = open_as(&mut wire, "from/f", 0o600, |open| {
        open.contexts.push(CreateRequestContext::DurableV2(asked));
    });
    let directory = open(&mut wire, "from").id;
    assert_eq!(rename(&mut wire, directory, "to", FileInfoClass::RENAME), NtStatus::SUCCESS);
    let after = server.crash();
    let mut again = after.fixture.client(1);
    let back = DurableReconnectV2 { file_id: below.id, create_guid, persistent: true };
    let back = again.open("to\\f", |open| {
        open.contexts.push(CreateRequestContext::DurableReconnectV2(back));
    });
    assert_eq!(back.status, NtStatus::SUCCESS);
    assert_eq!(again.write(back.id, b"new"), NtStatus::SUCCESS);
    assert_eq!(std::fs::read(on_disk(fixture, "to/f")).unwrap(), b"new");
}
