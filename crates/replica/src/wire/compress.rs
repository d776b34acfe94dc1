//! Payloads of records, compressed before they get their place in the order.
//!
//! A payload lies compressed in the ring of every member, so it is compressed once, and neither wire nor ring carries what
//! it does not need. What saves less than a sixteenth stays as it is.
//!
//! Contexts, and what [`Policy::Adaptive`] has learnt, belong to the thread: writers share nothing.

use std::cell::RefCell;

use crate::format::{Encoding, PAYLOAD_MAX, Record};

/// Which payloads are compressed, and how.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Policy {
    /// None.
    #[default]
    None,
    /// Each that gets smaller, by LZ4.
    Lz4,
    /// Each that gets smaller, by Zstandard.
    Zstd,
    /// By LZ4 what it makes smaller, by Zstandard what only that does; and where neither does, the next payloads of the
    /// thread stay as they are, up to [`SKIPS_MAX`].
    Adaptive,
}

/// Why a payload cannot be expanded.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ExpandError {
    /// No payload is so long.
    #[error("a payload has {0} bytes, at most {PAYLOAD_MAX} are possible")]
    MediaLen(usize),
    /// The bytes are not those of a payload of this length in this encoding.
    #[error("a compressed payload is damaged")]
    MediaDamaged,
}

/// Puts `payload` into `out` as `policy` has it, and says in which encoding; after [`Encoding::Plain`] `out` is empty, and
/// the payload stays as it is.
pub fn compress(policy: Policy, payload: &[u8], out: &mut Vec<u8>) -> Encoding {
    out.clear();
    if policy == Policy::None || payload.len() < LEN_MIN {
        return Encoding::Plain;
    }
    let encoding = PACKER.with_borrow_mut(|packer| match policy {
        Policy::None => None,
        Policy::Lz4 => packer.lz4(payload, out),
        Policy::Zstd => packer.zstd(payload, out),
        Policy::Adaptive => packer.adaptive(payload, out),
    });
    if encoding.is_none() {
        out.clear();
    }
    encoding.unwrap_or(Encoding::Plain)
}

/// Puts the payload of which `stored` is the form in `encoding` into `out`: exactly `len` bytes.
///
/// # Errors
///
/// `stored` is the form of no such payload; `out` is empty then.
pub fn expand(
    encoding: Encoding,
    stored: &[u8],
    len: usize,
    out: &mut Vec<u8>,
) -> Result<(), ExpandError> {
    out.clear();
    if u32::try_from(len).is_ok_and(|len| len <= PAYLOAD_MAX) {
        out.resize(len, 0);
    } else {
        return Err(ExpandError::MediaLen(len));
    }
    let expanded = match encoding {
        // Whoever has the keys opens it first.
        Encoding::Sealed | Encoding::SealedLz4 | Encoding::SealedZstd => None,
        Encoding::Plain => (stored.len() == len).then(|| out.copy_from_slice(stored)).map(|()| len),
        Encoding::Lz4 => lz4_flex::block::decompress_into(stored, out).ok(),
        Encoding::Zstd => UNPACKER.with_borrow_mut(|unpacker| {
            let unpacker = made(unpacker, zstd::bulk::Decompressor::new)?;
            unpacker.decompress_to_buffer(stored, &mut out[..]).ok()
        }),
    };
    match expanded == Some(len) {
        true => Ok(()),
        false => {
            out.clear();
            Err(ExpandError::MediaDamaged)
        }
    }
}

/// Whether the stored form of a record's payload can be expanded: a record that a member takes and cannot apply would be
/// durable there, and be found again at each start. Of a record that is sealed `stored` is what was opened.
pub fn expands(record: &Record, stored: &[u8]) -> bool {
    let encoding = record.encoding.opened();
    if encoding == Encoding::Plain {
        return true;
    }
    let Ok(len) = usize::try_from(record.len) else { return false };
    PLAIN.with_borrow_mut(|plain| expand(encoding, stored, len, plain).is_ok())
}

