//! All regions, found by name, by connection and by open without a look at the others.
//!
//! The engine thread and the control side share the lock of this table, so no operation under the lock
//! may take longer because other users have more regions.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use remote::host::PushConnection;
use smb::push::RegistrationId;

use super::Region;
use crate::access::Identity;
use crate::state::OpenSerial;
use crate::state::fair_share::FairShare;

/// See the module.
#[derive(Debug)]
pub(super) struct Regions {
    /// Counts regions per user.
    places: FairShare<Identity>,
    by_id: HashMap<RegistrationId, Arc<Region>>,
    of_connections: BTreeSet<(u64, RegistrationId)>,
    of_opens: BTreeSet<(u64, RegistrationId)>,
}

impl Regions {
    pub(super) fn new(places: FairShare<Identity>) -> Self {
        let (of_connections, of_opens) = Default::default();
        Self { places, by_id: HashMap::new(), of_connections, of_opens }
    }

    /// Whether a user may have one more.
    pub(super) fn may_insert(&self, holder: &Identity) -> bool {
        self.places.may_take(holder)
    }

    pub(super) fn insert(&mut self, region: Arc<Region>) {
        self.places.take(&region.holder);
        self.of_connections.insert((region.connection().0, region.id));
        self.of_opens.insert((region.open_serial.0, region.id));
        self.by_id.insert(region.id, region);
    }

    pub(super) fn remove(&mut self, id: &RegistrationId) {
        let Some(region) = self.by_id.remove(id) else { return };
        self.places.give_back(&region.holder);
        self.of_connections.remove(&(region.connection().0, region.id));
        self.of_opens.remove(&(region.open_serial.0, region.id));
    }

    pub(super) fn get(&self, id: &RegistrationId) -> Option<&Arc<Region>> {
        self.by_id.get(id)
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Every region. As long as the table: for the operator, the sweep and the end of the server.
    pub(super) fn all(&self) -> Vec<Arc<Region>> {
        self.by_id.values().cloned().collect()
    }

    /// The regions of a connection.
    pub(super) fn of_connection(&self, PushConnection(name): PushConnection) -> Vec<Arc<Region>> {
        self.named(&self.of_connections, name)
    }

    /// The regions of an open, oldest first.
    pub(super) fn of_open(&self, OpenSerial(name): OpenSerial) -> Vec<Arc<Region>> {
        self.named(&self.of_opens, name)
    }

    /// How many regions an open has.
    pub(super) fn count_of_open(&self, OpenSerial(name): OpenSerial) -> usize {
        self.of_opens.range(all_of(name)).count()
    }

    fn named(&self, index: &BTreeSet<(u64, RegistrationId)>, name: u64) -> Vec<Arc<Region>> {
        let ids = index.range(all_of(name));
        ids.filter_map(|(_, id)| self.by_id.get(id).cloned()).collect()
    }
}

fn all_of(name: u64) -> std::ops::RangeInclusive<(u64, RegistrationId)> {
    (name, RegistrationId(0))..=(name, RegistrationId(u64::MAX))
}
