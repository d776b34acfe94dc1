//! Encryption of whole frames, in place.
//!
//! ```text
//!   transform header (52)                                      payload
//!  +------------+-------------+---------------------------------+-------------------+
//!  | FD 'SMB'   | signature   | nonce, size, flags, session id  | plain -> sealed   |
//!  +------------+-------------+---------------------------------+-------------------+
//!                ^ the tag      \______ associated data ______/
//! ```
//!
//! The caller emits the header; sealing puts nonce and signature into it.
//!
//! Spec: MS-SMB2 §2.2.41, §3.1.4.3, §3.2.5.1.1, §3.3.5.2.1.1; RFC 5084.

use std::fmt;

use aes::{Aes128, Aes256};
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ccm::Ccm;
use ccm::aead::array::Array;
use ccm::aead::inout::InOutBuf;
use ccm::aead::{AeadInOut, KeyInit};
use ccm::consts::{U11, U16};
use thiserror::Error;

use super::Cipher;
use super::nonce::NonceCounter;

/// Encrypts what we send. One per session and direction, shared by its channels.
#[derive(Debug)]
pub struct SealingKey {
    aead: Aead,
    nonces: NonceCounter,
}

impl SealingKey {
    /// Expands `key`, which is as long as the cipher wants it: see [`Cipher::key_len`].
    ///
    /// # Panics
    /// The key has another length.
    pub(super) fn new(cipher: Cipher, key: &[u8]) -> Self {
        Self { aead: Aead::new(cipher, key), nonces: NonceCounter::new() }
    }

    /// Encrypts `payload` in place, and writes nonce and signature into the emitted `header`.
    ///
    /// # Errors
    /// The key has sealed [`super::NONCES_MAX`] frames, or the payload is longer than CCM can
    /// count. The header is left without signature.
    pub fn seal(&self, header: &mut [u8; HEADER], payload: &mut [u8]) -> Result<(), SealError> {
        let id = header[SESSION_ID].try_into().expect("44..52 is 8 bytes");
        let nonce = self.nonces.next(u64::from_le_bytes(id)).ok_or(SealError::KeyExhausted)?;
        header[NONCE].copy_from_slice(&nonce);
        let tag = self.aead.seal(&nonce, &header[ASSOCIATED], payload)?;
        header[SIGNATURE].copy_from_slice(&tag);
        Ok(())
    }
}

/// Decrypts what the peer sends.
#[derive(Debug)]
pub struct OpeningKey(Aead);

impl OpeningKey {
    /// Expands `key`, which is as long as the cipher wants it: see [`Cipher::key_len`].
    ///
    /// # Panics
    /// The key has another length.
    pub(super) fn new(cipher: Cipher, key: &[u8]) -> Self {
        Self(Aead::new(cipher, key))
    }

    /// Decrypts `payload` in place, if header and payload are what the peer sealed.
    ///
    /// # Errors
    /// They are not; then the payload is garbage.
    pub fn open(&self, header: &[u8; HEADER], payload: &mut [u8]) -> Result<(), OpenError> {
        self.0.open(header, payload)
    }
}

enum Aead {
    Gcm(LessSafeKey),
    Ccm128(Ccm<Aes128, U16, U11>),
    Ccm256(Ccm<Aes256, U16, U11>),
}

impl Aead {
    fn new(cipher: Cipher, key: &[u8]) -> Self {
        let gcm = |algorithm| {
            let key = UnboundKey::new(algorithm, key).expect("the schedule derives key_len bytes");
            Self::Gcm(LessSafeKey::new(key))
        };
        match cipher {
            Cipher::Aes128Gcm => gcm(&AES_128_GCM),
            Cipher::Aes256Gcm => gcm(&AES_256_GCM),
            Cipher::Aes128Ccm => {
                Self::Ccm128(Ccm::new_from_slice(key).expect("the schedule derives key_len bytes"))
            }
            Cipher::Aes256Ccm => {
                Self::Ccm256(Ccm::new_from_slice(key).expect("the schedule derives key_len bytes"))
            }
        }
    }

    fn seal(&self, nonce: &[u8; 16], aad: &[u8], data: &mut [u8]) -> Result<[u8; 16], SealError> {
        let mut tag = [0; 16];
        match self {
            Self::Gcm(key) => {
                let sealed = key
                    .seal_in_place_separate_tag(gcm_nonce(nonce), Aad::from(aad), data)
                    .map_err(|_| SealError::TooLong(data.len()))?;
                tag.copy_from_slice(sealed.as_ref());
            }
            Self::Ccm128(key) => tag = seal_ccm(key, nonce, aad, data)?,
            Self::Ccm256(key) => tag = seal_ccm(key, nonce, aad, data)?,
        }
        Ok(tag)
    }

    fn open(&self, header: &[u8; HEADER], data: &mut [u8]) -> Result<(), OpenError> {
        let nonce: &[u8; 16] = header[NONCE].try_into().expect("20..36 is 16 bytes");
        let (tag, aad) = (&header[SIGNATURE], &header[ASSOCIATED]);
        match self {
            Self::Gcm(key) => key
                .open_in_place_separate_tag(gcm_nonce(nonce), Aad::from(aad), tag, data)
                .map(|_| ())
                .map_err(|_| OpenError::PeerSeal),
            Self::Ccm128(key) => open_ccm(key, nonce, aad, tag, data),
            Self::Ccm256(key) => open_ccm(key, nonce, aad, tag, data),
        }
    }
}