thread_local! {
    /// Of [`expands`]: as long as the longest payload that the thread has looked at.
    static PLAIN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static PACKER: RefCell<Packer> = RefCell::default();
    static UNPACKER: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// What a thread keeps for compressing.
#[derive(Default)]
struct Packer {
    zstd: Option<zstd::bulk::Compressor<'static>>,
    /// Payloads that are left alone.
    skips: u32,
    /// How many were, the last time.
    skipped: u32,
}

impl Packer {
    fn lz4(&self, payload: &[u8], out: &mut Vec<u8>) -> Option<Encoding> {
        out.resize(lz4_flex::block::get_maximum_output_size(payload.len()), 0);
        let len = lz4_flex::block::compress_into(payload, out).ok()?;
        out.truncate(len);
        (len <= stored_max(payload.len())).then_some(Encoding::Lz4)
    }

    fn zstd(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Option<Encoding> {
        let zstd = made(&mut self.zstd, || zstd::bulk::Compressor::new(ZSTD_LEVEL))?;
        // It ends as soon as there is no room: more than this is not worth it.
        out.resize(stored_max(payload.len()), 0);
        let len = zstd.compress_to_buffer(payload, &mut out[..]).ok()?;
        out.truncate(len);
        Some(Encoding::Zstd)
    }

    fn adaptive(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Option<Encoding> {
        if self.skips > 0 {
            self.skips -= 1;
            return None;
        }
        let encoding = self.best(payload, out);
        self.skipped = match encoding {
            Some(_) => 0,
            None => (self.skipped * 2).clamp(1, SKIPS_MAX),
        };
        self.skips = self.skipped;
        encoding
    }

    /// What a sample says before the whole is touched.
    fn best(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Option<Encoding> {
        let middle = payload.len().saturating_sub(SAMPLE_LEN) / 2;
        let sample = &payload[middle..(middle + SAMPLE_LEN).min(payload.len())];
        if self.lz4(sample, out).is_some() {
            return self.lz4(payload, out);
        }
        self.zstd(sample, out)?;
        self.zstd(payload, out)
    }
}

/// Bytes that a payload may have once it is compressed, or it is not worth the reader's time.
fn stored_max(len: usize) -> usize {
    len - len / 16
}

/// What is made once and kept; `None` where there is no memory for it.
fn made<T>(kept: &mut Option<T>, make: impl FnOnce() -> std::io::Result<T>) -> Option<&mut T> {
    if kept.is_none() {
        *kept = make().ok();
    }
    kept.as_mut()
}

/// Shorter payloads stay as they are: a record is filled up to 64 bytes, so little is saved.
const LEN_MIN: usize = 256;
/// Bytes of a payload that are tried first.
const SAMPLE_LEN: usize = 4096;
/// Payloads in a row that are left alone at most after one that did not get smaller.
pub const SKIPS_MAX: u32 = 64;
/// The fastest of the levels that are not called fast ones: those find less.
const ZSTD_LEVEL: i32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes in which nobody finds anything.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let word = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(word).collect();
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn a_payload_that_cannot_be_expanded_is_told_before_its_record_is_taken() {
        let text = b"the same again, ".repeat(256);
        for policy in [Policy::Lz4, Policy::Zstd] {
            let mut stored = Vec::new();
            let encoding = compress(policy, &text, &mut stored);
            let len = u64::try_from(text.len()).unwrap();
            let record = Record { encoding, len, ..record(&stored) };
            assert!(expands(&record, &stored));
            assert!(!expands(&Record { len: len - 1, ..record }, &stored));
            assert!(!expands(&record, &stored[..stored.len() / 2]));
        }
        assert!(expands(&record(&text), &text));
    }

    fn record(stored: &[u8]) -> Record {
        Record {
            lsn: log::Lsn(0),
            epoch: 1,
            chain: 0,
            kind: crate::format::Kind::Write,
            encoding: Encoding::Plain,
            volume: 0,
            stored: u32::try_from(stored.len()).unwrap(),
            offset: 0,
            len: u64::try_from(stored.len()).unwrap(),
            time_ns: 0,
            committed: log::Lsn(0),
        }
    }

    /// Sixteen letters at random: four bits of each byte mean something, and nothing comes twice.
    fn letters(len: usize) -> Vec<u8> {
        noise(len).into_iter().map(|byte| b'a' + byte % 16).collect()
    }

    fn text(len: usize) -> Vec<u8> {
        let words = ["page", "header", "of", "the", "table", "a", "row", "is", "null", "=", "42"];
        let mut text = Vec::new();
        for pick in noise(len) {
            text.extend_from_slice(words[usize::from(pick) % words.len()].as_bytes());
            text.push(b' ');
        }
        text.truncate(len);
        text
    }

    const LENGTHS: [usize; 7] = [256, 257, 4095, 4096, 4097, 65_536, 1 << 20];
    const POLICIES: [Policy; 4] = [Policy::None, Policy::Lz4, Policy::Zstd, Policy::Adaptive];

    fn packed(policy: Policy, payload: &[u8]) -> (Encoding, Vec<u8>) {
        let mut out = b"before".to_vec();
        let encoding = compress(policy, payload, &mut out);
        match encoding {
            Encoding::Plain => assert!(out.is_empty()),
            _ => assert!(!out.is_empty() && out.len() <= payload.len() - payload.len() / 16),
        }
        (encoding, out)
    }

    /// Payloads in a thread of their own, so that nothing has been learnt before.
    fn fresh<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(run).join().unwrap()
    }

    #[test]
    fn what_was_compressed_is_expanded_to_what_it_was() {
        for len in LENGTHS {
            for payload in [vec![0; len], text(len), letters(len), noise(len)] {
                for policy in POLICIES {
                    let (encoding, stored) = packed(policy, &payload);
                    if encoding != Encoding::Plain {
                        let mut out = b"before".to_vec();
                        expand(encoding, &stored, len, &mut out).unwrap();
                        assert!(out == payload, "{policy:?}, {len} bytes");
                    }
                }
            }
        }
    }

    #[test]
    fn each_payload_gets_the_encoding_of_the_policy_that_makes_it_smaller() {
        let encodings = |policy, len| {
            [vec![0; len], text(len), letters(len), noise(len)]
                .map(|payload| fresh(move || packed(policy, &payload).0))
        };
        let (plain, lz4, zstd) = (Encoding::Plain, Encoding::Lz4, Encoding::Zstd);
        for len in LENGTHS.into_iter().filter(|len| *len >= 4096) {
            assert_eq!(encodings(Policy::None, len), [plain; 4]);
            assert_eq!(encodings(Policy::Lz4, len), [lz4, lz4, plain, plain]);
            assert_eq!(encodings(Policy::Zstd, len), [zstd, zstd, zstd, plain]);
            assert_eq!(encodings(Policy::Adaptive, len), [lz4, lz4, zstd, plain]);
        }
        assert_eq!(encodings(Policy::Zstd, 255), [plain; 4]);
        assert_eq!(encodings(Policy::Adaptive, 0), [plain; 4]);
    }

    #[test]
    fn adaptive_leaves_more_and_more_alone_until_something_gets_smaller() {
        fresh(|| {
            let (random, text) = (noise(4096), text(4096));
            assert_eq!(packed(Policy::Adaptive, &random).0, Encoding::Plain);
            // One is left alone, whatever it is; then text is tried, and nothing is left alone any more.
            let encodings = [(); 3].map(|()| packed(Policy::Adaptive, &text).0);
            assert_eq!(encodings, [Encoding::Plain, Encoding::Lz4, Encoding::Lz4]);
            // Noise alone: tried after 1, 2, 4 ... 64, 64 that were left alone.
            let skips_after = |calls: u32| {
                fresh(move || {
                    let bytes = noise(4096);
                    for _ in 0..calls {
                        packed(Policy::Adaptive, &bytes);
                    }
                    PACKER.with_borrow(|packer| packer.skips)
                })
            };
            assert_eq!(skips_after(1), 1);
            assert_eq!(skips_after(2), 0);
            assert_eq!(skips_after(3), 2);
            assert_eq!(skips_after(1 + 1 + 1 + 2 + 1 + 4 + 1 + 8 + 1 + 16 + 1 + 32 + 1), 64);
        });
    }

    #[test]
    fn damaged_payloads_are_refused_or_have_the_length_that_was_asked_for() {
        let payload = text(5000);
        for policy in [Policy::Lz4, Policy::Zstd] {
            let (encoding, stored) = packed(policy, &payload);
            let mut out = Vec::new();
            for len in [0, 1, 4999, 5001, 1 << 20] {
                let refused = expand(encoding, &stored, len, &mut out);
                assert_eq!(refused, Err(ExpandError::MediaDamaged), "{policy:?}, {len}");
                assert!(out.is_empty());
            }
            let long = expand(encoding, &stored, (1 << 20) + 1, &mut out);
            assert_eq!(long, Err(ExpandError::MediaLen((1 << 20) + 1)));
            for cut in 0..stored.len() {
                let refused = expand(encoding, &stored[..cut], 5000, &mut out);
                assert_eq!(refused, Err(ExpandError::MediaDamaged), "{policy:?}, cut to {cut}");
            }
            for bit in 0..stored.len() * 8 {
                let mut damaged = stored.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                if expand(encoding, &damaged, 5000, &mut out) == Ok(()) {
                    assert_eq!(out.len(), 5000);
                }
            }
        }
        let mut out = Vec::new();
        assert_eq!(expand(Encoding::Plain, b"abc", 3, &mut out), Ok(()));
        assert_eq!(out, b"abc");
        assert_eq!(expand(Encoding::Plain, b"abc", 4, &mut out), Err(ExpandError::MediaDamaged));
    }
}
