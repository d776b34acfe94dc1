//! What is much work is not done on the threads that all connections share, though nothing in it waits: where
//! memory lies behind everything. Whether it was is told by an ECHO that follows: it is answered first, for
//! no thread is left for what may wait.

use std::fs::{self, File};
use std::path::PathBuf;

use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, CreateRequestContext,
};
use smb::info::{FileInfoClass, FullEa, RenameFlags};
use smb::{Channel, Command, Empty, FileId, NtStatus, WriteFlags, WriteRequest};
use tempfile::TempDir;

use crate::support::{Fixture, Wire, new_name, query, set};

/// A server of a directory in memory, with one thread for what may wait.
struct Memory {
    fixture: Fixture,
    dir: TempDir,
}

impl Memory {
    fn serve() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().to_owned();
        let fixture = Fixture::start_with_one_thread_and(|config| config.shares[0].path = path);
        Self { fixture, dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file that takes some pages.
    fn fill(&self, name: &str, len: usize) {
        fs::write(self.path(name), vec![1; len]).unwrap();
    }

    /// What a request comes to, and whether it is answered on the spot.
    fn ask(&self, wire: &mut Wire, start: impl FnOnce(&mut Wire) -> u64) -> (NtStatus, bool) {
        let taken = self.fixture.take_thread();
        let id = start(wire);
        let echo = wire.start(Command::ECHO, |out| Empty.emit(out));
        let mut status = None;
        loop {
            let (header, _) = wire.receive();
            if header.message_id.0 == echo {
                break;
            }
            assert_eq!(header.message_id.0, id);
            status = Some(header.status).filter(|status| *status != NtStatus::PENDING);
        }
        drop(taken);
        match status {
            Some(status) => (status, true),
            None => (wire.answer_to(id).0.status, false),
        }
    }

    fn set(
        &self,
        wire: &mut Wire,
        id: FileId,
        class: FileInfoClass,
        buffer: &[u8],
    ) -> (NtStatus, bool) {
        self.ask(wire, |wire| wire.start(Command::SET_INFO, |out| set(id, class, buffer).emit(out)))
    }

    fn open(
        &self,
        wire: &mut Wire,
        name: &str,
        change: impl FnOnce(&mut CreateRequest<'_>),
    ) -> (NtStatus, bool) {
        self.ask(wire, |wire| wire.start_open(name, change))
    }
}

/// More than a thread that others wait for touches at once.
const MUCH: usize = 4 << 20;
const LITTLE: usize = 256 << 10;
const ON_THE_SPOT: (NtStatus, bool) = (NtStatus::SUCCESS, true);
const BY_A_THREAD: (NtStatus, bool) = (NtStatus::SUCCESS, false);

fn there(request: &mut CreateRequest<'_>) {
    request.disposition = CreateDisposition::OPEN;
}

#[test]
fn a_length_that_touches_much_of_a_file_in_memory_is_set_by_a_thread() {
    let memory = Memory::serve();
    let mut wire = memory.fixture.client(1);
    let id = wire.open("f", |_| {}).id;
    for (len, wanted) in [(LITTLE, ON_THE_SPOT), (MUCH, BY_A_THREAD)] {
        let bytes = (len as u64).to_le_bytes();
        assert_eq!(memory.set(&mut wire, id, FileInfoClass::ALLOCATION, &bytes), wanted);
        // Nothing has to be cleared to move the end on, and all of it given back to move it to the front.
        assert_eq!(memory.set(&mut wire, id, FileInfoClass::END_OF_FILE, &bytes), ON_THE_SPOT);
        let none = 0_u64.to_le_bytes();
        assert_eq!(memory.set(&mut wire, id, FileInfoClass::END_OF_FILE, &none), wanted);
    }
}

#[test]
fn much_of_a_file_in_memory_is_reserved_and_replaced_by_a_thread() {
    let memory = Memory::serve();
    let mut wire = memory.fixture.client(1);
    for (len, wanted) in [(LITTLE, ON_THE_SPOT), (MUCH, BY_A_THREAD)] {
        let reserves = CreateRequestContext::AllocationSize(len as u64);
        let reserved = |request: &mut CreateRequest<'_>| request.contexts.push(reserves);
        assert_eq!(memory.open(&mut wire, &format!("new {len}"), reserved), wanted);
        memory.fill(&format!("there {len}"), len);
        let overwritten = |request: &mut CreateRequest<'_>| {
            request.disposition = CreateDisposition::OVERWRITE;
        };
        assert_eq!(memory.open(&mut wire, &format!("there {len}"), overwritten), wanted);
    }
    // As many streams as there may be, each as long as it likes.
    let stream = wire.open("with:stream", |_| {});
    assert_eq!(wire.close(stream.id), NtStatus::SUCCESS);
    let overwritten =
        |request: &mut CreateRequest<'_>| request.disposition = CreateDisposition::OVERWRITE;
    assert_eq!(memory.open(&mut wire, "with", overwritten), BY_A_THREAD);
}

#[test]
fn a_file_in_memory_takes_the_place_of_another_by_a_thread() {
    let memory = Memory::serve();
    let mut wire = memory.fixture.client(1);
    memory.fill("victim", MUCH);
    let id = wire.open("f", |_| {}).id;
    let rename = |name, flags| new_name(name, flags);
    let free = rename("free", RenameFlags::empty());
    assert_eq!(memory.set(&mut wire, id, FileInfoClass::RENAME, &free), ON_THE_SPOT);
    let taken = rename("victim", RenameFlags::REPLACE_IF_EXISTS);
    assert_eq!(memory.set(&mut wire, id, FileInfoClass::RENAME, &taken), BY_A_THREAD);
    memory.fill("another", MUCH);
    let taken = rename("another", RenameFlags::REPLACE_IF_EXISTS);
    assert_eq!(memory.set(&mut wire, id, FileInfoClass::LINK, &taken), BY_A_THREAD);
}

#[test]
fn a_directory_in_memory_is_moved_by_a_thread() {
    let memory = Memory::serve();
    let mut wire = memory.fixture.client(1);
    fs::create_dir_all(memory.path("deep/tree/below")).unwrap();
    let moved = wire.open("deep\\tree", |request| {
        request.options = CreateOptions::DIRECTORY_FILE;
        there(request);
    });
    let up = new_name("tree", RenameFlags::empty());
    assert_eq!(memory.set(&mut wire, moved.id, FileInfoClass::RENAME, &up), BY_A_THREAD);
}

#[test]
fn names_of_a_large_directory_in_memory_are_compared_by_a_thread() {
    let memory = Memory::serve();
    let mut wire = memory.fixture.client(1);
    for directory in ["small", "large"] {
        fs::create_dir(memory.path(directory)).unwrap();
    }
    for number in 0..1_000 {
        File::create(memory.path(&format!("large/There {number}"))).unwrap();
    }
    File::create(memory.path("small/There")).unwrap();
    assert_eq!(memory.open(&mut wire, "small\\there", there), ON_THE_SPOT);
    assert_eq!(memory.open(&mut wire, "large\\new", |_| {}), BY_A_THREAD);
    // What was read once is known.
    assert_eq!(memory.open(&mut wire, "large\\newer", |_| {}), ON_THE_SPOT);
    let id = wire.open("f", |_| {}).id;
    File::create(memory.path("large/local")).unwrap();
    let new = new_name("large\\f", RenameFlags::empty());
    assert_eq!(memory.set(&mut wire, id, FileInfoClass::RENAME, &new), BY_A_THREAD);
}

#[test]
fn a_path_of_many_directories_in_another_case_is_looked_up_by_a_thread() {
    let memory = Memory::serve();
    let mut wire = memory.fixture.client(1);
    let path = |name: &str, count| vec![name; count].join("\\");
    // 4 KiB is as long as a path that the kernel takes.
    for (count, wanted) in [(8, ON_THE_SPOT), (1_500, BY_A_THREAD)] {
        let dir = tempfile::tempdir_in(memory.path("")).unwrap();
        let top = dir.path().file_name().unwrap().to_str().unwrap();
        fs::create_dir_all(dir.path().join(path("D", count).replace('\\', "/"))).unwrap();
        let exactly = format!("{top}\\{}\\new", path("D", count));
        assert_eq!(memory.open(&mut wire, &exactly, |_| {}), ON_THE_SPOT);
        let otherwise = format!("{top}\\{}\\new", path("d", count));
        assert_eq!(memory.open(&mut wire, &otherwise, there), wanted);
    }
}

#[test]
fn names_of_many_small_directories_in_memory_are_compared_by_a_thread() {
    let memory = Memory::serve();
    let mut wire = memory.fixture.client(1);
    for count in [20, 200] {
        for number in 0..count {
            fs::create_dir_all(memory.path(&format!("{count}/A/A/A/There {number}"))).unwrap();
            fs::create_dir_all(memory.path(&format!("{count}/A/A/There {number}"))).unwrap();
        }
    }
    let looked = |memory: &Memory, wire: &mut Wire, name| {
        memory.ask(wire, |wire| wire.start_open(name, there))
    };
    let (few, many) = ("20\\a\\A\\a\\THERE", "200\\a\\A\\a\\THERE");
    assert_eq!(looked(&memory, &mut wire, few), (NtStatus::OBJECT_NAME_NOT_FOUND, true));
    assert_eq!(looked(&memory, &mut wire, many), (NtStatus::OBJECT_NAME_NOT_FOUND, false));
}

#[test]
fn many_extended_attributes_of_a_file_in_memory_are_passed_by_a_thread() {
    let memory = Memory::serve();
    let mut wire = memory.fixture.client(1);
    let id = wire.open("f", |request| request.desired_access = AccessMask::GENERIC_ALL).id;
    let look = |wire: &mut Wire, class: FileInfoClass| {
        memory.ask(wire, |wire| {
            let question = query(id, smb::info::InfoType::FILE, class.0);
            wire.start(Command::QUERY_INFO, |out| question.emit(out))
        })
    };
    for (count, wanted) in [(2, ON_THE_SPOT), (500, BY_A_THREAD)] {
        let names: Vec<String> = (0..count).map(|number| format!("NAME{number}")).collect();
        let list: Vec<_> = names
            .iter()
            .map(|name| FullEa { flags: 0, name: name.as_bytes(), value: b"value" })
            .collect();
        let mut buffer = Vec::new();
        FullEa::emit_list(&list, &mut buffer);
        assert_eq!(memory.set(&mut wire, id, FileInfoClass::FULL_EA, &buffer), wanted);
        assert_eq!(look(&mut wire, FileInfoClass::EA), wanted);
        assert_eq!(look(&mut wire, FileInfoClass::ALL), wanted);
        assert_eq!(look(&mut wire, FileInfoClass::BASIC), ON_THE_SPOT);
    }
}

#[test]
fn a_file_has_a_bounded_number_of_extended_attributes() {
    let memory = Memory::serve();
    let mut wire = memory.fixture.client(1);
    let id = wire.open("f", |request| request.desired_access = AccessMask::GENERIC_ALL).id;
    let mut set = |names: std::ops::Range<usize>, value: &[u8]| {
        let names: Vec<String> = names.map(|number| format!("N{number}")).collect();
        let list: Vec<_> =
            names.iter().map(|name| FullEa { flags: 0, name: name.as_bytes(), value }).collect();
        let mut buffer = Vec::new();
        FullEa::emit_list(&list, &mut buffer);
        wire.set(id, FileInfoClass::FULL_EA, &buffer)
    };
    assert_eq!(set(0..1_024, b"v"), NtStatus::SUCCESS);
    assert_eq!(set(1_024..1_025, b"v"), NtStatus::EA_TOO_LARGE);
    assert_eq!(set(0..1, b"another"), NtStatus::SUCCESS, "it has its place");
    assert_eq!(set(7..8, b""), NtStatus::SUCCESS);
    assert_eq!(set(1_024..1_025, b"v"), NtStatus::SUCCESS, "one is gone");
    let long = vec![1; 60_000];
    let outcomes: Vec<_> = (100..118).map(|number| set(number..number + 1, &long)).collect();
    assert_eq!(outcomes[..16], [NtStatus::SUCCESS; 16]);
    assert_eq!(outcomes[17], NtStatus::EA_TOO_LARGE, "a MiB together");
}

#[test]
fn many_calls_on_a_pipe_are_carried_out_by_a_thread() {
    // srvsvc 3.0, and NetrRemoteTOD, as clients write them.
    const BIND: [u8; 72] = [
        5, 0, 11, 3, 0x10, 0, 0, 0, 72, 0, 0, 0, 1, 0, 0, 0, 0xb8, 0x10, 0xb8, 0x10, 0, 0, 0, 0, 1,
        0, 0, 0, 0, 0, 1, 0, 0xc8, 0x4f, 0x32, 0x4b, 0x70, 0x16, 0xd3, 0x01, 0x12, 0x78, 0x5a,
        0x47, 0xbf, 0x6e, 0xe1, 0x88, 3, 0, 0, 0, 0x04, 0x5d, 0x88, 0x8a, 0xeb, 0x1c, 0xc9, 0x11,
        0x9f, 0xe8, 0x08, 0x00, 0x2b, 0x10, 0x48, 0x60, 2, 0, 0, 0,
    ];
    const CALL: [u8; 40] = [
        5, 0, 0, 3, 0x10, 0, 0, 0, 40, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let memory = Memory::serve();
    let mut wire = memory.fixture.client(1);
    assert_eq!(wire.enter("IPC$"), NtStatus::SUCCESS);
    let pipe = wire.open("srvsvc", |_| {}).id;
    let mut written = |data: &[u8]| {
        let request = WriteRequest {
            offset: 0,
            file_id: pipe,
            channel: Channel::NONE,
            remaining_bytes: 0,
            flags: WriteFlags::empty(),
            data,
            channel_info: &[],
        };
        memory.ask(&mut wire, |wire| wire.start(Command::WRITE, |out| request.emit(out)))
    };
    assert_eq!(written(&BIND), (NtStatus::SUCCESS, true));
    assert_eq!(written(&CALL), (NtStatus::SUCCESS, true));
    assert_eq!(written(&CALL.repeat(30)), (NtStatus::SUCCESS, false));
}
