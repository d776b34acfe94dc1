//! Makes and opens the memory of a member.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use pmem::{DurabilityClass, Medium};
use rustix::fs::{FallocateFlags, FlockOperation, flock};

use super::error::OpenCause;
use super::labels::{label_at, newest_label};
use super::{Labels, OpenError, Ring, RingError};
use crate::format::{CAPACITY_MIN, FormatError, Geometry, LABEL_LEN, Label};
use crate::names::{GroupId, MemberId};

/// What a new ring is like.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// How the memory is divided.
    pub geometry: Geometry,
    /// Whatever lies there is given up.
    pub overwrite: bool,
    /// Every byte of a file on a disk is written once. The file system need not change its own records during the first lap
    /// then: on ext4 a durable record of 4 KiB takes 140 us instead of 200 us.
    pub fills: bool,
    /// How the file is opened.
    pub medium: pmem::OpenOptions,
}

impl Ring {
    /// Makes the memory of a member in a file, whose bytes are reserved, and stores its first label.
    ///
    /// # Durability
    ///
    /// On `Ok` the file, its name and the label are durable.
    ///
    /// # Errors
    ///
    /// [`RingError::Exists`] and [`RingError::Foreign`] where something lies already; otherwise what the operating system
    /// or the file system says.
    pub fn create(path: &Path, label: &Label, options: CreateOptions) -> Result<Self, OpenError> {
        let at = |cause| OpenError { path: path.to_owned(), cause };
        let file = own(path, true).map_err(at)?;
        Self::create_in(path, file, label, options).map_err(at)
    }

    fn create_in(
        path: &Path,
        file: File,
        label: &Label,
        options: CreateOptions,
    ) -> Result<Self, OpenCause> {
        check_geometry(&options.geometry)?;
        let has = pmem::length(&file)?;
        if has > 0 && !options.overwrite {
            check_nothing_is_lost(&*pmem::map_file(&file, has, options.medium)?)?;
        }
        let needs = options.geometry.total();
        if has < needs {
            let reserved = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, needs);
            reserved.map_err(|errno| {
                // What was reserved of it is of no use; a file that cannot be cut is as useless as one that was.
                let _ = file.set_len(has);
                OpenCause::Reserve { len: needs, cause: errno.into() }
            })?;
        }
        // Devices have neither a length nor a name to make durable.
        if file.metadata().map_err(OpenCause::Open)?.is_file() {
            file.sync_all().map_err(OpenCause::Open)?;
            sync_directory_of(path)?;
        }
        let medium = pmem::map_file(&file, needs, options.medium)?;
        if options.fills && medium.class() == DurabilityClass::Storage {
            erase(&*medium, options.geometry.ring()..needs)?;
        }
        Ok(Self { owned: Some(file), ..Self::create_on(medium, label, options.geometry)? })
    }

    /// [`Ring::create`] on memory that the caller has for itself, whatever lies there.
    ///
    /// # Durability
    ///
    /// On `Ok` the label is durable. A crash before leaves no label.
    ///
    /// # Errors
    ///
    /// The memory is too short, or fails.
    pub fn create_on(
        medium: Arc<dyn Medium>,
        label: &Label,
        geometry: Geometry,
    ) -> Result<Self, RingError> {
        check_geometry(&geometry)?;
        let (has, needs) = (medium.len(), geometry.total());
        if has < needs {
            return Err(RingError::TooShort { has, needs });
        }
        // Neither the labels nor the dirty maps of another ring may ever count. Its records cannot, as the label has a start
        // and the checksum that the record there must name; and the maps' pages are not sound until they are stored.
        erase(&*medium, 0..geometry.ring())?;
        let offset = Geometry::label(0);
        medium.place(offset, &label.encode(&geometry))?;
        medium.persist(offset, LABEL_LEN as u64)?;
        Ok(Self::with(medium, label, geometry, 0))
    }

    /// Opens the memory of a member in a file. Nobody else can until it is dropped.
    ///
    /// # Errors
    ///
    /// What is wrong with the file, and at which byte.
    pub fn open(path: &Path, options: pmem::OpenOptions) -> Result<Self, OpenError> {
        let at = |cause| OpenError { path: path.to_owned(), cause };
        let open = || {
            let file = own(path, false)?;
            let medium = pmem::map_file(&file, pmem::length(&file)?, options)?;
            Ok(Self { owned: Some(file), ..Self::open_on(medium)? })
        };
        open().map_err(at)
    }

    /// [`Ring::open`] of memory that the caller has for itself.
    ///
    /// # Durability
    ///
    /// On `Ok` the label and the dirty maps that were found are durable, whoever stored them.
    ///
    /// # Errors
    ///
    /// As [`Ring::open`].
    pub fn open_on(medium: Arc<dyn Medium>) -> Result<Self, RingError> {
        let (label, geometry, slot) = newest_label(&*medium)?;
        let (has, needs) = (medium.len(), geometry.total());
        if has < needs {
            return Err(RingError::Truncated { has, needs });
        }
        settle(&*medium, geometry.ring())?;
        let other_is_sound = label_at(&*medium, 1 - slot)?.is_ok();
        erase_torn_label(&*medium, 1 - slot)?;
        let looks_far = !other_is_sound;
        Ok(Self { looks_far, ..Self::with(medium, &label, geometry, slot) })
    }

    /// Whether the ring is that of a member.
    ///
    /// # Errors
    ///
    /// It is another's.
    pub fn check_owner(&self, group: GroupId, member: MemberId) -> Result<(), RingError> {
        let label = self.load_label()?;
        if label.group != group {
            return Err(RingError::OtherGroup { found: label.group, wanted: group });
        }
        if label.member != member {
            return Err(RingError::OtherMember { found: label.member, wanted: member });
        }
        Ok(())
    }

    fn with(medium: Arc<dyn Medium>, label: &Label, geometry: Geometry, slot: u8) -> Self {
        Self {
            medium,
            geometry,
            group: label.group,
            start: AtomicU64::new(label.start.0),
            labels: Mutex::new(Labels { sequence: label.sequence, slot }),
            looks_far: false,
            owned: None,
            keys: None,
        }
    }
}

