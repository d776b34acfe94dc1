//! Encryption with integrity: the four encryption types that rest on AES.
//!
//! ```text
//!                 17, 18 (RFC 3962)                       19, 20 (RFC 8009)
//!  derived keys   AES in the folded usage                 HMAC-SHA-256 or -384 in counter mode
//!  sealed         CTS(Ke, confounder || plain)            c = CTS(Ke, confounder || plain)
//!                 || HMAC-SHA1(Ki, confounder || plain)   || HMAC-SHA2(Ki, zero block || c)
//! ```
//!
//! CTS is CBC with the last two blocks exchanged and the last one cut, from a zero block on: the
//! ciphertext is as long as the plaintext. The confounder is one random block.
//!
//! Spec: RFC 3961 §5.1, §5.3; RFC 3962; RFC 8009.

use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes256};
use aws_lc_rs::{constant_time, hmac};
use zeroize::Zeroizing;

use crate::open_set::open_set;

open_set! {
    /// How something is encrypted; the numbers are IANA's.
    pub struct EncryptionType(i32) {
        /// aes128-cts-hmac-sha1-96.
        AES128_SHA1 = 17,
        /// aes256-cts-hmac-sha1-96.
        AES256_SHA1 = 18,
        /// aes128-cts-hmac-sha256-128.
        AES128_SHA256 = 19,
        /// aes256-cts-hmac-sha384-192.
        AES256_SHA384 = 20,
        /// RC4 with HMAC-MD5, which is not spoken here.
        RC4 = 23,
    }
}

/// What a key is used for, which decides about the keys derived from it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Usage(pub(super) u32);

impl Usage {
    // RFC 4120 §7.5.1.
    /// The ticket, by the service's key.
    pub(super) const TICKET: Self = Self(2);
    /// The authenticator of an AP-REQ, by the ticket's key.
    pub(super) const AP_REQ: Self = Self(11);
    /// The AP-REP, by the ticket's key.
    pub(super) const AP_REP: Self = Self(12);
    // RFC 4121 §2.
    /// Signatures of the server.
    pub(super) const ACCEPTOR_SIGN: Self = Self(23);
    /// Signatures of the client.
    pub(super) const INITIATOR_SIGN: Self = Self(25);
}

/// A key with its encryption type. Overwritten when dropped, never printed.
#[derive(Clone)]
pub(super) struct Key {
    profile: Profile,
    bytes: Zeroizing<Vec<u8>>,
}

impl Key {
    /// Takes over a key; `None` if its type is not spoken here or it is not as long as the type says.
    pub(super) fn new(encryption: EncryptionType, bytes: &[u8]) -> Option<Self> {
        let profile = Profile::of(encryption)?;
        (bytes.len() == profile.key_len())
            .then(|| Self { profile, bytes: Zeroizing::new(bytes.to_vec()) })
    }

    /// Whether keys of that type can be used at all.
    pub(super) fn speaks(encryption: EncryptionType) -> bool {
        Profile::of(encryption).is_some()
    }

    /// A key of the same type from random bytes.
    pub(super) fn sibling(&self, random: &[u8; KEY_MAX]) -> Self {
        let bytes = Zeroizing::new(random[..self.profile.key_len()].to_vec());
        Self { profile: self.profile, bytes }
    }

