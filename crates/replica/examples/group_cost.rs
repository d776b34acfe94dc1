//! What replication costs: writes to a group of two members over loopback beside the same writes to a group of one, which is
//! the log alone, in turns.
//!
//! ```text
//!   group_cost DIRECTORY [SECONDS] [ROUNDS] [MICROSECONDS]
//! ```
//! With MICROSECONDS all that goes between the members is held up for so long in each direction.
//!
//! Each row is a pattern of writes and one way for records to go: by TCP, by several connections of TCP, by RDMA, and by TCP and
//! RDMA with sealed records (`seal_records`). Rates are medians over the rounds, and a part is one of these medians of that of the
//! log alone. The members are
//! threads of one process, each with a log and a volume in files of its own below DIRECTORY.

use std::error::Error;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use basics::Environment;
use block::{BlockDevice, FileDevice, Survives};
use rdma::{PollPolicy, ProviderChoice};
use replica::core::{Config, Congestion, Core, Mode};
use replica::format::Geometry;
use replica::one_sided::OneSidedOptions;
use replica::ring::{CreateOptions, Ring};
use replica::runtime::{Member, Setup, Way};
use replica::wire::{Identity, LinkOptions, Listener, Policy};
use replica::witness::NoWitness;
use replica::{GroupId, MemberId, MemberSet};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SIZE: u64 = 256 << 20;
const CAPACITY: u64 = 256 << 20;
const MAP: pmem::OpenOptions = pmem::OpenOptions { emulate_persistence: true };
/// One way for records to go; the first is no way, the log alone.
struct Arm {
    name: &'static str,
    members: u8,
    /// Connections of the link.
    connections: usize,
    one_sided: bool,
    seals: bool,
}

const ARMS: [Arm; 6] = [
    Arm { name: "alone", members: 1, connections: 1, one_sided: false, seals: false },
    Arm { name: "TCP", members: 2, connections: 1, one_sided: false, seals: false },
    Arm { name: "2 TCP", members: 2, connections: 2, one_sided: false, seals: false },
    Arm { name: "RDMA", members: 2, connections: 1, one_sided: true, seals: false },
    Arm { name: "TCP, sealed", members: 2, connections: 1, one_sided: false, seals: true },
    Arm { name: "RDMA, sealed", members: 2, connections: 1, one_sided: true, seals: true },
];
/// Bytes of a write, and writers.
const PATTERNS: [(usize, u64); 4] = [(4096, 1), (4096, 32), (128 << 10, 1), (128 << 10, 8)];

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let directory = words.next().ok_or("group_cost DIRECTORY [SECONDS] [ROUNDS] [MICROSECONDS]")?;
    let seconds: f64 = words.next().map_or(Ok(1.0), |word| word.parse())?;
    let rounds: usize = words.next().map_or(Ok(5), |word| word.parse())?;
    let delay = Duration::from_micros(words.next().map_or(Ok(0), |word| word.parse())?);
    let place = tempfile::tempdir_in(directory)?;
    let arms = ARMS
        .iter()
        .map(|arm| group(&place.path().join(arm.name.replace(' ', "-")), arm, delay))
        .collect::<Result<Vec<_>>>()?;
    let class = pmem::classify(&File::open(place.path().join("alone-0/ring"))?)?;
    println!(
        "logs of class {class}; {rounds} rounds of {seconds} s each, in turns; {} us more each way",
        delay.as_micros()
    );
    println!(
        "{:>7} {:>4} {:>13} {:>10} {:>6} {:>10}",
        "bytes", "QD", "way", "writes/s", "part", "us"
    );
    for (len, depth) in PATTERNS {
        let mut rates = [const { Vec::new() }; ARMS.len()];
        for _ in 0..rounds {
            for (rates, members) in rates.iter_mut().zip(&arms) {
                rates.push(rate(members, len, depth, Duration::from_secs_f64(seconds)));
            }
        }
        let medians = rates.map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        });
        for (arm, median) in ARMS.iter().zip(medians) {
            println!(
                "{len:>7} {depth:>4} {:>13} {median:>10.0} {:>6.2} {:>10.1}",
                arm.name,
                median / medians[0],
                1e6 * number(depth) / median
            );
        }
    }
    Ok(())
}

