//! Snapshots of a member's volumes that survive crashes: what the volumes were while copies make the volumes themselves a
//! mixture of moments.
//!
//! ```text
//!   keep:   NAME.making/{volume-0.kept, .., facts}, all durable -- rename --> NAME/     from here on the snapshot is there
//!   drop:   NAME/ -- rename --> NAME.dropping/ -- files removed --> gone                from the rename on it is not
//! ```
//!
//! A volume that is a file of btrfs or XFS is cloned: the clone shares the file's blocks until one of the two changes.
//! Of any other volume the blocks are copied before they change ([`Kept`]). [`format`] has the byte map.

pub mod format;
mod kept;
#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::{BlockDevice, FileDevice};
use log::Lsn;
use rustix::io::Errno;

pub use self::format::{Facts, How, KEPT_GRANULE, VolumeFacts};
pub use self::kept::{BATCH_MAX, KeepError, Kept};
use crate::format::{Extent, VOLUMES_MAX};
use crate::names::GroupId;

/// The directory in which a member keeps snapshots. One program at a time uses it.
#[derive(Debug)]
pub struct Snapshots {
    directory: PathBuf,
    map: pmem::OpenOptions,
}

/// A volume of which a snapshot is made.
#[derive(Debug)]
pub struct Source<'f> {
    /// The volume.
    pub device: Arc<dyn BlockDevice>,
    /// The file of which the device is the plain bytes, to be cloned if its file system can; `None`: blocks are kept.
    pub file: Option<&'f File>,
}

/// What a snapshot is made with.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The group of the volumes.
    pub group: GroupId,
    /// Everything below this is in the volumes, and nothing else.
    pub at: Lsn,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Random.
    pub id: u64,
    /// Bytes of changed blocks of each volume that are kept at most.
    pub bytes_max: u64,
}

/// A snapshot that is open.
#[derive(Debug)]
pub struct Snapshot {
    facts: Facts,
    volumes: Vec<Opened>,
}

#[derive(Debug)]
enum Opened {
    Clone(Arc<dyn BlockDevice>),
    Kept(Arc<Kept>),
}

