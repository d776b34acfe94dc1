//! SPNEGO: which mechanism, and proof that nobody changed the list.
//!
//! ```text
//!  client                                             server
//!  60 NegTokenInit(mechs, first token)  ---------->
//!                             <----------  a1 NegTokenResp(incomplete, NTLMSSP, CHALLENGE)
//!  a1 NegTokenResp(AUTHENTICATE, MIC)   ---------->
//!                             <----------  a1 NegTokenResp(completed, MIC)
//!
//!  60 NegTokenInit(mechs, AP-REQ)       ---------->
//!                             <----------  a1 NegTokenResp(completed, Kerberos, AP-REP)
//!
//!  raw NTLMSSP messages and Kerberos tokens, without any of this, work too
//! ```
//!
//! Spec: RFC 4178, MS-SPNG.

mod acceptor;
mod token;

pub use acceptor::SpnegoAcceptor;
pub use token::{
    KERBEROS_HINT, Mechanism, NEGOTIATE_HINT, NegState, NegTokenInit, NegTokenResp, SpnegoError,
};
pub(super) use token::{NTLM_LIST, first_token};
