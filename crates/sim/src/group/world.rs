//! The run: what happens when, to whom, and whether it may.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use replica::core::{Action, Config, Core, Event, Lane, Mode, Wish};
use replica::format::Label;
use replica::message::Message;
use replica::{Epoch, GroupId, MemberId, MemberSet};

use crate::chance::Chance;
use crate::disk::{CELL, CELLS_FIRST, Disk, VOLUMES};
use crate::member::{Member, Process, Writer};
use crate::net::Connection;
use crate::plan::{MS, Plan, SECOND};
use crate::sums::Sums;
use crate::truth::Truth;
use crate::wrongs::Kind;

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum What {
    /// The action of that number, of a lane, is done.
    Lane(u8, u64, Lane, u64),
    Deliver(u64, usize),
    Lose(u64, usize),
    /// The next operation of a connection places its records; makes them durable; is answered; its target is told.
    Place(u64),
    Flush(u64),
    Answer(u64),
    TellThere(u64),
    Writer(u8, u64, usize),
    WritersStopped(u8, u64),
    Tick(u8, u64),
    Dial(u8, u64),
    Start(u8),
    Crash,
    Cut,
    Silence,
    Unsilence(u8, u8),
    OneWay,
    Hear(u8, u8),
    LoseWay(u8, u8),
    Stop,
    GoOn(u8),
    Switch,
    Wish,
    /// A process dies, at a moment that was chosen for it.
    Falls(u8, u64),
    /// A frame of a connection comes to a side over a way.
    Frame(u64, usize, usize),
    CutWay,
    Break(u64),
    Jump,
    DiskFails,
    /// A member whose disk failed is started again.
    Mend(u8, u64),
    Damage,
    /// A request of this number comes to the witness.
    Request(usize),
    Probe,
    Read,
    Heal,
}

/// What a run prints while it goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Tells {
    Nothing,
    /// What goes wrong, what members tell their operators, and what they answer.
    History,
    /// Each event and each action, too.
    All,
}

/// What the witness has recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) epoch: Epoch,
    pub(crate) source: MemberId,
    pub(crate) in_sync: MemberSet,
    pub(crate) version: u64,
}

pub(crate) struct World<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) chance: Chance,
    pub(crate) now: u64,
    pub(crate) order: u64,
    pub(crate) agenda: BinaryHeap<Reverse<(u64, u64, What)>>,
    pub(crate) members: Vec<Member>,
    pub(crate) connections: BTreeMap<u64, Connection>,
    pub(crate) next_connection: u64,
    pub(crate) next_sum: u32,
    pub(crate) next_stamp: u64,
    /// Pairs between which nothing gets through.
    pub(crate) blocked: Vec<(u8, u8)>,
    /// What the first sends does not reach the second.
    pub(crate) one_way: Vec<(u8, u8)>,
    /// How often something has waited for a stopped process.
    pub(crate) waiting: u64,
    pub(crate) witness: Record,
    pub(crate) truth: Truth,
    /// Requests to the witness that come late.
    pub(crate) requests: Vec<Record>,
    /// How often it was compared what volumes hold since they have rotted.
    pub(crate) compared: Option<u32>,
    /// Who is being asked to be the source, and may not say that it is not in sync.
    pub(crate) asked: Option<u8>,
    pub(crate) heals: bool,
    pub(crate) fault: Option<String>,
    pub(crate) tells: Tells,
    pub(crate) sums: Sums,
}

impl<'a> World<'a> {
    /// One run, and what was met in it.
    pub(crate) fn run(plan: &'a Plan, tells: Tells) -> (Result<(), String>, Sums) {
        let mut world = World::new(plan, tells);
        let outcome = world.go();
        world.sums.acknowledged = world.truth.acknowledged_count;
        world.sums.written = world.next_stamp - 1;
        (outcome, world.sums)
    }

