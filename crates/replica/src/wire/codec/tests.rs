//! What is encoded is decoded, and nothing else is.

use proptest::collection::vec;
use proptest::prelude::*;

use super::body::{ALIVE, COPY, DIGESTS, HELLO, HERE, REFUSED};
use super::error::{PAYLOAD_MAX, WireError};
use super::field::DIGESTS_MAX;
use super::frame::*;
use crate::format::{Extent, NUMBER_MAX, VOLUME_LEN_MAX, VOLUMES_MAX};
use crate::message::{EXTENTS_MAX, FETCHED_MAX, Message, Refusal, Ticket};
use crate::names::{EPOCH_NUMBER_MAX, EPOCHS_MAX, Epoch, EpochStart, GroupId, History, MemberSet};
use log::Lsn;

fn lsn() -> impl Strategy<Value = Lsn> {
    (0..=NUMBER_MAX / 64).prop_map(|at| Lsn(at * 64))
}

fn epoch() -> impl Strategy<Value = Epoch> {
    (0..=EPOCH_NUMBER_MAX, 0..=EPOCH_NUMBER_MAX, any::<u64>())
        .prop_map(|(number, restart, nonce)| Epoch { number, restart, nonce })
}

fn extent() -> impl Strategy<Value = Extent> {
    extent_below(VOLUME_LEN_MAX)
}

fn extent_below(len_max: u64) -> impl Strategy<Value = Extent> {
    (0..VOLUMES_MAX, 1..=len_max, any::<u64>()).prop_map(|(volume, len, offset)| Extent {
        volume,
        offset: offset % (VOLUME_LEN_MAX - len + 1),
        len,
    })
}

fn history() -> impl Strategy<Value = History> {
    vec((epoch(), lsn(), any::<(bool, bool)>()), 0..=EPOCHS_MAX).prop_map(|mut epochs| {
        epochs.sort_by_key(|(epoch, ..)| epoch.rank());
        epochs.dedup_by_key(|(epoch, ..)| epoch.rank());
        let mut starts: Vec<Lsn> = epochs.iter().map(|(_, start, _)| *start).collect();
        starts.sort();
        let epochs = epochs.iter().zip(starts).map(|((epoch, _, is), start)| EpochStart {
            epoch: *epoch,
            start,
            is_forced: is.0,
            is_sealed: is.1,
        });
        History::new(epochs.collect()).unwrap()
    })
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        any::<[u8; 16]>().prop_map(|group| Refusal::OtherGroup(GroupId(group))),
        epoch().prop_map(|newest| Refusal::OldEpoch { newest }),
        epoch().prop_map(Refusal::IsSource),
        any::<(u8, u64)>().prop_map(|(volume, size)| Refusal::OtherVolume { volume, size }),
        any::<u64>().prop_map(Refusal::OtherCapacity),
        Just(Refusal::OutOfOrder),
        Just(Refusal::Failed),
    ]
}

