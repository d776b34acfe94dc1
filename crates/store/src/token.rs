//! Capability tokens: what a client may do with one region, proven to the daemons that hold its bytes.
//!
//! ```text
//!   claims  0         8        16        24        32        36       40
//!           +---------+---------+---------+---------+---------+--------+
//!           | region  | client  | expires | generat.| rights  | zero   |   little-endian; expires in ms since 1970
//!           +---------+---------+---------+---------+---------+--------+
//!   token   claims 40 | HMAC-SHA256(store key, LABEL | claims) 32            as text: lfst1- and 144 hex digits
//! ```
//!
//! The MAC of the claims is never sent: it is the key that proves each control message ([`Token::prove`]), so a
//! token is not learnt by listening. A daemon has the store's key and computes the MAC again.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use aws_lc_rs::{constant_time, hmac};
use basics::{Environment, RandomError};
use bitflags::bitflags;
use thiserror::Error;
use zeroize::Zeroize;

use crate::ids::{ClientId, KeyMark, RegionId};

bitflags! {
    /// What a token allows.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct Rights: u32 {
        /// Map to read.
        const READ = 0x1;
        /// Map to write, and to change words atomically.
        const WRITE = 0x2;
        /// Make and remove pieces, fence clients, set epochs.
        const ADMIN = 0x4;
    }
}

/// What a token says. A token of region 0 is for every region.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Claims {
    /// The region.
    pub region: RegionId,
    /// The client that may use it.
    pub client: ClientId,
    /// Until when, in milliseconds since 1970.
    pub expires_ms: u64,
    /// The generation of the region's tokens: a daemon refuses older ones.
    pub generation: u64,
    /// What is allowed.
    pub rights: Rights,
}

impl Claims {
    /// Length in bytes.
    pub const LEN: usize = 40;

    /// The claims as bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..8].copy_from_slice(&self.region.0.to_le_bytes());
        out[8..16].copy_from_slice(&self.client.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.expires_ms.to_le_bytes());
        out[24..32].copy_from_slice(&self.generation.to_le_bytes());
        out[32..36].copy_from_slice(&self.rights.bits().to_le_bytes());
        out
    }

    /// Reads claims; `None` for other lengths, rights that this version does not know, or bytes that must be zero.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let number = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        let rights = u32::from_le_bytes(bytes[32..36].try_into().ok()?);
        if bytes[36..] != [0; 4] {
            return None;
        }
        Some(Self {
            region: RegionId(number(0)?),
            client: ClientId(number(8)?),
            expires_ms: number(16)?,
            generation: number(24)?,
            rights: Rights::from_bits(rights)?,
        })
    }
}

/// The secret of a store, which its daemons and managers have. Does not print.
#[derive(Clone)]
pub struct StoreKey([u8; KEY_LEN]);

impl StoreKey {
    /// A new key.
    ///
    /// # Errors
    /// The host has no random numbers.
    pub fn draw(environment: &Environment) -> Result<Self, RandomError> {
        let mut bytes = [0; KEY_LEN];
        environment.random.fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Reads the key of a file: 64 hex digits that only the file's owner may read.
    ///
    /// # Errors
    /// The file cannot be read, others may read it, or it holds no key.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let failed = |source| KeyError::File { path: path.into(), source };
        let mode = std::fs::metadata(path).map_err(failed)?.mode();
        if mode & 0o077 != 0 {
            return Err(KeyError::Open(path.into()));
        }
        let mut text = std::fs::read_to_string(path).map_err(failed)?;
        let bytes = unhex(text.trim()).and_then(|bytes| <[u8; KEY_LEN]>::try_from(bytes).ok());
        text.zeroize();
        bytes.map(Self).ok_or_else(|| KeyError::Garbled(path.into()))
    }

    /// Reads the key of a file, which is made with a new key where it is missing.
    ///
    /// # Errors
    /// As [`StoreKey::read`]; the file cannot be made, or the host has no random numbers.
    pub fn read_or_make(path: &Path, environment: &Environment) -> Result<Self, KeyError> {
        use std::io::Write as _;
        let failed = |source| KeyError::File { path: path.into(), source };
        if path.exists() {
            return Self::read(path);
        }
        // Written beside its name and then linked: nobody reads half a key, and one of two makers wins.
        let key = Self::draw(environment).map_err(|_| KeyError::Random)?;
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(name);
        let mut file = basics::create_anew(&beside).map_err(failed)?;
        file.write_all(hex(&key.0).as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        let linked = std::fs::hard_link(&beside, path);
        std::fs::remove_file(&beside).map_err(failed)?;
        match linked {
            Ok(()) => Ok(key),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::read(path),
            Err(error) => Err(failed(error)),
        }
    }

    /// What metadata may know of the key.
    pub fn mark(&self) -> KeyMark {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let mark = hmac::sign(&key, MARK_LABEL);
        let first = mark.as_ref().first_chunk().expect("HMAC-SHA256 has 32 bytes");
        KeyMark(u64::from_le_bytes(*first))
    }

    /// Signs claims.
    pub fn issue(&self, claims: Claims) -> Token {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let mut signed = hmac::Context::with_key(&key);
        signed.update(LABEL);
        signed.update(&claims.emit());
        let mac = signed.sign();
        let mac = mac.as_ref().try_into().expect("HMAC-SHA256 has 32 bytes");
        Token { claims, mac }
    }
}

impl Drop for StoreKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreKey(..)")
    }
}