    fn new(plan: &'a Plan, tells: Tells) -> Self {
        let chance = Chance::new(plan.seed, 2 + (plan.draws << 32));
        let slow = chance.below(u64::from(plan.members));
        let members = (0..plan.members)
            .map(|id| {
                let config = config(plan, MemberId(id));
                let mut label: Label = Core::first_label(&config);
                if id == 0 {
                    label.in_sync = MemberSet::of(MemberId(0));
                }
                Member {
                    id: MemberId(id),
                    disk: Disk::new(label, plan.capacity),
                    process: None,
                    life: 0,
                    last_in_sync: MemberSet::NONE,
                    proposed: MemberSet::NONE,
                    last_counted: MemberSet::NONE,
                    slowness: if u64::from(id) == slow { plan.slow_disk } else { 1 },
                    stopped_until: 0,
                    jumped: 0,
                    time_is_wrong: 0,
                    is_damaged: false,
                    rotten: Vec::new(),
                }
            })
            .collect();
        Self {
            plan,
            chance,
            now: 0,
            order: 0,
            agenda: BinaryHeap::new(),
            members,
            connections: BTreeMap::new(),
            next_connection: 1,
            next_sum: 1,
            next_stamp: 1,
            blocked: Vec::new(),
            one_way: Vec::new(),
            waiting: 0,
            witness: Record {
                epoch: Epoch::default(),
                source: MemberId(0),
                in_sync: MemberSet::of(MemberId(0)),
                version: 0,
            },
            truth: Truth::new(),
            requests: Vec::new(),
            compared: None,
            asked: None,
            heals: false,
            fault: None,
            tells,
            sums: Sums::default(),
        }
    }

    #[allow(clippy::print_stdout, reason = "a trace")]
    pub(crate) fn trace(&self, text: impl FnOnce() -> String) {
        if self.tells == Tells::All {
            println!("{:>12} {}", self.now / 1000, text());
        }
    }

    /// What happens, in a few words.
    #[allow(clippy::print_stdout, reason = "a history")]
    pub(crate) fn history(&self, text: impl FnOnce() -> String) {
        if self.tells != Tells::Nothing {
            let (ms, us) = (self.now / MS, self.now / 1000 % 1000);
            println!("{ms:>8}.{us:03} ms  {}", text());
        }
    }

    pub(crate) fn later(&mut self, delay: u64, what: What) {
        // What is due at once happens in any order.
        self.order = self.chance.below(u64::MAX);
        self.agenda.push(Reverse((self.now + delay.max(1), self.order, what)));
    }

    fn go(&mut self) -> Result<(), String> {
        for member in 0..self.plan.members {
            self.start(member);
        }
        let (nonce, above) = (self.chance.below(u64::MAX), self.above());
        let (was_in_sync, by_force) = (false, false);
        let wish = Wish::Promote { nonce, above, was_in_sync, by_force };
        self.step(0, Event::Wanted(wish));
        for (every, what) in [
            (self.plan.crash_every, What::Crash),
            (self.plan.cut_every, What::Cut),
            (self.plan.silence_every, What::Silence),
            (self.plan.switch_every, What::Switch),
            (self.plan.wish_every, What::Wish),
            (self.plan.one_way_every, What::OneWay),
            (self.plan.pause_every, What::Stop),
            (self.plan.way_cut_every, What::CutWay),
            (self.plan.jump_every, What::Jump),
            (self.plan.disk_fails_every, What::DiskFails),
            (self.plan.damage_every, What::Damage),
        ] {
            if every > 0 {
                let delay = self.chance.below(2 * every);
                self.later(delay, what);
            }
        }
        self.later(5 * MS, What::Probe);
        self.later(5 * MS, What::Read);
        self.later(self.plan.faults_for, What::Heal);
        let end = self.plan.faults_for + HEALS_WITHIN;
        while let Some(Reverse((time, _, what))) = self.agenda.pop() {
            self.now = time;
            let mixed = self.sums.digest ^ time ^ self.order.rotate_left(32);
            self.sums.digest = mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
            if time > end {
                return Err(format!("it does not heal: {}", self.states()));
            }
            self.happens(what);
            if let Some(fault) = self.fault.take() {
                return Err(format!("at {} us: {fault}", self.now / 1000));
            }
            if self.heals && self.is_at_rest() && !self.compares_what_has_rotted() {
                return self.judge();
            }
        }
        Err("nothing is left to happen".to_owned())
    }

