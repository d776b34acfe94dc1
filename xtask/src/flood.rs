//! Ten thousand peers that connect and never get anywhere: each may cost the server its own
//! connection and little memory, and an honest client must not notice.
//!
//! They say nothing, or stop in the middle of a message whose head promised more, or send bytes of
//! no protocol. Half go to the SMB port, half to the RDMA port.
//!
//! Before them, a thousand sessions that have logged on and opened a file, and do nothing more.
//!
//! Then a storm on the RDMA port: connections that come as fast as they can for some seconds, each
//! held until newer ones took its place, whole requests that lead nowhere among them. Push clients
//! that start meanwhile must get their region mapped, and nothing else will do.

use std::collections::VecDeque;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::failure::{Failure, Outcome, Tally};
use crate::landfast::{Landfast, announced, bench};
use crate::model::{self, resident_kib};
use crate::peer::{Address, PASSWORD, SHARE, USER};
use crate::process::{Step, tail};
use crate::workspace;

/// Options of `cargo xtask flood`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// How many connections are held open at once.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) connections: usize,
    /// How many push clients start during the storm on the RDMA port, one after the other.
    #[arg(long, default_value_t = 5)]
    pub(crate) newcomers: usize,
    /// How many sessions with a file open are idle before that.
    #[arg(long, default_value_t = 1_000)]
    pub(crate) sessions: usize,
    /// How much the server's resident memory may grow by, in MiB.
    #[arg(long, default_value_t = 256)]
    pub(crate) growth_max_mib: u64,
}

impl Options {
    /// The form for `cargo xtask test`, which need not build the sessions' program.
    pub(crate) fn short() -> Self {
        Self { connections: 10_000, newcomers: 5, sessions: 0, growth_max_mib: 256 }
    }
}

/// Opens them, looks at the server, and lets an honest client in among them.
pub(crate) fn run(options: &Options) -> Outcome {
    raise_descriptor_limit(options.connections)?;
    let scratch = workspace::scratch()?;
    let share = scratch.path().join("share");
    fs::create_dir(&share).map_err(Failure::io("creating", &share))?;
    let mut server = Landfast::start(&share, &[])?;
    let address = server.address.clone();
    let credentials = address.write_credentials(scratch.path())?;
    let mut tally = Tally::default();
    tally.count("an honest client alone", honest(&address, &credentials)?);

    if options.sessions > 0 {
        idle(&address, server.running.id(), options.sessions, &mut tally)?;
    }
    let before = resident_mib(server.running.id())?;
    let begin = Instant::now();
    let held = connect(&address, options.connections);
    let took = begin.elapsed().as_secs_f64();
    println!("  {} of {} connected in {took:.1} s", held.len(), options.connections);
    tally.count("an honest client among them", honest(&address, &credentials)?);
    let during = resident_mib(server.running.id())?;
    let (connected, closed) = (held.len(), closed(&held));

    drop(held);
    let storm = storm(&address, options.newcomers, &mut tally)?;
    let stormed = resident_mib(server.running.id())?;
    tally.count("an honest client after them", honest(&address, &credentials)?);
    let ended = server.running.ended();
    tally.count("the server lives", ended.map_or(Ok(()), |status| Err(status.to_string())));
    let grown = during.max(stormed).saturating_sub(before);
    let bounded = match grown <= options.growth_max_mib {
        true => Ok(()),
        false => Err(format!("{grown} MiB, {} at most", options.growth_max_mib)),
    };
    tally.count("memory stays bounded", bounded);
    let idle = std::mem::take(&mut tally.note);
    tally.note = format!(
        "{idle}{before} MiB resident, {during} with {connected} ({closed} closed again), {stormed} in \
         the storm; {storm}"
    );
    Ok(tally)
}

/// Lets push clients start, one after the other, while connections pour into the RDMA port.
fn storm(address: &Address, newcomers: usize, tally: &mut Tally) -> Result<String, Failure> {
    let port = address.rdma.ok_or_else(|| Failure::new("no RDMA port to flood"))?;
    let (is_over, poured) = (AtomicBool::new(false), AtomicUsize::new(0));
    let begin = Instant::now();
    let mut slowest = Duration::ZERO;
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (is_over, poured) = (&is_over, &poured);
            scope.spawn(move || pour(port, worker, is_over, poured));
        }
        for index in 0..newcomers {
            let begin = Instant::now();
            tally.count("a push client that starts in the storm", push(address, index));
            slowest = slowest.max(begin.elapsed());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let (took, slowest) = (begin.elapsed().as_secs_f64(), slowest.as_secs_f64());
    let poured = poured.load(Ordering::Relaxed);
    Ok(format!(
        "{poured} connections in {took:.1} s, the slowest of {newcomers} push clients took \
         {slowest:.2} s to start and to work for {PUSH_SECONDS} s"
    ))
}

/// Opens connections until told to stop; the oldest are let go as newer ones come.
fn pour(port: SocketAddr, worker: usize, is_over: &AtomicBool, poured: &AtomicUsize) {
    let mut held = VecDeque::with_capacity(HELD_PER_WORKER);
    let mut place = worker;
    while !is_over.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect_timeout(&port, CONNECT_LIMIT) else { continue };
        let _ = stream.write_all(REQUESTS[place % REQUESTS.len()]);
        place += 1;
        poured.fetch_add(1, Ordering::Relaxed);
        if held.len() == HELD_PER_WORKER {
            held.pop_front();
        }
        held.push_back(stream);
    }
}

