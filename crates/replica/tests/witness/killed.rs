//! Members as processes, each with its promoter, that are killed at any moment, as are the etcd; then the history of the
//! record in etcd is judged.
//!
//! A member here has no volumes: it is promoted, changes its set, and starts again, as the core would have it. It writes down
//! each seat that the witness gave it. In the history, every epoch has one source, every record follows the one before, and
//! every seat that a member was given is there.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use replica::witness::automatic::{Automatic, Promoted};
use replica::witness::etcd::{Etcd, EtcdOptions, View};
use replica::witness::promoter::{Decision, PromoterConfig, Standing};
use replica::witness::units::{Unit, Units};
use replica::witness::{Seat, Sight, Witness, may_follow};
use replica::{Epoch, MemberId, MemberSet};

use crate::servers::Servers;
use crate::{GROUP, options};

const MEMBER: &str = "LANDFAST_TEST_MEMBER";
const ENDPOINTS: &str = "LANDFAST_TEST_ENDPOINTS";
const DIRECTORY: &str = "LANDFAST_TEST_DIRECTORY";
/// How long members are killed; a longer run is asked for with this.
const SECONDS: &str = "LANDFAST_TEST_WITNESS_SECONDS";
const TEST: &str = "killed::every_epoch_has_one_source_though_members_and_etcd_are_killed";
const MEMBERS: u8 = 4;

/// Differs from every other, and looks like chance.
fn nonce() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mixed = u64::from(now.subsec_nanos()) ^ (u64::from(std::process::id()) << 32);
    mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ now.as_secs()
}

/// What a core would be.
struct Model {
    me: MemberId,
    etcd: Arc<Etcd>,
    label: std::path::PathBuf,
    claims: File,
    standing: Arc<Mutex<Standing>>,
    sight: Arc<Mutex<Option<Sight>>>,
    seat: Option<Seat>,
}

impl Model {
    /// Asks until the witness answers, as a driver has to.
    fn settle(&mut self, wanted: Seat) {
        let is_taken = loop {
            if let Ok(is_taken) = self.etcd.propose(&wanted) {
                break is_taken;
            }
        };
        if is_taken {
            writeln!(self.claims, "{}", wanted.emit(&GROUP)).unwrap();
            std::fs::write(self.label.with_extension("new"), wanted.emit(&GROUP)).unwrap();
            std::fs::rename(self.label.with_extension("new"), &self.label).unwrap();
        } else {
            let _ = std::fs::remove_file(&self.label);
        }
        self.seat = is_taken.then_some(wanted);
        self.stands();
    }

    fn stands(&self) {
        let recorded = self.sight.lock().unwrap().as_ref().and_then(|sight| sight.seat);
        let known = self.seat.or(recorded);
        *self.standing.lock().unwrap() = Standing {
            epoch: known.map_or_else(Epoch::default, |seat| seat.epoch),
            is_source: self.seat.is_some(),
            is_ready: self.seat.is_some(),
            may_be_source: true,
            in_sync: known.map_or(MemberSet::NONE, |seat| seat.in_sync),
            ..Standing::default()
        };
    }

    fn promote(&mut self, above: u32) {
        let epoch = Epoch { number: above + 1, restart: 0, nonce: nonce() };
        self.settle(Seat::alone(epoch, self.me));
    }

    /// It was the source when it was killed.
    fn resume(&mut self) {
        let Ok(text) = std::fs::read(&self.label) else { return };
        let was = Seat::parse(&GROUP, &text).unwrap();
        let recorded = loop {
            if let Ok(recorded) = self.etcd.load() {
                break recorded.unwrap();
            }
        };
        let Epoch { number, restart, .. } = was.epoch;
        let known = if recorded.epoch.number == number { recorded.epoch.restart } else { 0 };
        let epoch = Epoch { number, restart: restart.max(known) + 1, nonce: nonce() };
        self.settle(Seat::alone(epoch, self.me));
    }

    /// Who lives is in sync.
    fn keep_set(&mut self) {
        let Some(seat) = self.seat else { return };
        let Some(sight) = self.sight.lock().unwrap().clone() else { return };
        let living = sight.alive.iter().map(|(member, _)| *member);
        let in_sync = living.fold(MemberSet::of(self.me), MemberSet::with);
        if in_sync != seat.in_sync {
            self.settle(Seat { in_sync, set_version: seat.set_version + 1, ..seat });
        }
    }