/// Signed claims. Whoever has the text has the rights; `Debug` does not print the secret part.
#[derive(Clone)]
pub struct Token {
    claims: Claims,
    mac: [u8; MAC_LEN],
}

impl Token {
    /// What it says.
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// The proof that this token's holder sent `parts`, or that a daemon that knows the token's MAC answered them.
    pub(crate) fn prove(&self, parts: &[&[u8]]) -> [u8; MAC_LEN] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.mac);
        let mut signed = hmac::Context::with_key(&key);
        parts.iter().for_each(|part| signed.update(part));
        signed.sign().as_ref().try_into().expect("HMAC-SHA256 has 32 bytes")
    }

    /// Whether `proof` is [`Token::prove`] of the parts, in constant time.
    pub(crate) fn is_proven(&self, parts: &[&[u8]], proof: &[u8]) -> bool {
        constant_time::verify_slices_are_equal(&self.prove(parts), proof).is_ok()
    }

    /// The secret text, to be given to the client that is meant.
    pub fn expose(&self) -> String {
        let mut bytes = self.claims.emit().to_vec();
        bytes.extend(self.mac);
        format!("{PREFIX}{}", hex(&bytes))
    }
}

impl FromStr for Token {
    type Err = TokenTextError;

    fn from_str(text: &str) -> Result<Self, TokenTextError> {
        let digits = text.trim().strip_prefix(PREFIX).ok_or(TokenTextError)?;
        let bytes = unhex(digits).ok_or(TokenTextError)?;
        let (claims, mac) = bytes.split_at_checked(Claims::LEN).ok_or(TokenTextError)?;
        let claims = Claims::parse(claims).ok_or(TokenTextError)?;
        Ok(Self { claims, mac: mac.try_into().map_err(|_| TokenTextError)? })
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.mac.zeroize();
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("claims", &self.claims).finish_non_exhaustive()
    }
}

/// A text that is no token.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("this is no token of a store: one begins with lfst1- and has 144 hex digits")]
pub struct TokenTextError;

/// Why a store's key is not there.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file system refused.
    #[error("the store's key {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others may read it.
    #[error("others may read the store's key {}: chmod 600 it", .0.display())]
    Open(PathBuf),
    /// It is no key.
    #[error("{} holds no key of a store: a key is 64 hex digits", .0.display())]
    Garbled(PathBuf),
    /// The host has no random numbers.
    #[error("the host has no random numbers for a key")]
    Random,
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

/// Length of a MAC in bytes.
pub(crate) const MAC_LEN: usize = 32;
const KEY_LEN: usize = 32;
const LABEL: &[u8] = b"landfast store token v1";
const MARK_LABEL: &[u8] = b"landfast store key v1";
const PREFIX: &str = "lfst1-";

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        Claims {
            region: RegionId(7),
            client: ClientId(9),
            expires_ms: 1_800_000_000_000,
            generation: 3,
            rights: Rights::READ,
        }
    }

    #[test]
    fn a_token_survives_its_text_and_no_other_text_is_one() {
        let key = StoreKey([5; KEY_LEN]);
        let token = key.issue(claims());
        let read: Token = token.expose().parse().unwrap();
        assert_eq!((read.claims, read.mac), (token.claims, token.mac));
        for wrong in ["", "lfst1-", "lfst1-zz", &token.expose()[1..], &token.expose()[..100]] {
            assert!(wrong.parse::<Token>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_changed_claim_or_another_key_gives_another_proof() {
        let key = StoreKey([5; KEY_LEN]);
        let proof = key.issue(claims()).prove(&[b"message"]);
        let more = Claims { rights: Rights::READ | Rights::WRITE, ..claims() };
        assert!(key.issue(claims()).is_proven(&[b"mess", b"age"], &proof));
        assert!(!key.issue(more).is_proven(&[b"message"], &proof));
        assert!(!StoreKey([6; KEY_LEN]).issue(claims()).is_proven(&[b"message"], &proof));
        assert!(!key.issue(claims()).is_proven(&[b"massage"], &proof));
    }

    #[test]
    fn a_key_file_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let key = StoreKey::read_or_make(&path, &Environment::host()).unwrap();
        assert_eq!(StoreKey::read_or_make(&path, &Environment::host()).unwrap().0, key.0);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(StoreKey::read(&path), Err(KeyError::Open(_))));
    }
}
