//! What befalls a group in one round.

use std::thread;
use std::time::{Duration, Instant};

use super::client::{Client, Trouble};
use super::ledger::BLOCK;
use super::load::{ESHUTDOWN, FREE, Load};
use super::members::{Group, NAMES, SILENCE_MS, VOLUMES};
use super::random::Random;
use crate::failure::Failure;

/// What befalls the group.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Fate {
    KillSource,
    EndSource,
    PauseSource,
    CutSource,
    Reverse,
    Demote,
    KillDestination,
    KillBehind,
    KillAll,
    PauseDestination,
    CutLink,
    Suspend,
    Delay,
}

/// A fate with how it is called and how often it is drawn.
pub(super) struct Drawn {
    pub(super) fate: Fate,
    pub(super) name: &'static str,
    weight: u64,
    /// Whether members are promoted by themselves in it too.
    is_for_automatic: bool,
}

/// What a round came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Came {
    /// Another member is the source now.
    pub(super) changed: bool,
    /// From the end of the old source to the first write that the new one answered.
    pub(super) took: Option<Duration>,
}

/// What a round works with.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) group: Group,
    pub(super) load: Load,
    pub(super) random: Random,
    pub(super) source: usize,
    /// Members are promoted by themselves.
    pub(super) is_automatic: bool,
    /// What a block of nobody's was written with last.
    pub(super) mark: u8,
}

/// Draws what befalls the group next, of what has `only` in its name.
///
/// # Errors
///
/// Nothing has that, or nothing that can be done here.
pub(super) fn draw(stage: &mut Stage, only: Option<&str>) -> Result<&'static Drawn, Failure> {
    let network = &stage.group.network;
    let (cuts, delays, is_automatic) = (network.can_cut(), network.can_delay(), stage.is_automatic);
    let fits = |it: &&Drawn| {
        let can = match it.fate {
            Fate::CutSource | Fate::CutLink => cuts,
            Fate::Delay => delays,
            _ => it.is_for_automatic || !is_automatic,
        };
        can && only.is_none_or(|only| it.name.contains(only))
    };
    let all: Vec<&Drawn> = FATES.iter().filter(fits).collect();
    let sum: u64 = all.iter().map(|it| it.weight).sum();
    let mut left = stage.random.below(sum.max(1));
    for drawn in all {
        if left < drawn.weight {
            return Ok(drawn);
        }
        left -= drawn.weight;
    }
    Err(Failure::new(format!("nothing that can befall the group here is called {only:?}")))
}

impl Stage {
    /// Carries out a round, up to all members being in sync again.
    pub(super) fn befall(&mut self, fate: Fate) -> Result<Came, Failure> {
        self.rest(5, 60);
        let came = match fate {
            Fate::KillSource => self.kill_source()?,
            Fate::EndSource => self.end_source()?,
            Fate::PauseSource => self.pause_source()?,
            Fate::CutSource => self.cut_source()?,
            Fate::Reverse => self.reverse()?,
            Fate::Demote => self.demote()?,
            Fate::KillDestination => self.kill_destination()?,
            Fate::KillBehind => self.kill_behind()?,
            Fate::KillAll => self.kill_all()?,
            Fate::PauseDestination => self.pause_destination()?,
            Fate::CutLink => self.cut_link()?,
            Fate::Suspend => self.suspend()?,
            Fate::Delay => self.delay()?,
        };
        self.load.sound()?;
        self.group.wait_in_sync(self.source)?;
        Ok(came)
    }

    fn kill_source(&mut self) -> Result<Came, Failure> {
        let (old, new) = (self.source, self.other());
        self.load.watch(old);
        let killed = Instant::now();
        self.group.kill(old);
        let came = self.succeed(old, Some(new), killed)?;
        self.rest(0, 80);
        self.group.start(old)?;
        Ok(came)
    }

    fn end_source(&mut self) -> Result<Came, Failure> {
        let (old, new) = (self.source, self.other());
        self.load.watch(old);
        let ended = Instant::now();
        self.group.terminate(old)?;
        let came = self.succeed(old, Some(new), ended)?;
        self.group.start(old)?;
        Ok(came)
    }

