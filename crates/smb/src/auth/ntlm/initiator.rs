//! The client's half of an NTLM exchange.
//!
//! ```text
//!  blob   01 01 0..0 | time (8) | client's challenge (8) | 0 (4) | pairs | 0 (4)
//!  pairs  the server's, MIC announced, no channel bindings, the name the user calls it by
//! ```
//!
//! Spec: MS-NLMP §3.1.5.1, §2.2.2.7.

use std::fmt;

use zeroize::Zeroizing;

use super::authenticate::Authenticate;
use super::av_pair::{AvId, AvPairs, FLAG_MIC, put};
use super::keys::{ExportedKey, proof, response_key};
use super::{AuthenticateRepr, ChallengeView, NegotiateRepr, NtlmFlags, utf16};
use crate::auth::{InitiateError, NtHash};

/// What must be new in every exchange; the caller owns clock and randomness.
#[derive(Clone)]
pub struct ClientFreshness {
    challenge: [u8; 8],
    session_key: Zeroizing<[u8; 16]>,
    now_filetime: u64,
}

impl ClientFreshness {
    /// `random` is unpredictable: the client's challenge, then the session key that the server will be told. Now, in
    /// 100 ns since 1601, is for servers that do not say their time.
    pub fn new(random: &[u8; 24], now_filetime: u64) -> Self {
        let (challenge, key) = random.split_first_chunk().expect("24 bytes");
        let mut session_key = Zeroizing::new([0; 16]);
        session_key.copy_from_slice(key);
        Self { challenge: *challenge, session_key, now_filetime }
    }
}

impl fmt::Debug for ClientFreshness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientFreshness(..)")
    }
}

/// One exchange.
pub(in crate::auth) struct NtlmClient {
    user: String,
    domain: String,
    hash: NtHash,
    /// `cifs/` and the server's name.
    target: String,
    fresh: ClientFreshness,
}

impl NtlmClient {
    /// Will prove knowledge of a user's NT hash to the server that the user calls `host`.
    pub(in crate::auth) fn new(
        user: &str,
        domain: &str,
        hash: NtHash,
        host: &str,
        fresh: ClientFreshness,
    ) -> Result<Self, InitiateError> {
        if [user, domain, host].iter().any(|name| name.encode_utf16().count() > NAME_MAX) {
            return Err(InitiateError::ConfigCredentials);
        }
        let target = format!("cifs/{host}");
        Ok(Self { user: user.to_owned(), domain: domain.to_owned(), hash, target, fresh })
    }

    /// The first message.
    pub(in crate::auth) fn negotiate() -> Vec<u8> {
        NegotiateRepr { flags: NtlmFlags::OFFERED }.emit()
    }

    /// The answer to a challenge, and the key that follows from it.
    pub(in crate::auth) fn authenticate(
        &self,
        challenge: &[u8],
    ) -> Result<(Vec<u8>, ExportedKey), InitiateError> {
        let view = ChallengeView::parse(challenge).map_err(|_| InitiateError::PeerToken)?;
        // Without them the names, the MIC and the key would be other ones: no server since Windows 2000 lacks them.
        let needed = NtlmFlags::UNICODE | NtlmFlags::EXTENDED_SESSIONSECURITY;
        if !view.flags.contains(needed) {
            return Err(InitiateError::PeerWeak);
        }
        let flags = view.flags & NtlmFlags::OFFERED;
        let response_key = response_key(self.hash.as_bytes(), &self.user, &self.domain);
        let blob = self.blob(view.info)?;
        let proof = proof(&response_key, view.challenge, &blob);
        let chosen = &self.fresh.session_key;
        let (key, encrypted_key) = ExportedKey::choose(&response_key, &proof, chosen, flags);
        let (user, domain) = (utf16(&self.user, NAME_MAX), utf16(&self.domain, NAME_MAX));
        let mut message = Authenticate {
            flags,
            domain: &domain,
            user: &user,
            proof: &proof,
            blob: &blob,
            encrypted_key: &encrypted_key,
        }
        .emit();
        let mic = key.mic(&[&Self::negotiate(), challenge, &message]);
        message[AuthenticateRepr::MIC].copy_from_slice(&mic);
        Ok((message, key))
    }

    fn blob(&self, info: AvPairs<'_>) -> Result<Vec<u8>, InitiateError> {
        let time = info.find(AvId::TIMESTAMP).and_then(|time| time.try_into().ok());
        let time = time.unwrap_or_else(|| self.fresh.now_filetime.to_le_bytes());
        let mut blob = vec![1, 1, 0, 0, 0, 0, 0, 0];
        blob.extend(time);
        blob.extend(self.fresh.challenge);
        blob.extend([0; 4]);
        let ours = [AvId::FLAGS, AvId::TARGET_NAME, AvId::CHANNEL_BINDINGS];
        for (id, value) in info.iter().filter(|(id, _)| !ours.contains(id)) {
            put(&mut blob, id, value);
        }
        let said = info.find(AvId::FLAGS).and_then(|flags| flags.try_into().ok());
        let flags = u32::from_le_bytes(said.unwrap_or_default()) | u32::from(FLAG_MIC);
        put(&mut blob, AvId::FLAGS, &flags.to_le_bytes());
        put(&mut blob, AvId::CHANNEL_BINDINGS, &[0; 16]);
        put(&mut blob, AvId::TARGET_NAME, &utf16(&self.target, usize::MAX));
        put(&mut blob, AvId::END, &[]);
        blob.extend([0; 4]);
        // With the proof it is a field of the message.
        if blob.len() > usize::from(u16::MAX) - 16 {
            return Err(InitiateError::PeerToken);
        }
        Ok(blob)
    }
}

impl fmt::Debug for NtlmClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NtlmClient").field("target", &self.target).finish_non_exhaustive()
    }
}

/// UTF-16 units of a name; Windows takes 256 of a user, 255 of a host.
const NAME_MAX: usize = 512;
