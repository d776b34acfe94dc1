//! Lengths: every length, count and offset a client sends, at the values where arithmetic breaks.
//!
//! Each test takes a request that works and puts [`extremes`] into one field after the other. The
//! server refuses, answers something sound, or hangs up; it does not panic, does not answer more
//! than was asked for, and its other clients do not notice.

use smb::create::{CreateRequestContext, DurableRequestV2, OplockLevel};
use smb::info::{FileInfoClass, InfoType, RenameFlags, SecurityInformation};
use smb::negotiate::{
    Capabilities, CipherId, Dialect, HashId, NegotiateContext, NegotiateRequest, SecurityMode,
    SigningId,
};
use smb::{
    Command, ControlCode, FileId, Guid, Header, LockFlags, MessageId, Name, NtStatus,
    QueryDirectoryFlags, QueryDirectoryRequest, QueryInfoRequest, SetInfoRequest,
    TreeConnectRequest,
};

use crate::peer::{lease, lock, receive, serves, start};
use crate::support::compound::headers;
use crate::support::{self, Fixture, Wire, create, new_name, read, write};

/// A field of a PDU: where it lies and how many bytes it has.
type Field = (usize, usize);

/// What a field of `width` bytes that said `was`, in a PDU of `len` bytes, is made to say.
fn extremes(width: usize, was: u64, len: usize) -> Vec<u64> {
    let max = u64::MAX >> (64 - 8 * width);
    let len = u64::try_from(len).unwrap();
    let near = [was.wrapping_sub(1), was + 1, was + 8, was.wrapping_mul(2)];
    let edges =
        [0, 1, 7, len - 1, len, len + 1, len.wrapping_sub(64), max / 2, max / 2 + 1, max - 7, max];
    let mut values: Vec<_> = near.iter().chain(&edges).map(|value| value & max).collect();
    values.sort_unstable();
    values.dedup();
    values
}

fn get(pdu: &[u8], (at, width): Field) -> u64 {
    let mut bytes = [0; 8];
    bytes[..width].copy_from_slice(&pdu[at..at + width]);
    u64::from_le_bytes(bytes)
}

fn put(pdu: &mut [u8], (at, width): Field, value: u64) {
    pdu[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
}

/// Sends `request` with each field at each extreme, on a connection that is made anew when it
/// ends. At least one of them has to be refused: otherwise the fields are not where we think.
fn distort(
    fixture: &Fixture,
    prepare: impl Fn() -> (Wire, FileId),
    request: impl Fn(&mut Wire, FileId) -> (Vec<u8>, Vec<Field>),
) {
    let (mut wire, mut id) = prepare();
    let (pristine, fields) = request(&mut wire, id);
    let mut bytes = pristine.clone();
    wire.sign(&mut bytes);
    wire.send_frame(&bytes);
    let good = receive(&mut wire).map(|pdu| headers(&pdu)[0].status);
    assert!(good.is_some_and(|status| !status.is_error()), "it works as it is: {good:?}");
    (wire, id) = prepare();
    let (mut refused, mut tried) = (0, 0);
    for field in fields {
        for value in extremes(field.1, get(&pristine, field), pristine.len()) {
            let (mut pdu, _) = request(&mut wire, id);
            put(&mut pdu, field, value);
            wire.sign(&mut pdu);
            wire.send_frame(&pdu);
            tried += 1;
            let status = loop {
                match receive(&mut wire) {
                    None => break None,
                    Some(pdu) => match headers(&pdu)[0].status {
                        NtStatus::PENDING => {}
                        status => break Some(status),
                    },
                }
            };
            // Also a warning that nothing comes with: EA_LIST_INCONSISTENT.
            if status.is_none_or(|status| !status.is_success()) {
                refused += 1;
                (wire, id) = prepare();
            }
        }
    }
    assert!(refused > 0, "all of {tried} were taken");
    serves(fixture);
}

fn with_file(fixture: &Fixture) -> impl Fn() -> (Wire, FileId) + '_ {
    || {
        let mut wire = fixture.client(1);
        let opened = wire.open("f", |_| {});
        assert_eq!(opened.status, NtStatus::SUCCESS);
        (wire, opened.id)
    }
}

fn u32_at(pdu: &[u8], at: usize) -> usize {
    usize::try_from(get(pdu, (at, 4))).unwrap()
}