#[expect(clippy::too_many_lines, reason = "a strategy for each message")]
/// Every message, with the length of its payload.
pub(in crate::wire) fn message() -> impl Strategy<Value = (Message, u32)> {
    let none = |message| (message, 0);
    prop_oneof![
        (any::<[u8; 16]>(), history(), vec(0..=VOLUME_LEN_MAX, 0..=16), any::<u64>()).prop_map(
            move |(group, history, volumes, capacity)| none(Message::Hello {
                group: GroupId(group),
                history,
                volumes,
                capacity
            })
        ),
        (history(), [lsn(), lsn(), lsn(), lsn()], any::<bool>(), vec((lsn(), extent()), 0..40))
            .prop_map(
                move |(history, [end, applied, bound, recent_from], is_consistent, recent)| {
                    none(Message::Here {
                        history,
                        end,
                        applied,
                        bound,
                        is_consistent,
                        recent,
                        recent_from,
                    })
                }
            ),
        refusal().prop_map(move |refusal| none(Message::Refused(refusal))),
        (history(), lsn(), any::<(u32, u8, u64, bool)>(), lsn(), vec(0..=VOLUME_LEN_MAX, 0..=16))
            .prop_map(
                move |(
                    history,
                    from,
                    (chain, set, set_version, with_copies),
                    committed,
                    volumes,
                )| none(Message::Follow {
                    history,
                    from,
                    chain,
                    committed,
                    in_sync: MemberSet(set),
                    set_version,
                    with_copies,
                    volumes,
                })
            ),
        Just(none(Message::Following)),
        (epoch(), 1..=PAYLOAD_MAX / 64, lsn(), lsn()).prop_map(|(epoch, count, to, committed)| {
            let to = Lsn(to.0.max(u64::from(PAYLOAD_MAX)));
            let from = Lsn(to.0 - u64::from(count) * 64);
            (Message::Records { epoch, from, to, committed }, count * 64)
        }),
        [lsn(), lsn(), lsn(), lsn()].prop_map(move |[placed, to, applied, start]| none(
            Message::Durable { placed, to, applied, start }
        )),
        (epoch(), lsn()).prop_map(move |(epoch, to)| none(Message::Committed { epoch, to })),
        (epoch(), lsn(), extent_below(PAYLOAD_MAX.into())).prop_map(|(epoch, at, extent)| {
            let len = u32::try_from(extent.len).unwrap();
            (Message::Copy { epoch, at, extent, is_zero: false }, len)
        }),
        (epoch(), any::<u64>(), any::<u64>())
            .prop_map(move |(epoch, asked, for_ns)| none(Message::Lease { epoch, asked, for_ns })),
        (any::<u64>(), any::<u64>())
            .prop_map(move |(asked, for_ns)| none(Message::Leased { asked, for_ns })),
        (epoch(), extent())
            .prop_map(move |(epoch, extent)| none(Message::Reserve { epoch, extent })),
        (extent(), any::<u64>())
            .prop_map(move |(extent, size)| none(Message::Reserved { extent, size })),
        (epoch(), lsn(), extent_below(FETCHED_MAX))
            .prop_map(move |(epoch, at, extent)| none(Message::Fetch { epoch, at, extent })),
        (lsn(), extent_below(FETCHED_MAX), any::<bool>()).prop_map(|(at, extent, is_there)| {
            let len = if is_there { u32::try_from(extent.len).unwrap() } else { 0 };
            (Message::Fetched { at, extent, is_there }, len)
        }),
        (epoch(), lsn(), extent()).prop_map(move |(epoch, at, extent)| none(Message::Copy {
            epoch,
            at,
            extent,
            is_zero: true
        })),
        any::<u64>().prop_map(move |count| none(Message::Copied { count })),
        (epoch(), extent_below(64 << 20))
            .prop_map(move |(epoch, extent)| none(Message::Compare { epoch, extent })),
        (extent_below(64 << 20), vec(any::<[u8; 16]>(), 0..40))
            .prop_map(move |(extent, digests)| none(Message::Digests { extent, digests })),
        (lsn(), extent()).prop_map(move |(lsn, extent)| none(Message::Differs { lsn, extent })),
        (epoch(), lsn()).prop_map(move |(epoch, at)| none(Message::Consistent { epoch, at })),
        (epoch(), any::<(u64, u8)>()).prop_map(move |(epoch, (version, members))| none(
            Message::InSync { epoch, version, members: MemberSet(members) }
        )),
        any::<u64>().prop_map(move |version| none(Message::Stored { version })),
        (epoch(), lsn(), epoch()).prop_map(move |(epoch, end, next)| none(Message::TakeOver {
            epoch,
            end,
            next
        })),
        Just(none(Message::Alive)),
        (1..=u16::MAX, any::<[u8; 32]>())
            .prop_map(move |(port, ticket)| none(Message::Invite { port, ticket: Ticket(ticket) })),
        any::<u64>().prop_map(move |connection| none(Message::Map { connection })),
        any::<(u32, u64)>().prop_map(move |(key, address)| none(Message::Mapped { key, address })),
        Just(none(Message::NotMapped)),
        (epoch(), 1..=PAYLOAD_MAX / 64, lsn(), lsn()).prop_map(
            move |(epoch, count, to, committed)| {
                let to = Lsn(to.0.max(u64::from(PAYLOAD_MAX)));
                let from = Lsn(to.0 - u64::from(count) * 64);
                none(Message::There { epoch, from, to, committed })
            }
        ),
    ]
}

