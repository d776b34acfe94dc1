//! Signatures of single PDUs.
//!
//! ```text
//!  id  algorithm      since    key  input
//!  0   HMAC-SHA256    2.0.2    16   PDU with its signature zeroed; first 16 bytes of the MAC
//!  1   AES-128-CMAC   3.0      16   PDU with its signature zeroed
//!  2   AES-128-GMAC   3.1.1    16   the same as associated data, nonce from the header:
//!
//!      0                      8                               12
//!      +----------------------+-------------------------------+
//!      | message id (8, LE)   | bit 0 server, bit 1 CANCEL    |
//!      +----------------------+-------------------------------+
//! ```
//!
//! Padding behind a PDU of a compound belongs to it. A GMAC nonce must not come twice under one
//! key. So what shares its message id with another signed message of the same sender stays
//! unsigned, the interim response ([`is_exempt`]), and signing an unsolicited message is refused; who
//! signs what else, and once, is the business of `signer`.
//!
//! Spec: MS-SMB2 §2.2.3.1.7, §3.1.4.1, §3.1.5.1, §3.2.5.1.3, §3.3.4.1.1.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{cmac, constant_time, hmac};
use thiserror::Error;

/// A signing algorithm; the ids are those of the negotiate context.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SigningAlgorithm {
    /// HMAC-SHA256, for 2.0.2 and 2.1.
    HmacSha256,
    /// AES-128-CMAC, for 3.x.
    AesCmac,
    /// AES-128-GMAC, for 3.1.1 where both announced it.
    AesGmac,
}

impl SigningAlgorithm {
    /// What we would rather speak comes first: 4 KiB take GMAC 0.2 us, CMAC 3.2 us here.
    pub const PREFERENCE: [Self; 3] = [Self::AesGmac, Self::AesCmac, Self::HmacSha256];

    /// The algorithm of an id on the wire, if it is one.
    pub const fn from_id(id: u16) -> Option<Self> {
        match id {
            0 => Some(Self::HmacSha256),
            1 => Some(Self::AesCmac),
            2 => Some(Self::AesGmac),
            _ => None,
        }
    }

    /// The id on the wire.
    pub const fn id(self) -> u16 {
        match self {
            Self::HmacSha256 => 0,
            Self::AesCmac => 1,
            Self::AesGmac => 2,
        }
    }
}

/// An expanded signing key. The libraries below overwrite it when it is dropped.
#[derive(Debug)]
pub struct SigningKey(Inner);

#[derive(Debug)]
enum Inner {
    HmacSha256(Box<hmac::Key>),
    AesCmac(cmac::Key),
    AesGmac(LessSafeKey),
}

impl SigningKey {
    /// Expands `key`.
    pub fn new(algorithm: SigningAlgorithm, key: &[u8; 16]) -> Self {
        Self(match algorithm {
            SigningAlgorithm::HmacSha256 => {
                Inner::HmacSha256(Box::new(hmac::Key::new(hmac::HMAC_SHA256, key)))
            }
            SigningAlgorithm::AesCmac => {
                Inner::AesCmac(cmac::Key::new(cmac::AES_128, key).expect("a 16-byte AES key"))
            }
            SigningAlgorithm::AesGmac => {
                let key = UnboundKey::new(&AES_128_GCM, key).expect("a 16-byte AES key");
                Inner::AesGmac(LessSafeKey::new(key))
            }
        })
    }

    /// The algorithm this key is for.
    pub const fn algorithm(&self) -> SigningAlgorithm {
        match self.0 {
            Inner::HmacSha256(_) => SigningAlgorithm::HmacSha256,
            Inner::AesCmac(_) => SigningAlgorithm::AesCmac,
            Inner::AesGmac(_) => SigningAlgorithm::AesGmac,
        }
    }

    /// Signs a complete PDU in place: sets the SIGNED flag and writes the signature.
    ///
    /// `pdu` begins with its SMB2 header and ends where the next one of a compound begins.
    ///
    /// # Errors
    /// The PDU is shorter than a header, or it is one of those that stay unsigned.
    pub(super) fn sign(&self, pdu: &mut [u8]) -> Result<(), SignError> {
        if is_exempt(pdu) {
            return Err(SignError::Exempt);
        }
        let header = pdu.first_chunk_mut::<HEADER>().ok_or(SignError::Truncated)?;
        header[FLAGS] |= FLAG_SIGNED;
        header[SIGNATURE].fill(0);
        let signature = self.compute(pdu);
        pdu[SIGNATURE].copy_from_slice(&signature);
        Ok(())
    }

    /// Signs without asking whether the nonce has been used: for programs that play a peer which
    /// breaks the rules. Everybody else [divides](Self::divide) the key.
    ///
    /// # Errors
    /// The PDU is shorter than a header, or it is one of those that stay unsigned.
    pub fn sign_unguarded(&self, pdu: &mut [u8]) -> Result<(), SignError> {
        self.sign(pdu)
    }

