//! The file system: a directory, and a file for each device.
//!
//! Spec: Linux `Documentation/filesystems/fuse`, fuse(4), lseek(2), fallocate(2).

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use block::{AnyAlignment, BlockDevice, BlockError, State, Survives, Zeroing};
use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

/// A device under a file's name.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) device: AnyAlignment<Arc<dyn BlockDevice>>,
    /// Bytes of the device's own blocks.
    pub(crate) block: u32,
}

impl Named {
    pub(crate) fn new(name: &str, device: Arc<dyn BlockDevice>) -> Self {
        let block = device.geometry().block;
        Self { name: name.to_owned(), device: AnyAlignment::new(device), block }
    }
}

/// The directory of all of them. File `n` is inode `n + 2`, the directory inode 1.
#[derive(Debug)]
pub(crate) struct Files {
    files: Vec<Named>,
    owner: (u32, u32),
    began: SystemTime,
}

impl Files {
    pub(crate) fn new(files: Vec<Named>) -> Self {
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Self { files, owner, began: SystemTime::now() }
    }

    fn file(&self, inode: INodeNo) -> Result<&Named, Errno> {
        let at = u64::from(inode).checked_sub(FIRST).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.files.get(at)).ok_or(Errno::EISDIR)
    }

    fn facts(&self, inode: INodeNo) -> Result<FileAttr, Errno> {
        let (kind, perm, nlink, size, block) = match u64::from(inode) {
            ROOT => (FileType::Directory, 0o500, 2, 0, 4096),
            _ => {
                let file = self.file(inode).map_err(|_| Errno::ENOENT)?;
                let geometry = file.device.geometry();
                let perm = if geometry.is_read_only { 0o400 } else { 0o600 };
                (FileType::RegularFile, perm, 1, geometry.size, file.block)
            }
        };
        let at = self.began;
        Ok(FileAttr {
            ino: inode,
            size,
            blocks: size.div_ceil(512),
            atime: at,
            mtime: at,
            ctime: at,
            crtime: at,
            kind,
            perm,
            nlink,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: block,
            flags: 0,
        })
    }

    fn read(&self, inode: INodeNo, offset: u64, len: u32) -> Result<Vec<u8>, Errno> {
        let file = self.file(inode)?;
        let left = file.device.geometry().size.saturating_sub(offset);
        // Reads end at the end of a file.
        let len = u64::from(len).min(left);
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| Errno::EINVAL)?];
        file.device.read(offset, &mut bytes).map_err(number)?;
        Ok(bytes)
    }

    fn write(
        &self,
        inode: INodeNo,
        offset: u64,
        bytes: &[u8],
        survives: Survives,
    ) -> Result<u32, Errno> {
        let file = self.file(inode)?;
        let len = u32::try_from(bytes.len()).map_err(|_| Errno::EINVAL)?;
        file.device.write(offset, bytes, survives).map_err(number)?;
        Ok(len)
    }

    fn fallocate(&self, inode: INodeNo, offset: u64, len: u64, mode: i32) -> Result<(), Errno> {
        let device = &self.file(inode)?.device;
        let keeps = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        match mode & !libc::FALLOC_FL_KEEP_SIZE {
            libc::FALLOC_FL_PUNCH_HOLE if keeps => {
                device.trim(offset, len, Survives::Placed).map_err(number)
            }
            libc::FALLOC_FL_ZERO_RANGE => device
                .write_zeroes(offset, len, Zeroing::KeepSpace, Survives::Placed)
                .map_err(number),
            // Every block of a device has its place, as far as the device can give it one; none is beyond its end.
            0 => match offset.checked_add(len) {
                Some(end) if end <= device.geometry().size => Ok(()),
                _ => Err(Errno::ENOSPC),
            },
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    // Where the next data or hole at or behind `offset` begins.
    fn seek(&self, inode: INodeNo, offset: u64, whence: i32) -> Result<u64, Errno> {
        let device = &self.file(inode)?.device;
        let size = device.geometry().size;
        let wants_hole = match whence {
            libc::SEEK_DATA => false,
            libc::SEEK_HOLE => true,
            _ => return Err(Errno::EINVAL),
        };
        let mut at = offset;
        while at < size {
            let extent = device.status(at, size - at).map_err(number)?;
            if (extent.state == State::Hole) == wants_hole {
                return Ok(at);
            }
            at += extent.len;
        }
        // The end of a file is a hole.
        if wants_hole && offset < size { Ok(size) } else { Err(Errno::ENXIO) }
    }
}

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Several requests of one reader or writer at once, as a loop device makes them.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let is_it = |file: &Named| name == file.name.as_str();
        let at = self.files.iter().position(is_it).filter(|_| u64::from(parent) == ROOT);
        let facts = at.ok_or(Errno::ENOENT).and_then(|at| self.facts(INodeNo(FIRST + at as u64)));
        match facts {
            Ok(facts) => reply.entry(&FOR_GOOD, &facts, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.facts(inode) {
            Ok(facts) => reply.attr(&AGAIN, &facts),
            Err(errno) => reply.error(errno),
        }
    }

    // A device keeps its size, its owner and its rights; times are set by programs that copy images, in vain.
    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let facts = self.facts(inode).and_then(|facts| {
            let changes = mode.is_some() || uid.is_some() || gid.is_some();
            let resizes = size.is_some_and(|size| size != facts.size);
            if changes || resizes { Err(Errno::EPERM) } else { Ok(facts) }
        });
        match facts {
            Ok(facts) => reply.attr(&AGAIN, &facts),
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.file(inode) {
            Ok(file)
                if file.device.geometry().is_read_only
                    && flags.acc_mode() != OpenAccMode::O_RDONLY =>
            {
                reply.error(Errno::EROFS);
            }
            // No pages of the kernel's: they could differ from the device.
            Ok(_) => reply.opened(
                FileHandle(0),
                FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
            ),
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.read(inode, offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // O_SYNC has the bit of O_DSYNC.
        let survives = match flags.0 & libc::O_DSYNC {
            0 => Survives::Placed,
            _ => Survives::Durable,
        };
        match self.write(inode, offset, data, survives) {
            Ok(len) => reply.written(len),
            Err(errno) => reply.error(errno),
        }
    }

    // A descriptor is closed: POSIX asks for nothing.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer(reply, self.file(inode).and_then(|file| file.device.flush().map_err(number)));
    }

    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        answer(reply, self.fallocate(inode, offset, length, mode));
    }

    fn lseek(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL);
        let found = offset.and_then(|offset| self.seek(inode, offset, whence));
        match found.map(i64::try_from) {
            Ok(Ok(at)) => reply.offset(at),
            Ok(Err(_)) => reply.error(Errno::EOVERFLOW),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if u64::from(inode) != ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let own = [".", ".."].map(|name| (ROOT, FileType::Directory, name));
        let files = self.files.iter().zip(FIRST..);
        let files = files.map(|(file, inode)| (inode, FileType::RegularFile, file.name.as_str()));
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (next, (inode, kind, name)) in (1..).zip(own.into_iter().chain(files)).skip(from) {
            if reply.add(INodeNo(inode), next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    // Nothing has extended attributes; a kernel that hears so asks no more.
    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    // `default_permissions`: the kernel decides by the modes.
    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let bytes: u64 = self.files.iter().map(|file| file.device.geometry().size).sum();
        reply.statfs(bytes / 4096, 0, 0, self.files.len() as u64, 0, 4096, NAME_MAX, 4096);
    }
}

fn answer(reply: ReplyEmpty, outcome: Result<(), Errno>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn number(error: BlockError) -> Errno {
    Errno::from_i32(error.errno())
}

/// Requests that the kernel has under way without a caller that waits.
const BACKGROUND: u16 = 64;
const ROOT: u64 = 1;
/// The inode of the first file.
const FIRST: u64 = 2;
/// Names never change.
const FOR_GOOD: Duration = Duration::from_secs(3_600);
/// A device that has grown is seen so.
const AGAIN: Duration = Duration::from_secs(1);
/// Bytes of a name.
pub(crate) const NAME_MAX: u32 = 255;