fn encoded(message: &Message, payload_len: u32) -> Vec<u8> {
    let mut out = b"before".to_vec();
    encode(message, payload_len, &mut out).unwrap();
    out.split_off(6)
}

proptest! {
    #[test]
    fn each_message_is_decoded_to_what_was_encoded((message, payload_len) in message()) {
        let bytes = encoded(&message, payload_len);
        prop_assert_eq!(decode(&bytes), Ok((message, payload_len)));
    }

    #[test]
    fn a_frame_that_is_cut_or_followed_by_a_byte_is_refused((message, payload_len) in message()) {
        let mut bytes = encoded(&message, payload_len);
        for len in 0..bytes.len() {
            prop_assert!(decode(&bytes[..len]).is_err(), "{} bytes", len);
            // Also where the head speaks of what is left.
            if let Some(body_len) = len.checked_sub(HEAD_LEN) {
                let mut cut = bytes[..len].to_vec();
                cut[4..8].copy_from_slice(&u32::try_from(body_len).unwrap().to_le_bytes());
                prop_assert!(decode(&cut).is_err(), "{} bytes of body", body_len);
            }
        }
        bytes.push(0);
        prop_assert!(decode(&bytes).is_err());
        let body_len = u32::try_from(bytes.len() - HEAD_LEN).unwrap();
        bytes[4..8].copy_from_slice(&body_len.to_le_bytes());
        prop_assert!(decode(&bytes).is_err());
    }

    #[test]
    fn random_bytes_are_refused_or_are_the_only_encoding(
        kind in 0..40_u8,
        payload_len in prop_oneof![Just(0_u32), any::<u32>()],
        body in vec(prop_oneof![4 => Just(0_u8), 1 => any::<u8>()], 0..120),
    ) {
        let mut bytes = vec![b'L', b'R', VERSION, kind];
        bytes.extend_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
        bytes.extend_from_slice(&payload_len.to_le_bytes());
        bytes.extend_from_slice(&body);
        if let Ok((message, payload_len)) = decode(&bytes) {
            prop_assert_eq!(encoded(&message, payload_len), bytes);
        }
    }
}