    /// Verifies a PDU in constant time; its bytes are the same before and after.
    ///
    /// # Errors
    /// The PDU is shorter than a header, does not say that it is signed, or the signature is not
    /// the one that this key gives.
    pub fn verify(&self, pdu: &mut [u8]) -> Result<(), VerifyError> {
        let header = pdu.first_chunk_mut::<HEADER>().ok_or(VerifyError::PeerTruncated)?;
        if header[FLAGS] & FLAG_SIGNED == 0 {
            return Err(VerifyError::PeerUnsigned);
        }
        let claimed: [u8; 16] = header[SIGNATURE].try_into().expect("48..64 is 16 bytes");
        header[SIGNATURE].fill(0);
        let expected = self.compute(pdu);
        pdu[SIGNATURE].copy_from_slice(&claimed);
        constant_time::verify_slices_are_equal(&expected, &claimed)
            .map_err(|_| VerifyError::PeerSignature)
    }

    /// The signature of a PDU whose signature field is zero.
    fn compute(&self, pdu: &[u8]) -> [u8; 16] {
        let mut out = [0; 32];
        match &self.0 {
            Inner::HmacSha256(key) => {
                hmac::sign_to_buffer(key, pdu, &mut out).expect("32 bytes hold the MAC");
            }
            Inner::AesCmac(key) => {
                cmac::sign_to_buffer(key, pdu, &mut out).expect("32 bytes hold the MAC");
            }
            Inner::AesGmac(key) => {
                let nonce = Nonce::assume_unique_for_key(gmac_nonce(pdu));
                let tag = key
                    .seal_in_place_separate_tag(nonce, Aad::from(pdu), &mut [])
                    .expect("a PDU is shorter than GCM's limit for associated data");
                out[..16].copy_from_slice(tag.as_ref());
            }
        }
        let mut signature = [0; 16];
        signature.copy_from_slice(&out[..16]);
        signature
    }
}

/// Says whether a PDU is one that is never signed nor verified: an interim response, or a
/// message nobody asked for.
pub fn is_exempt(pdu: &[u8]) -> bool {
    let Some(header) = pdu.first_chunk::<HEADER>() else { return false };
    // MS-SMB2 §3.2.5.1.3: neither STATUS_PENDING nor message id -1 is verified by a client.
    let response = header[FLAGS] & FLAG_RESPONSE != 0;
    let interim = header[STATUS] == STATUS_PENDING.to_le_bytes();
    response && (interim || header[MESSAGE_ID] == u64::MAX.to_le_bytes())
}

/// The message id of a PDU, if there is a header.
pub(super) fn id_of(pdu: &[u8]) -> Option<u64> {
    let header = pdu.first_chunk::<HEADER>()?;
    Some(u64::from_le_bytes(header[MESSAGE_ID].try_into().expect("24..32 is 8 bytes")))
}

/// Whether a PDU is a CANCEL.
pub(super) fn is_cancel(pdu: &[u8]) -> bool {
    pdu.get(COMMAND) == Some(&COMMAND_CANCEL.to_le_bytes())
}

/// MS-SMB2 §3.1.4.1, steps for AES-GMAC.
fn gmac_nonce(pdu: &[u8]) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&pdu[MESSAGE_ID]);
    if pdu[FLAGS] & FLAG_RESPONSE != 0 {
        nonce[8] |= 1;
    }
    if is_cancel(pdu) {
        nonce[8] |= 2;
    }
    nonce
}

/// Why a PDU was not signed.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum SignError {
    /// We built something shorter than a header.
    #[error("a PDU shorter than its header cannot be signed")]
    Truncated,
    /// An interim response or an unsolicited message: a GMAC nonce would come twice.
    #[error("interim responses and unsolicited messages stay unsigned")]
    Exempt,
    /// It is not the message, or not the connection, that the turn is of.
    #[error("a key signs a message of its own connection when it is its turn")]
    NotItsTurn,
    /// A GMAC nonce would come twice.
    #[error("the key cannot sign this message id any more")]
    NonceUsed,
}

/// Why a PDU was not accepted. The peer, or someone in between, is to blame.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum VerifyError {
    /// Shorter than a header.
    #[error("peer sent a PDU shorter than its header")]
    PeerTruncated,
    /// The SIGNED flag is not set.
    #[error("peer sent an unsigned PDU where a signed one is required")]
    PeerUnsigned,
    /// The signature does not belong to these bytes and this key.
    #[error("peer sent a PDU with a wrong signature")]
    PeerSignature,
}

