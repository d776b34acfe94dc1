//! A power failure under a whole server: what was answered as durable is on the disk afterwards.
//!
//! ```text
//!  this process            server and client, a process of their own     ext4 in a file
//!  mkfs, mount ----------> open, write, flush, answered
//!                          FS_IOC_SHUTDOWN: nothing more is written ----> as a power failure leaves it
//!  umount, mount, look <-- ends
//! ```
//!
//! A shutdown of ext4 without a flush of its journal leaves on the disk what a power failure would, of a
//! disk that keeps what it has acknowledged. A run that leaves out the flush has to be found out, or the others
//! show nothing. Needs root, loop devices, mkfs.ext4 and python3; else the tests say so.

use std::path::{Path, PathBuf};
use std::process::Command as Program;

use smb::create::{
    CreateOptions, CreateRequestContext, DurableReconnectV2, DurableRequestV2, OplockLevel,
};
use smb::info::FileInfoClass;
use smb::{Command, FileId, FlushRequest, Guid, NtStatus};
use tempfile::TempDir;

use crate::support::crash::of_another_boot;
use crate::support::mounts::{has_own_mounts, mount, run};
use crate::support::skipped::skip;
use crate::support::{Fixture, Wire};

/// What the client does before the power fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Story {
    /// WRITE and nothing else: the planted fault, a FLUSH that does nothing.
    Unflushed,
    /// WRITE and FLUSH.
    Flushed,
    /// WRITE by a handle that writes through.
    Through,
    /// WRITE by a persistent handle, which comes back.
    Persistent,
}

const STORIES: [Story; 4] = [Story::Unflushed, Story::Flushed, Story::Through, Story::Persistent];

/// A disk that may fail, and a directory in memory.
struct Machine {
    scratch: TempDir,
    memory: TempDir,
}

