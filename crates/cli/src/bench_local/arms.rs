//! The arms: ours, and two of the kernel's beside them. Each has a file without a name.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use block::{BlockDevice, FileDevice, Survives};
use log::{CreateOptions, LocalStore, LogError, TailLog};
use pmem::{DurabilityClass, Medium};
use rustix::fs::OFlags;
use volume::{Access, Format, Volume};

use super::row::{Row, Sample, timed};
use crate::args::LocalMode;

/// Where it is measured.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) directory: PathBuf,
    /// Bytes of each arm's file.
    pub(super) len: u64,
    pub(super) class: DurabilityClass,
}

impl Site {
    pub(super) fn new(directory: &Path, len: u64) -> Result<Self, String> {
        let len = len.clamp(LEN_MIN, LEN_MAX).next_multiple_of(128 << 10);
        let file = file(directory, 4096)?;
        let class = pmem::classify(&file).map_err(|error| error.to_string())?;
        Ok(Self { directory: directory.to_owned(), len, class })
    }

    pub(super) fn is_emulated(&self) -> bool {
        self.class == DurabilityClass::Volatile
    }

    pub(super) fn as_if(&self) -> &'static str {
        if self.is_emulated() { " as if it were persistent" } else { "" }
    }
}

/// Something that is measured.
pub(super) trait Arm: fmt::Debug {
    fn name(&self) -> &'static str;

    /// One turn. `None`: the arm has no such requests.
    fn measure(&self, row: &Row, turn: Duration) -> Result<Option<Sample>, String>;
}

/// An arm's name, and the arm or why it is not there.
pub(super) type Made = (&'static str, Result<Box<dyn Arm>, String>);

/// The arms of these modes and the controls.
pub(super) fn make(site: &Site, modes: &[LocalMode]) -> Vec<Made> {
    let mut arms: Vec<Made> = Vec::new();
    for mode in modes {
        arms.push(match mode {
            LocalMode::Dax => (MAPPED, medium(site).map(|medium| boxed(Mapped { medium }))),
            LocalMode::Block => (BLOCK, block_mode(site)),
            LocalMode::File => (FILE, file_mode(site)),
            LocalMode::Log => (LOG, tail(site)),
        });
    }
    arms.push((PWRITE, plain(site)));
    arms.push((DIRECT, direct(site)));
    arms
}

fn boxed(arm: impl Arm + 'static) -> Box<dyn Arm> {
    Box::new(arm)
}

fn file(directory: &Path, len: u64) -> Result<File, String> {
    let failed = |error: std::io::Error| format!("no file can be made there: {error}");
    let file = tempfile::tempfile_in(directory).map_err(failed)?;
    file.set_len(len).map_err(failed)?;
    Ok(file)
}

// A file whose blocks are all written.
fn filled(site: &Site) -> Result<File, String> {
    let file = file(&site.directory, site.len)?;
    let piece = vec![0x5a; 1 << 20];
    let mut at = 0;
    while at < site.len {
        let len = piece.len().min(usize::try_from(site.len - at).unwrap_or(piece.len()));
        file.write_all_at(&piece[..len], at).map_err(|error| error.to_string())?;
        at += len as u64;
    }
    file.sync_all().map_err(|error| error.to_string())?;
    Ok(file)
}

fn medium(site: &Site) -> Result<Arc<dyn Medium>, String> {
    let options = pmem::OpenOptions { emulate_persistence: true };
    let file = filled(site)?;
    let medium = pmem::map_file(&file, site.len, options).map_err(|error| error.to_string())?;
    medium.prepare(0, site.len).map_err(|error| error.to_string())?;
    Ok(medium)
}

fn block_mode(site: &Site) -> Result<Box<dyn Arm>, String> {
    let medium = medium(site)?;
    volume::create(&medium, Format::linux(4096, [1; 16])).map_err(|error| error.to_string())?;
    let volume = Volume::open(medium, Access::ReadWrite).map_err(|error| error.to_string())?;
    device(BLOCK, Box::new(volume))
}

fn file_mode(site: &Site) -> Result<Box<dyn Arm>, String> {
    let device_of_file = FileDevice::new(filled(site)?).map_err(|error| error.to_string())?;
    device(FILE, Box::new(device_of_file))
}

fn device(name: &'static str, device: Box<dyn BlockDevice>) -> Result<Box<dyn Arm>, String> {
    let size = device.geometry().size;
    // Each block has been written: a write of one that was not is another work.
    let bytes = vec![0x5a; 128 << 10];
    let mut at = 0;
    while at + bytes.len() as u64 <= size {
        device.write(at, &bytes, Survives::Placed).map_err(|error| error.to_string())?;
        at += bytes.len() as u64;
    }
    device.flush().map_err(|error| error.to_string())?;
    Ok(boxed(Device { name, device, len: at }))
}

fn tail(site: &Site) -> Result<Box<dyn Arm>, String> {
    let store = LocalStore::of_medium(medium(site)?);
    // Its blocks have been written, as those of the other arms.
    let options = CreateOptions { replace: true, ..CreateOptions::default() };
    let log = TailLog::create(vec![Box::new(store)], &options);
    Ok(boxed(Tail { log: log.map_err(|error| error.to_string())? }))
}

fn plain(site: &Site) -> Result<Box<dyn Arm>, String> {
    Ok(boxed(Kernel { name: PWRITE, file: filled(site)?, len: site.len, syncs: true }))
}

fn direct(site: &Site) -> Result<Box<dyn Arm>, String> {
    let named = filled(site)?;
    let flags = (OFlags::DIRECT | OFlags::DSYNC).bits().cast_signed();
    let path = format!("/proc/self/fd/{}", named.as_raw_fd());
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    let file = file.map_err(|error| error.to_string())?;
    Ok(boxed(Kernel { name: DIRECT, file, len: site.len, syncs: false }))
}

/// Stores into a mapping, or what the class has in their place.
#[derive(Debug)]
struct Mapped {
    medium: Arc<dyn Medium>,
}

impl Arm for Mapped {
    fn name(&self) -> &'static str {
        MAPPED
    }

    fn measure(&self, row: &Row, turn: Duration) -> Result<Option<Sample>, String> {
        let medium = &self.medium;
        timed(row, medium.len(), turn, &|offset, bytes| {
            let done = match row.writes {
                true => medium
                    .place(offset, bytes)
                    .and_then(|()| medium.persist(offset, bytes.len() as u64)),
                false => medium.read(offset, bytes),
            };
            done.map_err(|error| error.to_string())
        })
        .map(Some)
    }
}

