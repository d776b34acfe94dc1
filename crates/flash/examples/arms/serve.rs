//! The servers of the arms: the same number of serving threads each, every thread with a listener of its own.

use std::fs::File;
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use flash::{Pool, map_file};
use pmem::Medium;
use rdma::{
    Access, EngineConfig, Event, Operation, Payload, PollPolicy, Provider as _, QpConfig,
    SoftProvider, WcOpcode, WorkRequest,
};
use rustix::event::epoll;
use rustix::net::SendFlags;

use crate::Failure;

/// `ARM PATH LEN BUDGET WAIT THREADS`
#[expect(clippy::exit, reason = "a server whose parent has gone has nobody left")]
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let [arm, path, len, budget, wait, threads] = arguments else {
        return Err("serve ARM PATH LEN BUDGET WAIT THREADS".into());
    };
    let mut word = String::new();
    std::io::stdin().read_line(&mut word)?;
    let (len, budget, spins) = (len.parse::<u64>()?, budget.parse::<u64>()?, wait == "spin");
    let threads = threads.parse::<usize>()?;
    let file = File::open(path)?;
    thread::spawn(|| {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if line == "cpu" {
                println!("{}", cpu_ns());
            }
        }
        std::process::exit(0);
    });
    match arm.as_str() {
        "push" | "push-nocrc" | "eager" => {
            let medium = if arm == "eager" {
                pmem::map_file(&file, len, pmem::OpenOptions::default())?
            } else {
                map_file(&file, len, &Pool::new(budget)?.share(budget)?)?
            };
            if len <= budget {
                warm(|at, out| Ok(medium.read(at, out)?), len)?;
            }
            on_all(threads, || push(&medium, spins))
        }
        "messages" => {
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
            if len <= budget {
                let read = |at, out: &mut [u8]| Ok(rustix::io::pread(&file, out, at).map(drop)?);
                warm(read, len)?;
            }
            on_all(threads, || messages(&file, spins))
        }
        _ => {
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
            if len <= budget {
                let read = |at, out: &mut [u8]| Ok(rustix::io::pread(&file, out, at).map(drop)?);
                warm(read, len)?;
            }
            on_all(threads, || raw(&file, arm == "sendfile", spins))
        }
    }
}

/// Serves on so many threads, for ever.
fn on_all(threads: usize, serve: impl Fn() -> Result<(), Failure> + Sync) -> Result<(), Failure> {
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(&serve)).collect();
        serve()?;
        others.into_iter().try_for_each(|other| other.join().map_err(|_| "a thread panicked")?)
    })
}

fn warm(read: impl Fn(u64, &mut [u8]) -> Result<(), Failure>, len: u64) -> Result<(), Failure> {
    let mut page = [0; 4096];
    for at in (0..len).step_by(4096) {
        read(at, &mut page)?;
    }
    Ok(())
}

fn cpu_ns() -> u128 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u128::from(time.tv_sec.unsigned_abs()) * 1_000_000_000 + u128::from(time.tv_nsec.unsigned_abs())
}

fn push(medium: &Arc<dyn Medium>, spins: bool) -> Result<(), Failure> {
    let polling = if spins { PollPolicy::Spin } else { PollPolicy::Block };
    let mut engine =
        SoftProvider.open_engine(EngineConfig { polling, ..EngineConfig::default() })?;
    println!("{}", engine.listen("127.0.0.1:0".parse()?)?);
    let mut events = Vec::with_capacity(512);
    loop {
        engine.wait(None);
        engine.poll(&mut events);
        for event in events.drain(..) {
            if let Event::ConnectRequest { id, .. } = event {
                let qp = engine.accept(id, QpConfig { crc: false, ..QpConfig::default() }, &[])?;
                let range = 0..medium.len();
                let region = engine.register(qp, Arc::clone(medium), range, Access::REMOTE_READ)?;
                println!("{} {}", region.rkey.0, region.remote_addr_base);
            }
        }
    }
}

