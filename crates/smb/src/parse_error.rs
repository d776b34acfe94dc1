//! Why bytes from a peer are not a message, and the status that tells it so.
//!
//! Spec: MS-SMB2 §3.3.5 (a server answers a malformed request with STATUS_INVALID_PARAMETER).

use crate::status::NtStatus;

/// A peer sent bytes that are not what its command or class says they are.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The bytes end before the structure does.
    #[error("peer sent {got} bytes where {need} are needed")]
    PeerTruncated {
        /// Bytes the structure takes.
        need: usize,
        /// Bytes there were.
        got: usize,
    },
    /// The first four bytes name no protocol of ours.
    #[error("peer sent protocol id {0:#010x}")]
    PeerProtocolId(u32),
    /// StructureSize does not fit the command.
    #[error("peer sent StructureSize {got}, the command has {expected}")]
    PeerStructureSize {
        /// What the specification fixes.
        expected: u16,
        /// What the peer wrote.
        got: u16,
    },
    /// An offset and length that do not lie inside the message, behind its fixed part.
    #[error("peer placed its {field:?} at {offset}+{length} of a message of {got} bytes")]
    PeerOffset {
        /// Which buffer.
        field: Field,
        /// Offset as on the wire.
        offset: u32,
        /// Length as on the wire.
        length: u32,
        /// Length of what it must lie in.
        got: usize,
    },
    /// An offset that must be a multiple and is not.
    #[error("peer placed its {field:?} at {offset}, not aligned to {align}")]
    PeerAlignment {
        /// Which buffer.
        field: Field,
        /// Offset as on the wire.
        offset: u32,
        /// What it must be a multiple of.
        align: u32,
    },
    /// More of something than the named limit.
    #[error("peer sent {got} of {field:?}, the limit is {max}")]
    PeerTooMany {
        /// What there is too much of.
        field: Field,
        /// How much there was.
        got: usize,
        /// The limit.
        max: usize,
    },
    /// A value the specification forbids.
    #[error("peer sent {value:#x} as {field:?}")]
    PeerValue {
        /// Which field.
        field: Field,
        /// What it held.
        value: u64,
    },
    /// Text that is not UTF-16: an odd length or half a surrogate pair.
    #[error("peer sent {field:?} that is not UTF-16")]
    PeerUtf16 {
        /// Which text.
        field: Field,
    },
    /// A push payload of a layout version this side does not speak.
    #[error("peer sent push layout version {0}")]
    PeerPushVersion(u16),
}

impl ParseError {
    /// What a server answers to a request that fails so.
    pub fn status(&self) -> NtStatus {
        match self {
            Self::PeerTruncated { .. }
            | Self::PeerProtocolId(_)
            | Self::PeerStructureSize { .. }
            | Self::PeerOffset { .. }
            | Self::PeerAlignment { .. }
            | Self::PeerValue { .. } => NtStatus::INVALID_PARAMETER,
            Self::PeerTooMany { field: Field::Name, .. } | Self::PeerUtf16 { .. } => {
                NtStatus::OBJECT_NAME_INVALID
            }
            Self::PeerTooMany { .. } => NtStatus::INSUFFICIENT_RESOURCES,
            Self::PeerPushVersion(_) => NtStatus::REVISION_MISMATCH,
        }
    }
}

/// The part of a message an error speaks of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Field {
    /// Access mask.
    Access,
    /// Access control list or one of its entries.
    Acl,
    /// Addresses of a push listener.
    Addresses,
    /// Ciphers of an encryption context.
    Ciphers,
    /// RDMA channel descriptors.
    ChannelInfo,
    /// Chunks of a server-side copy.
    Chunks,
    /// PDUs of a compound.
    Compound,
    /// A context of CREATE, NEGOTIATE or an error.
    Context,
    /// Data to read or write.
    Data,
    /// Buffer descriptors of a push region.
    Descriptors,
    /// Dialects of a NEGOTIATE.
    Dialects,
    /// Entries of a list.
    Entries,
    /// A flags word.
    Flags,
    /// Frame length.
    Frame,
    /// Hash algorithms of a preauthentication context.
    HashAlgorithms,
    /// Impersonation level.
    ImpersonationLevel,
    /// Input of a query, a change or a control.
    Input,
    /// Interfaces a remote procedure call binds.
    Interfaces,
    /// Lock elements.
    Locks,
    /// A file, share or pattern name.
    Name,
    /// NextCommand or NextEntryOffset.
    Next,
    /// Output of a query or control, or data of an error.
    Output,
    /// Ranges of a commit.
    Ranges,
    /// RDMA transform ids.
    RdmaTransforms,
    /// Reserved bits that carry meaning when set.
    Reserved,
    /// Salt of a preauthentication context.
    Salt,
    /// GSS token.
    SecurityBuffer,
    /// Security descriptor.
    SecurityDescriptor,
    /// Security identifier.
    Sid,
    /// Signing algorithms.
    SigningAlgorithms,
    /// A size field inside a payload.
    Size,
    /// Compression algorithms.
    Compression,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_one_status() {
        let table = [
            (ParseError::PeerTruncated { need: 2, got: 1 }, NtStatus::INVALID_PARAMETER),
            (ParseError::PeerProtocolId(7), NtStatus::INVALID_PARAMETER),
            (ParseError::PeerStructureSize { expected: 4, got: 5 }, NtStatus::INVALID_PARAMETER),
            (
                ParseError::PeerOffset { field: Field::Data, offset: 1, length: 1, got: 1 },
                NtStatus::INVALID_PARAMETER,
            ),
            (
                ParseError::PeerAlignment { field: Field::Next, offset: 1, align: 8 },
                NtStatus::INVALID_PARAMETER,
            ),
            (
                ParseError::PeerTooMany { field: Field::Locks, got: 65, max: 64 },
                NtStatus::INSUFFICIENT_RESOURCES,
            ),
            (
                ParseError::PeerTooMany { field: Field::Name, got: 65, max: 64 },
                NtStatus::OBJECT_NAME_INVALID,
            ),
            (ParseError::PeerValue { field: Field::Flags, value: 9 }, NtStatus::INVALID_PARAMETER),
            (ParseError::PeerUtf16 { field: Field::Name }, NtStatus::OBJECT_NAME_INVALID),
            (ParseError::PeerPushVersion(2), NtStatus::REVISION_MISMATCH),
        ];
        for (error, status) in table {
            assert_eq!(error.status(), status, "{error}");
        }
    }
}
