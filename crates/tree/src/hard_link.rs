//! Hard links: one more name for an open file, free or taken from another file.
//!
//! ```text
//!  free    link(file, name)
//!  taken   link(file, .landfast-streams/links/<random>) --> rename over the name
//!                                                             ^ the name denotes one file or the other at every
//!                                                               moment, also if the operation ends here
//! ```
//!
//! Symbolic links replace files in the same way (`crate::posix`).
//!
//! link(2) does not replace, and removing the other file first would lose it if the link or the machine then
//! fails. Links that a crash leaves in the directory of new links are removed when the share is next opened. The
//! directory lies at the share's top: on a file system mounted below, no link replaces a file. Each link in it is
//! locked, so a sweep removes no link of a request of this server, even if shares overlap.
//!
//! Spec: MS-FSA §2.1.5.15.6; link(2), rename(2).

use std::os::fd::OwnedFd;

use basics::Random;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::Share;
use super::binding::Binding;
use super::change::Replace;
use super::entry::Entry;
use super::error::{ShareError, from_resolution};
use super::homes::open_homes;
use super::inode::identify;
use super::inode::proc_name;
use super::lookup::open_beneath;
use super::name::SharePath;
use super::rights::MayAdd;

impl Share {
    /// Gives an open file one more name, replacing the object that may be replaced.
    ///
    /// # Durability
    ///
    /// After a crash the name denotes the old file or the new one.
    ///
    /// # Errors
    ///
    /// Then nothing has changed. [`ShareError::Exists`]: another object has the name.
    pub fn link(
        &self,
        _leave: impl MayAdd,
        entry: &Entry,
        to: &SharePath,
        replace: Option<Replace>,
    ) -> Result<(), ShareError> {
        self.writable()?;
        entry.check_has_facts()?;
        let target = self.parent_of(to)?;
        let _linking = self.check_copy_of_link(entry, &target)?;
        let _changing = self.changing(&target)?;
        let leaf = to.leaf();
        let victim = replace.map(|replace| replace.key);
        let directory = identify(&target)?.0;
        let held = self
            .name_locks
            .hold([Some(directory), Some(entry.key()), victim].into_iter().flatten());
        let Some(replaced) = self.replaced(replace, &target, to)? else {
            let link = || add_name(entry, &target, leaf);
            return self.names.change(&target, link, Some(leaf), None);
        };
        // rename(2) has no effect if both names are links of one file.
        if victim == Some(entry.key()) {
            return Ok(());
        }
        let streams = Binding::to_bury(&replaced);
        let new = self.new_links()?;
        let held = (held, self.name_locks.hold([identify(&new)?.0]));
        let name = random_name(&self.environment.random)?;
        add_name(entry, &new, &name)?;
        let take = || match rustix::fs::renameat(&new, &*name, &target, leaf) {
            Err(Errno::XDEV) => Err(ShareError::CrossDevice),
            other => Ok(other?),
        };
        let taken = self.names.change(&target, take, Some(leaf), None);
        if taken.is_err() {
            let _ = rustix::fs::unlinkat(&new, &*name, AtFlags::empty());
            return taken;
        }
        drop(held);
        self.bury_with(&replaced, streams);
        Ok(())
    }

    pub(super) fn new_links(&self) -> Result<OwnedFd, ShareError> {
        let homes = self.homes()?;
        match rustix::fs::mkdirat(&homes, NEW, NEW_MODE) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        open_new(&homes).map_err(from_resolution)
    }

    /// Removes the new links that a crash has left: none of them has replaced a file yet. Links that requests of
    /// this server are making stay.
    pub(super) fn sweep_new_links(&self) -> Result<(), ShareError> {
        let new = match open_homes(&self.root).and_then(|homes| open_new(&homes)) {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        let _held = self.name_locks.hold([identify(&new)?.0]);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut left = rustix::fs::Dir::new(rustix::fs::openat(&new, ".", flags, Mode::empty())?)?;
        while let Some(found) = left.read() {
            let found = found?;
            if !matches!(found.file_name().to_bytes(), b"." | b"..") {
                match rustix::fs::unlinkat(&new, found.file_name(), AtFlags::empty()) {
                    // The link of a file that became a symbolic link, see `crate::posix`.
                    Err(Errno::ISDIR) => {
                        rustix::fs::unlinkat(&new, found.file_name(), AtFlags::REMOVEDIR)?;
                    }
                    other => other?,
                }
            }
        }
        Ok(())
    }
}

fn add_name(entry: &Entry, directory: &OwnedFd, leaf: &str) -> Result<(), ShareError> {
    let (source, flags) = (proc_name(entry.as_fd()), AtFlags::SYMLINK_FOLLOW);
    match rustix::fs::linkat(rustix::fs::CWD, source, directory, leaf, flags) {
        Err(Errno::XDEV) => Err(ShareError::CrossDevice),
        other => Ok(other?),
    }
}

// Never through a link, whatever a local user put there.
fn open_new(homes: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    open_beneath(homes, NEW, flags, Mode::empty())
}

pub(super) fn random_name(random: &Random) -> Result<String, ShareError> {
    let mut id = [0; 16];
    random.fill(&mut id).map_err(|_| ShareError::HandlesExhausted)?;
    Ok(format!("{:032x}", u128::from_be_bytes(id)))
}

/// The directory of links that do not have their name yet. No home of streams has this name.
const NEW: &str = "links";
const NEW_MODE: Mode = Mode::from_raw_mode(0o777);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::given::{MayAdd, MayRemove};
    use crate::{DosAttributes, ShareConfig, name};

    fn path(text: &str) -> SharePath {
        SharePath::parse(text).unwrap()
    }

    #[test]
    fn a_link_of_an_unnamed_file_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        let make =
            |name| share.create_file(MayAdd::TEST, &path(name), DosAttributes::default()).unwrap();
        let (source, victim) = (make("source"), make("victim"));
        std::fs::remove_file(dir.path().join("source")).unwrap();
        let replace = Some(Replace::of(victim.key(), MayRemove::TEST));
        let failed = share.link(MayAdd::TEST, &source, &path("victim"), replace);
        assert_eq!(failed, Err(ShareError::NotFound));
        let found = share.locate(&path("victim")).unwrap().found.unwrap();
        assert_eq!(found.key, victim.key());
    }

    #[test]
    fn a_link_replaces_only_the_file_it_was_told() {
        let dir = tempfile::tempdir().unwrap();
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        let make =
            |name| share.create_file(MayAdd::TEST, &path(name), DosAttributes::default()).unwrap();
        let (source, victim, other) = (make("source"), make("victim"), make("other"));
        let replace = Some(Replace::of(victim.key(), MayRemove::TEST));
        let link = |to| share.link(MayAdd::TEST, &source, &path(to), replace);
        assert_eq!(link("other"), Err(ShareError::Exists));
        assert_eq!(share.locate(&path("other")).unwrap().found.unwrap().key, other.key());
        assert_eq!(link("victim"), Ok(()));
        assert_eq!(share.locate(&path("victim")).unwrap().found.unwrap().key, source.key());
    }

    #[test]
    fn a_new_link_left_by_a_crash_is_removed_at_takeover() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join(name::HOME).join(NEW);
        std::fs::create_dir_all(&new).unwrap();
        std::fs::write(dir.path().join("file"), "stays").unwrap();
        std::fs::hard_link(dir.path().join("file"), new.join("left")).unwrap();
        let mut share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        let left = || std::fs::read_dir(&new).unwrap().count();
        assert_eq!(left(), 1, "another server may be making it");
        share.take_over().unwrap();
        assert_eq!(left(), 0);
        assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"stays");
    }
}
