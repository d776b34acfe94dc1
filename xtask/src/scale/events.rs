//! The events: each operation goes from station to station, and waits where others are before it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::costs::Costs;
use super::work::Work;

/// Kinds of stations.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Station {
    ClientCore,
    ClientOut,
    ClientIn,
    Uplink,
    ServerIn,
    Engine,
    Flash,
    ServerOut,
    Metadata,
}

impl Station {
    pub(super) const ALL: [Self; 9] = [
        Self::ClientCore,
        Self::ClientOut,
        Self::ClientIn,
        Self::Uplink,
        Self::ServerIn,
        Self::Engine,
        Self::Flash,
        Self::ServerOut,
        Self::Metadata,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ClientCore => "a client's core",
            Self::ClientOut => "a client's NIC, sending",
            Self::ClientIn => "a client's NIC, receiving",
            Self::Uplink => "uplinks of racks",
            Self::ServerIn => "a server's NIC, receiving",
            Self::Engine => "engine threads",
            Self::Flash => "flash",
            Self::ServerOut => "a server's NIC, sending",
            Self::Metadata => "the metadata",
        }
    }
}

/// What a run has shown.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    /// Operations a second, over all clients.
    pub(super) rate: f64,
    pub(super) p50_ns: f64,
    pub(super) p99_ns: f64,
    /// The part of the time for which the busiest station of each kind was at work.
    busy: [f64; Station::ALL.len()],
}

impl Outcome {
    pub(super) fn busiest(&self) -> (Station, f64) {
        let all = Station::ALL.into_iter().zip(self.busy);
        all.max_by(|(_, a), (_, b)| a.total_cmp(b)).expect("there are kinds")
    }
}

/// Plays `operations` of each of as many clients as there are servers.
pub(super) fn play(
    costs: &Costs,
    work: &Work,
    servers: u32,
    operations: u64,
    uplinks: f64,
) -> Outcome {
    let mut run = Run::new(costs, work, servers, uplinks);
    let wanted = operations * u64::from(servers);
    for client in 0..servers {
        for _ in 0..work.depth {
            run.begin(client, 0);
        }
    }
    // What comes before the first tenth of all has ended fills the queues, and is not counted.
    while run.ended < wanted {
        let Some(Reverse((now, _, part))) = run.due.pop() else { break };
        if run.counted_from.is_none() && run.ended >= wanted / 10 {
            run.count_from(now);
        }
        run.step(now, part);
    }
    run.outcome()
}

/// A part of an operation: the one answer of one server.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Part {
    operation: usize,
    server: u32,
    misses: bool,
    stage: u8,
}

impl Part {
    fn next(self) -> Self {
        Self { stage: self.stage + 1, ..self }
    }
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    client: u32,
    began: u64,
    left: u32,
}

/// Stations of one kind; each serves as many operations at once as it has lanes.
#[derive(Debug)]
struct Stations {
    lanes: u32,
    /// When each lane is free.
    free: Vec<u64>,
    /// Time at work, by station.
    worked: Vec<u64>,
}

impl Stations {
    fn new(count: u32, lanes: u32) -> Self {
        let (count, all) = (count as usize, (count * lanes) as usize);
        Self { lanes, free: vec![0; all], worked: vec![0; count] }
    }

    /// What a station has taken on and not done yet.
    fn ahead(&self, at: usize, now: u64) -> u64 {
        let from = at * self.lanes as usize;
        self.free[from..from + self.lanes as usize].iter().map(|it| it.saturating_sub(now)).sum()
    }

    /// When what comes now, and takes `cost`, is through.
    fn serve(&mut self, at: u32, now: u64, cost: u64) -> u64 {
        let from = (at * self.lanes) as usize;
        let lanes = &mut self.free[from..from + self.lanes as usize];
        let lane = lanes.iter_mut().min().expect("a station has a lane");
        *lane = now.max(*lane) + cost;
        self.worked[at as usize] += cost;
        *lane
    }
}

struct Run<'a> {
    costs: &'a Costs,
    work: &'a Work,
    servers: u32,
    stations: [Stations; Station::ALL.len()],
    uplink_bytes_per_s: f64,
    flash_lanes: u32,
    operations: Vec<Operation>,
    unused: Vec<usize>,
    due: BinaryHeap<Reverse<(u64, u64, Part)>>,
    ordered: u64,
    chance: u64,
    ended: u64,
    times: Vec<u64>,
    now: u64,
    counted_from: Option<(u64, u64)>,
}