/// Makes durable what is before the ring, whoever placed it.
fn settle(medium: &dyn Medium, ring: u64) -> Result<(), RingError> {
    #[cfg(test)]
    if crate::planted::Planted::SkipsPersistOfFound.is_here() {
        return Ok(());
    }
    Ok(medium.persist_foreign(0, ring)?)
}

/// Puts zeros where a label was torn, before anything is done by the label in force. Parts of the next label of the slot
/// may be equal to what the torn one lacks: a second crash could make that one whole, and what was done since would
/// not be what it says. The crash tests found that.
fn erase_torn_label(medium: &dyn Medium, slot: u8) -> Result<(), RingError> {
    #[cfg(test)]
    if crate::planted::Planted::KeepsTornLabels.is_here() {
        return Ok(());
    }
    match label_at(medium, slot)? {
        Ok(_) => return Ok(()),
        Err(FormatError::NoLabel) => {}
        Err(error) => {
            tracing::info!(slot, %error, "a label was not stored whole: the other one counts")
        }
    }
    let offset = Geometry::label(slot);
    medium.place(offset, &[0; LABEL_LEN])?;
    medium.persist(offset, LABEL_LEN as u64)?;
    Ok(())
}

fn check_geometry(geometry: &Geometry) -> Result<(), RingError> {
    if geometry.is_sound() {
        return Ok(());
    }
    Err(RingError::Geometry { capacity: geometry.capacity })
}

/// A file that is not empty must hold zeros where labels would be, or its owner would miss what it held.
fn check_nothing_is_lost(medium: &dyn Medium) -> Result<(), RingError> {
    for slot in [0, 1] {
        if let Ok((label, _)) = label_at(medium, slot)? {
            return Err(RingError::Exists(label.group));
        }
    }
    let looked_at = medium.len().min(FOREIGN_LEN);
    let mut bytes = vec![0; usize::try_from(looked_at).expect("FOREIGN_LEN at most")];
    medium.read(0, &mut bytes)?;
    match bytes.iter().position(|byte| *byte != 0) {
        Some(at) => {
            Err(RingError::Foreign { offset: u64::try_from(at).expect("below FOREIGN_LEN") })
        }
        None => Ok(()),
    }
}

/// Puts zeros into a range, durably.
fn erase(medium: &dyn Medium, range: Range<u64>) -> Result<(), RingError> {
    let zeros = vec![0; 1 << 20];
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(1 << 20);
        medium.place(at, &zeros[..usize::try_from(len).expect("at most 1 MiB")])?;
        at += len;
    }
    medium.persist(range.start, range.end - range.start)?;
    Ok(())
}

/// Opens a file and locks it.
fn own(path: &Path, create: bool) -> Result<File, OpenCause> {
    let mut options = File::options();
    // It holds what the volumes hold: for its owner alone.
    options.read(true).write(true).create(create).truncate(false).mode(0o600);
    let file = options.open(path).map_err(OpenCause::Open)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| {
        match errno == rustix::io::Errno::WOULDBLOCK {
            true => OpenCause::InUse,
            false => OpenCause::Open(errno.into()),
        }
    })?;
    Ok(file)
}

/// The name of a new file is durable with the file.
fn sync_directory_of(path: &Path) -> Result<(), OpenCause> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let sync = |path: &Path| -> io::Result<()> { File::open(path)?.sync_all() };
    sync(parent.unwrap_or_else(|| Path::new("."))).map_err(OpenCause::Open)
}

/// How far a file is looked at before it becomes a ring: file systems and partition tables have something here.
const FOREIGN_LEN: u64 = 256 << 10;

const _: () = assert!(CAPACITY_MIN >= LABEL_LEN as u64);