    fn happens(&mut self, what: What) {
        if self.waits_for_process(&what) {
            return;
        }
        match what {
            What::Lane(member, life, lane, action) if self.lives(member, life) => {
                self.lane_is_done(member, lane, action);
            }
            What::Deliver(number, side) => self.deliver(number, side),
            What::Frame(number, side, way) => self.frame_comes(number, side, way),
            What::Break(number) => self.cut(number),
            What::Mend(member, life) if self.lives(member, life) => self.crash(member),
            What::Request(number) => self.request_comes(number),
            What::Lose(number, side) => self.lose(number, side),
            What::Place(number) => self.place_there(number),
            What::Flush(number) => self.flush_there(number),
            What::Answer(number) => self.answer_from_there(number),
            What::TellThere(number) => self.tell_there(number),
            What::Writer(member, life, writer) if self.lives(member, life) => {
                self.write(member, writer);
            }
            What::WritersStopped(member, life) if self.lives(member, life) => {
                self.writers_stopped(member);
            }
            What::Tick(member, life) if self.lives(member, life) => self.tick(member, life),
            What::Dial(member, life) if self.lives(member, life) => self.dial(member, life),
            What::Start(member) if self.members[usize::from(member)].process.is_none() => {
                self.start(member);
            }
            What::Probe => {
                self.probe();
                let delay = self.chance.skewed(MS, 20 * MS);
                self.later(delay, What::Probe);
            }
            What::Read => {
                self.read();
                let delay = self.chance.skewed(MS, self.plan.read_every);
                self.later(delay, What::Read);
            }
            What::Heal => self.heal(),
            What::Unsilence(one, other) => {
                self.blocked.retain(|pair| *pair != (one, other));
            }
            What::Hear(from, to) => self.hears_again(from, to),
            What::GoOn(member) => self.goes_on(member),
            _ if self.heals => {}
            what => self.goes_wrong(what),
        }
    }

    /// What happens until the faults end. Each has a number of its kind, and draws of its own: a plan that leaves one out has the
    /// others all the same.
    fn goes_wrong(&mut self, what: What) {
        let plan = self.plan;
        let every = match what {
            What::Crash => plan.crash_every,
            What::Cut => plan.cut_every,
            What::Silence => plan.silence_every,
            What::Switch => plan.switch_every,
            What::Wish => plan.wish_every,
            What::OneWay => plan.one_way_every,
            What::Stop => plan.pause_every,
            What::CutWay => plan.way_cut_every,
            What::Jump => plan.jump_every,
            What::DiskFails => plan.disk_fails_every,
            What::Damage => plan.damage_every,
            _ => 0,
        };
        // Of a process that has ended.
        let Some(kind) = Kind::of(&what) else { return };
        let number = kind.next(&mut self.sums.wrongs);
        let own = Chance::new(plan.seed, kind.purpose(number));
        let common = std::mem::replace(&mut self.chance, own);
        if !plan.left_out.has(kind, number) {
            self.goes_wrong_so(&what);
        }
        if every > 0 {
            let delay = self.chance.skewed(every / 4 + 1, every * 2 + 2);
            self.later(delay, what);
        }
        self.chance = common;
    }

    fn goes_wrong_so(&mut self, what: &What) {
        match *what {
            What::Crash => {
                let member = self.any_member();
                self.crash(member);
            }
            What::Cut => {
                let all: Vec<u64> = self.connections.keys().copied().collect();
                if !all.is_empty() {
                    let number = all[self.chance.index(all.len())];
                    self.sums.cuts += 1;
                    self.cut(number);
                }
            }
            What::Silence => self.silence(),
            What::Switch => self.switch(),
            What::Wish => self.wish(),
            What::OneWay => self.one_way(),
            What::Stop => self.stop(),
            What::CutWay => self.cut_way(),
            What::Jump => self.jump(),
            What::DiskFails => self.disk_fails(),
            What::Damage => self.damage(),
            What::LoseWay(from, to) => self.loses_one_way(from, to),
            What::Falls(member, life) if self.lives(member, life) => self.crash(member),
            _ => {}
        }
    }

    pub(crate) fn lives(&self, member: u8, life: u64) -> bool {
        let member = &self.members[usize::from(member)];
        member.life == life && member.process.is_some()
    }

    pub(crate) fn process(&mut self, member: u8) -> Option<&mut Process> {
        self.members[usize::from(member)].process.as_mut()
    }