/// Why a snapshot cannot be made, found or dropped.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The name is not one of 1 to 100 letters, digits, `.`, `-` and `_`, or begins with `.`.
    #[error("{0:?} cannot be the name of a snapshot")]
    ConfigName(String),
    /// A snapshot of the name exists.
    #[error("a snapshot named {0:?} exists")]
    ConfigExists(String),
    /// There is no snapshot of the name.
    #[error("there is no snapshot named {0:?}")]
    ConfigUnknown(String),
    /// The snapshot has other volumes than those given.
    #[error("the snapshot is of {kept} volumes, not of {found}")]
    ConfigVolumes {
        /// Volumes of the snapshot.
        kept: usize,
        /// Volumes that were given.
        found: usize,
    },
    /// The facts of the snapshot are damaged.
    #[error("the facts of the snapshot at {} are damaged", .0.display())]
    MediaFacts(PathBuf),
    /// Blocks of a volume cannot be kept.
    #[error("volume {volume}: {error}")]
    Volume {
        /// The volume.
        volume: usize,
        /// Why.
        error: KeepError,
    },
    /// A file cannot be mapped.
    #[error("{}: {error}", path.display())]
    Map {
        /// The file.
        path: PathBuf,
        /// Why.
        error: pmem::MapError,
    },
    /// The operating system refused.
    #[error("{}: {error}", path.display())]
    MediaFile {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl Snapshots {
    /// Uses `directory`, and removes what a crash has left there half made or half dropped.
    ///
    /// # Errors
    ///
    /// The directory cannot be read or changed.
    pub fn open(directory: &Path, map: pmem::OpenOptions) -> Result<Self, SnapshotError> {
        let snapshots = Self { directory: directory.to_owned(), map };
        for name in snapshots.names()? {
            if name.ends_with(MAKING) || name.ends_with(DROPPING) {
                let path = directory.join(&name);
                fs::remove_dir_all(&path).map_err(at(&path))?;
            }
        }
        Ok(snapshots)
    }

    /// The snapshots by name, with their facts.
    ///
    /// # Errors
    ///
    /// The directory cannot be read, or facts are damaged.
    pub fn list(&self) -> Result<Vec<(String, Facts)>, SnapshotError> {
        let is_one = |name: &String| !name.ends_with(MAKING) && !name.ends_with(DROPPING);
        let mut found = Vec::new();
        for name in self.names()?.into_iter().filter(is_one) {
            let facts = self.facts(&name)?;
            found.push((name, facts));
        }
        Ok(found)
    }

    /// Makes a snapshot of `sources`, the group's volumes in order. The caller changes none of them meanwhile.
    ///
    /// # Durability
    ///
    /// *After* `Ok` the snapshot survives a crash, with everything that the volumes hold now. A crash before leaves the snapshot or
    /// none.
    ///
    /// # Errors
    ///
    /// See [`SnapshotError`]; there is no snapshot then.
    pub fn keep(
        &self,
        name: &str,
        moment: Moment,
        sources: &[Source<'_>],
    ) -> Result<Snapshot, SnapshotError> {
        check(name)?;
        let (made, path) =
            (self.directory.join(format!("{name}{MAKING}")), self.directory.join(name));
        if path.exists() {
            return Err(SnapshotError::ConfigExists(name.to_owned()));
        }
        if sources.len() > usize::from(VOLUMES_MAX) {
            let (kept, found) = (usize::from(VOLUMES_MAX), sources.len());
            return Err(SnapshotError::ConfigVolumes { kept, found });
        }
        fs::create_dir(&made).map_err(at(&made))?;
        let filled = self.fill(&made, moment, sources).and_then(|snapshot| {
            fs::rename(&made, &path).map_err(at(&path))?;
            Ok(snapshot)
        });
        let settled = filled.and_then(|snapshot| settle(&self.directory).map(|()| snapshot));
        settled.inspect_err(|_| {
            // What cannot be removed now goes when the directory is opened again, but for a snapshot whose name may
            // or may not survive a crash: it is removed under its last name.
            let _ = fs::remove_dir_all(&made);
            let _ = fs::remove_dir_all(&path);
        })
    }

    /// Opens a snapshot; `bases` are the group's volumes in order.
    ///
    /// # Errors
    ///
    /// See [`SnapshotError`].
    pub fn get(
        &self,
        name: &str,
        bases: &[Arc<dyn BlockDevice>],
    ) -> Result<Snapshot, SnapshotError> {
        let facts = self.facts(name)?;
        if facts.volumes.len() != bases.len() {
            let (kept, found) = (facts.volumes.len(), bases.len());
            return Err(SnapshotError::ConfigVolumes { kept, found });
        }
        let mut volumes = Vec::with_capacity(bases.len());
        for (number, (volume, base)) in facts.volumes.iter().zip(bases).enumerate() {
            let path = file_of(&self.directory.join(name), number, volume.how);
            volumes.push(match volume.how {
                How::Clone => Opened::Clone(clone_device(&path)?),
                How::Kept => {
                    let medium = self.medium(&path, None)?;
                    let number_stored = u32::try_from(number).expect("at most VOLUMES_MAX");
                    let kept = Kept::open(Arc::clone(base), medium, facts.id, number_stored);
                    let failed = |error| SnapshotError::Volume { volume: number, error };
                    Opened::Kept(Arc::new(kept.map_err(failed)?))
                }
            });
        }
        Ok(Snapshot { facts, volumes })
    }

    /// Drops a snapshot. Who has it open reads on, but keeps nothing more.
    ///
    /// # Durability
    ///
    /// *After* `Ok` the snapshot does not come back after a crash, so that the volumes may change without it. After an error
    /// it may.
    ///
    /// # Errors
    ///
    /// See [`SnapshotError`].
    pub fn drop(&self, name: &str) -> Result<(), SnapshotError> {
        check(name)?;
        let (path, dropped) =
            (self.directory.join(name), self.directory.join(format!("{name}{DROPPING}")));
        match fs::rename(&path, &dropped) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(SnapshotError::ConfigUnknown(name.to_owned()));
            }
            renamed => renamed.map_err(at(&path))?,
        }
        settle(&self.directory)?;
        fs::remove_dir_all(&dropped).map_err(at(&dropped))
    }

    fn fill(
        &self,
        directory: &Path,
        moment: Moment,
        sources: &[Source<'_>],
    ) -> Result<Snapshot, SnapshotError> {
        let Moment { group, at: lsn, time_ns, id, bytes_max } = moment;
        let mut facts = Facts { group, at: lsn, time_ns, id, volumes: Vec::new() };
        let mut volumes = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            let failed = |error| SnapshotError::Volume { volume: number, error };
            let flushed = source.device.flush();
            flushed.map_err(|error| failed(KeepError::MediaVolume(error)))?;
            let size = source.device.geometry().size;
            let cloned = file_of(directory, number, How::Clone);
            if let Some(file) = source.file
                && clone(file, &cloned)?
            {
                facts.volumes.push(VolumeFacts { size, how: How::Clone });
                volumes.push(Opened::Clone(clone_device(&cloned)?));
                continue;
            }
            let path = file_of(directory, number, How::Kept);
            let medium = self.medium(&path, Some(Kept::file_len(size, bytes_max)))?;
            let base = Arc::clone(&source.device);
            let number_stored = u32::try_from(number).expect("at most VOLUMES_MAX");
            let kept = Kept::create(base, medium, id, number_stored, bytes_max).map_err(failed)?;
            // Its name and its length; the bytes are durable.
            File::open(&path).and_then(|file| file.sync_all()).map_err(at(&path))?;
            facts.volumes.push(VolumeFacts { size, how: How::Kept });
            volumes.push(Opened::Kept(Arc::new(kept)));
        }
        let path = directory.join(FACTS);
        fs::write(&path, facts.emit()).map_err(at(&path))?;
        File::open(&path).and_then(|file| file.sync_all()).map_err(at(&path))?;
        settle(directory)?;
        Ok(Snapshot { facts, volumes })
    }

    /// A file as a medium; with `len` the file is made.
    fn medium(
        &self,
        path: &Path,
        len: Option<u64>,
    ) -> Result<Arc<dyn pmem::Medium>, SnapshotError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(len.is_some());
        let file = options.open(path).map_err(at(path))?;
        if let Some(len) = len {
            file.set_len(len).map_err(at(path))?;
        }
        let mapped = pmem::length(&file).and_then(|len| pmem::map_file(&file, len, self.map));
        mapped.map_err(|error| SnapshotError::Map { path: path.to_owned(), error })
    }

    fn facts(&self, name: &str) -> Result<Facts, SnapshotError> {
        check(name)?;
        let path = self.directory.join(name).join(FACTS);
        match read_short(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(SnapshotError::ConfigUnknown(name.to_owned()))
            }
            Err(error) => Err(at(&path)(error)),
            Ok(bytes) => Facts::parse(&bytes).ok_or(SnapshotError::MediaFacts(path)),
        }
    }

    /// What is in the directory, in order.
    fn names(&self) -> Result<Vec<String>, SnapshotError> {
        let entries = fs::read_dir(&self.directory).map_err(at(&self.directory))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(at(&self.directory))?;
            let is_directory = entry.file_type().is_ok_and(|it| it.is_dir());
            // Whatever else somebody has put there stays.
            names.extend(entry.file_name().into_string().ok().filter(|name| {
                let base = name.trim_end_matches(MAKING).trim_end_matches(DROPPING);
                is_directory && check(base).is_ok()
            }));
        }
        names.sort();
        Ok(names)
    }
}

