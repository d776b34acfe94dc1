//! READ and WRITE over SMB Direct allocate nothing in the server once its buffers are warm,
//! whichever way the bytes travel. A running server and a client over real sockets, one process;
//! the client's thread is not counted, every other one is, so this is a program of its own.
//!
//! # Safety rules of this module
//!
//! The allocator counts and passes every request on to the system's, unchanged.
#![allow(unsafe_code)]
#![expect(clippy::tests_outside_test_module, reason = "the whole file is a test")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "clients/smb_direct/client.rs"]
mod client;
#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "clients/smb_direct/peer.rs"]
mod peer;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use server::{Server, ServerConfig, ShareConfig, SigningPolicy, Users};
use smb::{Channel, Command, FileId};

use client::{Client, From, read, written};
use peer::list;

/// Counts allocations of all threads that have not said that they do not count.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    // Constant and without a destructor: looking at it allocates nothing.
    static COUNTS: Cell<bool> = const { Cell::new(true) };
}

fn count() {
    if COUNTS.get() {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every method hands its arguments to the system's allocator and returns its answer.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, which is the same.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_len: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`, which is the same.
        unsafe { System.realloc(memory, layout, new_len) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of the server in the best of some passes of `rounds` rounds each, after one to warm
/// up.
///
/// What an operation allocates shows in every pass. What happens once does not count: a queue that
/// grows because there were never so many at once before, a thread that the runtime starts.
fn allocations(rounds: usize, mut round: impl FnMut()) -> u64 {
    let mut pass = || {
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        (0..rounds).for_each(|_| round());
        ALLOCATIONS.load(Ordering::SeqCst) - before
    };
    pass();
    let mut best = pass();
    for _ in 1..PASSES {
        if best == 0 {
            break;
        }
        best = best.min(pass());
    }
    best
}

/// Where the bytes of one request lie in the client's memory.
fn place(index: usize) -> u64 {
    u64::try_from(index * PAGE).unwrap()
}

/// Asks for `depth` pages each way, all under way at once.
fn by_rdma(client: &mut Client, file: FileId, (depth, channel): (usize, Channel)) {
    let page = u32::try_from(PAGE).unwrap();
    let mut exposed = || -> Vec<_> {
        (0..depth).map(|index| list(&[client.peer.expose(place(index), page)])).collect()
    };
    let (sources, targets) = (exposed(), exposed());
    for (index, descriptors) in sources.iter().enumerate() {
        let from = From::Memory { channel, len: page, descriptors };
        let request = Client::write_request(file, place(index), from);
        client.send(Command::WRITE, |out| request.emit(out));
    }
    (0..depth).for_each(|_| assert_eq!(written(&client.next()), page));
    for (index, descriptors) in targets.iter().enumerate() {
        let request = Client::read_request(file, place(index), page, (channel, descriptors));
        client.send(Command::READ, |out| request.emit(out));
    }
    (0..depth).for_each(|_| assert_eq!(read(&client.next()).1, page));
}

/// One page each way in the messages themselves.
fn by_message(client: &mut Client, file: FileId) {
    let page = [7; PAGE];
    assert_eq!(written(&client.write(file, 0, From::Message(&page))), PAGE_LEN);
    let answer = client.read(file, 0, PAGE_LEN, (Channel::NONE, &[]));
    assert_eq!(read(&answer).0.len(), PAGE);
}

// One test, so that no other thread of the harness allocates meanwhile.
#[test]
fn read_and_write_over_smb_direct_allocate_nothing_in_the_long_run() {
    COUNTS.set(false);
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
    config.rdma_listen = Some("127.0.0.1:0".parse().unwrap());
    config.shares.push(ShareConfig::new("data", dir.path()));
    config.users = Users::with_passwords([("user", "secret")]);
    config.signing = SigningPolicy::WhenAsked;
    let running = runtime.block_on(Server::start(config)).unwrap();
    let mut client = Client::log_on(running.rdma_address().unwrap());
    let file = client.open("pages.bin");
    assert!(ALLOCATIONS.load(Ordering::SeqCst) > 0, "logging on is counted");

    let counted = allocations(500, || by_message(&mut client, file));
    assert_eq!(counted, 0, "in messages");
    for channel in [Channel::RDMA_V1, Channel::RDMA_V1_INVALIDATE] {
        let counted = allocations(300, || by_rdma(&mut client, file, (1, channel)));
        assert_eq!(counted, 0, "one at a time by RDMA, {channel:?}");
        let counted = allocations(100, || by_rdma(&mut client, file, (16, channel)));
        assert!(counted <= 2, "{counted} allocations in 3,200 operations, {channel:?}");
    }
    runtime.block_on(running.shutdown());
}

/// So many passes may be spoilt by what happens once.
const PASSES: usize = 20;
const PAGE: usize = 4096;
const PAGE_LEN: u32 = 4096;
