//! The place of a share on this machine: whether it can be read, which files it contains, and whether another directory
//! has its name.

use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};

use super::Share;
use super::inode::{self, FileKey};

impl Share {
    /// The directory, as configured.
    pub fn path(&self) -> &Path {
        &self.fixed.path
    }

    /// The path of the log of persistent opens.
    pub fn persistent_opens(&self) -> Option<&Path> {
        self.fixed.persistent_opens.as_deref()
    }

    /// Where the bytes are that the share shows beside its own files.
    pub fn shown_sources(&self) -> impl Iterator<Item = &Path> {
        self.fixed.shown.iter().map(|(_, source)| source.as_path())
    }

    /// Whether a file of this machine, or a new file of that name, lies in the share's directory.
    ///
    /// Directories are compared and not names, so a link to the share's top, or another mount of it, is detected.
    /// A part of the share that is mounted elsewhere too is not.
    pub fn contains(&self, path: &Path) -> bool {
        let named = |above: &Path| match above.as_os_str().is_empty() {
            true => std::fs::canonicalize(".").ok(),
            false => std::fs::canonicalize(above).ok(),
        };
        // A link is replaced in its own directory and read at its target. A directory that is not there yet is made with
        // the file.
        let made = path.ancestors().skip(1).find_map(named);
        let read = std::fs::canonicalize(path).ok();
        // A link to nothing yet has its file made where it leads.
        let target = basics::place_of_file(path).ok();
        let target = target.iter().flat_map(|target| target.ancestors().skip(1)).find_map(named);
        let is_top = |directory: &Path| key_of(directory) == Some(self.root_key);
        made.iter().chain(&read).chain(&target).any(|place| place.ancestors().any(is_top))
    }

    /// Whether the share's directory is this one or lies below it. A directory that the server may not search
    /// ends the search.
    pub fn lies_in(&self, directory: FileKey) -> bool {
        let flags = OFlags::PATH | DIRECTORY;
        let mut at = rustix::fs::openat(&self.root, ".", flags, Mode::empty());
        let mut below = None;
        for _ in 0..DEPTH_MAX {
            let Ok(here) = at else { return false };
            let Ok((key, _)) = inode::identify(&here) else { return false };
            if key == directory {
                return true;
            }
            // The root directory is its own parent.
            if below.replace(key) == Some(key) {
                return false;
            }
            at = rustix::fs::openat(&here, "..", flags, Mode::empty());
        }
        false
    }

    /// Whether another directory, or none, has the name by which the share's directory was opened.
    pub fn has_moved(&self) -> bool {
        key_of(self.path()) != Some(self.root_key)
    }
}

fn key_of(path: &Path) -> Option<FileKey> {
    let stat = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS).ok()?;
    Some(inode::key(&stat))
}

/// Nested directories: a path of Linux has 4,096 characters, every other of which is a separator.
const DEPTH_MAX: usize = 2_048;
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
