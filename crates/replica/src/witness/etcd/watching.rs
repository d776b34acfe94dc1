//! Sees who is alive in a group, and what its record says.

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_client::{Client, EventType, GetOptions, KeyValue, WatchOptions, WatchStream};
use tokio::time::{Instant, timeout_at};

use super::cluster::Cluster;
use super::options::{ALIVE, EtcdOptions, MAINTENANCE, SEAT};
use super::{ATTEMPT, View, Watcher};
use crate::names::{MEMBERS_MAX, MemberId};
use crate::witness::WitnessError;
use crate::witness::alive::{Alive, Sight};
use crate::witness::error::Asked;
use crate::witness::seat::Seat;

/// Tells `watcher` what is seen, for ever.
pub(super) async fn watch(options: EtcdOptions, mut watcher: Watcher) {
    let mut cluster = Cluster::new(options, ATTEMPT);
    let mut told = None;
    loop {
        let began = Instant::now();
        if let Err(error) = look(&mut cluster, &mut watcher, &mut told).await {
            told = None;
            watcher(View::Blind(error));
        }
        tokio::time::sleep_until(began + PAUSE).await;
    }
}

// One look at everything, then what changes, until the look is too old: a watch that is stuck looks like a group in which nothing
// happens. The look is one that most members of etcd agree on.
async fn look(
    cluster: &mut Cluster,
    watcher: &mut Watcher,
    told: &mut Option<Sight>,
) -> Result<(), WitnessError> {
    let prefix = cluster.options.prefix();
    let until = Instant::now() + LOOK_AGE_MAX;
    let see = async |client: &mut Client| {
        let found = client.get(&*prefix, Some(GetOptions::new().with_prefix())).await?;
        let revision = found.header().map_or(0, etcd_client::ResponseHeader::revision);
        let options = WatchOptions::new().with_prefix().with_start_revision(revision + 1);
        let stream = client.watch(&*prefix, Some(options)).await?;
        Ok((found, stream))
    };
    let (found, mut stream) = cluster.call(Asked::Watch, see).await?;
    let mut keys: Keys = found.kvs().iter().map(|kv| (kv.key().to_owned(), value(kv))).collect();
    loop {
        let sight = sight(&cluster.options, &keys)?;
        if told.as_ref() != Some(&sight) {
            watcher(View::Seen(sight.clone()));
            *told = Some(sight);
        }
        if !next(&mut stream, &mut keys, until).await {
            return Ok(());
        }
    }
}

// Applies what changes; false when it is time to look again.
async fn next(stream: &mut WatchStream, keys: &mut Keys, until: Instant) -> bool {
    let Ok(Ok(Some(response))) = timeout_at(until, stream.message()).await else { return false };
    if response.canceled() {
        return false;
    }
    for event in response.events() {
        let Some(kv) = event.kv() else { continue };
        match event.event_type() {
            EventType::Put => keys.insert(kv.key().to_owned(), value(kv)),
            EventType::Delete => keys.remove(kv.key()),
        };
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
fn value(kv: &KeyValue) -> Vec<u8> {
    let value = kv.value();
    value[..value.len().min(VALUE_MAX)].to_vec()
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
