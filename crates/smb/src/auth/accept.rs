//! The server's side of an authentication: the trait and its outcomes.
//!
//! ```text
//!             step                 step
//!  +--------+ Continue  +--------+ Done(Accepted)
//!  | fresh  |---------->| waits  |----------------> session with keys
//!  +--------+           +--------+
//!       |                   |  Denied(reason), also for every step after the last
//!       +-------------------+----------------------> status on the wire
//! ```

use std::fmt;

use super::kerberos::TicketFault;
use crate::FileTime;
use crate::crypto::SessionKey;
use crate::status::NtStatus;

/// One authentication, fed with the tokens of SESSION_SETUP requests.
pub trait Acceptor: fmt::Debug + Send {
    /// Takes the client's next token. After `Done` or `Denied` every further step is denied.
    fn step(&mut self, token: &[u8]) -> Accept;
}

/// What a step led to.
#[derive(Debug)]
pub enum Accept {
    /// Send this token with `STATUS_MORE_PROCESSING_REQUIRED`.
    Continue(Vec<u8>),
    /// The client is who it says.
    Done(Accepted),
    /// It is not, or it broke the protocol.
    Denied(DenyReason),
}

/// An authentication that succeeded.
#[derive(Debug)]
pub struct Accepted {
    /// Token for the final response; may be empty.
    pub token: Vec<u8>,
    /// Seed of the session's keys; none for guests and anonymous users, who cannot sign.
    pub session_key: Option<SessionKey>,
    /// The user that authenticated.
    pub identity: Identity,
    /// When it has to prove that again: a ticket's end. Passwords hold for ever.
    pub expires: Option<FileTime>,
}

/// The identity that a logon proved.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity {
    /// User name as the client wrote it; empty when anonymous.
    pub user: String,
    /// Domain as the client wrote it.
    pub domain: String,
    /// How far to believe it.
    pub kind: IdentityKind,
}

/// How a session came to its identity; decides the flags of the SESSION_SETUP response.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum IdentityKind {
    /// Proved knowledge of the password, or showed a ticket.
    User,
    /// Proved nothing and was let in as guest: `SMB2_SESSION_FLAG_IS_GUEST`.
    Guest,
    /// Claimed nothing: `SMB2_SESSION_FLAG_IS_NULL`.
    Anonymous,
}

/// Why a client was not let in.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DenyReason {
    /// Unknown user or wrong password: the same for the client, in status and in time.
    #[error("unknown user or wrong password")]
    PeerCredentials,
    /// The proof was right but a message was changed on its way.
    #[error("an authentication message was changed on its way")]
    PeerMessageAltered,
    /// The token cannot be read.
    #[error("the authentication token is malformed")]
    PeerToken,
    /// The token is longer than [`super::TOKEN_MAX`].
    #[error("the authentication token has {0} bytes")]
    PeerTokenLength(usize),
    /// The client offers no mechanism that we know.
    #[error("the client offers no mechanism that we know")]
    PeerMechanisms,
    /// The client answers with LM or NTLMv1, which are broken.
    #[error("the client insists on NTLMv1")]
    PeerNtlmV1,
    /// The client has already been answered.
    #[error("a token came after the authentication had ended")]
    PeerOutOfSequence,
    /// Too many wrong passwords came before: this one was not looked at.
    #[error("too many failed logons of this user from there, or from there at all")]
    PeerTooManyFailures,
    /// A Kerberos ticket was not taken.
    #[error("{0}")]
    PeerTicket(TicketFault),
    /// The configuration lets no anonymous users in.
    #[error("anonymous logons are not allowed")]
    ConfigAnonymous,
}

impl From<TicketFault> for DenyReason {
    fn from(fault: TicketFault) -> Self {
        Self::PeerTicket(fault)
    }
}

impl DenyReason {
    /// The status of the SESSION_SETUP response.
    pub const fn status(self) -> NtStatus {
        match self {
            // MS-SMB2 §3.3.5.5.3: the status of the GSS layer. Windows answers all failed proofs
            // alike, so that nobody learns which users exist.
            Self::PeerCredentials | Self::PeerNtlmV1 => NtStatus::LOGON_FAILURE,
            Self::ConfigAnonymous => NtStatus::ACCESS_DENIED,
            Self::PeerTicket(fault) => match fault {
                TicketFault::PeerMalformed => NtStatus::INVALID_PARAMETER,
                TicketFault::PeerForm => NtStatus::NOT_SUPPORTED,
                // What Windows makes of KRB_AP_ERR_SKEW and KRB_AP_ERR_TKT_NYV: the user is to look at
                // the clock and not to doubt the password.
                TicketFault::PeerClock(_) | TicketFault::PeerNotYet => {
                    NtStatus::TIME_DIFFERENCE_AT_DC
                }
                TicketFault::PeerTooMany => NtStatus::INSUFFICIENT_RESOURCES,
                TicketFault::PeerService
                | TicketFault::PeerEncryption(_)
                | TicketFault::ConfigKey { .. }
                | TicketFault::PeerSeal
                | TicketFault::PeerAuthenticator
                | TicketFault::PeerExpired(_)
                | TicketFault::PeerReplay
                | TicketFault::PeerRestriction(_)
                | TicketFault::PeerRealm
                | TicketFault::PeerUser => NtStatus::LOGON_FAILURE,
            },
            // Tells an honest user to wait rather than to doubt the password.
            Self::PeerTooManyFailures => NtStatus::ACCOUNT_LOCKED_OUT,
            Self::PeerMessageAltered
            | Self::PeerToken
            | Self::PeerTokenLength(_)
            | Self::PeerMechanisms
            | Self::PeerOutOfSequence => NtStatus::INVALID_PARAMETER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_status() {
        for (reason, status) in [
            (DenyReason::PeerCredentials, NtStatus::LOGON_FAILURE),
            (DenyReason::PeerNtlmV1, NtStatus::LOGON_FAILURE),
            (DenyReason::ConfigAnonymous, NtStatus::ACCESS_DENIED),
            (DenyReason::PeerTooManyFailures, NtStatus::ACCOUNT_LOCKED_OUT),
            (DenyReason::PeerMessageAltered, NtStatus::INVALID_PARAMETER),
            (DenyReason::PeerToken, NtStatus::INVALID_PARAMETER),
            (DenyReason::PeerTokenLength(1), NtStatus::INVALID_PARAMETER),
            (DenyReason::PeerMechanisms, NtStatus::INVALID_PARAMETER),
            (DenyReason::PeerOutOfSequence, NtStatus::INVALID_PARAMETER),
            (DenyReason::PeerTicket(TicketFault::PeerMalformed), NtStatus::INVALID_PARAMETER),
            (DenyReason::PeerTicket(TicketFault::PeerForm), NtStatus::NOT_SUPPORTED),
            (DenyReason::PeerTicket(TicketFault::PeerClock(301)), NtStatus::TIME_DIFFERENCE_AT_DC),
            (DenyReason::PeerTicket(TicketFault::PeerNotYet), NtStatus::TIME_DIFFERENCE_AT_DC),
            (DenyReason::PeerTicket(TicketFault::PeerSeal), NtStatus::LOGON_FAILURE),
            (DenyReason::PeerTicket(TicketFault::PeerExpired(1)), NtStatus::LOGON_FAILURE),
            (DenyReason::PeerTicket(TicketFault::PeerReplay), NtStatus::LOGON_FAILURE),
            (DenyReason::PeerTicket(TicketFault::PeerTooMany), NtStatus::INSUFFICIENT_RESOURCES),
        ] {
            assert_eq!(reason.status(), status);
        }
    }
}
