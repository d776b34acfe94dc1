//! From the session key of the authentication to the keys of a dialect.
//!
//! ```text
//!  key = first L/8 bytes of HMAC-SHA256(Ki, 00000001 || label || 00 || context || L)    (L <= 256)
//!
//!             3.0, 3.0.2                        3.1.1 (context is the preauth hash)
//!  signing    "SMB2AESCMAC\0"  "SmbSign\0"      "SMBSigningKey\0"
//!  to server  "SMB2AESCCM\0"   "ServerIn \0"    "SMBC2SCipherKey\0"
//!  to client  "SMB2AESCCM\0"   "ServerOut\0"    "SMBS2CCipherKey\0"
//!  application"SMB2APP\0"      "SmbRpc\0"       "SMBAppKey\0"
//! ```
//!
//! Ki is the session key cut or zero-filled to 16 bytes; only the 256-bit ciphers take the full
//! one. In 2.0.2 and 2.1 the session key itself signs and nothing can be encrypted.
//!
//! Spec: MS-SMB2 §3.1.4.2, §3.2.5.3.1, §3.3.5.5.3; NIST SP 800-108 §5.1 (counter mode, r = 32).

use std::fmt;

use aws_lc_rs::hmac;
use zeroize::Zeroizing;

use super::{Cipher, OpeningKey, PreauthHash, SealingKey, SigningAlgorithm, SigningKey};

/// The key an authentication ended with. Overwritten when dropped, never printed.
#[derive(Clone, Eq, PartialEq)]
pub struct SessionKey {
    bytes: Zeroizing<[u8; SESSION_KEY_MAX]>,
    len: usize,
}

impl SessionKey {
    /// Takes over the key; Kerberos ones may be longer than 16 bytes, up to 64 are kept.
    pub fn new(key: &[u8]) -> Self {
        let len = key.len().min(SESSION_KEY_MAX);
        let mut bytes = Zeroizing::new([0; SESSION_KEY_MAX]);
        bytes[..len].copy_from_slice(&key[..len]);
        Self { bytes, len }
    }

    /// MS-SMB2 §3.3.5.5.3: Session.SessionKey, 16 bytes, zero-filled if the key is shorter.
    fn short(&self) -> &[u8] {
        &self.bytes[..16]
    }

    /// MS-SMB2 §3.3.5.5.3: Session.FullSessionKey.
    fn full(&self) -> &[u8] {
        &self.bytes[..self.len.max(16)]
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionKey({} bytes)", self.len)
    }
}

/// Which derivation the dialect calls for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeySchedule {
    /// 2.0.2 and 2.1: the session key signs, there is no encryption.
    Smb2,
    /// 3.0 and 3.0.2: AES-CMAC and AES-128-CCM.
    Smb30 {
        /// Both sides announced encryption.
        encryption: bool,
    },
    /// 3.1.1: what was negotiated, bound to the conversation so far.
    Smb311 {
        /// The session's hash after the last request of the authentication.
        preauth: PreauthHash,
        /// The negotiated algorithm; AES-CMAC if none was negotiated.
        signing: SigningAlgorithm,
        /// The negotiated cipher, if any.
        cipher: Option<Cipher>,
    },
}

/// Which end of the connection we are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// We send requests.
    Client,
    /// We send responses.
    Server,
}

/// The expanded keys of a session, ready for use from our side of it.
#[derive(Debug)]
pub struct SessionKeys {
    /// Signs what we send and verifies what we get. Of this channel: others derive their own.
    pub signing: SigningKey,
    /// Seals what we send; none where the dialect or the negotiation has no encryption.
    pub sealing: Option<SealingKey>,
    /// Opens what we get.
    pub opening: Option<OpeningKey>,
    /// For protocols above SMB, such as RPC.
    pub application: Zeroizing<[u8; 16]>,
}