// MS-SMB2 §2.2.1. The header module knows them too; here they are positions in raw bytes.
const HEADER: usize = 64;
const STATUS: std::ops::Range<usize> = 8..12;
const COMMAND: std::ops::Range<usize> = 12..14;
const FLAGS: usize = 16;
const MESSAGE_ID: std::ops::Range<usize> = 24..32;
const SIGNATURE: std::ops::Range<usize> = 48..64;
const FLAG_RESPONSE: u8 = 0x01;
const FLAG_SIGNED: u8 = 0x08;
const STATUS_PENDING: u32 = 0x103;
const COMMAND_CANCEL: u16 = 0x000c;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::vectors::{SIGNED_PDUS, hex};

    const ALL: [SigningAlgorithm; 3] = SigningAlgorithm::PREFERENCE;

    fn pdu() -> Vec<u8> {
        let mut pdu = b"\xfeSMB".to_vec();
        pdu.resize(100, 0x5a);
        pdu[16..20].fill(0);
        pdu
    }

    #[test]
    fn foreign_signatures_verify_and_come_out_of_sign() {
        for vector in SIGNED_PDUS {
            let key = hex(vector.key).try_into().unwrap();
            let key = SigningKey::new(vector.algorithm, &key);
            let signed = hex(vector.pdu);
            let mut bytes = signed.clone();
            key.verify(&mut bytes).unwrap();
            assert_eq!(bytes, signed, "verifying changes nothing");
            bytes[SIGNATURE].fill(0xee);
            bytes[FLAGS] &= !FLAG_SIGNED;
            key.sign(&mut bytes).unwrap();
            assert_eq!(bytes, signed);
        }
    }

    #[test]
    fn each_algorithm_has_the_id_of_the_specification() {
        assert_eq!(ALL.map(SigningAlgorithm::id), [2, 1, 0]);
        assert_eq!(ALL.map(|algorithm| SigningAlgorithm::from_id(algorithm.id())), ALL.map(Some));
        assert_eq!(SigningAlgorithm::from_id(3), None);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the key signs this one message")]
    fn a_request_is_signed_whatever_its_status_and_its_id_are() {
        let mut request = pdu();
        request[STATUS].copy_from_slice(&STATUS_PENDING.to_le_bytes());
        request[MESSAGE_ID].fill(0xff);
        assert!(!is_exempt(&request));
        let key = SigningKey::new(SigningAlgorithm::AesCmac, &[9; 16]);
        key.verify(&mut request).unwrap_err();
        key.sign_unguarded(&mut request).unwrap();
        key.verify(&mut request).unwrap();
        request[FLAGS] |= FLAG_RESPONSE;
        assert!(is_exempt(&request));
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        for algorithm in ALL {
            let key = SigningKey::new(algorithm, &[9; 16]);
            let mut good = pdu();
            key.sign(&mut good).unwrap();
            key.verify(&mut good).unwrap();
            for at in 0..good.len() {
                let mut bad = good.clone();
                bad[at] ^= 1;
                assert!(key.verify(&mut bad).is_err(), "{algorithm:?} byte {at}");
            }
            assert_eq!(
                SigningKey::new(algorithm, &[8; 16]).verify(&mut good),
                Err(VerifyError::PeerSignature)
            );
        }
    }

    #[test]
    fn short_and_unsigned_pdus_are_refused() {
        let key = SigningKey::new(SigningAlgorithm::AesGmac, &[1; 16]);
        assert_eq!(key.sign(&mut [0; 63]), Err(SignError::Truncated));
        assert_eq!(key.verify(&mut [0; 63]), Err(VerifyError::PeerTruncated));
        assert_eq!(key.verify(&mut pdu()), Err(VerifyError::PeerUnsigned));
    }

    #[test]
    fn direction_and_cancel_make_different_nonces() {
        let mut nonces = std::collections::HashSet::new();
        for flags in [0, FLAG_RESPONSE] {
            for command in [8, COMMAND_CANCEL] {
                let mut pdu = pdu();
                pdu[FLAGS] = flags;
                pdu[COMMAND].copy_from_slice(&command.to_le_bytes());
                nonces.insert(gmac_nonce(&pdu));
            }
        }
        assert_eq!(nonces.len(), 4);
    }

    #[test]
    fn interim_and_unsolicited_responses_stay_unsigned() {
        let key = SigningKey::new(SigningAlgorithm::AesGmac, &[1; 16]);
        let mut interim = pdu();
        interim[FLAGS] = FLAG_RESPONSE;
        interim[STATUS].copy_from_slice(&STATUS_PENDING.to_le_bytes());
        assert_eq!(key.sign(&mut interim), Err(SignError::Exempt));
        let mut unsolicited = pdu();
        unsolicited[FLAGS] = FLAG_RESPONSE;
        unsolicited[MESSAGE_ID].fill(0xff);
        assert_eq!(key.sign(&mut unsolicited), Err(SignError::Exempt));
    }
}
