//! The names DDP gives to buffers: steering tags and queue numbers.
//!
//! Spec: RFC 5041 §4.2 and §4.3; RFC 5040 §4.3 and RFC 7306 §4 for what each queue is for.

use core::fmt;

/// Names a registered region on the wire; `rkey` in verbs, `token` in SMB Direct.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Stag(pub u32);

impl fmt::Display for Stag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// Number of the receiver's queue of untagged buffers that a message is for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct QueueNumber(pub u32);

impl QueueNumber {
    /// Send family and Immediate Data.
    pub const SEND: Self = Self(0);
    /// Read, Atomic, Flush, Verify and Atomic Write requests.
    pub const REQUEST: Self = Self(1);
    /// Terminate.
    pub const TERMINATE: Self = Self(2);
    /// The untagged responses to the requests on [`QueueNumber::REQUEST`].
    pub const RESPONSE: Self = Self(3);
}

impl fmt::Display for QueueNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue {:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_buffers_are_shown_in_hexadecimal() {
        assert_eq!(Stag(0x12_ab34).to_string(), "0x0012ab34");
        assert_eq!(QueueNumber::RESPONSE.to_string(), "queue 0x3");
    }
}
