use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::FileTime;
use crate::auth::UserList;
use crate::rpc::SharedResource;

fn accounts() -> UserList {
    let mut accounts = UserList::new();
    accounts.add_password("alice", "secret");
    accounts.add_password("bob", "hidden");
    accounts
}

fn host() -> Host {
    let share = |name: &str, kind| SharedResource { name: name.into(), kind, comment: "".into() };
    Host {
        name: "LF".into(),
        comment: "Landfast".into(),
        caller: "alice".into(),
        shares: vec![
            share("data", SharedResource::DIRECTORY),
            share("IPC$", SharedResource::PIPES),
        ],
        accounts: Some(Arc::new(accounts())),
        // 2026-11-20 13:14:15.16, a Friday.
        now: FileTime::from_unix_ns(1_795_180_455_160_000_000),
        uptime: Duration::from_millis(5_678),
    }
}

// As impacket sends it: fragments of 4280 bytes, srvsvc 3.0 in NDR under context 0.
const BIND: [u8; 72] = [
    5, 0, 11, 3, 0x10, 0, 0, 0, 72, 0, 0, 0, 1, 0, 0, 0, // preamble
    0xb8, 0x10, 0xb8, 0x10, 0, 0, 0, 0, 1, 0, 0, 0, // fragments, group, one context
    0, 0, 1, 0, // context 0, one transfer syntax
    0xc8, 0x4f, 0x32, 0x4b, 0x70, 0x16, 0xd3, 0x01, 0x12, 0x78, 0x5a, 0x47, 0xbf, 0x6e, 0xe1, 0x88,
    3, 0, 0, 0, //
    0x04, 0x5d, 0x88, 0x8a, 0xeb, 0x1c, 0xc9, 0x11, 0x9f, 0xe8, 0x08, 0x00, 0x2b, 0x10, 0x48, 0x60,
    2, 0, 0, 0,
];

fn request(flags: u8, call_id: u32, opnum: u16, stub: &[u8]) -> Vec<u8> {
    let mut out = vec![5, 0, 0, flags, 0x10, 0, 0, 0];
    out.extend_from_slice(&u16::try_from(24 + stub.len()).unwrap().to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&call_id.to_le_bytes());
    out.extend_from_slice(&[0; 6]);
    out.extend_from_slice(&opnum.to_le_bytes());
    out.extend_from_slice(stub);
    out
}

// NetrShareEnum of level 1, no server name, no entries, any length, no resume handle.
const SHARE_ENUM_1: [u8; 32] = [
    0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
    0, 0, 0, 0,
];

fn bound() -> Association {
    let mut association = Association::new(Interface::Srvsvc);
    association.write(&BIND, &host()).unwrap();
    association.read(usize::MAX).unwrap();
    association
}

#[test]
fn a_bind_is_accepted_with_its_transfer_syntax() {
    let mut association = Association::new(Interface::Srvsvc);
    association.write(&BIND, &host()).unwrap();
    let (ack, goes_on) = association.read(usize::MAX).unwrap();
    assert!(!goes_on);
    assert_eq!(ack[2], 12);
    assert_eq!(ack[16..20], [0xb8, 0x10, 0xb8, 0x10], "the client's fragments suit us");
    let result = ack.len() - 24;
    assert_eq!(ack[result..result + 4], [0; 4], "accepted");
    assert_eq!(ack[result + 4..], BIND[52..], "in NDR");
    assert_eq!(association.read(1), None);
}

#[test]
fn an_interface_of_another_pipe_is_rejected_and_cannot_be_called() {
    let mut association = Association::new(Interface::Wkssvc);
    association.write(&BIND, &host()).unwrap();
    let (ack, _) = association.read(usize::MAX).unwrap();
    let result = ack.len() - 24;
    assert_eq!(ack[result..result + 4], [2, 0, 1, 0], "abstract syntax not supported");
    association.write(&request(3, 2, 15, &SHARE_ENUM_1), &host()).unwrap();
    let (fault, _) = association.read(usize::MAX).unwrap();
    assert_eq!((fault[2], &fault[24..28]), (3, &Fault::NOT_BOUND.0.to_le_bytes()[..]));
}

