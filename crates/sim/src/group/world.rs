//! The run: what happens when, to whom, and whether it may.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt;
use std::sync::Arc;

use replica::core::{Action, Config, Core, Draft, Entry, Event, Lane, Mode, News, Wish};
use replica::format::{Encoding, Extent, Kind, Label};
use replica::message::{Message, Peer};
use replica::{Epoch, GroupId, MemberId, MemberSet};

use crate::chance::Chance;
use crate::disk::{CELL, CELLS, Disk, Stored, VOLUMES, cells};
use crate::member::{Member, Process, Queue, Work, Writer};
use crate::net::{Connection, Parcel};
use crate::plan::{MS, Plan, SECOND};
use crate::truth::Truth;

/// What was met in a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    acknowledged: u64,
    crashes: u64,
    cuts: u64,
    promotions: u64,
    copies: u64,
    fell_behind: u64,
    probes: u64,
    refused: u64,
}

impl Sums {
    pub(crate) fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.crashes += other.crashes;
        self.cuts += other.cuts;
        self.promotions += other.promotions;
        self.copies += other.copies;
        self.fell_behind += other.fell_behind;
        self.probes += other.probes;
        self.refused += other.refused;
    }
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, crashes, cuts, promotions, copies, fell_behind, probes, refused } =
            self;
        write!(
            f,
            "{acknowledged} writes acknowledged, {crashes} crashes, {cuts} connections cut, \
             {promotions} sources began, {copies} copies ended, {fell_behind} fell behind, \
             {probes} copies looked at, {refused} refusals"
        )
    }
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum What {
    Lane(u8, u64, Lane),
    Deliver(u64, usize),
    Lose(u64, usize),
    Writer(u8, u64, usize),
    WritersStopped(u8, u64),
    Tick(u8, u64),
    Dial(u8, u64),
    Start(u8),
    Crash,
    Cut,
    Silence,
    Unsilence(u8, u8),
    Switch,
    Wish,
    Probe,
    Heal,
}

/// What the witness has recorded.
#[derive(Clone, Copy, Debug)]
struct Record {
    epoch: Epoch,
    source: MemberId,
    in_sync: MemberSet,
    version: u64,
}

pub(crate) struct World<'a> {
    plan: &'a Plan,
    chance: Chance,
    now: u64,
    order: u64,
    agenda: BinaryHeap<Reverse<(u64, u64, What)>>,
    members: Vec<Member>,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    next_sum: u32,
    next_stamp: u64,
    /// Pairs between which nothing gets through.
    blocked: Vec<(u8, u8)>,
    witness: Record,
    truth: Truth,
    heals: bool,
    fault: Option<String>,
    traces: bool,
    sums: Sums,
}

impl<'a> World<'a> {
    /// One run, and what was met in it.
    pub(crate) fn run(plan: &'a Plan, traces: bool) -> (Result<(), String>, Sums) {
        let mut world = World::new(plan, traces);
        let outcome = world.go();
        world.sums.acknowledged = world.truth.acknowledged_count;
        (outcome, world.sums)
    }

