//! The file system, mounted, and the threads that serve it.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;

use block::BlockDevice;
use fuser::{Config, MountOption, Session, SessionACL};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use tracing::warn;

use crate::files::{Files, NAME_MAX, Named};
use crate::loop_device::LoopDevice;

/// How devices are mounted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Options {
    /// Attach a loop device to each file.
    pub loops: bool,
}

/// Devices that are files of a directory until this is dropped. Only the user that mounted it sees the directory's files.
#[derive(Debug)]
pub struct Mounted {
    at: PathBuf,
    names: Vec<String>,
    loops: Vec<LoopDevice>,
    serving: Option<JoinHandle<io::Result<()>>>,
}

/// Why devices cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// A name is empty, longer than 255 bytes, `.`, `..`, or has a slash or a zero.
    #[error("{0:?} cannot be the name of a file")]
    ConfigName(String),
    /// Two devices have one name.
    #[error("two devices are called {0:?}")]
    ConfigTwice(String),
    /// The directory is not there, or the user may not mount on it.
    #[error("cannot mount on {}: {error}", path.display())]
    Mount {
        /// The directory.
        path: PathBuf,
        /// What the kernel, or fusermount3, says.
        error: io::Error,
    },
    /// A loop device cannot be made.
    #[error("cannot attach a loop device to {}: {error}", path.display())]
    Loop {
        /// The file that it was for.
        path: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
}

impl Mounted {
    /// Mounts the devices on the directory `at`, each as a file of its name, and serves them on threads of its own. What a
    /// server that was killed has left mounted there is unmounted first.
    ///
    /// # Errors
    ///
    /// See [`MountError`]; nothing is mounted then.
    pub fn new(
        devices: Vec<(String, Arc<dyn BlockDevice>)>,
        at: &Path,
        options: Options,
    ) -> Result<Self, MountError> {
        let mut files: Vec<Named> = Vec::with_capacity(devices.len());
        for (name, device) in devices {
            let is_path = matches!(&*name, "" | "." | "..") || name.contains(['/', '\0']);
            if is_path || name.len() > NAME_MAX as usize {
                return Err(MountError::ConfigName(name));
            }
            if files.iter().any(|other| other.name == name) {
                return Err(MountError::ConfigTwice(name));
            }
            files.push(Named::new(&name, device));
        }
        let names: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
        let facts: Vec<_> = files.iter().map(|file| (file.block, file.device.geometry())).collect();
        let failed = |error| MountError::Mount { path: at.to_owned(), error };
        clear(at).map_err(failed)?;
        let threads = if facts.iter().any(|(_, one)| one.may_wait) { WAITING } else { AT_ONCE };
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("landfast".to_owned()),
            MountOption::Subtype("landfast".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoDev,
            MountOption::NoSuid,
        ];
        config.acl = SessionACL::Owner;
        config.n_threads = Some(threads);
        config.clone_fd = true;
        let session = Session::new(Files::new(files), at, &config).map_err(failed)?;
        let serve = move || {
            does_not_wait_for_itself();
            session.run()
        };
        let serving = std::thread::Builder::new().name("fuse".to_owned()).spawn(serve);
        let mut mounted = Self {
            at: at.to_owned(),
            names,
            loops: Vec::new(),
            serving: Some(serving.map_err(failed)?),
        };
        if options.loops {
            for (path, (block, geometry)) in mounted.paths().into_iter().zip(facts) {
                let attached = open(&path, geometry.is_read_only)
                    .and_then(|file| LoopDevice::attach(&file, block, geometry.is_read_only));
                let attached = attached.map_err(|error| MountError::Loop { path, error })?;
                mounted.loops.push(attached);
            }
        }
        Ok(mounted)
    }

    /// The files, in the order of the devices.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.names.iter().map(|name| self.at.join(name)).collect()
    }

    /// The loop devices, in the order of the devices.
    pub fn loops(&self) -> impl Iterator<Item = &Path> {
        self.loops.iter().map(LoopDevice::path)
    }

    /// Gives the loop devices up and unmounts the files, if nobody uses them; `false`: somebody does, who is served on.
    ///
    /// # Errors
    ///
    /// The kernel refuses for another reason.
    pub fn try_end(&mut self) -> io::Result<bool> {
        // A loop device goes with its last user, and its file is in use until then.
        self.loops.clear();
        if self.serving.is_none() {
            return Ok(true);
        }
        match unmount(&self.at, UnmountFlags::empty()) {
            Err(Errno::BUSY) => return Ok(false),
            // Somebody else has unmounted it.
            Err(Errno::INVAL) | Ok(()) => {}
            Err(errno) => return Err(errno.into()),
        }
        self.join();
        Ok(true)
    }

    fn join(&mut self) {
        let served = self.serving.take().map(JoinHandle::join);
        if let Some(Ok(Err(error))) = served {
            warn!(%error, "the file system ended");
        }
    }
}

impl Drop for Mounted {
    // Whoever uses a file still finds it gone: the directory at least can be used again.
    fn drop(&mut self) {
        if matches!(self.try_end(), Ok(true)) {
            return;
        }
        if let Err(error) = unmount(&self.at, UnmountFlags::DETACH) {
            warn!(path = %self.at.display(), %error, "stays mounted");
        }
    }
}

fn open(path: &Path, is_read_only: bool) -> io::Result<File> {
    OpenOptions::new().read(true).write(!is_read_only).open(path)
}

// Takes away what a server that is no more has left mounted.
fn clear(at: &Path) -> io::Result<()> {
    match std::fs::metadata(at) {
        Ok(facts) if !facts.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
        Err(error) if error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) => {
            warn!(path = %at.display(), "unmounting what a server that was killed has left");
            Ok(unmount(at, UnmountFlags::DETACH)?)
        }
        found => found.map(drop),
    }
}

// Other users than root unmount by a program of theirs that may.
fn unmount(at: &Path, flags: UnmountFlags) -> Result<(), Errno> {
    let refused = match rustix::mount::unmount(at, flags) {
        Err(Errno::PERM) => Errno::PERM,
        done => return done,
    };
    let lazy = if flags.contains(UnmountFlags::DETACH) { &["-z"][..] } else { &[] };
    let by = |program: &str| Command::new(program).arg("-u").args(lazy).arg(at).status();
    match by("fusermount3").or_else(|_| by("fusermount")) {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Errno::BUSY),
        Err(_) => Err(refused),
    }
}

// The kernel may write pages back through this thread's file system when it needs memory: it must not wait for that
// itself. Inherited by the threads that this one starts. Refused to ordinary users, who can attach no loop device either.
#[allow(unsafe_code)]
fn does_not_wait_for_itself() {
    // SAFETY: this sets a flag of the calling thread and touches no memory.
    let _ = unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) };
}

/// Linux `uapi/linux/prctl.h`.
const PR_SET_IO_FLUSHER: libc::c_int = 57;
/// Threads that serve devices whose requests may wait for a disk.
const WAITING: usize = 8;
/// Threads that serve devices in memory.
const AT_ONCE: usize = 2;