#[test]
fn the_shares_are_listed() {
    let mut association = bound();
    association.write(&request(3, 2, 15, &SHARE_ENUM_1), &host()).unwrap();
    let (response, _) = association.read(usize::MAX).unwrap();
    assert_eq!((response[2], response[3]), (2, 3));
    // MS-SRVS §2.2.4.33, typed from its layout: two entries, then name and remark of each.
    let mut expected: Vec<u8> = Vec::new();
    let mut numbers = |numbers: &[u32]| {
        expected.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    };
    numbers(&[1, 1, 0x2_0004, 2, 0x2_0008, 2]);
    numbers(&[0x2_000c, 0, 0x2_0010, 0x2_0014, 0x8000_0003, 0x2_0018]);
    numbers(&[5, 0, 5, 0x0061_0064, 0x0061_0074, 0]);
    numbers(&[1, 0, 1, 0]);
    numbers(&[5, 0, 5, 0x0050_0049, 0x0024_0043, 0]);
    numbers(&[1, 0, 1, 0]);
    numbers(&[2, 0, 0]);
    assert_eq!(response[24..], expected);
}

#[test]
fn a_call_in_two_fragments_and_many_writes_is_one_call() {
    let mut association = bound();
    let first = request(1, 7, 15, &SHARE_ENUM_1[..16]);
    let last = request(2, 7, 15, &SHARE_ENUM_1[16..]);
    for byte in first.iter().chain(&last) {
        assert_eq!(association.read(1), None);
        association.write(&[*byte], &host()).unwrap();
    }
    let (response, _) = association.read(usize::MAX).unwrap();
    assert_eq!(response[2], 2);
}

#[test]
fn a_long_answer_comes_in_fragments_and_each_in_pieces() {
    let mut many = host();
    many.shares = (0..500)
        .map(|number| SharedResource {
            name: format!("share-{number:03}"),
            kind: SharedResource::DIRECTORY,
            comment: String::new(),
        })
        .collect();
    let mut association = bound();
    association.write(&request(3, 2, 15, &SHARE_ENUM_1), &many).unwrap();
    let (mut stub, mut flags) = (Vec::new(), Vec::new());
    while let Some((mut fragment, mut goes_on)) = association.read(1000) {
        while goes_on {
            let (piece, more) = association.read(1000).unwrap();
            fragment.extend(piece);
            goes_on = more;
        }
        assert!(fragment.len() <= 4280);
        assert_eq!(usize::from(u16::from_le_bytes([fragment[8], fragment[9]])), fragment.len());
        flags.push(fragment[3]);
        stub.extend_from_slice(&fragment[24..]);
    }
    assert!(flags.len() > 2 && flags[0] == 1 && flags.last() == Some(&2));
    assert_eq!(stub[12..16], 500_u32.to_le_bytes());
    assert_eq!(stub[stub.len() - 4..], [0; 4], "success");
}

#[test]
fn levels_of_dfs_are_refused_and_unknown_ones_too() {
    for (level, result) in [(2, 0), (502, 0), (503, 5), (77, 124)] {
        let mut stub = SHARE_ENUM_1;
        stub[4..8].copy_from_slice(&u32::to_le_bytes(level));
        stub[8..12].copy_from_slice(&u32::to_le_bytes(level));
        let mut association = bound();
        association.write(&request(3, 2, 15, &stub), &host()).unwrap();
        let (response, _) = association.read(usize::MAX).unwrap();
        assert_eq!(response[response.len() - 4..], u32::to_le_bytes(result), "level {level}");
    }
}

#[test]
fn invalid_pdus_and_unread_answers_end_the_conversation() {
    let mut association = bound();
    assert!(association.write(&[4; 16], &host()).is_err(), "another version");
    let mut association = bound();
    let mut response = request(3, 1, 15, &[]);
    response[2] = 2;
    let ended = association.write(&response, &host());
    assert_eq!(ended, Err(AssociationError::PeerOrder(2)));
    let mut association = bound();
    let ended = (0..100_000).find_map(|_| association.write(&BIND, &host()).err());
    assert!(matches!(ended, Some(AssociationError::PeerTooMuch(_))), "answers nobody fetches");
}

