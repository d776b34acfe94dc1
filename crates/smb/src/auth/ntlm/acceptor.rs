//! The server's half of an NTLM exchange.
//!
//! ```text
//!            NEGOTIATE                      AUTHENTICATE
//!  +-------+ challenge sent  +------------+ proof, MIC and policy  +------+
//!  | Fresh |---------------->| Challenged |----------------------->| Done |
//!  +-------+                 +------------+                        +------+
//!       \____________________________\___ anything else: denied ______^
//! ```
//!
//! An unknown user takes the same steps as a known one, with a hash nobody knows, and is denied
//! at the same place with the same reason.
//!
//! Spec: MS-NLMP §3.2.5.1.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::constant_time;

use super::keys::{ExportedKey, proof, response_key};
use super::{AuthenticateRepr, ChallengeRepr, Freshness, NegotiateRepr, NtlmError, NtlmFlags};
use crate::auth::{
    Accept, Accepted, Acceptor, DenyReason, Identity, IdentityKind, NtHash, UserStore,
};
use crate::crypto::SessionKey;

/// What all authentications of a server have in common.
#[derive(Clone, Debug)]
pub struct AcceptorConfig {
    /// Our NetBIOS name.
    pub computer: String,
    /// Our DNS name.
    pub dns: String,
    /// Let in who claims no identity. Such sessions can neither sign nor encrypt.
    pub allow_anonymous: bool,
    /// Let in unknown users as guests, whatever their proof. They can neither sign nor encrypt.
    pub allow_guests: bool,
}

impl AcceptorConfig {
    /// A server of that name that admits no user without proof.
    pub fn new(computer: &str) -> Self {
        Self {
            computer: computer.to_uppercase(),
            dns: computer.to_lowercase(),
            allow_anonymous: false,
            allow_guests: false,
        }
    }
}

/// One exchange.
pub struct NtlmAcceptor {
    config: Arc<AcceptorConfig>,
    users: Arc<dyn UserStore>,
    fresh: Freshness,
    state: State,
    key: Option<ExportedKey>,
}

enum State {
    Fresh,
    Challenged { negotiate: Vec<u8>, challenge: Vec<u8>, flags: NtlmFlags },
    Done,
}

impl NtlmAcceptor {
    /// Starts an exchange. `fresh` must not have been given to another.
    pub fn new(config: Arc<AcceptorConfig>, users: Arc<dyn UserStore>, fresh: Freshness) -> Self {
        Self { config, users, fresh, state: State::Fresh, key: None }
    }

    /// The exported key of an exchange that is done, for SPNEGO's mechListMIC.
    pub(in crate::auth) fn exported_key(&self) -> Option<&ExportedKey> {
        self.key.as_ref()
    }

    fn challenge(&mut self, token: &[u8]) -> Result<Vec<u8>, DenyReason> {
        // A longer NEGOTIATE than names can make is not worth keeping for the MIC.
        if token.len() > NEGOTIATE_MAX {
            return Err(DenyReason::PeerTokenLength(token.len()));
        }
        let offered = NegotiateRepr::parse(token)?.flags;
        let flags = (offered & NtlmFlags::GRANTABLE) | NtlmFlags::ALWAYS;
        let challenge = ChallengeRepr {
            flags,
            fresh: self.fresh,
            computer: &self.config.computer,
            dns: &self.config.dns,
        }
        .emit();
        let (negotiate, copy) = (token.to_vec(), challenge.clone());
        self.state = State::Challenged { negotiate, challenge: copy, flags };
        Ok(challenge)
    }

