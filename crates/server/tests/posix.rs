//! The SMB3 POSIX extensions, byte by byte on real sockets.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use server::{Server, ServerConfig, ShareConfig, Users};
use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, CreateRequestContext,
    CreateResponseContext, DurableReconnectV2, DurableRequestV2, PosixResponse,
};
use smb::fsctl::{ReparsePoint, SymlinkReparse};
use smb::info::security::{Ace, Control, Dacl, SecurityDescriptor, Sid};
use smb::info::{
    Disposition, FileAttributes, FileInfoClass, FsInfoClass, FsPosix, InfoType, PosixEntry,
    PosixInfo, RenameFlags, SecurityInformation,
};
use smb::negotiate::{NegotiateContext, NegotiateResponse};
use smb::{
    CloseRequest, Command, ControlCode, ErrorResponse, FileId, Guid, IoctlRequest, IoctlResponse,
    Name, NtStatus, OutputResponse, QueryDirectoryFlags, QueryDirectoryRequest, QueryInfoRequest,
    SetInfoRequest, SymlinkError,
};
use support::{Fixture, Opened, Wire, new_name};

/// A client that knows the extensions, in the share.
fn client(fixture: &Fixture, number: u8) -> Wire {
    let mut wire = fixture.dial();
    let version = NegotiateContext::Posix(NegotiateContext::POSIX_VERSION);
    let (_, pdu) = wire.negotiate_with(number, vec![version.clone()]);
    assert!(NegotiateResponse::parse(&pdu).unwrap().contexts.contains(&version));
    wire.log_on();
    wire.enter("data");
    wire
}

const NO_MODE: u32 = 0xffff;