    fn live(mut self, wishes: &Receiver<Decision>) -> ! {
        self.resume();
        loop {
            match wishes.recv_timeout(Duration::from_millis(20)) {
                Ok(Decision::Promote { above }) if self.seat.is_none() => self.promote(above),
                Ok(Decision::Demote) => {
                    self.seat = None;
                    let _ = std::fs::remove_file(&self.label);
                }
                // Some promote themselves for no reason, at the same moments: correctness is not a matter of patience.
                _ if self.seat.is_none() && nonce().is_multiple_of(10) => {
                    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
                    std::thread::sleep(Duration::from_millis(u64::from(
                        200 - now.subsec_millis() % 200,
                    )));
                    let recorded = self.sight.lock().unwrap().as_ref().and_then(|it| it.seat);
                    if let Some(seat) = recorded {
                        self.promote(seat.epoch.number);
                    }
                }
                _ => self.keep_set(),
            }
            self.stands();
        }
    }
}

struct Wishes(Sender<Decision>, Arc<Mutex<Standing>>);

impl Promoted for Wishes {
    fn standing(&self) -> Standing {
        *self.1.lock().unwrap()
    }

    fn carry_out(&mut self, decision: Decision) {
        self.0.send(decision).unwrap();
    }
}

/// The program of a member.
fn member(me: u8) -> ! {
    let directory = std::env::var(DIRECTORY).unwrap();
    let directory = Path::new(&directory);
    let endpoints = std::env::var(ENDPOINTS).unwrap().split(',').map(str::to_owned).collect();
    let lease = Duration::from_secs(1);
    let etcd = Etcd::open(EtcdOptions { lease, ..options(me, endpoints) }).unwrap();
    let (etcd, sight) = (Arc::new(etcd), Arc::new(Mutex::new(None)));
    let seen = Arc::clone(&sight);
    etcd.watch(Box::new(move |view| {
        *seen.lock().unwrap() = match view {
            View::Seen(sight) => Some(sight),
            View::Blind(_) => None,
        };
    }))
    .unwrap();
    let standing = Arc::new(Mutex::new(Standing::default()));
    let claims = File::options().create(true).append(true).open(directory.join("claims"));
    let model = Model {
        me: MemberId(me),
        etcd: Arc::clone(&etcd),
        label: directory.join(format!("label{me}")),
        claims: claims.unwrap(),
        standing: Arc::clone(&standing),
        sight,
        seat: None,
    };
    let (wish, wishes) = channel();
    // So impatient that members race.
    let mut config = PromoterConfig::new(MemberId(me));
    (config.patience_ns, config.turn_ns) = (nonce() % 100_000_000, nonce() % 20_000_000);
    let says = |verb: &str| {
        let script = format!("echo {verb} {me} >> {}", directory.join("units").display());
        ["sh", "-c", &script].map(str::to_owned).to_vec()
    };
    let unit = Unit::Command { name: "logs".to_owned(), start: says("start"), stop: says("stop") };
    let units = Units::new("sea".to_owned(), vec![unit]);
    let automatic = Automatic::start(etcd, config, units, Wishes(wish, standing)).unwrap();
    let _held = automatic;
    model.live(&wishes)
}

fn start(me: u8, directory: &Path, servers: &Servers) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", TEST, "--nocapture"])
        .env(MEMBER, me.to_string())
        .env(DIRECTORY, directory)
        .env(ENDPOINTS, servers.endpoints().join(","))
        .stdin(Stdio::null())
        .stdout(File::create(directory.join(format!("said{me}"))).unwrap())
        .spawn()
        .unwrap()
}

/// Each record that the key has had.
fn history(servers: &Servers) -> Vec<Seat> {
    let values = servers.raw().history(&options(0, Vec::new()).seat_key());
    values.iter().map(|value| Seat::parse(&GROUP, value).unwrap()).collect()
}

fn judge(history: &[Seat], claims: &[Seat]) {
    assert!(may_follow(None, &history[0]), "{}", history[0]);
    for pair in history.windows(2) {
        assert!(pair[0] != pair[1], "{} twice", pair[0]);
        assert!(may_follow(Some(&pair[0]), &pair[1]), "{} after {}", pair[1], pair[0]);
        assert!(pair[0].epoch.rank() <= pair[1].epoch.rank(), "{} after {}", pair[1], pair[0]);
    }
    let mut sources = HashMap::new();
    for seat in history.iter().chain(claims) {
        let first = *sources.entry(seat.epoch.rank()).or_insert((seat.epoch, seat.source));
        assert_eq!(first, (seat.epoch, seat.source), "{} has two sources", seat.epoch);
    }
    for claim in claims {
        assert!(history.contains(claim), "{claim} was given and is not in the history");
    }
}

