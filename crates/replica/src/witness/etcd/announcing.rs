//! A member says that it is alive: a key under a lease that is renewed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use log::Lsn;
use serde_json::json;

use super::answer::encoded;
use super::cluster::{Cluster, Reply};
use super::options::EtcdOptions;
use crate::names::MemberId;
use crate::witness::WitnessError;
use crate::witness::alive::Alive;
use crate::witness::error::Asked;

/// What a member says of itself.
#[derive(Debug, Default)]
pub(super) struct Announced {
    said: Mutex<Option<Alive>>,
    bell: Condvar,
}

impl Announced {
    pub(super) fn say(&self, alive: Option<Alive>) {
        let mut said = self.said();
        let is_news = kind(*said) != kind(alive);
        *said = alive;
        drop(said);
        if is_news {
            self.bell.notify_all();
        }
    }

    pub(super) fn wake(&self) {
        // Whoever looks before it waits has looked by now, or sees the end.
        drop(self.said());
        self.bell.notify_all();
    }

    fn said(&self) -> MutexGuard<'_, Option<Alive>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // A change of what it is goes out at once, a change of where its order ends with the next beat.
    fn wait(&self, told: Option<Alive>, until: Instant, has_ended: &AtomicBool) {
        let mut said = self.said();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let is_over = has_ended.load(Ordering::Relaxed) || kind(*said) != kind(told);
            if is_over || left.is_zero() {
                return;
            }
            said = self.bell.wait_timeout(said, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn kind(alive: Option<Alive>) -> Option<Alive> {
    alive.map(|alive| Alive { end: Lsn(0), ..alive })
}

/// Starts the thread.
pub(super) fn start(
    options: EtcdOptions,
    member: MemberId,
    announced: Arc<Announced>,
    has_ended: Arc<AtomicBool>,
) -> Result<JoinHandle<()>, WitnessError> {
    let beat = options.lease / BEATS;
    let key = encoded(options.alive_key(member));
    let cluster = Cluster::new(options, beat.max(ANSWER_MIN), Arc::clone(&has_ended))?;
    let mut voice = Voice { cluster, key, lease: None };
    std::thread::Builder::new()
        .name("alive".to_owned())
        .spawn(move || {
            while !has_ended.load(Ordering::Relaxed) {
                let until = Instant::now() + beat;
                let alive = *announced.said();
                let outcome = match alive {
                    Some(alive) => voice.beat(alive),
                    None => voice.revoke(),
                };
                if let Err(error) = outcome {
                    tracing::warn!("{error}");
                }
                announced.wait(alive, until, &has_ended);
            }
            // Whoever waits for this member to be gone need not wait for the lease to end.
            let _ = voice.revoke();
        })
        .map_err(WitnessError::Thread)
}

struct Voice {
    cluster: Cluster,
    key: String,
    lease: Option<Lease>,
}

/// A lease that etcd has granted, and what stands under it.
struct Lease {
    id: i64,
    stands: Option<Alive>,
}

impl Voice {
    fn beat(&mut self, alive: Alive) -> Result<(), WitnessError> {
        if let Some(held) = &self.lease {
            let renew = json!({"ID": held.id.to_string()});
            let renewed = self.cluster.call(Asked::Announce, "/v3/lease/keepalive", &renew)?;
            // A lease that has ended has no time left.
            let is_held = matches!(renewed, Reply::Done(answer) if answer.number("TTL") > 0);
            if !is_held {
                self.lease = None;
            }
        }
        let held = match &mut self.lease {
            Some(held) => held,
            None => {
                let wanted = json!({"TTL": self.cluster.options.lease.as_secs().to_string()});
                let granted =
                    self.cluster.call_known(Asked::Announce, "/v3/lease/grant", &wanted)?;
                let id = granted.number("ID");
                self.lease.insert(Lease { id, stands: None })
            }
        };
        if held.stands == Some(alive) {
            return Ok(());
        }
        let put = json!({
            "key": self.key, "value": encoded(alive.emit()), "lease": held.id.to_string(),
        });
        match self.cluster.call(Asked::Announce, "/v3/kv/put", &put)? {
            Reply::Done(_) => held.stands = Some(alive),
            // The lease has ended.
            Reply::NotFound => self.lease = None,
        }
        Ok(())
    }

    fn revoke(&mut self) -> Result<(), WitnessError> {
        let Some(Lease { id, .. }) = self.lease.take() else { return Ok(()) };
        let revoke = json!({"ID": id.to_string()});
        self.cluster.call(Asked::Announce, "/v3/lease/revoke", &revoke).map(|_| ())
    }
}

/// So often in the time of a lease it is renewed.
const BEATS: u32 = 4;
/// An endpoint has at least this long to answer.
const ANSWER_MIN: Duration = Duration::from_millis(500);