    fn new(plan: &'a Plan, traces: bool) -> Self {
        let chance = Chance::new(plan.seed, 2);
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
                    slowness: if u64::from(id) == slow { plan.slow_disk } else { 1 },
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
            witness: Record {
                epoch: Epoch::default(),
                source: MemberId(0),
                in_sync: MemberSet::of(MemberId(0)),
                version: 0,
            },
            truth: Truth::new(),
            heals: false,
            fault: None,
            traces,
            sums: Sums::default(),
        }
    }

    #[allow(clippy::print_stdout, reason = "a trace")]
    fn trace(&self, text: impl FnOnce() -> String) {
        if self.traces {
            println!("{:>12} {}", self.now / 1000, text());
        }
    }

    fn later(&mut self, delay: u64, what: What) {
        // What is due at once happens in any order.
        self.order = self.chance.below(u64::MAX);
        self.agenda.push(Reverse((self.now + delay.max(1), self.order, what)));
    }

    fn go(&mut self) -> Result<(), String> {
        for member in 0..self.plan.members {
            self.start(member);
        }
        let (nonce, above) = (self.chance.below(u64::MAX), self.above());
        self.step(0, Event::Wanted(Wish::Promote { nonce, above, by_force: false }));
        for (every, what) in [
            (self.plan.crash_every, What::Crash),
            (self.plan.cut_every, What::Cut),
            (self.plan.silence_every, What::Silence),
            (self.plan.switch_every, What::Switch),
            (self.plan.wish_every, What::Wish),
        ] {
            if every > 0 {
                let delay = self.chance.below(2 * every);
                self.later(delay, what);
            }
        }
        self.later(5 * MS, What::Probe);
        self.later(self.plan.faults_for, What::Heal);
        let end = self.plan.faults_for + HEALS_WITHIN;
        while let Some(Reverse((time, _, what))) = self.agenda.pop() {
            self.now = time;
            if time > end {
                return Err(format!("it does not heal: {}", self.states()));
            }
            self.happens(what);
            if let Some(fault) = self.fault.take() {
                return Err(format!("at {} us: {fault}", self.now / 1000));
            }
            if self.heals && self.is_at_rest() {
                return self.judge();
            }
        }
        Err("nothing is left to happen".to_owned())
    }

    fn states(&self) -> String {
        let state = |member: &Member| match &member.process {
            None => format!("{}: down", member.id),
            Some(process) => {
                let status = process.core.status();
                let busy: Vec<_> = process
                    .lanes
                    .iter()
                    .filter_map(|(lane, queue)| {
                        queue.running.as_ref().map(|action| format!("{lane:?} {action:?}"))
                    })
                    .collect();
                format!("{}: {status:?} {:?} busy {busy:?}", member.id, member.disk.label.contents)
            }
        };
        self.members.iter().map(state).collect::<Vec<_>>().join("\n   ")
    }

    fn happens(&mut self, what: What) {
        let again = |every: u64, chance: &Chance| chance.skewed(every / 4 + 1, every * 2 + 2);
        match what {
            What::Lane(member, life, lane) if self.lives(member, life) => {
                self.lane_is_done(member, lane);
            }
            What::Deliver(number, side) => self.deliver(number, side),
            What::Lose(number, side) => self.lose(number, side),
            What::Writer(member, life, writer) if self.lives(member, life) => {
                self.write(member, writer);
            }
            What::WritersStopped(member, life) if self.lives(member, life) => {
                self.writers_stopped(member);
            }
            What::Tick(member, life) if self.lives(member, life) => self.tick(member, life),
            What::Dial(member, life) if self.lives(member, life) => self.dial(member, life),
            What::Start(member) => {
                if self.members[usize::from(member)].process.is_none() {
                    self.start(member);
                }
            }
            What::Probe => {
                self.probe();
                let delay = self.chance.skewed(MS, 20 * MS);
                self.later(delay, What::Probe);
            }
            What::Heal => self.heal(),
            What::Unsilence(one, other) => {
                self.blocked.retain(|pair| *pair != (one, other));
            }
            _ if self.heals => {}
            What::Crash => {
                let member = u8::try_from(self.chance.below(self.plan.members.into())).unwrap_or(0);
                self.crash(member);
                let delay = again(self.plan.crash_every, &self.chance);
                self.later(delay, What::Crash);
            }
            What::Cut => {
                let all: Vec<u64> = self.connections.keys().copied().collect();
                if !all.is_empty() {
                    let number = all[self.chance.index(all.len())];
                    self.sums.cuts += 1;
                    self.cut(number);
                }
                let delay = again(self.plan.cut_every, &self.chance);
                self.later(delay, What::Cut);
            }
            What::Silence => {
                self.silence();
                let delay = again(self.plan.silence_every, &self.chance);
                self.later(delay, What::Silence);
            }
            What::Switch => {
                self.switch();
                let delay = again(self.plan.switch_every, &self.chance);
                self.later(delay, What::Switch);
            }
            What::Wish => {
                self.wish();
                let delay = again(self.plan.wish_every, &self.chance);
                self.later(delay, What::Wish);
            }
            // Of a process that has ended.
            _ => {}
        }
    }

    fn lives(&self, member: u8, life: u64) -> bool {
        let member = &self.members[usize::from(member)];
        member.life == life && member.process.is_some()
    }

    fn process(&mut self, member: u8) -> Option<&mut Process> {
        self.members[usize::from(member)].process.as_mut()
    }

    fn start(&mut self, member: u8) {
        let found = self.members[usize::from(member)].disk.found();
        let core = Core::new(config(self.plan, MemberId(member)), found);
        let was_source = core.was_source();
        self.trace(|| format!("member {member} starts: {:?}", core.status()));
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
        });
        if was_source {
            let (nonce, above) = (self.chance.below(u64::MAX), self.witness.epoch);
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

    /// The newest epoch that the witness knows.
    fn above(&self) -> u32 {
        if self.plan.has_witness { self.witness.epoch.number } else { 0 }
    }

    fn crash(&mut self, member: u8) {
        let at = &mut self.members[usize::from(member)];
        let Some(process) = at.process.take() else { return };
        self.sums.crashes += 1;
        if process.core.is_source() {
            at.last_in_sync = process.core.status().in_sync;
        }
        at.disk.crash(&self.chance);
        self.trace(|| format!("member {member} crashes"));
        let of_it: Vec<u64> = self
            .connections
            .values()
            .filter(|it| it.ends.contains(&MemberId(member)))
            .map(|it| it.number)
            .collect();
        for number in of_it {
            self.cut(number);
        }
        let delay = self.chance.skewed(MS, 500 * MS);
        self.later(delay, What::Start(member));
    }

    fn cut(&mut self, number: u64) {
        for side in 0..2 {
            let delay = self.chance.skewed(10_000, 50 * MS);
            self.later(delay, What::Lose(number, side));
        }
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.is_silent = true;
        }
    }

    fn silence(&mut self) {
        let (one, other) = (self.any_member(), self.any_member());
        if one == other {
            return;
        }
        self.trace(|| format!("member {one} and member {other} do not hear each other"));
        self.blocked.push((one, other));
        for connection in self.connections.values_mut() {
            let ends = connection.ends.map(|end| end.0);
            if ends.contains(&one) && ends.contains(&other) {
                connection.is_silent = true;
            }
        }
        let delay = self.chance.skewed(10 * MS, 3 * SECOND);
        self.later(delay, What::Unsilence(one, other));
    }

    fn any_member(&self) -> u8 {
        u8::try_from(self.chance.below(self.plan.members.into())).unwrap_or(0)
    }

    fn is_blocked(&self, one: MemberId, other: MemberId) -> bool {
        self.blocked.iter().any(|pair| *pair == (one.0, other.0) || *pair == (other.0, one.0))
    }

    fn step(&mut self, member: u8, event: Event) {
        let now = self.now;
        let Some(process) = self.process(member) else { return };
        let told = format!("{event:?}");
        let actions = process.core.step(now, event);
        let is_tick = told == "Tick" && actions.is_empty();
        if !is_tick {
            self.trace(|| format!("m{member} <- {}", &told[..told.len().min(3000)]));
        }
        self.take_actions(member, actions);
    }

    fn take_actions(&mut self, member: u8, actions: Vec<Action>) {
        for action in actions {
            self.trace(|| {
                let told = format!("{action:?}");
                format!("m{member}     -> {}", &told[..told.len().min(3000)])
            });
            self.act(member, action);
        }
    }

    fn act(&mut self, member: u8, action: Action) {
        let lane = action.lane();
        let life = self.members[usize::from(member)].life;
        if lane != Lane::Now {
            let Some(process) = self.process(member) else { return };
            process.lanes.entry(lane).or_default().waits.push_back(action);
            self.run_lane(member, lane);
            return;
        }
        match action {
            Action::Disconnect(peer) => {
                let Some(connection) = self.connections.get_mut(&peer.connection) else { return };
                connection.is_silent = true;
                let side = connection.side_of(MemberId(member));
                let (soon, late) =
                    (self.chance.skewed(1000, MS), self.chance.skewed(10_000, 50 * MS));
                self.later(soon, What::Lose(peer.connection, side));
                self.later(late, What::Lose(peer.connection, 1 - side));
            }
            Action::Committed(to) => {
                let Some(process) = self.process(member) else { return };
                let mut due = Vec::new();
                for (at, writer) in process.writers.iter_mut().enumerate() {
                    if let Writer::Waiting(work) = *writer
                        && work.end <= to
                    {
                        *writer = Writer::Applying(work);
                        due.push(at);
                    }
                }
                for at in due {
                    let delay = self.chance.skewed(1000, MS);
                    self.later(delay, What::Writer(member, life, at));
                }
            }
            Action::StartWriters => {
                if let Some(process) = self.process(member) {
                    process.is_open = true;
                    process.is_stopping = false;
                }
                let volumes = self.members[usize::from(member)].disk.volumes.clone();
                if let Err(fault) = self.truth.check(&volumes) {
                    self.fault = Some(format!("member {member} begins as source: {fault}"));
                }
                self.sums.promotions += 1;
            }
            Action::StopWriters => {
                if let Some(process) = self.process(member) {
                    process.is_open = false;
                    process.is_stopping = true;
                    for writer in &mut process.writers {
                        if let Writer::Waiting(_) = writer {
                            *writer = Writer::Idle;
                        }
                    }
                }
                self.later(1000, What::WritersStopped(member, life));
            }
            Action::Tell(news) => self.hear_news(member, news),
            _ => {}
        }
    }

    fn hear_news(&mut self, member: u8, news: News) {
        match news {
            News::CopyEnds(_) => self.sums.copies += 1,
            News::FellBehind(_) => self.sums.fell_behind += 1,
            News::Refused(..) => self.sums.refused += 1,
            News::IsSource(_) => {
                let Some(process) = self.process(member) else { return };
                let was_forced =
                    process.core.history().epochs().last().is_some_and(|it| it.is_forced);
                if was_forced {
                    self.truth.is_lossy = true;
                }
            }
            _ => {}
        }
    }

    fn writers_stopped(&mut self, member: u8) {
        let life = self.members[usize::from(member)].life;
        let Some(process) = self.process(member) else { return };
        if !process.is_stopping {
            return;
        }
        if process.writers.iter().all(|writer| matches!(writer, Writer::Idle | Writer::Waiting(_)))
        {
            for writer in &mut process.writers {
                *writer = Writer::Idle;
            }
            process.is_stopping = false;
            self.step(member, Event::WritersStopped);
        } else {
            self.later(MS, What::WritersStopped(member, life));
        }
    }

    fn run_lane(&mut self, member: u8, lane: Lane) {
        let at = &mut self.members[usize::from(member)];
        let life = at.life;
        let Some(process) = &mut at.process else { return };
        let queue: &mut Queue = process.lanes.entry(lane).or_default();
        if queue.running.is_some() {
            return;
        }
        let Some(action) = queue.waits.pop_front() else { return };
        let (from, to) = match &action {
            Action::Persist(_) => (5_000, 2 * MS),
            Action::Apply(..) | Action::FlushVolumes(_) | Action::FlushCopies(_) => (5_000, 5 * MS),
            Action::StoreLabel(_) | Action::StoreDirty { .. } => (5_000, 3 * MS),
            Action::TakeSnapshot => (5_000, 10 * MS),
            Action::Propose { .. } => (100_000, 20 * MS),
            _ => (1_000, 200_000),
        };
        match &action {
            Action::FlushVolumes(_) | Action::FlushCopies(_) | Action::TakeSnapshot => {
                at.disk.begin_flush();
            }
            Action::Apply(from, to) => {
                let Some(records) = at.disk.records(*from, *to) else {
                    self.fault =
                        Some(format!("member {member} applies {from}..{to}, which it has not"));
                    return;
                };
                for record in records {
                    at.disk.apply(&record);
                }
            }
            Action::PutCopy => {
                if let Some((_, extent, held)) = process.copies.pop_front() {
                    at.disk.volumes[cells(extent)].copy_from_slice(&held);
                }
            }
            _ => {}
        }
        queue.running = Some(action);
        let slowness =
            if matches!(lane, Lane::Member(_) | Lane::Witness) { 1 } else { at.slowness };
        let delay = self.chance.skewed(from, to) * slowness;
        self.later(delay, What::Lane(member, life, lane));
    }

    fn lane_is_done(&mut self, member: u8, lane: Lane) {
        let Some(process) = self.process(member) else { return };
        let Some(queue) = process.lanes.get_mut(&lane) else { return };
        let Some(action) = queue.running.take() else { return };
        match action {
            Action::Copy { peer, extent, compares } => {
                queue.running = Some(Action::Copy { peer, extent, compares });
                self.copy(member, peer, extent, compares);
                return;
            }
            Action::Propose { number, epoch, source, in_sync, set_version } => {
                let is_taken = self.propose(epoch, source, in_sync, set_version);
                self.trace(|| format!("witness: {epoch} of {source}, {in_sync}: {is_taken}"));
                self.step(member, Event::Proposed { number, is_taken });
            }
            action => self.finish(member, action),
        }
        self.run_lane(member, lane);
    }

    fn finish(&mut self, member: u8, action: Action) {
        let at = &mut self.members[usize::from(member)];
        let event = match action {
            Action::Persist(to) => {
                at.disk.persist(to);
                Event::RingDurable(to)
            }
            Action::Apply(_, to) => Event::AppliedTo(to),
            Action::FlushVolumes(to) => {
                at.disk.end_flush();
                Event::VolumesDurable(to)
            }
            Action::FlushCopies(count) => {
                at.disk.end_flush();
                Event::CopiesDurable(count)
            }
            Action::StoreLabel(label) => {
                let sequence = label.sequence;
                at.disk.label = *label;
                Event::LabelStored(sequence)
            }
            Action::StoreDirty { member: of, number, map } => {
                at.disk.store_map(of, &map);
                Event::DirtyStored(of, number)
            }
            Action::TakeSnapshot => {
                at.disk.end_flush();
                at.disk.snapshot = Some(at.disk.volumes.clone());
                Event::SnapshotTaken
            }
            Action::DropSnapshot => {
                at.disk.snapshot = None;
                return;
            }
            Action::PutCopy => Event::CopyPut,
            Action::Revoke => Event::Revoked,
            Action::Send(peer, message) => {
                self.post(member, peer, Parcel { message, records: Vec::new(), cells: Vec::new() });
                return;
            }
            Action::Ship { peer, epoch, from, to, committed } => {
                let records = at.disk.records(from, to);
                let is_open = self
                    .connections
                    .get(&peer.connection)
                    .is_some_and(|it| !it.is_over[it.side_of(MemberId(member))]);
                let Some(records) = records else {
                    if is_open {
                        self.fault =
                            Some(format!("member {member} ships {from}..{to}, which it has not"));
                    }
                    return;
                };
                let message = Message::Records { epoch, from, to, committed };
                self.post(member, peer, Parcel { message, records, cells: Vec::new() });
                Event::Shipped(peer, to)
            }
            _ => return,
        };
        self.step(member, event);
    }

    fn propose(
        &mut self,
        epoch: Epoch,
        source: MemberId,
        in_sync: MemberSet,
        version: u64,
    ) -> bool {
        if !self.plan.has_witness {
            return true;
        }
        let record = self.witness;
        let is_same = epoch == record.epoch && source == record.source;
        let changes = is_same && version == record.version + 1;
        let begins = epoch.rank() > record.epoch.rank()
            && (epoch.number > record.epoch.number || source == record.source)
            && record.in_sync.contains(source)
            && version == 1;
        if changes || begins {
            self.witness = Record { epoch, source, in_sync, version };
        }
        changes || begins
    }

    fn post(&mut self, member: u8, peer: Peer, parcel: Parcel) {
        let Some(connection) = self.connections.get_mut(&peer.connection) else { return };
        let side = connection.side_of(MemberId(member));
        if connection.is_silent || connection.is_over[side] {
            return;
        }
        let queue = &mut connection.queues[1 - side];
        queue.push_back(parcel);
        if queue.len() == 1 {
            let delay = self.chance.skewed(10_000, self.plan.latency.max(10_001));
            self.later(delay, What::Deliver(peer.connection, 1 - side));
        }
    }

    fn deliver(&mut self, number: u64, side: usize) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if connection.is_silent || connection.is_over[side] {
            return;
        }
        let Some(parcel) = connection.queues[side].pop_front() else { return };
        let (member, peer) = (connection.ends[side].0, connection.peer(side));
        let (is_alive, more) = (connection.is_known[side], !connection.queues[side].is_empty());
        if more {
            let delay = self.chance.skewed(1_000, (self.plan.latency / 8).max(1_001));
            self.later(delay, What::Deliver(number, side));
        }
        if is_alive {
            self.receive(member, peer, parcel);
        }
    }

    fn receive(&mut self, member: u8, peer: Peer, parcel: Parcel) {
        let Parcel { message, records, cells: held } = parcel;
        let now = self.now;
        if let Some(process) = self.process(member) {
            process.followed_at = now;
        }
        match message {
            Message::Records { epoch, from, to, committed } => {
                let Some(process) = self.process(member) else { return };
                match process.core.may_receive(peer, epoch, from, to) {
                    Err(_) => self.act(member, Action::Disconnect(peer)),
                    Ok(chain) => {
                        if records.first().is_some_and(|first| first.chain != chain) {
                            self.step(member, Event::NotReceived(peer));
                            return;
                        }
                        let disk = &mut self.members[usize::from(member)].disk;
                        let entries: Vec<Entry> = records.iter().map(|it| it.entry).collect();
                        for record in records {
                            disk.place(record);
                        }
                        self.step(member, Event::Received { peer, entries, committed });
                    }
                }
            }
            Message::Compare { extent, .. } => {
                let held = self.members[usize::from(member)].disk.volumes[cells(extent)].to_vec();
                let message = Message::Digests { extent, digests: Vec::new() };
                self.post(member, peer, Parcel { message, records: Vec::new(), cells: held });
            }
            Message::Digests { extent, .. } => {
                let Some(process) = self.process(member) else { return };
                let Some(at) = process.asks.iter().position(|ask| *ask == (peer, extent)) else {
                    return;
                };
                process.asks.swap_remove(at);
                self.copy_what_differs(member, peer, extent, Some(&held));
            }
            message => {
                if let (Message::Copy { extent, .. }, Some(process)) =
                    (&message, self.process(member))
                {
                    process.copies.push_back((peer, *extent, held));
                }
                self.step(member, Event::Said(peer, message));
            }
        }
    }

    fn lose(&mut self, number: u64, side: usize) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if std::mem::replace(&mut connection.is_over[side], true) {
            return;
        }
        connection.is_silent = true;
        connection.queues[side].clear();
        let (member, peer) = (connection.ends[side].0, connection.peer(side));
        let (was_known, life) = (connection.is_known[side], connection.lives[side]);
        let is_over = connection.is_over == [true, true];
        if is_over {
            self.connections.remove(&number);
        }
        if !was_known || !self.lives(member, life) {
            return;
        }
        if let Some(process) = self.process(member) {
            process.copies.retain(|(of, ..)| *of != peer);
            process.asks.retain(|(of, _)| *of != peer);
            let lane = Lane::Copies(peer.member);
            if let Some(queue) = process.lanes.get_mut(&lane) {
                queue.waits.retain(
                    |action| !matches!(action, Action::Copy { peer: of, .. } if *of == peer),
                );
                if matches!(&queue.running, Some(Action::Copy { peer: of, .. }) if *of == peer) {
                    queue.running = None;
                }
            }
        }
        self.step(member, Event::Lost(peer));
        self.run_lane(member, Lane::Copies(peer.member));
    }

    fn dial(&mut self, member: u8, life: u64) {
        let delay = self.chance.skewed(5 * MS, 50 * MS);
        self.later(delay, What::Dial(member, life));
        let others = 0..self.plan.members;
        for other in others.filter(|other| *other != member) {
            let Some(process) = self.process(member) else { return };
            let is_wanted = process.core.is_source() && !process.core.is_suspended(MemberId(other));
            let ends = [MemberId(member), MemberId(other)];
            let has_one = self
                .connections
                .values()
                .any(|it| it.ends == ends && it.lives[0] == life && !it.is_over[0]);
            let other_life = self.members[usize::from(other)].life;
            if !is_wanted
                || has_one
                || !self.lives(other, other_life)
                || self.is_blocked(ends[0], ends[1])
            {
                continue;
            }
            let number = self.next_connection;
            self.next_connection += 1;
            let connection = Connection {
                number,
                ends,
                lives: [life, other_life],
                queues: [VecDeque::new(), VecDeque::new()],
                is_known: [true, true],
                is_over: [false, false],
                is_silent: false,
            };
            let peers = [connection.peer(0), connection.peer(1)];
            self.connections.insert(number, connection);
            self.step(other, Event::Accepted(peers[1]));
            self.step(member, Event::Dialed(peers[0]));
        }
    }

    fn copy(&mut self, member: u8, peer: Peer, extent: Extent, compares: bool) {
        if !compares {
            self.copy_what_differs(member, peer, extent, None);
            return;
        }
        let Some(process) = self.process(member) else { return };
        process.asks.push((peer, extent));
        let epoch = process.core.epoch();
        let message = Message::Compare { epoch, extent };
        self.post(member, peer, Parcel { message, records: Vec::new(), cells: Vec::new() });
    }

    fn copy_what_differs(
        &mut self,
        member: u8,
        peer: Peer,
        extent: Extent,
        theirs: Option<&[u64]>,
    ) {
        let life = self.members[usize::from(member)].life;
        let lane = Lane::Copies(peer.member);
        let Some(process) = self.process(member) else { return };
        if process.touches(extent) {
            // Writers hold the range.
            match theirs {
                None => self.later(MS, What::Lane(member, life, lane)),
                Some(_) => {
                    if let Some(queue) = process.lanes.get_mut(&lane) {
                        queue.running = Some(Action::Copy { peer, extent, compares: true });
                    }
                    self.later(MS, What::Lane(member, life, lane));
                }
            }
            return;
        }
        let (at, epoch) = (process.core.kept().1, process.core.epoch());
        let ours = self.members[usize::from(member)].disk.volumes[cells(extent)].to_vec();
        let mut count = 0;
        for (index, held) in (0..).zip(ours.chunks(GRANULE_CELLS)) {
            let begin = index * GRANULE_CELLS;
            if theirs.is_some_and(|theirs| theirs[begin..begin + held.len()] == *held) {
                continue;
            }
            let part = Extent {
                offset: extent.offset + begin as u64 * CELL,
                len: held.len() as u64 * CELL,
                ..extent
            };
            let message = Message::Copy { epoch, at, extent: part, is_zero: false };
            self.post(member, peer, Parcel { message, records: Vec::new(), cells: held.to_vec() });
            count += 1;
        }
        let is_open = self.connections.get(&peer.connection).is_some_and(|it| !it.is_silent);
        if let Some(queue) = self.process(member).and_then(|it| it.lanes.get_mut(&lane)) {
            queue.running = None;
        }
        if is_open {
            self.step(member, Event::CopiesSent(peer, extent, count));
        }
        self.run_lane(member, lane);
    }

    fn tick(&mut self, member: u8, life: u64) {
        let delay = self.chance.skewed(5 * MS, 40 * MS);
        self.later(delay, What::Tick(member, life));
        self.step(member, Event::Tick);
        self.promote_by_itself(member);
    }

    // What a promoter does: the source has been silent, and this member was in sync.
    fn promote_by_itself(&mut self, member: u8) {
        let (now, record, has_witness) = (self.now, self.witness, self.plan.has_witness);
        let patience = LEASE + u64::from(member) * 20 * MS;
        let Some(process) = self.process(member) else { return };
        let is_silent = now.saturating_sub(process.followed_at) > patience;
        if has_witness
            && is_silent
            && !process.core.is_source()
            && record.in_sync.contains(MemberId(member))
        {
            process.followed_at = now;
            let (nonce, above) = (self.chance.below(u64::MAX), self.above());
            self.step(member, Event::Wanted(Wish::Promote { nonce, above, by_force: false }));
        }
    }

    // What an operator does: hands over, or has another go on for a source that is down.
    fn switch(&mut self) {
        let member = self.any_member();
        let (nonce, above) = (self.chance.below(u64::MAX), self.above());
        let source = (0..self.plan.members).find(|at| {
            self.members[usize::from(*at)].process.as_ref().is_some_and(|it| it.core.is_source())
        });
        if let Some(source) = source {
            if source != member {
                let to = MemberId(member);
                self.step(source, Event::Wanted(Wish::Reverse { to, nonce }));
            }
            return;
        }
        if self.plan.has_witness {
            return;
        }
        // The one that was the source last, and lies there.
        let newest = self.members.iter().max_by_key(|it| it.disk.label.history.current().rank());
        let Some(dead) = newest.filter(|it| it.process.is_none() && it.disk.label.is_source) else {
            return;
        };
        let may = dead.last_in_sync.contains(MemberId(member));
        let lives = self.members[usize::from(member)].process.is_some();
        if lives && (may || self.plan.forces) {
            let by_force = !may;
            self.step(member, Event::Wanted(Wish::Promote { nonce, above, by_force }));
        }
    }

    fn wish(&mut self) {
        let (at, member) = (self.any_member(), MemberId(self.any_member()));
        if MemberId(at) == member {
            return;
        }
        let wish = match self.chance.below(6) {
            0 => Wish::Suspend(member),
            1 | 2 => Wish::Resume(member),
            3 => Wish::Compare(member),
            _ => Wish::SetMode(member, [Mode::Sync, Mode::Async][self.chance.index(2)]),
        };
        self.step(at, Event::Wanted(wish));
    }

    fn write(&mut self, member: u8, at: usize) {
        let life = self.members[usize::from(member)].life;
        let heals = self.heals;
        let Some(process) = self.process(member) else { return };
        match process.writers[at] {
            Writer::Idle => {
                if heals {
                    return;
                }
                let is_open = process.is_open;
                let delay = match is_open && self.submit(member, at) {
                    true => self.chance.skewed(1_000, MS),
                    false => self.chance.skewed(MS, 20 * MS),
                };
                self.later(delay, What::Writer(member, life, at));
            }
            Writer::Placing(work) => {
                process.writers[at] = Writer::Waiting(work);
                if let Some(pad) = work.pad {
                    self.step(member, Event::Placed(pad));
                }
                self.step(member, Event::Placed(work.lsn));
                // It may be committed already.
                let Some(process) = self.process(member) else { return };
                if !process.core.is_source() || process.is_stopping {
                    process.writers[at] = Writer::Idle;
                    self.later(MS, What::Writer(member, life, at));
                }
            }
            Writer::Waiting(_) => {}
            Writer::Applying(work) => {
                process.writers[at] = Writer::Idle;
                if let Some(extent) = work.extent {
                    self.members[usize::from(member)].disk.write(extent, work.stamp);
                    self.truth.is_acknowledged(extent, work.stamp);
                }
                self.trace(|| format!("m{member} acknowledges {} at {}", work.stamp, work.lsn));
                self.step(member, Event::Applied(work.lsn));
                let delay = self.chance.skewed(1_000, 5 * MS);
                self.later(delay, What::Writer(member, life, at));
            }
        }
    }

    fn submit(&mut self, member: u8, at: usize) -> bool {
        let first = self.chance.below(CELLS);
        let len = (1 + self.chance.below(3)).min(CELLS - first);
        let volume = u8::try_from(self.chance.below(VOLUMES.into())).unwrap_or(0);
        let extent = Extent { volume, offset: first * CELL, len: len * CELL };
        let kind = match self.chance.below(20) {
            0 => Kind::Mark,
            1 => Kind::Zero,
            2 | 3 => Kind::Trim,
            _ => Kind::Write,
        };
        let (stamp, first_sum, time_ns) = (self.next_stamp, self.next_sum, self.now);
        let Some(process) = self.process(member) else { return false };
        if process.touches(extent) {
            return false;
        }
        let stored = match kind {
            Kind::Write => u32::try_from(extent.len).unwrap_or(0),
            Kind::Mark => 10,
            _ => 0,
        };
        let draft = Draft {
            kind,
            encoding: Encoding::Plain,
            volume,
            stored,
            offset: extent.offset,
            len: extent.len,
            time_ns,
        };
        let seal = |record: &replica::format::Record| {
            if record.kind == Kind::Pad { first_sum } else { first_sum + 1 }
        };
        let Ok(admitted) = process.core.submit(draft, seal) else { return false };
        self.next_sum += 2;
        self.next_stamp += 1;
        let mut stored = Vec::new();
        for record in admitted.pad.iter().chain([&admitted.record]) {
            let entry = Entry::of(record, seal(record));
            let stamp = if record.kind == Kind::Write { stamp } else { 0 };
            stored.push(Arc::new(Stored {
                entry,
                epoch: record.epoch,
                chain: record.chain,
                stamp,
            }));
        }
        for record in stored {
            self.truth.is_issued(&record);
            self.members[usize::from(member)].disk.place(record);
        }
        let record = admitted.record;
        let Some(process) = self.process(member) else { return false };
        process.writers[at] = Writer::Placing(Work {
            pad: admitted.pad.map(|pad| pad.lsn),
            lsn: record.lsn,
            end: record.end(),
            extent: record.changes(),
            stamp: if kind == Kind::Write { stamp } else { 0 },
        });
        true
    }

    // A destination that says it may be mounted is what some records made, in their order.
    fn probe(&mut self) {
        for member in &self.members {
            let Some(process) = &member.process else { continue };
            let core = &process.core;
            if core.is_source() {
                continue;
            }
            if !core.is_consistent() {
                continue;
            }
            let busy = process.lanes.get(&Lane::Volumes).and_then(|it| it.running.as_ref());
            if matches!(busy, Some(Action::Apply(..) | Action::PutCopy)) {
                continue;
            }
            let Some(sum) = core.sum_before(core.applied()) else { continue };
            self.sums.probes += 1;
            if let Err(fault) = self.truth.is_behind(sum, &member.disk.volumes) {
                self.fault =
                    Some(format!("{} says it is a copy at {}: {fault}", member.id, core.applied()));
                return;
            }
        }
    }

    fn heal(&mut self) {
        self.trace(|| "all faults end".to_owned());
        self.heals = true;
        self.blocked.clear();
        for member in 0..self.plan.members {
            if self.members[usize::from(member)].process.is_none() {
                self.start(member);
            }
            for other in 0..self.plan.members {
                let others = MemberId(other);
                self.step(member, Event::Wanted(Wish::Resume(others)));
                self.step(member, Event::Wanted(Wish::SetMode(others, Mode::Sync)));
            }
        }
    }

    fn is_at_rest(&mut self) -> bool {
        let sources: Vec<u8> = (0..self.plan.members)
            .filter(|at| {
                self.members[usize::from(*at)]
                    .process
                    .as_ref()
                    .is_some_and(|it| it.core.is_source())
            })
            .collect();
        if sources.is_empty() && !self.plan.has_witness {
            self.operator_chooses();
            return false;
        }
        let [source] = sources[..] else { return false };
        let Some(process) = &self.members[usize::from(source)].process else { return false };
        let status = process.core.status();
        let all = (1 << self.plan.members) - 1;
        let is_done = status.is_ready
            && status.committed == status.end
            && status.applied == status.end
            && status.in_sync == MemberSet(all)
            && process.writers.iter().all(|writer| matches!(writer, Writer::Idle));
        is_done
            && self.members.iter().filter(|it| it.id.0 != source).all(|it| {
                let Some(process) = &it.process else { return false };
                let its = process.core.status();
                let has_all = its.end == status.end && its.durable == status.end;
                has_all
                    && (its.applied == status.end || self.plan.retention_ns > 0)
                    && its.is_consistent
            })
    }

    // Nobody is the source, and all are there: the operator takes the one that has most.
    fn operator_chooses(&mut self) {
        let (nonce, above) = (self.chance.below(u64::MAX), self.above());
        let best = (0..self.plan.members).max_by_key(|at| {
            let member = &self.members[usize::from(*at)];
            member.process.as_ref().map(|it| {
                let status = it.core.status();
                let in_sync = it.core.label().in_sync.contains(member.id);
                (status.is_consistent, in_sync, status.epoch.rank(), status.end)
            })
        });
        if let Some(best) = best {
            let is_in_sync = self.members[usize::from(best)]
                .process
                .as_ref()
                .is_some_and(|it| it.core.label().in_sync.contains(MemberId(best)));
            let by_force = !is_in_sync;
            self.step(best, Event::Wanted(Wish::Promote { nonce, above, by_force }));
        }
    }

    fn judge(&mut self) -> Result<(), String> {
        let source = self
            .members
            .iter()
            .find(|it| it.process.as_ref().is_some_and(|it| it.core.is_source()))
            .map(|it| it.disk.volumes.clone());
        let Some(source) = source else { return Err("no source".to_owned()) };
        self.truth.check(&source).map_err(|fault| format!("at rest: {fault}"))?;
        if self.plan.retention_ns > 0 {
            self.probe();
            return self.fault.take().map_or(Ok(()), Err);
        }
        for member in &self.members {
            if member.disk.volumes != source {
                let cell = (0..source.len()).find(|at| source[*at] != member.disk.volumes[*at]);
                return Err(format!(
                    "at rest {} differs from the source in cell {cell:?}",
                    member.id
                ));
            }
        }
        Ok(())
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
        volumes: vec![CELLS * CELL; usize::from(VOLUMES)],
        capacity: plan.capacity,
        least_in_sync: 1,
        has_witness: plan.has_witness,
        congestion: plan.congestion,
        window: plan.window,
        silence_ns: 2 * SECOND,
        retention_ns: plan.retention_ns,
        copy_window: 1 << 20,
    }
}

/// Cells of what is copied at once.
const GRANULE_CELLS: usize = 4;
/// A destination waits so long for its source.
const LEASE: u64 = 300 * MS;
/// All is well again after the faults.
const HEALS_WITHIN: u64 = 200 * SECOND;
