//! Sources that others cannot reach, and that know nothing of it: connections that carry nothing one way, crashes of which
//! nobody is told, and processes that are stopped and go on.

use replica::MemberId;

use crate::plan::MS;
use crate::world::{What, World};

impl World<'_> {
    /// What one member sends does not reach another for a while; then it comes, late.
    pub(crate) fn one_way(&mut self) {
        let (mut from, mut to) = (self.any_member(), self.any_member());
        let source = self.any_source().filter(|_| self.chance.happens(3, 4));
        if let Some(source) = source {
            // More often than not it is the source that is not heard.
            (from, to) = match self.chance.happens(3, 4) {
                true => (source, to),
                false => (from, source),
            };
        }
        if from != to {
            self.loses_one_way(from, to);
            self.loses_the_other_way_later(from, to);
        }
    }

    // Who goes without having been heard for so long tells the other so, which is not heard either.
    fn loses_the_other_way_later(&mut self, from: u8, to: u8) {
        if self.chance.happens(1, 2) {
            let silence = self.plan.silence_ns;
            let delay = silence / 4 + self.chance.below(silence / 4 * 3 + 1);
            self.later(delay, What::LoseWay(to, from));
        }
    }

    pub(crate) fn any_source(&self) -> Option<u8> {
        let is_source = |at: &u8| {
            self.members[usize::from(*at)].process.as_ref().is_some_and(|it| it.core.is_source())
        };
        (0..self.plan.members).find(is_source)
    }

    pub(crate) fn loses_one_way(&mut self, from: u8, to: u8) {
        self.sums.one_way += 1;
        self.history(|| format!("member {to} does not hear member {from}"));
        self.one_way.push((from, to));
        for connection in self.connections.values_mut() {
            if connection.ends.contains(&MemberId(from)) && connection.ends.contains(&MemberId(to))
            {
                let side = connection.side_of(MemberId(to));
                connection.is_deaf[side] = true;
            }
        }
        let silence = self.plan.silence_ns;
        let delay = self.chance.skewed(silence / 4, 4 * silence);
        self.later(delay, What::Hear(from, to));
    }

    /// Whether what a member sends to another is lost at present.
    pub(crate) fn is_lost_on_the_way(&self, from: MemberId, to: MemberId) -> bool {
        self.one_way.contains(&(from.0, to.0))
    }

    /// What one member sends reaches the other again, and so does what it sent before where the connection still is one.
    pub(crate) fn hears_again(&mut self, from: u8, to: u8) {
        let Some(at) = self.one_way.iter().position(|it| *it == (from, to)) else { return };
        self.one_way.swap_remove(at);
        if self.one_way.contains(&(from, to)) {
            return;
        }
        let of_them: Vec<u64> = self
            .connections
            .values()
            .filter(|it| it.ends.contains(&MemberId(from)) && it.ends.contains(&MemberId(to)))
            .map(|it| it.number)
            .collect();
        for number in of_them {
            let Some(connection) = self.connections.get_mut(&number) else { continue };
            let side = connection.side_of(MemberId(to));
            connection.is_deaf[side] = false;
            let has_none = connection.way.operations.is_empty();
            if connection.is_over[1 - side] || connection.is_silent || connection.is_closed {
                let delay = self.chance.skewed(MS, 500 * MS);
                self.later(delay, What::Lose(number, side));
                if side == 1 && !has_none {
                    let delay = self.chance.skewed(10_000, 10 * MS);
                    self.later(delay, What::Place(number));
                }
                continue;
            }
            // What waited for the way comes now.
            let waits = [
                (!connection.queues[side].is_empty(), What::Deliver(number, side)),
                (side == 1 && !connection.way.operations.is_empty(), What::Place(number)),
                (side == 0 && !connection.way.answers.is_empty(), What::Answer(number)),
            ];
            let ways = connection.tracks.as_deref().map_or(Vec::new(), |it| it.that_wait(side));
            for way in ways {
                let delay = self.chance.skewed(10_000, 10 * MS);
                self.later(delay, What::Frame(number, side, way));
            }
            for (_, what) in waits.into_iter().filter(|(waits, _)| *waits) {
                let delay = self.chance.skewed(10_000, 10 * MS);
                self.later(delay, what);
            }
        }
    }

    /// A machine goes without a word, and what it says when it is back is lost for a while: the others learn of it by its
    /// silence.
    pub(crate) fn dies_unheard(&mut self, member: u8, connections: Vec<u64>) {
        for number in connections {
            let Some(connection) = self.connections.get_mut(&number) else { continue };
            connection.is_silent = true;
            let side = connection.side_of(MemberId(member));
            self.later(1000, What::Lose(number, side));
        }
        for other in (0..self.plan.members).filter(|other| *other != member) {
            self.loses_one_way(member, other);
        }
    }

    /// Who comes in sync, as the witness has it, hears nothing from then on: its source does not know that it may be promoted.
    pub(crate) fn aim_at(&mut self, source: MemberId, member: MemberId) {
        if self.plan.aims && !self.heals && self.chance.happens(1, 6) {
            self.loses_one_way(source.0, member.0);
            self.loses_the_other_way_later(source.0, member.0);
        }
    }

    /// A process is stopped, its clock is not.
    pub(crate) fn stop(&mut self) {
        let member = match self.any_source().filter(|_| self.chance.happens(1, 2)) {
            Some(source) => source,
            None => self.any_member(),
        };
        if self.is_stopped(member) || self.process(member).is_none() {
            return;
        }
        let silence = self.plan.silence_ns;
        let delay = self.chance.skewed(20 * MS, 4 * silence);
        self.sums.stops += 1;
        self.history(|| format!("member {member} is stopped"));
        self.members[usize::from(member)].stopped_until = self.now + delay;
        self.later(delay, What::GoOn(member));
    }

    pub(crate) fn is_stopped(&self, member: u8) -> bool {
        self.members[usize::from(member)].stopped_until > self.now
    }

    /// The first thing that it does is what a reader asks for.
    pub(crate) fn goes_on(&mut self, member: u8) {
        if self.is_stopped(member) {
            return;
        }
        self.history(|| format!("member {member} goes on"));
        self.read();
    }

    /// Whose process does it, where a process does.
    pub(crate) fn whose(&self, what: &What) -> Option<u8> {
        let end =
            |number: &u64, side: usize| self.connections.get(number).map(|it| it.ends[side].0);
        match what {
            What::Lane(member, ..)
            | What::Writer(member, ..)
            | What::WritersStopped(member, _)
            | What::Tick(member, _)
            | What::Dial(member, _) => Some(*member),
            What::Mend(member, _) => Some(*member),
            What::Deliver(number, side)
            | What::Lose(number, side)
            | What::Frame(number, side, _) => end(number, *side),
            // An adapter places and flushes whatever its process does.
            What::Answer(number) | What::TellThere(number) => end(number, 0),
            _ => None,
        }
    }

    /// Has what a stopped process would do wait until it goes on, in its order.
    pub(crate) fn waits_for_process(&mut self, what: &What) -> bool {
        let Some(member) = self.whose(what).filter(|member| self.is_stopped(*member)) else {
            return false;
        };
        self.waiting += 1;
        let delay = self.members[usize::from(member)].stopped_until - self.now + self.waiting;
        self.later(delay, what.clone());
        true
    }

    /// At the end of the faults.
    pub(crate) fn all_goes_through(&mut self) {
        while let Some((from, to)) = self.one_way.first().copied() {
            self.hears_again(from, to);
        }
        let now = self.now;
        for member in &mut self.members {
            member.stopped_until = member.stopped_until.min(now);
        }
    }
}