/// CVE-2023-38427, CVE-2023-38428: the counts, offsets and lengths of a NEGOTIATE and its contexts.
#[test]
fn a_negotiate_that_lies_about_its_contexts() {
    let fixture = start();
    let request = |wire: &mut Wire, _| {
        let contexts = vec![
            NegotiateContext::PreauthIntegrity { hashes: vec![HashId::SHA_512], salt: &[7; 32] },
            NegotiateContext::Encryption(vec![CipherId::AES_128_GCM, CipherId::AES_128_CCM]),
            NegotiateContext::Signing(vec![SigningId::AES_GMAC]),
        ];
        let request = NegotiateRequest {
            security_mode: SecurityMode::SIGNING_ENABLED,
            capabilities: Capabilities::LARGE_MTU,
            client_guid: Guid([1; 16]),
            dialects: vec![Dialect::SMB_3_0, Dialect::SMB_3_1_1],
            contexts,
        };
        let pdu = wire.pdu(Command::NEGOTIATE, |out| request.emit(out));
        let at = u32_at(&pdu, 92);
        // Dialects; contexts: where, how many; of the first: type, length, count, salt; of the
        // second: length, count.
        let second = at + 8 + usize::try_from(get(&pdu, (at + 2, 2))).unwrap().next_multiple_of(8);
        let fields = vec![
            (66, 2),
            (92, 4),
            (96, 2),
            (at, 2),
            (at + 2, 2),
            (at + 8, 2),
            (at + 10, 2),
            (second + 2, 2),
            (second + 8, 2),
        ];
        (pdu, fields)
    };
    distort(&fixture, || (fixture.dial(), FileId::RELATED), request);
}

/// CVE-2023-38426, CVE-2025-22042, CVE-2025-22043: names and contexts of a CREATE.
#[test]
fn a_create_that_lies_about_its_name_and_contexts() {
    let fixture = start();
    let prepare = || (fixture.client(1), FileId::RELATED);
    let request = |wire: &mut Wire, _| {
        let request = create("f", |request| {
            request.oplock_level = OplockLevel::LEASE;
            let (timeout_ms, create_guid) = (1, Guid([wire.next_id.to_le_bytes()[0]; 16]));
            let durable = DurableRequestV2 { timeout_ms, persistent: false, create_guid };
            request.contexts.extend([
                CreateRequestContext::Lease(lease(1)),
                CreateRequestContext::DurableV2(durable),
                CreateRequestContext::MaximalAccess(None),
            ]);
        });
        let pdu = wire.pdu(Command::CREATE, |out| request.emit(out));
        let mut fields = vec![(108, 2), (110, 2), (112, 4), (116, 4)];
        let mut at = u32_at(&pdu, 112);
        loop {
            fields.extend([(at, 4), (at + 4, 2), (at + 6, 2), (at + 10, 2), (at + 12, 4)]);
            match u32_at(&pdu, at) {
                0 => break,
                next => at += next,
            }
        }
        (pdu, fields)
    };
    distort(&fixture, prepare, request);
}

/// CVE-2023-4130: lists of extended attributes.
#[test]
fn a_list_of_extended_attributes_that_lies_about_its_entries() {
    let fixture = start();
    // Two entries: next, flags, name length, value length, name, 0, value.
    let mut list = vec![20, 0, 0, 0, 0, 3, 4, 0];
    list.extend_from_slice(b"ONE\0abcd\0\0\0\0");
    list.extend_from_slice(&[0, 0, 0, 0, 0, 3, 4, 0]);
    list.extend_from_slice(b"TWO\0efgh");
    let entries = |at: usize| {
        let of = |at| [(at, 4), (at + 5, 1), (at + 6, 2)];
        of(at).into_iter().chain(of(at + 20)).collect::<Vec<_>>()
    };
    let set = |wire: &mut Wire, file_id| {
        let request = support::set(file_id, FileInfoClass::FULL_EA, &list);
        let pdu = wire.pdu(Command::SET_INFO, |out| request.emit(out));
        let mut fields = entries(pdu.len() - list.len());
        fields.extend([(68, 4), (72, 2)]);
        (pdu, fields)
    };
    distort(&fixture, with_file(&fixture), set);
    let give = |wire: &mut Wire, _| {
        let given = CreateRequestContext::ExtendedAttributes(&list);
        let request = create("g", |request| request.contexts.push(given));
        let pdu = wire.pdu(Command::CREATE, |out| request.emit(out));
        let at = pdu.windows(list.len()).position(|part| part == list).unwrap();
        (pdu, entries(at))
    };
    distort(&fixture, || (fixture.client(1), FileId::RELATED), give);
}

