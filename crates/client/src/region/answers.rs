//! What the answers of push mode mean to a region.

use pmem::DurabilityClass;
use rdma::{PeerOperations, Rkey};
use remote::{Mapping, Piece};
use smb::push::{Capabilities, Durability, MapResponse, PushGrant, PushResponse, Rights};
use smb::{Command, ParseError};

use super::smb2::FallbackReason;
use crate::error::ClientError;
use crate::file::File;

pub(super) fn granted(file: &File) -> Result<PushGrant, FallbackReason> {
    match file.push() {
        Some(PushResponse::Granted(grant)) => Ok(grant.clone()),
        Some(PushResponse::Refused(refusal)) => Err(FallbackReason::NotGranted(*refusal)),
        None => Err(FallbackReason::PeerUnaware),
    }
}

/// The region of an answer: of the operations those that are both answered and allowed.
pub(super) fn mapping_of(mapped: &MapResponse) -> Mapping {
    let may = |capability, right| {
        mapped.capabilities.contains(capability) && mapped.rights.contains(right)
    };
    let mut operations = PeerOperations::empty();
    operations.set(PeerOperations::FLUSH, may(Capabilities::FLUSH, Rights::FLUSH));
    let atomic_write = may(Capabilities::ATOMIC_WRITE, Rights::ATOMIC_WRITE);
    operations.set(PeerOperations::ATOMIC_WRITE, atomic_write);
    operations.set(PeerOperations::VERIFY, may(Capabilities::VERIFY, Rights::VERIFY));
    let pieces = mapped.descriptors.iter().map(|piece| Piece {
        rkey: Rkey(piece.token.0),
        remote_addr: piece.offset,
        len: u64::from(piece.length),
    });
    Mapping { operations, pieces: pieces.collect() }
}

pub(super) fn class_of(durability: Durability) -> Option<DurabilityClass> {
    match durability {
        Durability::VOLATILE => Some(DurabilityClass::Volatile),
        Durability::STORAGE => Some(DurabilityClass::Storage),
        Durability::PMEM => Some(DurabilityClass::Pmem),
        _ => None,
    }
}

pub(super) fn malformed(error: ParseError) -> ClientError {
    ClientError::PeerMalformed { command: Command::IOCTL, error }
}
