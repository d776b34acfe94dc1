//! Sealing records with AES-256-GCM.
//!
//! The nonce is the generation and the LSN: within one generation no LSN is used twice, and no two openings have one
//! generation, so that no key seals two messages under one nonce. The key of a log is derived from its owner's key and
//! the log's id, so that two logs of one owner have two keys.
//!
//! Spec: NIST SP 800-38D §8.2.1 (deterministic construction); RFC 5869.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};

use crate::error::LogError;
use crate::format::{Header, LogId};
use crate::options::MasterKey;

/// Bytes that a seal adds to a record.
pub(crate) const TAG_LEN: usize = 16;

/// The key of one log.
pub(crate) struct Seal {
    key: LessSafeKey,
    check: [u8; 16],
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(..)")
    }
}

impl Seal {
    /// The key of the log `id`.
    pub(crate) fn derive(master: &MasterKey, id: &LogId) -> Result<Self, LogError> {
        let derived = Salt::new(HKDF_SHA256, id).extract(&master.0);
        let mut key = [0; 32];
        let mut check = [0; 16];
        let fill = |info: &[&[u8]], out: &mut [u8]| {
            let bytes = derived.expand(info, Bytes(out.len())).map_err(|_| LogError::Host)?;
            bytes.fill(out).map_err(|_| LogError::Host)
        };
        fill(&[b"landfast tail log record"], &mut key)?;
        fill(&[b"landfast tail log check"], &mut check)?;
        let key = UnboundKey::new(&AES_256_GCM, &key).map_err(|_| LogError::Host)?;
        Ok(Self { key: LessSafeKey::new(key), check })
    }

    /// What the label keeps, to tell a wrong key at once.
    pub(crate) fn check(&self) -> [u8; 16] {
        self.check
    }

    /// Seals `payload` in place; the tag goes to its last [`TAG_LEN`] bytes.
    pub(crate) fn seal(&self, header: &Header, payload: &mut [u8]) -> Result<(), LogError> {
        let (text, tag) = payload.split_at_mut(payload.len() - TAG_LEN);
        let made = self
            .key
            .seal_in_place_separate_tag(nonce(header), Aad::from(header.associated()), text)
            .map_err(|_| LogError::Host)?;
        tag.copy_from_slice(made.as_ref());
        Ok(())
    }

    /// Opens `payload` and takes its tag off.
    pub(crate) fn open(&self, header: &Header, payload: &mut Vec<u8>) -> Result<(), LogError> {
        let broken = LogError::SealBroken { lsn: header.lsn };
        let Ok(text) =
            self.key.open_in_place(nonce(header), Aad::from(header.associated()), payload)
        else {
            return Err(broken);
        };
        let len = text.len();
        payload.truncate(len);
        Ok(())
    }
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
