//! The server of the control side that is not SMB: one medium, one engine thread, threads for messages.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use pmem::Medium;
use rdma::{
    Access, Engine, EngineConfig, Event, MemoryRegion, PollPolicy, Provider, QpConfig, QpId, Rkey,
    SoftProvider, Waker,
};

use crate::control;

/// A request to the engine thread.
enum Ask {
    /// From now on a connection with this token is accepted, once.
    Expect(u64, Sender<()>),
    Register(u64, Range<u64>, Sender<Option<MemoryRegion>>),
    Deregister(Sender<()>),
    Cut(Sender<()>),
    Stop,
}

#[derive(Debug)]
pub(crate) struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    engine: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    medium: Arc<dyn Medium>,
    push_address: SocketAddr,
    asks: Sender<Ask>,
    waker: Waker,
    tokens: AtomicU64,
    /// Whether the client of the mapping was promised the region all the time since.
    is_whole: AtomicBool,
    recalls: Mutex<Option<TcpStream>>,
    writes: AtomicU64,
}

impl Server {
    pub(crate) fn start(medium: Arc<dyn Medium>) -> Self {
        let config = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
        let mut engine = SoftProvider.open_engine(config).unwrap();
        let push_address = engine.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let (asks, inbox) = channel();
        let waker = engine.waker();
        let served = Arc::clone(&medium);
        let thread = std::thread::spawn(move || {
            let mut host =
                Host { engine, medium: served, expected: None, made: 0, qp: None, rkey: None };
            host.run(&inbox);
        });
        let shared = Arc::new(Shared {
            medium,
            push_address,
            asks,
            waker,
            tokens: AtomicU64::new(1),
            is_whole: AtomicBool::new(false),
            recalls: Mutex::new(None),
            writes: AtomicU64::new(0),
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let weak = Arc::downgrade(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Some(shared) = weak.upgrade() else { return };
                std::thread::spawn(move || shared.serve(stream.unwrap()));
            }
        });
        Self { shared, address, engine: Some(thread) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many messages have written.
    pub(crate) fn writes(&self) -> u64 {
        self.shared.writes.load(Ordering::SeqCst)
    }

    /// Asks the client for the region.
    pub(crate) fn recall(&self) {
        self.shared.recalls.lock().unwrap().as_mut().unwrap().write_all(&[1]).unwrap();
    }

    /// Ends the push connection.
    pub(crate) fn cut(&self) {
        self.shared.ask(Ask::Cut);
    }

    /// Takes the region away, for another writer.
    pub(crate) fn take_away(&self) {
        self.shared.is_whole.store(false, Ordering::SeqCst);
        self.shared.ask(Ask::Cut);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.shared.asks.send(Ask::Stop);
        self.shared.waker.wake();
        self.engine.take().unwrap().join().unwrap();
        // The thread that accepts looks whether the server is still there.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn ask<T>(&self, ask: impl FnOnce(Sender<T>) -> Ask) -> T {
        let (reply, answer) = channel();
        self.asks.send(ask(reply)).unwrap();
        self.waker.wake();
        answer.recv().unwrap()
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut kind = [0];
        match stream.read_exact(&mut kind) {
            Ok(()) if kind == [control::RECALLS] => {
                stream.write_all(&[0]).unwrap();
                *self.recalls.lock().unwrap() = Some(stream);
            }
            Ok(()) => {
                stream.set_nodelay(true).unwrap();
                while self.answer(&mut stream).is_ok() {}
            }
            Err(_) => {}
        }
    }

    fn answer(&self, stream: &mut TcpStream) -> io::Result<()> {
        let (mut what, mut numbers) = ([0], [[0; 8]; 2]);
        stream.read_exact(&mut what)?;
        stream.read_exact(numbers.as_flattened_mut())?;
        let [offset, len] = numbers.map(u64::from_le_bytes);
        let carried = match what[0] {
            control::MAP => 8,
            control::WRITE | control::WRITE_AGAIN => usize::try_from(len).unwrap(),
            _ => 0,
        };
        let mut bytes = vec![0; carried];
        stream.read_exact(&mut bytes)?;
        let answer = self.carry_out(what[0], offset..offset + len, &bytes);
        let body = answer.as_deref().unwrap_or_default();
        let length = u64::try_from(body.len()).unwrap().to_le_bytes();
        stream.write_all(&[&[u8::from(answer.is_some())][..], &length, body].concat())
    }

    /// The bytes of the answer; `None` refuses.
    fn carry_out(&self, what: u8, range: Range<u64>, bytes: &[u8]) -> Option<Vec<u8>> {
        let nothing = Some(Vec::new());
        match what {
            control::INVITE => {
                let token = self.tokens.fetch_add(1, Ordering::SeqCst);
                self.ask(|reply| Ask::Expect(token, reply));
                Some([&token.to_le_bytes()[..], self.push_address.to_string().as_bytes()].concat())
            }
            control::MAP => {
                let connection = u64::from_le_bytes(bytes.try_into().unwrap());
                let region = self.ask(|reply| Ask::Register(connection, range, reply))?;
                self.is_whole.store(true, Ordering::SeqCst);
                let (rkey, address) = (region.rkey.0, region.remote_addr_base);
                let offers = [region.offers.bits()];
                Some([&offers[..], &rkey.to_le_bytes(), &address.to_le_bytes()].concat())
            }
            control::UNMAP => {
                self.ask(Ask::Deregister);
                nothing
            }
            control::IS_WHOLE => self.is_whole.load(Ordering::SeqCst).then(Vec::new),
            control::WRITE_AGAIN if !self.is_whole.load(Ordering::SeqCst) => None,
            control::WRITE | control::WRITE_AGAIN => {
                self.writes.fetch_add(1, Ordering::SeqCst);
                self.medium.place(range.start, bytes).ok().and(nothing)
            }
            control::READ => {
                let mut out = vec![0; usize::try_from(range.end - range.start).unwrap()];
                self.medium.read(range.start, &mut out).ok().map(|()| out)
            }
            control::COMMIT => {
                self.medium.persist(range.start, range.end - range.start).ok().and(nothing)
            }
            _ => None,
        }
    }
}

/// The engine thread.
struct Host {
    engine: Box<dyn Engine>,
    medium: Arc<dyn Medium>,
    expected: Option<u64>,
    /// How many connections were accepted; the newest has this number.
    made: u64,
    qp: Option<QpId>,
    rkey: Option<Rkey>,
}

impl Host {
    fn run(&mut self, inbox: &Receiver<Ask>) {
        let mut events = Vec::new();
        loop {
            while let Ok(ask) = inbox.try_recv() {
                if !self.carry_out(ask) {
                    return;
                }
            }
            self.engine.poll(&mut events);
            for event in events.drain(..) {
                let Event::ConnectRequest { id, private_data, .. } = event else { continue };
                let expected = self.expected.take().map(u64::to_le_bytes);
                if expected.is_none_or(|token| private_data != token) {
                    self.engine.reject(id, &[]);
                    continue;
                }
                self.made += 1;
                let name = self.made.to_le_bytes();
                self.qp = self.engine.accept(id, QpConfig::default(), &name).ok();
            }
            self.engine.wait(Some(Duration::from_millis(20)));
        }
    }

    fn carry_out(&mut self, ask: Ask) -> bool {
        match ask {
            Ask::Expect(token, reply) => {
                self.expected = Some(token);
                reply.send(()).unwrap();
            }
            Ask::Register(connection, range, reply) => {
                let qp = self.qp.filter(|_| connection == self.made);
                let medium = Arc::clone(&self.medium);
                let region =
                    qp.and_then(|qp| self.engine.register(qp, medium, range, Access::PUSH).ok());
                self.rkey = region.map(|region| region.rkey);
                reply.send(region).unwrap();
            }
            Ask::Deregister(reply) => {
                if let (Some(qp), Some(rkey)) = (self.qp, self.rkey.take()) {
                    // This medium never makes an operation wait: on return the region is gone.
                    let _ = self.engine.deregister(qp, rkey);
                }
                reply.send(()).unwrap();
            }
            Ask::Cut(reply) => {
                if let Some(qp) = self.qp.take() {
                    self.engine.disconnect(qp);
                }
                self.rkey = None;
                reply.send(()).unwrap();
            }
            Ask::Stop => return false,
        }
        true
    }
}
