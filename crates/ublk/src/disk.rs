//! A block device as a disk of the kernel.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use block::BlockDevice;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::control::{Control, DEPTH};
use crate::queue;
use crate::ring::is;
use crate::uapi::{DeviceInfo, STATE_DEAD, STATE_LIVE, STATE_QUIESCED};
use crate::users::{self, User};

/// Which volume a disk is of, so that a disk that was left behind is not given to another volume's bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Identity(u64);

impl Identity {
    /// That of the volume with this name: its path, say.
    pub fn of(name: &[u8]) -> Self {
        // FNV-1a: two volumes of one host differ, and nobody gains by making two that do not.
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        Self(name.iter().fold(0xcbf2_9ce4_8422_2325, step))
    }
}

/// A disk that is served. Dropping it leaves the disk in the kernel, whose requests then wait for the next server.
pub struct Disk {
    control: Control,
    number: u32,
    path: PathBuf,
    was_taken_over: bool,
    queues: Vec<JoinHandle<()>>,
    /// Why the first queue that failed has ended.
    failed: Arc<Mutex<Option<io::Error>>>,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Why a device cannot be a disk.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The kernel has no ublk, or its module is not loaded, or the user may not use it.
    #[error("the kernel's ublk driver cannot be used (modprobe ublk_drv, as root): {0}")]
    ConfigDriver(io::Error),
    /// A server that lives has the disk.
    #[error("/dev/ublkb{number} is served by process {pid}")]
    ConfigInUse {
        /// The disk's number.
        number: u32,
        /// Its server.
        pid: u32,
    },
    /// A server left the disk behind, which was another volume's, or had another size.
    #[error(
        "/dev/ublkb{number} is another volume's, whose server has died: choose another number, or start that one"
    )]
    ConfigForeign {
        /// The disk's number.
        number: u32,
    },
    /// A queue of the disk has ended, and its requests wait.
    #[error(
        "a queue of /dev/ublkb{number} has ended: {error}; its requests wait until a server of the volume is started anew, which takes the disk over"
    )]
    QueueEnded {
        /// The disk's number.
        number: u32,
        /// Why.
        error: io::Error,
    },
    /// The driver refused.
    #[error("cannot {what} /dev/ublkb{number}: {error}")]
    Driver {
        /// What was to be done.
        what: &'static str,
        /// The disk's number.
        number: u32,
        /// What the driver says.
        error: io::Error,
    },
}

impl Disk {
    /// Makes `device` the disk `/dev/ublkbN` of this number, or takes over the one that a server of the same volume left
    /// behind when it died.
    ///
    /// # Durability
    ///
    /// What the kernel's flushes and writes with FUA ask for is asked of the device.
    ///
    /// # Errors
    ///
    /// See [`DiskError`].
    pub fn start(
        device: &Arc<dyn BlockDevice>,
        number: u32,
        identity: Identity,
    ) -> Result<Self, DiskError> {
        let mut control = Control::open(number).map_err(DiskError::ConfigDriver)?;
        let failed = |what| move |error| DiskError::Driver { what, number, error };
        let mut left = control.info().map_err(failed("look for"))?;
        // A server of this volume died before it had shown the disk, or has not been rid of it yet: there is nothing to
        // take over.
        if left.is_some_and(|left| left.state == STATE_DEAD && left.own == identity.0) {
            control.delete().map_err(failed("remove the dead"))?;
            left = None;
        }
        let was_taken_over = left.is_some();
        let info = match left {
            Some(left) => take_over(&mut control, device, left, identity)?,
            None => {
                let cpus = thread::available_parallelism().map_or(1, usize::from);
                let queues = u16::try_from(cpus).unwrap_or(QUEUES_MAX).min(QUEUES_MAX);
                let info = control.add(queues, identity.0).map_err(failed("make"))?;
                control.set_parameters(device.geometry()).map_err(failed("describe"))?;
                info
            }
        };
        let path = PathBuf::from(format!("/dev/ublkb{number}"));
        let failed_queue = Arc::default();
        let mut disk = Self {
            control,
            number,
            path,
            was_taken_over,
            queues: Vec::new(),
            failed: failed_queue,
        };
        let begun = disk.begin(device, info).map_err(failed("serve"));
        let shown = begun.and_then(|()| {
            let shown = match was_taken_over {
                true => disk.control.end_recovery(),
                false => disk.control.start(),
            };
            shown.map_err(failed("show"))
        });
        if let Err(error) = shown {
            // A disk that was taken over is left for the next server.
            if !was_taken_over {
                disk.remove().unwrap_or_else(|error| tracing::warn!(%error, "a disk is left"));
            }
            return Err(error);
        }
        Ok(disk)
    }

