//! Handles that write through: what they change is durable when it is answered.
//!
//! What becomes durable takes its name along, so the directories that were synced tell.

use smb::create::{
    CreateDisposition, CreateOptions, CreateRequestContext, DurableRequestV2, OplockLevel,
};
use smb::fsctl::{CopyChunk, CopyChunkRequest, FileLevelTrim, FileRange, ResumeKey, ZeroData};
use smb::info::{FileInfoClass, RenameFlags};
use smb::{Command, ControlCode, FileId, Guid, NtStatus};
use tempfile::TempDir;

use crate::support::crash::Writing;
use crate::support::{Fixture, Wire, write};

type Change = fn(&mut Wire, FileId) -> NtStatus;

/// Everything that changes the bytes of an open file, or how many they are.
const CHANGES: [(&str, Change); 7] = [
    ("WRITE", |wire, id| wire.ask(Command::WRITE, |out| write(id, 0, b"new").emit(out)).0.status),
    ("END_OF_FILE", |wire, id| wire.set(id, FileInfoClass::END_OF_FILE, &5000_u64.to_le_bytes())),
    ("ALLOCATION up", |wire, id| {
        wire.set(id, FileInfoClass::ALLOCATION, &(1_u64 << 20).to_le_bytes())
    }),
    ("ALLOCATION down", |wire, id| wire.set(id, FileInfoClass::ALLOCATION, &1_u64.to_le_bytes())),
    ("SET_ZERO_DATA", |wire, id| {
        let mut input = Vec::new();
        ZeroData { offset: 0, end: 100 }.emit(&mut input);
        wire.control(id, ControlCode::SET_ZERO_DATA, &input).0
    }),
    ("FILE_LEVEL_TRIM", |wire, id| {
        let mut input = Vec::new();
        let ranges = vec![FileRange { offset: 0, length: 4096 }];
        FileLevelTrim { key: 0, ranges }.emit(&mut input);
        wire.control(id, ControlCode::FILE_LEVEL_TRIM, &input).0
    }),
    ("SRV_COPYCHUNK", |wire, id| {
        let (_, output) = wire.control(id, ControlCode::SRV_REQUEST_RESUME_KEY, &[]);
        let source = ResumeKey::parse(&output).unwrap();
        let chunk = CopyChunk { source_offset: 0, target_offset: 4096, length: 100 };
        let mut input = Vec::new();
        CopyChunkRequest { source, chunks: vec![chunk] }.emit(&mut input);
        wire.control(id, ControlCode::SRV_COPYCHUNK, &input).0
    }),
];

struct Rig {
    fixture: Fixture,
    disk: TempDir,
    files: usize,
}

impl Rig {
    fn new() -> Self {
        let disk = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = disk.path().to_owned();
        let fixture = Fixture::start_with(|config| config.shares[0].path = path);
        Self { fixture, disk, files: 0 }
    }

    /// A file whose name nobody has asked to be durable.
    fn file(&mut self) -> String {
        self.files += 1;
        let directory = format!("d{}", self.files);
        std::fs::create_dir(self.disk.path().join(&directory)).unwrap();
        std::fs::write(self.disk.path().join(&directory).join("f"), [7; 4096]).unwrap();
        format!("{directory}\\f")
    }

    fn synced(&self) -> u64 {
        self.fixture.running.status().directories_synced
    }
}

#[test]
fn what_a_write_through_handle_changes_is_durable_when_answered() {
    let mut rig = Rig::new();
    let mut wire = rig.fixture.client(1);
    for (name, change) in CHANGES {
        for options in [CreateOptions::empty(), CreateOptions::WRITE_THROUGH] {
            let file = rig.file();
            let id = wire.open(&file, |request| request.options = options).id;
            let before = rig.synced();
            assert_eq!(change(&mut wire, id), NtStatus::SUCCESS, "{name}");
            let is_durable = rig.synced() > before;
            assert_eq!(is_durable, options == CreateOptions::WRITE_THROUGH, "{name}");
            assert_eq!(wire.close(id), NtStatus::SUCCESS);
        }
    }
}

#[test]
fn what_a_write_through_create_makes_or_empties_is_durable_when_answered() {
    let mut rig = Rig::new();
    let mut wire = rig.fixture.client(1);
    let file = rig.file();
    for (name, disposition) in [
        (file.replace('f', "new"), CreateDisposition::CREATE),
        (file, CreateDisposition::OVERWRITE),
    ] {
        let before = rig.synced();
        let opened = wire.open(&name, |request| {
            request.disposition = disposition;
            request.options = CreateOptions::WRITE_THROUGH;
        });
        assert_eq!(opened.status, NtStatus::SUCCESS);
        // The directory was synced for the first, and is not changed by the second.
        let is_durable = rig.synced() > before;
        assert_eq!(is_durable, disposition == CreateDisposition::CREATE);
    }
}

#[test]
fn a_new_name_of_a_stream_is_durable_when_a_write_through_rename_is_answered() {
    let mut rig = Rig::new();
    let mut wire = rig.fixture.client(1);
    for name in [":other", "::$DATA"] {
        for options in [CreateOptions::empty(), CreateOptions::WRITE_THROUGH] {
            let stream = format!("{}:s", rig.file());
            let made = wire.open(&stream, |_| {}).id;
            assert_eq!(wire.close(made), NtStatus::SUCCESS);
            let id = wire.open(&stream, |request| request.options = options).id;
            let before = rig.synced();
            let renamed = wire.rename(id, name, RenameFlags::REPLACE_IF_EXISTS);
            assert_eq!(renamed, NtStatus::SUCCESS, "{name}");
            let is_durable = rig.synced() > before;
            // A stream that becomes the file's unnamed one does not go before the file's name is durable.
            let is_owed = options == CreateOptions::WRITE_THROUGH || name == "::$DATA";
            assert_eq!(is_durable, is_owed, "{name}");
            assert_eq!(wire.close(id), NtStatus::SUCCESS);
        }
    }
}

#[test]
fn a_handle_writes_through_from_when_its_mode_says_so() {
    let mut rig = Rig::new();
    let mut wire = rig.fixture.client(1);
    for mode in [0_u32, 2] {
        let id = wire.open(&rig.file(), |_| {}).id;
        let set = wire.set(id, FileInfoClass::MODE, &mode.to_le_bytes());
        assert_eq!(set, NtStatus::SUCCESS);
        let (_, found) = wire.query(id, FileInfoClass::MODE);
        assert_eq!(found, mode.to_le_bytes());
        let before = rig.synced();
        assert_eq!(wire.write(id, b"new"), NtStatus::SUCCESS);
        assert_eq!(rig.synced() > before, mode == 2);
    }
}

#[test]
fn what_a_persistent_handle_changes_is_durable_when_answered() {
    for (name, change) in CHANGES {
        let server = Writing::start_on_disk();
        let directory = server.fixture.dir.path().join("d");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("f"), [7; 4096]).unwrap();
        let mut wire = server.fixture.client(1);
        let asked =
            DurableRequestV2 { timeout_ms: 0, persistent: true, create_guid: Guid([5; 16]) };
        let id = wire
            .open("d\\f", |request| {
                request.oplock_level = OplockLevel::BATCH;
                request.contexts.push(CreateRequestContext::DurableV2(asked));
            })
            .id;
        // Its name is durable since it was opened; that of another file beside it is not.
        wire.open("d\\g", |_| {});
        let before = server.fixture.running.status().directories_synced;
        assert_eq!(change(&mut wire, id), NtStatus::SUCCESS, "{name}");
        let after = server.fixture.running.status().directories_synced;
        assert!(after > before, "{name}");
    }
}