    fn authenticate(
        &mut self,
        token: &[u8],
        negotiate: &[u8],
        challenge: &[u8],
        granted: NtlmFlags,
    ) -> Result<Accepted, DenyReason> {
        let message = AuthenticateRepr::parse(token)?;
        let Some(response) = message.response else { return self.without_response(message) };
        let known = self.users.lookup(&message.user, &message.domain);
        let is_known = known.is_some();
        let hash = known.map_or_else(|| NtHash::new(self.decoy()), |user| user.nt_hash);
        let response_key = response_key(hash.as_bytes(), &message.user, &message.domain);
        let expected = proof(&response_key, &self.fresh.challenge, response.blob);
        let proven =
            constant_time::verify_slices_are_equal(&expected, response.proof).is_ok() && is_known;
        let flags = message.flags & granted;
        let key = ExportedKey::new(&response_key, &expected, message.encrypted_key, flags);
        let intact = match message.mic {
            Some(mic) => verify_mic(&key, negotiate, challenge, token, &mic),
            None => true,
        };
        if !proven {
            return self.unproven(message, is_known);
        }
        if !intact {
            return Err(DenyReason::PeerMessageAltered);
        }
        let session_key = Some(SessionKey::new(key.as_bytes()));
        self.key = Some(key);
        let identity = identity(message, IdentityKind::User);
        Ok(Accepted { token: Vec::new(), session_key, identity, expires: None })
    }

    // Without a name it is anonymous. With one it is no proof: Samba's programs begin so when they are not
    // to ask for a password.
    fn without_response(&self, message: AuthenticateRepr<'_>) -> Result<Accepted, DenyReason> {
        if !message.user.is_empty() {
            let is_known = self.users.lookup(&message.user, &message.domain).is_some();
            return self.unproven(message, is_known);
        }
        if !self.config.allow_anonymous {
            return Err(DenyReason::ConfigAnonymous);
        }
        Ok(keyless(identity(message, IdentityKind::Anonymous)))
    }

    fn unproven(
        &self,
        message: AuthenticateRepr<'_>,
        is_known: bool,
    ) -> Result<Accepted, DenyReason> {
        if is_known || !self.config.allow_guests {
            return Err(DenyReason::PeerCredentials);
        }
        Ok(keyless(identity(message, IdentityKind::Guest)))
    }

    /// A hash for unknown users: never accepted, only there to spend the same time.
    fn decoy(&self) -> [u8; 16] {
        let mut decoy = [0xa5; 16];
        decoy[..8].copy_from_slice(&self.fresh.challenge);
        decoy
    }
}

impl Acceptor for NtlmAcceptor {
    fn step(&mut self, token: &[u8]) -> Accept {
        if token.len() > crate::auth::TOKEN_MAX {
            self.state = State::Done;
            return Accept::Denied(DenyReason::PeerTokenLength(token.len()));
        }
        let outcome = match std::mem::replace(&mut self.state, State::Done) {
            State::Fresh => self.challenge(token).map(Accept::Continue),
            State::Challenged { negotiate, challenge, flags } => {
                self.authenticate(token, &negotiate, &challenge, flags).map(Accept::Done)
            }
            State::Done => Err(DenyReason::PeerOutOfSequence),
        };
        outcome.unwrap_or_else(Accept::Denied)
    }
}

impl fmt::Debug for NtlmAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Fresh => "NtlmAcceptor(fresh)",
            State::Challenged { .. } => "NtlmAcceptor(challenged)",
            State::Done => "NtlmAcceptor(done)",
        })
    }
}

impl From<NtlmError> for DenyReason {
    fn from(error: NtlmError) -> Self {
        match error {
            NtlmError::PeerResponse(_) => Self::PeerNtlmV1,
            NtlmError::PeerTruncated { .. }
            | NtlmError::PeerSignature
            | NtlmError::PeerType(_)
            | NtlmError::PeerField { .. }
            | NtlmError::PeerName
            | NtlmError::PeerTargetInfo(_)
            | NtlmError::PeerUnicode => Self::PeerToken,
        }
    }
}

fn identity(message: AuthenticateRepr<'_>, kind: IdentityKind) -> Identity {
    Identity { user: message.user, domain: message.domain, kind }
}

fn keyless(identity: Identity) -> Accepted {
    Accepted { token: Vec::new(), session_key: None, identity, expires: None }
}

fn verify_mic(
    key: &ExportedKey,
    negotiate: &[u8],
    challenge: &[u8],
    authenticate: &[u8],
    mic: &[u8; 16],
) -> bool {
    let range = AuthenticateRepr::MIC;
    let (before, after) = (&authenticate[..range.start], &authenticate[range.end..]);
    let expected = key.mic(&[negotiate, challenge, before, &[0; 16], after]);
    constant_time::verify_slices_are_equal(&expected, mic).is_ok()
}