impl fmt::Debug for Aead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gcm(_) => "Gcm",
            Self::Ccm128(_) => "Ccm128",
            Self::Ccm256(_) => "Ccm256",
        })
    }
}

fn gcm_nonce(nonce: &[u8; 16]) -> Nonce {
    Nonce::assume_unique_for_key(*nonce.first_chunk().expect("12 of 16 bytes"))
}

fn seal_ccm<K: AeadInOut<NonceSize = U11, TagSize = U16>>(
    key: &K,
    nonce: &[u8; 16],
    aad: &[u8],
    data: &mut [u8],
) -> Result<[u8; 16], SealError> {
    let len = data.len();
    key.encrypt_inout_detached(&ccm_nonce(nonce), aad, InOutBuf::from(data))
        .map(Into::into)
        .map_err(|_| SealError::TooLong(len))
}

fn open_ccm<K: AeadInOut<NonceSize = U11, TagSize = U16>>(
    key: &K,
    nonce: &[u8; 16],
    aad: &[u8],
    tag: &[u8],
    data: &mut [u8],
) -> Result<(), OpenError> {
    let tag: [u8; 16] = tag.try_into().expect("the signature field is 16 bytes");
    key.decrypt_inout_detached(&ccm_nonce(nonce), aad, InOutBuf::from(data), &Array::from(tag))
        .map_err(|_| OpenError::PeerSeal)
}

fn ccm_nonce(nonce: &[u8; 16]) -> Array<u8, U11> {
    Array::from(*nonce.first_chunk::<11>().expect("11 of 16 bytes"))
}

/// Why a frame was not sealed.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum SealError {
    /// All nonces are used up: the session has to authenticate anew.
    #[error("the session key has sealed as many frames as it may")]
    KeyExhausted,
    /// The cipher cannot count that many bytes.
    #[error("a frame of {0} bytes is too long to be sealed")]
    TooLong(usize),
}

/// Why a frame was not opened.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum OpenError {
    /// Wrong key, or the frame was changed on its way.
    #[error("peer sent a frame that its session's key does not open")]
    PeerSeal,
}

const HEADER: usize = 52;
const SIGNATURE: std::ops::Range<usize> = 4..20;
const NONCE: std::ops::Range<usize> = 20..36;
const SESSION_ID: std::ops::Range<usize> = 44..52;
const ASSOCIATED: std::ops::Range<usize> = 20..52;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::vectors::{SEALED_FRAMES, hex};

    #[test]
    fn foreign_frames_open_to_the_bytes_they_were_made_of() {
        for vector in SEALED_FRAMES {
            let key = OpeningKey::new(vector.cipher, &hex(vector.key));
            let mut frame = hex(vector.frame);
            let (header, payload) = frame.split_first_chunk_mut::<HEADER>().unwrap();
            key.open(header, payload).unwrap();
            assert_eq!(payload, hex(vector.plain), "{:?}", vector.cipher);
        }
    }

    #[test]
    fn the_same_nonce_and_key_give_the_foreign_bytes() {
        for vector in SEALED_FRAMES {
            let aead = Aead::new(vector.cipher, &hex(vector.key));
            let frame = hex(vector.frame);
            let mut payload = hex(vector.plain);
            let nonce = frame[NONCE].try_into().unwrap();
            let tag = aead.seal(&nonce, &frame[ASSOCIATED], &mut payload).unwrap();
            assert_eq!(tag, frame[SIGNATURE]);
            assert_eq!(payload, frame[HEADER..]);
        }
    }

    #[test]
    fn sealed_frames_open_and_changed_ones_do_not() {
        for cipher in Cipher::PREFERENCE {
            let bytes = vec![3; cipher.key_len()];
            let (sealing, opening) =
                (SealingKey::new(cipher, &bytes), OpeningKey::new(cipher, &bytes));
            let mut header = [0x11; HEADER];
            let mut payload = *b"sixteen bytes and a few more";
            sealing.seal(&mut header, &mut payload).unwrap();
            assert_ne!(&payload, b"sixteen bytes and a few more");
            assert_eq!(
                header[NONCE.start + cipher.nonce_len()..NONCE.end],
                [0; 16][cipher.nonce_len()..]
            );
            for at in SIGNATURE.start..HEADER {
                // Nonce bytes the cipher does not use are still associated data.
                let (mut changed, mut copy) = (header, payload);
                changed[at] ^= 0x80;
                assert_eq!(opening.open(&changed, &mut copy), Err(OpenError::PeerSeal), "{at}");
            }
            opening.open(&header, &mut payload).unwrap();
            assert_eq!(&payload, b"sixteen bytes and a few more");
        }
    }

    #[test]
    fn no_two_frames_share_a_nonce() {
        let sealing = SealingKey::new(Cipher::Aes128Gcm, &[1; 16]);
        let (mut first, mut second) = ([0; HEADER], [0; HEADER]);
        sealing.seal(&mut first, &mut []).unwrap();
        sealing.seal(&mut second, &mut []).unwrap();
        assert_ne!(first[NONCE], second[NONCE]);
    }
}
