//! The client of the push arms: a queue pair for each connection with one RDMA Read under way, one thread that spins.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pmem::Medium;
use rdma::{
    Access, Engine, EngineConfig, Event, MemoryRegion, Operation, Payload, PollPolicy,
    Provider as _, QpConfig, QpId, Rkey, SoftProvider, WorkRequest,
};

use crate::limited::Server;
use crate::{Failure, Order, Outcome};

/// See the module.
pub(crate) struct Reader {
    engine: Box<dyn Engine>,
    memory: Arc<dyn Medium>,
    peers: Vec<Peer>,
    order: Order,
    by_messages: bool,
}

struct Peer {
    qp: QpId,
    local: MemoryRegion,
    rkey: Rkey,
    base: u64,
    page: u64,
    since: Instant,
}

impl Reader {
    pub(crate) fn open(
        server: &mut Server,
        connections: usize,
        arm: &str,
    ) -> Result<Self, Failure> {
        let (crc, by_messages) = (matches!(arm, "push" | "eager" | "workers"), arm == "messages");
        Self::open_with(server, connections, crc, PollPolicy::Spin, by_messages)
    }

    pub(crate) fn open_with(
        server: &mut Server,
        connections: usize,
        crc: bool,
        polling: PollPolicy,
        by_messages: bool,
    ) -> Result<Self, Failure> {
        let config = EngineConfig { polling, ..EngineConfig::default() };
        let mut engine = SoftProvider.open_engine(config)?;
        let memory = pmem::anonymous(connections as u64 * 4096)?;
        let mut peers = Vec::new();
        let mut events = Vec::new();
        for number in 0..connections as u64 {
            let config = QpConfig { crc, ..QpConfig::default() };
            let address = server.address(usize::try_from(number)?);
            let qp = engine.connect(address, config, &[])?;
            loop {
                engine.wait(None);
                engine.poll(&mut events);
                match events.pop() {
                    None => {}
                    Some(Event::Established { .. }) => break,
                    Some(other) => return Err(format!("no connection: {other:?}").into()),
                }
            }
            let line = server.line()?;
            let (rkey, base) = line.split_once(' ').ok_or("no region")?;
            let range = number * 4096..(number + 1) * 4096;
            let local = engine.register(qp, Arc::clone(&memory), range, Access::LOCAL_WRITE)?;
            let (rkey, base) = (Rkey(rkey.parse()?), base.parse()?);
            if by_messages {
                engine.post_recv(qp, number, local.slice(0, 4096))?;
            }
            peers.push(Peer { qp, local, rkey, base, page: 0, since: Instant::now() });
        }
        Ok(Self { engine, memory, peers, order: Order::new(), by_messages })
    }

    pub(crate) fn run(&mut self, time: Duration, len: u64) -> Result<Outcome, Failure> {
        let (start, pages) = (Instant::now(), len / 4096);
        let mut latencies = Vec::with_capacity(1 << 20);
        for number in 0..self.peers.len() {
            self.ask(number, pages)?;
        }
        let mut open = self.peers.len();
        let mut events = Vec::with_capacity(512);
        while open > 0 {
            self.engine.wait(None);
            self.engine.poll(&mut events);
            for event in events.drain(..) {
                let Event::Completion(done) = event else {
                    return Err(format!("unexpected: {event:?}").into());
                };
                if !done.is_success() {
                    return Err(format!("failed: {done:?}").into());
                }
                let number = usize::try_from(done.wr_id)?;
                let peer = self.peers.get(number).ok_or("no such connection")?;
                if self.by_messages {
                    let room = peer.local.slice(0, 4096);
                    self.engine.post_recv(peer.qp, done.wr_id, room)?;
                }
                latencies.push(u64::try_from(peer.since.elapsed().as_nanos())?);
                let mut found = [0; 8];
                self.memory.try_read(done.wr_id * 4096, &mut found)?;
                if u64::from_le_bytes(found) != peer.page {
                    return Err(format!("another page came for page {}", peer.page).into());
                }
                if start.elapsed() < time {
                    self.ask(number, pages)?;
                } else {
                    open -= 1;
                }
            }
        }
        let took = start.elapsed();
        Ok(Outcome { reads: latencies.len() as u64, took, latencies })
    }

    /// Reads the first bytes of the file, page by page.
    pub(crate) fn touch(&mut self, len: u64) -> Result<(), Failure> {
        let mut events = Vec::new();
        for page in 0..len / 4096 {
            self.ask_page(0, page)?;
            while events.is_empty() {
                self.engine.wait(None);
                self.engine.poll(&mut events);
            }
            events.clear();
        }
        Ok(())
    }

    fn ask(&mut self, number: usize, pages: u64) -> Result<(), Failure> {
        let page = self.order.next(pages);
        self.ask_page(number, page)
    }

    fn ask_page(&mut self, number: usize, page: u64) -> Result<(), Failure> {
        let peer = self.peers.get_mut(number).ok_or("no such connection")?;
        peer.page = page;
        peer.since = Instant::now();
        if self.by_messages {
            let mut request = [0; 24];
            request[..8].copy_from_slice(&(page * 4096).to_le_bytes());
            let payload = Payload::Inline(&request);
            let send = Operation::Send { payload, invalidate: None, solicited: false };
            self.engine.post_send(peer.qp, WorkRequest::unsignaled(0, send))?;
            return Ok(());
        }
        let (rkey, remote_addr) = (peer.rkey, peer.base + peer.page * 4096);
        let read = Operation::Read { local: peer.local.slice(0, 4096), rkey, remote_addr };
        self.engine.post_send(peer.qp, WorkRequest::signaled(number as u64, read))?;
        Ok(())
    }
}