/// A block device of ours.
#[derive(Debug)]
struct Device {
    name: &'static str,
    device: Box<dyn BlockDevice>,
    len: u64,
}

impl Arm for Device {
    fn name(&self) -> &'static str {
        self.name
    }

    fn measure(&self, row: &Row, turn: Duration) -> Result<Option<Sample>, String> {
        timed(row, self.len, turn, &|offset, bytes| {
            let done = match row.writes {
                true => self.device.write(offset, bytes, Survives::Durable),
                false => self.device.read(offset, bytes),
            };
            done.map_err(|error| error.to_string())
        })
        .map(Some)
    }
}

/// The tail of a log: a write is an append with its commit.
#[derive(Debug)]
struct Tail {
    log: TailLog,
}

impl Arm for Tail {
    fn name(&self) -> &'static str {
        LOG
    }

    // Its reads are in order and from recovery.
    fn measure(&self, row: &Row, turn: Duration) -> Result<Option<Sample>, String> {
        if !row.writes || row.bytes > self.log.record_max() {
            return Ok(None);
        }
        let append = |_: u64, bytes: &mut [u8]| loop {
            match self.log.append_commit(bytes) {
                Err(LogError::Full { .. }) => match self.log.trim(self.log.durable_lsn()) {
                    // Another thread has made as much room, or more.
                    Ok(()) | Err(LogError::NoRecord { .. }) => {}
                    Err(error) => return Err(error.to_string()),
                },
                done => return done.map(drop).map_err(|error| error.to_string()),
            }
        };
        timed(row, 1 << 40, turn, &append).map(Some)
    }
}

/// System calls alone.
#[derive(Debug)]
struct Kernel {
    name: &'static str,
    file: File,
    len: u64,
    /// Each write is followed by an fdatasync.
    syncs: bool,
}

impl Arm for Kernel {
    fn name(&self) -> &'static str {
        self.name
    }

    fn measure(&self, row: &Row, turn: Duration) -> Result<Option<Sample>, String> {
        timed(row, self.len, turn, &|offset, bytes| {
            let done = match row.writes {
                true => self.file.write_all_at(bytes, offset).and_then(|()| match self.syncs {
                    true => self.file.sync_data(),
                    false => Ok(()),
                }),
                false => self.file.read_exact_at(bytes, offset),
            };
            done.map_err(|error| error.to_string())
        })
        .map(Some)
    }
}

const MAPPED: &str = "mapped (dax)";
const BLOCK: &str = "volume, mode block";
const FILE: &str = "volume, mode file";
const LOG: &str = "tail of a log";
const PWRITE: &str = "pwrite, fdatasync";
const DIRECT: &str = "O_DIRECT, O_DSYNC";
/// Bytes of an arm's file: a volume has room for its 256 lanes.
const LEN_MIN: u64 = 32 << 20;
const LEN_MAX: u64 = 64 << 30;