impl<'a> Run<'a> {
    fn new(costs: &'a Costs, work: &'a Work, servers: u32, uplinks: f64) -> Self {
        let racks = servers.div_ceil(RACK);
        // As many at once as the device needs for its rate.
        let flash_lanes = ((costs.flash_iops * costs.flash_ns / 1e9) as u32).max(1);
        let of = |kind| match kind {
            Station::Uplink => Stations::new(racks, 1),
            Station::Metadata => Stations::new(1, 1),
            Station::Engine => Stations::new(servers, costs.engines),
            Station::Flash => Stations::new(servers, flash_lanes),
            _ => Stations::new(servers, 1),
        };
        Self {
            costs,
            work,
            servers,
            stations: Station::ALL.map(of),
            uplink_bytes_per_s: costs.nic_bytes_per_s * f64::from(RACK) * uplinks,
            flash_lanes,
            operations: Vec::new(),
            unused: Vec::new(),
            due: BinaryHeap::new(),
            ordered: 0,
            chance: 0x9e37_79b9_7f4a_7c15,
            ended: 0,
            times: Vec::new(),
            now: 0,
            counted_from: None,
        }
    }

    fn begin(&mut self, client: u32, now: u64) {
        let operation = Operation { client, began: now, left: self.work.fan };
        let at = match self.unused.pop() {
            Some(at) => {
                self.operations[at] = operation;
                at
            }
            None => {
                self.operations.push(operation);
                self.operations.len() - 1
            }
        };
        let begins = match self.work.maps {
            true => {
                let asked = now + self.costs.wire_ns as u64;
                let told = self.serve(Station::Metadata, 0, asked, self.costs.meta_ns);
                told + self.costs.wire_ns as u64
            }
            false => now,
        };
        let first = self.server();
        for of in 0..self.work.fan {
            // Stripes and copies lie at servers in a row.
            let server = (first + of) % self.servers;
            let misses = self.below(100) < self.work.misses;
            self.order(begins, Part { operation: at, server, misses, stage: 0 });
        }
    }

    fn server(&mut self) -> u32 {
        let hot = (self.servers / 10).max(1);
        match self.below(100) < self.work.hot {
            true => self.below(hot),
            false => self.below(self.servers),
        }
    }

    fn below(&mut self, limit: u32) -> u32 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        ((self.chance >> 33) % u64::from(limit.max(1))) as u32
    }

    fn order(&mut self, at: u64, part: Part) {
        self.ordered += 1;
        self.due.push(Reverse((at, self.ordered, part)));
    }

    fn serve(&mut self, kind: Station, at: u32, now: u64, cost: f64) -> u64 {
        self.stations[kind as usize].serve(at, now, cost as u64)
    }

    /// The part goes through its next station, and comes to the one behind it when that is over: a station sees what
    /// comes in the order in which it comes.
    fn step(&mut self, now: u64, part: Part) {
        self.now = now;
        let (costs, work) = (*self.costs, *self.work);
        let client = self.operations[part.operation].client;
        let server = part.server;
        let (out, back) = (work.request as f64, work.response as f64);
        let nic = |bytes: f64| bytes / costs.nic_bytes_per_s * 1e9;
        let (client_rack, server_rack) = (client / RACK, server / RACK);
        let crosses = client_rack != server_rack;
        let uplink = |bytes: f64| bytes / self.uplink_bytes_per_s * 1e9;
        let bytes = out.max(back);
        let (kind, at, cost) = match part.stage {
            0 => (Station::ClientCore, client, costs.client_ns + costs.client_byte_ns * bytes),
            1 => (Station::ClientOut, client, nic(out)),
            2 | 10 => return self.order(now + costs.wire_ns as u64, part.next()),
            3 | 12 if crosses => {
                (Station::Uplink, client_rack, uplink(if part.stage == 3 { out } else { back }))
            }
            4 | 11 if crosses => {
                (Station::Uplink, server_rack, uplink(if part.stage == 4 { out } else { back }))
            }
            5 => (Station::ServerIn, server, nic(out)),
            6 => (Station::Engine, server, costs.engine_ns + costs.engine_byte_ns * bytes),
            7 if part.misses => (Station::Engine, server, costs.miss_ns),
            8 if part.misses => {
                let lanes = f64::from(self.flash_lanes);
                let cost = (lanes * 1e9 / costs.flash_iops)
                    .max(lanes * bytes / costs.flash_bytes_per_s * 1e9);
                (Station::Flash, server, cost)
            }
            9 => (Station::ServerOut, server, nic(back)),
            13 => (Station::ClientIn, client, nic(back)),
            14 => return self.end(now, part),
            _ => return self.order(now, part.next()),
        };
        let then = self.serve(kind, at, now, cost);
        self.order(then, part.next());
    }

    fn end(&mut self, now: u64, part: Part) {
        let operation = &mut self.operations[part.operation];
        operation.left -= 1;
        if operation.left > 0 {
            return;
        }
        let Operation { client, began, .. } = *operation;
        self.ended += 1;
        if self.counted_from.is_some() {
            self.times.push(now - began);
        }
        self.unused.push(part.operation);
        self.begin(client, now);
    }

    fn count_from(&mut self, now: u64) {
        self.counted_from = Some((now, self.ended));
        for kind in &mut self.stations {
            kind.worked = (0..kind.worked.len()).map(|at| kind.ahead(at, now)).collect();
        }
    }

    fn outcome(mut self) -> Outcome {
        let (from, before) = self.counted_from.unwrap_or((0, 0));
        let time = (self.now - from).max(1) as f64;
        self.times.sort_unstable();
        let at = |part: f64| {
            let rank = (self.times.len() as f64 * part) as usize;
            self.times
                .get(rank.min(self.times.len().saturating_sub(1)))
                .map_or(0.0, |it| *it as f64)
        };
        let busy = Station::ALL.map(|kind| {
            let stations = &self.stations[kind as usize];
            let done = stations.worked.iter().enumerate();
            let done = done.map(|(at, worked)| worked.saturating_sub(stations.ahead(at, self.now)));
            let most = done.max().unwrap_or(0) as f64;
            most / time / f64::from(stations.lanes)
        });
        let rate = (self.ended - before) as f64 / time * 1e9;
        Outcome { rate, p50_ns: at(0.5), p99_ns: at(0.99), busy }
    }
}

