//! How a volume grows: its device first, then a record says so to all members, and then clients are told.
//!
//! ```text
//!   source: device grows -- record at LSN n, durable here and at all in sync --> what is new is zeroed --> clients see the size
//!   others: the record comes: device grows, or the record is refused -- committed --> what is new is zeroed
//! ```
//! A device is never shorter than its volume, and may be longer: a record that was lost leaves it so. What lies behind the
//! volume's end there is zeroed by the record that takes it in.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use block::BlockError;
use thiserror::Error;

use super::inner::Inner;
use super::volumes::TooShort;
use crate::core::{Action, Event, Lane};
use crate::format::{Extent, Kind, VOLUME_LEN_MAX};
use crate::message::{Message, Peer};
use crate::names::MemberId;

/// Why a volume does not grow.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum ResizeError {
    /// The group has no such volume.
    #[error("the group has no volume {0}")]
    ConfigNoVolume(u8),
    /// Volumes only grow.
    #[error("the volume has {0} bytes already, and only grows")]
    ConfigNotLonger(u64),
    /// No such size is possible.
    #[error("a volume has a multiple of {block} bytes, at most {max}", max = VOLUME_LEN_MAX)]
    ConfigSize {
        /// Of its device.
        block: u32,
    },
    /// The device cannot grow by itself.
    #[error(
        "the device of the volume has {0} bytes and cannot grow by itself: grow it at every member, start the members again, and try again"
    )]
    ConfigDevice(u64),
    /// A member in sync would have to leave.
    #[error(
        "the device of the volume at {0} has {1} bytes and cannot grow by itself: grow it there, start that member again, and try again"
    )]
    ConfigMember(MemberId, u64),
    /// A member in sync does not say whether it has room.
    #[error(
        "{0} does not say whether its device can be so long; try again once it answers, or is in sync no more"
    )]
    PeerSilent(MemberId),
    /// The change was not made, or is not known to have been.
    #[error("{0}")]
    Block(#[from] BlockError),
}

impl Inner {
    pub(super) fn resize(&self, volume: u8, size: u64) -> Result<u64, ResizeError> {
        let _alone = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        let tenure = self.hub.tenure();
        self.check(tenure)?;
        let no_volume = ResizeError::ConfigNoVolume(volume);
        let offered = self.hub.sizes.get(usize::from(volume)).ok_or(no_volume)?;
        let device = self.volumes.device(volume).ok_or(no_volume)?;
        // What the group's file takes as a size.
        let block = device.geometry().block.max(SIZE_UNIT);
        if size > VOLUME_LEN_MAX || !size.is_multiple_of(u64::from(block)) {
            return Err(ResizeError::ConfigSize { block });
        }
        let present = offered.load(Ordering::Acquire);
        if size <= present {
            return Err(ResizeError::ConfigNotLonger(present));
        }
        self.volumes
            .reserve(volume, size)
            .map_err(|TooShort(found)| ResizeError::ConfigDevice(found))?;
        let extent = Extent { volume, offset: present, len: size - present };
        let peers = self.hub.lock().core.in_sync_peers();
        peers.into_iter().try_for_each(|peer| self.ask_for_room(peer, extent))?;
        self.change(tenure, Kind::Resize, extent, &[])?;
        offered.fetch_max(size, Ordering::AcqRel);
        Ok(size)
    }

    /// Has a member in sync make room first: one that cannot would have to leave, and no record can be taken back.
    fn ask_for_room(&self, peer: Peer, extent: Extent) -> Result<(), ResizeError> {
        let hub = &self.hub;
        let mut state = hub.lock();
        let epoch = state.core.epoch();
        if let Some(connected) = state.links.get_mut(peer) {
            connected.reserved = None;
        }
        hub.take(&mut state, vec![Action::Send(peer, Message::Reserve { epoch, extent })]);
        let until = hub.now() + ANSWER_NS;
        loop {
            // Who has gone is in sync no more soon, or writes wait for it anyway.
            let Some(connected) = state.links.get_mut(peer) else { return Ok(()) };
            let reserved = connected.reserved.take_if(|(of, _)| *of == extent);
            if let Some((_, size)) = reserved {
                let is_enough = size >= extent.offset + extent.len;
                let short = ResizeError::ConfigMember(peer.member, size);
                return if is_enough { Ok(()) } else { Err(short) };
            }
            if state.ends || hub.now() > until {
                return Err(ResizeError::PeerSilent(peer.member));
            }
            state = hub.wait(Lane::Copies(peer.member), state);
        }
    }

    pub(super) fn hear_of_room(&self, peer: Peer, message: Message) {
        let hub = &self.hub;
        let mut state = hub.lock();
        if let Message::Reserved { extent, size } = message
            && let Some(connected) = state.links.get_mut(peer)
        {
            connected.reserved = Some((extent, size));
        }
        let is_source = state.core.streaming_from() == Some(peer);
        let epoch_here = state.core.epoch();
        let asked = match message {
            Message::Reserve { epoch, extent } if is_source && epoch == epoch_here => Some(extent),
            _ => None,
        };
        hub.step_locked(&mut state, Event::Said(peer, message));
        drop(state);
        hub.ring_bell(Lane::Copies(peer.member));
        let Some(extent) = asked else { return };
        let end = extent.offset + extent.len;
        let size = match self.volumes.reserve(extent.volume, end) {
            Ok(()) => end,
            Err(TooShort(size)) => size,
        };
        let answer = Message::Reserved { extent, size };
        hub.take(&mut hub.lock(), vec![Action::Send(peer, answer)]);
    }
}

/// How long a member may take to make room, in nanoseconds.
const ANSWER_NS: u64 = 8_000_000_000;

const SIZE_UNIT: u32 = 4096;
