//! Sees who is alive in a group, and what its record says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::answer::{Change, Pair};
use super::cluster::{Cluster, Stream, below};
use super::options::{ALIVE, EtcdOptions, MAINTENANCE, SEAT};
use crate::names::{MEMBERS_MAX, MemberId};
use crate::witness::WitnessError;
use crate::witness::alive::{Alive, Sight};
use crate::witness::error::Asked;
use crate::witness::seat::Seat;

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

/// Starts a thread that tells `watcher` what is seen, until `has_ended`.
pub(super) fn start(
    options: EtcdOptions,
    mut watcher: Watcher,
    has_ended: Arc<AtomicBool>,
) -> Result<(), WitnessError> {
    let attempt = options.attempt;
    let mut cluster = Cluster::new(options, attempt, Arc::clone(&has_ended))?;
    let mut told = None;
    std::thread::Builder::new()
        .name("watch".to_owned())
        .spawn(move || {
            let is_over = || has_ended.load(Ordering::Relaxed);
            while !is_over() {
                let began = Instant::now();
                let mut tell = |view| {
                    if !is_over() {
                        watcher(view);
                    }
                };
                if let Err(error) = look(&mut cluster, &mut tell, &mut told) {
                    told = None;
                    tell(View::Blind(error));
                }
                std::thread::sleep(PAUSE.saturating_sub(began.elapsed()));
            }
        })
        .map(|_| ())
        .map_err(WitnessError::Thread)
}

// One look at everything, then what changes, until the look is too old: a watch that is stuck looks like a group in which nothing
// happens. The look is one that most members of etcd agree on.
fn look(
    cluster: &mut Cluster,
    tell: &mut impl FnMut(View),
    told: &mut Option<Sight>,
) -> Result<(), WitnessError> {
    let all = below(&cluster.options.prefix());
    let found = cluster.call_known(Asked::Watch, "/v3/kv/range", &all)?;
    let pairs = found.pairs().ok_or_else(|| cluster.garbled(Asked::Watch))?;
    let mut keys: Keys = pairs.into_iter().map(kept).collect();
    see(cluster, &keys, tell, told)?;
    let mut wanted = all;
    wanted["start_revision"] = (found.revision() + 1).to_string().into();
    let create = json!({"create_request": wanted});
    let mut stream = cluster.stream(Asked::Watch, "/v3/watch", &create, LOOK_AGE_MAX)?;
    while next(&mut stream, &mut keys) {
        see(cluster, &keys, tell, told)?;
    }
    Ok(())
}

fn see(
    cluster: &Cluster,
    keys: &Keys,
    tell: &mut impl FnMut(View),
    told: &mut Option<Sight>,
) -> Result<(), WitnessError> {
    let sight = sight(&cluster.options, keys)?;
    if told.as_ref() != Some(&sight) {
        tell(View::Seen(sight.clone()));
        *told = Some(sight);
    }
    Ok(())
}

// Applies what changes; false when it is time to look again.
fn next(stream: &mut Stream, keys: &mut Keys) -> bool {
    let Some(answer) = stream.next() else { return false };
    let Some(changes) = answer.changes().filter(|_| !answer.is("canceled")) else { return false };
    if answer.error().is_some() {
        return false;
    }
    for change in changes {
        match change {
            Change::Put(pair) => keys.extend([kept(pair)]),
            Change::Gone(key) => drop(keys.remove(&key)),
        }
    }
    keys.len() <= KEYS_MAX
}

/// What the keys say. A member whose value is not understood is not seen.
fn sight(options: &EtcdOptions, keys: &Keys) -> Result<Sight, WitnessError> {
    let prefix = options.prefix();
    let mut sight = Sight::default();
    for (key, value) in keys {
        let Some(name) = key.strip_prefix(prefix.as_bytes()) else { continue };
        let Ok(name) = str::from_utf8(name) else { continue };
        if name == SEAT {
            let seat = Seat::parse(&options.group, value).map_err(|cause| {
                WitnessError::Foreign { place: format!("key {}", options.seat_key()), cause }
            })?;
            sight.seat = Some(seat);
        } else if name == MAINTENANCE {
            sight.is_maintenance = true;
        } else if let Some(number) = name.strip_prefix(ALIVE)
            && let Some(member) = (0..MEMBERS_MAX).find(|member| member.to_string() == number)
            && let Ok(alive) = Alive::parse(value)
        {
            sight.alive.push((MemberId(member), alive));
        }
    }
    Ok(sight)
}

type Keys = BTreeMap<Vec<u8>, Vec<u8>>;

// More than any value of ours is not kept.
fn kept(pair: Pair) -> (Vec<u8>, Vec<u8>) {
    let Pair { key, mut value, .. } = pair;
    value.truncate(VALUE_MAX);
    (key, value)
}

/// What is seen is looked at anew after this time, with all that it takes.
const LOOK_AGE_MAX: Duration = Duration::from_secs(5);
/// Between the beginnings of looks, at least.
const PAUSE: Duration = Duration::from_millis(200);
/// Keys that are followed under the prefix of a group; a group has ten. With more it is looked at anew.
const KEYS_MAX: usize = 64;
/// Longer than any value of a group.
const VALUE_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{Epoch, GroupId};

    #[test]
    fn what_is_not_of_the_group_is_not_seen_and_a_foreign_record_is_an_error() {
        let group = GroupId([7; 16]);
        let options = EtcdOptions::new(group, None, vec!["http://127.0.0.1:1".to_owned()]);
        let seat = Seat::alone(Epoch { number: 1, restart: 0, nonce: 5 }, MemberId(2));
        let alive = Alive { is_fit: true, ..Alive::default() };
        let mut keys = Keys::new();
        let mut put = |key: String, value: &str| keys.insert(key.into(), value.into());
        put(options.seat_key(), &seat.emit(&group));
        put(options.alive_key(MemberId(2)), &alive.emit());
        put(options.alive_key(MemberId(3)), "else");
        put(format!("{}alive/8", options.prefix()), &alive.emit());
        put(format!("{}alive/02", options.prefix()), &alive.emit());
        put(format!("{}other", options.prefix()), "else");
        let seen = sight(&options, &keys).unwrap();
        let expected =
            Sight { seat: Some(seat), alive: vec![(MemberId(2), alive)], is_maintenance: false };
        assert_eq!(seen, expected);
        keys.insert(options.maintenance_key().into(), Vec::new());
        assert!(sight(&options, &keys).unwrap().is_maintenance);
        keys.insert(options.seat_key().into(), b"else".to_vec());
        let said = sight(&options, &keys).unwrap_err().to_string();
        assert!(said.contains(&options.seat_key()), "{said}");
    }
}