    pub(crate) fn start(&mut self, member: u8) {
        let config = config(self.plan, MemberId(member));
        let mut found = self.members[usize::from(member)].disk.found();
        if self.members[usize::from(member)].is_damaged {
            found = self.is_made_anew(member, &config, &found);
        }
        if found.is_damaged(&config) {
            // No other disk of a run loses what was durable.
            self.fault = Some(format!(
                "member {member} would not start: {} was committed, as {:?} says",
                found.claimed, found.label
            ));
        }
        let core = Core::new(config, found);
        let was_source = core.was_source();
        self.trace(|| format!("member {member} starts: {:?}", core.status()));
        self.history(|| {
            let (status, is) = (core.status(), if was_source { "it was the source" } else { "" });
            let (start, end, applied) = (status.start, status.end, status.applied);
            format!(
                "member {member} starts: its log has {start} to {end}, applied to {applied}, in sync {}; {is}",
                status.in_sync
            )
        });
        let now = self.now;
        let at = &mut self.members[usize::from(member)];
        at.life += 1;
        let life = at.life;
        at.process = Some(Process {
            core,
            lanes: BTreeMap::new(),
            writers: vec![Writer::Idle; self.plan.writers],
            is_open: false,
            is_stopping: false,
            copies: VecDeque::new(),
            followed_at: now,
            asks: Vec::new(),
            has_followed: false,
            disk_fails: false,
            differing: Vec::new(),
        });
        if was_source {
            let (nonce, above) = (self.chance.below(u64::MAX), self.witness.epoch);
            let now = self.clock_of(member);
            let Some(process) = self.process(member) else { return };
            let actions = process.core.resume_as_source(now, nonce, above);
            self.take_actions(member, actions);
        }
        self.later(MS, What::Tick(member, life));
        self.later(2 * MS, What::Dial(member, life));
        for writer in 0..self.plan.writers {
            let delay = self.chance.skewed(1000, MS);
            self.later(delay, What::Writer(member, life, writer));
        }
    }

    /// What a member's clock shows: it never goes back, and not quite as fast as others.
    pub(crate) fn clock_of(&self, member: u8) -> u64 {
        let at = usize::from(member);
        self.now / 1000 * self.plan.rates[at] + self.members[at].jumped
    }

    /// The newest epoch that the witness knows.
    pub(crate) fn above(&self) -> u32 {
        if self.plan.has_witness { self.witness.epoch.number } else { 0 }
    }

    pub(crate) fn step(&mut self, member: u8, event: Event) {
        let now = self.clock_of(member);
        // Nobody reaches it.
        if matches!(event, Event::Wanted(_)) && self.is_stopped(member) {
            return;
        }
        let told = if self.tells == Tells::All { format!("{event:?}") } else { String::new() };
        if let Event::Wanted(wish) = &event
            && !self.heals
        {
            self.history(|| format!("member {member} is asked: {wish:?}"));
        }
        let Some(process) = self.process(member) else { return };
        let actions = process.core.step(now, event);
        let is_dull = ["Tick", "Wanted(Resume", "Wanted(SetMode"];
        let is_tick = is_dull.iter().any(|dull| told.starts_with(dull)) && actions.is_empty();
        if !is_tick {
            self.trace(|| format!("m{member} <- {}", &told[..told.len().min(3000)]));
        }
        self.take_actions(member, actions);
    }

    pub(crate) fn take_actions(&mut self, member: u8, actions: Vec<Action>) {
        for action in actions {
            if matches!(action, Action::Send(_, Message::Following))
                && let Some(process) = self.process(member)
            {
                process.has_followed = true;
            }
            self.trace(|| {
                let told = format!("{action:?}");
                format!("m{member}     -> {}", &told[..told.len().min(3000)])
            });
            self.must_be_so(member, &action);
            self.may_turn(member, &action);
            self.act(member, action);
        }
    }

    pub(crate) fn tick(&mut self, member: u8, life: u64) {
        let delay = self.chance.skewed(5 * MS, 40 * MS);
        self.later(delay, What::Tick(member, life));
        self.step(member, Event::Tick);
        self.promote_by_itself(member);
        let is_source = self.process(member).is_some_and(|process| process.core.is_source());
        if self.heals && is_source {
            for other in (0..self.plan.members).filter(|other| *other != member).map(MemberId) {
                self.step(member, Event::Wanted(Wish::Resume(other)));
                self.step(member, Event::Wanted(Wish::SetMode(other, Mode::Sync)));
            }
        }
    }
}

fn config(plan: &Plan, me: MemberId) -> Config {
    let others = (0..plan.members)
        .filter(|other| *other != me.0)
        .map(|other| (MemberId(other), plan.modes[usize::from(other)]))
        .collect();
    Config {
        group: GroupId([7; 16]),
        me,
        my_mode: plan.modes[usize::from(me.0)],
        others,
        volumes: vec![CELLS_FIRST * CELL; usize::from(VOLUMES)],
        capacity: plan.capacity,
        least_in_sync: plan.least_in_sync,
        has_witness: plan.has_witness,
        congestion: plan.congestion,
        window: plan.window,
        silence_ns: plan.silence_ns,
        read_lease_ns: plan.read_lease_ns,
        retention_ns: plan.retention_ns,
        copy_window: 1 << 20,
        seals: false,
        key_check: 0,
    }
}

/// All is well again after the faults.
const HEALS_WITHIN: u64 = 200 * SECOND;