    // What a paused source was asked to write before it goes on must not be answered once another has taken over.
    fn pause_source(&mut self) -> Result<Came, Failure> {
        let (old, new) = (self.source, self.other());
        let (refused, wanted) = self.marks();
        let mut stays = self.probe(old)?;
        self.load.watch(old);
        self.group.pause(old);
        let paused = Instant::now();
        stays.ask(refused)?;
        let is_forced = !self.is_automatic && self.random.coin();
        let came = match is_forced {
            true => {
                self.group.order(new, &["promote", "--force"])?;
                self.has_taken_over(new, paused)?
            }
            false => self.succeed(old, Some(new), paused)?,
        };
        self.probe(self.source)?.write(wanted)?;
        self.group.go_on(old);
        stays.is_refused("a source that was paused")?;
        self.group.wait_in_sync(self.source)?;
        self.probe(self.source)?.has(wanted)?;
        Ok(came)
    }

    // Source and destination both find the other one silent; the witness takes what comes first.
    fn cut_source(&mut self) -> Result<Came, Failure> {
        let (old, new) = (self.source, self.other());
        let (refused, wanted) = self.marks();
        let mut stays = self.probe(old)?;
        self.load.watch(old);
        self.group.network.unplug(old)?;
        let cut = Instant::now();
        stays.ask(refused)?;
        let chosen = (!self.is_automatic).then_some(new);
        let limit = if self.is_automatic { AUTOMATIC_LIMIT } else { 2 * SILENCE };
        let Some(new) = self.promote_until(chosen, cut + limit)? else {
            self.rest(0, 300);
            self.group.network.plug(old)?;
            return Ok(Came::default());
        };
        let came = self.has_taken_over(new, cut)?;
        self.probe(new)?.write(wanted)?;
        self.rest(0, 300);
        self.group.network.plug(old)?;
        stays.is_refused("a source that was cut off")?;
        self.group.wait_in_sync(self.source)?;
        self.probe(self.source)?.has(wanted)?;
        Ok(came)
    }

    fn reverse(&mut self) -> Result<Came, Failure> {
        let (old, new) = (self.source, self.other());
        self.load.watch(old);
        let began = Instant::now();
        self.group.order(old, &["reverse", NAMES[new]])?;
        self.has_taken_over(new, began).map(|came| Came { took: None, ..came })
    }

    fn demote(&mut self) -> Result<Came, Failure> {
        let (old, new) = (self.source, self.other());
        self.load.watch(old);
        let began = Instant::now();
        self.group.order(old, &["demote"])?;
        self.succeed(old, Some(new), began).map(|came| Came { took: None, ..came })
    }

    fn kill_destination(&mut self) -> Result<Came, Failure> {
        let other = self.other();
        self.group.kill(other);
        self.rest(0, 500);
        self.group.start(other)?;
        Ok(Came::default())
    }

    // A member that lacks answered writes is not promoted without force.
    fn kill_behind(&mut self) -> Result<Came, Failure> {
        let (old, behind) = (self.source, self.other());
        self.group.kill(behind);
        self.rest(20, 400);
        self.group.start(behind)?;
        self.rest(0, 60);
        self.load.watch(old);
        let killed = Instant::now();
        self.group.kill(old);
        let mut candidates = vec![behind];
        candidates.extend(self.group.others(old).into_iter().filter(|it| *it != behind));
        for new in candidates {
            let chosen = (!self.is_automatic).then_some(new);
            let until = killed + if self.is_automatic { AUTOMATIC_LIMIT } else { 4 * SILENCE };
            if let Some(new) = self.promote_until(chosen, until)? {
                let came = self.has_taken_over(new, killed)?;
                self.group.start(old)?;
                return Ok(came);
            }
        }
        // Nobody else has everything: the old source goes on.
        self.group.start(old)?;
        self.wait_for_source()
    }

    fn kill_all(&mut self) -> Result<Came, Failure> {
        let count = self.group.len();
        let first = self.random.index(count);
        (first..first + count).for_each(|member| self.group.kill(member % count));
        let first = self.random.index(count);
        for member in first..first + count {
            self.group.start(member % count)?;
        }
        self.wait_for_source()
    }

    fn pause_destination(&mut self) -> Result<Came, Failure> {
        let other = self.other();
        self.group.pause(other);
        self.rest(10, SILENCE_MS + 500);
        self.group.go_on(other);
        Ok(Came::default())
    }

    fn cut_link(&mut self) -> Result<Came, Failure> {
        let (source, other) = (self.source, self.other());
        let ways = match self.random.below(3) {
            0 => vec![(source, other)],
            1 => vec![(other, source)],
            _ => vec![(source, other), (other, source)],
        };
        for (from, to) in &ways {
            self.group.network.silence(*from, *to)?;
        }
        self.rest(10, SILENCE_MS + 1000);
        for (from, to) in &ways {
            self.group.network.hear(*from, *to)?;
        }
        self.wait_for_source()
    }

