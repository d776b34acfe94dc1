//! The preauthentication integrity hash of SMB 3.1.1.
//!
//! ```text
//!  value(0) = 64 zero bytes
//!  value(n) = SHA-512( value(n-1) || message n )
//!
//!  connection: NEGOTIATE request, NEGOTIATE response
//!  session:    a copy of the connection's value, then every SESSION_SETUP request and response
//!              up to and without the final, successful response
//! ```
//!
//! A message is the whole PDU from its SMB2 header on, as it went over the wire.
//!
//! Spec: MS-SMB2 §3.2.5.2, §3.2.5.3, §3.3.5.4, §3.3.5.5.

use aws_lc_rs::digest;

/// The running hash over the messages that came before the keys.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PreauthHash([u8; Self::LEN]);

impl PreauthHash {
    /// Bytes of a SHA-512 value.
    pub const LEN: usize = 64;

    /// The value before the first message.
    pub const fn new() -> Self {
        Self([0; Self::LEN])
    }

    /// Takes in the next message, request or response.
    pub fn update(&mut self, message: &[u8]) {
        let mut context = digest::Context::new(&digest::SHA512);
        context.update(&self.0);
        context.update(message);
        self.0.copy_from_slice(context.finish().as_ref());
    }

    #[cfg(test)]
    pub(crate) const fn from_value(value: [u8; Self::LEN]) -> Self {
        Self(value)
    }

    /// The hash over everything taken in so far.
    pub const fn value(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl Default for PreauthHash {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::vectors::{PREAUTH_AFTER, PREAUTH_MESSAGES, hex};

    #[test]
    fn microsofts_published_conversation_hashes_to_its_published_values() {
        let mut hash = PreauthHash::new();
        for (message, after) in PREAUTH_MESSAGES.iter().zip(PREAUTH_AFTER) {
            hash.update(&hex(message));
            assert_eq!(hash.value()[..], hex(after));
        }
    }
}
