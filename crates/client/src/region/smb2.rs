//! The messages of a region whose control side is an SMB2 session.

use remote::{Messages, RemoteRegion};
use smb::NtStatus;
use smb::push::Refusal;

use crate::error::ClientError;

/// SMB2, with the messages of push mode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Smb2 {}

/// A mapped region of a file on a share.
pub type Region = RemoteRegion<Smb2>;
/// A mapped region of a file on a share, for async tasks.
pub type AsyncRegion = remote::AsyncRegion<Smb2>;
/// The path of a region's operations: RDMA or SMB2.
pub type Path = remote::Path<Smb2>;
/// Why a region works over SMB2.
pub type FallbackReason = remote::FallbackReason<Smb2>;
/// Why an operation on a region failed.
pub type RegionError = remote::RegionError<ClientError>;

impl Messages for Smb2 {
    type Error = ClientError;
    type Refusal = Refusal;
    type Status = NtStatus;

    const NAME: &'static str = "SMB";
    const PLAIN: &'static str = "SMB READ, WRITE and FLUSH";
    const COMMIT: &'static str = "COMMIT_REMOTE_REGION";

    fn reason(error: &ClientError) -> FallbackReason {
        match error {
            ClientError::PeerStatus { status, .. } => FallbackReason::Refused(*status),
            ClientError::PeerMalformed { .. } => FallbackReason::PeerIncapable,
            _ => FallbackReason::ControlLost,
        }
    }
}

#[cfg(test)]
mod tests {
    use smb::{Command, ParseError};

    use super::*;

    #[test]
    fn a_malformed_answer_is_not_reported_as_a_lost_connection() {
        let (command, error) = (Command::IOCTL, ParseError::PeerProtocolId(0));
        let malformed = ClientError::PeerMalformed { command, error };
        assert_eq!(Smb2::reason(&malformed), FallbackReason::PeerIncapable);
    }
}
