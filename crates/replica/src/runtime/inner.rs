//! What the threads of a member share.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use log::Lsn;

use super::carrier::Carrier;
use super::hub::{Hub, State};
use super::ranges::Ranges;
use super::volumes::Volumes;
use crate::core::Action;
use crate::digest::Digester;
use crate::message::{Message, Peer, Refusal};
use crate::names::{Epoch, MemberId};
use crate::one_sided::{Hosting, OneSidedOptions};
use crate::ring::Ring;
use crate::wire::{Identity, LinkError, LinkOptions, Policy};
use crate::witness::Witness;

/// What the threads of a member share.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) hub: Arc<Hub>,
    pub(super) ring: Ring,
    /// The records of its epochs are sealed.
    pub(super) seals: bool,
    pub(super) volumes: Volumes,
    pub(super) ranges: Ranges,
    /// One at a time.
    pub(super) resizing: Mutex<()>,
    pub(super) digester: Digester,
    pub(super) witness: Arc<dyn Witness>,
    pub(super) compression: RwLock<Policy>,
    pub(super) wire: Wire,
    /// By number of the member.
    pub(super) carriers: Vec<Mutex<Carrier>>,
    pub(super) one_sided: Option<OneSidedOptions>,
    /// Lets sources write into the ring.
    pub(super) hosting: Option<Hosting>,
}

/// How the other members are reached.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) identity: Identity,
    pub(super) addresses: Vec<(MemberId, Vec<String>)>,
    pub(super) options: LinkOptions,
}

impl Inner {
    pub(super) fn resume(&self, above: Epoch) -> Result<(), std::io::Error> {
        let nonce = self.nonce()?;
        let mut state = self.hub.lock();
        let actions = state.core.resume_as_source(self.hub.now(), nonce, above);
        self.hub.take(&mut state, actions);
        Ok(())
    }

    /// Bytes of each volume at a point that the ring keeps; where it does so no more, at the end of the order.
    pub(super) fn sizes_at(&self, at: Lsn) -> Vec<u64> {
        let core = &self.hub.lock().core;
        match core.kept().0 <= at {
            true => core.sizes_at(at),
            false => core.sizes().to_vec(),
        }
    }

    /// How payloads are packed.
    pub(super) fn compression(&self) -> Policy {
        *self.compression.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a connection on which something came that has no place there.
    pub(super) fn refuse(&self, state: &mut State, peer: Peer) {
        let refusal = Message::Refused(Refusal::OutOfOrder);
        self.hub.take(state, vec![Action::Send(peer, refusal), Action::Disconnect(peer)]);
    }

    pub(super) fn nonce(&self) -> Result<u64, std::io::Error> {
        let mut bytes = [0; 8];
        let filled = self.hub.environment.random.fill(&mut bytes);
        filled.map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(u64::from_le_bytes(bytes))
    }
}

impl Wire {
    pub(super) fn dial(&self, member: MemberId) -> Result<crate::wire::Link, LinkError> {
        let addresses = self.addresses.iter().find(|(of, _)| *of == member);
        let addresses = addresses.map(|(_, addresses)| &addresses[..]).unwrap_or_default();
        crate::wire::dial(addresses, &self.identity, member, &self.options)
    }
}
