//! SPNEGO: which mechanism, and proof that nobody changed the list.
//!
//! ```text
//!  client                                             server
//!  60 NegTokenInit(mechs, first token)  ---------->
//!                             <----------  a1 NegTokenResp(incomplete, NTLMSSP, CHALLENGE)
//!  a1 NegTokenResp(AUTHENTICATE, MIC)   ---------->
//!                             <----------  a1 NegTokenResp(completed, MIC)
//!
//!  raw NTLMSSP messages, without any of this, work too
//! ```
//!
//! Spec: RFC 4178, MS-SPNG.

mod acceptor;
mod der;
mod token;

pub use acceptor::SpnegoAcceptor;
pub use token::{NEGOTIATE_HINT, NegState, NegTokenInit, NegTokenResp, SpnegoError};
