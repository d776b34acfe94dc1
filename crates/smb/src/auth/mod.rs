//! Authentication inside SESSION_SETUP, without sockets, clock or randomness.
//!
//! ```text
//!            client                                   server
//!            Initiator                                Acceptor
//!  [hint from NEGOTIATE]  <------------------------   NEGOTIATE_HINT
//!  step(none) -> token    -- SESSION_SETUP -------->  step(token) -> Continue(token)
//!  step(token) -> token   <------------------------
//!                         -- SESSION_SETUP -------->  step(token) -> Done | Denied
//!  step(token) -> Done    <------------------------
//! ```
//!
//! The acceptor takes SPNEGO or nothing around NTLMv2 or Kerberos, see [`spnego`], [`ntlm`] and [`kerberos`]; the
//! initiator speaks NTLMv2 in SPNEGO. In the tests both meet the `sspi` crate too, so that each is checked against a
//! foreign implementation.
//!
//! Why not `sspi` itself: it brings 89 packages, for what an initiator on the messages of the acceptor does in 300 lines. Its NTLM
//! acceptor (0.23.1) never compares the client's proof of the password: it relies on the message integrity code alone, whose presence
//! the client decides, so that an AUTHENTICATE without one passes with any password; and its SPNEGO acceptor refuses the clients that
//! send no mechListMIC, impacket among them.
//!
//! Spec: MS-SMB2 §3.3.5.5, MS-NLMP, MS-SPNG, RFC 4178.

mod accept;
#[cfg(test)]
mod conversation;
mod credentials;
mod der;
mod initiate;
pub mod kerberos;
mod legacy;
pub mod ntlm;
pub mod spnego;

pub use accept::{Accept, Accepted, Acceptor, DenyReason, Identity, IdentityKind};
pub use credentials::{Credentials, NtHash, UserList, UserStore};
pub use initiate::{Initiate, InitiateError, Initiator, NtlmInitiator};
pub use ntlm::ClientFreshness;
pub use spnego::{KERBEROS_HINT, NEGOTIATE_HINT, SpnegoAcceptor};

/// Longest token we look at, in bytes.
///
/// NTLM needs under 2 KiB with the longest names. A ticket of a user in a thousand groups needs what
/// Windows allows at most.
pub const TOKEN_MAX: usize = 48_000;