/// Servers and clients of a rack.
const RACK: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs {
        client_ns: 100.0,
        client_byte_ns: 0.001,
        engine_ns: 1000.0,
        engine_byte_ns: 0.001,
        engines: 1,
        miss_ns: 100.0,
        meta_ns: 50_000.0,
        nic_bytes_per_s: 12.5e9,
        wire_ns: 1000.0,
        flash_ns: 80_000.0,
        flash_iops: 500_000.0,
        flash_bytes_per_s: 3e9,
    };

    const READ: Work = Work {
        name: "",
        depth: 32,
        request: 64,
        response: 4096,
        fan: 1,
        misses: 0,
        hot: 0,
        maps: false,
    };

    fn near(found: f64, wanted: f64) -> bool {
        (found - wanted).abs() < wanted * 0.1
    }

    #[test]
    fn one_operation_takes_the_sum_of_its_stations() {
        let alone = Work { depth: 1, ..READ };
        let found = play(&COSTS, &alone, 1, 100, 1.0);
        // Core 104, engine 1,004, wire twice 1,000, NICs twice 5 and twice 327.
        assert!(near(found.p50_ns, 104.0 + 1004.0 + 2000.0 + 2.0 * 5.0 + 2.0 * 327.0), "{found:?}");
    }

    #[test]
    fn the_busiest_station_gives_the_rate() {
        let found = play(&COSTS, &READ, 20, 2000, 1.0);
        assert_eq!(found.busiest().0, Station::Engine);
        // Twenty engines, about a microsecond each; chance leaves some of them idle at times.
        assert!(found.rate > 0.8 * 20e6 && found.rate <= 20e6, "{found:?}");
        let flash = play(&COSTS, &Work { misses: 100, ..READ }, 20, 2000, 1.0);
        assert_eq!(flash.busiest().0, Station::Flash);
        assert!(flash.rate <= 20.0 * 500_000.0 * 1.01, "{flash:?}");
    }

    #[test]
    fn hot_servers_hold_all_clients() {
        let even = play(&COSTS, &READ, 20, 1000, 1.0);
        let hot = play(&COSTS, &Work { hot: 90, ..READ }, 20, 1000, 1.0);
        assert!(hot.rate < even.rate / 2.0, "{hot:?} {even:?}");
    }

    #[test]
    fn metadata_at_one_place_hold_all_who_map() {
        let found = play(&COSTS, &Work { depth: 1, fan: 10, maps: true, ..READ }, 40, 100, 1.0);
        assert_eq!(found.busiest().0, Station::Metadata);
        assert!(near(found.rate, 20_000.0), "{found:?}");
    }

    #[test]
    fn a_run_is_the_same_twice() {
        let play = || play(&COSTS, &READ, 50, 300, 0.25);
        assert_eq!(play(), play());
    }
}
