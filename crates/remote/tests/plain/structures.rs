//! One log over the memory of this machine and over that of another, whose control side is not SMB.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use basics::{Clock, Environment, ManualClock};
use pmem::crash::{AckLog, Budget, CrashState, Recorder, Violation, check};
use pmem::{LocalMemory, Medium, Memory, OpenOptions};
use rdma::PollPolicy;
use remote::{FallbackReason, Path, RegionError, RegionSettings, RemoteRegion, Ways};

use crate::control::{Plain, PlainControl};
use crate::log::{self, Care, LEN, RECORD, RECORDS, append, recover};
use crate::server::Server;

/// A region whose clock stands still: one that has left push mode does not return to it, however long a busy machine takes.
pub(crate) fn region(server: &Server) -> RemoteRegion<Plain> {
    let clock = Clock::given(Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH)));
    let settings = RegionSettings { polling: PollPolicy::Block, ..RegionSettings::default() };
    let control = PlainControl::connect(server.address(), 0..LEN);
    RemoteRegion::open(
        Box::new(control),
        Ways::of(&settings),
        settings,
        &Environment { clock, ..Environment::host() },
        0..LEN,
    )
}

/// A region that is mapped.
pub(crate) fn mapped(server: &Server) -> RemoteRegion<Plain> {
    let region = region(server);
    assert!(matches!(region.path(), Path::Push { .. }), "{}", region.path());
    region
}

pub(crate) fn in_memory() -> Arc<dyn Medium> {
    let medium = pmem::anonymous_with(LEN, OpenOptions { emulate_persistence: true }).unwrap();
    medium.prepare(0, LEN).unwrap();
    medium
}

/// Fills a log, and looks at what every crash in between would leave.
fn crash_everywhere<S: Memory<Error: std::fmt::Debug>>(
    recorder: &Recorder,
    mut memory: S,
    care: Care,
) -> Result<u64, Violation<String>> {
    let mut acks = AckLog::new();
    for number in 1..=RECORDS {
        append(&mut memory, number, care).unwrap();
        acks.note(recorder.position(), number);
    }
    assert_eq!(recover(&mut memory).unwrap(), RECORDS);
    drop(memory);
    let budget = Budget { states_per_point: 64, seed: 5 };
    check(&recorder.log(), &acks, budget, |state: CrashState<'_, u64>| {
        log::check(state.image, state.acknowledged.last().map_or(0, |(_, number)| *number))
    })
}

fn recorders() -> [Arc<Recorder>; 2] {
    let len = usize::try_from(LEN).unwrap();
    [Recorder::pmem(len), Recorder::storage(len)].map(Arc::new)
}

fn here(recorder: &Arc<Recorder>, care: Care) -> Result<u64, Violation<String>> {
    let memory = LocalMemory::new(Arc::clone(recorder) as _, 0..LEN).unwrap();
    crash_everywhere(recorder, memory, care)
}

fn there(recorder: &Arc<Recorder>, care: Care) -> Result<u64, Violation<String>> {
    let server = Server::start(Arc::clone(recorder) as _);
    let region = mapped(&server);
    assert!(region.orders_atomic_writes(), "an RDMA Atomic Write, in one piece");
    let outcome = crash_everywhere(recorder, region, care);
    assert_eq!(server.writes(), 0, "no byte took the way of messages");
    outcome
}

#[test]
fn no_crash_loses_a_record_of_a_log_in_local_memory() {
    for recorder in recorders() {
        assert!(here(&recorder, Care::Careful).unwrap() > RECORDS);
    }
}

#[test]
fn no_crash_loses_a_record_of_the_same_log_in_remote_memory() {
    for recorder in recorders() {
        assert!(there(&recorder, Care::Careful).unwrap() > RECORDS);
    }
}

#[test]
fn a_log_that_names_records_before_their_commit_is_detected_in_both_memories() {
    for recorder in recorders() {
        here(&recorder, Care::Careless).unwrap_err();
    }
    for recorder in recorders() {
        there(&recorder, Care::Careless).unwrap_err();
    }
}

#[test]
fn a_recalled_region_goes_on_by_messages_that_are_not_smb() {
    let medium = in_memory();
    let server = Server::start(Arc::clone(&medium));
    let mut region = mapped(&server);
    append(&mut region, 1, Care::Careful).unwrap();
    let recalled = server.recall(Duration::from_secs(60));
    // The recall comes by another connection: until it is there, records take the push connection.
    let mut number = 1;
    while matches!(region.path(), Path::Push { .. }) {
        number = number % (RECORDS - 1) + 1;
        append(&mut region, number, Care::Careful).unwrap();
    }
    assert_eq!(region.path().reason(), Some(FallbackReason::Recalled));
    append(&mut region, number + 1, Care::Careful).unwrap();
    assert!(server.wait(recalled), "given back, not revoked");
    let mut local = LocalMemory::new(medium, 0..LEN).unwrap();
    assert_eq!(recover(&mut local).unwrap(), number + 1);
}

#[test]
fn a_lost_connection_is_replayed_by_messages_that_are_not_smb() {
    let medium = in_memory();
    let server = Server::start(Arc::clone(&medium));
    let mut region = mapped(&server);
    append(&mut region, 1, Care::Careful).unwrap();
    server.cut();
    append(&mut region, 2, Care::Careful).unwrap();
    let path = region.path().to_string();
    assert!(path.starts_with("plain reads, writes and flushes: the push connection"), "{path}");
    assert!(server.writes() > 0);
    let mut local = LocalMemory::new(medium, 0..LEN).unwrap();
    assert_eq!(recover(&mut local).unwrap(), 2);
}

#[test]
fn bytes_without_a_commit_are_lost_by_name_when_the_region_was_taken_away() {
    let medium = in_memory();
    let server = Server::start(Arc::clone(&medium));
    let mut region = mapped(&server);
    append(&mut region, 1, Care::Careful).unwrap();
    region.place(2 * RECORD, &[9; 64]).unwrap();
    // The answer shows that the bytes are there.
    Memory::read(&mut region, 0, &mut [0]).unwrap();
    server.take_away();
    medium.place(2 * RECORD, &[7; 64]).unwrap();
    let failed = Memory::commit(&mut region, 2 * RECORD, RECORD);
    assert!(matches!(failed, Err(RegionError::Broken)), "{failed:?}");
    assert_eq!(region.lost()[0], 2 * RECORD..3 * RECORD);
    assert!(matches!(append(&mut region, 3, Care::Careful), Err(RegionError::Broken)));
    let mut bytes = [0; 64];
    medium.read(2 * RECORD, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 64], "those of the next writer");
    let mut local = LocalMemory::new(medium, 0..LEN).unwrap();
    assert_eq!(recover(&mut local).unwrap(), 1);
}
