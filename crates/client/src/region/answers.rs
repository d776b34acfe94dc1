//! What the answers of push mode mean to a region.

use pmem::DurabilityClass;
use rdma::{PeerOperations, Rkey};
use remote::{Mapping, Piece, Promise};
use smb::push::{
    Capabilities, Durability, MapResponse, PushGrant, PushRequest, PushResponse, Rights,
};
use smb::{Command, ParseError};

use super::smb2::FallbackReason;
use crate::error::ClientError;
use crate::file::File;

pub(super) fn granted(file: &File) -> Result<PushGrant, FallbackReason> {
    match file.push() {
        Some(PushResponse::Granted(grant)) => Ok(grant.clone()),
        Some(PushResponse::Refused(refusal)) => Err(FallbackReason::NotGranted(refusal.reason)),
        None => Err(FallbackReason::PeerUnaware),
    }
}

/// What the server says of commits of an open file, if it says anything.
pub(super) fn promised(file: &File) -> Option<Promise> {
    let (durability, is_emulated) = match file.push()? {
        PushResponse::Granted(grant) => {
            let emulated = Capabilities::EMULATED_PERSISTENCE;
            (grant.durability, grant.capabilities.contains(emulated))
        }
        PushResponse::Refused(refusal) => (refusal.durability, refusal.is_emulated),
    };
    Some(Promise { class: class_of(durability)?, is_emulated })
}

/// Whether a caller who asked for `asked` takes a commit of that worth, as the server decides for push mode.
pub(super) fn takes(asked: Option<PushRequest>, promise: Promise) -> bool {
    let Some(asked) = asked else { return promise.can_commit() };
    let class = match promise.class {
        DurabilityClass::Volatile => Durability::VOLATILE,
        DurabilityClass::Storage => Durability::STORAGE,
        DurabilityClass::Pmem => Durability::PMEM,
    };
    let is_taken = class >= asked.durability || (promise.is_emulated && asked.accept_emulated);
    promise.can_commit() && is_taken
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
