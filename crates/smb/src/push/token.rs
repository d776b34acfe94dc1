//! The token of a push connection.
//!
//! Spec: docs/push-mode.md, "Push connection".

use std::fmt;

/// Bytes of a token.
pub const TOKEN_LEN: usize = 32;

/// A bearer secret, good for one connection; only proofs of it are shown. Does not print; compares in constant time.
#[derive(Clone)]
pub struct PushToken([u8; TOKEN_LEN]);

impl PushToken {
    /// Wraps random bytes.
    pub fn new(bytes: [u8; TOKEN_LEN]) -> Self {
        Self(bytes)
    }

    /// The bytes, to send them in a grant.
    pub(super) fn expose(&self) -> &[u8; TOKEN_LEN] {
        &self.0
    }
}

impl PartialEq for PushToken {
    fn eq(&self, other: &Self) -> bool {
        is_equal(&self.0, &other.0)
    }
}

impl Eq for PushToken {}

impl Drop for PushToken {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.0);
    }
}

impl fmt::Debug for PushToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PushToken(..)")
    }
}

/// Compares in constant time.
pub(super) fn is_equal(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let difference = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(difference) == 0
}