fn raw(kind: u8, payload_len: u32, body: &[u8]) -> Vec<u8> {
    let body_len = u32::try_from(body.len()).unwrap();
    let mut bytes = Head { kind, body_len, payload_len }.encode().to_vec();
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn a_committed_message_has_the_bytes_of_the_document() {
    // Typed by hand from the table of the document.
    let golden = "4c 52 01 08 18 00 00 00 00 00 00 00\n07 00 00 00 02 00 00 00 08 07 06 05 04 03 02 01\n\
                  40 10 00 00 00 00 00 00";
    let bytes: Vec<u8> =
        golden.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    let epoch = Epoch { number: 7, restart: 2, nonce: 0x0102_0304_0506_0708 };
    let message = Message::Committed { epoch, to: Lsn(0x1040) };
    assert_eq!(encoded(&message, 0), bytes);
    assert_eq!(decode(&bytes), Ok((message, 0)));
    let document = include_str!("../../../../../docs/replica-wire.md");
    assert!(document.contains(golden), "the document shows other bytes");
}

#[test]
fn a_head_that_no_member_sends_is_refused() {
    let head = |change: fn(&mut [u8; HEAD_LEN])| {
        let mut head = Head { kind: ALIVE, body_len: 0, payload_len: 0 }.encode();
        change(&mut head);
        decode(&head).unwrap_err()
    };
    assert_eq!(head(|head| head[0] = b'X'), WireError::PeerMagic(*b"XR"));
    assert_eq!(head(|head| head[2] = 9), WireError::PeerVersion { found: 9, known: 1 });
    assert_eq!(head(|head| head[3] = 0), WireError::PeerKind(0));
    assert_eq!(head(|head| head[3] = 30), WireError::PeerKind(30));
    assert_eq!(head(|head| head[3] = 0x80), WireError::PeerKind(0x80));
    assert_eq!(head(|head| head[4] = 1), WireError::PeerBodyLen { kind: ALIVE, len: 1, max: 0 });
    assert_eq!(head(|head| head[11] = 1), WireError::PayloadLen { len: 1 << 24 });
    let longest = BODY_MAX + 1;
    assert_eq!(
        decode(&Head { kind: HERE, body_len: longest, payload_len: 0 }.encode()),
        Err(WireError::PeerBodyLen { kind: HERE, len: longest, max: BODY_MAX })
    );
}

#[test]
fn values_that_are_not_canonical_are_refused_with_their_field() {
    let mut copy = vec![0; 16 + 8];
    copy.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 1]);
    decode(&raw(COPY, 0, &copy)).unwrap();
    let refused = |at: usize, byte: u8, field| {
        let mut copy = copy.clone();
        copy[at] = byte;
        assert_eq!(decode(&raw(COPY, 0, &copy)), Err(WireError::Value(field)), "{at}");
    };
    refused(41, 2, "Copy.is_zero");
    refused(24, VOLUMES_MAX, "Copy.extent");
    refused(33, 0, "Copy.extent");
    refused(40, 255, "Copy.extent");
    refused(16, 1, "Copy.at");
    refused(23, 255, "Copy.at");
    let mut second_before_first = vec![2];
    for number in [2_u32, 1] {
        second_before_first.extend_from_slice(&number.to_le_bytes());
        second_before_first.extend_from_slice(&[0; 21]);
    }
    let mut hello = vec![0; 16];
    hello.append(&mut second_before_first);
    hello.extend_from_slice(&[0; 9]);
    assert_eq!(decode(&raw(HELLO, 0, &hello)), Err(WireError::Value("Hello.history")));
    assert_eq!(decode(&raw(REFUSED, 0, &[8])), Err(WireError::Value("Refused")));
}

#[test]
fn lists_beyond_their_bounds_are_refused_before_they_are_read() {
    let mut hello = vec![0; 16];
    hello.push(65);
    let count = |field, count, max| Err(WireError::Count { field, count, max });
    assert_eq!(decode(&raw(HELLO, 0, &hello)), count("Hello.history", 65, EPOCHS_MAX));
    *hello.last_mut().unwrap() = 0;
    hello.push(17);
    assert_eq!(decode(&raw(HELLO, 0, &hello)), count("Hello.volumes", 17, 16));
    let mut here = vec![0; 1 + 24 + 1];
    here.extend_from_slice(&16_385_u32.to_le_bytes());
    assert_eq!(decode(&raw(HERE, 0, &here)), count("Here.recent", 16_385, EXTENTS_MAX));
    let mut digests = vec![0; 17];
    digests[9] = 1;
    digests.extend_from_slice(&1025_u32.to_le_bytes());
    assert_eq!(decode(&raw(DIGESTS, 0, &digests)), count("Digests.digests", 1025, DIGESTS_MAX));
    // A count that the bytes do not bear takes no memory.
    digests.truncate(17);
    digests.extend_from_slice(&1024_u32.to_le_bytes());
    assert_eq!(decode(&raw(DIGESTS, 0, &digests)), Err(WireError::PeerShort("Digests.digests")));
}

#[test]
fn no_member_says_an_epoch_after_which_none_can_be_counted() {
    let mut hello = vec![0; 16];
    hello.push(1);
    let epoch = hello.len();
    hello.extend_from_slice(&[0; 25 + 9]);
    decode(&raw(HELLO, 0, &hello)).unwrap();
    for (at, byte) in [(epoch + 3, 0x80), (epoch + 7, 0x80)] {
        let mut largest = hello.clone();
        largest[at] = byte;
        decode(&raw(HELLO, 0, &largest)).unwrap();
        largest[at - 3] = 1;
        assert_eq!(decode(&raw(HELLO, 0, &largest)), Err(WireError::Value("Hello.history")));
    }
    let epoch = Epoch { number: u32::MAX, restart: 0, nonce: 0 };
    let refused = encode(&Message::Committed { epoch, to: Lsn(0) }, 0, &mut Vec::new());
    assert_eq!(refused, Err(WireError::Value("Committed.epoch")));
}

