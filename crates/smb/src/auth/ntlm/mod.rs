//! NTLMv2 as servers and clients speak it.
//!
//! ```text
//!  client                                  server
//!  NEGOTIATE(flags)            -------->
//!                              <--------   CHALLENGE(flags, 8 random bytes, target info)
//!  AUTHENTICATE(names, proof,  -------->   proof right?  MIC right?
//!    encrypted key, MIC)
//! ```
//!
//! NTLMv1 and LM are refused. Spec: MS-NLMP §2.2.1, §3.1.5, §3.2.5.

mod acceptor;
mod authenticate;
mod av_pair;
mod challenge;
mod flags;
mod initiator;
mod keys;
mod negotiate;

pub use acceptor::{AcceptorConfig, NtlmAcceptor};
pub use authenticate::{AuthenticateRepr, NtlmV2Response};
pub use av_pair::{AvError, AvId, AvPairs};
pub use challenge::{ChallengeRepr, ChallengeView, Freshness};
pub use flags::NtlmFlags;
pub use initiator::ClientFreshness;
pub(super) use initiator::NtlmClient;
pub(super) use keys::{ExportedKey, mic_token};
pub use negotiate::NegotiateRepr;

use thiserror::Error;

pub(super) const SIGNATURE: &[u8; 8] = b"NTLMSSP\0";

/// Why bytes are not the NTLM message they should be.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum NtlmError {
    /// Fewer bytes than the fixed part.
    #[error("an NTLM message of this type needs {need} bytes, peer sent {got}")]
    PeerTruncated {
        /// Bytes of the fixed part.
        need: usize,
        /// Bytes there were.
        got: usize,
    },
    /// Another signature than `NTLMSSP`.
    #[error("peer's message does not begin with NTLMSSP")]
    PeerSignature,
    /// Another message type than the one that is due.
    #[error("peer sent NTLM message type {0}")]
    PeerType(u32),
    /// A field points outside of the message.
    #[error("peer's field of {len} bytes at {offset} leaves a message of {limit}")]
    PeerField {
        /// Where the field begins.
        offset: u32,
        /// How long it is.
        len: u16,
        /// How long the message is.
        limit: usize,
    },
    /// A name is not UTF-16.
    #[error("peer sent a name that is not UTF-16")]
    PeerName,
    /// The response is not one of NTLMv2.
    #[error("peer sent a response of {0} bytes, which is not NTLMv2")]
    PeerResponse(usize),
    /// The target info is malformed.
    #[error("peer's target info is malformed")]
    PeerTargetInfo(#[from] AvError),
    /// The client does not speak Unicode.
    #[error("peer does not offer Unicode")]
    PeerUnicode,
}

/// Checks signature and type of a message whose fixed part has `need` bytes.
fn expect_message(message: &[u8], kind: u32, need: usize) -> Result<(), NtlmError> {
    if message.len() < need {
        return Err(NtlmError::PeerTruncated { need, got: message.len() });
    }
    if !message.starts_with(SIGNATURE) {
        return Err(NtlmError::PeerSignature);
    }
    let got = u32_at(message, 8);
    if got != kind {
        return Err(NtlmError::PeerType(got));
    }
    Ok(())
}

/// Follows the length and offset at `at` into the message. MS-NLMP §2.2.1: the maximum length
/// between them is ignored.
fn field(message: &[u8], at: usize) -> Result<&[u8], NtlmError> {
    let len = u16::from_le_bytes([message[at], message[at + 1]]);
    let offset = u32_at(message, at + 4);
    let bad = NtlmError::PeerField { offset, len, limit: message.len() };
    let start = usize::try_from(offset).map_err(|_| bad)?;
    let end = start.checked_add(usize::from(len)).ok_or(bad)?;
    if len == 0 {
        // An empty field may point anywhere.
        return Ok(&[]);
    }
    message.get(start..end).ok_or(bad)
}

/// Appends length, maximum length and offset of a field.
fn put_field(out: &mut Vec<u8>, bytes: &[u8], offset: usize) {
    let len = u16::try_from(bytes.len()).expect("names are cut to their maximum");
    let offset = u32::try_from(offset).expect("names are cut to their maximum");
    out.extend(len.to_le_bytes());
    out.extend(len.to_le_bytes());
    out.extend(offset.to_le_bytes());
}

/// The first `max` units of a text.
fn utf16(text: &str, max: usize) -> Vec<u8> {
    text.encode_utf16().take(max).flat_map(u16::to_le_bytes).collect()
}

/// Four bytes at a place that the length of the fixed part covers.
fn u32_at(message: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([message[at], message[at + 1], message[at + 2], message[at + 3]])
}

/// Windows 10 build 0, NTLMSSP revision 15 (MS-NLMP §2.2.2.10): some peers want the revision.
const VERSION: [u8; 8] = [10, 0, 0, 0, 0, 0, 0, 15];
