//! File systems mounted below a share: each file is served as what it lies on allows.
//!
//! Where there can be no mount namespace (neither root nor user namespaces) they say so and show nothing.

use std::path::Path;

use smb::info::{FileInfoClass, FsInfoClass, InfoType};
use smb::{Command, Empty, FileId, FlushRequest, NtStatus};
use tempfile::TempDir;
use tokio::runtime;

use crate::support::mounts::{has_own_mounts, mount};
use crate::support::{self, Fixture, Wire};

/// A share of `top` with something mounted in it as `below`.
struct Nested {
    fixture: Fixture,
    _dirs: [TempDir; 2],
}

impl Nested {
    fn disk_below_memory() -> Self {
        Self::new("/dev/shm", |disk, at| mount(&["--bind", disk.to_str().unwrap()], at))
    }

    fn memory_below_disk() -> Self {
        Self::new("/var/tmp", |_, at| mount(&["-t", "tmpfs", "none"], at))
    }

    fn new(top: &str, below: impl FnOnce(&Path, &Path)) -> Self {
        let (top, disk) =
            (tempfile::tempdir_in(top).unwrap(), tempfile::tempdir_in("/var/tmp").unwrap());
        below(disk.path(), &top.path().join("below"));
        let mut threads = runtime::Builder::new_multi_thread();
        let threads = threads.worker_threads(2).max_blocking_threads(1).enable_all();
        let path = top.path().to_owned();
        let fixture =
            Fixture::start_on(threads.build().unwrap(), |config| config.shares[0].path = path);
        Self { fixture, _dirs: [top, disk] }
    }

    fn synced(&self) -> u64 {
        self.fixture.running.status().directories_synced
    }
}

fn flush(wire: &mut Wire, file_id: FileId) -> NtStatus {
    wire.ask(Command::FLUSH, |out| FlushRequest { file_id }.emit(out)).0.status
}

#[test]
fn a_flush_means_what_the_file_system_of_the_file_can_do() {
    if !has_own_mounts("mounts::a_flush_means_what_the_file_system_of_the_file_can_do") {
        return;
    }
    for (nested, on_disk, in_memory) in [
        (Nested::disk_below_memory(), "below\\f", "f"),
        (Nested::memory_below_disk(), "f", "below\\f"),
    ] {
        let mut wire = nested.fixture.client(1);
        for (name, syncs) in [(on_disk, true), (in_memory, false)] {
            let file = wire.open(name, |_| {}).id;
            assert_eq!(wire.write(file, b"bytes"), NtStatus::SUCCESS);
            let before = nested.synced();
            assert_eq!(flush(&mut wire, file), NtStatus::SUCCESS);
            assert_eq!(nested.synced() > before, syncs, "{name}");
        }
    }
}

#[test]
fn nothing_is_waited_for_on_a_thread_that_others_need() {
    if !has_own_mounts("mounts::nothing_is_waited_for_on_a_thread_that_others_need") {
        return;
    }
    for (nested, on_disk, in_memory) in [
        (Nested::disk_below_memory(), "below\\f", "f"),
        (Nested::memory_below_disk(), "f", "below\\f"),
    ] {
        let mut wire = nested.fixture.client(1);
        let (disk, memory) = (wire.open(on_disk, |_| {}).id, wire.open(in_memory, |_| {}).id);
        let mut other = nested.fixture.client(2);
        let taken = nested.fixture.take_thread();
        assert_eq!(wire.write(memory, b"at once"), NtStatus::SUCCESS);
        let request = support::write(disk, 0, b"waits");
        let written = wire.start(Command::WRITE, |out| request.emit(out));
        // Over the mount in any spelling.
        let opens = ["below\\new", "BELOW\\f"].map(|name| other.start_open(name, |_| {}));
        // What is answered at once is answered in order.
        assert_eq!(wire.read(memory, 7), (NtStatus::SUCCESS, b"at once".to_vec()));
        other.ask(Command::ECHO, |out| Empty.emit(out));
        let early = wire.unsolicited.iter().chain(&other.unsolicited);
        let early: Vec<_> =
            early.filter(|(header, _)| header.status != NtStatus::PENDING).collect();
        assert!(early.is_empty(), "answered without the thread that may wait: {early:?}");
        drop(taken);
        assert_eq!(wire.answer_to(written).0.status, NtStatus::SUCCESS);
        // The two answers may come in either order.
        assert_eq!(other.finish_open(opens[0]).status, NtStatus::SUCCESS);
    }
}

#[test]
fn numbers_and_room_of_a_file_are_those_of_its_file_system() {
    if !has_own_mounts("mounts::numbers_and_room_of_a_file_are_those_of_its_file_system") {
        return;
    }
    let nested = Nested::disk_below_memory();
    let mut wire = nested.fixture.client(1);
    let files = ["f", "below\\f"].map(|name| wire.open(name, |_| {}).id);
    let [top, below] = files.map(|file| {
        let (status, id) = wire.query(file, FileInfoClass::INTERNAL);
        assert_eq!(status, NtStatus::SUCCESS);
        let class = FsInfoClass::FULL_SIZE.0;
        let (status, room) = wire.query_of(file, InfoType::FILE_SYSTEM, class);
        assert_eq!(status, NtStatus::SUCCESS);
        (u64::from_le_bytes(*id.first_chunk().unwrap()), room)
    });
    assert_ne!(top.1, below.1, "room");
    // No inode of the top has a number of this kind, so no two files have one.
    assert_eq!((top.0 >> 63, below.0 >> 63), (0, 1));
}