    fn begin(&mut self, device: &Arc<dyn BlockDevice>, info: DeviceInfo) -> io::Result<()> {
        // The driver gives it to one opener at a time, who may share it.
        let opened = open_queues(self.number)?;
        for queue in 0..info.queues {
            let file = opened.try_clone()?;
            let (device, depth) = (Arc::clone(device), info.depth);
            let failed = Arc::clone(&self.failed);
            let serve = move || {
                // The panic itself was reported by the thread.
                let mut ends =
                    Ends { failed, error: Some(io::Error::other("its thread panicked")) };
                ends.error = queue::serve(&*device, file, queue, depth).err();
            };
            let name = format!("ublk-{queue}");
            self.queues.push(thread::Builder::new().name(name).spawn(serve)?);
        }
        Ok(())
    }

    /// Its path, as in `/dev/ublkb0`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether an earlier server had left the disk.
    pub fn was_taken_over(&self) -> bool {
        self.was_taken_over
    }

    /// Looks whether all queues are served. Where one is not, the process should end, so that the next server takes the
    /// disk over with all its requests.
    ///
    /// # Errors
    ///
    /// [`DiskError::QueueEnded`], once.
    pub fn check(&self) -> Result<(), DiskError> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        let number = self.number;
        failed.map_or(Ok(()), |error| Err(DiskError::QueueEnded { number, error }))
    }

    /// Ends the disk unless somebody uses it; the first who does, if so: a mounted file system, a device on it, or a process
    /// that has it open, exclusively or not. A process of another namespace whose descriptors this one may not see is not
    /// found unless it has the disk exclusively. What was written before is flushed by whoever had it open.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    pub fn try_end(&mut self) -> Result<Option<User>, DiskError> {
        if let Some(user) = self.user() {
            return Ok(Some(user));
        }
        self.remove()?;
        Ok(None)
    }

    /// The first who uses the disk.
    fn user(&self) -> Option<User> {
        let exclusive = i32::try_from(OFlags::EXCL.bits()).expect("a flag");
        let alone = OpenOptions::new().read(true).custom_flags(exclusive).open(&self.path);
        // Any other failure says that it is gone.
        let is_held = alone.as_ref().is_err_and(|error| is(error, Errno::BUSY));
        // The driver keeps a disk as long as somebody has it open.
        drop(alone);
        let named = users::device_on(&self.path).or_else(|| users::process_with(&self.path));
        named.or_else(|| is_held.then_some(User::Kernel))
    }

    fn remove(&mut self) -> Result<(), DiskError> {
        let number = self.number;
        let failed = |what| move |error| DiskError::Driver { what, number, error };
        self.control.stop().map_err(failed("stop"))?;
        for queue in self.queues.drain(..) {
            // A panic of the thread was reported by the thread.
            let _ = queue.join();
        }
        self.control.delete().map_err(failed("remove"))
    }
}

/// Notes why a queue has ended, however its thread ends.
struct Ends {
    failed: Arc<Mutex<Option<io::Error>>>,
    error: Option<io::Error>,
}

impl Drop for Ends {
    fn drop(&mut self) {
        let Some(error) = self.error.take() else { return };
        tracing::error!(%error, "a queue of the disk has ended");
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// Makes the driver ready to give a disk that was left behind to this process.
fn take_over(
    control: &mut Control,
    device: &Arc<dyn BlockDevice>,
    left: DeviceInfo,
    identity: Identity,
) -> Result<DeviceInfo, DiskError> {
    let number = left.number;
    let failed = |what| move |error| DiskError::Driver { what, number, error };
    let size = control.size().map_err(failed("look at"))?;
    if left.own != identity.0 || size != device.geometry().size / 512 * 512 {
        return Err(DiskError::ConfigForeign { number });
    }
    let is_served = left.state == STATE_LIVE && Path::new(&format!("/proc/{}", left.pid)).exists();
    if is_served && left.pid != std::process::id() {
        return Err(DiskError::ConfigInUse { number, pid: left.pid });
    }
    // The driver notices the end of a server somewhat later.
    let give_up = Instant::now() + PATIENCE;
    loop {
        match control.begin_recovery() {
            Ok(()) => break,
            Err(error) if is(&error, Errno::BUSY) && Instant::now() < give_up => {
                thread::sleep(PAUSE);
            }
            Err(error) => return Err(failed("take over")(error)),
        }
    }
    let info = control.info().map_err(failed("look at"))?.unwrap_or(left);
    debug_assert!(info.state == STATE_QUIESCED, "the driver gives no other");
    Ok(DeviceInfo { depth: info.depth.min(DEPTH), ..info })
}

// The node is made by devtmpfs or udev, which may be a moment behind, and a server that died may have it still.
fn open_queues(number: u32) -> io::Result<File> {
    let path = format!("/dev/ublkc{number}");
    let give_up = Instant::now() + PATIENCE;
    loop {
        match OpenOptions::new().read(true).write(true).open(&path) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ResourceBusy
                ) && Instant::now() < give_up =>
            {
                thread::sleep(PAUSE);
            }
            outcome => return outcome,
        }
    }
}

/// Queues of a disk, each with a thread.
const QUEUES_MAX: u16 = 4;
/// How long the driver may take to notice what has happened.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);