    pub(super) fn encryption(&self) -> EncryptionType {
        match self.profile {
            Profile::Aes128Sha1 => EncryptionType::AES128_SHA1,
            Profile::Aes256Sha1 => EncryptionType::AES256_SHA1,
            Profile::Aes128Sha256 => EncryptionType::AES128_SHA256,
            Profile::Aes256Sha384 => EncryptionType::AES256_SHA384,
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Opens what was sealed; `None` if it was not sealed with this key for this use, or was changed.
    pub(super) fn open(&self, usage: Usage, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let mac_at = sealed.len().checked_sub(self.profile.mac_len())?;
        let (cipher, mac) = sealed.split_at(mac_at);
        if cipher.len() < BLOCK {
            return None;
        }
        let integrity = self.derive(usage, Purpose::Integrity);
        let is_sealed_by = |data: &[&[u8]]| {
            let expected = self.profile.mac(&integrity, data);
            constant_time::verify_slices_are_equal(&expected, mac).is_ok()
        };
        if self.profile.is_mac_of_cipher() && !is_sealed_by(&[&[0; BLOCK], cipher]) {
            return None;
        }
        let aes = Aes::new(&self.derive(usage, Purpose::Encryption));
        let mut plain = Zeroizing::new(cipher.to_vec());
        aes.cts_decrypt(&mut plain);
        if !self.profile.is_mac_of_cipher() && !is_sealed_by(&[&plain]) {
            return None;
        }
        plain.drain(..BLOCK);
        Some(plain)
    }

    /// Seals `plain`. The confounder must not have been used before.
    pub(super) fn seal(&self, usage: Usage, confounder: &[u8; BLOCK], plain: &[u8]) -> Vec<u8> {
        let integrity = self.derive(usage, Purpose::Integrity);
        let mut sealed = [&confounder[..], plain].concat();
        let mac_of_plain = self.profile.mac(&integrity, &[&sealed]);
        Aes::new(&self.derive(usage, Purpose::Encryption)).cts_encrypt(&mut sealed);
        let mac = match self.profile.is_mac_of_cipher() {
            true => self.profile.mac(&integrity, &[&[0; BLOCK], &sealed]),
            false => mac_of_plain,
        };
        sealed.extend(mac);
        sealed
    }

    /// Signs data.
    pub(super) fn checksum(&self, usage: Usage, data: &[&[u8]]) -> Vec<u8> {
        self.profile.mac(&self.derive(usage, Purpose::Checksum), data)
    }

    fn derive(&self, usage: Usage, purpose: Purpose) -> Zeroizing<Vec<u8>> {
        let [a, b, c, d] = usage.0.to_be_bytes();
        let constant = [a, b, c, d, purpose as u8];
        let len = match purpose {
            Purpose::Encryption => self.profile.key_len(),
            Purpose::Integrity | Purpose::Checksum => self.profile.mac_key_len(),
        };
        match self.profile {
            Profile::Aes128Sha1 | Profile::Aes256Sha1 => self.derive_by_folding(constant, len),
            Profile::Aes128Sha256 | Profile::Aes256Sha384 => self.derive_by_counter(constant, len),
        }
    }

    // RFC 3961 §5.1: DR(), with the identity as random-to-key.
    fn derive_by_folding(&self, constant: [u8; 5], len: usize) -> Zeroizing<Vec<u8>> {
        let aes = Aes::new(&self.bytes);
        let mut block = fold(constant);
        let mut key = Zeroizing::new(Vec::with_capacity(len));
        while key.len() < len {
            aes.encrypt(&mut block);
            key.extend(block);
        }
        key
    }

    // RFC 8009 §3: KDF-HMAC-SHA2, of which one block is enough.
    fn derive_by_counter(&self, label: [u8; 5], len: usize) -> Zeroizing<Vec<u8>> {
        let bits = u32::try_from(8 * len).expect("at most 32 bytes");
        let algorithm = self.profile.hmac();
        let mut prf = hmac::Context::with_key(&hmac::Key::new(algorithm, &self.bytes));
        for part in [&1_u32.to_be_bytes()[..], &label, &[0], &bits.to_be_bytes()] {
            prf.update(part);
        }
        Zeroizing::new(prf.sign().as_ref()[..len].to_vec())
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.encryption())
    }
}

/// Which of a use's keys; RFC 3961 §5.3 and RFC 8009 §5 give them the same last byte.
#[derive(Clone, Copy)]
enum Purpose {
    Checksum = 0x99,
    Encryption = 0xaa,
    Integrity = 0x55,
}

/// What an encryption type is made of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Profile {
    Aes128Sha1,
    Aes256Sha1,
    Aes128Sha256,
    Aes256Sha384,
}

impl Profile {
    fn of(encryption: EncryptionType) -> Option<Self> {
        match encryption {
            EncryptionType::AES128_SHA1 => Some(Self::Aes128Sha1),
            EncryptionType::AES256_SHA1 => Some(Self::Aes256Sha1),
            EncryptionType::AES128_SHA256 => Some(Self::Aes128Sha256),
            EncryptionType::AES256_SHA384 => Some(Self::Aes256Sha384),
            _ => None,
        }
    }

    fn key_len(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes128Sha256 => 16,
            Self::Aes256Sha1 | Self::Aes256Sha384 => KEY_MAX,
        }
    }

    /// Bytes of the keys that sign: RFC 3961 §5.3 takes the cipher's, RFC 8009 §5 half the hash's.
    fn mac_key_len(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes128Sha256 => 16,
            Self::Aes256Sha1 => 32,
            Self::Aes256Sha384 => 24,
        }
    }

    fn mac_len(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes256Sha1 => 12,
            Self::Aes128Sha256 => 16,
            Self::Aes256Sha384 => 24,
        }
    }

    fn is_mac_of_cipher(self) -> bool {
        matches!(self, Self::Aes128Sha256 | Self::Aes256Sha384)
    }

    fn hmac(self) -> hmac::Algorithm {
        match self {
            // HMAC with SHA-1 is sound, for all that SHA-1 alone is not.
            Self::Aes128Sha1 | Self::Aes256Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Aes128Sha256 => hmac::HMAC_SHA256,
            Self::Aes256Sha384 => hmac::HMAC_SHA384,
        }
    }

    fn mac(self, key: &[u8], data: &[&[u8]]) -> Vec<u8> {
        let mut mac = hmac::Context::with_key(&hmac::Key::new(self.hmac(), key));
        data.iter().for_each(|part| mac.update(part));
        mac.sign().as_ref()[..self.mac_len()].to_vec()
    }
}

