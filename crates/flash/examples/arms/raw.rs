//! The client of the control arms: a connection each with one read under way, one thread that spins.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::epoll;

use crate::serve::{HEADER, REQUEST};
use crate::{Failure, Order, Outcome};

/// See the module.
pub(crate) struct Reader {
    poll: rustix::fd::OwnedFd,
    peers: Vec<Peer>,
    order: Order,
}

struct Peer {
    stream: TcpStream,
    got: usize,
    page: u64,
    since: Instant,
    answer: Vec<u8>,
}

impl Reader {
    pub(crate) fn open(addresses: &[SocketAddr], connections: usize) -> Result<Self, Failure> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut peers = Vec::new();
        for number in 0..connections {
            let stream = TcpStream::connect(addresses[number % addresses.len()])?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&poll, &stream, data, epoll::EventFlags::IN)?;
            let answer = vec![0; HEADER + 4096];
            peers.push(Peer { stream, got: 0, page: 0, since: Instant::now(), answer });
        }
        Ok(Self { poll, peers, order: Order::new() })
    }

    pub(crate) fn run(&mut self, time: Duration, len: u64) -> Result<Outcome, Failure> {
        let (start, pages) = (Instant::now(), len / 4096);
        let mut latencies = Vec::with_capacity(1 << 20);
        for peer in &mut self.peers {
            peer.ask(self.order.next(pages))?;
        }
        let mut open = self.peers.len();
        let mut found = Vec::with_capacity(256);
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        while open > 0 {
            found.clear();
            let room = rustix::buffer::spare_capacity(&mut found);
            epoll::wait(&self.poll, room, Some(&now))?;
            for event in &found {
                let Some(peer) = self.peers.get_mut(usize::try_from(event.data.u64())?) else {
                    continue;
                };
                if !peer.hear()? {
                    continue;
                }
                latencies.push(u64::try_from(peer.since.elapsed().as_nanos())?);
                if start.elapsed() < time {
                    peer.ask(self.order.next(pages))?;
                } else {
                    open -= 1;
                }
            }
        }
        let took = start.elapsed();
        Ok(Outcome { reads: latencies.len() as u64, took, latencies })
    }
}

impl Peer {
    fn ask(&mut self, page: u64) -> Result<(), Failure> {
        let mut request = [0; REQUEST];
        request[..8].copy_from_slice(&(page * 4096).to_le_bytes());
        (self.got, self.page, self.since) = (0, page, Instant::now());
        Ok(self.stream.write_all(&request)?)
    }

    /// Whether the answer is whole.
    fn hear(&mut self) -> Result<bool, Failure> {
        match self.stream.read(&mut self.answer[self.got..]) {
            Ok(0) => return Err("the server has gone".into()),
            Ok(count) => self.got += count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        if self.got < self.answer.len() {
            return Ok(false);
        }
        let found = u64::from_le_bytes(self.answer[HEADER..HEADER + 8].try_into()?);
        if found != self.page {
            return Err(format!("page {} came for page {}", found, self.page).into());
        }
        Ok(true)
    }
}
