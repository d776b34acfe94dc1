//! What clients leave that lose their connections: after any number of them the server holds no more
//! of its heap than before. Server and clients in one process, over real sockets; its allocator counts all of them, so
//! this is a program of its own.
//!
//! # Safety rules of this module
//!
//! The allocator counts and passes every request on to the system's, unchanged.
#![allow(unsafe_code)]
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use smb::create::{
    CreateOptions, CreateRequestContext, DurableReconnectV2, DurableRequestV2, Lease, LeaseKey,
    LeaseState, LeaseVersion, OplockLevel,
};
use smb::{
    CloseRequest, Command, Empty, FileId, Guid, LockElement, LockFlags, LockRequest, NtStatus,
};
use support::{Fixture, Wire, write};

/// Counts the bytes that are in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every method hands its arguments to the system's allocator and returns its answer.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`, which is the same.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const GUID: Guid = Guid([5; 16]);

fn lease(key: u8) -> CreateRequestContext<'static> {
    CreateRequestContext::Lease(Lease {
        key: LeaseKey([key; 16]),
        state: LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE,
        break_in_progress: false,
        version: LeaseVersion::V2 { parent: None, epoch: 0 },
    })
}

/// Opens of each kind, locked, written, with requests under way.
fn busy(wire: &mut Wire, persistent: bool) -> FileId {
    let durable = wire.open("durable", |request| {
        request.oplock_level = OplockLevel::BATCH;
        let asked = DurableRequestV2 { timeout_ms: 0, persistent, create_guid: GUID };
        request.contexts.push(CreateRequestContext::DurableV2(asked));
    });
    let leased = wire.open("leased", |request| {
        request.oplock_level = OplockLevel::LEASE;
        request.contexts.push(lease(7));
    });
    wire.open("directory", |request| request.options |= CreateOptions::DIRECTORY_FILE);
    wire.open("gone", |request| request.options |= CreateOptions::DELETE_ON_CLOSE);
    for file_id in [durable.id, leased.id] {
        let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
        let locks = vec![LockElement { offset: 100, length: 10, flags }];
        let lock = LockRequest { lock_sequence: 0, file_id, locks };
        assert_eq!(wire.ask(Command::LOCK, |out| lock.emit(out)).0.status, NtStatus::SUCCESS);
        wire.start(Command::WRITE, |out| write(file_id, 0, b"text").emit(out));
    }
    wire.start_open("leased", |request| request.oplock_level = OplockLevel::BATCH);
    durable.id
}

/// Clients that lose their connection, come back for what they had, and lose it again.
fn lose(fixture: &Fixture, clients: usize) {
    for client in 0..clients {
        let mut lost = fixture.client(1);
        let persistent = client % 4 < 2;
        let durable = busy(&mut lost, persistent);
        // Half of them the server takes to be there until they are back.
        if client % 2 == 0 {
            lost.stream.shutdown(Shutdown::Both).unwrap();
        }
        let mut again = fixture.again(1, &lost);
        let back = DurableReconnectV2 { file_id: durable, create_guid: GUID, persistent };
        let back = again.open("durable", |request| {
            request.oplock_level = OplockLevel::BATCH;
            request.contexts.push(CreateRequestContext::DurableReconnectV2(back));
        });
        assert_eq!(back.status, NtStatus::SUCCESS);
        again.start_open("gone", |request| request.options |= CreateOptions::DELETE_ON_CLOSE);
        if persistent {
            let close = CloseRequest { query_attributes: false, file_id: back.id };
            again.ask(Command::CLOSE, |out| close.emit(out));
        }
        // Nobody comes back for the rest: who asks for the file ends it.
        drop((lost, again));
        let mut other = fixture.client(2);
        for name in ["durable", "leased"] {
            assert_eq!(other.open(name, |_| {}).status, NtStatus::SUCCESS);
        }
        // The next one is alone with the files.
        other.ask(Command::LOGOFF, |out| Empty.emit(out));
    }
}

/// Has the table of files swept, which keeps a number of those that nobody has open any more.
fn look_at_many(fixture: &Fixture) {
    let mut wire = fixture.client(3);
    for file in 0..FILES {
        let id = wire.open(&format!("f{file}"), |_| {}).id;
        let close = CloseRequest { query_attributes: false, file_id: id };
        wire.ask(Command::CLOSE, |out| close.emit(out));
    }
}

/// Waits until nothing is left that could be seen, and says what the heap holds.
fn settled(fixture: &Fixture) -> usize {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = fixture.running.status();
        let counts = [
            status.connections,
            status.sessions,
            status.opens,
            status.orphans,
            status.files,
            status.leases,
        ];
        if counts.iter().all(|&count| count == 0) {
            return IN_USE.load(Ordering::Relaxed);
        }
        assert!(Instant::now() < deadline, "{status:?}");
        std::thread::yield_now();
    }
}

/// The least the heap holds after some rounds: tables of what has ended are swept now and then.
fn least(fixture: &Fixture) -> usize {
    (0..ROUNDS)
        .map(|_| {
            lose(fixture, CLIENTS);
            look_at_many(fixture);
            settled(fixture)
        })
        .min()
        .unwrap()
}

// One test, so that no other thread of the harness allocates meanwhile. What leaks makes each value
// larger than the one some before it; what does not comes to rest, give or take what happens to be
// in a table: ten bytes a session are told from that.
#[test]
fn clients_that_lose_their_connections_leave_no_memory() {
    // As many threads from the beginning as at the end: each has memory of its own.
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    threads.worker_threads(2).max_blocking_threads(THREADS).thread_keep_alive(Duration::MAX);
    let log = tempfile::tempdir().unwrap();
    let opens = log.path().join("opens");
    let fixture = Fixture::start_on(threads.enable_all().build().unwrap(), |config| {
        config.shares[0].persistent_opens = Some(opens);
    });
    let mut held = Vec::new();
    for _ in 0..VALUES_MAX {
        held.push(least(&fixture));
        let earlier = held.len().checked_sub(1 + APART).map(|at| held[at]);
        if earlier.is_some_and(|earlier| held[held.len() - 1] <= earlier + CHANCE) {
            return;
        }
    }
    panic!("the heap grows: {held:?}");
}

const THREADS: usize = 4;
const ROUNDS: usize = 10;
const CLIENTS: usize = 10;
const FILES: usize = 70;
/// Values that are compared lie so far apart: 1,200 sessions.
const APART: usize = 4;
const VALUES_MAX: usize = 24;
/// Bytes by which values differ that should be equal: 2,000 either way were seen.
const CHANCE: usize = 2_048;
/// What takes longer does not happen any more.
const PATIENCE: Duration = Duration::from_secs(60);
