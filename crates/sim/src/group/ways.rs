//! One-sided operations: a source places records in the ring of a member and makes them durable there, and no code of the
//! member runs for it.

use replica::core::{Entry, Event};
use replica::message::{Message, Peer};
use replica::{Epoch, Lsn, MemberId};

use crate::net::{Operation, Parcel};
use crate::plan::MS;
use crate::world::{What, World};

impl World<'_> {
    /// Has records go to a member by an operation; gives it back if they have to go by a message.
    pub(crate) fn operate(
        &mut self,
        member: u8,
        peer: Peer,
        operation: Operation,
    ) -> Option<Operation> {
        if !self.plan.one_sided {
            return Some(operation);
        }
        let durable = self.process(member).and_then(|it| it.core.durable_at(peer));
        let Some(connection) = self.connections.get_mut(&peer.connection) else {
            return Some(operation);
        };
        if connection.side_of(MemberId(member)) != 0 {
            return Some(operation);
        }
        let is_whole = durable.is_some_and(|durable| durable >= operation.from);
        if !connection.way.is_used && !is_whole {
            return Some(operation);
        }
        connection.way.is_used = true;
        connection.way.operations.push_back(operation);
        if connection.way.operations.len() == 1 {
            let delay = self.chance.skewed(5_000, self.plan.latency.max(5_001));
            self.later(delay, What::Place(peer.connection));
        }
        None
    }

    pub(crate) fn place_there(&mut self, number: u64) {
        let Some((target, operation)) = self.next_operation(number) else { return };
        for record in operation.records {
            self.members[usize::from(target)].disk.place(record);
        }
        let delay = self.chance.skewed(1_000, 2 * MS);
        self.later(delay, What::Flush(number));
    }

    pub(crate) fn flush_there(&mut self, number: u64) {
        let Some((target, operation)) = self.next_operation(number) else { return };
        self.members[usize::from(target)].disk.persist(operation.to);
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let way = &mut connection.way;
        way.operations.pop_front();
        way.answers.push_back(operation);
        let (is_first, has_more) = (way.answers.len() == 1, !way.operations.is_empty());
        if is_first {
            let delay = self.chance.skewed(5_000, self.plan.latency.max(5_001));
            self.later(delay, What::Answer(number));
        }
        if has_more {
            let delay = self.chance.skewed(1_000, (self.plan.latency / 8).max(1_001));
            self.later(delay, What::Place(number));
        }
    }

    /// The first operation and whose ring it is for, unless that one has revoked what the connection may do, or nothing gets
    /// through.
    fn next_operation(&self, number: u64) -> Option<(u8, Operation)> {
        let connection = self.connections.get(&number)?;
        let (target, life) = (connection.ends[1].0, connection.lives[1]);
        let is_dead = connection.is_silent || connection.is_over[1] || connection.is_deaf[1];
        let operation = connection.way.operations.front()?.clone();
        (!is_dead && self.lives(target, life)).then_some((target, operation))
    }

    pub(crate) fn answer_from_there(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let is_dead = connection.is_silent || connection.is_closed;
        if is_dead || connection.is_over[0] || connection.is_deaf[0] {
            return;
        }
        let Some(operation) = connection.way.answers.pop_front() else { return };
        let (member, peer, life) = (connection.ends[0].0, connection.peer(0), connection.lives[0]);
        let (to, has_more) = (operation.to, !connection.way.answers.is_empty());
        connection.way.untold.push_back(operation);
        if has_more {
            let delay = self.chance.skewed(1_000, (self.plan.latency / 8).max(1_001));
            self.later(delay, What::Answer(number));
        }
        let (soon, late) = if self.plan.turns { (MS, 30 * MS) } else { (1_000, 10 * MS) };
        let delay = self.chance.skewed(soon, late);
        self.later(delay, What::TellThere(number));
        if self.lives(member, life) {
            self.step(member, Event::Shipped(peer, to));
            self.step(member, Event::DurableThere(peer, to));
        }
    }

    pub(crate) fn tell_there(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let (member, peer) = (connection.ends[0].0, connection.peer(0));
        let untold = std::mem::take(&mut connection.way.untold);
        let (Some(first), Some(last)) = (untold.front(), untold.back()) else { return };
        let (epoch, from, to) = (first.epoch, first.from, last.to);
        let committed = self.process(member).map_or(Lsn(0), |it| it.core.committed());
        let message = Message::There { epoch, from, to, committed };
        self.post(member, peer, Parcel { message, records: Vec::new(), cells: Vec::new() });
    }

    pub(crate) fn receive_there(
        &mut self,
        member: u8,
        peer: Peer,
        epoch: Epoch,
        (from, to): (Lsn, Lsn),
        committed: Lsn,
    ) {
        let records = self.members[usize::from(member)].disk.records(from, to);
        let Some(process) = self.process(member) else { return };
        let Ok(chain) = process.core.may_receive(peer, epoch, from, to) else {
            self.act(member, replica::core::Action::Disconnect(peer));
            return;
        };
        let sound = records.filter(|it| it.first().is_none_or(|first| first.chain == chain));
        match sound {
            Some(records) => {
                let entries = records.iter().map(|it| it.entry).collect();
                let received = Event::Received { peer, entries, committed, are_durable: true };
                self.step(member, received);
            }
            None => {
                self.fault =
                    Some(format!("member {member} is told of {from}..{to}, which it has not"));
            }
        }
    }

    /// Nothing more comes by a connection: what came by operations, and nobody told of, is taken in.
    pub(crate) fn adopt(&mut self, member: u8, peer: Peer, was_used: bool) {
        if !was_used {
            return;
        }
        let Some(process) = self.process(member) else { return };
        let Some((mut at, mut chain)) = process.core.may_adopt(peer) else { return };
        let (label, start) = (process.core.label().clone(), process.core.kept().0);
        let limit = start.plus(self.plan.capacity);
        let disk = &mut self.members[usize::from(member)].disk;
        let mut entries: Vec<Entry> = Vec::new();
        while let Some(record) = disk.record(at) {
            let epoch = label.history.epoch_at(at).map(Epoch::tag);
            let is_next = record.chain == chain && epoch == Some(record.epoch);
            if !is_next || record.entry.end > limit {
                break;
            }
            entries.push(record.entry);
            (at, chain) = (record.entry.end, record.entry.sum);
        }
        disk.persist(at);
        self.sums.adopted += u64::from(!entries.is_empty());
        let committed = Lsn(0);
        self.step(member, Event::Received { peer, entries, committed, are_durable: true });
    }
}
