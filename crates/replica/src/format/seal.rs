//! Records that are sealed: AES-256-GCM over each payload, so that what lies in logs, and goes between them without TLS, is
//! neither read nor forged by who has not the group's secret.
//!
//! ```text
//!   key    HKDF-SHA-256 of the secret (salt "landfast replica records 1"): group 16 | number 4 | restart 4 | nonce 8 of the epoch
//!   nonce  0 4 | LSN 8          an LSN is given once in an epoch
//!   in the clear, and authentic: the header, all 64 bytes, with a payload checksum of 0
//!   stored: payload | tag 16
//! ```
//! A [`super::Kind::Pad`] has nothing to seal, and may have no room behind its header: its tag takes the place of offset and
//! len, and what is authentic is the header with zeros there.
//!
//! An epoch is sealed or not: in one that is, nothing counts that is not sealed. Each LSN of an epoch is sealed once, as the record
//! of one length: so at an LSN there is that record or none, and from it to the next one there is one way. Nothing between two
//! records can be left out, put elsewhere or replaced. `chain` is no part of that: it is a checksum, which anybody can
//! give a header. What nobody has behind the last record, that record cannot say: a log that was cut ends earlier.
//!
//! Spec: ours, docs/replica-format.md.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf;
use log::Lsn;

use super::{Record, TAG_LEN};
use crate::names::{Epoch, GroupId};

/// The keys of a group's records.
pub struct RecordKeys {
    group: GroupId,
    secret: hkdf::Prk,
    /// That of the epoch that was used last.
    last: Mutex<Option<(Epoch, Arc<LessSafeKey>)>>,
}

impl RecordKeys {
    /// Those that a secret gives.
    pub fn new(group: GroupId, secret: &[u8]) -> Self {
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(secret);
        Self { group, secret, last: Mutex::default() }
    }

    /// Tells one secret from another, and says nothing of either. Never 0.
    pub fn check(&self) -> u64 {
        let mut bytes = [0; 8];
        let info: [&[u8]; 2] = [CHECK, &self.group.0];
        self.secret
            .expand(&info, Len(bytes.len()))
            .and_then(|it| it.fill(&mut bytes))
            .expect("less than a block of HKDF");
        u64::from_le_bytes(bytes).max(1)
    }

    /// The payload of the record with this header, sealed: [`TAG_LEN`] longer.
    pub fn seal(&self, epoch: Epoch, lsn: Lsn, header: &[u8; 64], payload: &[u8]) -> Vec<u8> {
        let mut sealed = Vec::with_capacity(payload.len() + TAG_LEN as usize);
        sealed.extend_from_slice(payload);
        self.of(epoch)
            .seal_in_place_append_tag(nonce(lsn), Aad::from(header), &mut sealed)
            .expect("a record is shorter than what one nonce may seal");
        sealed
    }

    /// What was sealed; `None` if it was not sealed with this header, at this place of this epoch, by who has the secret.
    pub fn open(
        &self,
        epoch: Epoch,
        lsn: Lsn,
        header: &[u8; 64],
        sealed: &[u8],
    ) -> Option<Vec<u8>> {
        let mut opened = sealed.to_vec();
        let len = self.of(epoch).open_in_place(nonce(lsn), Aad::from(header), &mut opened);
        let len = len.ok()?.len();
        opened.truncate(len);
        Some(opened)
    }

    /// A pad with its tag.
    #[must_use]
    pub fn seal_pad(&self, epoch: Epoch, pad: &Record) -> Record {
        let tag = self.seal(epoch, pad.lsn, &self.header_of_pad(pad), &[]);
        let half = |at| tag.get(at..).and_then(|half| half.first_chunk().copied());
        let (first, second) = half(0).zip(half(8)).expect("a tag has 16 bytes");
        Record { offset: u64::from_le_bytes(first), len: u64::from_le_bytes(second), ..*pad }
    }

    /// Whether a pad has the tag that who has the secret gave it at this place of this epoch.
    pub fn has_tag(&self, epoch: Epoch, pad: &Record) -> bool {
        let tag = [pad.offset.to_le_bytes(), pad.len.to_le_bytes()].concat();
        self.open(epoch, pad.lsn, &self.header_of_pad(pad), &tag).is_some()
    }

    fn header_of_pad(&self, pad: &Record) -> [u8; 64] {
        Record { offset: 0, len: 0, ..*pad }.encode(&self.group, 0)
    }

    fn of(&self, epoch: Epoch) -> Arc<LessSafeKey> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, key)) = &*last
            && *of == epoch
        {
            return Arc::clone(key);
        }
        let Epoch { number, restart, nonce } = epoch;
        let (number, restart, nonce) =
            (number.to_le_bytes(), restart.to_le_bytes(), nonce.to_le_bytes());
        let info: [&[u8]; 4] = [&self.group.0, &number, &restart, &nonce];
        let key = self.secret.expand(&info, &AES_256_GCM).map(UnboundKey::from);
        let key = Arc::new(LessSafeKey::new(key.expect("less than a block of HKDF")));
        *last = Some((epoch, Arc::clone(&key)));
        key
    }
}

impl fmt::Debug for RecordKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordKeys(of group {})", self.group)
    }
}

fn nonce(lsn: Lsn) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&lsn.0.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// A length that HKDF is asked for.
struct Len(usize);

impl hkdf::KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

