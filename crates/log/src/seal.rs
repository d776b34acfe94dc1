//! Sealing records with AES-256-GCM.
//!
//! ```text
//!   sealed payload: salt of the opening 16 | text | tag 16
//!   owner's key -- id of the log --> key of the log -- salt --> key of the opening
//! ```
//! Each opening draws a salt, and has a key of its own: no number on a label has to be unique for that, so that two openings
//! which know nothing of each other, each with the other's member given up, share no key. The nonce is the generation and
//! the LSN; within one opening no LSN is used twice.
//!
//! Spec: NIST SP 800-38D §8.2.1 (deterministic construction); RFC 5869.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};

use crate::error::LogError;
use crate::format::{Header, LogId};
use crate::options::MasterKey;

/// Bytes of an opening's salt, before the text.
pub(crate) const SALT_LEN: usize = 16;
/// Bytes of the tag, behind the text.
const TAG_LEN: usize = 16;
/// Bytes that a seal adds to a record.
pub(crate) const SEAL_LEN: usize = SALT_LEN + TAG_LEN;

type OpeningSalt = [u8; SALT_LEN];

/// The key of one log: opens the records of every opening.
pub(crate) struct Seal {
    derived: Prk,
    check: [u8; 16],
    /// The key of the opening whose record was opened last: records of one opening follow each other.
    last: Mutex<Option<(OpeningSalt, LessSafeKey)>>,
}

/// The key of one opening: seals its records.
pub(crate) struct Sealer {
    salt: OpeningSalt,
    key: LessSafeKey,
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(..)")
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer(..)")
    }
}

impl Seal {
    /// The key of the log `id`.
    pub(crate) fn derive(master: &MasterKey, id: &LogId) -> Result<Self, LogError> {
        let derived = Salt::new(HKDF_SHA256, id).extract(&master.0);
        let mut check = [0; 16];
        expand(&derived, &[b"landfast tail log check"], &mut check)?;
        Ok(Self { derived, check, last: Mutex::new(None) })
    }

    /// What the label keeps, to tell a wrong key at once.
    pub(crate) fn check(&self) -> [u8; 16] {
        self.check
    }

    /// A key for an opening that begins.
    pub(crate) fn sealer(&self) -> Result<Sealer, LogError> {
        let mut salt = OpeningSalt::default();
        getrandom::fill(&mut salt).map_err(|_| LogError::Host)?;
        Ok(Sealer { salt, key: self.key_of(&salt)? })
    }

    fn key_of(&self, salt: &OpeningSalt) -> Result<LessSafeKey, LogError> {
        let mut key = [0; 32];
        expand(&self.derived, &[b"landfast tail log opening", salt], &mut key)?;
        let key = UnboundKey::new(&AES_256_GCM, &key).map_err(|_| LogError::Host)?;
        Ok(LessSafeKey::new(key))
    }

    /// Opens `payload` and takes its salt and tag off.
    pub(crate) fn open(&self, header: &Header, payload: &mut Vec<u8>) -> Result<(), LogError> {
        let broken = LogError::SealBroken { lsn: header.lsn };
        let Some(salt) = payload.first_chunk::<SALT_LEN>().copied() else { return Err(broken) };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let key = match last.take().filter(|(of, _)| *of == salt) {
            Some((_, key)) => key,
            None => self.key_of(&salt)?,
        };
        let opened = key
            .open_in_place(nonce(header), Aad::from(header.associated()), &mut payload[SALT_LEN..])
            .map(|text| text.len());
        *last = Some((salt, key));
        let Ok(len) = opened else { return Err(broken) };
        payload.truncate(SALT_LEN + len);
        payload.drain(..SALT_LEN);
        Ok(())
    }
}

impl Sealer {
    /// Seals `payload` in place: the text lies behind [`SALT_LEN`] bytes, and the tag goes to the last bytes.
    pub(crate) fn seal(&self, header: &Header, payload: &mut [u8]) -> Result<(), LogError> {
        let (salt, rest) = payload.split_at_mut(SALT_LEN);
        salt.copy_from_slice(&self.salt);
        let (text, tag) = rest.split_at_mut(rest.len() - TAG_LEN);
        let made = self
            .key
            .seal_in_place_separate_tag(nonce(header), Aad::from(header.associated()), text)
            .map_err(|_| LogError::Host)?;
        tag.copy_from_slice(made.as_ref());
        Ok(())
    }
}

fn expand(derived: &Prk, info: &[&[u8]], out: &mut [u8]) -> Result<(), LogError> {
    let bytes = derived.expand(info, Bytes(out.len())).map_err(|_| LogError::Host)?;
    bytes.fill(out).map_err(|_| LogError::Host)
}

fn nonce(header: &Header) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&header.generation.0.to_le_bytes());
    bytes[4..].copy_from_slice(&header.lsn.0.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

struct Bytes(usize);

impl KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Kind;
    use crate::lsn::{Generation, Lsn};

    #[test]
    fn two_openings_seal_one_record_of_one_generation_with_two_keys() {
        let seal = Seal::derive(&MasterKey([7; 32]), b"sixteen bytes id").unwrap();
        let length = u32::try_from(SEAL_LEN + 4).unwrap();
        let (lsn, durable, generation) = (Lsn(64), Lsn(0), Generation(2));
        let header = Header { kind: Kind::Sealed, length, lsn, durable, generation };
        let mut sealed: Vec<Vec<u8>> = Vec::new();
        for text in [b"same", b"same"] {
            let mut payload = vec![0; SEAL_LEN + 4];
            payload[SALT_LEN..SALT_LEN + 4].copy_from_slice(text);
            seal.sealer().unwrap().seal(&header, &mut payload).unwrap();
            sealed.push(payload);
        }
        // The bytes of one key and one nonce would be the same.
        assert_ne!(sealed[0][SALT_LEN..], sealed[1][SALT_LEN..]);
        for mut payload in sealed {
            seal.open(&header, &mut payload).unwrap();
            assert_eq!(payload, b"same");
        }
        assert!(seal.open(&header, &mut vec![0; SALT_LEN - 1]).is_err());
        assert!(seal.open(&header, &mut vec![0; SALT_LEN + 1]).is_err());
    }
}
