//! A discrete-event model of a store of 10 to 1,000 servers: what saturates first, on paper.
//!
//! `cargo run --release -p landfast-store --example scale -- [PLOT.svg]` (times of one run: see `Costs`)
//!
//! Each client has one operation of 4 KiB after the other under way, 16 at a time, at a server drawn at random. An
//! operation takes the client's core, the client's link, the server's link and the server's engine core in turn, each a
//! queue that serves one at a time. Beside it every server renews its lease at the metadata, which is one queue too, and
//! clients come and map a region of one piece at each of 10 servers. The costs of a core are those of software iWARP on
//! one machine and make no difference between a read and a write; the model has no loss, no congestion inside the
//! network, and links that carry their nominal rate.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write as _;

/// What each step takes, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// The client's core for one operation.
    client: u64,
    /// The daemon's engine for one operation.
    engine: u64,
    /// A link of 100 Gb/s for 4 KiB and its frames.
    link: u64,
    /// Propagation and switches, one way.
    wire: u64,
    /// The metadata for one change or look.
    meta: u64,
    /// Between two renewals of a daemon's lease.
    beat: u64,
    /// Between two clients that map a region, over all clients.
    map: u64,
}

/// The engine's cost is the least time of an operation of 4 KiB in the depth sweep of the raw TCP floor, doubled for
/// framing and CRC; a metadata change is one etcd commit on a disk with 100 us of fsync, of which a batch shares one.
const COSTS: Costs = Costs {
    client: 3_000,
    engine: 3_000,
    link: 350,
    wire: 2_000,
    meta: 100_000,
    beat: 125_000_000,
    map: 1_000_000,
};
const OUTSTANDING: usize = 16;
const PIECES_PER_MAP: usize = 10;
const RUN: u64 = 20_000_000;

/// A queue that serves one at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    free_at: u64,
    busy: u64,
}

impl Queue {
    /// When a request that comes at `now` is done.
    fn serve(&mut self, now: u64, cost: u64) -> u64 {
        self.free_at = self.free_at.max(now) + cost;
        self.busy += cost;
        self.free_at
    }