const SALT: &[u8] = b"landfast replica records 1";
const CHECK: &[u8] = b"check";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Encoding, Kind};

    const EPOCH: Epoch = Epoch { number: 7, restart: 2, nonce: 0x0102_0304_0506_0708 };

    fn keys() -> RecordKeys {
        RecordKeys::new(GroupId(*b"sixteen bytes id"), b"a secret of all members")
    }

    fn header() -> [u8; 64] {
        std::array::from_fn(|at| u8::try_from(at).unwrap())
    }

    #[test]
    fn a_sealed_payload_has_the_bytes_that_another_program_gives_it() {
        let sealed = keys().seal(EPOCH, Lsn(0x1040), &header(), b"hello");
        assert_eq!(sealed, GOLDEN);
        assert_eq!(keys().check(), GOLDEN_CHECK);
        let opened = keys().open(EPOCH, Lsn(0x1040), &header(), &sealed);
        assert_eq!(opened.as_deref(), Some(&b"hello"[..]));
    }

    #[test]
    fn a_payload_that_was_changed_moved_or_sealed_by_others_is_not_opened() {
        let (keys, header) = (keys(), header());
        let sealed = keys.seal(EPOCH, Lsn(0x1040), &header, b"hello");
        let opens = |keys: &RecordKeys, epoch, lsn, header: &[u8; 64], sealed: &[u8]| {
            keys.open(epoch, lsn, header, sealed).is_some()
        };
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!opens(&keys, EPOCH, Lsn(0x1040), &header, &changed), "bit {bit}");
        }
        for bit in 0..header.len() * 8 {
            let mut changed = header;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!opens(&keys, EPOCH, Lsn(0x1040), &changed, &sealed), "bit {bit}");
        }
        assert!(!opens(&keys, EPOCH, Lsn(0x1080), &header, &sealed));
        assert!(!opens(&keys, Epoch { restart: 3, ..EPOCH }, Lsn(0x1040), &header, &sealed));
        let other = RecordKeys::new(GroupId([1; 16]), b"a secret of all members");
        assert!(!opens(&other, EPOCH, Lsn(0x1040), &header, &sealed));
        let other = RecordKeys::new(keys.group, b"a secret of all others!");
        assert!(!opens(&other, EPOCH, Lsn(0x1040), &header, &sealed));
        assert!(!opens(&keys, EPOCH, Lsn(0x1040), &header, &sealed[..15]));
        assert_ne!(keys.check(), other.check());
    }

    fn pad() -> Record {
        Record {
            lsn: Lsn(0x1040),
            epoch: EPOCH.tag(),
            chain: 0x0102_0304,
            kind: Kind::Pad,
            encoding: Encoding::Sealed,
            volume: 0,
            stored: 4032,
            offset: 0,
            len: 0,
            time_ns: 1_700_000_000_000_000_000,
            committed: Lsn(0x1000),
        }
    }

    #[test]
    fn a_sealed_pad_has_the_bytes_that_another_program_gives_it() {
        let sealed = keys().seal_pad(EPOCH, &pad());
        assert_eq!(sealed.encode(&keys().group, 0), GOLDEN_PAD);
        assert_eq!(Record::decode(&keys().group, &GOLDEN_PAD), Ok((sealed, 0)));
        assert!(keys().has_tag(EPOCH, &sealed));
    }

    #[test]
    fn a_pad_that_was_changed_moved_or_sealed_by_others_has_no_tag() {
        let (keys, pad) = (keys(), keys().seal_pad(EPOCH, &pad()));
        for bit in 0..64 {
            let (offset, len) = (pad.offset ^ 1 << bit, pad.len ^ 1 << bit);
            assert!(!keys.has_tag(EPOCH, &Record { offset, ..pad }), "bit {bit}");
            assert!(!keys.has_tag(EPOCH, &Record { len, ..pad }), "bit {bit}");
        }
        let changed = [
            Record { lsn: Lsn(0x1080), ..pad },
            Record { epoch: 1, ..pad },
            Record { chain: 1, ..pad },
            Record { volume: 1, ..pad },
            Record { stored: 4096, ..pad },
            Record { time_ns: 1, ..pad },
            Record { committed: Lsn(0x1040), ..pad },
            Record { offset: 0, len: 0, ..pad },
        ];
        for changed in changed {
            assert!(!keys.has_tag(EPOCH, &changed), "{changed:?}");
        }
        assert!(!keys.has_tag(Epoch { restart: 3, ..EPOCH }, &pad));
        let other = RecordKeys::new(keys.group, b"a secret of all others!");
        assert!(!other.has_tag(EPOCH, &pad));
    }

    /// Made by another program (Python's cryptography): docs/replica-format.md has it.
    const GOLDEN_PAD: [u8; 64] = [
        0xd5, 0xc4, 0xb2, 0xc1, 4, 3, 2, 1, 0x40, 0x10, 0, 0, 0, 0, 0, 0, //
        8, 7, 6, 5, 8, 0x80, 0, 0, 0xc0, 0x0f, 0, 0, 0, 0, 0, 0, //
        0x13, 0x39, 0x23, 0xdb, 0x42, 0x2b, 0xcf, 0x6b, 9, 0x1a, 0x1b, 0x76, 0x57, 8, 0x94,
        0xb4, //
        0, 0, 0x2a, 0x36, 0xfe, 0x9c, 0x97, 0x17, 0, 0x10, 0, 0, 0, 0, 0, 0,
    ];
    /// Made by another program (Python's cryptography): docs/replica-format.md has it.
    const GOLDEN: [u8; 21] = [
        0x0c, 0xf0, 0x77, 0x69, 0x3f, 0x78, 0x22, 0xa2, 0xd6, 0x40, 0x5c, 0xdf, 0xc2, 0x49, 0xfa,
        0x02, //
        0x86, 0x4f, 0xb4, 0x32, 0xd0,
    ];
    const GOLDEN_CHECK: u64 = 0x52b5_a2f2_f46e_8692;
}
