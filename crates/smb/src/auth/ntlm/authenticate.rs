//! The client's AUTHENTICATE message.
//!
//! ```text
//!  0            8   12     20     28       36     44            52       60      64        72    88
//!  +------------+---+------+------+--------+------+-------------+--------+-------+---------+-----+---
//!  | "NTLMSSP\0"| 3 | LM   | NT   | domain | user | workstation | session| flags | version | MIC | ..
//!  |            |   | (8)  | (8)  | (8)    | (8)  | (8)         | key (8)| (4)   | (8)     | (16)|
//!  +------------+---+------+------+--------+------+-------------+--------+-------+---------+-----+---
//! ```
//!
//! Version and MIC are there only where the sender says so, the MIC by a flag in the pairs that
//! its own proof covers.
//!
//! Spec: MS-NLMP §2.2.1.3, §2.2.2.7, §2.2.2.8.

use super::{
    AvPairs, NtlmError, NtlmFlags, SIGNATURE, VERSION, expect_message, field, put_field, u32_at,
};

/// A message whose fields all lie inside of it.
#[derive(Debug)]
pub struct AuthenticateRepr<'a> {
    /// Flags the client goes on with.
    pub flags: NtlmFlags,
    /// User name.
    pub user: String,
    /// Domain, or what the user takes for one.
    pub domain: String,
    /// The response; none when anonymous.
    pub response: Option<NtlmV2Response<'a>>,
    /// The session key, encrypted with what the proof gives; 16 bytes or nothing.
    pub encrypted_key: &'a [u8],
    /// The message integrity code, if the response announces one.
    pub mic: Option<[u8; 16]>,
}

/// The answer to a challenge.
#[derive(Clone, Copy, Debug)]
pub struct NtlmV2Response<'a> {
    /// HMAC over challenge and `blob`.
    pub proof: &'a [u8; 16],
    /// Time, client challenge and target info as the client saw it.
    pub blob: &'a [u8],
    /// The pairs inside `blob`.
    pub pairs: AvPairs<'a>,
}

impl<'a> AuthenticateRepr<'a> {
    /// Where the MIC lies, if there is one.
    pub const MIC: std::ops::Range<usize> = 72..88;

    /// Reads a message.
    ///
    /// # Errors
    /// Not an NTLM AUTHENTICATE, a field outside of it, or a response that is not NTLMv2.
    pub fn parse(message: &'a [u8]) -> Result<Self, NtlmError> {
        expect_message(message, 3, FIXED)?;
        let response = match (field(message, 20)?, field(message, 12)?) {
            // MS-NLMP §3.2.5.1.2: no NT response and an LM response of nothing or one zero.
            ([], [] | [0]) => None,
            (nt, _) => Some(NtlmV2Response::parse(nt)?),
        };
        let mic = match response {
            Some(response) if response.pairs.announces_mic() => {
                let mic = message
                    .get(Self::MIC)
                    .ok_or(NtlmError::PeerTruncated { need: Self::MIC.end, got: message.len() })?;
                Some(mic.try_into().expect("the range has 16 bytes"))
            }
            _ => None,
        };
        Ok(Self {
            flags: NtlmFlags::from_bits_retain(u32_at(message, 60)),
            user: name(field(message, 36)?)?,
            domain: name(field(message, 28)?)?,
            response,
            encrypted_key: field(message, 52)?,
            mic,
        })
    }
}

/// A message about to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Authenticate<'a> {
    pub(super) flags: NtlmFlags,
    /// UTF-16.
    pub(super) domain: &'a [u8],
    /// UTF-16.
    pub(super) user: &'a [u8],
    pub(super) proof: &'a [u8; 16],
    pub(super) blob: &'a [u8],
    pub(super) encrypted_key: &'a [u8],
}