/// The block cipher with a key of either length.
enum Aes {
    Short(Box<Aes128>),
    Long(Box<Aes256>),
}

impl Aes {
    /// # Panics
    /// The key has neither 16 nor 32 bytes.
    fn new(key: &[u8]) -> Self {
        match key.len() {
            16 => Self::Short(Box::new(Aes128::new_from_slice(key).expect("16 bytes"))),
            _ => Self::Long(Box::new(Aes256::new_from_slice(key).expect("32 bytes"))),
        }
    }

    fn encrypt(&self, block: &mut [u8; BLOCK]) {
        let mut array = Array::from(*block);
        match self {
            Self::Short(aes) => aes.encrypt_block(&mut array),
            Self::Long(aes) => aes.encrypt_block(&mut array),
        }
        *block = array.into();
    }

    fn decrypt(&self, block: &mut [u8; BLOCK]) {
        let mut array = Array::from(*block);
        match self {
            Self::Short(aes) => aes.decrypt_block(&mut array),
            Self::Long(aes) => aes.decrypt_block(&mut array),
        }
        *block = array.into();
    }

    /// RFC 3962 §5. `data` has at least one block.
    fn cts_encrypt(&self, data: &mut Vec<u8>) {
        let len = data.len();
        data.resize(len.next_multiple_of(BLOCK), 0);
        let (blocks, _) = data.as_chunks_mut::<BLOCK>();
        let mut before = [0; BLOCK];
        for block in &mut *blocks {
            xor(block, &before);
            self.encrypt(block);
            before = *block;
        }
        if let [.., one, two] = blocks {
            std::mem::swap(one, two);
        }
        data.truncate(len);
    }

    /// RFC 3962 §5. `data` has at least one block.
    fn cts_decrypt(&self, data: &mut Vec<u8>) {
        let len = data.len();
        let padding = len.next_multiple_of(BLOCK) - len;
        if len > BLOCK {
            // The block before the last is the last one's ciphertext; what was cut off the other is still
            // in it, as the last block was filled up with zeros before it was encrypted.
            let at = len - (BLOCK - padding) - BLOCK;
            let mut whole: [u8; BLOCK] = *data[at..].first_chunk().expect("a block is left");
            self.decrypt(&mut whole);
            data.extend(&whole[BLOCK - padding..]);
        }
        let (blocks, _) = data.as_chunks_mut::<BLOCK>();
        if let [.., one, two] = &mut *blocks {
            std::mem::swap(one, two);
        }
        let mut before = [0; BLOCK];
        for block in blocks {
            let cipher = *block;
            self.decrypt(block);
            xor(block, &before);
            before = cipher;
        }
        data.truncate(len);
    }
}

fn xor(block: &mut [u8; BLOCK], with: &[u8; BLOCK]) {
    block.iter_mut().zip(with).for_each(|(byte, other)| *byte ^= other);
}

/// RFC 3961 §5.1: n-fold of five bytes to a block. Sixteen copies, each turned 13 bits further to the
/// right, are cut into blocks and added with the carry coming back at the other end.
fn fold(constant: [u8; 5]) -> [u8; BLOCK] {
    const BITS: usize = 40;
    let bit = |copy: usize, at: usize| {
        let at = (at + BITS - (13 * copy) % BITS) % BITS;
        constant[at / 8] >> (7 - at % 8) & 1
    };
    let mut copies = [0_u8; 5 * BLOCK];
    for (at, byte) in copies.iter_mut().enumerate() {
        for offset in 0..8 {
            let at = 8 * at + offset;
            *byte = *byte << 1 | bit(at / BITS, at % BITS);
        }
    }
    let mut sum = [0_u8; BLOCK];
    let (blocks, _) = copies.as_chunks::<BLOCK>();
    for block in blocks {
        let (mut wide, carried) =
            u128::from_be_bytes(sum).overflowing_add(u128::from_be_bytes(*block));
        // One's complement: adding the carry cannot overflow again.
        wide += u128::from(carried);
        sum = wide.to_be_bytes();
    }
    sum
}

/// AES's.
pub(super) const BLOCK: usize = 16;
/// The longest key of the four types, in bytes.
pub(super) const KEY_MAX: usize = 32;

#[cfg(test)]
mod tests;