#[test]
fn a_call_that_is_too_long_or_unknown_is_a_fault() {
    let mut association = bound();
    let flood = [0; 4000];
    association.write(&request(1, 3, 15, &flood), &host()).unwrap();
    let fault = (0..10).find_map(|_| {
        association.write(&request(0, 3, 15, &flood), &host()).unwrap();
        association.read(usize::MAX)
    });
    let (fault, _) = fault.expect("REQUEST_MAX is below 44,000 bytes");
    assert_eq!(fault[24..28], Fault::PROTOCOL.0.to_le_bytes());
    association.write(&request(3, 4, 999, &[]), &host()).unwrap();
    while let Some((fault, _)) = association.read(usize::MAX) {
        assert_eq!(fault[2], 3);
    }
}

#[test]
fn a_share_is_described_without_its_place_on_the_disk() {
    for (level, more) in [(2, 0), (502, 2)] {
        let mut stub = [0, 5, 0, 5].map(u32::to_le_bytes).concat();
        stub.extend("data\0".encode_utf16().flat_map(u16::to_le_bytes));
        stub.extend([0; 2]);
        stub.extend(u32::to_le_bytes(level));
        let mut association = bound();
        association.write(&request(3, 2, 16, &stub), &host()).unwrap();
        let (response, _) = association.read(usize::MAX).unwrap();
        // MS-SRVS §2.2.4.24, §2.2.4.26: name, kind, remark, permissions, uses, path, password; then
        // the security descriptor's length and place.
        let mut expected: Vec<u8> = Vec::new();
        let mut numbers = |numbers: &[u32]| {
            expected.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        };
        numbers(&[level, 0x2_0004, 0x2_0008, 0, 0x2_000c, 0, u32::MAX, 0, 0x2_0010, 0]);
        numbers(&[0, 0][..more]);
        numbers(&[5, 0, 5, 0x0061_0064, 0x0061_0074, 0]);
        numbers(&[1, 0, 1, 0]);
        numbers(&[8, 0, 8, 0x003a_0043, 0x0064_005c, 0x0074_0061, 0x0000_0061]);
        numbers(&[0]);
        assert_eq!(response[24..], expected, "level {level}");
    }
}

/// A conversation on lsarpc with a policy that is open, and its handle.
fn policy() -> (Association, Vec<u8>) {
    let mut bind = BIND;
    bind[32..52].copy_from_slice(&[
        0x78, 0x57, 0x34, 0x12, 0x34, 0x12, 0xcd, 0xab, 0xef, 0x00, 0x01, 0x23, 0x45, 0x67, 0x89,
        0xab, 0, 0, 0, 0,
    ]);
    let mut association = Association::new(Interface::Lsarpc);
    association.write(&bind, &host()).unwrap();
    association.read(usize::MAX).unwrap();
    let handle = call(&mut association, 44, &[0; 36]).unwrap();
    assert_eq!(handle[20..], [0; 4], "success");
    (association, handle[..20].to_vec())
}