impl Snapshot {
    /// Which moment of which volumes it is.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// A volume as it was, for reading. [`crate::overlay::Overlay`] makes it writable.
    pub fn device(&self, volume: u8) -> Option<Arc<dyn BlockDevice>> {
        Some(match self.volumes.get(usize::from(volume))? {
            Opened::Clone(device) => Arc::clone(device),
            Opened::Kept(kept) => Arc::<Kept>::clone(kept),
        })
    }

    /// Keeps what the volumes have in the ranges now. A clone has it already; of a volume that the snapshot does not have
    /// there is nothing to keep. Whoever copies many blocks gives many ranges at once: they share persists.
    ///
    /// # Durability
    ///
    /// As [`Kept::preserve_durably`].
    ///
    /// # Errors
    ///
    /// As [`Kept::preserve_durably`]. The caller then either leaves the volumes as they are or drops the snapshot
    /// ([`Snapshots::drop`]) before it goes on.
    pub fn preserve_durably(&self, extents: &[Extent]) -> Result<(), KeepError> {
        for (number, volume) in (0..).zip(&self.volumes) {
            let Opened::Kept(kept) = volume else { continue };
            let of_volume = extents.iter().filter(|extent| extent.volume == number);
            let ranges: Vec<_> = of_volume.map(|extent| (extent.offset, extent.len)).collect();
            kept.preserve_durably(&ranges)?;
        }
        Ok(())
    }

