//! The pieces that a daemon holds: files of one directory, each with a header of a page.
//!
//! ```text
//!   file    DIRECTORY/REGION.PIECE, both in hex
//!   header  0          8        12       16       24       32       40           48
//!           +----------+--------+--------+--------+--------+--------+------------+--------+
//!           | LFPIECE1 | version| piece  | region | length | epoch  | generation | crc 4  | zeros to 4096
//!           +----------+--------+--------+--------+--------+--------+------------+--------+
//!   bytes   from 4096 on
//! ```
//!
//! All integers are little-endian; the CRC-32C covers the 48 bytes before it. The header is written in one piece within
//! one sector and synced before anybody relies on a new epoch or generation.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use pmem::{DurabilityClass, Medium};
use rustix::fs::FallocateFlags;

use crate::ids::RegionId;
use crate::wire::Status;

/// What a header says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// The region.
    pub region: RegionId,
    /// The piece.
    pub piece: u32,
    /// Length in bytes, without the header.
    pub len: u64,
    /// Mappings of earlier epochs are refused.
    pub epoch: u64,
    /// Tokens of earlier generations are refused.
    pub generation: u64,
}

impl Header {
    /// The header as bytes.
    pub fn emit(&self) -> [u8; USED] {
        let mut out = [0; USED];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.piece.to_le_bytes());
        for (at, number) in
            [(16, self.region.0), (24, self.len), (32, self.epoch), (40, self.generation)]
        {
            out[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let crc = checksum(&out[..48]);
        out[48..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header; `None` if the bytes are none.
    pub fn parse(bytes: &[u8; USED]) -> Option<Self> {
        let u32_at = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).ok();
        let u64_at = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        let is_sound =
            &bytes[..8] == MAGIC && u32_at(8)? == VERSION && u32_at(48)? == checksum(&bytes[..48]);
        is_sound.then_some(())?;
        Some(Self {
            region: RegionId(u64_at(16)?),
            piece: u32_at(12)?,
            len: u64_at(24)?,
            epoch: u64_at(32)?,
            generation: u64_at(40)?,
        })
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
    u32::try_from(crc).expect("a CRC-32C has 32 bits")
}

/// One piece.
#[derive(Debug)]
pub(super) struct Piece {
    file: File,
    header: Mutex<Header>,
    medium: OnceLock<Arc<dyn Medium>>,
}

impl Piece {
    pub(super) fn header(&self) -> Header {
        *self.lock()
    }

    /// The bytes, mapped with the first call.
    pub(super) fn medium(&self, emulate_persistence: bool) -> Result<Arc<dyn Medium>, Status> {
        if let Some(medium) = self.medium.get() {
            return Ok(Arc::clone(medium));
        }
        let header = self.header();
        let range = HEADER_LEN..HEADER_LEN + header.len;
        let options = pmem::OpenOptions { emulate_persistence };
        let medium = pmem::map_range(&self.file, range, options).map_err(|error| {
            tracing::error!(region = %header.region, piece = header.piece, %error, "a piece cannot be mapped");
            Status::HOST
        })?;
        Ok(Arc::clone(self.medium.get_or_init(|| medium)))
    }

    /// Raises epoch and generation. Blocks.
    ///
    /// # Durability
    ///
    /// On `Ok` a later start of the daemon goes by them too.
    pub(super) fn raise(&self, epoch: u64, generation: u64) -> io::Result<()> {
        let mut header = self.lock();
        let raised = Header {
            epoch: header.epoch.max(epoch),
            generation: header.generation.max(generation),
            ..*header
        };
        if raised != *header {
            // In force here before it is on the medium: a failure leaves the stricter rule.
            *header = raised;
            self.file.write_all_at(&raised.emit(), 0)?;
            self.file.sync_data()?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Header> {
        self.header.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All pieces of a directory.
#[derive(Debug)]
pub(super) struct Pieces {
    directory: PathBuf,
    class: DurabilityClass,
    capacity: u64,
    state: Mutex<State>,
    /// Held while a piece is made: one at a time.
    making: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    pieces: BTreeMap<(RegionId, u32), Arc<Piece>>,
    used: u64,
}

impl Pieces {
    /// Opens a directory. Without a `capacity` pieces may fill its file system.
    pub(super) fn open(directory: &Path, capacity: Option<u64>) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let mut state = State::default();
        for file in fs::read_dir(directory)? {
            let path = file?.path();
            if is_unfinished(&path) {
                // Its maker was killed, and nobody knows of it; its blocks are reserved.
                fs::remove_file(&path)?;
                continue;
            }
            let is_piece = path.extension().is_some_and(|end| end.len() == 4);
            if !is_piece {
                continue;
            }
            match read(&path) {
                Ok((file, header)) => {
                    let piece = Piece { file, header: Mutex::new(header), medium: OnceLock::new() };
                    state.used += header.len + HEADER_LEN;
                    state.pieces.insert((header.region, header.piece), Arc::new(piece));
                }
                Err(error) if error.kind() != io::ErrorKind::InvalidData && is_of_host(&error) => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "no sound piece: it is left alone and not served");
                }
            }
        }
        let class = class_of(directory)?;
        let capacity = match capacity {
            Some(capacity) => capacity,
            None => available(directory)? + state.used,
        };
        Ok(Self {
            directory: directory.into(),
            class,
            capacity,
            state: Mutex::new(state),
            making: Mutex::new(()),
        })
    }

    pub(super) fn class(&self) -> DurabilityClass {
        self.class
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes that are free for pieces.
    pub(super) fn free(&self) -> u64 {
        let used = self.lock().used;
        let available = available(&self.directory).unwrap_or(0);
        self.capacity.saturating_sub(used).min(available)
    }

    pub(super) fn get(&self, region: RegionId, piece: u32) -> Option<Arc<Piece>> {
        self.lock().pieces.get(&(region, piece)).cloned()
    }

    /// The pieces of a region.
    pub(super) fn of(&self, region: RegionId) -> Vec<Arc<Piece>> {
        let state = self.lock();
        state
            .pieces
            .range((region, 0)..=(region, u32::MAX))
            .map(|(_, one)| Arc::clone(one))
            .collect()
    }

    /// The regions of which there is a piece.
    pub(super) fn regions(&self) -> Vec<RegionId> {
        let mut found: Vec<_> = self.lock().pieces.keys().map(|(region, _)| *region).collect();
        found.dedup();
        found
    }

    /// Makes a piece of zeros, with all its blocks. One that is there is replaced only at a later epoch than its own. Blocks.
    pub(super) fn create(&self, header: Header, replace: bool) -> Result<(), Status> {
        let key = (header.region, header.piece);
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let state = self.lock();
            match state.pieces.get(&key) {
                Some(_) if !replace => return Err(Status::EXISTS),
                // Whoever asks goes by a record that has changed since: this piece may be in sync by now.
                Some(there) if there.header().epoch >= header.epoch => return Err(Status::EPOCH),
                _ => {}
            }
            if state.pieces.len() >= PIECES_MAX {
                return Err(Status::LIMIT);
            }
        }
        self.remove(&[key]);
        let total = header.len.checked_add(HEADER_LEN).ok_or(Status::NO_SPACE)?;
        // The room is taken before the blocks are, so that two that are made at once do not both get the last of it.
        {
            let mut state = self.lock();
            let used = state.used.checked_add(total).ok_or(Status::NO_SPACE)?;
            if used > self.capacity {
                return Err(Status::NO_SPACE);
            }
            state.used = used;
        }
        match self.make(header, total) {
            Ok(file) => {
                let piece = Piece { file, header: Mutex::new(header), medium: OnceLock::new() };
                let before = self.lock().pieces.insert(key, Arc::new(piece));
                debug_assert!(before.is_none(), "a piece is made once at a time");
                Ok(())
            }
            Err(error) => {
                self.lock().used -= total;
                tracing::warn!(region = %header.region, piece = header.piece, %error, "no piece was made");
                let is_full = error.raw_os_error() == Some(rustix::io::Errno::NOSPC.raw_os_error());
                Err(if is_full { Status::NO_SPACE } else { Status::HOST })
            }
        }
    }

    fn make(&self, header: Header, total: u64) -> io::Result<File> {
        let path = self.path(header.region, header.piece);
        let beside = path.with_extension(UNFINISHED);
        let made = (|| {
            let file =
                File::options().create(true).truncate(true).read(true).write(true).open(&beside)?;
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, total)?;
            file.write_all_at(&header.emit(), 0)?;
            file.sync_all()?;
            fs::rename(&beside, &path)?;
            File::open(&self.directory)?.sync_all()?;
            Ok(file)
        })();
        if made.is_err() {
            let _ = fs::remove_file(&beside);
        }
        made
    }

    /// Syncs all pieces. Blocks.
    ///
    /// # Durability
    ///
    /// On `Ok` the bytes that were written before survive a loss of power, as far as the directory's class does.
    pub(super) fn sync(&self) -> io::Result<()> {
        let pieces: Vec<_> = self.lock().pieces.values().map(Arc::clone).collect();
        pieces.iter().try_for_each(|piece| piece.file.sync_all())
    }

    /// Removes pieces that are still the ones that are meant.
    pub(super) fn remove_these(&self, pieces: &[Arc<Piece>]) -> usize {
        let keys: Vec<_> = pieces
            .iter()
            .map(|piece| (piece.header(), piece))
            .map(|(header, piece)| ((header.region, header.piece), piece))
            .filter(|(key, piece)| {
                self.get(key.0, key.1).is_some_and(|now| Arc::ptr_eq(&now, piece))
            })
            .map(|(key, _)| key)
            .collect();
        self.remove(&keys);
        keys.len()
    }

    /// Removes pieces; those that are not there are no error. Mapped bytes stay until their mappings end.
    pub(super) fn remove(&self, keys: &[(RegionId, u32)]) {
        for key in keys {
            let Some(piece) = self.lock().pieces.remove(key) else { continue };
            let path = self.path(key.0, key.1);
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "a piece was not removed");
            }
            self.lock().used -= piece.header().len + HEADER_LEN;
        }
    }

    fn path(&self, region: RegionId, piece: u32) -> PathBuf {
        self.directory.join(format!("{region}.{piece:04x}"))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(path: &Path) -> io::Result<(File, Header)> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut bytes = [0; USED];
    file.read_exact_at(&mut bytes, 0)?;
    let header = Header::parse(&bytes).ok_or(io::ErrorKind::InvalidData)?;
    let is_whole = file.metadata()?.len() == header.len + HEADER_LEN;
    let named = format!("{}.{:04x}", header.region, header.piece);
    let is_named = path.file_name().is_some_and(|name| name.to_string_lossy() == named);
    if is_whole && is_named { Ok((file, header)) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Whether a file has the name under which a daemon makes a piece. A file that merely ends so is somebody else's.
fn is_unfinished(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let region = name.and_then(|name| name.strip_suffix(UNFINISHED)?.strip_suffix('.'));
    region.is_some_and(|region| {
        let number = u64::from_str_radix(region, 16).map(RegionId);
        number.is_ok_and(|number| number.to_string() == region)
    })
}

fn class_of(directory: &Path) -> io::Result<DurabilityClass> {
    let path = directory.join(".class");
    let file = File::options().create(true).truncate(true).read(true).write(true).open(&path)?;
    file.set_len(HEADER_LEN)?;
    let class = pmem::classify(&file).map_err(io::Error::other);
    fs::remove_file(&path)?;
    class
}

fn available(directory: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(directory)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Whether a file was not read for a reason that passes, or that holds for others too: that is no damage of the file.
fn is_of_host(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    errno.is_some_and(|errno| {
        use rustix::io::Errno;
        [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::ACCESS, Errno::PERM].contains(&errno)
    })
}

/// How the file of a piece ends that is being made.
const UNFINISHED: &str = "new";
/// Where the bytes of a piece begin.
pub(super) const HEADER_LEN: u64 = 4096;
/// Bytes of a header that mean something.
pub const USED: usize = 52;
/// Pieces of one daemon at most.
pub const PIECES_MAX: usize = 65_536;
const MAGIC: &[u8; 8] = b"LFPIECE1";
const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header =
        Header { region: RegionId(0xab), piece: 2, len: 10_000, epoch: 3, generation: 1 };

    #[test]
    fn a_header_with_any_bit_changed_is_none() {
        let bytes = HEADER.emit();
        assert_eq!(Header::parse(&bytes), Some(HEADER));
        for at in 0..bytes.len() * 8 {
            let mut changed = bytes;
            changed[at / 8] ^= 1 << (at % 8);
            assert_eq!(Header::parse(&changed), None, "bit {at}");
        }
    }

    #[test]
    fn a_piece_is_replaced_only_by_one_of_a_later_epoch() {
        let directory = tempfile::tempdir().unwrap();
        let pieces = Pieces::open(directory.path(), None).unwrap();
        pieces.create(HEADER, false).unwrap();
        // A rebuild that was paused while another one filled the copy.
        assert_eq!(pieces.create(HEADER, true), Err(Status::EPOCH));
        pieces.create(Header { epoch: 4, ..HEADER }, true).unwrap();
        assert_eq!(pieces.create(HEADER, true), Err(Status::EPOCH));
        assert_eq!(pieces.get(HEADER.region, 2).unwrap().header().epoch, 4);
    }

    #[test]
    fn what_a_killed_daemon_was_making_is_removed_at_the_next_start() {
        let directory = tempfile::tempdir().unwrap();
        let unfinished = directory.path().join(format!("{}.new", HEADER.region));
        fs::write(&unfinished, [0; 5000]).unwrap();
        Pieces::open(directory.path(), None).unwrap();
        assert!(!unfinished.exists());
    }

    #[test]
    fn a_daemon_removes_no_file_that_it_did_not_make() {
        let directory = tempfile::tempdir().unwrap();
        let of_others = [
            "notes.new",
            "0.new",
            "sshd_config.new",
            "00000000000000AB.new",
            "00000000000000ab.new.new",
        ];
        let of_others = of_others.map(|name| directory.path().join(name));
        for path in &of_others {
            fs::write(path, "of somebody else").unwrap();
        }
        Pieces::open(directory.path(), None).unwrap();
        for path in &of_others {
            assert!(path.exists(), "{}", path.display());
        }
    }

    #[test]
    fn a_piece_that_was_replaced_is_not_removed_for_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let pieces = Pieces::open(directory.path(), None).unwrap();
        pieces.create(HEADER, false).unwrap();
        let before = pieces.of(HEADER.region);
        pieces.create(Header { epoch: 4, ..HEADER }, true).unwrap();
        assert_eq!(pieces.remove_these(&before), 0);
        assert_eq!(pieces.remove_these(&pieces.of(HEADER.region)), 1);
        assert!(pieces.of(HEADER.region).is_empty());
    }

    #[test]
    fn pieces_epochs_and_room_are_as_before_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let pieces = Pieces::open(directory.path(), Some(20_000)).unwrap();
        pieces.create(HEADER, false).unwrap();
        assert_eq!(pieces.create(HEADER, false), Err(Status::EXISTS));
        assert_eq!(pieces.create(Header { piece: 3, ..HEADER }, false), Err(Status::NO_SPACE));
        pieces.get(HEADER.region, 2).unwrap().raise(9, 0).unwrap();
        let free = pieces.free();
        drop(pieces);
        let pieces = Pieces::open(directory.path(), Some(20_000)).unwrap();
        let header = pieces.get(HEADER.region, 2).unwrap().header();
        assert_eq!(header, Header { epoch: 9, ..HEADER });
        assert_eq!(pieces.free(), free);
        pieces.remove(&[(HEADER.region, 2)]);
        assert_eq!((pieces.of(HEADER.region).len(), pieces.free()), (0, 20_000));
    }
}