/// The results of a call, or the status of its fault.
fn call(association: &mut Association, opnum: u16, stub: &[u8]) -> Result<Vec<u8>, u32> {
    association.write(&request(3, 9, opnum, stub), &host()).unwrap();
    let (answer, _) = association.read(usize::MAX).unwrap();
    match answer[2] {
        2 => Ok(answer[24..].to_vec()),
        _ => Err(u32::from_le_bytes([answer[24], answer[25], answer[26], answer[27]])),
    }
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

#[test]
fn a_policy_is_used_while_it_is_open() {
    let (mut association, handle) = policy();
    let query = [&handle[..], &[5, 0]].concat();
    let answer = call(&mut association, 7, &query).unwrap();
    // MS-LSAD §2.2.4.6: referent, level, the name's lengths and referent, the SID's.
    assert_eq!(answer[..20], words(&[0x2_0004, 5, 0x0004_0004, 0x2_0008, 0x2_000c]));
    assert_eq!(answer[20..36], words(&[2, 0, 2, 0x0046_004c]));
    assert_eq!(answer[36..44], [4, 0, 0, 0, 1, 4, 0, 0], "a SID of four numbers");
    assert_eq!(answer[answer.len() - 4..], [0; 4]);
    let unknown = call(&mut association, 7, &[&handle[..], &[9, 0]].concat()).unwrap();
    assert_eq!(unknown, words(&[0, 0xc000_000d]));
    assert_eq!(call(&mut association, 0, &handle).unwrap(), [0; 24]);
    assert_eq!(call(&mut association, 7, &query), Err(0x1c00_001a));
    assert_eq!(call(&mut association, 0, &handle), Err(0x1c00_001a));
    // However many are opened, so many stay.
    let opened = (0..100).filter(|_| call(&mut association, 44, &[0; 36]).unwrap()[4] != 0);
    assert_eq!(opened.count(), 16);
}

#[test]
fn sids_have_names_and_names_have_sids() {
    let (mut association, handle) = policy();
    // S-1-1-0 and S-1-22-1-7, of which nobody has heard.
    let everyone = [&words(&[1])[..], &[1, 1, 0, 0, 0, 0, 0, 1], &words(&[0])].concat();
    let nobody = [&words(&[2])[..], &[1, 2, 0, 0, 0, 0, 0, 22], &words(&[1, 7])].concat();
    let question = [words(&[2, 1, 2, 1, 1]), everyone, nobody, words(&[0, 0, 1, 0])].concat();
    let answer = call(&mut association, 15, &[&handle[..], &question].concat()).unwrap();
    let mut expected = words(&[0x2_0004, 1, 0x2_0008, 32, 1]);
    // One domain: no name, S-1-1.
    expected.extend(words(&[0, 0x2_000c, 0x2_0010, 0, 0, 0]));
    expected.extend(words(&[0]));
    expected.extend([1, 0, 0, 0, 0, 0, 0, 1]);
    // Everyone, a well-known group of the first domain; an unknown one of none.
    expected.extend(words(&[2, 0x2_0014, 2]));
    expected.extend(words(&[5, 0x0010_0010, 0x2_0018, 0]));
    expected.extend(words(&[8, 0x0014_0014, 0x2_001c, u32::MAX]));
    let mut text = |text: &str| {
        let count = u32::try_from(text.len()).unwrap();
        expected.extend(words(&[count, 0, count]));
        expected.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
    };
    text("Everyone");
    text("S-1-22-1-7");
    expected.extend(words(&[1, 0x107]));
    assert_eq!(answer, expected);

    let name: Vec<u8> = "root".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let question = [words(&[1, 1, 0x0008_0008, 1, 4, 0, 4]), name, words(&[0, 0, 1, 0])].concat();
    let answer = call(&mut association, 14, &[&handle[..], &question].concat()).unwrap();
    // A user, number 0 of the first domain; one is known; success.
    let end = &answer[answer.len() - 32..];
    assert_eq!(end, words(&[1, 0x2_0014, 1, 1, 0, 0, 1, 0]));
}

#[test]
fn a_caller_that_asks_learns_its_own_name() {
    let (mut association, _) = policy();
    let answer = call(&mut association, 45, &words(&[0, 0, 1, 0])).unwrap();
    let mut expected = words(&[0x2_0004, 0x000a_000a, 0x2_0008, 5, 0, 5]);
    expected.extend("alice\0".encode_utf16().flat_map(u16::to_le_bytes));
    expected.extend(words(&[0x2_000c, 0x2_0010, 0x0004_0004, 0x2_0014, 2, 0, 2, 0x0046_004c, 0]));
    assert_eq!(answer, expected);
    let answer = call(&mut association, 45, &words(&[0, 0, 0])).unwrap();
    assert_eq!(answer[answer.len() - 8..], [0; 8], "no domain, success");
}

#[test]
fn the_time_of_day_is_told_in_utc() {
    let mut association = bound();
    let answer = call(&mut association, 28, &words(&[0])).unwrap();
    // MS-SRVS §2.2.4.105: since 1970 and since the start, time of day, zone, tick, date, weekday; then the result.
    let mut expected = words(&[0x2_0004, 1_795_180_455, 5_678, 13, 14, 15, 16, 0, 310]);
    expected.extend(words(&[20, 11, 2026, 5, 0]));
    assert_eq!(answer, expected);
    let server = [words(&[0x2_0000, 5, 0, 5]), utf16("\\\\lf\0"), vec![0; 2]].concat();
    assert_eq!(call(&mut association, 28, &server).unwrap(), expected);
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

#[test]
fn accounts_have_sids_in_each_form_that_is_asked_for() {
    let (mut association, handle) = policy();
    // As rpcclient's lookupnames: one name, no answers yet, level 1, none mapped.
    let bob = [words(&[1, 1, 0x0006_0006, 1, 3, 0, 3]), utf16("bob"), vec![0; 2]].concat();
    let question =
        |more: &[u32]| [handle.clone(), bob.clone(), words(&[0, 0, 1, 0]), words(more)].concat();
    let short = call(&mut association, 14, &question(&[])).unwrap();
    let end = &short[short.len() - 32..];
    let number = u32::from_le_bytes(end[16..20].try_into().unwrap());
    // A user of the first domain; one is known; success.
    assert_eq!(*end, words(&[1, 0x2_0014, 1, 1, number, 0, 1, 0])[..]);
    assert!(number >= 1000);
    // With flags behind the domain.
    let flagged = call(&mut association, 58, &question(&[0, 2])).unwrap();
    assert_eq!(flagged[flagged.len() - 36..], words(&[1, 0x2_0014, 1, 1, number, 0, 0, 1, 0]));
    // With the SID instead of its number.
    let whole = call(&mut association, 68, &question(&[0, 2])).unwrap();
    let end = &whole[whole.len() - 68..];
    assert_eq!(
        *end,
        [words(&[1, 0x2_0014, 1, 1, 0x2_0018, 0, 0, 5]), end[32..60].to_vec(), words(&[1, 0])]
            .concat()[..]
    );
    assert_eq!((end[32..34].to_vec(), &end[56..60]), (vec![1, 5], &number.to_le_bytes()[..]));
    // And back.
    let sid = [words(&[5]), end[32..60].to_vec()].concat();
    let question = [handle, words(&[1, 1, 1, 1]), sid, words(&[0, 0, 1, 0])].concat();
    let answer = call(&mut association, 15, &question).unwrap();
    let name = [words(&[1, 0x0006_0006]), Vec::new()].concat();
    assert!(answer.windows(8).any(|window| window == name), "a user with a name of three letters");
    assert!(answer.windows(6).any(|window| window == utf16("bob")));
    assert_eq!(answer[answer.len() - 8..], words(&[1, 0]));
}

#[test]
fn a_write_of_more_pdus_than_the_limit_ends_the_conversation() {
    let cancel = [5, 0, 18, 3, 0x10, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0];
    bound().write(&cancel.repeat(PDUS_PER_WRITE_MAX), &host()).unwrap();
    let refused = bound().write(&cancel.repeat(PDUS_PER_WRITE_MAX + 1), &host());
    assert_eq!(refused, Err(AssociationError::PeerTooMany));
}

#[test]
fn answers_that_are_not_fetched_end_the_conversation_at_a_limit() {
    let mut host = host();
    let share = host.shares[0].clone();
    host.shares = vec![share; 2_000];
    let mut association = bound();
    let calls = request(pdu::FIRST | pdu::LAST, 1, 15, &SHARE_ENUM_1).repeat(30);
    let refused = association.write(&calls, &host);
    assert!(matches!(refused, Err(AssociationError::PeerTooMuch(_))), "{refused:?}");
    let mut waiting = 0;
    while let Some((piece, _)) = association.read(usize::MAX) {
        waiting += piece.len();
    }
    assert!(waiting < 2 * WAITING_MAX, "{waiting} bytes wait");
}
