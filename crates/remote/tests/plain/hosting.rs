//! A program with messages of its own hosts a region: who gets in, and what a revoked peer can still do.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pmem::{AtomicOp, DurabilityClass, Medium, MediumError, Memory, StoreGranularity};
use rdma::{
    Access, ConnectFailure, DisconnectReason, EngineConfig, Event, PollPolicy, Provider, QpConfig,
    SoftProvider, TerminateCode,
};
use remote::host::{NotRegistered, Stage};
use remote::{Control, FallbackReason, Path, RegionError};

use crate::control::{MAP, PlainControl};
use crate::log::{LEN, RECORD};
use crate::server::{Server, Wanted};
use crate::structures::{in_memory, mapped};

/// RFC 5041 §8.2: a tagged buffer, invalid STag.
const INVALID_STAG: TerminateCode = TerminateCode { layer: 1, etype: 1, code: 0 };
const PATIENCE: Duration = Duration::from_secs(60);

/// How a connection request with this private data ends.
fn dial(server: &Server, private_data: &[u8]) -> Result<Vec<u8>, ConnectFailure> {
    let config = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
    let mut engine = SoftProvider.open_engine(config).unwrap();
    engine.connect(server.push_address(), QpConfig::default(), private_data).unwrap();
    let mut events = Vec::new();
    loop {
        engine.poll(&mut events);
        match events.pop() {
            Some(Event::Established { private_data, .. }) => return Ok(private_data),
            Some(Event::ConnectFailed { reason, private_data, .. }) => {
                assert!(private_data.is_empty(), "a stranger learns nothing");
                return Err(reason);
            }
            other => assert_eq!(other, None),
        }
        engine.wait(Some(PATIENCE));
    }
}

#[test]
fn a_connection_without_a_good_token_is_refused() {
    let server = Server::start(in_memory());
    let refused = Err(ConnectFailure::PeerRejected);
    let token = server.token();
    for bad in [&b""[..], &[0; 32], &token.expose()[..31], &[&token.expose()[..], &[0]].concat()] {
        assert_eq!(dial(&server, bad), refused, "{bad:?}");
    }
    assert!(dial(&server, token.expose()).is_ok(), "none of them has spent it");
    assert_eq!(dial(&server, token.expose()), refused, "and it is good once");
}

#[test]
fn a_medium_is_not_registered_under_a_better_class_than_it_has() {
    let server = Server::start(in_memory());
    let region = mapped(&server);
    let hosted = server.region();
    let again = hosted.register(Access::PUSH, DurabilityClass::Storage);
    let (promised, found) = (DurabilityClass::Storage, DurabilityClass::Volatile);
    assert_eq!(server.block_on(again), Err(NotRegistered::Class { promised, found }));
    drop(region);
}

#[test]
fn nobody_maps_on_the_connection_of_another() {
    let server = Server::start(in_memory());
    let range = 0..LEN;
    let mut invited = PlainControl::connect(server.address(), range.clone());
    let mut other = PlainControl::connect(server.address(), range.clone());
    let token = invited.invite().unwrap().listeners.remove(0).private_data;
    let config = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
    let mut engine = SoftProvider.open_engine(config).unwrap();
    engine.connect(server.push_address(), QpConfig::default(), &token).unwrap();
    let (mut events, mut reply) = (Vec::new(), None);
    while reply.is_none() {
        engine.wait(Some(PATIENCE));
        engine.poll(&mut events);
        reply = events.drain(..).find_map(|event| match event {
            Event::Established { private_data, .. } => Some(private_data),
            _ => None,
        });
    }
    let connection = reply.unwrap();
    other.must(MAP, range.clone(), &connection).unwrap_err();
    invited.must(MAP, range, &connection).unwrap();
}

#[test]
fn a_recalled_region_is_committed_and_given_back() {
    let medium = in_memory();
    let server = Server::start(Arc::clone(&medium));
    let mut region = mapped(&server);
    region.write_commit(0, b"first").unwrap();
    let hosted = server.region();
    assert_eq!(hosted.stage(), (Stage::Active, None));
    assert_eq!(hosted.medium().class(), DurabilityClass::Volatile);
    // No commit covers these bytes before the recall.
    region.place(RECORD, b"second").unwrap();
    let recalled = server.recall(PATIENCE);
    assert_eq!(hosted.stage(), (Stage::Recalling, Some(Wanted)));
    while matches!(region.path(), Path::Push { .. }) {
        region.write_commit(0, b"third").unwrap();
    }
    assert!(server.wait(recalled), "given back, not revoked");
    assert_eq!(hosted.stage(), (Stage::Ended, Some(Wanted)));
    let mut bytes = [0; 6];
    medium.read(RECORD, &mut bytes).unwrap();
    assert_eq!(&bytes, b"second");
}