/// The same engine and framing as push, but the application answers: a message asks, pread, a message answers.
fn messages(file: &File, spins: bool) -> Result<(), Failure> {
    let polling = if spins { PollPolicy::Spin } else { PollPolicy::Block };
    let mut engine =
        SoftProvider.open_engine(EngineConfig { polling, ..EngineConfig::default() })?;
    println!("{}", engine.listen("127.0.0.1:0".parse()?)?);
    let inbox = pmem::anonymous(PEERS_MAX * 64)?;
    let (mut peers, mut events) = (Vec::new(), Vec::with_capacity(512));
    let mut page = vec![0; 4096];
    loop {
        engine.wait(None);
        engine.poll(&mut events);
        for event in events.drain(..) {
            match event {
                Event::ConnectRequest { id, .. } => {
                    let config = QpConfig { crc: false, ..QpConfig::default() };
                    let qp = engine.accept(id, config, &[])?;
                    let number = peers.len() as u64;
                    let range = number * 64..(number + 1) * 64;
                    let medium = Arc::clone(&inbox);
                    let room = engine.register(qp, medium, range, Access::LOCAL_WRITE)?;
                    engine.post_recv(qp, number, room.slice(0, 64))?;
                    peers.push(room);
                    println!("0 0");
                }
                Event::Completion(done) if done.opcode == WcOpcode::Recv && done.is_success() => {
                    let room = peers.get(usize::try_from(done.wr_id)?).ok_or("no such peer")?;
                    let mut request = [0; 8];
                    inbox.try_read(done.wr_id * 64, &mut request)?;
                    engine.post_recv(done.qp, done.wr_id, room.slice(0, 64))?;
                    rustix::io::pread(file, &mut page, u64::from_le_bytes(request))?;
                    let payload = Payload::Inline(&page);
                    let send = Operation::Send { payload, invalidate: None, solicited: false };
                    engine.post_send(done.qp, WorkRequest::unsignaled(0, send))?;
                }
                _ => {}
            }
        }
    }
}

/// A connection of a control arm.
struct Peer {
    stream: TcpStream,
    asked: Vec<u8>,
}

fn raw(file: &File, sends_file: bool, spins: bool) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    println!("{}", listener.local_addr()?);
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let (new, events) = (u64::MAX, epoll::EventFlags::IN);
    epoll::add(&poll, &listener, epoll::EventData::new_u64(new), events)?;
    let mut peers: Vec<Peer> = Vec::new();
    let mut found = Vec::with_capacity(256);
    let mut answer = vec![0; HEADER + 4096];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        found.clear();
        let room = rustix::buffer::spare_capacity(&mut found);
        match epoll::wait(&poll, room, spins.then_some(&now)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        for event in &found {
            let name = event.data.u64();
            if name == new {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nodelay(true)?;
                    stream.set_nonblocking(true)?;
                    let data = epoll::EventData::new_u64(peers.len() as u64);
                    epoll::add(&poll, &stream, data, events)?;
                    peers.push(Peer { stream, asked: Vec::with_capacity(1024) });
                }
            } else if let Some(peer) = peers.get_mut(usize::try_from(name)?) {
                serve(peer, file, sends_file, &mut answer)?;
            }
        }
    }
}

/// Answers what a peer has asked for.
fn serve(peer: &mut Peer, file: &File, sends_file: bool, answer: &mut [u8]) -> Result<(), Failure> {
    let mut bytes = [0; 1024];
    match peer.stream.read(&mut bytes) {
        Ok(count) => peer.asked.extend_from_slice(&bytes[..count]),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    while peer.asked.len() >= REQUEST {
        let offset = u64::from_le_bytes(peer.asked[..8].try_into()?);
        peer.asked.drain(..REQUEST);
        answer[..8].copy_from_slice(&offset.to_le_bytes());
        if sends_file {
            rustix::net::send(&peer.stream, &answer[..HEADER], SendFlags::MORE)?;
            let (mut at, mut left) = (offset, 4096);
            while left > 0 {
                left -= rustix::fs::sendfile(&peer.stream, file, Some(&mut at), left)?;
            }
        } else {
            let got = rustix::io::pread(file, &mut answer[HEADER..], offset)?;
            debug_assert_eq!(got, 4096, "whole pages are asked for");
            peer.stream.write_all(answer)?;
        }
    }
    Ok(())
}

pub(crate) const REQUEST: usize = 24;
pub(crate) const HEADER: usize = 20;
const PEERS_MAX: u64 = 1024;