    fn busy_share(&self, run: u64) -> f64 {
        self.busy.min(run) as f64 / run as f64
    }
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Event {
    /// A client's core takes its next operation.
    Begin { client: u32 },
    /// An operation has reached a server.
    Arrive { client: u32, server: u32, begun: u64 },
    /// Its answer has reached the client.
    Return { client: u32, begun: u64 },
    /// A daemon renews its lease.
    Beat { server: u32 },
    /// A client maps a region.
    Map,
}

#[derive(Debug)]
struct Outcome {
    rate: f64,
    p50_us: f64,
    p99_us: f64,
    shares: [(&'static str, f64); 5],
}

fn run(servers: u32, clients: u32, costs: Costs) -> Outcome {
    let mut events = BinaryHeap::new();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut cores = vec![Queue::default(); index(clients)];
    let mut client_links = vec![Queue::default(); index(clients)];
    let mut engines = vec![Queue::default(); index(servers)];
    let mut server_links = vec![Queue::default(); index(servers)];
    let mut metadata = Queue::default();
    for client in 0..clients {
        (0..OUTSTANDING)
            .for_each(|_| events.push(Reverse((draw(10_000), Event::Begin { client }))));
    }
    for server in 0..servers {
        events.push(Reverse((draw(costs.beat), Event::Beat { server })));
    }
    events.push(Reverse((0, Event::Map)));
    let mut took = Vec::new();
    while let Some(Reverse((now, event))) = events.pop() {
        if now >= RUN {
            break;
        }
        match event {
            Event::Begin { client } => {
                let sent = cores[index(client)].serve(now, costs.client);
                let server = u32::try_from(draw(servers.into())).expect("below a u32");
                let at = sent + costs.wire;
                events.push(Reverse((at, Event::Arrive { client, server, begun: now })));
            }
            Event::Arrive { client, server, begun } => {
                let done = engines[index(server)].serve(now, costs.engine);
                let sent = server_links[index(server)].serve(done, costs.link);
                let taken = client_links[index(client)].serve(sent + costs.wire, costs.link);
                events.push(Reverse((taken, Event::Return { client, begun })));
            }
            Event::Return { client, begun } => {
                took.push(now - begun);
                events.push(Reverse((now, Event::Begin { client })));
            }
            Event::Beat { server } => {
                metadata.serve(now, costs.meta);
                events.push(Reverse((now + costs.beat, Event::Beat { server })));
            }
            Event::Map => {
                // Its record, and the record once more when all links are there; the rest asks daemons.
                metadata.serve(now, costs.meta * 2);
                for _ in 0..PIECES_PER_MAP {
                    let server = usize::try_from(draw(servers.into())).expect("few servers");
                    engines[server].serve(now, costs.engine);
                }
                events.push(Reverse((now + costs.map, Event::Map)));
            }
        }
    }
    took.sort_unstable();
    let quantile =
        |part: usize| took.get(took.len() * part / 100).map_or(0.0, |ns| *ns as f64 / 1e3);
    let mean = |queues: &[Queue]| {
        queues.iter().map(|queue| queue.busy_share(RUN)).sum::<f64>() / queues.len() as f64
    };
    Outcome {
        rate: took.len() as f64 / (RUN as f64 / 1e9),
        p50_us: quantile(50),
        p99_us: quantile(99),
        shares: [
            ("clients' cores", mean(&cores)),
            ("clients' links", mean(&client_links)),
            ("servers' engines", mean(&engines)),
            ("servers' links", mean(&server_links)),
            ("metadata", metadata.busy_share(RUN)),
        ],
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).expect("32 bits")
}

fn main() {
    let plot = std::env::args().nth(1);
    println!("operations of 4 KiB, {OUTSTANDING} under way at each client, {COSTS:?}");
    println!(
        "{:>7} {:>7} {:>14} {:>9} {:>9}  first to saturate",
        "servers", "clients", "ops/s", "p50 us", "p99 us"
    );
    let mut lines = Vec::new();
    for clients_per_server in [1_u32, 2] {
        let mut line = Vec::new();
        for servers in [10_u32, 20, 50, 100, 200, 500, 1000] {
            let clients = servers * clients_per_server;
            let outcome = run(servers, clients, COSTS);
            let fullest = outcome.shares.iter().max_by(|one, other| one.1.total_cmp(&other.1));
            let (name, share) = fullest.expect("there are five");
            println!(
                "{servers:>7} {clients:>7} {:>14.0} {:>9.1} {:>9.1}  {name} ({:.0} %), metadata {:.0} %",
                outcome.rate,
                outcome.p50_us,
                outcome.p99_us,
                share * 100.0,
                outcome.shares[4].1 * 100.0
            );
            line.push((servers, outcome.rate, outcome.shares[4].1));
        }
        lines.push((clients_per_server, line));
    }
    if let Some(path) = plot {
        if let Err(error) = std::fs::write(&path, svg(&lines)) {
            eprintln!("{path}: {error}");
        }
    }
}

/// Rate and the metadata's load against the number of servers, both axes in powers of ten.
fn svg(lines: &[(u32, Vec<(u32, f64, f64)>)]) -> String {
    let x = |servers: u32| 70.0 + (f64::from(servers).log10() - 1.0) * 240.0;
    let y = |rate: f64| 330.0 - (rate.log10() - 6.0) * 90.0;
    let z = |share: f64| 330.0 - share * 270.0;
    let mut out = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" height=\"380\" font-family=\"sans-serif\" \
         font-size=\"12\"><rect width=\"640\" height=\"380\" fill=\"white\"/>\n",
    );
    for power in 6..=9 {
        let rate = 10_f64.powi(power);
        let _ = writeln!(
            out,
            "<path d=\"M70 {0} H550\" stroke=\"#ddd\"/><text x=\"8\" y=\"{1}\">10^{power} ops/s</text>",
            y(rate),
            y(rate) + 4.0
        );
    }
    for servers in [10, 100, 1000] {
        let _ =
            writeln!(out, "<text x=\"{}\" y=\"350\">{servers} servers</text>", x(servers) - 20.0);
    }
    for (number, (per_server, line)) in lines.iter().enumerate() {
        let path = |value: &dyn Fn(&(u32, f64, f64)) -> f64| {
            let points = line.iter().map(|point| format!("{:.1},{:.1}", x(point.0), value(point)));
            points.collect::<Vec<_>>().join(" ")
        };
        let color = ["#1565c0", "#2e7d32"][number % 2];
        let _ = writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" points=\"{}\"/>\
             <text x=\"90\" y=\"{}\" fill=\"{color}\">{per_server} client(s) per server: operations</text>",
            path(&|point| y(point.1)),
            30 + 18 * number
        );
        if number == 0 {
            let _ = writeln!(
                out,
                "<polyline fill=\"none\" stroke=\"#c62828\" stroke-dasharray=\"4\" points=\"{}\"/>\
                 <text x=\"90\" y=\"66\" fill=\"#c62828\">load of the metadata, 0 to 100 %</text>",
                path(&|point| z(point.2))
            );
        }
    }
    out.push_str("</svg>\n");
    out
}
