//! The client's end against a server made of `rdma` and `smbdirect` alone: frames and memory.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rdma::{
    Access, Engine, EngineConfig, Event, LocalSlice, MemoryRegion, Operation, Payload, Provider,
    QpConfig, QpId, Rkey, SoftProvider, WcOpcode, WorkRequest,
};
use smbdirect::{Acceptor, Config, Connection, Descriptors, NegotiateResponse};

use super::*;

/// Echoes frames. A frame that begins with `W` names memory for an RDMA Write, a frame that begins
/// with `R` names memory for an RDMA Read, whose bytes are then echoed. A frame that begins with
/// `E` is the last.
struct Peer {
    engine: Box<dyn Engine>,
    address: SocketAddr,
}

impl Peer {
    fn listen(provider: &dyn Provider) -> Self {
        let mut engine = provider.open_engine(EngineConfig::default()).unwrap();
        let address = engine.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        Self { engine, address }
    }

    /// Serves one connection until it ends.
    fn serve(mut self) {
        let mut serving: Option<Serving> = None;
        let mut events = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            self.engine.poll(&mut events);
            for event in events.drain(..) {
                match event {
                    Event::ConnectRequest { id, .. } => {
                        let qp = self.engine.accept(id, QpConfig::default(), &[]).unwrap();
                        serving = Some(Serving::new(self.engine.as_mut(), qp));
                    }
                    Event::Completion(completion) if completion.is_success() => {
                        let serving = serving.as_mut().unwrap();
                        match completion.opcode {
                            WcOpcode::Recv => serving.receive(
                                self.engine.as_mut(),
                                completion.wr_id,
                                completion.len,
                            ),
                            WcOpcode::Read => serving.read_done(self.engine.as_mut()),
                            _ => {}
                        }
                    }
                    Event::Disconnected { .. } => return,
                    _ => {}
                }
            }
            self.engine.wait(Some(Duration::from_millis(100)));
        }
        panic!("the client never hung up");
    }
}

struct Serving {
    qp: QpId,
    medium: Arc<dyn pmem::Medium>,
    region: MemoryRegion,
    acceptor: Option<Acceptor>,
    connection: Option<Connection>,
    reading: u32,
}

const SLOT: u64 = 8192;
const DATA: u64 = 255 * SLOT;

impl Serving {
    fn new(engine: &mut dyn Engine, qp: QpId) -> Self {
        let medium = pmem::anonymous(DATA + (1 << 20)).unwrap();
        let access = Access::LOCAL_WRITE;
        let region = engine.register(qp, Arc::clone(&medium), 0..medium.len(), access).unwrap();
        for slot in 0..255 {
            engine.post_recv(qp, slot, region.slice(slot * SLOT, 8192)).unwrap();
        }
        let mut acceptor = Acceptor::new(Config::default(), Instant::now()).unwrap();
        acceptor.receives_posted(255);
        Self { qp, medium, region, acceptor: Some(acceptor), connection: None, reading: 0 }
    }

    fn send(&self, engine: &mut dyn Engine, bytes: &[u8]) {
        let payload = Payload::Inline(bytes);
        let operation = Operation::Send { payload, invalidate: None, solicited: false };
        // The client may close at any moment; the event of the close ends the peer.
        let _ = engine.post_send(self.qp, WorkRequest::unsignaled(0, operation));
    }

    fn receive(&mut self, engine: &mut dyn Engine, slot: u64, len: u32) {
        let mut message = vec![0; usize::try_from(len).unwrap()];
        self.medium.read(slot * SLOT, &mut message).unwrap();
        let buffer = self.region.slice(slot * SLOT, 8192);
        if engine.post_recv(self.qp, slot, buffer).is_err() {
            return;
        }
        let now = Instant::now();
        if let Some(mut acceptor) = self.acceptor.take() {
            acceptor.handle_receive(now, &message).unwrap();
            let mut bytes = [0; NegotiateResponse::LEN];
            acceptor.poll_transmit().unwrap().emit(&mut bytes);
            self.send(engine, &bytes);
            self.connection = Some(Connection::new(acceptor.outcome().unwrap().unwrap(), now));
        } else {
            let connection = self.connection.as_mut().unwrap();
            let frame = connection.handle_receive(now, &message).unwrap().map(<[u8]>::to_vec);
            if let Some(frame) = frame {
                self.act(engine, frame);
            }
        }
        if let Some(connection) = &mut self.connection {
            connection.receives_posted(1);
        }
        self.flush(engine);
    }