#[test]
fn a_source_asks_for_no_more_bytes_at_once_than_one_answer_may_have() {
    let encoded = |len| {
        let (epoch, at) = (Epoch::default(), Lsn(64));
        let extent = Extent { volume: 0, offset: 0, len };
        let mut out = Vec::new();
        encode(&Message::Fetch { epoch, at, extent }, 0, &mut out).map(|()| out.len())
    };
    encoded(FETCHED_MAX).unwrap();
    assert_eq!(encoded(FETCHED_MAX + 1), Err(WireError::Value("extent")));
}

#[test]
fn the_longest_lists_fit_into_a_frame() {
    let extent = Extent { volume: 15, offset: VOLUME_LEN_MAX - 1, len: 1 };
    let epochs = (1..=64).map(|number| EpochStart {
        epoch: Epoch { number, restart: 1, nonce: 2 },
        start: Lsn(64),
        is_forced: true,
        is_sealed: true,
    });
    let history = History::new(epochs.collect()).unwrap();
    let here = Message::Here {
        history: history.clone(),
        end: Lsn(NUMBER_MAX / 64 * 64),
        applied: Lsn(0),
        bound: Lsn(0),
        is_consistent: true,
        recent: vec![(Lsn(64), extent); EXTENTS_MAX],
        recent_from: Lsn(0),
    };
    let bytes = encoded(&here, 0);
    assert_eq!(bytes.len() - HEAD_LEN, usize::try_from(BODY_MAX).unwrap());
    assert_eq!(decode(&bytes), Ok((here, 0)));
    let digests = vec![[7; 16]; DIGESTS_MAX];
    let extent = Extent { volume: 0, offset: 0, len: 64 << 20 };
    let digests = Message::Digests { extent, digests };
    assert_eq!(decode(&encoded(&digests, 0)), Ok((digests, 0)));
    let group = GroupId([1; 16]);
    let hello = Message::Hello { group, history, volumes: vec![VOLUME_LEN_MAX; 16], capacity: 1 };
    assert_eq!(decode(&encoded(&hello, 0)), Ok((hello, 0)));
}

#[test]
fn a_message_that_would_be_refused_is_not_sent() {
    let mut out = b"before".to_vec();
    let mut refused = |message: &Message, payload_len, error| {
        assert_eq!(encode(message, payload_len, &mut out), Err(error));
        assert_eq!(out, b"before");
    };
    let epoch = Epoch::default();
    refused(&Message::Alive, 1, WireError::PayloadDiffers { len: 1, expected: 0 });
    let records = |from, to| Message::Records { epoch, from, to, committed: Lsn(0) };
    let differs = WireError::PayloadDiffers { len: 64, expected: 128 };
    refused(&records(Lsn(0), Lsn(128)), 64, differs);
    refused(&records(Lsn(64), Lsn(64)), 0, WireError::Value("Records.to"));
    refused(&records(Lsn(128), Lsn(64)), 64, WireError::Value("Records.to"));
    let long = u64::from(PAYLOAD_MAX) + 64;
    refused(&records(Lsn(0), Lsn(long)), PAYLOAD_MAX, WireError::PayloadLen { len: long });
    refused(&records(Lsn(1), Lsn(65)), 64, WireError::Value("Records"));
    let extent = Extent { volume: 0, offset: 0, len: (64 << 20) + 1 };
    refused(&Message::Compare { epoch, extent }, 0, WireError::Value("extent"));
    let extent = Extent { len: 1, ..extent };
    let digests = vec![[0; 16]; DIGESTS_MAX + 1];
    let error = WireError::Count { field: "Digests.digests", count: 1025, max: 1024 };
    refused(&Message::Digests { extent, digests }, 0, error);
}