impl KeySchedule {
    /// Derives and expands all keys of the session.
    pub fn derive(&self, key: &SessionKey, role: Role) -> SessionKeys {
        let application = Zeroizing::new(self.application(key));
        let (sealing, opening) = match self.cipher() {
            Some(cipher) => {
                let (ours, theirs) = match role {
                    Role::Client => (Direction::ToServer, Direction::ToClient),
                    Role::Server => (Direction::ToClient, Direction::ToServer),
                };
                let seal = self.cipher_key(key, cipher, ours);
                let open = self.cipher_key(key, cipher, theirs);
                let len = cipher.key_len();
                let sealing = SealingKey::new(cipher, &seal[..len]);
                (Some(sealing), Some(OpeningKey::new(cipher, &open[..len])))
            }
            None => (None, None),
        };
        SessionKeys { signing: self.signing(key), sealing, opening, application }
    }

    /// Derives the signing key alone, as a further channel of a session needs it.
    pub fn signing(&self, key: &SessionKey) -> SigningKey {
        let bytes = Zeroizing::new(self.signing_bytes(key));
        SigningKey::new(self.signing_algorithm(), &bytes)
    }

    /// The cipher the session would encrypt with.
    pub const fn cipher(&self) -> Option<Cipher> {
        match self {
            Self::Smb30 { encryption: true } => Some(Cipher::Aes128Ccm),
            Self::Smb2 | Self::Smb30 { encryption: false } => None,
            Self::Smb311 { cipher, .. } => *cipher,
        }
    }

    const fn signing_algorithm(&self) -> SigningAlgorithm {
        match self {
            Self::Smb2 => SigningAlgorithm::HmacSha256,
            Self::Smb30 { .. } => SigningAlgorithm::AesCmac,
            Self::Smb311 { signing, .. } => *signing,
        }
    }

    fn signing_bytes(&self, key: &SessionKey) -> [u8; 16] {
        match self {
            Self::Smb2 => key.short().try_into().expect("short() is 16 bytes"),
            Self::Smb30 { .. } => derive(key.short(), b"SMB2AESCMAC\0", b"SmbSign\0"),
            Self::Smb311 { preauth, .. } => {
                derive(key.short(), b"SMBSigningKey\0", preauth.value())
            }
        }
    }

    fn application(&self, key: &SessionKey) -> [u8; 16] {
        match self {
            Self::Smb2 => key.short().try_into().expect("short() is 16 bytes"),
            Self::Smb30 { .. } => derive(key.short(), b"SMB2APP\0", b"SmbRpc\0"),
            Self::Smb311 { preauth, .. } => derive(key.short(), b"SMBAppKey\0", preauth.value()),
        }
    }

    fn cipher_key(
        &self,
        key: &SessionKey,
        cipher: Cipher,
        direction: Direction,
    ) -> Zeroizing<[u8; 32]> {
        let (label, context): (&[u8], &[u8]) = match (self, direction) {
            (Self::Smb2 | Self::Smb30 { .. }, Direction::ToServer) => {
                (b"SMB2AESCCM\0", b"ServerIn \0")
            }
            (Self::Smb2 | Self::Smb30 { .. }, Direction::ToClient) => {
                (b"SMB2AESCCM\0", b"ServerOut\0")
            }
            (Self::Smb311 { preauth, .. }, Direction::ToServer) => {
                (b"SMBC2SCipherKey\0", preauth.value())
            }
            (Self::Smb311 { preauth, .. }, Direction::ToClient) => {
                (b"SMBS2CCipherKey\0", preauth.value())
            }
        };
        let mut out = Zeroizing::new([0; 32]);
        match cipher.key_len() {
            32 => out.copy_from_slice(&derive::<32>(key.full(), label, context)),
            _ => out[..16].copy_from_slice(&derive::<16>(key.short(), label, context)),
        }
        out
    }
}

#[derive(Clone, Copy)]
enum Direction {
    ToServer,
    ToClient,
}

