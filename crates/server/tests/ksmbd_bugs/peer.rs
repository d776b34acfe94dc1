//! What the tests of all classes need: peers that may be cut off at any moment, and a look at the
//! server afterwards.

use std::io::{ErrorKind, Read, Write};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use server::ServerConfig;
use smb::create::{Lease, LeaseKey, LeaseState, LeaseVersion};
use smb::{CloseRequest, Command, FileId, LockElement, LockFlags, LockRequest, NtStatus};

use crate::support::compound::headers;
use crate::support::{Fixture, Wire, write};

pub(crate) const USER: (&str, &str) = ("user", "secret");
pub(crate) const ALL: LeaseState =
    LeaseState::READ.union(LeaseState::WRITE).union(LeaseState::HANDLE);

/// Threads of the server that panicked, in any test of this process.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A server whose panics are noticed.
pub(crate) fn start() -> Fixture {
    start_with(|_| {})
}

pub(crate) fn start_with(change: impl FnOnce(&mut ServerConfig)) -> Fixture {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let earlier = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let thread = std::thread::current();
            if thread.name().is_some_and(|name| name.contains("tokio")) {
                PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(info.to_string());
            }
            earlier(info);
        }));
    });
    Fixture::start_with(change)
}

/// The server serves an honest client and has had no panic.
pub(crate) fn serves(fixture: &Fixture) {
    let mut honest = fixture.client(200);
    let opened = honest.open("honest", |_| {});
    assert_eq!(opened.status, NtStatus::SUCCESS);
    assert_eq!(honest.ask(Command::WRITE, |out| write(opened.id, 0, b"x").emit(out)).0.status, {
        NtStatus::SUCCESS
    });
    let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(panics.is_empty(), "the server panicked: {panics:?}");
}

/// Nothing is left of clients that have gone, and the server serves the next one.
pub(crate) fn left_nothing(fixture: &Fixture) {
    serves(fixture);
    until(fixture, |status| {
        [status.connections, status.sessions, status.opens, status.orphans, status.files]
            .iter()
            .chain(&[status.leases, status.regions, status.unauthenticated])
            .all(|&left| left == 0)
    });
}

/// Waits until the server's numbers are as they should be.
pub(crate) fn until(fixture: &Fixture, reached: impl Fn(&server::Status) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = fixture.running.status();
        if reached(&status) {
            return;
        }
        assert!(Instant::now() < deadline, "left over: {status:?}");
        std::thread::yield_now();
    }
}

/// A second connection of the session of `first`, which is client 1's.
pub(crate) fn joined(fixture: &Fixture, first: &Wire) -> Wire {
    let mut second = fixture.dial();
    second.negotiate(1);
    assert_eq!(second.join(first, USER), NtStatus::SUCCESS);
    second
}

/// Requests that leave together, in one write, without waiting for an answer.
#[derive(Default)]
pub(crate) struct Burst {
    bytes: Vec<u8>,
    ids: Vec<u64>,
}

impl Burst {
    pub(crate) fn add(
        &mut self,
        wire: &mut Wire,
        command: Command,
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        self.ids.push(wire.next_id);
        let mut pdu = wire.pdu(command, body);
        wire.sign(&mut pdu);
        self.bytes.extend_from_slice(&u32::try_from(pdu.len()).unwrap().to_be_bytes());
        self.bytes.extend_from_slice(&pdu);
    }

    /// Sends everything. What each request came to, in the order asked: `None` where the
    /// connection ended first. A server that neither answers nor hangs up fails the test.
    pub(crate) fn run(self, wire: &mut Wire) -> Vec<Option<NtStatus>> {
        self.send(wire);
        self.collect(wire)
    }

    pub(crate) fn send(&self, wire: &mut Wire) {
        // The connection may be gone by now, which the answers will show.
        let _ = wire.stream.write_all(&self.bytes);
    }

    pub(crate) fn collect(self, wire: &mut Wire) -> Vec<Option<NtStatus>> {
        let mut outcomes = vec![None; self.ids.len()];
        while outcomes.contains(&None) {
            let Some(pdu) = receive(wire) else { break };
            for header in headers(&pdu) {
                let at = self.ids.iter().position(|id| *id == header.message_id.0);
                if let Some(at) = at.filter(|_| header.status != NtStatus::PENDING) {
                    outcomes[at] = Some(header.status);
                }
            }
        }
        outcomes
    }
}

/// The next frame, or `None` if the server has hung up.
pub(crate) fn receive(wire: &mut Wire) -> Option<Vec<u8>> {
    let mut prefix = [0; 4];
    fill(wire, &mut prefix)?;
    let len = usize::try_from(u32::from_be_bytes(prefix)).unwrap();
    assert!(len <= ANSWER_MAX, "an answer of {len} bytes");
    let mut frame = vec![0; len];
    fill(wire, &mut frame)?;
    Some(frame)
}

fn fill(wire: &mut Wire, bytes: &mut [u8]) -> Option<()> {
    match wire.stream.read_exact(bytes) {
        Ok(()) => Some(()),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            panic!("the server neither answers nor hangs up")
        }
        Err(_) => None,
    }
}

pub(crate) fn lock(file_id: FileId, offset: u64, flags: LockFlags) -> LockRequest {
    let locks = vec![LockElement { offset, length: 1, flags }];
    LockRequest { lock_sequence: 0, file_id, locks }
}

pub(crate) fn close(file_id: FileId) -> CloseRequest {
    CloseRequest { query_attributes: false, file_id }
}

pub(crate) fn lease(key: u8) -> Lease {
    Lease {
        key: LeaseKey([key; 16]),
        state: ALL,
        break_in_progress: false,
        version: LeaseVersion::V2 { parent: None, epoch: 0 },
    }
}

/// How long the server may take to let go.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest answer there is: 8 MiB of a READ.
const ANSWER_MAX: usize = (8 << 20) + 4096;
