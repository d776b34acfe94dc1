//! Records in a row, as one member sends them to another.

use log::Lsn;

use super::{FormatError, Kind, RECORD_HEADER_LEN, Record, RecordKeys, header_sum, payload_sum};
use crate::names::{Epoch, GroupId, History};

/// A record with what the next one says of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Indexed {
    /// The record.
    pub record: Record,
    /// Checksum of its header, which the next one names.
    pub sum: u32,
}

/// The records that `bytes` are, from the first to the last byte. The first one lies at `from` and names `chain` as the
/// checksum of the header before it. What comes from another member is checked with this before it is placed. Without `keys` no
/// record is sound that is sealed.
///
/// # Errors
///
/// The first reason why the bytes are not records of the order that `history` has.
pub fn check_sequence(
    group: &GroupId,
    history: &History,
    from: Lsn,
    chain: u32,
    bytes: &[u8],
    keys: Option<&RecordKeys>,
) -> Result<Vec<Indexed>, FormatError> {
    let (mut at, mut chain, mut rest) = (from, chain, bytes);
    let mut found = Vec::new();
    while let Some(header) = rest.first_chunk() {
        let (record, payload_crc) = Record::decode(group, header)?;
        if record.lsn != at {
            return Err(FormatError::RecordAddress { at, says: record.lsn });
        }
        if record.chain != chain {
            return Err(FormatError::RecordChain(at));
        }
        if !is_of_its_epoch(&record, history) {
            return Err(FormatError::RecordEpoch(at));
        }
        let whole =
            usize::try_from(record.span()).ok().and_then(|span| rest.split_at_checked(span));
        let (whole, behind) = whole.ok_or(FormatError::RecordCut(at))?;
        let payload = &whole[HEADER_LEN..][..usize::try_from(record.payload_len()).unwrap_or(0)];
        if record.encoding.is_sealed() {
            open_payload(keys, history.epoch_at(at), (&record, payload_crc), header, payload)
                .ok_or(FormatError::RecordSeal(at))?;
        } else if !payload.is_empty() && payload_sum(group, at, payload) != payload_crc {
            return Err(FormatError::PayloadChecksum(at));
        }
        chain = header_sum(header);
        found.push(Indexed { record, sum: chain });
        (at, rest) = (record.end(), behind);
    }
    if rest.is_empty() { Ok(found) } else { Err(FormatError::RecordCut(at)) }
}

/// The payload of a record that is sealed, as it was before; `None` if it was not sealed so in `epoch`, or there are no keys.
pub(crate) fn open_payload(
    keys: Option<&RecordKeys>,
    epoch: Option<Epoch>,
    (record, payload_crc): (&Record, u32),
    header: &[u8; HEADER_LEN],
    sealed: &[u8],
) -> Option<Vec<u8>> {
    let (epoch, keys) = (epoch.filter(|_| payload_crc == 0)?, keys?);
    match record.kind {
        Kind::Pad => keys.has_tag(epoch, record).then(Vec::new),
        _ => keys.open(epoch, record.lsn, header, sealed),
    }
}

/// Whether the history has the record's epoch from its first to its last byte, and the record is sealed if the epoch is.
pub(crate) fn is_of_its_epoch(record: &Record, history: &History) -> bool {
    let epochs = history.epochs();
    let begun = epochs.partition_point(|epoch| epoch.start <= record.lsn);
    let is_whole = epochs.get(begun).is_none_or(|next| record.end() <= next.start);
    let epoch = begun.checked_sub(1).map(|at| epochs[at]);
    is_whole
        && epoch.is_some_and(|it| {
            it.epoch.tag() == record.epoch && it.is_sealed == record.encoding.is_sealed()
        })
}

