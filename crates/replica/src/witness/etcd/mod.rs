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
//! A thread of its own talks to etcd, with a runtime that nothing else sees; calls wait for it, for a bounded time. Times: an endpoint has
//! [`ATTEMPT`] to answer, then the next one is asked, three attempts at least.

mod announcing;
mod cluster;
mod options;
mod watching;

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

use self::cluster::Cluster;
pub use self::options::{ENDPOINTS_MAX, EtcdOptions, EtcdTls, LEASE, OptionError};
use super::alive::{Alive, Sight};
use super::error::Asked;
use super::seat::{Rule, Seat};
use super::{Witness, WitnessError};

/// The witness of one group in etcd.
#[derive(Debug)]
pub struct Etcd {
    orders: Option<mpsc::UnboundedSender<Order>>,
    alive: watch::Sender<Option<Alive>>,
    thread: Option<JoinHandle<()>>,
}

/// What a watcher is told.
#[derive(Debug)]
pub enum View {
    /// The group as it is now.
    Seen(Sight),
    /// Nothing is known now, and what was seen before may have changed.
    Blind(WitnessError),
}

/// What hears of each change that is seen.
pub type Watcher = Box<dyn FnMut(View) + Send>;

/// What the thread is to do. Each caller waits for its answer, so there are as many as threads that call.
enum Order {
    Load(SyncSender<Result<Option<Seat>, WitnessError>>),
    Record(Rule, Seat, SyncSender<Result<bool, WitnessError>>),
    Maintain(bool, SyncSender<Result<(), WitnessError>>),
    Watch(Watcher),
}

impl Etcd {
    /// Starts the thread that talks to etcd. Etcd need not be there yet.
    ///
    /// # Errors
    ///
    /// The options cannot be used, or the thread cannot be started.
    pub fn open(options: EtcdOptions) -> Result<Self, WitnessError> {
        options.check()?;
        let (orders, taken) = mpsc::unbounded_channel();
        let (alive, said) = watch::channel(None);
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(WitnessError::Thread)?;
        let thread = std::thread::Builder::new()
            .name("witness".to_owned())
            .spawn(move || LocalSet::new().block_on(&runtime, serve(options, taken, said)))
            .map_err(WitnessError::Thread)?;
        Ok(Self { orders: Some(orders), alive, thread: Some(thread) })
    }

    /// Says that this member is alive, and what it is, from now on; `None`: that it is gone. Does not wait.
    pub fn announce(&self, alive: Option<Alive>) {
        self.alive.send_if_modified(|said| {
            let differs = *said != alive;
            *said = alive;
            differs
        });
    }

    /// Calls `watcher` from the thread of the witness with what is seen of the group now, and after each change.
    pub fn watch(&self, watcher: Watcher) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(Order::Watch(watcher));
        }
    }

    /// Stops all promotion that nobody asks for, or allows it again.
    ///
    /// # Errors
    ///
    /// See [`WitnessError`].
    pub fn maintain(&self, is_maintenance: bool) -> Result<(), WitnessError> {
        self.ask(|reply| Order::Maintain(is_maintenance, reply))
    }

    fn ask<T>(
        &self,
        order: impl FnOnce(SyncSender<Result<T, WitnessError>>) -> Order,
    ) -> Result<T, WitnessError> {
        let (reply, answer) = sync_channel(1);
        let orders = self.orders.as_ref().ok_or(WitnessError::Ended)?;
        orders.send(order(reply)).map_err(|_| WitnessError::Ended)?;
        answer.recv().map_err(|_| WitnessError::Ended)?
    }
}

impl Witness for Etcd {
    fn load(&self) -> Result<Option<Seat>, WitnessError> {
        self.ask(Order::Load)
    }

    fn record(&self, rule: Rule, wanted: &Seat) -> Result<bool, WitnessError> {
        self.ask(|reply| Order::Record(rule, *wanted, reply))
    }
}

impl Drop for Etcd {
    /// The member's key goes, if etcd answers soon.
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

// The program of the thread: ends when the handle is dropped.
async fn serve(
    options: EtcdOptions,
    mut orders: mpsc::UnboundedReceiver<Order>,
    said: watch::Receiver<Option<Alive>>,
) {
    let (ends, ended) = watch::channel(());
    let announcing = options.member.map(|member| {
        let task = announcing::announce(options.clone(), member, said, ended.clone());
        tokio::task::spawn_local(task)
    });
    let mut cluster = Cluster::new(options, ATTEMPT);
    while let Some(order) = orders.recv().await {
        // A caller that is gone needs no answer.
        match order {
            Order::Load(reply) => {
                let seat = load(&mut cluster).await;
                let _ = reply.send(seat.map(|found| found.map(|(seat, _)| seat)));
            }
            Order::Record(rule, wanted, reply) => {
                let _ = reply.send(record(&mut cluster, rule, &wanted).await);
            }
            Order::Maintain(is_maintenance, reply) => {
                let _ = reply.send(maintain(&mut cluster, is_maintenance).await);
            }
            Order::Watch(watcher) => {
                let options = cluster.options.clone();
                tokio::task::spawn_local(watching::watch(options, watcher));
            }
        }
    }
    drop(ends);
    if let Some(announcing) = announcing {
        let _ = announcing.await;
    }
}

/// The record, and its revision.
async fn load(cluster: &mut Cluster) -> Result<Option<(Seat, i64)>, WitnessError> {
    let key = cluster.options.seat_key();
    let found = cluster.call(Asked::Load, async |client| client.get(&*key, None).await).await?;
    let Some(found) = found.kvs().first() else { return Ok(None) };
    let seat = Seat::parse(&cluster.options.group, found.value())
        .map_err(|cause| WitnessError::Foreign { place: format!("key {key}"), cause })?;
    Ok(Some((seat, found.mod_revision())))
}

// Whatever became of a transaction, the record says it: a transaction whose answer was lost is asked for again, and takes effect
// once, because the first one changes the revision that the second one compares.
async fn record(cluster: &mut Cluster, rule: Rule, wanted: &Seat) -> Result<bool, WitnessError> {
    let key = cluster.options.seat_key();
    let value = wanted.emit(&cluster.options.group);
    for _ in 0..ROUNDS_MAX {
        let recorded = load(cluster).await?;
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
        let change = async |client: &mut etcd_client::Client| {
            let is_still = Compare::mod_revision(&*key, CompareOp::Equal, revision);
            let txn = Txn::new().when([is_still]).and_then([TxnOp::put(&*key, &*value, None)]);
            client.txn(txn).await
        };
        if cluster.call(Asked::Record, change).await?.succeeded() {
            return Ok(true);
        }
    }
    Err(WitnessError::Contended { rounds: ROUNDS_MAX })
}

async fn maintain(cluster: &mut Cluster, is_maintenance: bool) -> Result<(), WitnessError> {
    let key = cluster.options.maintenance_key();
    let change = async |client: &mut etcd_client::Client| match is_maintenance {
        true => client.put(&*key, "on", None).await.map(|_| ()),
        false => client.delete(&*key, None).await.map(|_| ()),
    };
    cluster.call(Asked::Maintenance, change).await
}

/// How long an endpoint is waited for.
pub const ATTEMPT: Duration = Duration::from_secs(3);
/// A record that changes so often under a member is none that this member should change.
const ROUNDS_MAX: u32 = 16;