/// Runs our own client for a second on a mapped region. It insists on push mode.
fn push(address: &Address, index: usize) -> Result<(), String> {
    let url = address.url(&format!("newcomer.{index}"));
    let seconds = PUSH_SECONDS.to_string();
    let args = ["--mode", "push", "-d", &seconds, "--file-size", "1M"];
    bench(&url, &args).map(drop).map_err(|failure| failure.to_string())
}

/// Opens the connections and leaves each in its unfinished state. Several threads, since a server
/// that falls behind makes each connection beyond its queue wait a whole second.
fn connect(address: &Address, count: usize) -> Vec<TcpStream> {
    let ports: Vec<SocketAddr> = [Some(address.smb), address.rdma].into_iter().flatten().collect();
    let open = |place: usize| {
        let port = ports[place % ports.len()];
        let mut stream = TcpStream::connect_timeout(&port, CONNECT_LIMIT).ok()?;
        // A server that already closed this connection has answered as it may.
        let _ = stream.write_all(OPENINGS[place / ports.len() % OPENINGS.len()]);
        Some(stream)
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                scope.spawn(move || (worker..count).step_by(WORKERS).filter_map(open).collect())
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|_| Vec::new()))
            .collect()
    })
}

/// How many of the connections the server has closed by now.
fn closed(held: &[TcpStream]) -> usize {
    let is_closed = |mut stream: &TcpStream| {
        let _ = stream.set_nonblocking(true);
        let mut answer = [0; 64];
        loop {
            match stream.read(&mut answer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
    };
    held.iter().filter(|stream| is_closed(stream)).count()
}

/// Lists the share with somebody else's client.
fn honest(address: &Address, credentials: &Path) -> Result<Result<(), String>, Failure> {
    let finished = Step::new("smbclient")
        .arg(address.unc())
        .args(["--port", &address.smb.port().to_string(), "--configfile", "/dev/null"])
        .arg("--authentication-file")
        .arg(credentials)
        .args(["--command", "ls"])
        .limit(Duration::from_secs(60))
        .finish()?;
    let text = finished.stdout + &finished.stderr;
    let served = finished.status.success() && !text.contains("NT_STATUS_");
    Ok(if served { Ok(()) } else { Err(tail(&text)) })
}

/// Sessions that have logged on, entered the share and opened a file, and then do nothing.
fn idle(address: &Address, server: u32, count: usize, tally: &mut Tally) -> Result<(), Failure> {
    let before = resident_kib(server)?;
    let log = workspace::kept("logs")?.join("idle-sessions.log");
    let step = Step::new(model::program()?)
        .args(["idle", &address.smb.to_string(), SHARE, &format!("{USER}:{PASSWORD}")])
        .arg(count.to_string());
    let mut sessions = step.hold_input().serve(&log, true)?;
    announced(&mut sessions, &log, |line| (line == "idle").then_some(()))?;
    // Buffers are given back a little after the last request.
    thread::sleep(IDLE_PAUSE);
    let each =
        resident_kib(server)?.saturating_sub(before) / u64::try_from(count).unwrap_or(1).max(1);
    sessions.stop(IDLE_PAUSE)?;
    let small = if each < IDLE_MAX_KIB { Ok(()) } else { Err(format!("{each} KiB")) };
    tally.count("an idle session costs little", small);
    tally.note = format!("{count} idle sessions at {each} KiB each; ");
    Ok(())
}

fn resident_mib(pid: u32) -> Result<u64, Failure> {
    Ok(resident_kib(pid)? / 1024)
}

/// Lets this process, and with it the server it starts, hold `wanted` descriptors.
pub(crate) fn raise_descriptor_limit(connections: usize) -> Result<(), Failure> {
    let wanted = u64::try_from(connections).map_or(u64::MAX, |count| count + DESCRIPTORS_SPARE);
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|error| {
        Failure::new(format!("{wanted} file descriptors are needed: {error}"))
            .remedy(format!("ulimit -Hn {wanted}, or fewer --connections"))
    })
}

/// What an unfinished peer sends: nothing; the head of a frame that promises 64 KiB, and an MPA
/// request cut in its key; bytes of no protocol.
const OPENINGS: [&[u8]; 4] =
    [b"", b"\x00\x00\xff\xff\xfeSMB\x40\x00", b"MPA ID Req", b"GET / HTTP/1.1\r\n\r\n"];
/// What a peer in the storm sends: nothing; a request cut in its key; a whole MPA request of
/// revision 1 without private data, which is a beginning of SMB Direct.
const REQUESTS: [&[u8]; 3] = [b"", b"MPA ID Req", b"MPA ID Req Frame\x40\x01\x00\x00"];
/// Connections that each thread of the storm holds, together several times what the server keeps
/// of half-open ones.
const HELD_PER_WORKER: usize = 100;
/// How long a push client of the storm works once it has its region.
const PUSH_SECONDS: u32 = 1;
/// How many threads open connections.
const WORKERS: usize = 16;
/// Resident memory an idle session may cost.
const IDLE_MAX_KIB: u64 = 64;
/// How long idle connections may take to give their buffers back.
const IDLE_PAUSE: Duration = Duration::from_secs(5);
/// Descriptors beside those of the connections.
const DESCRIPTORS_SPARE: u64 = 500;
/// How long one connection may wait to be accepted by the kernel's queue.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
