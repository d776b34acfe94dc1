//! A witness in etcd: a key for the group's record, and keys of members that are alive.
//!
//! ```text
//!   /landfast/replica/<group>/seat             the record; changed by transactions that compare its revision
//!   /landfast/replica/<group>/alive/<member>   under a lease of the member: gone soon after the member
//!   /landfast/replica/<group>/maintenance      while it is there, nobody is promoted by itself
//! ```
//!
//! Correctness rests on the record alone. The keys under leases say who is likely to live: a member that looks dead may write on,
//! and one that looks alive may be dead. Who is promoted too early, too late or for no reason is refused by the record, or has
//! all that was acknowledged.
//!
//! Etcd is asked by its gRPC gateway, JSON over HTTP, which it has on unless an operator turns it off: etcd's own protocol would
//! need a compiler for its messages at each build, and some fifty crates. An endpoint has [`ATTEMPT`] to answer, then the next one is
//! asked, three attempts at least.

mod announcing;
pub mod answer;
mod cluster;
mod options;
mod watching;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use serde_json::json;

use self::announcing::Announced;
use self::answer::encoded;
use self::cluster::{Cluster, key};
pub use self::options::{ATTEMPT, ENDPOINTS_MAX, EtcdOptions, EtcdTls, LEASE, OptionError};
pub use self::watching::{View, Watcher};
use super::alive::Alive;
use super::error::Asked;
use super::seat::{Rule, Seat};
use super::{Witness, WitnessError};

/// The witness of one group in etcd. Calls wait for each other.
#[derive(Debug)]
pub struct Etcd {
    cluster: Mutex<Cluster>,
    announced: Arc<Announced>,
    announcing: Option<JoinHandle<()>>,
    has_ended: Arc<AtomicBool>,
}

impl Etcd {
    /// Starts the thread that says that this member is alive. Etcd need not be there yet.
    ///
    /// # Errors
    ///
    /// The options cannot be used, or the thread cannot be started.
    pub fn open(options: EtcdOptions) -> Result<Self, WitnessError> {
        options.check()?;
        let has_ended = Arc::new(AtomicBool::new(false));
        let cluster = Cluster::new(options.clone(), options.attempt, Arc::clone(&has_ended))?;
        let announced = Arc::new(Announced::default());
        let announcing = match options.member {
            Some(member) => {
                let (said, ended) = (Arc::clone(&announced), Arc::clone(&has_ended));
                Some(announcing::start(options, member, said, ended)?)
            }
            None => None,
        };
        Ok(Self { cluster: Mutex::new(cluster), announced, announcing, has_ended })
    }

    /// Says that this member is alive, and what it is, from now on; `None`: that it is gone. Does not wait.
    pub fn announce(&self, alive: Option<Alive>) {
        self.announced.say(alive);
    }

    /// Calls `watcher`, in a thread of its own, with what is seen of the group now and after each change, until some seconds
    /// after this witness is dropped.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn watch(&self, watcher: Watcher) -> Result<(), WitnessError> {
        let options = self.cluster().options.clone();
        watching::start(options, watcher, Arc::clone(&self.has_ended))
    }

    /// Stops all promotion that nobody asks for, or allows it again.
    ///
    /// # Errors
    ///
    /// See [`WitnessError`].
    pub fn maintain(&self, is_maintenance: bool) -> Result<(), WitnessError> {
        let mut cluster = self.cluster();
        let name = cluster.options.maintenance_key();
        let asked = Asked::Maintenance;
        match is_maintenance {
            true => {
                let on = json!({"key": encoded(name), "value": encoded("on")});
                cluster.call_known(asked, "/v3/kv/put", &on)?
            }
            false => cluster.call_known(asked, "/v3/kv/deleterange", &key(&name))?,
        };
        Ok(())
    }

    // A caller that has panicked leaves nothing half done: each call begins anew.
    fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Witness for Etcd {
    fn load(&self) -> Result<Option<Seat>, WitnessError> {
        Ok(load(&mut self.cluster())?.map(|(seat, _)| seat))
    }

    fn record(&self, rule: Rule, wanted: &Seat) -> Result<bool, WitnessError> {
        record(&mut self.cluster(), rule, wanted)
    }
}

impl Drop for Etcd {
    /// The member's key goes, if etcd answers soon.
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.announced.wake();
        if let Some(announcing) = self.announcing.take() {
            let _ = announcing.join();
        }
    }
}

/// The record, and its revision.
fn load(cluster: &mut Cluster) -> Result<Option<(Seat, i64)>, WitnessError> {
    let name = cluster.options.seat_key();
    let answer = cluster.call_known(Asked::Load, "/v3/kv/range", &key(&name))?;
    let pairs = answer.pairs().ok_or_else(|| cluster.garbled(Asked::Load))?;
    let Some(pair) = pairs.first() else { return Ok(None) };
    let seat = Seat::parse(&cluster.options.group, &pair.value)
        .map_err(|cause| WitnessError::Foreign { place: format!("key {name}"), cause })?;
    Ok(Some((seat, pair.revision)))
}

// Whatever became of a transaction, the record says it: a transaction whose answer was lost is asked for again, and takes effect
// once, because the first one changes the revision that the second one compares.
fn record(cluster: &mut Cluster, rule: Rule, wanted: &Seat) -> Result<bool, WitnessError> {
    let (name, value) =
        (encoded(cluster.options.seat_key()), encoded(wanted.emit(&cluster.options.group)));
    for _ in 0..ROUNDS_MAX {
        let recorded = load(cluster)?;
        let (seat, revision) = match &recorded {
            Some((seat, revision)) => (Some(seat), *revision),
            None => (None, 0),
        };
        if seat == Some(wanted) {
            return Ok(true);
        }
        if !rule.allows(seat, wanted) {
            return Ok(false);
        }
        let is_still = json!({
            "key": name, "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string(),
        });
        let put = json!({"request_put": {"key": name, "value": value}});
        let change = json!({"compare": [is_still], "success": [put]});
        if cluster.call_known(Asked::Record, "/v3/kv/txn", &change)?.is("succeeded") {
            return Ok(true);
        }
    }
    Err(WitnessError::Contended { rounds: ROUNDS_MAX })
}

/// A record that changes so often under a member is none that this member should change.
const ROUNDS_MAX: u32 = 16;
