//! Symbolic links of clients: none leads out of the share, wherever it is moved.
//!
//! A client's own requests never leave the share (`openat2`). Local programs follow a link without the
//! server, so the server checks the target when the link is made, when it or a hard link of it is moved, and
//! when a directory above it is moved up.
//!
//! ```text
//!  target   ../../a/b        goes up 2 directories, and then only down
//!           a/../b           refused: what `..` means behind `a` depends on what `a` is by then
//!           /a, ..., HOME    refused
//!
//!  a link in a directory n steps below the top may go up n
//! ```
//! By induction a program that follows links inside stays inside: it goes up only from the true place of a
//! link, never beyond the top, and down through directories and through links of the same kind. The depth
//! of a directory is counted from its handle, because a path may lead through links. The operator answers
//! for links that local programs make and move.
//!
//! Spec: symlink(7), path_resolution(7).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use basics::ordered::MutexGuard;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::Share;
use super::entry::Entry;
use super::error::ShareError;
use super::inode::{identify, identify_at};
use super::name::{HOME, SharePath};
use crate::lock_order as order;

/// Keeps links and directories in place until it is dropped.
pub(super) type Linking<'a> = Option<MutexGuard<'a, (), order::Links>>;

impl Share {
    /// Whether a link to `target` may be made in `directory`.
    pub(super) fn check_new_link(
        &self,
        directory: &OwnedFd,
        target: &str,
    ) -> Result<Linking<'_>, ShareError> {
        let linking = self.linking();
        let rise = rise_of_new(target).ok_or(ShareError::AccessDenied)?;
        if rise > self.depth_of(directory)? {
            return Err(ShareError::AccessDenied);
        }
        Ok(Some(linking))
    }

    /// Whether an object opened in one directory may be moved to another.
    pub(super) fn check_move(
        &self,
        moved: &OwnedFd,
        kind: FileType,
        from: &OwnedFd,
        to: &OwnedFd,
    ) -> Result<Linking<'_>, ShareError> {
        match kind {
            FileType::Symlink => {
                let linking = self.linking();
                self.check_there(&target_of(moved.as_fd())?, to)?;
                Ok(Some(linking))
            }
            FileType::Directory => {
                let linking = self.linking();
                let depth = self.depth_of(to)?;
                if depth < self.depth_of(from)? {
                    check_below(open_below(moved.as_fd(), ".")?, depth + 1)?;
                }
                Ok(Some(linking))
            }
            _ => Ok(None),
        }
    }

    /// Whether an open file, if it is a link, may have a name in a directory.
    pub(super) fn check_copy_of_link(
        &self,
        entry: &Entry,
        to: &OwnedFd,
    ) -> Result<Linking<'_>, ShareError> {
        if identify(entry.as_fd())?.1 != FileType::Symlink {
            return Ok(None);
        }
        let linking = self.linking();
        self.check_there(&target_of(entry.as_fd())?, to)?;
        Ok(Some(linking))
    }

    fn check_there(&self, target: &[u8], directory: &OwnedFd) -> Result<(), ShareError> {
        match leads_out(target, self.depth_of(directory)?) {
            true => Err(ShareError::AccessDenied),
            false => Ok(()),
        }
    }

    // How many directories lie between a directory and the top.
    fn depth_of(&self, directory: &OwnedFd) -> Result<usize, ShareError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = rustix::fs::openat(directory, ".", flags, Mode::empty())?;
        for depth in 0..DEPTH_MAX {
            if identify(&at)?.0 == self.root_key {
                return Ok(depth);
            }
            at = rustix::fs::openat(&at, "..", flags, Mode::empty())?;
        }
        // A local user moved the directory out of the share.
        Err(ShareError::AccessDenied)
    }

    fn linking(&self) -> MutexGuard<'_, (), order::Links> {
        self.links.lock()
    }
}

/// Whether the target of a link at a known path, whoever made it, is inside the share, as written.
pub(super) fn leads_inside(path: &SharePath, target: &str) -> bool {
    let depth = path.parent().components().count();
    !target.is_empty() && !target.starts_with('/') && !leads_out(target.as_bytes(), depth)
}

