//! What a member of a replicated volume finds on its disks (records, labels, dirty maps, and a ring of them), and what
//! other members send to it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use replica::dirty::{DIRTY_PAGE_LEN, DirtyMap};
use replica::format::{
    Encoding, Extent, Geometry, Kind, Label, Record, RecordKeys, VOLUME_LEN_MAX, check_sequence,
    header_sum, payload_sum,
};
use replica::fuzzing::{self, Several, Stray};
use replica::message::Message;
use replica::ring::{Ring, Scanned};
use replica::wire::codec::{decode, encode};
use replica::wire::{self, Policy, WireError};
use replica::witness::etcd::answer::Answer;
use replica::witness::{Alive, Seat, may_follow};
use replica::{Epoch, EpochStart, GroupId, History, Lsn, MemberId};

use crate::Input;

const GROUP: GroupId = GroupId([7; 16]);
const GRANULE: u64 = 64 << 10;

fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    u32::try_from(digest.finalize()).expect("a CRC-32C has 32 bits")
}

/// As many of the bytes as fit, then zeros.
fn filled<const N: usize>(data: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let len = data.len().min(N);
    bytes[..len].copy_from_slice(&data[..len]);
    bytes
}

/// The header of a record, as it is and with the right checksum.
pub(crate) fn record(data: &[u8]) {
    let mut header = filled(data);
    for _ in 0..2 {
        if let Ok((record, sum)) = Record::decode(&GROUP, &header) {
            assert_eq!(record.encode(&GROUP, sum), header);
            assert_eq!(record.end().since(record.lsn), record.span());
            if let Some(extent) = record.changes() {
                assert!(extent.offset + extent.len <= VOLUME_LEN_MAX);
            }
        }
        let crc = crc32c(&[&GROUP.0, &header[4..]]);
        header[..4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// A label, as it is and with the right checksum.
pub(crate) fn label(data: &[u8]) {
    let mut slot: [u8; 4096] = filled(data);
    for _ in 0..2 {
        if let Ok((label, geometry)) = Label::decode(&slot) {
            assert_eq!(label.encode(&geometry), slot);
            assert!(geometry.ring() + geometry.capacity == geometry.total());
        }
        slot[12..16].fill(0);
        let crc = crc32c(&[&slot]);
        slot[12..16].copy_from_slice(&crc.to_le_bytes());
    }
}

/// A small ring: sound records, bytes of anything anywhere, labels with any history; what a scan finds is an order.
pub(crate) fn scan(data: &[u8]) {
    let mut input = Input::new(data);
    let geometry = Geometry { capacity: 4096, maps: 0, volumes: 0, volume_pages: 0 };
    let emulated = pmem::OpenOptions { emulate_persistence: true };
    let medium = pmem::anonymous_with(geometry.total(), emulated).expect("a little memory");
    let first = Label { group: GROUP, history: history(&mut input), ..Label::default() };
    let ring = Ring::create_on(medium, &first, geometry).expect("the geometry is sound");
    let (mut label, mut at, mut chain, mut tag) = (first, Lsn(0), 0, 0);
    while !input.is_empty() {
        match input.byte() % 8 {
            0 => {
                let lsn = label.start.plus(u64::from(input.u16()) % 4096);
                // Beyond the room it is refused.
                let _ = ring.place_bytes(lsn, input.chunk());
            }
            1 => {
                label.sequence += 1;
                label.start = label.start.plus(u64::from(input.byte()) * 64);
                label.start_chain =
                    if input.byte().is_multiple_of(2) { chain } else { input.u32() };
                label.committed = label.start.plus(u64::from(input.byte()) * 64);
                label.history = history(&mut input);
                ring.store_label(&label).expect("a newer label");
                if at < label.start {
                    at = label.start;
                }
            }
            2 => tag = u32::from(input.byte()),
            3 => chain ^= u32::from(input.byte()),
            kind => {
                let stored = match kind {
                    4 | 5 => u32::from(input.byte()) + 1,
                    6 => u32::from(input.byte()) * 64,
                    _ => 0,
                };
                let kind = [Kind::Write, Kind::Write, Kind::Pad, Kind::Trim][usize::from(kind - 4)];
                let payload = vec![input.byte(); usize::try_from(stored).expect("small")];
                let payload = if kind == Kind::Pad { &[] } else { &payload[..] };
                let record = Record {
                    lsn: at,
                    epoch: tag,
                    chain,
                    kind,
                    encoding: Encoding::Plain,
                    volume: 0,
                    stored,
                    offset: 0,
                    len: u64::from(stored).max(1),
                    time_ns: 0,
                    committed: Lsn(at.0.saturating_sub(u64::from(input.byte()) * 64)),
                };
                let header = record.encode(&GROUP, payload_sum(&GROUP, at, payload));
                if ring.place(at, &header, payload).is_ok() {
                    (at, chain) = (record.end(), header_sum(&header));
                }
            }
        }
    }
    let found = ring.scan(&label).expect("memory does not fail");
    check_order(&label, &found);
    // What was found is a sequence as members send it.
    let mut bytes = vec![0; usize::try_from(found.end.since(label.start)).expect("4096 at most")];
    ring.read(label.start, &mut bytes).expect("memory does not fail");
    let (start, chain) = (label.start, label.start_chain);
    let sent = check_sequence(&GROUP, &label.history, start, chain, &bytes, None);
    assert_eq!(sent.as_ref(), Ok(&found.records));
    // From any of its records on the same is found.
    if let Some(from) = found.records.get(found.records.len() / 2) {
        let (start, start_chain) = (from.record.lsn, from.record.chain);
        let later = ring.scan(&Label { start, start_chain, ..label }).expect("as before");
        let same = &found.records[found.records.len() / 2..];
        assert_eq!(later.records.get(..same.len()), Some(same));
    }
}

fn history(input: &mut Input<'_>) -> History {
    let mut start = 0;
    let epochs = (1..=u32::from(input.byte() % 4)).map(|number| {
        start += u64::from(input.byte()) * 64;
        let epoch = Epoch { number, restart: 0, nonce: u64::from(input.byte()) };
        EpochStart { epoch, start: Lsn(start), is_forced: false, is_sealed: false }
    });
    History::new(epochs.collect()).expect("starts never fall")
}

/// Records follow each other, are chained, are of their epochs, and fit the ring.
fn check_order(label: &Label, found: &Scanned) {
    let (mut at, mut chain) = (label.start, label.start_chain);
    for found in &found.records {
        let record = found.record;
        assert_eq!((record.lsn, record.chain), (at, chain));
        let epoch = label.history.epoch_at(at).expect("an epoch");
        assert_eq!(record.epoch, epoch.tag());
        (at, chain) = (record.end(), found.sum);
    }
    assert_eq!((found.end, found.end_chain), (at, chain));
    assert!(found.end.since(label.start) <= 4096);
    assert!(found.claimed >= label.committed);
}

/// Records as another member sends them, of anything; and with the right checksum of the first header.
pub(crate) fn sequence(data: &[u8]) {
    let mut input = Input::new(data);
    let history = history(&mut input);
    let (from, chain) = (Lsn(u64::from(input.u16()) * 64), input.u32());
    let keys = RecordKeys::new(GROUP, b"a secret of the fuzzer");
    let mut bytes = input.rest().to_vec();
    for _ in 0..2 {
        if let Ok(found) = check_sequence(&GROUP, &history, from, chain, &bytes, Some(&keys)) {
            let end = found.last().map_or(from, |last| last.record.end());
            assert_eq!(usize::try_from(end.since(from)), Ok(bytes.len()));
        }
        if bytes.len() >= 64 {
            let crc = crc32c(&[&GROUP.0, &bytes[4..64]]);
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

/// A dirty map of pages of anything, and what is done with it afterwards.
pub(crate) fn dirty(data: &[u8]) {
    let mut input = Input::new(data);
    let sizes: Vec<u64> = (0..input.byte() % 3).map(|_| size(&mut input)).collect();
    let mut pages = BTreeMap::new();
    for _ in 0..input.byte() % 4 {
        let at = u64::from(input.byte() % 4) * DIRTY_PAGE_LEN as u64;
        let is_sound = !input.byte().is_multiple_of(4);
        let mut page: [u8; DIRTY_PAGE_LEN] = filled(input.chunk());
        if is_sound {
            let number = u32::try_from(at).expect("small") / 4096;
            page[4..8].copy_from_slice(&number.to_le_bytes());
            page[8] = 0;
            page[10..16].fill(0);
            let crc = crc32c(&[&page[4..]]);
            page[..4].copy_from_slice(&crc.to_le_bytes());
        }
        pages.insert(at, page);
    }
    let mut map = load(&sizes, &pages);
    let mut other = DirtyMap::clean(&sizes);
    while !input.is_empty() {
        let extent = Extent {
            volume: input.byte() % 4,
            offset: u64::from(input.u32()) << (input.byte() % 24),
            len: u64::from(input.u32()) << (input.byte() % 24),
        };
        match input.byte() % 8 {
            0 => map.resize(extent.volume, size(&mut input)),
            1 => map.merge(&other),
            2 | 3 => other.mark(extent),
            4 | 5 => {
                map.mark(extent);
                let is_there = map.sizes().get(usize::from(extent.volume)) > Some(&extent.offset);
                assert_eq!(
                    map.contains(extent),
                    is_there && extent.len > 0 || map.contains(extent)
                );
            }
            _ => map.clear(extent),
        }
        check_runs(&map);
    }
    // What is stored of it is loaded again.
    let mut whole = DirtyMap::clean(&map.sizes());
    whole.merge(&map);
    assert_eq!(whole.bytes(), map.bytes());
    whole.take_changed();
    let stored = whole.pages_to_store().collect();
    assert_eq!(load(&map.sizes(), &stored).bytes(), map.bytes());
}

/// Sizes that are stored in few pages, or are large.
fn size(input: &mut Input<'_>) -> u64 {
    match input.byte() % 4 {
        0 => u64::from(input.u32()),
        1 => u64::from(input.u16()) * GRANULE,
        2 => (1 << 39) + u64::from(input.u32()),
        _ => 0,
    }
}

fn load(sizes: &[u64], pages: &BTreeMap<u64, [u8; DIRTY_PAGE_LEN]>) -> DirtyMap {
    let read = |at| Ok::<_, Infallible>(pages.get(&at).copied().unwrap_or([0; DIRTY_PAGE_LEN]));
    match DirtyMap::load(sizes, read) {
        Ok(map) => map,
        Err(never) => match never {},
    }
}

/// The runs are all that is lacking, in order and within the volumes.
fn check_runs(map: &DirtyMap) {
    let sizes = map.sizes();
    let (mut after, mut bytes) = (None, 0);
    while let Some(run) = map.next(after, u64::MAX) {
        assert!(run.len > 0 && run.offset + run.len <= sizes[usize::from(run.volume)]);
        if let Some(Extent { volume, offset, len }) = after {
            assert!((volume, offset + len) <= (run.volume, run.offset));
        }
        bytes += run.len;
        after = Some(run);
    }
    assert_eq!(bytes, map.bytes());
    assert_eq!(map.is_clean(), bytes == 0);
}

/// A whole member's memory of anything: opening says what is wrong, or what is found is an order.
pub(crate) fn open(data: &[u8]) {
    const LEN: usize = 8192 + 4096;
    let emulated = pmem::OpenOptions { emulate_persistence: true };
    let medium = pmem::anonymous_with(LEN as u64, emulated).expect("a little memory");
    let mut bytes: [u8; LEN] = filled(data);
    // The first slot has the right checksum.
    bytes[12..16].fill(0);
    let crc = crc32c(&[&bytes[..4096]]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    medium.place(0, &bytes).expect("as long as the memory");
    if let Ok(ring) = Ring::open_on(Arc::clone(&medium)) {
        let label = ring.load_label().expect("it was found");
        let found = ring.scan(&label).expect("memory does not fail");
        check_order(&label, &found);
        for member in 0..8 {
            let _ = ring.load_dirty(MemberId(member), &[GRANULE]);
        }
    }
}

/// A frame of any kind and body, with the length of payload that it speaks of; and bytes that are no frame.
pub(crate) fn wire(data: &[u8]) {
    if let Ok((message, payload_len)) = decode(data) {
        check_frame(data, &message, payload_len);
    }
    let Some((kind, body)) = data.split_first() else { return };
    let mut frame = vec![b'L', b'R', 1, *kind];
    frame.extend_from_slice(&u32::try_from(body.len()).expect("an input is short").to_le_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(body);
    if let Err(WireError::PayloadDiffers { expected, .. }) = decode(&frame) {
        let expected = u32::try_from(expected).expect("a payload of at most 4 MiB");
        frame[8..12].copy_from_slice(&expected.to_le_bytes());
    }
    if let Ok((message, payload_len)) = decode(&frame) {
        check_frame(&frame, &message, payload_len);
        // A message has one encoding: one byte less or more is none.
        let cut = &frame[..frame.len() - 1];
        assert_ne!(decode(cut), Ok((message.clone(), payload_len)));
        frame.push(0);
        assert_ne!(decode(&frame), Ok((message, payload_len)));
    }
}

fn check_frame(frame: &[u8], message: &Message, payload_len: u32) {
    let mut encoded = Vec::new();
    encode(message, payload_len, &mut encoded).expect("it was decoded");
    assert_eq!(encoded, frame);
}

/// Bytes that are expanded to any length, and bytes that are compressed and expanded again.
pub(crate) fn expand(data: &[u8]) {
    let mut input = Input::new(data);
    let (choice, len) = (input.byte(), usize::from(input.u16()));
    let bytes = input.rest();
    let encoding = [Encoding::Plain, Encoding::Lz4, Encoding::Zstd][usize::from(choice % 3)];
    let mut out = Vec::new();
    match wire::expand(encoding, bytes, len, &mut out) {
        Ok(()) => assert_eq!(out.len(), len),
        Err(_) => assert!(out.is_empty()),
    }
    let policy = [Policy::Lz4, Policy::Zstd, Policy::Adaptive][usize::from(choice / 3 % 3)];
    let mut stored = Vec::new();
    let encoding = wire::compress(policy, bytes, &mut stored);
    if encoding != Encoding::Plain {
        assert!(stored.len() < bytes.len());
        wire::expand(encoding, &stored, bytes.len(), &mut out).expect("what was compressed");
        assert_eq!(out, bytes);
    }
}

/// What a witness holds, what members say of themselves there, and what etcd answers.
pub(crate) fn witness(data: &[u8]) {
    if let Ok(seat) = Seat::parse(&GROUP, data) {
        assert!(seat.is_sound());
        assert_eq!(seat.emit(&GROUP).as_bytes(), data);
        assert!(may_follow(Some(&seat), &seat));
    }
    if let Ok(alive) = Alive::parse(data) {
        assert_eq!(alive.emit().as_bytes(), data);
    }
    for answer in [Answer::parse(data), Answer::parse_line(data)].into_iter().flatten() {
        let _ = (answer.error(), answer.revision(), answer.number("TTL"), answer.text("token"));
        let _ = (answer.pairs(), answer.changes(), answer.is("succeeded"));
    }
}

/// A greeting or a mark of any kind and body; then links of several connections: one whose ends keep to the rules while
/// connections come and go, and one whose other end keeps to none.
pub(crate) fn several(data: &[u8]) {
    let mut input = Input::new(data);
    let kind = 0x80 | (input.byte() % 8);
    let body = input.chunk();
    let mut frame = vec![b'L', b'R', 1, kind];
    frame.extend_from_slice(&u32::try_from(body.len()).expect("16 bits").to_le_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(body);
    if fuzzing::greeting(&frame) {
        // Bytes have one meaning: one less or more has none.
        frame.push(0);
        assert!(!fuzzing::greeting(&frame));
    }
    let (mut link, mut stray) = (Several::default(), Stray::default());
    link.connects();
    while !input.is_empty() {
        let (what, which) = (input.byte(), usize::from(input.byte()));
        match what % 8 {
            0 => link.connects(),
            1 => link.ends(which),
            2 | 3 => link.sends(which, usize::from(input.byte()) << (what >> 4)),
            4 => link.arrives(which),
            5 => link.takes(),
            6 => link.tells(),
            _ => {
                let (number, len) = (input.u64(), input.u32());
                let number = if which % 2 == 0 { number % 20_000 } else { number };
                Several::strays(&mut stray, number, usize::try_from(len).expect("32 bits"));
            }
        }
    }
    link.settles();
}