/// CVE-2023-0210, CVE-2023-52440, CVE-2023-3867: the buffers of an NTLMSSP message and its wrapping.
#[test]
fn an_ntlmssp_message_that_lies_about_its_buffers() {
    let fixture = start();
    for leg in [0, 1] {
        let request = |wire: &mut Wire, _| logon(wire, leg);
        let prepare = || {
            let mut wire = fixture.dial();
            wire.negotiate(1);
            (wire, FileId::RELATED)
        };
        // A wrong proof is not what is tried here, and is made to wait after ten of them.
        distort_logons(&fixture, prepare, request);
    }
}

/// The SESSION_SETUP of that leg and its fields.
fn logon(wire: &mut Wire, leg: usize) -> (Vec<u8>, Vec<Field>) {
    let pdu = wire.leg(leg, "user", "secret").unwrap();
    let ntlm = pdu.windows(8).position(|part| part == b"NTLMSSP\0").unwrap();
    let token_at = usize::try_from(get(&pdu, (76, 2))).unwrap();
    let mut fields = vec![(76, 2), (78, 2), (ntlm + 8, 4)];
    // The lengths of the wrapping: one byte each, somewhere in front of the message.
    fields.extend((token_at + 1..ntlm).map(|at| (at, 1)));
    let buffers = if leg == 0 { 16..32 } else { 12..60 };
    for at in buffers.step_by(8) {
        fields.extend([(ntlm + at, 2), (ntlm + at + 2, 2), (ntlm + at + 4, 4)]);
    }
    (pdu, fields)
}

/// [`distort`] where an attempt uses its connection up and the server counts failures: enough of
/// the fields that the throttle does not hide the rest.
fn distort_logons(
    fixture: &Fixture,
    prepare: impl Fn() -> (Wire, FileId),
    request: impl Fn(&mut Wire, FileId) -> (Vec<u8>, Vec<Field>),
) {
    let (mut wire, id) = prepare();
    let fields = request(&mut wire, id).1;
    drop(wire);
    let mut refused = 0;
    for field in fields {
        let values = {
            let (mut wire, id) = prepare();
            let (pdu, _) = request(&mut wire, id);
            extremes(field.1, get(&pdu, field), pdu.len())
        };
        for value in values {
            let (mut wire, id) = prepare();
            let (mut pdu, _) = request(&mut wire, id);
            put(&mut pdu, field, value);
            wire.send_frame(&pdu);
            let status = receive(&mut wire).map(|pdu| headers(&pdu)[0].status);
            refused += usize::from(status.is_none_or(NtStatus::is_error));
        }
    }
    assert!(refused > 0);
    assert_eq!(fixture.running.status().sessions, 0);
}