impl Machine {
    fn new() -> Self {
        let (scratch, memory) =
            (tempfile::tempdir_in("/var/tmp").unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
        let machine = Self { scratch, memory };
        std::fs::File::create(machine.image()).unwrap().set_len(64 << 20).unwrap();
        run(Program::new("mkfs.ext4").args(["-q", "-F"]).arg(machine.image()));
        machine.plug_in();
        machine
    }

    fn image(&self) -> PathBuf {
        self.scratch.path().join("image")
    }

    fn top(&self) -> PathBuf {
        self.memory.path().to_owned()
    }

    fn disk(&self) -> PathBuf {
        self.top().join("disk")
    }

    /// A part of the disk, mounted in the share, whose top is in memory.
    fn below(&self) -> PathBuf {
        self.top().join("share/below")
    }

    fn plug_in(&self) {
        // Nothing is committed by time while a test is slow.
        let image = self.image();
        mount(&["-o", "loop,commit=300", image.to_str().unwrap()], &self.disk());
        let served = self.disk().join("served");
        std::fs::create_dir_all(&served).unwrap();
        mount(&["--bind", served.to_str().unwrap()], &self.below());
    }

    fn restart(&self) {
        run(Program::new("umount").arg(self.below()));
        run(Program::new("umount").arg(self.disk()));
        self.plug_in();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = Program::new("umount").args([self.below(), self.disk()]).status();
    }
}

fn serve(top: &Path) -> Fixture {
    let opens = top.join("disk/opens");
    Fixture::start_with(|config| {
        config.shares[0].path = top.join("share");
        config.shares[0].persistent_opens = Some(opens);
    })
}

// In a process of its own, which ends with the power.
fn tell(story: Story, top: &Path) {
    let fixture = serve(top);
    let mut wire = fixture.client(1);
    let asked = DurableRequestV2 { timeout_ms: 0, persistent: true, create_guid: GUID };
    let file = wire.open("below\\f", |request| match story {
        Story::Through => request.options = CreateOptions::WRITE_THROUGH,
        Story::Persistent => {
            request.oplock_level = OplockLevel::BATCH;
            request.contexts.push(CreateRequestContext::DurableV2(asked));
        }
        Story::Unflushed | Story::Flushed => {}
    });
    assert_eq!(wire.write(file.id, ANSWERED), NtStatus::SUCCESS);
    let len = ANSWERED.len() as u64 + 1;
    let resized = wire.set(file.id, FileInfoClass::END_OF_FILE, &len.to_le_bytes());
    assert_eq!(resized, NtStatus::SUCCESS);
    if story == Story::Flushed {
        let flush = FlushRequest { file_id: file.id };
        let (header, _) = wire.ask(Command::FLUSH, |out| flush.emit(out));
        assert_eq!(header.status, NtStatus::SUCCESS);
    }
    std::fs::write(top.join("serial"), file.id.persistent.to_le_bytes()).unwrap();
    // FS_IOC_SHUTDOWN, without a flush of the journal.
    let cut = "import fcntl, os, struct, sys\n\
               fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";
    run(Program::new("python3").args(["-c", cut]).arg(top.join("disk")));
    // Nothing ends in order.
    std::process::abort();
}

#[test]
fn what_was_answered_as_durable_survives_a_power_failure() {
    const NAME: &str = "outage::what_was_answered_as_durable_survives_a_power_failure";
    if let Some(top) = std::env::var_os(TOP) {
        let story = std::env::var(STORY).unwrap().parse::<usize>().unwrap();
        return tell(STORIES[story], Path::new(&top));
    }
    let tools = [["mkfs.ext4", "-V"], ["python3", "-V"]];
    let has = |tool: &[&str; 2]| Program::new(tool[0]).arg(tool[1]).output().is_ok();
    let has_loop = Path::new("/dev/loop-control").exists();
    if !rustix::process::geteuid().is_root() || !has_loop || !tools.iter().all(has) {
        skip("needs root, loop devices, mkfs.ext4 and python3");
        return;
    }
    if !has_own_mounts(NAME) {
        return;
    }
    for (index, story) in STORIES.into_iter().enumerate() {
        let machine = Machine::new();
        let told = Program::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME])
            .env(TOP, machine.top())
            .env(STORY, index.to_string())
            .output()
            .unwrap();
        machine.restart();
        let left = std::fs::read(machine.below().join("f")).unwrap_or_default();
        let is_kept = left.len() == ANSWERED.len() + 1 && left.starts_with(ANSWERED);
        let log = String::from_utf8_lossy(&told.stderr).into_owned();
        assert_eq!(is_kept, story != Story::Unflushed, "{story:?}: {} bytes; {log}", left.len());
        if story == Story::Persistent {
            comes_back(&machine);
        }
    }
}

// The open is there on the next boot, with all that its client was told.
fn comes_back(machine: &Machine) {
    let opens = machine.disk().join("opens");
    std::fs::write(&opens, of_another_boot(&std::fs::read(&opens).unwrap())).unwrap();
    let serial = std::fs::read(machine.top().join("serial")).unwrap();
    let persistent = u64::from_le_bytes(*serial.first_chunk().unwrap());
    let file_id = FileId { persistent, volatile: 0 };
    let fixture = serve(&machine.top());
    let mut wire: Wire = fixture.client(1);
    let back = DurableReconnectV2 { file_id, create_guid: GUID, persistent: true };
    let back = wire.open("below\\f", |request| {
        request.oplock_level = OplockLevel::BATCH;
        request.contexts.push(CreateRequestContext::DurableReconnectV2(back));
    });
    assert_eq!(back.status, NtStatus::SUCCESS);
    let (status, read) = wire.read(back.id, 100);
    assert_eq!((status, &read[..ANSWERED.len()]), (NtStatus::SUCCESS, ANSWERED));
}

const ANSWERED: &[u8] = b"what the client was told";
const GUID: Guid = Guid([5; 16]);
const TOP: &str = "LANDFAST_OUTAGE_TOP";
const STORY: &str = "LANDFAST_OUTAGE_STORY";
