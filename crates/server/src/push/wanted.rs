//! Classifies a connection request by its private data.
//!
//! ```text
//!  "LFPC" version 1, whole       a push connection: the gate decides about its token
//!  "LFPC" anything else          refused, with the reason
//!  nothing, IRD/ORD words, ...   SMB Direct; refused where only push connections of this host come
//! ```
//!
//! Spec: docs/push-mode.md, "Push connection".

use smb::push::{PushAccept, PushConnect, PushConnectionId};
use smb::{NtStatus, ParseError};

/// The kind of connection that a peer asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wanted {
    /// A push connection.
    Push,
    /// A push connection that cannot be granted, with the status.
    Refuse(NtStatus),
    /// SMB Direct.
    SmbDirect,
}

/// Parses private data as far as the classification needs.
pub(crate) fn wanted(private_data: &[u8], is_same_host: bool) -> Wanted {
    let direct = match is_same_host {
        false => Wanted::SmbDirect,
        // Whoever comes this way shows a token, which is given to those who have logged on: a stranger gets no memory.
        true => Wanted::Refuse(NtStatus::ACCESS_DENIED),
    };
    match PushConnect::parse(private_data) {
        Ok(_) => Wanted::Push,
        Err(ParseError::PeerProtocolId(_)) => direct,
        // Too short even for the magic.
        Err(_) if private_data.len() < MAGIC_LEN => direct,
        Err(ParseError::PeerPushVersion(_)) => Wanted::Refuse(NtStatus::REVISION_MISMATCH),
        Err(_) => Wanted::Refuse(NtStatus::INVALID_PARAMETER),
    }
}

/// Private data of a rejection.
pub(crate) fn refusal(status: NtStatus) -> Vec<u8> {
    let mut out = Vec::with_capacity(PushAccept::LEN);
    PushAccept { status, push_connection_id: PushConnectionId(0) }.emit(&mut out);
    out
}

const MAGIC_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    // Typed from docs/push-mode.md: magic, version 1, size 48, flags, reserved, token.
    fn request() -> Vec<u8> {
        let mut bytes = b"LFPC\x01\x00\x30\x00".to_vec();
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&[7; 32]);
        bytes
    }

    #[test]
    fn complete_push_requests_are_recognised_and_broken_ones_refused_with_a_status() {
        assert_eq!(wanted(&request(), false), Wanted::Push);
        let mut newer = request();
        newer[4] = 2;
        assert_eq!(wanted(&newer, false), Wanted::Refuse(NtStatus::REVISION_MISMATCH));
        let cut = &request()[..40];
        assert_eq!(wanted(cut, false), Wanted::Refuse(NtStatus::INVALID_PARAMETER));
        assert_eq!(wanted(b"LFPC", false), Wanted::Refuse(NtStatus::INVALID_PARAMETER));
    }

    #[test]
    fn empty_private_data_and_that_of_kernels_mean_smb_direct() {
        // Captured from cifs.ko 7.2 (big-endian) and 6.12 (little-endian) over siw.
        let modern = [0, 0, 0, 0x20, 0, 0, 0, 1];
        let old = [0x20, 0, 0, 0, 1, 0, 0, 0];
        for private_data in [&modern[..], &old, &[0, 0x20, 0, 1], b"LFP", b""] {
            assert_eq!(wanted(private_data, false), Wanted::SmbDirect);
        }
    }

    #[test]
    fn smb_direct_stays_on_the_network() {
        let refused = Wanted::Refuse(NtStatus::ACCESS_DENIED);
        for private_data in [&b""[..], b"LFP", &[0, 0, 0, 0x20, 0, 0, 0, 1]] {
            assert_eq!(wanted(private_data, true), refused);
        }
        assert_eq!(wanted(&request(), true), Wanted::Push);
    }
}