    fn suspend(&mut self) -> Result<Came, Failure> {
        let other = self.other();
        self.group.order(self.source, &["suspend", NAMES[other]])?;
        self.rest(10, 400);
        self.group.order(self.source, &["resume", NAMES[other]])?;
        Ok(Came::default())
    }

    fn delay(&mut self) -> Result<Came, Failure> {
        let (member, ms) = (self.random.index(self.group.len()), self.random.below(20) + 1);
        self.group.network.delay(member, u32::try_from(ms).unwrap_or(1))?;
        self.rest(50, 300);
        self.group.network.delay(member, 0)?;
        Ok(Came::default())
    }

    /// A member that is not the source.
    fn other(&mut self) -> usize {
        let others = self.group.others(self.source);
        self.random.one(&others)
    }

    /// What an old source is to refuse, and what the new one writes then.
    fn marks(&mut self) -> (u8, u8) {
        self.mark = self.mark % 250 + 2;
        (self.mark - 1, self.mark)
    }

    fn rest(&mut self, least_ms: u64, most_ms: u64) {
        let time = least_ms + self.random.below(most_ms - least_ms);
        thread::sleep(Duration::from_millis(time));
    }

    /// One of the others has to take over: `chosen`, unless they do it by themselves.
    fn succeed(
        &mut self,
        old: usize,
        chosen: Option<usize>,
        since: Instant,
    ) -> Result<Came, Failure> {
        let chosen = chosen.filter(|_| !self.is_automatic);
        match self.promote_until(chosen, Instant::now() + TAKE_OVER_LIMIT)? {
            Some(new) => self.has_taken_over(new, since),
            None => {
                let states = self.group.states();
                Err(Failure::new(format!(
                    "nobody takes over from {}, though all were in sync\n{states}",
                    NAMES[old]
                )))
            }
        }
    }

