//! Changes of a file that wait for a thread: what others may cache and lock meanwhile.

use smb::create::{CreateDisposition, OplockLevel};
use smb::fsctl::{CopyChunk, CopyChunkRequest, FileLevelTrim, FileRange, ResumeKey, ZeroData};
use smb::info::FileInfoClass;
use smb::{
    Command, ControlCode, FileId, LockElement, LockFlags, LockRequest, NtStatus, WriteFlags,
};

use crate::support::{self, Fixture, Taken, Wire};

/// The bytes at the beginning of the file, before a change.
const OLD: &[u8] = b"as it was";

/// Starts a change of the first bytes of a file, with another file to copy from, and returns its message.
type Change = fn(&mut Wire, FileId, ResumeKey) -> u64;

/// Every request that changes bytes of an open file.
const CHANGES: [(&str, Change); 8] = [
    ("WRITE", |wire, file, _| {
        wire.start(Command::WRITE, |out| support::write(file, 0, b"changed").emit(out))
    }),
    ("WRITE that writes through", |wire, file, _| {
        let mut request = support::write(file, 0, b"changed");
        request.flags = WriteFlags::WRITE_THROUGH;
        wire.start(Command::WRITE, |out| request.emit(out))
    }),
    ("end of file", |wire, file, _| {
        let request = support::set(file, FileInfoClass::END_OF_FILE, &[0; 8]);
        wire.start(Command::SET_INFO, |out| request.emit(out))
    }),
    ("allocation", |wire, file, _| {
        let request = support::set(file, FileInfoClass::ALLOCATION, &[0; 8]);
        wire.start(Command::SET_INFO, |out| request.emit(out))
    }),
    ("zeros", |wire, file, _| {
        let mut input = Vec::new();
        ZeroData { offset: 0, end: 4 }.emit(&mut input);
        start_control(wire, file, ControlCode::SET_ZERO_DATA, &input)
    }),
    ("trim", |wire, file, _| {
        let mut input = Vec::new();
        let ranges = vec![FileRange { offset: 0, length: 4096 }];
        FileLevelTrim { key: 0, ranges }.emit(&mut input);
        start_control(wire, file, ControlCode::FILE_LEVEL_TRIM, &input)
    }),
    ("long trim", |wire, file, _| {
        let mut input = Vec::new();
        let ranges = vec![FileRange { offset: 0, length: 4096 }; 100];
        FileLevelTrim { key: 0, ranges }.emit(&mut input);
        start_control(wire, file, ControlCode::FILE_LEVEL_TRIM, &input)
    }),
    ("copy", |wire, file, source| {
        let mut input = Vec::new();
        let chunks = vec![CopyChunk { source_offset: 0, target_offset: 0, length: 4 }];
        CopyChunkRequest { source, chunks }.emit(&mut input);
        start_control(wire, file, ControlCode::SRV_COPYCHUNK, &input)
    }),
];

fn start_control(wire: &mut Wire, file: FileId, code: ControlCode, input: &[u8]) -> u64 {
    let request = support::control(file, code, input);
    wire.start(Command::IOCTL, |out| request.emit(out))
}

/// A server on a disk, one client that changes a file, and another.
struct Scene {
    fixture: Fixture,
    writer: Wire,
    other: Wire,
    file: FileId,
    source: ResumeKey,
}

impl Scene {
    fn new() -> Self {
        let fixture = Fixture::start_with_one_thread();
        std::fs::write(fixture.dir.path().join("source"), b"changed").unwrap();
        let (mut writer, other) = (fixture.client(1), fixture.client(2));
        let source = writer.open("source", |_| {}).id;
        let (_, key) = writer.control(source, ControlCode::SRV_REQUEST_RESUME_KEY, &[]);
        let file = writer.open("f", |_| {}).id;
        let source = ResumeKey::parse(&key).unwrap();
        Self { fixture, writer, other, file, source }
    }

    /// Takes the thread and starts a change, which waits for it.
    fn begin(&mut self, change: Change) -> (Taken, u64) {
        assert_eq!(self.writer.write(self.file, OLD), NtStatus::SUCCESS);
        let taken = self.fixture.take_thread();
        let asked = change(&mut self.writer, self.file, self.source);
        // Answered behind it: the server has begun with both.
        let (status, _) = self.writer.query(self.file, FileInfoClass::INTERNAL);
        assert_eq!(status, NtStatus::SUCCESS);
        let early =
            self.writer.unsolicited.iter().any(|(header, _)| {
                header.message_id.0 == asked && header.status != NtStatus::PENDING
            });
        assert!(!early, "the change has to wait for the thread");
        (taken, asked)
    }

