//! The client's side of an authentication.
//!
//! ```text
//!           step(none)        step(challenge)           step(final token)
//!  +-------+  Send   +------+  Send, key known +-------+  Done
//!  | Fresh |-------->| Sent |----------------->| Waits |-------> server's MIC was right
//!  +-------+         +------+                  +-------+
//! ```
//!
//! Spec: MS-SMB2 §3.2.4.2.3, §3.2.5.3; MS-NLMP §3.1.5; RFC 4178.

use std::fmt;

use aws_lc_rs::constant_time;
use thiserror::Error;

use super::ntlm::{ClientFreshness, ExportedKey, NtlmClient, mic_token};
use super::spnego::{Mechanism, NTLM_LIST, NegState, NegTokenResp, first_token};
use super::{NtHash, TOKEN_MAX};
use crate::crypto::SessionKey;

/// One authentication, fed with the tokens of SESSION_SETUP responses.
pub trait Initiator: fmt::Debug + Send {
    /// Takes the server's token (none at first) and says what to send.
    ///
    /// # Errors
    /// The server's token is malformed, or it does not prove that it knows us.
    fn step(&mut self, token: Option<&[u8]>) -> Result<Initiate, InitiateError>;

    /// The session key, once the last token to the server was made.
    fn session_key(&self) -> Option<SessionKey>;
}

/// What a step led to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Initiate {
    /// Send this token in a SESSION_SETUP request.
    Send(Vec<u8>),
    /// Nothing more to send: the server has proved itself too.
    Done,
}

/// NTLM inside SPNEGO.
#[derive(Debug)]
pub struct NtlmInitiator {
    ntlm: NtlmClient,
    state: State,
    key: Option<ExportedKey>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Fresh,
    Sent,
    Waits,
    Done,
}

impl NtlmInitiator {
    /// Will prove knowledge of a password.
    ///
    /// `target` is the server's name as the user gave it. `fresh` must not have been given to another.
    ///
    /// # Errors
    /// A name is longer than any name can be.
    pub fn with_password(
        user: &str,
        domain: &str,
        password: &str,
        target: &str,
        fresh: ClientFreshness,
    ) -> Result<Self, InitiateError> {
        Self::with_hash(user, domain, NtHash::of_password(password), target, fresh)
    }

    /// Will prove knowledge of an NT hash.
    ///
    /// # Errors
    /// As [`NtlmInitiator::with_password`].
    pub fn with_hash(
        user: &str,
        domain: &str,
        hash: NtHash,
        target: &str,
        fresh: ClientFreshness,
    ) -> Result<Self, InitiateError> {
        let ntlm = NtlmClient::new(user, domain, hash, target, fresh)?;
        Ok(Self { ntlm, state: State::Fresh, key: None })
    }

    fn answer(&mut self, token: &[u8]) -> Result<Vec<u8>, InitiateError> {
        let resp = parse(token)?;
        // RFC 4178 §4.2.2: a server that wants the list proven says so; it is proven in any case.
        let goes_on = [None, Some(NegState::INCOMPLETE), Some(NegState::REQUEST_MIC)];
        if !goes_on.contains(&resp.state) || resp.choice.is_some_and(|one| one != Mechanism::Ntlm) {
            return Err(InitiateError::PeerToken);
        }
        let challenge = resp.token.ok_or(InitiateError::PeerToken)?;
        let (message, key) = self.ntlm.authenticate(&challenge)?;
        let mic = mic_token(&key, false, NTLM_LIST).to_vec();
        self.key = Some(key);
        let answer = NegTokenResp {
            token: Some(message),
            mech_list_mic: Some(mic),
            ..NegTokenResp::default()
        };
        Ok(answer.emit())
    }

    fn verify(&self, token: &[u8]) -> Result<(), InitiateError> {
        let resp = parse(token)?;
        if resp.state != Some(NegState::COMPLETED) {
            return Err(InitiateError::PeerUnproven);
        }
        // RFC 4178 §5: we sent a MIC, so the server owes us one.
        let mic = resp.mech_list_mic.ok_or(InitiateError::PeerUnproven)?;
        let key = self.key.as_ref().ok_or(InitiateError::OutOfSequence)?;
        constant_time::verify_slices_are_equal(&mic_token(key, true, NTLM_LIST), &mic)
            .map_err(|_| InitiateError::PeerUnproven)
    }
}

impl Initiator for NtlmInitiator {
    fn step(&mut self, token: Option<&[u8]>) -> Result<Initiate, InitiateError> {
        let token = token.unwrap_or_default();
        if token.len() > TOKEN_MAX {
            return Err(InitiateError::PeerTokenLength(token.len()));
        }
        // Whatever fails is not tried again: a proof is made once.
        match std::mem::replace(&mut self.state, State::Done) {
            State::Fresh => {
                self.state = State::Sent;
                Ok(Initiate::Send(first_token(&NtlmClient::negotiate())))
            }
            State::Sent => {
                let answer = self.answer(token)?;
                self.state = State::Waits;
                Ok(Initiate::Send(answer))
            }
            State::Waits => self.verify(token).map(|()| Initiate::Done),
            State::Done => Err(InitiateError::OutOfSequence),
        }
    }

    fn session_key(&self) -> Option<SessionKey> {
        self.key.as_ref().map(|key| SessionKey::new(key.as_bytes()))
    }
}

fn parse(token: &[u8]) -> Result<NegTokenResp, InitiateError> {
    NegTokenResp::parse(token).map_err(|_| InitiateError::PeerToken)
}

/// Why an authentication failed before the server said so.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum InitiateError {
    /// The server's token is malformed.
    #[error("the server's authentication token is malformed")]
    PeerToken,
    /// The server's token is too long.
    #[error("the server's authentication token has {0} bytes")]
    PeerTokenLength(usize),
    /// The server speaks no NTLM that can be trusted.
    #[error("the server does not offer NTLMv2 session security")]
    PeerWeak,
    /// The server did not prove that it knows our password.
    #[error("the server did not prove that it knows the user")]
    PeerUnproven,
    /// A name cannot be used.
    #[error("the name of the user, of the domain or of the server is too long for NTLM")]
    ConfigCredentials,
    /// A step after the last.
    #[error("the authentication has already ended")]
    OutOfSequence,
}
