//! The network between programs: what one writes arrives at the other later, in part, or never.
//!
//! ```text
//! program --its socket--> near end [lane: parcels with a time each] far end --its socket--> program
//! ```
//!
//! A program's TCP sockets are sockets of the unix family whose other end this process holds: the kernel moves their
//! bytes at once and without timers, so when a program sees them is decided here alone.
//!
//! A lane keeps the order of its bytes, as TCP does: to reorder within one connection would be no fault of a network, but
//! another protocol. Lanes overtake each other.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use crate::chance::Chance;
use crate::trace::Trace;

/// How unkind the network is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    /// A parcel of so many is the last of its connection, which is cut at any of its bytes; 0 for none.
    pub(crate) cut_one_in: u64,
    /// After a parcel of so many its connection falls silent for a while; 0 for never.
    pub(crate) silence_one_in: u64,
    /// A parcel of so many is late, and with it what its sender sends behind it; others overtake it. 0 for none.
    pub(crate) late_one_in: u64,
    /// A parcel of so many is the last that its connection carries, of which one side learns nothing for long; 0 for
    /// none.
    pub(crate) half_one_in: u64,
}

/// Which program's side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Who dialled.
    Dialler,
    /// Who answered.
    Answerer,
}

impl Side {
    fn index(self) -> usize {
        usize::from(self == Self::Answerer)
    }

    fn other(self) -> Self {
        if self == Self::Dialler { Self::Answerer } else { Self::Dialler }
    }
}

/// All connections of a run.
#[derive(Debug)]
pub(crate) struct Net {
    name: String,
    door: UnixListener,
    listeners: BTreeMap<u16, Listener>,
    connections: Vec<Connection>,
    chance: Chance,
    pub(crate) weather: Weather,
    names_given: u32,
}

#[derive(Debug)]
struct Listener {
    name: String,
    arrived: VecDeque<usize>,
}

#[derive(Debug)]
struct Connection {
    dialler: SocketAddrV4,
    answerer: SocketAddrV4,
    latency: u64,
    silent_until: u64,
    // The side that has not learned that the other is gone, and when it does.
    half_open: Option<(Side, u64)>,
    // What this process holds of each side's socket.
    ends: [Option<UnixStream>; 2],
    lanes: [Lane; 2],
}

#[derive(Debug, Default)]
struct Lane {
    parcels: VecDeque<Parcel>,
    last_at: u64,
    // The receiver's socket takes nothing now.
    is_full: bool,
    // The sender sends no more; its last parcel says so.
    has_ended: bool,
}

#[derive(Debug)]
struct Parcel {
    at: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Arrival,
    Bytes(Vec<u8>),
    End,
}

impl Net {
    /// A network that no other run of this machine sees; `name` is this run's own.
    pub(crate) fn new(name: String, chance: Chance, weather: Weather) -> io::Result<Self> {
        let door = UnixListener::bind_addr(&address(&format!("{name}-door"))?)?;
        door.set_nonblocking(true)?;
        let (listeners, connections) = (BTreeMap::new(), Vec::new());
        Ok(Self { name, door, listeners, connections, chance, weather, names_given: 0 })
    }

    /// The unix name of a listener at `port`.
    pub(crate) fn listen(&mut self, port: u16) -> String {
        self.names_given += 1;
        let name = format!("{}-{}", self.name, self.names_given);
        self.listeners.insert(port, Listener { name: name.clone(), arrived: VecDeque::new() });
        name
    }

    /// A port that nobody has.
    pub(crate) fn free_port(&self) -> u16 {
        (40_000..=u16::MAX).find(|port| !self.listeners.contains_key(port)).unwrap_or(u16::MAX)
    }

    /// Whether somebody listens at `port`.
    pub(crate) fn is_listening(&self, port: u16) -> bool {
        self.listeners.contains_key(&port)
    }

    /// The listener at `port` is gone, and with it all that nobody has answered.
    pub(crate) fn forget_listener(&mut self, port: u16) {
        let arrived = self.listeners.remove(&port).map(|listener| listener.arrived);
        arrived.into_iter().flatten().for_each(|number| self.cut(number));
    }

    /// The unix name that every dialler connects to.
    pub(crate) fn door(&self) -> String {
        format!("{}-door", self.name)
    }

