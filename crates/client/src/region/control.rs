//! What a region needs from the SMB side of its file: mapping, and plain reads and writes.
//!
//! A seam, so that the region's path changes are tested against a control side that fails on cue.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use pmem::DurabilityClass;
use smb::push::{Capabilities, Rights};
use smbdirect::BufferDescriptor;

use super::path::FallbackReason;
use super::recall::Recall;
use crate::error::ClientError;

/// The SMB side of a mapped file. Calls block.
pub(crate) trait Control: Debug + Send {
    /// Asks for a fresh token for one push connection.
    fn invite(&mut self) -> Result<Invitation, FallbackReason>;

    /// The id of a push connection, from the private data of the server's answer.
    fn connection(&self, reply: &[u8]) -> Option<u64>;

    /// Maps the region on an accepted push connection. From now on `recall` hears of recalls.
    fn map(&mut self, connection: u64, recall: &Arc<Recall>) -> Result<Mapping, ClientError>;

    /// Gives the registration back. Nothing happens where there is none. The lease stays ours, as
    /// long as the grace allows, until [`Control::settle`].
    fn unmap(&mut self) -> Result<(), ClientError>;

    /// Whether the lease has been ours, and unbroken, since the latest mapping: only then is
    /// there nobody whose bytes a replay would undo. Asked after [`Control::unmap`].
    fn may_replay(&mut self) -> bool;

    /// SMB2 WRITE of bytes that were written under the latest mapping; `false`, and nothing is
    /// written, once the lease was given away.
    fn write_again(&mut self, file_offset: u64, bytes: &[u8]) -> Result<bool, ClientError>;

    /// Nothing of the latest mapping is left to be written: whoever waits for the lease may have
    /// it.
    fn settle(&mut self);

    /// SMB2 READ, whole or failed.
    fn read(&mut self, file_offset: u64, out: &mut [u8]) -> Result<(), ClientError>;

    /// SMB2 WRITE, whole or failed.
    fn write(&mut self, file_offset: u64, bytes: &[u8]) -> Result<(), ClientError>;

    /// COMMIT_REMOTE_REGION of a range of the file that lies in the mapped region.
    ///
    /// # Durability
    ///
    /// Whatever was placed in the range before is durable in the server's class for the file.
    fn commit(&mut self, range: Range<u64>) -> Result<(), ClientError>;

    /// SMB2 FLUSH.
    ///
    /// # Durability
    ///
    /// All writes before it are durable in the server's class for the file.
    fn flush(&mut self) -> Result<(), ClientError>;
}

/// How to make one push connection.
#[derive(Clone, Debug)]
pub(crate) struct Invitation {
    /// Where the server waits, the best first.
    pub(crate) addresses: Vec<SocketAddr>,
    /// What to send as private data: holds the single-use token.
    pub(crate) private_data: Vec<u8>,
    /// What a commit will be worth.
    pub(crate) class: DurabilityClass,
    /// The class is volatile and the server pretends otherwise.
    pub(crate) is_emulated: bool,
}

/// A registered region.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    /// What may be done with it.
    pub(crate) rights: Rights,
    /// What the server's side of the push connection can do.
    pub(crate) capabilities: Capabilities,
    /// Its pieces in order, all under one token.
    pub(crate) descriptors: Vec<BufferDescriptor>,
}