/// SP 800-108 in counter mode with one block, which is all that 128 and 256 bits need.
pub(crate) fn derive<const LEN: usize>(key: &[u8], label: &[u8], context: &[u8]) -> [u8; LEN] {
    const { assert!(LEN <= 32) };
    let bits = u32::try_from(LEN * 8).expect("LEN is at most 32");
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let mut prf = hmac::Context::with_key(&key);
    prf.update(&1_u32.to_be_bytes());
    prf.update(label);
    prf.update(&[0]);
    prf.update(context);
    prf.update(&bits.to_be_bytes());
    let mut out = [0; LEN];
    out.copy_from_slice(&prf.sign().as_ref()[..LEN]);
    out
}

// The longest key of a Kerberos encryption type is 32 bytes; twice that is plenty.
const SESSION_KEY_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::vectors::{KDF_256, KDF_VECTORS, hex};

    fn schedule(preauth: Option<&str>, cipher: Cipher) -> KeySchedule {
        let Some(preauth) = preauth else { return KeySchedule::Smb30 { encryption: true } };
        KeySchedule::Smb311 {
            preauth: preauth_of(preauth),
            signing: SigningAlgorithm::AesCmac,
            cipher: Some(cipher),
        }
    }

    #[test]
    fn a_session_knows_the_cipher_it_would_encrypt_with() {
        assert_eq!(KeySchedule::Smb2.cipher(), None);
        assert_eq!(KeySchedule::Smb30 { encryption: false }.cipher(), None);
        assert_eq!(KeySchedule::Smb30 { encryption: true }.cipher(), Some(Cipher::Aes128Ccm));
        let agreed = schedule(Some(&"00".repeat(64)), Cipher::Aes256Gcm);
        assert_eq!(agreed.cipher(), Some(Cipher::Aes256Gcm));
    }

    fn preauth_of(value: &str) -> PreauthHash {
        PreauthHash::from_value(hex(value).try_into().unwrap())
    }

    #[test]
    fn microsofts_published_keys_come_out_of_its_published_session_keys() {
        for vector in KDF_VECTORS {
            let schedule = schedule(vector.preauth, Cipher::Aes128Gcm);
            let key = SessionKey::new(&hex(vector.session_key));
            assert_eq!(schedule.signing_bytes(&key)[..], hex(vector.signing));
            let to_client = schedule.cipher_key(&key, Cipher::Aes128Gcm, Direction::ToClient);
            assert_eq!(to_client[..16], hex(vector.to_client));
            let to_server = schedule.cipher_key(&key, Cipher::Aes128Gcm, Direction::ToServer);
            assert_eq!(to_server[..16], hex(vector.to_server));
            if let Some(application) = vector.application {
                assert_eq!(schedule.application(&key)[..], hex(application));
            }
        }
    }

    #[test]
    fn the_256_bit_ciphers_take_all_of_the_session_key() {
        let schedule = schedule(Some(KDF_256.preauth), Cipher::Aes256Gcm);
        for (session_key, to_server, to_client) in KDF_256.keys {
            let key = SessionKey::new(&hex(session_key));
            let got = schedule.cipher_key(&key, Cipher::Aes256Gcm, Direction::ToServer);
            assert_eq!(got[..], hex(to_server));
            let got = schedule.cipher_key(&key, Cipher::Aes256Gcm, Direction::ToClient);
            assert_eq!(got[..], hex(to_client));
        }
    }

    #[test]
    fn smb2_signs_with_the_session_key_and_never_encrypts() {
        let key = SessionKey::new(&[7; 9]);
        assert_eq!(KeySchedule::Smb2.signing_bytes(&key)[..9], [7; 9]);
        assert_eq!(KeySchedule::Smb2.signing_bytes(&key)[9..], [0; 7]);
        let keys = KeySchedule::Smb2.derive(&key, Role::Client);
        assert!(keys.sealing.is_none() && keys.opening.is_none());
    }

    #[test]
    fn a_session_key_never_prints() {
        assert_eq!(format!("{:?}", SessionKey::new(b"0123456789abcdef")), "SessionKey(16 bytes)");
    }
}
