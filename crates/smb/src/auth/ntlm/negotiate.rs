//! The client's NEGOTIATE message.
//!
//! ```text
//!  0             8        12        16               24               32
//!  +-------------+--------+---------+----------------+----------------+---------
//!  | "NTLMSSP\0" | 1      | flags   | domain field   | workst. field  | version, names
//!  +-------------+--------+---------+----------------+----------------+---------
//! ```
//!
//! Old clients end after the flags; the names are hints and ignored.
//!
//! Spec: MS-NLMP §2.2.1.1.

use super::{NtlmError, NtlmFlags, SIGNATURE, VERSION, expect_message, put_field, u32_at};

/// What a client would like.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NegotiateRepr {
    /// The flags it offers.
    pub flags: NtlmFlags,
}

impl NegotiateRepr {
    /// Reads a message.
    ///
    /// # Errors
    /// Not an NTLM NEGOTIATE, too short, or without Unicode.
    pub fn parse(message: &[u8]) -> Result<Self, NtlmError> {
        expect_message(message, 1, FIXED)?;
        let flags = NtlmFlags::from_bits_retain(u32_at(message, 12));
        // Every client since Windows 2000 offers it; OEM names would need a code page.
        if !flags.contains(NtlmFlags::UNICODE) {
            return Err(NtlmError::PeerUnicode);
        }
        Ok(Self { flags })
    }

    /// The whole message, without names.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(EMITTED);
        out.extend(SIGNATURE);
        out.extend(1_u32.to_le_bytes());
        out.extend(self.flags.bits().to_le_bytes());
        put_field(&mut out, &[], EMITTED);
        put_field(&mut out, &[], EMITTED);
        out.extend(if self.flags.contains(NtlmFlags::VERSION) { VERSION } else { [0; 8] });
        out
    }
}

const FIXED: usize = 16;
/// With both fields and a version.
const EMITTED: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::hex;

    // The token of a Windows client, from Microsoft's published 3.1.1 conversation.
    const WINDOWS: &str = "4e544c4d5353500001000000978208e2000000000000000000000000000000000603\
                           80250000000f";

    #[test]
    fn a_windows_message_parses() {
        let flags = NegotiateRepr::parse(&hex(WINDOWS)).unwrap().flags;
        assert!(flags.contains(NtlmFlags::KEY_EXCH | NtlmFlags::KEY_128 | NtlmFlags::SIGN));
    }

    #[test]
    fn what_is_emitted_is_what_a_windows_client_sends_without_names() {
        let flags = NegotiateRepr::parse(&hex(WINDOWS)).unwrap().flags;
        let ours = NegotiateRepr { flags }.emit();
        assert_eq!(NegotiateRepr::parse(&ours), Ok(NegotiateRepr { flags }));
        // Where an empty field points does not matter, and neither does the build of the system.
        let theirs = hex(WINDOWS);
        assert_eq!((ours.len(), &ours[..18]), (theirs.len(), &theirs[..18]));
    }

    #[test]
    fn truncated_foreign_and_oem_messages_are_refused() {
        let good = hex(WINDOWS);
        for len in 0..FIXED {
            let error = NtlmError::PeerTruncated { need: FIXED, got: len };
            assert_eq!(NegotiateRepr::parse(&good[..len]), Err(error));
        }
        let with = |at: usize, value| {
            let mut bytes = good.clone();
            bytes[at] = value;
            NegotiateRepr::parse(&bytes).unwrap_err()
        };
        assert_eq!(with(0, b'X'), NtlmError::PeerSignature);
        assert_eq!(with(8, 3), NtlmError::PeerType(3));
        assert_eq!(with(12, 0x96), NtlmError::PeerUnicode);
    }
}