    fn act(&mut self, engine: &mut dyn Engine, frame: Vec<u8>) {
        let kind = frame[0];
        if kind != b'W' && kind != b'R' {
            self.connection.as_mut().unwrap().send(frame, None).unwrap();
            if kind == b'E' {
                self.flush(engine);
                engine.disconnect(self.qp);
            }
            return;
        }
        let descriptors = Descriptors::parse(&frame[1..]).unwrap();
        let mut at = 0;
        for (index, descriptor) in descriptors.iter().enumerate() {
            let rkey = Rkey(descriptor.token.0);
            let remote_addr = descriptor.offset;
            let local: LocalSlice = self.region.slice(DATA + at, descriptor.length);
            at += u64::from(descriptor.length);
            if kind == b'R' {
                let operation = Operation::Read { local, rkey, remote_addr };
                engine.post_send(self.qp, WorkRequest::signaled(0, operation)).unwrap();
                self.reading += 1;
                continue;
            }
            let fill = vec![u8::try_from(index + 1).unwrap(); 100];
            let payload = Payload::Inline(&fill);
            let operation = Operation::Write { payload, rkey, remote_addr };
            engine.post_send(self.qp, WorkRequest::unsignaled(0, operation)).unwrap();
        }
        if kind == b'W' {
            self.connection.as_mut().unwrap().send(b"written".to_vec(), None).unwrap();
        }
    }

    fn read_done(&mut self, engine: &mut dyn Engine) {
        self.reading -= 1;
        if self.reading == 0 {
            let mut bytes = vec![0; 100_000];
            self.medium.read(DATA, &mut bytes).unwrap();
            self.connection.as_mut().unwrap().send(bytes, None).unwrap();
            self.flush(engine);
        }
    }

    fn flush(&mut self, engine: &mut dyn Engine) {
        let mut out = vec![0; 8192];
        while let Some(transmit) =
            self.connection.as_mut().and_then(|connection| connection.poll_transmit(&mut out))
        {
            self.send(engine, &out[..transmit.len]);
        }
    }
}

async fn connected() -> (Transport, std::thread::JoinHandle<()>) {
    let provider = SoftProvider;
    let peer = Peer::listen(&provider);
    let address = peer.address;
    let serving = std::thread::spawn(move || peer.serve());
    (connect(&provider, address, DirectConfig::default()).await.unwrap(), serving)
}

async fn exchange(transport: &mut Transport, frame: &[u8]) -> Vec<u8> {
    let out = OutFrame::new(frame.len(), |out| out.extend_from_slice(frame));
    transport.sender.send(out).unwrap();
    std::future::poll_fn(|cx| transport.receiver.poll_receive(cx, 1 << 20)).await.unwrap().to_vec()
}

#[tokio::test]
async fn frames_of_every_size_come_back_whole() {
    let (mut transport, serving) = connected().await;
    for len in [1, 100, 8168, 8169, 100_000] {
        let frame: Vec<u8> = (0..len).map(|at| u8::try_from(at % 61).unwrap()).collect();
        assert_eq!(exchange(&mut transport, &frame).await, frame);
    }
    drop(transport);
    serving.join().unwrap();
}

#[tokio::test]
async fn the_end_of_a_connection_by_the_server_is_reported() {
    let (mut transport, _serving) = connected().await;
    assert_eq!(exchange(&mut transport, b"E").await, b"E");
    let end = std::future::poll_fn(|cx| transport.receiver.poll_receive(cx, 1 << 20)).await;
    let reason = rdma::DisconnectReason::PeerClosed;
    assert_eq!(end.unwrap_err(), ConnectionError::RdmaLost(reason));
}

#[tokio::test]
async fn lent_memory_is_written_and_read_by_the_server() {
    let (mut transport, serving) = connected().await;
    let pool = Arc::clone(transport.pool.as_ref().unwrap());
    let slots = pool.take(100_000).await.unwrap();
    let frame = [b"W".to_vec(), slots.channel_info()].concat();
    assert_eq!(exchange(&mut transport, &frame).await, b"written");
    let mut out = vec![0; 100_000];
    slots.copy_to(&mut out).unwrap();
    assert_eq!((out[99], out[100], out[65_536 + 99], out[65_536 + 100]), (1, 0, 2, 0));
    let data: Vec<u8> = (0..100_000_u32).map(|at| u8::try_from(at % 241).unwrap()).collect();
    slots.fill(&data).unwrap();
    let frame = [b"R".to_vec(), slots.channel_info()].concat();
    assert_eq!(exchange(&mut transport, &frame).await, data);
    drop(slots);
    drop(transport);
    serving.join().unwrap();
}

#[tokio::test]
async fn slots_that_are_dropped_are_free_again() {
    let (transport, serving) = connected().await;
    let pool = Arc::clone(transport.pool.as_ref().unwrap());
    let most = pool.io_size_max();
    let mut lent: Vec<Slots> = std::iter::from_fn(|| pool.try_take(most)).collect();
    assert!(!lent.is_empty() && pool.try_take(1).is_none());
    drop(lent.pop());
    drop(pool.try_take(most).unwrap());
    let again = pool.try_take(most).unwrap();
    assert!(pool.try_take(1).is_none());
    drop((lent, again));
    drop(transport);
    serving.join().unwrap();
}

#[tokio::test]
async fn a_dial_without_a_listener_fails_at_once() {
    let provider = SoftProvider;
    let peer = Peer::listen(&provider);
    let address = peer.address;
    drop(peer);
    let error = connect(&provider, address, DirectConfig::default()).await.unwrap_err();
    assert!(matches!(error, ConnectionError::RdmaDial(_)), "{error}");
}