    /// A program has come through the door and wants to go to `to`.
    pub(crate) fn dialled(&mut self, now: u64, to: SocketAddrV4) -> io::Result<usize> {
        let (near, _) = self.door.accept()?;
        near.set_nonblocking(true)?;
        let number = self.connections.len();
        let port = 50_000 + u16::try_from(number % 15_000).unwrap_or(0);
        let dialler = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let latency = self.chance.skewed(20_000, 1_000_000);
        let mut lanes = [Lane::default(), Lane::default()];
        lanes[0].last_at = now + latency;
        lanes[0].parcels.push_back(Parcel { at: now + latency, what: What::Arrival });
        let ends = [Some(near), None];
        self.connections.push(Connection {
            dialler,
            answerer: to,
            latency,
            silent_until: 0,
            half_open: None,
            ends,
            lanes,
        });
        Ok(number)
    }

    /// A program has come through the door, and nobody is where it wants to go.
    pub(crate) fn refuse(&self) -> io::Result<()> {
        self.door.accept().map(drop)
    }

    /// The connection that a listener's oldest unanswered arrival is.
    pub(crate) fn answered(&mut self, port: u16) -> Option<usize> {
        self.listeners.get_mut(&port)?.arrived.pop_front()
    }

    /// The addresses of a connection as `side` sees them: its own, and the other's.
    pub(crate) fn addresses(&self, connection: usize, side: Side) -> (SocketAddrV4, SocketAddrV4) {
        let Connection { dialler, answerer, .. } = self.connections[connection];
        if side == Side::Dialler { (dialler, answerer) } else { (answerer, dialler) }
    }

    /// Takes what `side` has written, or that it has ended.
    pub(crate) fn collect(&mut self, now: u64, number: usize, side: Side) {
        let connection = &mut self.connections[number];
        let lane = &mut connection.lanes[side.index()];
        let Some(end) = &mut connection.ends[side.index()] else { return };
        if lane.has_ended {
            return;
        }
        let is_heard = connection.half_open.is_none();
        let mut taken = Vec::new();
        let mut buffer = [0; 65_536];
        let has_ended = loop {
            match end.read(&mut buffer) {
                Ok(0) => break true,
                Ok(len) => taken.extend_from_slice(&buffer[..len]),
                Err(error) => break error.kind() != ErrorKind::WouldBlock,
            }
        };
        let mut delay = connection.latency + self.chance.below(connection.latency / 4 + 1);
        if self.weather.late_one_in > 0 && self.chance.happens(1, self.weather.late_one_in) {
            delay += self.chance.skewed(1, LATE_MAX);
        }
        let at = lane.last_at.max(now + delay);
        if !is_heard {
            // Whoever it was sent to is gone.
            lane.has_ended = has_ended;
            return;
        }
        if !taken.is_empty() {
            lane.parcels.push_back(Parcel { at, what: What::Bytes(taken) });
            lane.last_at = at;
        }
        if has_ended {
            lane.parcels.push_back(Parcel { at, what: What::End });
            (lane.last_at, lane.has_ended) = (at, true);
        }
    }

    /// The side has room again.
    pub(crate) fn has_room(&mut self, number: usize, side: Side) {
        self.connections[number].lanes[side.other().index()].is_full = false;
    }