    /// Bytes that the snapshot has kept.
    pub fn held(&self) -> u64 {
        let held = |volume: &Opened| match volume {
            Opened::Kept(kept) => kept.held().0,
            Opened::Clone(_) => 0,
        };
        self.volumes.iter().map(held).sum()
    }
}

/// Clones a file; `false` where the file system cannot, or the two are not on one.
fn clone(file: &File, path: &Path) -> Result<bool, SnapshotError> {
    let new = File::create_new(path).map_err(at(path))?;
    match rustix::fs::ioctl_ficlone(&new, file) {
        Ok(()) => new.sync_all().map(|()| true).map_err(at(path)),
        // Each of these is said by some file system that cannot clone, or not to there.
        Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY | Errno::NOSYS) => {
            fs::remove_file(path).map(|()| false).map_err(at(path))
        }
        Err(errno) => Err(at(path)(errno.into())),
    }
}

fn clone_device(path: &Path) -> Result<Arc<dyn BlockDevice>, SnapshotError> {
    let file = File::open(path).map_err(at(path))?;
    let opened = FileDevice::new(file).map_err(|error| match error {
        block::OpenFailure::MediaOpen(errno) => io::Error::from_raw_os_error(errno),
        other => io::Error::other(other),
    });
    Ok(Arc::new(opened.map_err(at(path))?))
}

fn read_short(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    File::open(path)?.take(FACTS_LEN_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Makes the names in a directory durable.
fn settle(directory: &Path) -> Result<(), SnapshotError> {
    File::open(directory).and_then(|it| it.sync_all()).map_err(at(directory))
}

fn file_of(directory: &Path, volume: usize, how: How) -> PathBuf {
    directory.join(match how {
        How::Clone => format!("volume-{volume}.clone"),
        How::Kept => format!("volume-{volume}.kept"),
    })
}

fn check(name: &str) -> Result<(), SnapshotError> {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let is_name = (1..=NAME_MAX).contains(&name.len())
        && !name.starts_with('.')
        && ![MAKING, DROPPING].iter().any(|end| name.ends_with(end))
        && name.bytes().all(is_fit);
    is_name.then_some(()).ok_or_else(|| SnapshotError::ConfigName(name.to_owned()))
}

fn at(path: &Path) -> impl Fn(io::Error) -> SnapshotError + use<> {
    let path = path.to_owned();
    move |error| SnapshotError::MediaFile { path: path.clone(), error }
}

const NAME_MAX: usize = 100;
const MAKING: &str = ".making";
const DROPPING: &str = ".dropping";
const FACTS: &str = "facts";
/// The longest file of facts, and a byte that shows a longer one.
const FACTS_LEN_MAX: u64 = 64 + 16 * VOLUMES_MAX as u64 + 8 + 1;
