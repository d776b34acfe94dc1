//! One program of a run: its process, and what its descriptors stand for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, OFlags};

use crate::failure::Failure;
use crate::net::Side;

/// A process and what is known of it.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) pid: Pid,
    pub(crate) handle: OwnedFd,
    pub(crate) memory: Rc<File>,
    /// Where its time is written.
    pub(crate) clock: u64,
    /// Its TCP sockets.
    pub(crate) sockets: BTreeMap<i32, Socket>,
    /// This process's copies of descriptors that its threads wait for.
    pub(crate) copies: BTreeMap<i32, OwnedFd>,
    /// Descriptors that are files, of which no read waits.
    files: BTreeSet<i32>,
    /// The deadline of a call that is made again.
    pub(crate) deadlines: BTreeMap<Pid, Option<u64>>,
    /// Its files are on a disk, which forgets what is not flushed.
    pub(crate) has_disk: bool,
    /// Its threads get no processor before this time.
    pub(crate) paused_until: u64,
    /// One of its threads has asked for the end of all.
    pub(crate) is_ending: bool,
    pub(crate) has_ended: bool,
    /// Its end has been told.
    pub(crate) is_told: bool,
    /// What it exited with; none where a signal ended it.
    pub(crate) status: Option<i32>,
}

/// What a TCP socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Socket {
    Fresh,
    /// Has dialled where nobody listens.
    Refused,
    /// Listens at this port.
    Listens(u16),
    /// A side of a connection.
    Connected(usize, Side),
}

impl Program {
    pub(crate) fn new(pid: Pid, handle: OwnedFd, memory: Rc<File>, clock: u64) -> Self {
        let (sockets, copies, deadlines) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (is_ending, has_ended, is_told) = (false, false, false);
        let files = BTreeSet::new();
        Self {
            pid,
            handle,
            memory,
            clock,
            sockets,
            copies,
            files,
            deadlines,
            has_disk: false,
            paused_until: 0,
            is_ending,
            has_ended,
            is_told,
            status: None,
        }
    }

    /// Copies a descriptor of the program, for questions to the kernel about it.
    pub(crate) fn copy(&mut self, fd: i32) -> rustix::io::Result<()> {
        if !self.copies.contains_key(&fd) {
            let copy = rustix::process::pidfd_getfd(
                &self.handle,
                fd,
                rustix::process::PidfdGetfdFlags::empty(),
            )?;
            self.copies.insert(fd, copy);
        }
        Ok(())
    }

    /// Whether a read of `fd` may let its thread wait in the kernel.
    pub(crate) fn may_wait(&mut self, fd: i32) -> Result<bool, Failure> {
        if self.files.contains(&fd) || self.copy(fd).is_err() {
            return Ok(false);
        }
        let copy = &self.copies[&fd];
        let kind = FileType::from_raw_mode(rustix::fs::fstat(copy)?.st_mode);
        if matches!(kind, FileType::RegularFile | FileType::Directory | FileType::CharacterDevice) {
            self.copies.remove(&fd);
            self.files.insert(fd);
            return Ok(false);
        }
        Ok(!rustix::fs::fcntl_getfl(copy)?.contains(OFlags::NONBLOCK))
    }

    /// Whether one of the descriptors has something now.
    pub(crate) fn is_ready(&mut self, of: &[(i32, PollFlags)]) -> Result<bool, Failure> {
        for (fd, _) in of {
            // A descriptor that is none has something to say: the kernel says it.
            if self.copy(*fd).is_err() {
                return Ok(true);
            }
        }
        let mut polled: Vec<_> =
            of.iter().map(|(fd, what)| PollFd::new(&self.copies[fd], *what)).collect();
        Ok(rustix::event::poll(&mut polled, Some(&Timespec::default()))? > 0)
    }

    /// A descriptor is about to be closed.
    pub(crate) fn forget(&mut self, fd: i32) {
        self.copies.remove(&fd);
        self.files.remove(&fd);
        self.sockets.remove(&fd);
    }
}