    /// When the next parcel is due.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.connections.iter().filter_map(Connection::next_at).min()
    }

    /// Delivers what is due; whether there was anything.
    pub(crate) fn deliver(&mut self, now: u64, trace: &mut Trace) -> bool {
        let mut has_delivered = false;
        loop {
            let is_due =
                |number: &usize| self.connections[*number].next_at().is_some_and(|at| at <= now);
            let due: Vec<usize> = (0..self.connections.len()).filter(is_due).collect();
            if due.is_empty() {
                return has_delivered;
            }
            has_delivered = true;
            // Between connections there is no order.
            self.deliver_one(now, due[self.chance.index(due.len())], trace);
        }
    }

    fn deliver_one(&mut self, now: u64, number: usize, trace: &mut Trace) {
        let connection = &mut self.connections[number];
        if connection.half_open.is_some() {
            trace.note(&[now, number as u64]);
            trace.line(|| {
                format!("{now:>12} network {number}: the side that was left learns of it")
            });
            return self.cut(number);
        }
        let Some(from) = connection.due(now) else { return };
        let Some(parcel) = connection.lanes[from.index()].parcels.pop_front() else { return };
        match parcel.what {
            What::Arrival => self.arrive(number),
            What::End => {
                trace.note(&[now, number as u64, from.index() as u64, 0]);
                trace.line(|| format!("{now:>12} network {number}: {from:?} has ended"));
                let receiver = &connection.ends[from.other().index()];
                let _ = receiver.as_ref().map(|end| end.shutdown(std::net::Shutdown::Write));
                if connection.lanes.iter().all(|lane| lane.has_ended && lane.parcels.is_empty()) {
                    self.cut(number);
                }
            }
            What::Bytes(bytes) => self.hand_over(now, number, from, bytes, trace),
        }
    }

    fn arrive(&mut self, number: usize) {
        let port = self.connections[number].answerer.port();
        let far = self.listeners.get_mut(&port).and_then(|listener| {
            let far = UnixStream::connect_addr(&address(&listener.name).ok()?).ok()?;
            far.set_nonblocking(true).ok()?;
            listener.arrived.push_back(number);
            Some(far)
        });
        match far {
            Some(far) => self.connections[number].ends[1] = Some(far),
            None => self.cut(number),
        }
    }

    fn hand_over(
        &mut self,
        now: u64,
        number: usize,
        from: Side,
        mut bytes: Vec<u8>,
        trace: &mut Trace,
    ) {
        let Weather { cut_one_in, silence_one_in, half_one_in, .. } = self.weather;
        let is_half = half_one_in > 0 && self.chance.happens(1, half_one_in);
        let is_last = is_half || cut_one_in > 0 && self.chance.happens(1, cut_one_in);
        if is_last {
            bytes.truncate(self.chance.index(bytes.len() + 1));
        }
        if silence_one_in > 0 && self.chance.happens(1, silence_one_in) {
            let pause = self.chance.skewed(1_000_000, SILENCE_MAX);
            self.connections[number].silent_until = now + pause;
            trace.line(|| format!("{now:>12} network {number}: silent for {pause} ns"));
        }
        let connection = &mut self.connections[number];
        let lane = &mut connection.lanes[from.index()];
        let Some(end) = &mut connection.ends[from.other().index()] else { return };
        let written = end.write(&bytes);
        let len = bytes.len();
        trace.note(&[now, number as u64, from.index() as u64, len as u64]);
        trace.add(&bytes);
        let digest = trace.digest();
        trace.line(|| {
            format!(
                "{now:>12} network {number}: {len} bytes of the {from:?}: {written:?}; {digest:x}"
            )
        });
        match written {
            Ok(taken) if taken == len => {}
            Ok(taken) => {
                let what = What::Bytes(bytes.split_off(taken));
                lane.parcels.push_front(Parcel { at: now, what });
                lane.is_full = true;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                lane.parcels.push_front(Parcel { at: now, what: What::Bytes(bytes) });
                lane.is_full = true;
            }
            Err(_) => self.cut(number),
        }
        if is_half {
            self.leave_half_open(now, number, trace);
        } else if is_last {
            trace.line(|| format!("{now:>12} network {number}: cut"));
            self.cut(number);
        }
    }

    // One side is gone without a word: the other learns of it when its kernel has asked often enough (keep-alive).
    fn leave_half_open(&mut self, now: u64, number: usize, trace: &mut Trace) {
        let left = if self.chance.happens(1, 2) { Side::Dialler } else { Side::Answerer };
        let longest = if left == Side::Answerer { KEEP_ALIVE } else { SILENCE_MAX };
        let until = now + self.chance.skewed(1_000_000, longest);
        trace.line(|| format!("{now:>12} network {number}: the {left:?} is left, until {until}"));
        let connection = &mut self.connections[number];
        connection.half_open = Some((left, until));
        connection.ends[left.other().index()] = None;
        connection.lanes = [Lane::default(), Lane::default()];
    }

    /// Ends a connection for both sides at once.
    fn cut(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        connection.half_open = None;
        connection.ends = [None, None];
        connection.lanes = [Lane::default(), Lane::default()];
    }
}

impl Connection {
    fn next_at(&self) -> Option<u64> {
        if let Some((_, until)) = self.half_open {
            return Some(until);
        }
        let lanes = self.lanes.iter().filter(|lane| !lane.is_full);
        let next = lanes.filter_map(|lane| lane.parcels.front()).map(|parcel| parcel.at).min()?;
        Some(next.max(self.silent_until))
    }

    fn due(&self, now: u64) -> Option<Side> {
        [Side::Dialler, Side::Answerer].into_iter().find(|side| {
            let lane = &self.lanes[side.index()];
            !lane.is_full && lane.parcels.front().is_some_and(|parcel| parcel.at <= now)
        })
    }
}

/// A name in the abstract namespace, which no file stands for.
fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

/// The longest silence, in nanoseconds. A request and its answer may meet one each and a pause of a program, and clients
/// wait 30 s for an answer.
const SILENCE_MAX: u64 = 4_000_000_000;

/// The latest a side of a server learns that the other is gone (`Limits::silence_max`).
pub(crate) const KEEP_ALIVE: u64 = 120_000_000_000;

/// The longest that a parcel is late.
const LATE_MAX: u64 = 100_000_000;
