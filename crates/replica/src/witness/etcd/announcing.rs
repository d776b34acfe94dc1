//! A member says that it is alive: a key under a lease that is renewed.

use std::time::Duration;

use etcd_client::{Client, Error, PutOptions};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::cluster::Cluster;
use super::options::EtcdOptions;
use crate::names::MemberId;
use crate::witness::WitnessError;
use crate::witness::alive::Alive;
use crate::witness::error::Asked;

/// Ends when `ended` does.
pub(super) async fn announce(
    options: EtcdOptions,
    member: MemberId,
    mut said: watch::Receiver<Option<Alive>>,
    mut ended: watch::Receiver<()>,
) {
    let beat = options.lease / BEATS;
    let key = options.alive_key(member);
    let mut cluster = Cluster::new(options, beat.max(ANSWER_MIN));
    let mut lease = None;
    loop {
        let began = Instant::now();
        let alive = *said.borrow_and_update();
        let outcome = match alive {
            Some(alive) => beat_once(&mut cluster, &mut lease, &key, alive).await,
            None => revoke(&mut cluster, &mut lease).await,
        };
        if let Err(error) = outcome {
            tracing::warn!("{error}");
        }
        // A change of what it is goes out at once, a change of where its order ends with the next beat.
        let is_news = |now: &Option<Alive>| kind(*now) != kind(alive);
        tokio::select! {
            () = sleep_until(began + beat) => {}
            changed = said.wait_for(is_news) => if changed.is_err() { break },
            _ = ended.changed() => break,
        }
    }
    // Whoever waits for this member to be gone need not wait for the lease to end.
    let _ = timeout(LEAVE_LIMIT, revoke(&mut cluster, &mut lease)).await;
}

/// A lease that etcd has granted, and what stands under it.
struct Lease {
    id: i64,
    stands: Option<Alive>,
}

async fn beat_once(
    cluster: &mut Cluster,
    lease: &mut Option<Lease>,
    key: &str,
    alive: Alive,
) -> Result<(), WitnessError> {
    if let Some(held) = lease {
        let id = held.id;
        let renew = async |client: &mut Client| match client.lease_keep_alive(id).await {
            Ok(_) => Ok(true),
            // It has ended.
            Err(Error::LeaseKeepAliveError(_)) => Ok(false),
            Err(error) => Err(error),
        };
        if !cluster.call(Asked::Announce, renew).await? {
            *lease = None;
        }
    }
    let held = match lease {
        Some(held) => held,
        None => {
            let seconds = i64::try_from(cluster.options.lease.as_secs()).unwrap_or(i64::MAX);
            let grant = async |client: &mut Client| client.lease_grant(seconds, None).await;
            let id = cluster.call(Asked::Announce, grant).await?.id();
            lease.insert(Lease { id, stands: None })
        }
    };
    if held.stands == Some(alive) {
        return Ok(());
    }
    let (id, value) = (held.id, alive.emit());
    let put = async |client: &mut Client| {
        let options = PutOptions::new().with_lease(id);
        match client.put(key, &*value, Some(options)).await {
            Ok(_) => Ok(true),
            // gRPC's 5, not found: the lease has ended.
            Err(Error::GRpcStatus(status)) if i32::from(status.code()) == 5 => Ok(false),
            Err(error) => Err(error),
        }
    };
    match cluster.call(Asked::Announce, put).await? {
        true => held.stands = Some(alive),
        false => *lease = None,
    }
    Ok(())
}

async fn revoke(cluster: &mut Cluster, lease: &mut Option<Lease>) -> Result<(), WitnessError> {
    let Some(Lease { id, .. }) = *lease else { return Ok(()) };
    let revoke = async |client: &mut Client| client.lease_revoke(id).await;
    let outcome = cluster.call(Asked::Announce, revoke).await;
    *lease = None;
    outcome.map(|_| ())
}

fn kind(alive: Option<Alive>) -> Option<Alive> {
    alive.map(|alive| Alive { end: log::Lsn(0), ..alive })
}

/// So often in the time of a lease it is renewed.
const BEATS: u32 = 4;
/// An endpoint has at least this long to answer.
const ANSWER_MIN: Duration = Duration::from_millis(500);
/// A member that ends tells etcd so within this time, or not at all.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);
