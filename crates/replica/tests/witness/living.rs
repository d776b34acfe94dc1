//! Who is seen alive.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use replica::witness::etcd::{Etcd, EtcdOptions, View};
use replica::witness::{Alive, Sight, Witness};
use replica::{Lsn, MemberId};

use crate::proxy::{Mode, Proxy};
use crate::servers::Servers;
use crate::{alone, open, options};

/// What a watcher of a group sees.
struct Seen(Receiver<View>);

impl Seen {
    fn of(witness: &Etcd) -> Self {
        let (tell, told) = channel();
        // Who is not listened to any more is still told.
        witness.watch(Box::new(move |view| drop(tell.send(view)))).unwrap();
        Self(told)
    }

    /// Waits for a view.
    fn until(&self, mut is_it: impl FnMut(&View) -> bool) -> View {
        let (began, mut last) = (Instant::now(), None);
        while let Some(left) = WAITS.checked_sub(began.elapsed()) {
            let Ok(view) = self.0.recv_timeout(left) else { break };
            if is_it(&view) {
                return view;
            }
            last = Some(view);
        }
        panic!("never seen; last was {last:?}");
    }

    fn sight(&self, mut is_it: impl FnMut(&Sight) -> bool) -> Sight {
        let view = self.until(|view| matches!(view, View::Seen(sight) if is_it(sight)));
        match view {
            View::Seen(sight) => sight,
            View::Blind(error) => panic!("{error}"),
        }
    }

    fn members(&self, numbers: &[u8]) -> Sight {
        self.sight(|sight| {
            sight.alive.iter().map(|(member, _)| member.0).eq(numbers.iter().copied())
        })
    }
}

const WAITS: Duration = Duration::from_secs(60);

fn short(member: u8, endpoints: Vec<String>) -> Etcd {
    let lease = Duration::from_secs(1);
    Etcd::open(EtcdOptions { lease, ..options(member, endpoints) }).unwrap()
}

fn destination(end: u64) -> Option<Alive> {
    Some(Alive { end: Lsn(end), is_in_sync: true, is_fit: true, ..Alive::default() })
}

#[test]
fn members_are_seen_while_they_say_that_they_live() {
    let servers = Servers::start(1);
    let watcher = open(7, servers.endpoints());
    let seen = Seen::of(&watcher);
    seen.members(&[]);
    let (one, other) = (short(0, servers.endpoints()), short(2, servers.endpoints()));
    one.announce(destination(64));
    seen.members(&[0]);
    other.announce(destination(128));
    let sight = seen.members(&[0, 2]);
    assert_eq!(sight.of(MemberId(2)), destination(128).as_ref());
    // What it is, and how far it is, follows.
    other.announce(destination(640));
    seen.sight(|sight| sight.of(MemberId(2)) == destination(640).as_ref());
    let source = destination(640).map(|alive| Alive { is_source: true, ..alive });
    other.announce(source);
    seen.sight(|sight| sight.of(MemberId(2)) == source.as_ref());
    // The lease is renewed: nobody is gone after three times its time.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        if let Ok(view) = seen.0.recv_timeout(Duration::from_millis(100)) {
            let View::Seen(sight) = &view else { panic!("{view:?}") };
            assert_eq!(sight.alive.len(), 2, "{sight:?}");
        }
    }
    other.announce(None);
    seen.members(&[0]);
    drop(one);
    seen.members(&[]);
}

#[test]
fn a_member_that_is_cut_off_is_gone_after_its_lease_and_comes_back() {
    let servers = Servers::start(1);
    let proxy = Proxy::new(servers.port(0));
    let seen_from = open(7, servers.endpoints());
    let seen = Seen::of(&seen_from);
    let member = short(1, vec![proxy.endpoint()]);
    let blind = Seen::of(&member);
    member.announce(destination(64));
    seen.members(&[1]);
    blind.members(&[1]);
    proxy.set(Mode::Held);
    seen.members(&[]);
    let view = blind.until(|view| matches!(view, View::Blind(_)));
    let View::Blind(error) = view else { unreachable!() };
    assert!(error.to_string().contains(&proxy.endpoint()), "{error}");
    proxy.set(Mode::Open);
    seen.members(&[1]);
    blind.members(&[1]);
}

#[test]
fn the_record_and_the_maintenance_switch_are_seen() {
    let servers = Servers::start(1);
    let witness = open(0, servers.endpoints());
    let seen = Seen::of(&witness);
    seen.sight(|sight| sight.seat.is_none() && !sight.is_maintenance);
    assert!(witness.propose(&alone(1, 0)).unwrap());
    seen.sight(|sight| sight.seat == Some(alone(1, 0)));
    witness.maintain(true).unwrap();
    seen.sight(|sight| sight.is_maintenance);
    witness.maintain(true).unwrap();
    witness.maintain(false).unwrap();
    seen.sight(|sight| !sight.is_maintenance);
    let key = options(0, Vec::new()).seat_key();
    servers.raw().put(&key, "else");
    let view = seen.until(|view| matches!(view, View::Blind(_)));
    let View::Blind(error) = view else { unreachable!() };
    assert!(error.to_string().contains(&key), "{error}");
}

#[test]
fn who_is_alive_is_seen_through_a_killed_and_a_hanging_leader() {
    let mut servers = Servers::start(3);
    let (watcher, member) = (open(7, servers.endpoints()), short(1, servers.endpoints()));
    let seen = Seen::of(&watcher);
    member.announce(destination(64));
    seen.members(&[1]);
    let leader = servers.leader();
    servers.kill(leader);
    member.announce(destination(128));
    seen.sight(|sight| sight.of(MemberId(1)) == destination(128).as_ref());
    servers.restart(leader);
    let leader = servers.leader();
    servers.stop(leader);
    member.announce(destination(192));
    seen.sight(|sight| sight.of(MemberId(1)) == destination(192).as_ref());
    servers.go_on(leader);
    drop(member);
    seen.members(&[]);
}
