//! What drivers do: the actions of the core, each after a while, those of a lane in their order.

use replica::core::{Action, Denial, Event, Lane, News};
use replica::message::{Message, Peer};
use replica::witness::{Seat, may_follow};
use replica::{Epoch, MemberId, MemberSet};

use crate::disk::{cells, shown};
use crate::member::{Queue, Writer};
use crate::net::{Operation, Parcel};
use crate::plan::MS;
use crate::turns::mixes_without_a_copy;
use crate::wear::meet;
use crate::world::{Record, What, World};

impl World<'_> {
    pub(crate) fn act(&mut self, member: u8, action: Action) {
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
                connection.is_closed = true;
                let side = connection.side_of(MemberId(member));
                let longest = if self.plan.turns { 100 * MS } else { MS };
                let (soon, late) =
                    (self.chance.skewed(1000, longest), self.chance.skewed(10_000, 50 * MS));
                self.later(soon, What::Lose(peer.connection, side));
                // Where nothing gets through, the other end learns of it later.
                if !self.is_lost_on_the_way(MemberId(member), peer.member) {
                    self.later(late, What::Lose(peer.connection, 1 - side));
                }
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
                self.heals_what_has_rotted(member);
                let Some(process) = self.process(member) else { return };
                let (sizes, epoch) = (process.core.sizes().to_vec(), process.core.status().epoch);
                let volumes = shown(&self.members[usize::from(member)].disk.volumes, &sizes);
                // Where applying takes long the witness may have another source by now: this one answers no write, and what may
                // be read of it is judged where it is read.
                let is_source = !self.plan.has_witness || self.witness.epoch == epoch;
                if is_source && let Err(fault) = self.truth.check(&volumes) {
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

    pub(crate) fn hear_news(&mut self, member: u8, news: News) {
        self.history(|| format!("member {member} tells: {news}"));
        match news {
            News::CopyEnds(of) => {
                self.sums.copies += 1;
                let others = self.process(member).map(|it| it.core.status().others);
                let lacks = others.iter().flatten().find(|(id, _)| *id == of);
                if let Some((_, state)) = lacks.filter(|(_, state)| state.lacks > 0) {
                    self.fault = Some(format!(
                        "member {member} says that {of} has all copies, which lacks {} bytes",
                        state.lacks
                    ));
                }
            }
            News::Denied(Denial::NotInSync) if self.asked == Some(member) => {
                self.fault = Some(format!(
                    "member {member} takes itself for out of sync: its source did not"
                ));
            }
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

    pub(crate) fn writers_stopped(&mut self, member: u8) {
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

    pub(crate) fn run_lane(&mut self, member: u8, lane: Lane) {
        let at = &mut self.members[usize::from(member)];
        let life = at.life;
        let Some(process) = &mut at.process else { return };
        let queue: &mut Queue = process.lanes.entry(lane).or_default();
        if queue.running.is_some() {
            return;
        }
        let Some(action) = queue.waits.pop_front() else { return };
        let (mut found, mut late) = (Vec::new(), None);
        let (from, to) = match &action {
            Action::Persist(_) => (5_000, 2 * MS),
            Action::Apply(..) | Action::FlushVolumes(_) | Action::FlushCopies(_) => (5_000, 5 * MS),
            Action::StoreLabel(_) | Action::StoreDirty { .. } => (5_000, 3 * MS),
            Action::TakeSnapshot { .. } => (5_000, 10 * MS),
            Action::Propose { .. } => (100_000, 20 * MS),
            _ => (1_000, 200_000),
        };
        match &action {
            Action::FlushVolumes(_) | Action::FlushCopies(_) | Action::TakeSnapshot { .. } => {
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
                    // The order of a source says nothing of what it has not compared.
                    let compares = record.compares.as_ref().filter(|_| !process.core.is_source());
                    let is_exact = process.core.is_exact_at(record.entry.lsn);
                    if let Some((extent, held)) = compares.filter(|_| is_exact)
                        && at.disk.volumes[cells(*extent)] != held[..]
                    {
                        found.push((record.entry.lsn, *extent));
                    }
                }
            }
            Action::PutCopy => {
                if let Some((_, extent, held)) = process.copies.pop_front() {
                    process.differing.retain(|(_, of)| !meet(*of, extent));
                    at.rotten.retain(|(cell, _)| !cells(extent).contains(cell));
                    at.disk.volumes[cells(extent)].copy_from_slice(&held);
                }
            }
            _ => {}
        }
        if let Action::Propose { epoch, source, in_sync, set_version, .. } = &action {
            late = Some(Record {
                epoch: *epoch,
                source: *source,
                in_sync: *in_sync,
                version: *set_version,
            });
        }
        queue.running = Some(action);
        queue.begun += 1;
        let begun = queue.begun;
        let slowness =
            if matches!(lane, Lane::Member(_) | Lane::Witness) { 1 } else { at.slowness };
        let delay = self.chance.skewed(from, to) * slowness;
        self.later(delay, What::Lane(member, life, lane, begun));
        if let Some(wanted) = late {
            self.request_may_be_late(wanted);
        }
        for (lsn, extent) in found {
            self.finds(member, lsn, extent);
        }
    }

    pub(crate) fn lane_is_done(&mut self, member: u8, lane: Lane, action: u64) {
        let Some(process) = self.process(member) else { return };
        let Some(queue) = process.lanes.get_mut(&lane) else { return };
        if queue.begun != action {
            return;
        }
        let Some(action) = queue.running.take() else { return };
        if self.is_refused_by_disk(member, &action) {
            // The lane does nothing any more.
            if let Some(queue) = self.process(member).and_then(|it| it.lanes.get_mut(&lane)) {
                queue.running = Some(action);
            }
            return;
        }
        match action {
            Action::Copy { peer, extent, compares } => {
                if let Some(queue) = self.process(member).and_then(|it| it.lanes.get_mut(&lane)) {
                    queue.running = Some(Action::Copy { peer, extent, compares });
                }
                self.copy(member, peer, extent, compares);
                return;
            }
            Action::Propose { number, epoch, source, in_sync, set_version } => {
                self.members[usize::from(member)].proposed = in_sync;
                let is_taken = self.propose(epoch, source, in_sync, set_version);
                self.history(|| format!("witness: {epoch} of {source}, {in_sync}: {is_taken}"));
                self.step(member, Event::Proposed { number, is_taken });
            }
            action => self.finish(member, action),
        }
        self.run_lane(member, lane);
    }

    pub(crate) fn finish(&mut self, member: u8, action: Action) {
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
                if let Some(fault) = mixes_without_a_copy(&at.disk, &label) {
                    self.fault = Some(format!("member {member} {fault}"));
                }
                at.disk.label = *label;
                Event::LabelStored(sequence)
            }
            Action::StoreDirty { member: of, number, map } => {
                at.disk.store_map(of, &map);
                Event::DirtyStored(of, number)
            }
            Action::TakeSnapshot { is_first } => {
                at.disk.end_flush();
                if is_first {
                    at.disk.snapshot = Some(at.disk.volumes.clone());
                }
                Event::SnapshotTaken
            }
            Action::DropSnapshot => {
                at.disk.snapshot = None;
                return;
            }
            Action::PutCopy => Event::CopyPut,
            Action::Revoke => Event::Revoked,
            Action::Send(peer, message) => {
                self.say(member, peer, message);
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
                let records =
                    match self.operate(member, peer, Operation { epoch, from, to, records }) {
                        Some(operation) => operation.records,
                        None => return,
                    };
                let message = Message::Records { epoch, from, to, committed };
                self.post(member, peer, Parcel { message, records, cells: Vec::new() });
                Event::Shipped(peer, to)
            }
            _ => return,
        };
        self.step(member, event);
    }

    fn say(&mut self, member: u8, peer: Peer, message: Message) {
        // It may speak of records that went the other way.
        self.tell_there(peer.connection);
        let follows = message == Message::Following;
        self.post(member, peer, Parcel { message, records: Vec::new(), cells: Vec::new() });
        if follows {
            self.says_what_differs(member, peer);
        }
    }

    pub(crate) fn propose(
        &mut self,
        epoch: Epoch,
        source: MemberId,
        in_sync: MemberSet,
        version: u64,
    ) -> bool {
        if !self.plan.has_witness {
            return true;
        }
        let Record { epoch: was, source: of, in_sync: had, version: at } = self.witness;
        let recorded = Seat { epoch: was, source: of, in_sync: had, set_version: at };
        let wanted = Seat { epoch, source, in_sync, set_version: version };
        let is_taken = may_follow(Some(&recorded), &wanted);
        if is_taken {
            let joins = in_sync.iter().find(|member| !had.contains(*member));
            self.witness = Record { epoch, source, in_sync, version };
            if let Some(member) = joins.filter(|_| epoch == was) {
                self.aim_at(source, member);
            }
        }
        is_taken
    }
}
