//! Directories below a root, and the names in them.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::path::Arg;

use crate::error::ShareError;
use crate::lookup::open_beneath;

pub(super) fn open_directory(root: &OwnedFd, path: impl Arg + Copy) -> Result<OwnedFd, ShareError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    Ok(open_beneath(root, path, flags, Mode::empty())?)
}

// Names as they are: a client makes only Unicode ones, and `mv` gives a file that has streams any name.
pub(super) fn entries(directory: impl AsFd) -> Result<Vec<CString>, ShareError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(directory, ".", flags, Mode::empty())?;
    let mut names = Vec::new();
    let mut stream = rustix::fs::Dir::new(fd)?;
    while let Some(entry) = stream.read() {
        let entry = entry?;
        let name = entry.file_name();
        if ![c".", c".."].contains(&name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}