/// Fixed part, version, and two names of 255 characters.
const NEGOTIATE_MAX: usize = 1100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::ntlm::{ClientFreshness, NtlmClient};
    use crate::auth::{TOKEN_MAX, UserList};

    fn acceptor() -> NtlmAcceptor {
        let fresh = Freshness { challenge: [1; 8], now_filetime: 0x01dd_0000_0000_0000 };
        NtlmAcceptor::new(
            Arc::new(AcceptorConfig::new("landfast")),
            Arc::new(UserList::new()),
            fresh,
        )
    }

    #[test]
    fn a_first_message_longer_than_names_make_it_is_refused() {
        let mut token = NtlmClient::negotiate();
        token.resize(NEGOTIATE_MAX, 0);
        assert!(matches!(acceptor().step(&token), Accept::Continue(_)));
        for len in [NEGOTIATE_MAX + 1, NEGOTIATE_MAX + 2] {
            token.resize(len, 0);
            let refused = acceptor().step(&token);
            assert!(matches!(refused, Accept::Denied(DenyReason::PeerTokenLength(_))));
        }
    }

    #[test]
    fn a_last_message_longer_than_any_is_refused_for_its_length() {
        for (len, is_too_long) in [(TOKEN_MAX, false), (TOKEN_MAX + 1, true), (TOKEN_MAX + 2, true)]
        {
            let mut acceptor = acceptor();
            let Accept::Continue(_) = acceptor.step(&NtlmClient::negotiate()) else { panic!() };
            let last = acceptor.step(&vec![0; len]);
            let refused = matches!(last, Accept::Denied(DenyReason::PeerTokenLength(_)));
            assert_eq!(refused, is_too_long, "{len}");
        }
    }

    #[test]
    fn a_client_is_granted_nothing_that_it_has_not_offered() {
        const KEY_EXCH: u32 = 0x4000_0000;
        const UNICODE: u32 = 1;
        for offered in [UNICODE, UNICODE | KEY_EXCH] {
            let mut token = NtlmClient::negotiate();
            token[12..16].copy_from_slice(&offered.to_le_bytes());
            let Accept::Continue(challenge) = acceptor().step(&token) else { panic!() };
            let flags = u32::from_le_bytes(challenge[20..24].try_into().unwrap());
            assert_eq!(flags & (UNICODE | KEY_EXCH), offered);
        }
    }

    #[test]
    fn a_client_that_was_granted_no_exchange_of_keys_does_not_choose_the_key() {
        let mut users = UserList::new();
        users.add_password("alice", "correct horse");
        let mut server = NtlmAcceptor { users: Arc::new(users), ..acceptor() };
        let mut negotiate = NtlmClient::negotiate();
        let offered = NtlmFlags::OFFERED - NtlmFlags::KEY_EXCH;
        negotiate[12..16].copy_from_slice(&offered.bits().to_le_bytes());
        let Accept::Continue(challenge) = server.step(&negotiate) else { panic!() };

        let hash = NtHash::of_password("correct horse");
        let fresh = ClientFreshness::new(&[7; 24], 0x01dd_0000_0000_0000);
        let client = NtlmClient::new("alice", "", hash, "localhost", fresh).unwrap();
        let (mut message, key) = client.authenticate(&challenge).unwrap();
        // It says that it has chosen a key nevertheless, and sends one.
        let at = u32::try_from(message.len()).unwrap();
        message[52..56].copy_from_slice(&[16, 0, 16, 0]);
        message[56..60].copy_from_slice(&at.to_le_bytes());
        let flags = u32::from_le_bytes(message[60..64].try_into().unwrap());
        let claimed = flags | NtlmFlags::KEY_EXCH.bits();
        message[60..64].copy_from_slice(&claimed.to_le_bytes());
        message.extend([9; 16]);
        message[AuthenticateRepr::MIC].fill(0);
        let mic = key.mic(&[&negotiate, &challenge, &message]);
        message[AuthenticateRepr::MIC].copy_from_slice(&mic);

        let Accept::Done(accepted) = server.step(&message) else { panic!("denied") };
        assert_eq!(accepted.session_key, Some(SessionKey::new(key.as_bytes())));
    }
}