/// Kills members and etcd at random for some time, and starts them again: how many of each.
fn kill_some(
    seconds: u64,
    at: &Path,
    servers: &mut Servers,
    members: &mut [Option<Child>],
) -> (u32, u32) {
    let (began, mut chance) = (Instant::now(), nonce());
    let mut below = |bound: u64| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (chance >> 33) % bound
    };
    let (mut kills, mut etcd_kills) = (0, 0);
    while began.elapsed() < Duration::from_secs(seconds) {
        std::thread::sleep(Duration::from_millis(below(300)));
        let me = u8::try_from(below(MEMBERS.into())).unwrap();
        let member = &mut members[usize::from(me)];
        if let Some(mut lives) = member.take() {
            lives.kill().unwrap();
            lives.wait().unwrap();
            kills += 1;
        }
        // Most start again at once.
        if below(3) > 0 {
            *member = Some(start(me, at, servers));
        }
        if below(20) == 0 {
            let index = usize::try_from(below(3)).unwrap();
            servers.kill(index);
            servers.restart(index);
            etcd_kills += 1;
        }
    }
    for (me, member) in (0..).zip(members) {
        if member.is_none() {
            *member = Some(start(me, at, servers));
        }
    }
    (kills, etcd_kills)
}

#[test]
fn every_epoch_has_one_source_though_members_and_etcd_are_killed() {
    if let Ok(me) = std::env::var(MEMBER) {
        member(me.parse().unwrap());
    }
    let seconds = std::env::var(SECONDS).map_or(8, |text| text.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut servers = Servers::start(3);
    let first = crate::open(0, servers.endpoints());
    assert!(first.propose(&crate::alone(1, 0)).unwrap());
    drop(first);
    let mut members: Vec<Option<Child>> =
        (0..MEMBERS).map(|me| Some(start(me, at, &servers))).collect();
    let kills = kill_some(seconds, at, &mut servers, &mut members);
    // Left alone, they find one source, and all are in sync with it.
    let watcher = crate::open(7, servers.endpoints());
    let healed = Instant::now();
    let all = MemberSet((1 << MEMBERS) - 1);
    while !matches!(watcher.load(), Ok(Some(seat)) if seat.in_sync == all) {
        assert!(healed.elapsed() < Duration::from_secs(60), "{:?}", watcher.load());
        std::thread::sleep(Duration::from_millis(50));
    }
    for mut member in members.into_iter().flatten() {
        assert_eq!(member.try_wait().unwrap(), None, "a member has ended by itself");
        member.kill().unwrap();
        member.wait().unwrap();
    }
    let history = history(&servers);
    let claims: Vec<Seat> = std::fs::read_to_string(at.join("claims"))
        .unwrap()
        .lines()
        .map(|line| Seat::parse(&GROUP, line.as_bytes()).unwrap())
        .collect();
    judge(&history, &claims);
    let begun = |is_it: fn(&Epoch) -> bool| {
        history.iter().filter(|seat| seat.set_version == 1 && is_it(&seat.epoch)).count()
    };
    let (promoted, resumed) = (begun(|it| it.restart == 0), begun(|it| it.restart > 0));
    println!(
        "{} members and {} etcd killed in {seconds} s; {} records, {promoted} promotions, {resumed} restarts \
         of a source, {} seats given",
        kills.0,
        kills.1,
        history.len(),
        claims.len()
    );
    assert!(promoted > 5 && history.len() > 20, "little has happened");
    let units = std::fs::read_to_string(at.join("units")).unwrap();
    assert!(units.contains("start"), "{units}");
}

#[test]
fn a_history_with_two_sources_of_an_epoch_or_a_step_back_is_judged_wrong() {
    let begins = crate::alone(1, 0);
    let both = crate::changed(begins, 0b11);
    let good = [begins, both, crate::alone(2, 1)];
    judge(&good, &good);
    let judged = |history: &[Seat], claims: &[Seat]| {
        let (history, claims) = (history.to_vec(), claims.to_vec());
        std::panic::catch_unwind(move || judge(&history, &claims)).is_err()
    };
    assert!(judged(&[begins, both, crate::alone(2, 2)], &[]), "not in sync");
    assert!(judged(&[begins, both, crate::alone(2, 1), both], &[]), "back");
    assert!(judged(&good, &[crate::alone(2, 0)]), "two sources");
    assert!(judged(&good, &[crate::alone(3, 1)]), "given and not there");
}
