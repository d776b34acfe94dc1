//! The receive buffers of one connection: one registered region, cut into slots.
//!
//! A few slots are posted for a peer that has not authenticated, the rest once it has and there is room for them among
//! what its user, or all guests, may have: a connection for which there is none goes on with few. The system supplies
//! memory slot by slot as messages arrive, so an unauthenticated peer costs as much as it has sent.

use std::sync::Arc;

use pmem::Medium;
use rdma::{Access, Engine, MemoryRegion, QpId};

use super::error::End;
use crate::state::{Account, Hold, Resource};

/// See the module.
#[derive(Debug)]
pub(super) struct Receives {
    qp: QpId,
    medium: Arc<dyn Medium>,
    region: MemoryRegion,
    /// Slots `0..used` are posted, being read, or withheld.
    used: u16,
    withheld: Vec<u16>,
    /// For all slots, once they are posted.
    room: Option<Hold>,
}

impl Receives {
    /// Registers the buffers and posts those for the authentication.
    pub(super) fn new(engine: &mut dyn Engine, qp: QpId) -> Result<Self, End> {
        let len = u64::from(SLOTS) * u64::from(SLOT_LEN);
        let medium = pmem::anonymous(len)?;
        let region = engine.register(qp, Arc::clone(&medium), 0..len, Access::RECEIVE)?;
        let mut receives = Self { qp, medium, region, used: 0, withheld: Vec::new(), room: None };
        receives.post_up_to(engine, SLOTS_UNAUTHENTICATED)?;
        Ok(receives)
    }

    /// Posts all slots, if there is room for them; returns how many that added.
    pub(super) fn post_all(
        &mut self,
        engine: &mut dyn Engine,
        holder: &Arc<Account>,
    ) -> Result<u16, End> {
        if self.room.is_none() {
            self.room = holder.try_take(Resource::Receives, BYTES);
        }
        if self.room.is_some() { self.post_up_to(engine, SLOTS) } else { Ok(0) }
    }

    /// Counts them for `holder`, if they are counted for somebody else and it has room for them.
    pub(super) fn move_to(&mut self, holder: &Arc<Account>) {
        if self.room.as_ref().is_some_and(|room| !room.is_of(holder))
            && let Some(room) = holder.try_take(Resource::Receives, BYTES)
        {
            self.room = Some(room);
        }
    }

    /// Whether all slots are posted.
    pub(super) fn are_all(&self) -> bool {
        self.room.is_some()
    }

    fn post_up_to(&mut self, engine: &mut dyn Engine, count: u16) -> Result<u16, End> {
        let added = count.saturating_sub(self.used);
        for _ in 0..added {
            self.post(engine, self.used)?;
            self.used += 1;
        }
        Ok(added)
    }

    /// Posts a slot whose message was handled.
    pub(super) fn post(&self, engine: &mut dyn Engine, slot: u16) -> Result<(), End> {
        let buffer = self.region.slice(place(slot), SLOT_LEN);
        Ok(engine.post_recv(self.qp, u64::from(slot), buffer)?)
    }

    /// Withholds a slot, because the peer does not receive its answers; `false` if half of the
    /// slots are withheld already. With none left, neither side could send the message that ends
    /// the wait: this side's last send credit is for a message that grants one (MS-SMBD §3.1.5.1).
    pub(super) fn withhold(&mut self, slot: u16) -> bool {
        let may = self.withheld.len() < usize::from(self.used / 2);
        if may {
            self.withheld.push(slot);
        }
        may
    }

    /// Posts the withheld slots; returns their number.
    pub(super) fn post_withheld(&mut self, engine: &mut dyn Engine) -> Result<u16, End> {
        let mut count = 0;
        while let Some(slot) = self.withheld.pop() {
            self.post(engine, slot)?;
            count += 1;
        }
        Ok(count)
    }

    /// Copies a received message out; `out` is as long as the message.
    pub(super) fn read(&self, slot: u16, out: &mut [u8]) -> Result<(), End> {
        Ok(self.medium.try_read(place(slot), out)?)
    }
}

fn place(slot: u16) -> u64 {
    u64::from(slot) * u64::from(SLOT_LEN)
}

/// The size of a receive buffer, which Windows uses as well: holds a request with its descriptors.
pub(super) const SLOT_LEN: u32 = 8192;
/// Receive buffers of a connection: the credits Linux and Windows ask for. 2 MiB.
pub(super) const SLOTS: u16 = 255;
/// Receive buffers before authentication: one for each of its few messages, 128 KiB.
pub(super) const SLOTS_UNAUTHENTICATED: u16 = 16;
/// What all slots hold.
const BYTES: usize = SLOTS as usize * SLOT_LEN as usize;
