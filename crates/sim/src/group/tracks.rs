//! A connection that goes several ways: each way delivers in its order, late, until it is cut. What orders the frames, sends
//! them once more and drops what comes twice is that of production.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use replica::MemberId;
use replica::message::Message;
use replica::wire::{Flow, Frame};

use crate::net::Parcel;
use crate::world::{What, World};

/// What is on a way, oldest first: frames, and what the other side had taken when it sent them.
type Coming = VecDeque<(Arc<Frame>, u64)>;

/// The ways of a connection.
#[derive(Debug)]
pub(crate) struct Tracks {
    /// Of each side.
    flows: [Flow; 2],
    /// To each side, by way.
    coming: [Vec<Coming>; 2],
    /// What frames stand for, until it is taken.
    parcels: BTreeMap<u64, Parcel>,
    next: u64,
}

impl Tracks {
    pub(crate) fn new(ways: usize) -> Self {
        let ways = || vec![Coming::new(); ways];
        Self {
            flows: [Flow::default(), Flow::default()],
            coming: [ways(), ways()],
            parcels: BTreeMap::new(),
            next: 0,
        }
    }

    /// The ways on which something comes to a side.
    pub(crate) fn that_wait(&self, side: usize) -> Vec<usize> {
        (0..self.coming[side].len()).filter(|way| !self.coming[side][*way].is_empty()).collect()
    }

    /// Nothing comes to a side any more.
    pub(crate) fn end(&mut self, side: usize) {
        self.coming[side].iter_mut().for_each(VecDeque::clear);
    }

    /// Has a frame go to a side over a way. Whether it is the only one there.
    fn put(&mut self, side: usize, way: usize, frame: Arc<Frame>) -> bool {
        let got = self.flows[1 - side].got();
        self.coming[side][way].push_back((frame, got));
        self.coming[side][way].len() == 1
    }

    /// The oldest frame of a way has come: what can be taken now, in order.
    fn comes(&mut self, side: usize, way: usize) -> Result<Vec<Parcel>, String> {
        let Some((frame, got)) = self.coming[side][way].pop_front() else { return Ok(Vec::new()) };
        let flow = &mut self.flows[side];
        let refused = |error| format!("a frame is refused: {error}");
        flow.has_got(got).map_err(refused)?;
        let payload = frame.payload.clone();
        flow.comes(frame.number, Message::Alive, payload, frame.bytes()).map_err(refused)?;
        let mut taken = Vec::new();
        while let Some((_, payload)) = flow.take() {
            let id = payload.first_chunk().map(|id| u64::from_le_bytes(*id));
            let parcel = id.and_then(|id| self.parcels.remove(&id));
            taken.push(parcel.ok_or_else(|| format!("frame {} is taken twice", frame.number))?);
        }
        Ok(taken)
    }
}

impl World<'_> {
    pub(crate) fn post_by_ways(&mut self, number: u64, side: usize, parcel: Parcel) {
        let (ways, way) = (self.plan.ways, self.chance.index(self.plan.ways));
        let is_twice = self.chance.happens(1, 30);
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let Some(tracks) = &mut connection.tracks else { return };
        if !tracks.flows[side].has_room(ID_LEN) {
            connection.is_silent = true;
            return;
        }
        let id = tracks.next;
        tracks.next += 1;
        tracks.parcels.insert(id, parcel);
        let frame = tracks.flows[side].send(Vec::new(), id.to_le_bytes().to_vec(), way as u64);
        self.send_frame(number, 1 - side, way, Arc::clone(&frame));
        if is_twice {
            self.sums.frames_twice += 1;
            self.send_frame(number, 1 - side, (way + 1) % ways, frame);
        }
    }

    fn send_frame(&mut self, number: u64, side: usize, way: usize, frame: Arc<Frame>) {
        let connection = self.connections.get_mut(&number);
        let Some(tracks) = connection.and_then(|it| it.tracks.as_mut()) else { return };
        if tracks.put(side, way, frame) {
            let delay = self.chance.skewed(10_000, self.plan.latency.max(10_001));
            self.later(delay, What::Frame(number, side, way));
        }
    }

    pub(crate) fn frame_comes(&mut self, number: u64, side: usize, way: usize) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let is_dead = connection.is_silent || connection.is_closed;
        if is_dead || connection.is_over[side] || connection.is_deaf[side] {
            return;
        }
        let (member, peer) = (connection.ends[side].0, connection.peer(side));
        let is_known = connection.is_known[side];
        let Some(tracks) = &mut connection.tracks else { return };
        let taken = tracks.comes(side, way);
        let more = !tracks.coming[side][way].is_empty();
        if more {
            let delay = self.chance.skewed(1_000, (self.plan.latency / 8).max(1_001));
            self.later(delay, What::Frame(number, side, way));
        }
        let taken = match taken {
            Ok(taken) => taken,
            Err(fault) => {
                self.fault = Some(format!("from {} to {member}: {fault}", peer.member));
                return;
            }
        };
        for parcel in taken {
            let is_open = self.connections.get(&number).is_some_and(|it| {
                let is_dead = it.is_silent || it.is_closed;
                !is_dead && !it.is_over[side] && it.side_of(MemberId(member)) == side
            });
            if is_open && is_known {
                self.receive(member, peer, parcel);
            }
        }
    }

    /// A way of a connection is cut: what is on it is lost, and goes once more over the others, whether it had come or not.
    pub(crate) fn cut_way(&mut self) {
        let all: Vec<u64> = self.connections.keys().copied().collect();
        if all.is_empty() {
            return;
        }
        let number = all[self.chance.index(all.len())];
        let (ways, way) = (self.plan.ways, self.chance.index(self.plan.ways));
        let other = (way + 1 + self.chance.index(ways - 1)) % ways;
        self.sums.ways_cut += 1;
        for side in 0..2 {
            let connection = self.connections.get_mut(&number);
            let Some(tracks) = connection.and_then(|it| it.tracks.as_mut()) else { return };
            tracks.coming[side][way].clear();
            let kept = tracks.flows[1 - side].kept_over(way as u64);
            let again: Vec<Arc<Frame>> = kept
                .map(|(frame, over)| {
                    *over = other as u64;
                    Arc::clone(frame)
                })
                .collect();
            for frame in again {
                self.send_frame(number, side, other, frame);
            }
        }
    }
}

/// Bytes of a frame.
const ID_LEN: usize = 8;