/// Answered writes a second.
fn rate(members: &[Member], len: usize, depth: u64, time: Duration) -> f64 {
    let device = &members[0].devices()[0];
    let (stops, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    thread::scope(|scope| {
        for writer in 0..depth {
            let (stops, count) = (&stops, &count);
            scope.spawn(move || {
                let bytes = vec![u8::try_from(writer).unwrap_or(1); len];
                let places = SIZE / len as u64;
                let mut at = writer * 7919;
                while !stops.load(Ordering::Relaxed) {
                    at = at
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let offset = (at >> 33) % places * len as u64;
                    if let Err(error) = device.write(offset, &bytes, Survives::Durable) {
                        eprintln!("a write failed: {error}");
                        return;
                    }
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(time);
        stops.store(true, Ordering::Relaxed);
    });
    number(count.into_inner()) / began.elapsed().as_secs_f64()
}

#[allow(clippy::cast_precision_loss, reason = "counts of seconds")]
const fn number(count: u64) -> f64 {
    count as f64
}

/// A group whose member 0 is the source, and all others are in sync.
fn group(path: &Path, arm: &Arm, delay: Duration) -> Result<Vec<Member>> {
    let (count, connections) = (arm.members, arm.connections);
    let listeners = (0..count)
        .map(|_| Listener::bind("127.0.0.1:0"))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let mut addresses: Vec<(MemberId, Vec<String>)> = Vec::new();
    let mut engines = Vec::new();
    for (member, listener) in (0..count).map(MemberId).zip(&listeners) {
        let address = delayed(listener.local_addr(), delay)?;
        addresses.push((member, vec![address.to_string()]));
        if !delay.is_zero() {
            // A port that is free now; nobody else on this machine asks for the same one soon.
            let engine = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
            engines.push((member, engine, delayed(engine, delay)?));
        }
    }
    let all = (0..count).fold(MemberSet::NONE, |all, it| all.with(MemberId(it)));
    let mut members = Vec::new();
    for (me, listener) in (0..count).zip(listeners) {
        let directory = path.with_file_name(format!(
            "{}-{me}",
            path.file_name().and_then(|name| name.to_str()).unwrap_or("group")
        ));
        std::fs::create_dir_all(directory.join("kept"))?;
        let config = config(MemberId(me), all, arm.seals);
        let options = CreateOptions {
            geometry: Geometry::new(CAPACITY, 1),
            overwrite: false,
            fills: true,
            medium: MAP,
        };
        let ring = Ring::create(&directory.join("ring"), &Core::first_label(&config), options)?;
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(true);
        let file = options.open(directory.join("volume"))?;
        file.set_len(SIZE)?;
        let volume: Arc<dyn BlockDevice> = Arc::new(FileDevice::new(file)?);
        members.push(Member::start(Setup {
            identity: Identity::from_secret(
                config.group,
                config.me,
                all,
                b"a secret of a measurement",
            )?,
            config,
            ring,
            volumes: vec![volume],
            directory: directory.join("kept"),
            map: MAP,
            addresses: addresses.clone(),
            links: LinkOptions { connections, ..LinkOptions::default() },
            one_sided: arm.one_sided.then(|| OneSidedOptions {
                provider: ProviderChoice::Soft,
                listen: engines
                    .iter()
                    .find(|(of, ..)| of.0 == me)
                    .map_or_else(|| ([127, 0, 0, 1], 0).into(), |(_, engine, _)| *engine),
                addresses: engines.iter().map(|(of, _, through)| (*of, *through)).collect(),
                polling: PollPolicy::Adaptive,
            }),
            listener,
            witness: Arc::new(NoWitness),
            compression: Policy::None,
            rpo: None,
            environment: Environment::host(),
        })?);
    }
    members[0].promote(true)?;
    while !is_there(&members, all, connections) {
        thread::sleep(Duration::from_millis(10));
    }
    Ok(members)
}

fn is_there(members: &[Member], all: MemberSet, connections: usize) -> bool {
    let report = members[0].report();
    let goes = report.ways.iter().all(|(_, way)| matches!(way, Way::OneSided(_)));
    let stands = |(_, count): &(MemberId, usize)| *count == connections;
    let stand = report.connections.iter().all(stands);
    report.status.is_ready && report.status.in_sync == all && goes && stand
}

fn config(me: MemberId, all: MemberSet, seals: bool) -> Config {
    Config {
        group: GroupId(*b"what it will be."),
        me,
        my_mode: Mode::Sync,
        others: all.without(me).iter().map(|other| (other, Mode::Sync)).collect(),
        volumes: vec![SIZE],
        capacity: CAPACITY,
        least_in_sync: all.len(),
        has_witness: false,
        congestion: Congestion::DirtyMap,
        window: 16 << 20,
        silence_ns: 10_000_000_000,
        read_lease_ns: 2_000_000_000,
        retention_ns: 0,
        copy_window: 8 << 20,
        seals,
        key_check: 0,
    }
}

/// An address at which all connections lead to `to`, and what they carry is held up; `to` itself without a delay.
fn delayed(to: SocketAddr, delay: Duration) -> Result<SocketAddr> {
    if delay.is_zero() {
        return Ok(to);
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let Ok(far) = TcpStream::connect(to) else { continue };
            for (from, to) in [(&near, &far), (&far, &near)] {
                let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { return };
                let _ = to.set_nodelay(true);
                let (sender, receiver) = mpsc::channel();
                thread::spawn(move || take_in(from, &sender));
                thread::spawn(move || pass_on(to, &receiver, delay));
            }
        }
    });
    Ok(address)
}

fn take_in(mut from: TcpStream, sender: &mpsc::Sender<(Instant, Vec<u8>)>) {
    let mut bytes = vec![0; 256 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if sender.send((Instant::now(), bytes[..count].to_vec())).is_err() {
            return;
        }
    }
}

fn pass_on(mut to: TcpStream, receiver: &mpsc::Receiver<(Instant, Vec<u8>)>, delay: Duration) {
    for (came, bytes) in receiver {
        let left = delay.saturating_sub(came.elapsed());
        // A sleep of this machine ends so much late.
        thread::sleep(left.saturating_sub(LATE));
        if to.write_all(&bytes).is_err() {
            return;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// What a sleep takes more than it should.
const LATE: Duration = Duration::from_micros(55);
