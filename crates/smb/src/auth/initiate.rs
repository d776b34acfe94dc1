//! The client's side of an authentication, through the `sspi` crate.
//!
//! ```text
//!           step(none)        step(challenge)           step(final token)
//!  +-------+  Send   +------+  Send, key known +-------+  Done
//!  | fresh |-------->| sent |----------------->| waits |-------> server's MIC was right
//!  +-------+         +------+                  +-------+
//! ```
//!
//! `sspi` brings its own clock and random numbers; nothing else of it is visible here. A
//! server's token is read by our own parsers first, so that nothing malformed reaches it.
//!
//! Spec: MS-SMB2 §3.2.4.2.3, §3.2.5.3; MS-NLMP §3.1.5; RFC 4178.

use std::fmt;

use sspi::ntlm::NtlmConfig;
use sspi::{
    AuthIdentityBuffers, BufferType, ClientRequestFlags, CredentialsBuffers, DataRepresentation,
    Negotiate, NegotiateConfig, NtlmHash, SecurityBuffer, SecurityStatus, Sspi, SspiImpl,
};
use thiserror::Error;
use zeroize::Zeroizing;

use super::spnego::NegTokenResp;
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
pub struct NtlmInitiator {
    negotiate: Negotiate,
    credentials: Option<CredentialsBuffers>,
    target: String,
    done: bool,
}

impl NtlmInitiator {
    /// Will prove knowledge of a password.
    ///
    /// `target` is the server's name as the user gave it.
    ///
    /// # Errors
    /// `sspi` does not start.
    pub fn with_password(
        user: &str,
        domain: &str,
        password: &str,
        target: &str,
    ) -> Result<Self, InitiateError> {
        Self::new(AuthIdentityBuffers::from_utf8(user, domain, password), target)
    }

    /// Will prove knowledge of an NT hash.
    ///
    /// # Errors
    /// `sspi` does not start.
    pub fn with_hash(
        user: &str,
        domain: &str,
        hash: &NtHash,
        target: &str,
    ) -> Result<Self, InitiateError> {
        let digits: Zeroizing<String> =
            Zeroizing::new(hash.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect());
        let hash: NtlmHash = digits.parse().map_err(|_| InitiateError::Start)?;
        Self::new(AuthIdentityBuffers::from_utf8_with_hash(user, domain, &hash), target)
    }

    fn new(identity: AuthIdentityBuffers, target: &str) -> Result<Self, InitiateError> {
        let workstation = "LANDFAST";
        let config = NegotiateConfig::new(
            Box::new(NtlmConfig::new(workstation.to_owned())),
            Some("ntlm,!kerberos,!pku2u".to_owned()),
            workstation.to_owned(),
        );
        let negotiate = Negotiate::new_client(config).map_err(|_| InitiateError::Start)?;
        let credentials = Some(CredentialsBuffers::AuthIdentity(identity));
        Ok(Self { negotiate, credentials, target: format!("cifs/{target}"), done: false })
    }

    fn advance(&mut self, token: Vec<u8>) -> Result<(SecurityStatus, Vec<u8>), InitiateError> {
        let mut input = [SecurityBuffer::new(token, BufferType::Token)];
        let mut output = [SecurityBuffer::new(Vec::new(), BufferType::Token)];
        let mut builder = self
            .negotiate
            .initialize_security_context()
            .with_credentials_handle(&mut self.credentials)
            // Confidentiality makes sspi offer 128-bit keys and a key exchange.
            .with_context_requirements(
                ClientRequestFlags::CONFIDENTIALITY | ClientRequestFlags::INTEGRITY,
            )
            .with_target_data_representation(DataRepresentation::Native)
            .with_target_name(&self.target)
            .with_input(&mut input)
            .with_output(&mut output);
        let result = self
            .negotiate
            .initialize_security_context_impl(&mut builder)
            .and_then(|mut steps| steps.resolve_to_result())
            .map_err(|error| InitiateError::from_sspi(&error))?;
        let [output] = output;
        Ok((result.status, output.buffer))
    }
}

impl Initiator for NtlmInitiator {
    fn step(&mut self, token: Option<&[u8]>) -> Result<Initiate, InitiateError> {
        if self.done {
            return Err(InitiateError::OutOfSequence);
        }
        let token = token.unwrap_or_default();
        if token.len() > TOKEN_MAX {
            return Err(InitiateError::PeerTokenLength(token.len()));
        }
        if !token.is_empty() {
            check_server_token(token)?;
        }
        let (status, output) = self.advance(token.to_vec())?;
        if !output.is_empty() {
            return Ok(Initiate::Send(output));
        }
        match status {
            SecurityStatus::Ok => {
                self.done = true;
                Ok(Initiate::Done)
            }
            // RFC 4178 §5: we sent a MIC, so the server owes us one.
            _ => Err(InitiateError::PeerUnproven),
        }
    }

    fn session_key(&self) -> Option<SessionKey> {
        let keys = self.negotiate.query_context_session_key().ok()?;
        Some(SessionKey::new(keys.session_key.as_ref()))
    }
}

impl fmt::Debug for NtlmInitiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NtlmInitiator").field("target", &self.target).finish_non_exhaustive()
    }
}

/// Lets through only what RFC 4178 allows a server to send, with a sound challenge if any.
fn check_server_token(token: &[u8]) -> Result<(), InitiateError> {
    let resp = NegTokenResp::parse(token).map_err(|_| InitiateError::PeerToken)?;
    match resp.token {
        Some(inner) => super::ntlm::check_challenge(&inner).map_err(|_| InitiateError::PeerToken),
        None => Ok(()),
    }
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
    /// The server did not prove that it knows our password.
    #[error("the server did not prove that it knows the user")]
    PeerUnproven,
    /// User name or password cannot be used.
    #[error("the user name or password cannot be used for NTLM")]
    ConfigCredentials,
    /// A step after the last.
    #[error("the authentication has already ended")]
    OutOfSequence,
    /// The library below did not start.
    #[error("the authentication library did not start")]
    Start,
}

impl InitiateError {
    fn from_sspi(error: &sspi::Error) -> Self {
        tracing::debug!(%error, "authentication failed on the client's side");
        match error.error_type {
            sspi::ErrorKind::MessageAltered => Self::PeerUnproven,
            sspi::ErrorKind::InvalidParameter | sspi::ErrorKind::NoCredentials => {
                Self::ConfigCredentials
            }
            _ => Self::PeerToken,
        }
    }
}