fn open_as(
    wire: &mut Wire,
    name: &str,
    mode: u32,
    change: impl FnOnce(&mut CreateRequest<'_>),
) -> Opened {
    wire.open(name, |open| {
        open.contexts.push(CreateRequestContext::Posix { mode });
        open.desired_access |=
            AccessMask::READ_CONTROL | AccessMask::WRITE_DAC | AccessMask::WRITE_OWNER;
        change(open);
    })
}

fn open(wire: &mut Wire, name: &str) -> Opened {
    open_as(wire, name, NO_MODE, |open| open.disposition = CreateDisposition::OPEN)
}

fn make(wire: &mut Wire, name: &str, mode: u32) -> FileId {
    let made = open_as(wire, name, mode, |open| open.disposition = CreateDisposition::CREATE);
    assert_eq!(made.status, NtStatus::SUCCESS, "{name}");
    made.id
}

fn facts(opened: &Opened) -> PosixResponse {
    let response = opened.response();
    let found = response.contexts.iter().find_map(|context| match context {
        CreateResponseContext::Posix(facts) => Some(facts.clone()),
        _ => None,
    });
    found.expect("the answer speaks of POSIX")
}

fn close(wire: &mut Wire, file_id: FileId) {
    let request = CloseRequest { query_attributes: false, file_id };
    assert_eq!(wire.ask(Command::CLOSE, |out| request.emit(out)).0.status, NtStatus::SUCCESS);
}

fn query(
    wire: &mut Wire,
    file_id: FileId,
    info_type: InfoType,
    class: u8,
    additional: SecurityInformation,
) -> Result<Vec<u8>, NtStatus> {
    let request = QueryInfoRequest {
        info_type,
        class,
        output_length_max: 4096,
        additional,
        flags: 0,
        file_id,
        input: &[],
    };
    let (header, pdu) = wire.ask(Command::QUERY_INFO, |out| request.emit(out));
    match header.status {
        NtStatus::SUCCESS => Ok(OutputResponse::parse(&pdu).unwrap().output.to_vec()),
        status => Err(status),
    }
}

fn info(wire: &mut Wire, file_id: FileId) -> PosixInfo {
    let none = SecurityInformation::empty();
    let bytes = query(wire, file_id, InfoType::FILE, FileInfoClass::POSIX.0, none).unwrap();
    PosixInfo::parse(&bytes).unwrap()
}

fn set(
    wire: &mut Wire,
    file_id: FileId,
    (info_type, class): (InfoType, FileInfoClass),
    additional: SecurityInformation,
    buffer: &[u8],
) -> NtStatus {
    let request = SetInfoRequest { info_type, class: class.0, additional, file_id, buffer };
    wire.ask(Command::SET_INFO, |out| request.emit(out)).0.status
}

fn rename(wire: &mut Wire, file_id: FileId, to: &str, class: FileInfoClass) -> NtStatus {
    let buffer = new_name(to, RenameFlags::REPLACE_IF_EXISTS);
    set(wire, file_id, (InfoType::FILE, class), SecurityInformation::empty(), &buffer)
}

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

fn chmod(wire: &mut Wire, file_id: FileId, mode: u32) -> NtStatus {
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
    let status = control(wire, file.id, ControlCode::SET_REPARSE_POINT, &input).0;
    if status == NtStatus::SUCCESS {
        assert_eq!(info(wire, file.id).facts.mode >> 12, 2, "the handle is the link's");
    }
    close(wire, file.id);
    status
}

fn control(
    wire: &mut Wire,
    file_id: FileId,
    code: ControlCode,
    input: &[u8],
) -> (NtStatus, Vec<u8>) {
    let request = IoctlRequest {
        code,
        file_id,
        input,
        input_response_max: 0,
        output_response_max: 4096,
        is_fsctl: true,
    };
    let (header, pdu) = wire.ask(Command::IOCTL, |out| request.emit(out));
    let output = IoctlResponse::parse(&pdu).map(|response| response.output.to_vec());
    (header.status, output.unwrap_or_default())
}

fn unlink(wire: &mut Wire, name: &str) {
    let opened = open_as(wire, name, NO_MODE, |open| {
        open.disposition = CreateDisposition::OPEN;
        open.options = CreateOptions::DELETE_ON_CLOSE | CreateOptions::OPEN_REPARSE_POINT;
    });
    assert_eq!(opened.status, NtStatus::SUCCESS, "{name}");
    close(wire, opened.id);
}

fn on_disk(fixture: &Fixture, name: &str) -> PathBuf {
    fixture.dir.path().join(name)
}

#[test]
fn the_extensions_are_for_those_who_name_their_version() {
    let fixture = Fixture::start();
    let other = NegotiateContext::Posix(Guid([1; 16]));
    let mut wire = fixture.dial();
    let (_, pdu) = wire.negotiate_with(1, vec![other]);
    let contexts = NegotiateResponse::parse(&pdu).unwrap().contexts;
    assert!(!contexts.iter().any(|context| matches!(context, NegotiateContext::Posix(_))));
    wire.log_on();
    wire.enter("data");
    // The context of CREATE alone makes nobody a POSIX client.
    let opened = open_as(&mut wire, "f", 0o600, |_| {});
    assert!(opened.response().contexts.is_empty());
    let none = SecurityInformation::empty();
    for (kind, class) in [(InfoType::FILE, 100), (InfoType::FILE_SYSTEM, FsInfoClass::POSIX.0)] {
        let refused = query(&mut wire, opened.id, kind, class, none);
        assert_eq!(refused, Err(NtStatus::INVALID_INFO_CLASS));
    }
    assert_eq!(chmod(&mut wire, opened.id, 0o600), NtStatus::NOT_SUPPORTED);
    assert_eq!(open_as(&mut wire, "a:b/c", NO_MODE, |_| {}).status, NtStatus::OBJECT_NAME_INVALID);
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
fn a_persistent_open_below_a_directory_that_is_renamed_is_found_after_a_crash() {
    let log = tempfile::tempdir().unwrap();
    let [opens, copy] = ["opens", "copy"].map(|name| log.path().join(name));
    let writes = opens.clone();
    let fixture = Fixture::start_with(|config| config.shares[0].persistent_opens = Some(writes));
    std::fs::create_dir(on_disk(&fixture, "from")).unwrap();
    let mut wire = client(&fixture, 1);
    let create_guid = Guid([5; 16]);
    let asked = DurableRequestV2 { timeout_ms: 0, persistent: true, create_guid };
    let below = open_as(&mut wire, "from/f", 0o600, |open| {
        open.contexts.push(CreateRequestContext::DurableV2(asked));
    });
    let directory = open(&mut wire, "from").id;
    assert_eq!(rename(&mut wire, directory, "to", FileInfoClass::RENAME), NtStatus::SUCCESS);
    std::fs::copy(&opens, &copy).unwrap();
    let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
    let mut share = ShareConfig::new("data", fixture.dir.path());
    share.persistent_opens = Some(copy);
    config.shares.push(share);
    config.users = Users::with_passwords([("user", "secret")]);
    // The server died, and another one serves what it left.
    let running = fixture.runtime.block_on(Server::start(config)).unwrap();
    let mut again = Wire::dial(running.tcp_address());
    again.negotiate(1);
    again.log_on();
    again.enter("data");
    let back = DurableReconnectV2 { file_id: below.id, create_guid, persistent: true };
    let back = again.open("to\\f", |open| {
        open.contexts.push(CreateRequestContext::DurableReconnectV2(back));
    });
    assert_eq!(back.status, NtStatus::SUCCESS);
    assert_eq!(again.write(back.id, b"new"), NtStatus::SUCCESS);
    assert_eq!(std::fs::read(on_disk(&fixture, "to/f")).unwrap(), b"new");
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
    let (status, bytes) = control(&mut wire, link.id, ControlCode::GET_REPARSE_POINT, &[]);
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
    let refused = control(&mut wire, file, ControlCode::SET_REPARSE_POINT, &input).0;
    assert_eq!(refused, NtStatus::NOT_SUPPORTED);
    assert_eq!(std::fs::read(on_disk(&fixture, "f")).unwrap(), b"data");
    // A device, by the tag of NFS.
    let empty = make(&mut wire, "e", 0o644);
    let nfs = b"\x14\0\0\x80\x08\0\0\0CHR\0\0\0\0\0";
    let refused = control(&mut wire, empty, ControlCode::SET_REPARSE_POINT, nfs).0;
    assert_eq!(refused, NtStatus::NOT_SUPPORTED);
    let mut windows = fixture.client(2);
    let other = windows.open("w", |_| {}).id;
    let refused = control(&mut windows, other, ControlCode::SET_REPARSE_POINT, &input).0;
    assert_eq!(refused, NtStatus::NOT_SUPPORTED);
}

#[test]
fn the_file_system_is_as_large_as_the_kernel_says() {
    let fixture = Fixture::start();
    let mut wire = client(&fixture, 1);
    let root = open(&mut wire, "").id;
    let none = SecurityInformation::empty();
    let bytes = query(&mut wire, root, InfoType::FILE_SYSTEM, FsInfoClass::POSIX.0, none).unwrap();
    let said = FsPosix::parse(&bytes).unwrap();
    let real = rustix::fs::statvfs(fixture.dir.path()).unwrap();
    assert_eq!(u64::from(said.block_size), real.f_frsize);
    assert_eq!((said.total_blocks, said.total_file_nodes), (real.f_blocks, real.f_files));
    assert!(said.user_available_blocks <= said.available_blocks);
}