const HEADER_LEN: usize = 64;
const _: () = assert!(HEADER_LEN as u64 == RECORD_HEADER_LEN);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Encoding, Kind};
    use crate::names::{Epoch, EpochStart};

    const GROUP: GroupId = GroupId([7; 16]);

    fn history(starts: &[(u64, u64)]) -> History {
        let epochs = (1..).zip(starts).map(|(number, (nonce, start))| EpochStart {
            epoch: Epoch { number, restart: 0, nonce: *nonce },
            start: Lsn(*start),
            is_forced: false,
            is_sealed: false,
        });
        History::new(epochs.collect()).unwrap()
    }

    /// A write of 100 bytes, a mark, and a pad, at 640 and 832 and 960 and with the tags 5, 5 and 6.
    fn sequence() -> Vec<u8> {
        let (mut bytes, mut at, mut chain) = (Vec::new(), Lsn(640), 9);
        for (kind, epoch, stored) in [(Kind::Write, 5, 100), (Kind::Mark, 5, 3), (Kind::Pad, 6, 64)]
        {
            let payload = vec![b'a'; if kind == Kind::Pad { 0 } else { stored }];
            let record = Record {
                lsn: at,
                epoch,
                chain,
                kind,
                encoding: Encoding::Plain,
                volume: 0,
                stored: u32::try_from(stored).unwrap(),
                offset: 0,
                len: 100,
                time_ns: 0,
                committed: Lsn(0),
            };
            let header = record.encode(&GROUP, payload_sum(&GROUP, at, &payload));
            bytes.extend_from_slice(&header);
            bytes.extend_from_slice(&payload);
            (at, chain) = (record.end(), header_sum(&header));
            bytes.resize(usize::try_from(at.since(Lsn(640))).unwrap(), 0);
        }
        bytes
    }

    fn check(bytes: &[u8]) -> Result<Vec<Indexed>, FormatError> {
        check_sequence(&GROUP, &history(&[(5, 0), (6, 960)]), Lsn(640), 9, bytes, None)
    }

    #[test]
    fn records_in_a_row_are_found() {
        let found = check(&sequence()).unwrap();
        let lsns: Vec<_> = found.iter().map(|found| found.record.lsn.0).collect();
        assert_eq!(lsns, [640, 832, 960]);
        assert_eq!(found[1].sum, found[2].record.chain);
        assert_eq!(check(&[]), Ok(Vec::new()));
    }

    #[test]
    fn bytes_that_end_within_a_record_are_refused() {
        let bytes = sequence();
        for len in (1..bytes.len()).filter(|len| ![192, 320].contains(len)) {
            let cut = check(&bytes[..len]);
            assert!(matches!(cut, Err(FormatError::RecordCut(_))), "{len} bytes: {cut:?}");
        }
    }

    #[test]
    fn records_of_another_place_order_or_epoch_are_refused() {
        let (bytes, epochs) = (sequence(), history(&[(5, 0), (6, 960)]));
        let at = |from, chain, history: &History| {
            check_sequence(&GROUP, history, Lsn(from), chain, &bytes, None).unwrap_err()
        };
        let moved = FormatError::RecordAddress { at: Lsn(704), says: Lsn(640) };
        assert_eq!(at(704, 9, &epochs), moved);
        assert_eq!(at(640, 8, &epochs), FormatError::RecordChain(Lsn(640)));
        assert_eq!(at(640, 9, &history(&[(5, 0)])), FormatError::RecordEpoch(Lsn(960)));
        assert_eq!(at(640, 9, &history(&[(5, 960)])), FormatError::RecordEpoch(Lsn(640)));
        // The mark would lie in two epochs.
        let split = history(&[(5, 0), (6, 896)]);
        assert_eq!(at(640, 9, &split), FormatError::RecordEpoch(Lsn(832)));
    }

    #[test]
    fn a_changed_bit_is_refused_except_where_no_payload_is() {
        let bytes = sequence();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            let is_filling = (164..192).contains(&at) || (259..320).contains(&at) || at >= 384;
            assert_eq!(check(&damaged).is_ok(), is_filling, "byte {at}");
        }
    }

    #[test]
    fn in_a_sealed_epoch_nothing_counts_that_is_not_sealed_and_nothing_that_was_changed() {
        let keys = RecordKeys::new(GROUP, b"a secret of all members");
        let of = |is_sealed| {
            let epoch = Epoch { number: 1, restart: 0, nonce: 5 };
            let start = EpochStart { epoch, start: Lsn(0), is_forced: false, is_sealed };
            History::new(vec![start]).unwrap()
        };
        let made = |encoding: Encoding| {
            let stored = if encoding.is_sealed() { 100 + super::super::TAG_LEN } else { 100 };
            let record = Record {
                lsn: Lsn(640),
                epoch: 5,
                chain: 9,
                kind: Kind::Write,
                encoding,
                volume: 0,
                stored,
                offset: 0,
                len: 100,
                time_ns: 0,
                committed: Lsn(0),
            };
            let payload = vec![b'a'; 100];
            let mut bytes = match encoding.is_sealed() {
                true => {
                    let header = record.encode(&GROUP, 0);
                    let epoch = of(true).current();
                    [&header[..], &keys.seal(epoch, record.lsn, &header, &payload)].concat()
                }
                false => {
                    let sum = payload_sum(&GROUP, record.lsn, &payload);
                    [&record.encode(&GROUP, sum)[..], &payload].concat()
                }
            };
            bytes.resize(usize::try_from(record.span()).unwrap(), 0);
            bytes
        };
        let (sealed, plain) = (made(Encoding::Sealed), made(Encoding::Plain));
        let check = |history: &History, bytes: &[u8], keys| {
            check_sequence(&GROUP, history, Lsn(640), 9, bytes, keys).map(|it| it.len())
        };
        assert_eq!(check(&of(true), &sealed, Some(&keys)), Ok(1));
        assert_eq!(check(&of(false), &plain, Some(&keys)), Ok(1));
        let other = Err(FormatError::RecordEpoch(Lsn(640)));
        assert_eq!(check(&of(true), &plain, Some(&keys)), other);
        assert_eq!(check(&of(false), &sealed, Some(&keys)), other);
        let not_sealed = Err(FormatError::RecordSeal(Lsn(640)));
        assert_eq!(check(&of(true), &sealed, None), not_sealed);
        for at in HEADER_LEN..HEADER_LEN + 116 {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(check(&of(true), &changed, Some(&keys)), not_sealed, "byte {at}");
        }
    }

    /// What `make` makes of a number, so that the header has the checksum `sum`: one number of 32 bits does, as a CRC is linear.
    fn with_sum(sum: u32, make: impl Fn(u32) -> [u8; HEADER_LEN]) -> [u8; HEADER_LEN] {
        let of = |bits| header_sum(&make(bits));
        let reduced = |basis: &[(u32, u32)], of| {
            basis.iter().fold(of, |(sum, bits): (u32, u32), (of, with)| {
                if sum ^ of < sum { (sum ^ of, bits ^ with) } else { (sum, bits) }
            })
        };
        let mut basis = Vec::new();
        for bit in 0..32 {
            let found = reduced(&basis, (of(1 << bit) ^ of(0), 1 << bit));
            basis.extend((found.0 != 0).then_some(found));
        }
        let (left, bits) = reduced(&basis, (sum ^ of(0), 0));
        assert_eq!(left, 0, "a number for each checksum");
        make(bits)
    }

    #[test]
    fn a_sealed_record_cannot_be_replaced_by_a_pad_whose_header_has_its_checksum() {
        let keys = RecordKeys::new(GROUP, b"a secret of all members");
        let epoch = Epoch { number: 1, restart: 0, nonce: 5 };
        let start = EpochStart { epoch, start: Lsn(0), is_forced: false, is_sealed: true };
        let history = History::new(vec![start]).unwrap();
        let (mut bytes, mut at, mut chain, mut made) = (Vec::new(), Lsn(640), 9, Vec::new());
        for kind in [Kind::Write, Kind::Write, Kind::Pad, Kind::Write] {
            let record = Record {
                lsn: at,
                epoch: 5,
                chain,
                kind,
                encoding: Encoding::Sealed,
                volume: 0,
                stored: if kind == Kind::Pad { 128 } else { 116 },
                offset: 0,
                len: if kind == Kind::Pad { 0 } else { 100 },
                time_ns: 0,
                committed: Lsn(0),
            };
            let (record, header, payload) = match kind {
                Kind::Pad => {
                    let pad = keys.seal_pad(epoch, &record);
                    (pad, pad.encode(&GROUP, 0), Vec::new())
                }
                _ => {
                    let header = record.encode(&GROUP, 0);
                    (record, header, keys.seal(epoch, at, &header, &[b'a'; 100]))
                }
            };
            bytes.extend_from_slice(&header);
            bytes.extend_from_slice(&payload);
            made.push(record);
            (at, chain) = (record.end(), header_sum(&header));
            bytes.resize(usize::try_from(at.since(Lsn(640))).unwrap(), 0);
        }
        let check = |bytes: &[u8]| {
            check_sequence(&GROUP, &history, Lsn(640), 9, bytes, Some(&keys)).map(|it| it.len())
        };
        assert_eq!(check(&bytes), Ok(4));
        let (victim, pad) = (made[1], made[2]);
        let tags = [(Encoding::Plain, 0, 0), (Encoding::Sealed, 0, 0)];
        for (encoding, offset, len) in
            tags.into_iter().chain([(Encoding::Sealed, pad.offset, pad.len)])
        {
            let header = with_sum(made[2].chain, |bits| {
                let (kind, stored, time_ns) = (Kind::Pad, 128, bits.into());
                Record { kind, encoding, stored, offset, len, time_ns, ..victim }.encode(&GROUP, 0)
            });
            let mut forged = bytes.clone();
            forged[192..192 + HEADER_LEN].copy_from_slice(&header);
            let refused = match encoding {
                Encoding::Plain => FormatError::RecordEpoch(victim.lsn),
                _ => FormatError::RecordSeal(victim.lsn),
            };
            assert_eq!(check(&forged), Err(refused), "{encoding:?}");
        }
        // What a pad says of itself is as authentic.
        let header = with_sum(made[3].chain, |bits| {
            Record { time_ns: bits.into(), committed: Lsn(64), ..pad }.encode(&GROUP, 0)
        });
        let mut forged = bytes.clone();
        forged[384..384 + HEADER_LEN].copy_from_slice(&header);
        assert_eq!(check(&forged), Err(FormatError::RecordSeal(pad.lsn)));
    }
}