    fn opened_by_other(&mut self, level: OplockLevel) -> (FileId, OplockLevel) {
        let opened = self.other.open("f", |request| {
            request.disposition = CreateDisposition::OPEN;
            request.oplock_level = level;
        });
        assert_eq!(opened.status, NtStatus::SUCCESS);
        (opened.id, opened.response().oplock_level)
    }
}

#[test]
fn nobody_may_cache_a_file_while_a_change_of_it_waits() {
    for (name, change) in CHANGES {
        let mut scene = Scene::new();
        let (taken, asked) = scene.begin(change);
        let (_early, granted) = scene.opened_by_other(OplockLevel::II);
        drop(taken);
        assert_eq!(scene.writer.answer_to(asked).0.status, NtStatus::SUCCESS, "{name}");
        assert_eq!(granted, OplockLevel::NONE, "{name}: of bytes that were about to change");
        let (_late, granted) = scene.opened_by_other(OplockLevel::II);
        assert_eq!(granted, OplockLevel::II, "{name}: it is done");
    }
}

#[test]
fn a_lock_is_granted_behind_the_changes_that_were_admitted_before_it() {
    for (name, change) in CHANGES {
        for flags in [LockFlags::EXCLUSIVE, LockFlags::SHARED] {
            let mut scene = Scene::new();
            let (file_id, _) = scene.opened_by_other(OplockLevel::NONE);
            let (taken, asked) = scene.begin(change);
            let flags = flags | LockFlags::FAIL_IMMEDIATELY;
            let locks = vec![LockElement { offset: 0, length: 4, flags }];
            let lock = LockRequest { lock_sequence: 0, file_id, locks };
            let locked = scene.other.start(Command::LOCK, |out| lock.emit(out));
            let (status, before) = scene.other.read(file_id, 4);
            let early = scene.other.unsolicited.iter().any(|(one, _)| one.message_id.0 == locked);
            drop(taken);
            // A copy asks for each chunk when it comes to that: it goes behind the lock.
            let is_behind = name == "copy";
            let done = if is_behind { NtStatus::FILE_LOCK_CONFLICT } else { NtStatus::SUCCESS };
            assert_eq!(scene.writer.answer_to(asked).0.status, done, "{name}");
            assert_eq!((status, &before[..]), (NtStatus::SUCCESS, &OLD[..4]), "{name}");
            assert!(!early, "{name}: bytes were locked that a change was about to replace");
            assert_eq!(scene.other.answer_to(locked).0.status, NtStatus::SUCCESS, "{name}");
        }
    }
}

#[test]
fn a_shared_lock_waits_for_the_writes_of_its_own_handle() {
    let mut scene = Scene::new();
    let (taken, asked) = scene.begin(CHANGES[0].1);
    let lock = |flags| LockRequest {
        lock_sequence: 0,
        file_id: scene.file,
        locks: vec![LockElement { offset: 0, length: 4, flags }],
    };
    let (exclusive, shared) = (lock(LockFlags::EXCLUSIVE), lock(LockFlags::SHARED));
    // It keeps its own handle from nothing.
    let (header, _) = scene.writer.ask(Command::LOCK, |out| exclusive.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
    let locked = scene.writer.start(Command::LOCK, |out| shared.emit(out));
    let (status, _) = scene.writer.query(scene.file, FileInfoClass::INTERNAL);
    assert_eq!(status, NtStatus::SUCCESS);
    let early = scene.writer.unsolicited.iter().any(|(one, _)| one.message_id.0 == locked);
    drop(taken);
    assert!(!early, "the bytes under a shared lock were about to change");
    // In whatever order.
    let mut answered = [scene.writer.receive().0, scene.writer.receive().0];
    answered.sort_by_key(|header| header.message_id.0);
    assert_eq!(answered.map(|header| header.message_id.0), [asked, locked]);
    assert_eq!(answered.map(|header| header.status), [NtStatus::SUCCESS; 2]);
}
