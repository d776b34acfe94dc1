//! What goes between members: connections are made and lost, messages arrive, copies are read.

use std::collections::VecDeque;

use replica::MemberId;
use replica::core::{Action, Entry, Event, Lane};
use replica::format::Extent;
use replica::message::{Message, Peer};

use crate::disk::{CELL, cells};
use crate::net::{Connection, Parcel, Way};
use crate::plan::MS;
use crate::tracks::Tracks;
use crate::world::{What, World};

impl World<'_> {
    pub(crate) fn post(&mut self, member: u8, peer: Peer, parcel: Parcel) {
        let Some(connection) = self.connections.get_mut(&peer.connection) else { return };
        let side = connection.side_of(MemberId(member));
        if connection.is_silent || connection.is_closed || connection.is_over[side] {
            return;
        }
        if connection.tracks.is_some() {
            self.post_by_ways(peer.connection, side, parcel);
            return;
        }
        let queue = &mut connection.queues[1 - side];
        queue.push_back(parcel);
        if queue.len() == 1 {
            let delay = self.chance.skewed(10_000, self.plan.latency.max(10_001));
            self.later(delay, What::Deliver(peer.connection, 1 - side));
        }
    }

    pub(crate) fn deliver(&mut self, number: u64, side: usize) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let is_dead = connection.is_silent || connection.is_closed;
        if is_dead || connection.is_over[side] || connection.is_deaf[side] {
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

    pub(crate) fn receive(&mut self, member: u8, peer: Peer, parcel: Parcel) {
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
                        self.step(
                            member,
                            Event::Received { peer, entries, committed, are_durable: false },
                        );
                    }
                }
            }
            Message::There { epoch, from, to, committed } => {
                self.receive_there(member, peer, epoch, (from, to), committed);
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
                let is_whole = matches!(message, Message::Consistent { .. });
                self.step(member, Event::Said(peer, message));
                if is_whole {
                    // It knows, and has not applied what that needs.
                    self.probe();
                }
            }
        }
    }

    pub(crate) fn lose(&mut self, number: u64, side: usize) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if std::mem::replace(&mut connection.is_over[side], true) {
            return;
        }
        connection.is_silent = true;
        connection.queues[side].clear();
        if let Some(tracks) = &mut connection.tracks {
            tracks.end(side);
        }
        let (member, peer) = (connection.ends[side].0, connection.peer(side));
        let (was_known, life) = (connection.is_known[side], connection.lives[side]);
        let was_used = connection.way.is_used;
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
        self.adopt(member, peer, was_used && side == 1);
        self.step(member, Event::Lost(peer));
        self.run_lane(member, Lane::Copies(peer.member));
    }

    pub(crate) fn dial(&mut self, member: u8, life: u64) {
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
                || self.is_stopped(other)
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
                is_closed: false,
                is_deaf: [false, false],
                way: Way::default(),
                tracks: (self.plan.ways > 1).then(|| Box::new(Tracks::new(self.plan.ways))),
            };
            let peers = [connection.peer(0), connection.peer(1)];
            self.connections.insert(number, connection);
            self.step(other, Event::Accepted(peers[1]));
            self.step(member, Event::Dialed(peers[0]));
        }
    }

    pub(crate) fn copy(&mut self, member: u8, peer: Peer, extent: Extent, compares: bool) {
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

    pub(crate) fn copy_what_differs(
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
            // Writers hold the range: it is tried again, with new digests where they are asked for.
            let begun = process.lanes.get(&lane).map_or(0, |queue| queue.begun);
            self.later(MS, What::Lane(member, life, lane, begun));
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
        let is_open =
            self.connections.get(&peer.connection).is_some_and(|it| !it.is_silent && !it.is_closed);
        if let Some(queue) = self.process(member).and_then(|it| it.lanes.get_mut(&lane)) {
            queue.running = None;
        }
        if is_open {
            self.step(member, Event::CopiesSent(peer, extent, count));
        }
        self.run_lane(member, lane);
    }
}

/// Cells of what is copied at once.
const GRANULE_CELLS: usize = 4;