#[test]
fn a_region_that_is_not_given_back_is_revoked_after_the_grace() {
    let server = Server::start(in_memory());
    // Its owner makes no call, so it does not see the recall.
    let _region = mapped(&server);
    let recalled = server.recall(Duration::ZERO);
    assert!(!server.wait(recalled));
    assert_eq!(server.region().stage().0, Stage::Ended);
}

#[test]
fn a_write_after_the_revocation_meets_an_invalid_stag() {
    let medium = in_memory();
    let server = Server::start(Arc::clone(&medium));
    let mut region = mapped(&server);
    let (began, begun) = channel();
    // Writes are in flight all the time.
    let writer = std::thread::spawn(move || {
        let failed = (0_u64..).find_map(|number| {
            let at = number % (LEN / RECORD) * RECORD;
            let outcome = region.write_commit(at, &[1; 64]);
            let _ = began.send(());
            outcome.err()
        });
        (region, failed.unwrap())
    });
    begun.recv().unwrap();
    server.take_away();
    // From here on the bytes are those of the next owner.
    let next = vec![2; usize::try_from(LEN).unwrap()];
    let mut found = vec![0; next.len()];
    medium.place(0, &next).unwrap();
    let (region, failed) = writer.join().unwrap();
    assert!(matches!(failed, RegionError::Broken), "{failed}");
    let reason = FallbackReason::Disconnected(DisconnectReason::PeerTerminated(INVALID_STAG));
    assert_eq!(region.path().reason(), Some(reason));
    assert!(!region.lost().is_empty());
    medium.read(0, &mut found).unwrap();
    assert_eq!(found, next, "a late write changes nothing");
}

#[test]
fn a_revocation_waits_for_the_operation_under_way() {
    let (begun, begins) = channel();
    let (release, gate) = channel();
    let (order, ends) = channel();
    let ended = order.clone();
    let slow = Slow { memory: in_memory(), begun, gate: Mutex::new(gate), ended };
    let server = Server::start(Arc::new(slow));
    let mut region = mapped(&server);
    let writer = std::thread::spawn(move || region.write_commit(0, b"bytes"));
    begins.recv().unwrap();
    let hosted = server.region();
    let revoked = server.revoke(move || order.send(End::Revocation).unwrap());
    while hosted.stage().0 != Stage::Ending {
        std::thread::yield_now();
    }
    // Turns of the engine thread in which a revocation that waits for nothing would end.
    (0..10).for_each(|_| server.turn());
    drop(release);
    server.wait(revoked);
    assert_eq!([ends.recv(), ends.recv()], [Ok(End::Operation), Ok(End::Revocation)]);
    // The answer comes before the end of the connection, or messages make the bytes durable.
    writer.join().unwrap().unwrap();
}

/// What has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Operation,
    Revocation,
}

/// Memory whose flushes begin by a word to the test, and end when the test has dropped its end of a channel.
#[derive(Debug)]
struct Slow {
    memory: Arc<dyn Medium>,
    begun: Sender<()>,
    gate: Mutex<Receiver<()>>,
    ended: Sender<End>,
}

impl Medium for Slow {
    fn class(&self) -> DurabilityClass {
        DurabilityClass::Storage
    }

    fn store_granularity(&self) -> StoreGranularity {
        StoreGranularity::Page
    }

    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn try_place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.memory.try_place(offset, bytes)
    }

    fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.memory.try_read(offset, out)
    }

    fn try_persist(&self, _offset: u64, _len: u64) -> Result<(), MediumError> {
        Err(MediumError::WouldBlock)
    }

    fn try_atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.memory.try_atomic(offset, op)
    }

    fn place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.memory.place(offset, bytes)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.memory.read(offset, out)
    }

    fn persist(&self, _offset: u64, _len: u64) -> Result<(), MediumError> {
        let _ = self.begun.send(());
        // The receive ends with an error when the test drops the other end.
        let _ = self.gate.lock().unwrap().recv();
        let _ = self.ended.send(End::Operation);
        Ok(())
    }

    fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.memory.atomic(offset, op)
    }

    fn prepare(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.memory.prepare(offset, len)
    }
}

#[test]
fn a_host_that_stops_ends_the_connections_of_its_peers() {
    let server = Server::start(in_memory());
    let region = mapped(&server);
    // The end of the server asserts that no connection is left, and the peer does not end its own.
    drop(server);
    drop(region);
}