// How many directories a new link goes up; `None` if it may not be made.
fn rise_of_new(target: &str) -> Option<usize> {
    let mut rise = 0;
    let mut is_down = false;
    for component in target.split('/') {
        match component {
            "" | "." => {}
            ".." if is_down => return None,
            ".." => rise += 1,
            // At any depth: shares may overlap.
            _ if component.eq_ignore_ascii_case(HOME) => return None,
            _ => is_down = true,
        }
    }
    let is_possible = !target.is_empty() && !target.starts_with('/') && !target.contains('\0');
    is_possible.then_some(rise)
}

// Whether a link `depth` directories below the top goes up further than that, as written. An absolute
// target does not depend on the link's place.
fn leads_out(target: &[u8], depth: usize) -> bool {
    let mut left = depth;
    for component in target.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => match left.checked_sub(1) {
                Some(above) => left = above,
                None => return !target.starts_with(b"/"),
            },
            _ => left += 1,
        }
    }
    false
}

fn target_of(link: BorrowedFd<'_>) -> Result<Vec<u8>, ShareError> {
    Ok(rustix::fs::readlinkat(link, "", Vec::new())?.into_bytes())
}

// Whether every link below a directory stays inside when the directory comes to lie `depth` directories below
// the top.
fn check_below(directory: OwnedFd, depth: usize) -> Result<(), ShareError> {
    let mut open = vec![entries(directory.as_fd())?];
    let mut looked_at = 0;
    while let Some(entries_of_last) = open.last_mut() {
        let Some(entry) = entries_of_last.read() else {
            open.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        looked_at += 1;
        if looked_at > WALK_MAX || open.len() > OPEN_MAX {
            return Err(ShareError::AccessDenied);
        }
        let last = open.last().expect("it was read from").fd()?;
        let kind = match entry.file_type() {
            FileType::Unknown => identify_at(last, name)?.1,
            known => known,
        };
        match kind {
            FileType::Symlink => match rustix::fs::readlinkat(last, name, Vec::new()) {
                Ok(target) if leads_out(target.to_bytes(), depth + open.len() - 1) => {
                    return Err(ShareError::AccessDenied);
                }
                Ok(_) | Err(Errno::NOENT | Errno::INVAL) => {}
                Err(errno) => return Err(errno.into()),
            },
            FileType::Directory if !matches!(name.to_bytes(), b"." | b"..") => {
                match open_below(last, name) {
                    Ok(below) => open.push(entries(below.as_fd())?),
                    // Removed meanwhile.
                    Err(ShareError::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn entries(directory: BorrowedFd<'_>) -> Result<rustix::fs::Dir, ShareError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::Dir::new(rustix::fs::openat(directory, ".", flags, Mode::empty())?)?)
}

fn open_below(
    directory: BorrowedFd<'_>,
    name: impl rustix::path::Arg,
) -> Result<OwnedFd, ShareError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?)
}

/// Nested directories: a path has 32,767 characters, every other of which is a separator.
const DEPTH_MAX: usize = 16_384;
/// Names below a directory that is moved up; about a second's work.
const WALK_MAX: usize = 1 << 18;
/// Nested directories that a walk keeps open.
const OPEN_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_link_goes_up_first_and_then_only_down() {
        for (target, rise) in [("x", 0), ("../x", 1), ("./../.././a/b", 2), ("..\\x", 0), ("..", 1)]
        {
            assert_eq!(rise_of_new(target), Some(rise), "{target}");
        }
        for never in
            ["", "/etc", "a/..", "../a/../b", "a\0", ".landfast-streams", "d/.LANDFAST-streams/x"]
        {
            assert_eq!(rise_of_new(never), None, "{never}");
        }
    }

    #[test]
    fn shares_of_one_server_share_one_lock_of_links() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Share::open(&crate::ShareConfig::new("s", dir.path())).unwrap();
        let (mut one, mut other) = (open(), open());
        let common = crate::CommonNames::default();
        one.keep_names_in(&common);
        other.keep_names_in(&common);
        let _linking = one.linking();
        assert!(other.links.try_lock().is_none());
    }

    #[test]
    fn a_link_never_leads_above_its_share() {
        let link = SharePath::parse_posix("a/b/link").unwrap();
        for inside in ["x", "../x", "../../x", "./c/../../../a", "..\\x"] {
            assert!(leads_inside(&link, inside), "{inside}");
        }
        for outside in ["/etc/passwd", "../../../x", "c/../../../../x", ""] {
            assert!(!leads_inside(&link, outside), "{outside}");
        }
    }
}
