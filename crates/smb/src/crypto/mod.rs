//! Keys, signatures and seals of an SMB session.
//!
//! [`PreauthHash`] binds the keys to the conversation that led to them, [`KeySchedule`] turns the
//! session key of the authentication into the keys of one dialect. A [`SigningKey`] becomes a
//! [`ChannelSigner`], which signs each PDU of one connection once, and a [`SessionSigner`] for the
//! others; [`SealingKey`] and [`OpeningKey`] encrypt and decrypt whole frames. All
//! work happens in the caller's buffer; keys are expanded once per session and overwritten when
//! dropped.
//!
//! Spec: MS-SMB2 §3.1.4.1 to §3.1.4.3, §3.1.5.1.

mod cipher;
mod kdf;
mod nonce;
mod preauth;
mod sealing;
mod signer;
mod signing;
#[cfg(test)]
pub(crate) mod vectors;

pub use cipher::Cipher;
pub(crate) use kdf::derive;
pub use kdf::{KeySchedule, Role, SessionKey, SessionKeys};
pub use nonce::NONCES_MAX;
pub use preauth::PreauthHash;
pub use sealing::{OpenError, OpeningKey, SealError, SealingKey};
pub use signer::{ChannelSigner, Lane, LaneId, SessionSigner, Turn};
pub use signing::{SignError, SigningAlgorithm, SigningKey, VerifyError, is_exempt};

#[cfg(test)]
pub(crate) use vectors::hex;