    /// Promotes a member, unless the source is heard of until then, or the witness does not agree. Without a choice it
    /// waits for a member that is promoted by itself.
    fn promote_until(
        &self,
        chosen: Option<usize>,
        until: Instant,
    ) -> Result<Option<usize>, Failure> {
        loop {
            match chosen {
                None => {
                    let others = self.group.others(self.source);
                    if let Some(new) = others.into_iter().find(|it| self.group.is_serving(*it)) {
                        return Ok(Some(new));
                    }
                }
                Some(new) => match self.group.ask(new, &["promote"])? {
                    Ok(()) => return self.becomes_source(new).map(|is_it| is_it.then_some(new)),
                    Err(why) if why.contains("the source is connected") => {}
                    Err(why) if REFUSALS.iter().any(|it| why.contains(it)) => return Ok(None),
                    Err(why) => {
                        let states = self.group.states();
                        return Err(Failure::new(format!(
                            "promoting {}: {why}\n{states}",
                            NAMES[new]
                        )));
                    }
                },
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            thread::sleep(ASK_EVERY);
        }
    }

    /// Whether the witness agrees with a member that is about to be the source.
    fn becomes_source(&self, member: usize) -> Result<bool, Failure> {
        let began = Instant::now();
        while began.elapsed() < TAKE_OVER_LIMIT {
            let status = self.group.status(member).unwrap_or_default();
            if status["state"] == "Serving" {
                return Ok(true);
            }
            if status["role"] == "destination" && status["is_promoting"] == false {
                return Ok(false);
            }
            thread::sleep(Duration::from_millis(1));
        }
        let states = self.group.states();
        Err(Failure::new(format!("{} neither serves nor gives up\n{states}", NAMES[member])))
    }

    fn has_taken_over(&mut self, new: usize, since: Instant) -> Result<Came, Failure> {
        self.source = new;
        self.load.source_is(new);
        let (member, first) = self.load.wait_for_first()?;
        if member != new {
            let (member, new) = (NAMES[member], NAMES[new]);
            return Err(Failure::new(format!("{member} answers a write, {new} was promoted")));
        }
        Ok(Came { changed: true, took: Some(first.duration_since(since)) })
    }

    /// Whoever is the source now; where members promote themselves it may be another one.
    fn wait_for_source(&mut self) -> Result<Came, Failure> {
        let before = self.source;
        self.group.wait("there is a source", |group| {
            Ok((0..group.len()).any(|member| group.is_serving(member)))
        })?;
        let found = (0..self.group.len()).find(|member| self.group.is_serving(*member));
        self.source = found.unwrap_or(before);
        self.load.source_is(self.source);
        if self.source != before && !self.is_automatic {
            let (new, old) = (NAMES[self.source], NAMES[before]);
            return Err(Failure::new(format!("{new} is the source, which was {old}")));
        }
        Ok(Came { changed: self.source != before, took: None })
    }

    fn probe(&self, member: usize) -> Result<Probe, Failure> {
        let path = self.group.socket(member);
        for _ in 0..PROBE_TRIES {
            let client = Client::connect(&path, VOLUMES[0].0, PROBE_LIMIT);
            if let Ok(mut client) = client
                && client.flush(PROBE_LIMIT).is_ok()
            {
                return Ok(Probe(client));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Err(Failure::new(format!("{} does not take a client", NAMES[member])))
    }
}

/// A client that stays with its member, and a block of its own.
struct Probe(Client);

impl Probe {
    fn ask(&mut self, number: u8) -> Result<(), Failure> {
        let sent = self.0.begin_write(FREE, &[number; BLOCK]);
        sent.map_err(|trouble| Failure::new(format!("a write cannot be sent: {trouble:?}")))
    }

    fn write(&mut self, number: u8) -> Result<(), Failure> {
        let done = self.0.write(FREE, &[number; BLOCK], &|| false);
        done.map_err(|trouble| Failure::new(format!("the new source does not write: {trouble:?}")))
    }

    // The connection of a source that is none any more ends, or the write is refused. No answer says nothing.
    fn is_refused(&mut self, whose: &str) -> Result<(), Failure> {
        let until = Instant::now() + PROBE_LIMIT;
        match self.0.answer(&mut [], &|| Instant::now() >= until) {
            Ok(()) => Err(Failure::new(format!(
                "{whose} has answered a write that it got before another took over"
            ))),
            Err(Trouble::Refused(ESHUTDOWN) | Trouble::Ended | Trouble::Left) => Ok(()),
            Err(Trouble::Refused(error)) => {
                Err(Failure::new(format!("{whose} answers a write with error {error}")))
            }
        }
    }

    fn has(&mut self, number: u8) -> Result<(), Failure> {
        let mut found = [0; BLOCK];
        let until = Instant::now() + PROBE_LIMIT;
        let read = self.0.read(FREE, &mut found, &|| Instant::now() >= until);
        match read {
            Ok(()) if found == [number; BLOCK] => Ok(()),
            Ok(()) => Err(Failure::new(format!(
                "a block holds {}, after the new source had answered a write of {number}",
                found[0]
            ))),
            Err(trouble) => Err(Failure::new(format!("the source does not read: {trouble:?}"))),
        }
    }
}

/// Words of refusals that are right for a member that lacks something.
const REFUSALS: [&str; 3] =
    ["may lack what the source has acknowledged", "mixture of several moments", "did not agree"];
const SILENCE: Duration = Duration::from_millis(SILENCE_MS);
/// Members that are promoted by themselves wait for a lease, and then for their patience.
const AUTOMATIC_LIMIT: Duration = Duration::from_secs(10);
const TAKE_OVER_LIMIT: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(10);
const PROBE_LIMIT: Duration = Duration::from_secs(10);
const PROBE_TRIES: u32 = 400;

/// All fates.
pub(super) const FATES: [Drawn; 13] = [
    drawn(Fate::KillSource, "kill -9 of the source", 24, true),
    drawn(Fate::EndSource, "SIGTERM of the source", 4, true),
    drawn(Fate::PauseSource, "SIGSTOP of the source, then SIGCONT", 6, true),
    drawn(Fate::CutSource, "the source cut off", 4, true),
    drawn(Fate::Reverse, "reversal", 8, false),
    drawn(Fate::Demote, "demotion and promotion", 4, false),
    drawn(Fate::KillDestination, "kill -9 of a destination", 5, true),
    drawn(Fate::KillBehind, "kill -9 of a source with a member behind", 6, true),
    drawn(Fate::KillAll, "kill -9 of all members", 3, true),
    drawn(Fate::PauseDestination, "SIGSTOP of a destination", 3, true),
    drawn(Fate::CutLink, "a link cut, one way or both", 5, true),
    drawn(Fate::Suspend, "a destination suspended", 4, true),
    drawn(Fate::Delay, "what a member sends comes late", 4, true),
];

const fn drawn(fate: Fate, name: &'static str, weight: u64, is_for_automatic: bool) -> Drawn {
    Drawn { fate, name, weight, is_for_automatic }
}
