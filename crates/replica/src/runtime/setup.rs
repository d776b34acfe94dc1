//! What a member is started with, and why it does not start.

use std::path::PathBuf;
use std::sync::Arc;

use basics::Environment;
use block::BlockDevice;
use log::Lsn;

use super::rpo::Rpo;
use crate::core::Config;
use crate::format::{Label, RecordKeys};
use crate::names::MemberId;
use crate::one_sided::{OneSidedError, OneSidedOptions};
use crate::ring::{Ring, RingError};
use crate::snapshot::SnapshotError;
use crate::wire::{Identity, LinkError, LinkOptions, Listener, Policy};
use crate::witness::{Witness, WitnessError};

/// What a member is started with.
#[derive(Debug)]
pub struct Setup {
    /// What the operator decided.
    pub config: Config,
    /// The member's own memory.
    pub ring: Ring,
    /// The data volumes, in the order of the group.
    pub volumes: Vec<Arc<dyn BlockDevice>>,
    /// A directory for snapshots and views.
    pub directory: PathBuf,
    /// How snapshots are mapped.
    pub map: pmem::OpenOptions,
    /// Who this member is, and who the others are.
    pub identity: Identity,
    /// Where the others can be reached.
    pub addresses: Vec<(MemberId, Vec<String>)>,
    /// How connections are made.
    pub links: LinkOptions,
    /// How records go from ring to ring by RDMA; `None`: by messages. Links that others can reach are no place for it.
    pub one_sided: Option<OneSidedOptions>,
    /// Where others reach this member.
    pub listener: Listener,
    /// Who records who is the source.
    pub witness: Arc<dyn Witness>,
    /// How payloads are packed.
    pub compression: Policy,
    /// How far asynchronous members may be behind.
    pub rpo: Option<Rpo>,
    /// Clocks and random numbers.
    pub environment: Environment,
}

/// Why a member does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The memory of the member cannot be read.
    #[error("the memory of the member: {0}")]
    Ring(#[from] RingError),
    /// Snapshots cannot be read.
    #[error("the snapshots of the member: {0}")]
    Snapshots(#[from] SnapshotError),
    /// Records that were acknowledged are gone from this member's memory.
    #[error(
        "the memory of the member is damaged: it holds the order up to {found}, and {claimed} was committed; another \
         member has what is missing: recreate this one's memory, and it is copied"
    )]
    Damaged {
        /// Where its records end.
        found: Lsn,
        /// What was committed.
        claimed: Lsn,
    },
    /// The ring is not as long as those of the group.
    #[error(
        "the memory of the member is made for records of {found} bytes in all, and the group's is for {wanted}: change \
         the group back, or recreate this member's memory once another has everything"
    )]
    OtherCapacity {
        /// What it can hold.
        found: u64,
        /// What the group's can.
        wanted: u64,
    },
    /// Records are to be sealed, and there is no secret to seal them with.
    #[error("records are sealed with the secret of a group: members with certificates have none")]
    NoKeys,
    /// Records of this member's memory are sealed with another secret.
    #[error(
        "the log of this member has records that are sealed with another secret than the group's file names: put that one back \
         (docs/replica.md, \"Another secret\", says how a group gets another)"
    )]
    OtherSecret,
    /// A volume is not what the group has.
    #[error("volume {volume} has {found} bytes, and the group's has {wanted}")]
    OtherSize {
        /// Which.
        volume: usize,
        /// Its bytes.
        found: u64,
        /// Those of the group's.
        wanted: u64,
    },
    /// The witness has to be asked whether this member may go on as source.
    #[error("the witness: {0}")]
    Witness(#[from] WitnessError),
    /// Nobody can be waited for.
    #[error("{0}")]
    Link(#[from] LinkError),
    /// The log cannot be written by RDMA.
    #[error("{0}: take `transport` out of the group's file to go by TCP")]
    OneSided(#[from] OneSidedError),
    /// No thread can be started, or no random number be had.
    #[error("the operating system: {0}")]
    System(#[from] std::io::Error),
}

/// The ring with the keys of its records, and its label, if both are this member's and can be read.
pub(super) fn readable(
    ring: Ring,
    config: &mut Config,
    identity: &Identity,
) -> Result<(Ring, Label), StartError> {
    ring.check_owner(config.group, config.me)?;
    let (found, wanted) = (ring.capacity(), config.capacity);
    if found != wanted {
        return Err(StartError::OtherCapacity { found, wanted });
    }
    let ring = ring.with_keys(identity.record_keys());
    config.key_check = ring.keys().map_or(0, RecordKeys::check);
    if config.seals && ring.keys().is_none() {
        return Err(StartError::NoKeys);
    }
    let label = ring.load_label()?;
    if label.key_check != 0 && label.key_check != config.key_check {
        return Err(StartError::OtherSecret);
    }
    Ok((ring, label))
}

// A device may be longer than its volume: the rest is not used.
pub(super) fn check_volumes(
    sizes: &[u64],
    volumes: &[Arc<dyn BlockDevice>],
) -> Result<(), StartError> {
    for (volume, (device, wanted)) in volumes.iter().zip(sizes).enumerate() {
        let (found, wanted) = (device.geometry().size, *wanted);
        if found < wanted {
            return Err(StartError::OtherSize { volume, found, wanted });
        }
    }
    if volumes.len() != sizes.len() {
        let volume = volumes.len().min(sizes.len());
        let wanted = sizes.get(volume).copied().unwrap_or_default();
        return Err(StartError::OtherSize { volume, found: 0, wanted });
    }
    Ok(())
}