/// CVE-2022-47942, CVE-2025-22038, CVE-2026-43490: access control lists and the SIDs in them.
#[test]
fn a_security_descriptor_that_lies_about_its_lists() {
    let fixture = start();
    // Self-relative, owner, one entry that allows everyone.
    let sid = [1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    let mut descriptor = vec![1, 0, 4, 0x80, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0];
    descriptor.extend_from_slice(&sid);
    descriptor.extend_from_slice(&[2, 0, 28, 0, 1, 0, 0, 0, 0, 0, 20, 0, 0xff, 1, 0x1f, 0]);
    descriptor.extend_from_slice(&sid);
    // Offsets; the owner's count of authorities; the list's size and count; the entry's size and
    // its count of authorities.
    let fields = [(4, 4), (8, 4), (12, 4), (16, 4), (21, 1), (34, 2), (36, 2), (42, 2), (49, 1)];
    let (mut wire, mut id) = with_file(&fixture)();
    for (at, width) in fields {
        for value in extremes(width, get(&descriptor, (at, width)), descriptor.len()) {
            let mut bent = descriptor.clone();
            put(&mut bent, (at, width), value);
            let request = SetInfoRequest {
                info_type: InfoType::SECURITY,
                class: 0,
                additional: SecurityInformation::DACL,
                file_id: id,
                buffer: &bent,
            };
            let message = wire.start(Command::SET_INFO, |out| request.emit(out));
            if receive(&mut wire).is_none() {
                (wire, id) = with_file(&fixture)();
            } else {
                assert_eq!(message + 1, wire.next_id);
            }
            let name = format!("made.{}.{}", wire.session, wire.next_id);
            let request = create(&name, |request| {
                request.contexts.push(CreateRequestContext::SecurityDescriptor(&bent));
            });
            wire.start(Command::CREATE, |out| request.emit(out));
            if receive(&mut wire).is_none() {
                (wire, id) = with_file(&fixture)();
            }
        }
    }
    serves(&fixture);
}

/// CVE-2022-47940, CVE-2022-47943, CVE-2023-3865: the data of a WRITE and what a READ asks for.
#[test]
fn a_write_or_read_that_lies_about_its_data() {
    let fixture = start();
    let put = |wire: &mut Wire, id| {
        let pdu = wire.pdu(Command::WRITE, |out| write(id, 0, &[b'w'; 100]).emit(out));
        (pdu, vec![(66, 2), (68, 4), (104, 2), (106, 2)])
    };
    distort(&fixture, with_file(&fixture), put);
    let len = std::fs::metadata(fixture.dir.path().join("f")).unwrap().len();
    assert!(len <= 112 + 100, "{len} bytes were never sent");
    // Where the client says: also beyond what any file can be. CVE-2024-56626, CVE-2024-56627.
    let place = |wire: &mut Wire, id| {
        let pdu = wire.pdu(Command::WRITE, |out| write(id, 0, b"").emit(out));
        (pdu, vec![(66, 2), (68, 4)])
    };
    distort(&fixture, with_file(&fixture), place);
    let get = |wire: &mut Wire, id| {
        let pdu = wire.pdu(Command::READ, |out| read(id, 0, 10).emit(out));
        (pdu, vec![(68, 4), (96, 4), (108, 2), (110, 2)])
    };
    distort(&fixture, with_file(&fixture), get);
}

/// CVE-2024-56626, CVE-2024-56627: offsets that are negative to those who count with a sign.
#[test]
fn offsets_beyond_what_a_file_can_have_touch_nothing() {
    let fixture = start();
    for name in ["f", "f:stream"] {
        let mut wire = fixture.client(1);
        let id = wire.open(name, |_| {}).id;
        wire.ask(Command::WRITE, |out| write(id, 0, b"kept").emit(out));
        for offset in [1 << 63, u64::MAX - 3, u64::MAX, i64::MAX as u64] {
            let (header, _) = wire.ask(Command::WRITE, |out| write(id, offset, b"bad").emit(out));
            assert!(header.status.is_error(), "{offset:#x}");
            let mut far = read(id, 0, 4);
            far.offset = offset;
            let (header, _) = wire.ask(Command::READ, |out| far.emit(out));
            assert!(header.status.is_error(), "{offset:#x}");
        }
        let (_, pdu) = wire.ask(Command::READ, |out| read(id, 0, 100).emit(out));
        assert_eq!(smb::ReadResponse::parse(&pdu).unwrap().data, b"kept");
    }
    serves(&fixture);
}

/// CVE-2023-38432, CVE-2024-26952: input and output buffers of QUERY_INFO, SET_INFO,
/// QUERY_DIRECTORY and IOCTL, and the names in them.
#[test]
fn a_query_or_control_that_lies_about_its_buffers() {
    let fixture = start();
    let info = |wire: &mut Wire, file_id| {
        let query = support::query(file_id, InfoType::FILE, FileInfoClass::ALL.0);
        let request = QueryInfoRequest { input: &[0; 16], ..query };
        let pdu = wire.pdu(Command::QUERY_INFO, |out| request.emit(out));
        (pdu, vec![(68, 4), (72, 2), (76, 4)])
    };
    distort(&fixture, with_file(&fixture), info);
    let renamed = |wire: &mut Wire, file_id| {
        let name = format!("g{:020}", wire.session);
        let buffer = new_name(&name, RenameFlags::REPLACE_IF_EXISTS);
        let request = support::set(file_id, FileInfoClass::RENAME, &buffer);
        let pdu = wire.pdu(Command::SET_INFO, |out| request.emit(out));
        let at = pdu.len() - buffer.len();
        (pdu, vec![(68, 4), (72, 2), (at + 8, 8), (at + 16, 4)])
    };
    distort(&fixture, with_file(&fixture), renamed);
    let directory = || {
        let mut wire = fixture.client(1);
        let opened =
            wire.open("", |open| open.options |= smb::create::CreateOptions::DIRECTORY_FILE);
        assert_eq!(opened.status, NtStatus::SUCCESS);
        (wire, opened.id)
    };
    let listed = |wire: &mut Wire, file_id| {
        let request = QueryDirectoryRequest {
            class: FileInfoClass::ID_BOTH_DIRECTORY,
            flags: QueryDirectoryFlags::RESTART_SCANS,
            file_index: 0,
            file_id,
            pattern: Name::new("*").unwrap(),
            output_length_max: 4096,
        };
        let pdu = wire.pdu(Command::QUERY_DIRECTORY, |out| request.emit(out));
        (pdu, vec![(88, 2), (90, 2), (92, 4)])
    };
    distort(&fixture, directory, listed);
    let control = |wire: &mut Wire, file_id| {
        let request = support::control(file_id, ControlCode::QUERY_ALLOCATED_RANGES, &[0; 16]);
        let pdu = wire.pdu(Command::IOCTL, |out| request.emit(out));
        (pdu, vec![(88, 4), (92, 4), (96, 4), (100, 4), (104, 4), (108, 4), (120, 8), (128, 8)])
    };
    distort(&fixture, with_file(&fixture), control);
    let entered = |wire: &mut Wire, _| {
        let path = Name::new("\\\\127.0.0.1\\data").unwrap();
        let request = TreeConnectRequest { flags: 0, path };
        let pdu = wire.pdu(Command::TREE_CONNECT, |out| request.emit(out));
        (pdu, vec![(68, 2), (70, 2)])
    };
    distort(&fixture, || (fixture.client(1), FileId::RELATED), entered);
    let locked = |wire: &mut Wire, id| {
        let flags = LockFlags::SHARED | LockFlags::FAIL_IMMEDIATELY;
        let pdu = wire.pdu(Command::LOCK, |out| lock(id, 0, flags).emit(out));
        (pdu, vec![(66, 2), (88, 8), (96, 8)])
    };
    distort(&fixture, with_file(&fixture), locked);
}

/// CVE-2023-38430, CVE-2023-52442, CVE-2024-22705: NextCommand and the frame around it.
#[test]
fn a_compound_that_lies_about_where_its_requests_are() {
    let fixture = start();
    let echo = |wire: &mut Wire| {
        let mut pdu = wire.pdu(Command::ECHO, |out| smb::Empty.emit(out));
        pdu.resize(72, 0);
        pdu
    };
    let whole = 3 * 72;
    for at in [0, 72, 144] {
        for value in extremes(4, 72, whole) {
            let mut wire = fixture.client(1);
            let mut frame = Vec::new();
            for index in 0..3 {
                let mut pdu = echo(&mut wire);
                if index < 2 {
                    put(&mut pdu, (20, 4), 72);
                }
                if 72 * index == at {
                    put(&mut pdu, (20, 4), value);
                }
                wire.sign(&mut pdu);
                frame.extend_from_slice(&pdu);
            }
            wire.send_frame(&frame);
            // Answered or hung up on; never more answers than requests.
            let answers = receive(&mut wire).map(|pdu| headers(&pdu));
            assert!(answers.is_none_or(|answers| answers.len() <= 3));
        }
    }
    // Frames that end within their header, or are none.
    for len in [0, 1, 3, 4, 16, 63, 64, 65] {
        let mut wire = fixture.client(1);
        let mut pdu = Vec::new();
        Header::request(Command::ECHO, MessageId(wire.next_id)).emit(&mut pdu);
        pdu.push(0);
        wire.send_frame(&pdu[..len]);
        let answers = receive(&mut wire).map(|pdu| headers(&pdu)[0].status);
        assert!(answers.is_none_or(NtStatus::is_error), "{len}");
    }
    serves(&fixture);
}