impl Authenticate<'_> {
    /// The whole message, with zeros where the MIC lies.
    pub(super) fn emit(&self) -> Vec<u8> {
        // MS-NLMP §3.1.5.1.2: 24 zeros in place of a response of LM.
        let lm = [0; 24];
        let nt = [self.proof.as_slice(), self.blob].concat();
        let fields = [&lm[..], &nt, self.domain, self.user, &[], self.encrypted_key];
        let mut out = Vec::with_capacity(512);
        out.extend(SIGNATURE);
        out.extend(3_u32.to_le_bytes());
        let mut at = AuthenticateRepr::MIC.end;
        for bytes in fields {
            put_field(&mut out, bytes, at);
            at += bytes.len();
        }
        out.extend(self.flags.bits().to_le_bytes());
        out.extend(if self.flags.contains(NtlmFlags::VERSION) { VERSION } else { [0; 8] });
        out.resize(AuthenticateRepr::MIC.end, 0);
        fields.iter().for_each(|bytes| out.extend(*bytes));
        out
    }
}

impl<'a> NtlmV2Response<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, NtlmError> {
        let malformed = NtlmError::PeerResponse(bytes.len());
        let (proof, blob) = bytes.split_first_chunk::<16>().ok_or(malformed)?;
        // MS-NLMP §2.2.2.7: versions 1 and 1. A response of 24 bytes is NTLMv1.
        if blob.len() < BLOB_FIXED || !blob.starts_with(&[1, 1]) {
            return Err(malformed);
        }
        Ok(Self { proof, blob, pairs: AvPairs::parse(&blob[BLOB_FIXED..])? })
    }
}

fn name(bytes: &[u8]) -> Result<String, NtlmError> {
    let (units, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(NtlmError::PeerName);
    }
    char::decode_utf16(units.iter().map(|unit| u16::from_le_bytes(*unit)))
        .collect::<Result<_, _>>()
        .map_err(|_| NtlmError::PeerName)
}

const FIXED: usize = 64;
/// Versions, reserved, time, client challenge, reserved: MS-NLMP §2.2.2.7.
const BLOB_FIXED: usize = 28;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::hex;
    use crate::crypto::vectors::PREAUTH_MESSAGES;

    /// The token of a Windows client, from Microsoft's published 3.1.1 conversation.
    fn windows() -> Vec<u8> {
        let setup = hex(PREAUTH_MESSAGES[4]);
        let at = setup.windows(8).position(|bytes| bytes == SIGNATURE).unwrap();
        let len = setup.len() - at - 20;
        setup[at..at + len].to_vec()
    }

    #[test]
    fn a_windows_message_parses() {
        let bytes = windows();
        let message = AuthenticateRepr::parse(&bytes).unwrap();
        assert_eq!((message.user.as_str(), message.domain.as_str()), ("administrator", "SUT311"));
        assert_eq!(message.encrypted_key.len(), 16);
        assert!(message.response.unwrap().pairs.announces_mic());
        assert_eq!(message.mic.unwrap()[..], hex("ecac77a5f385a8bf9c38c706eeeddcd3"));
    }

    #[test]
    fn no_field_escapes_the_message() {
        let good = windows();
        for len in 0..good.len() {
            assert!(AuthenticateRepr::parse(&good[..len]).is_err(), "{len}");
        }
        for at in [12, 20, 28, 36, 52] {
            for (offset, len) in [(u32::MAX, 1_u16), (0, u16::MAX), (400, 100)] {
                let mut bytes = good.clone();
                bytes[at..at + 2].copy_from_slice(&len.to_le_bytes());
                bytes[at + 4..at + 8].copy_from_slice(&offset.to_le_bytes());
                let limit = bytes.len();
                assert_eq!(
                    AuthenticateRepr::parse(&bytes).unwrap_err(),
                    NtlmError::PeerField { offset, len, limit }
                );
            }
        }
    }

    #[test]
    fn ntlm_v1_is_refused() {
        let mut bytes = windows();
        bytes[20..22].copy_from_slice(&24_u16.to_le_bytes());
        assert_eq!(AuthenticateRepr::parse(&bytes).unwrap_err(), NtlmError::PeerResponse(24));
    }
}
