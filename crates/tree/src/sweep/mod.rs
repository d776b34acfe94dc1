//! Streams whose file was removed by a local program: finding and removing them, while the share is
//! served or not.
//!
//! ```text
//!   all homes --> walk of the tree: which are bound? --> has any directory changed? --> remove
//!  (old ones only)              ^                                   | yes                  the rest
//!                               +-----------------------------------+ a few times, then give up
//! ```
//!
//! The streams do not name their file, so every file of the tree is read. A file that is moved
//! meanwhile could be missed in both places; the move changes both directories. If after a walk every
//! directory is as the walk found it, every file that existed all the time was seen. A home made
//! meanwhile is younger than the walk and stays.
//!
//! A directory that is shown twice, by a bind mount, is read twice: what is mounted over a directory below it by one way does
//! not hide that by the other. What a mount covers by every way is there all the same ([`covered`]).
//!
//! A file of a file system that is not mounted at present is not gone. So of the homes that no file names only those are
//! removed whose file's part of the tree (`crate::mounted_part`) the walk has read. Nor are those removed that a file with
//! another inode names: a backup was restored, and the names are all that is left of which streams are whose.

mod covered;
mod listing;
mod walk;

use std::ffi::CString;
use std::time::Duration;

use rustix::fs::AtFlags;
use thiserror::Error;

use self::listing::{entries, open_directory};
use self::walk::{Walk, since_epoch};
use super::Share;
use super::binding::Binding;
use super::disk_clock;
use super::error::ShareError;
use super::name::HOME;

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Swept {
    /// Files and directories that have streams.
    pub bound: usize,
    /// Homes of streams that belonged to no file.
    pub orphans: usize,
    /// Bytes their streams held.
    pub bytes: u64,
    /// Homes that stay although no file has them: the file system of their file is not there, or they do not note it; or a file
    /// names them that is another one than theirs, as after a backup was restored.
    pub kept: usize,
}

/// How a sweep is done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SweepOptions {
    /// Only count.
    pub dry: bool,
    /// Remove what would be kept as well.
    pub all: bool,
}

/// Why no streams were removed.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum SweepError {
    /// A part of the tree cannot be read, so streams may be bound there.
    #[error("the tree cannot be read in full: {0}")]
    Tree(#[from] ShareError),
    /// Names were moved during every walk.
    #[error("names change all the time: try again when less is going on")]
    Busy,
}

impl Share {
    /// Removes streams that belong to no file of the share any more.
    ///
    /// # Errors
    /// Then nothing was removed. May take long: every file is read.
    pub fn sweep_streams(&self, options: SweepOptions) -> Result<Swept, SweepError> {
        self.sweep(options, YOUNG, SETTLED)
    }

    fn sweep(
        &self,
        options: SweepOptions,
        young: Duration,
        settled: Duration,
    ) -> Result<Swept, SweepError> {
        if !options.dry {
            self.writable()?;
        }
        let candidates = self.homes_older_than(young)?;
        if candidates.is_empty() {
            return Ok(Swept::default());
        }
        let walk = self.walk(settled)?;
        let mut swept = Swept { bound: walk.bound.len(), ..Swept::default() };
        for home in candidates.into_iter().filter(|home| !walk.bound.contains(home)) {
            let part = self.part_of_home(home);
            let is_read = part.is_some_and(|part| walk.has_read(&part));
            if (!is_read || walk.named.contains(&home)) && !options.all {
                swept.kept += 1;
                continue;
            }
            swept.orphans += 1;
            swept.bytes += self.bytes_of(home);
            if !options.dry {
                self.bury_streams(home);
            }
        }
        Ok(swept)
    }

    fn bytes_of(&self, home: Binding) -> u64 {
        let path = format!("{HOME}/{}", home.directory());
        let Ok(home) = open_directory(&self.root, path.as_str()) else { return 0 };
        let names = entries(&home).unwrap_or_default();
        let size = |name: &CString| {
            let stat =
                rustix::fs::statat(&home, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
            u64::try_from(stat.st_size).ok()
        };
        names.iter().filter_map(size).sum()
    }

    // A home is made a moment before its file is bound to it.
    fn homes_older_than(&self, young: Duration) -> Result<Vec<Binding>, ShareError> {
        let homes = match open_directory(&self.root, HOME) {
            Ok(homes) => homes,
            Err(ShareError::NotFound) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let before = disk_clock::since_epoch().saturating_sub(young);
        let mut old = Vec::new();
        for name in entries(&homes)? {
            let Some(binding) = name.to_str().ok().and_then(Binding::of_directory) else {
                continue;
            };
            let stat = rustix::fs::statat(&homes, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)?;
            let changed =
                since_epoch(stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or(0));
            if changed <= before {
                old.push(binding);
            }
        }
        Ok(old)
    }

    // A walk through the tree as it is.
    fn walk(&self, settled: Duration) -> Result<Walk, SweepError> {
        for attempt in 0..WALKS_MAX {
            if attempt > 0 {
                std::thread::sleep(settled);
            }
            let walk = Walk::through(&self.root)?;
            if walk.is_still_true(&self.root, settled) {
                return Ok(walk);
            }
        }
        Err(SweepError::Busy)
    }
}

/// The file of a home as young as this may be about to be bound.
const YOUNG: Duration = Duration::from_secs(60);
/// Many times longer than a tick of the kernel's clock of inodes.
const SETTLED: Duration = Duration::from_secs(1);
const WALKS_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use crate::binding;
    use crate::rights::given::MayAdd;
    use crate::{DosAttributes, ShareConfig, SharePath, StreamName, StreamPart};

    const NOW: Duration = Duration::ZERO;
    const SWEEP: SweepOptions = SweepOptions { dry: false, all: false };
    const DRY: SweepOptions = SweepOptions { dry: true, all: false };
    const ALL: SweepOptions = SweepOptions { dry: false, all: true };

    fn stream_name() -> StreamName {
        match StreamPart::parse(Some("s")).unwrap() {
            StreamPart::Named(name) => name,
            other => panic!("{other:?}"),
        }
    }

    fn with_stream(share: &Share, name: &str) {
        let path = SharePath::parse(name).unwrap();
        if share.locate(&path).unwrap().found.is_none() {
            share.create_file(MayAdd::TEST, &path, DosAttributes::default()).unwrap();
        }
        let found = share.locate(&path).unwrap().found.unwrap();
        share
            .create_stream(MayAdd::TEST, &found, &stream_name(), |_| ())
            .unwrap()
            .write_at(&[7; 100], 0)
            .unwrap();
    }

    fn has_stream(share: &Share, name: &str) -> bool {
        let found = share.locate(&SharePath::parse(name).unwrap()).unwrap().found.unwrap();
        share.find_stream(&found, &stream_name()).unwrap().is_some()
    }

    fn homes(dir: &tempfile::TempDir) -> usize {
        std::fs::read_dir(dir.path().join(HOME)).unwrap().count()
    }

    #[test]
    fn a_sweep_removes_only_streams_of_locally_removed_files() {
        let dir = tempfile::tempdir().unwrap();
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        std::fs::create_dir_all(dir.path().join("deep/er")).unwrap();
        for name in ["stays", "goes", "deep\\er\\stays", "moves"] {
            with_stream(&share, name);
        }
        std::fs::remove_file(dir.path().join("goes")).unwrap();
        std::fs::rename(dir.path().join("moves"), dir.path().join("deep/moved")).unwrap();
        assert_eq!(share.sweep(SWEEP, YOUNG, NOW), Ok(Swept::default()), "all are young");
        let found = Swept { bound: 3, orphans: 1, bytes: 100, kept: 0 };
        assert_eq!(share.sweep(DRY, NOW, NOW), Ok(found));
        assert_eq!(homes(&dir), 4, "only counted");
        assert_eq!(share.sweep(SWEEP, NOW, NOW), Ok(found));
        assert_eq!(homes(&dir), 3);
        for name in ["stays", "deep\\er\\stays", "deep\\moved"] {
            assert!(has_stream(&share, name), "{name}");
        }
        assert_eq!(share.sweep(SWEEP, NOW, NOW), Ok(Swept { bound: 3, ..Swept::default() }));
    }

    #[test]
    fn a_sweep_spares_the_streams_of_a_file_system_that_is_not_there() {
        if !has_own_mounts("a_sweep_spares_the_streams_of_a_file_system_that_is_not_there") {
            return;
        }
        let (top, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (below, file) = (top.path().join("below"), top.path().join("alone"));
        std::fs::create_dir(&below).unwrap();
        std::fs::create_dir(disk.path().join("d")).unwrap();
        std::fs::write(disk.path().join("mounted"), "").unwrap();
        std::fs::write(&file, "").unwrap();
        let mount = |from: &Path, at: &Path| run("mount", &["--bind".as_ref(), from, at]);
        let mount_all = || {
            mount(disk.path(), &below);
            mount(&disk.path().join("mounted"), &file);
        };
        let share = Share::open(&ShareConfig::new("s", top.path())).unwrap();
        mount_all();
        for name in ["goes", "below\\d\\f", "below\\gone", "alone"] {
            with_stream(&share, name);
        }
        std::fs::remove_file(below.join("gone")).unwrap();
        std::fs::remove_file(top.path().join("goes")).unwrap();
        run("umount", &[&below]);
        run("umount", &[&file]);
        let found = Swept { bound: 0, orphans: 1, bytes: 100, kept: 3 };
        assert_eq!(share.sweep(SWEEP, NOW, NOW), Ok(found));
        mount_all();
        let found = Swept { bound: 2, orphans: 1, bytes: 100, kept: 0 };
        assert_eq!(share.sweep(SWEEP, NOW, NOW), Ok(found), "what is gone there");
        for name in ["below\\d\\f", "alone"] {
            assert!(has_stream(&share, name), "{name}");
        }
        run("umount", &[&below]);
        run("umount", &[&file]);
        let found = Swept { bound: 0, orphans: 2, bytes: 200, kept: 0 };
        assert_eq!(share.sweep(ALL, NOW, NOW), Ok(found), "asked for");
    }

    #[test]
    fn a_sweep_keeps_streams_that_a_restored_file_names() {
        let dir = tempfile::tempdir().unwrap();
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        with_stream(&share, "f");
        let (file, again) = (dir.path().join("f"), dir.path().join("again"));
        std::fs::write(&again, "").unwrap();
        let mut binding = [0; binding::BINDING_LEN];
        rustix::fs::getxattr(&file, binding::BINDING, &mut binding).unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&again, binding::BINDING, &binding, flags).unwrap();
        std::fs::rename(&again, &file).unwrap();
        assert_eq!(share.sweep(SWEEP, NOW, NOW), Ok(Swept { kept: 1, ..Swept::default() }));
        std::fs::remove_file(&file).unwrap();
        let swept = Swept { orphans: 1, bytes: 100, ..Swept::default() };
        assert_eq!(share.sweep(SWEEP, NOW, NOW), Ok(swept));
    }

    #[test]
    fn a_sweep_keeps_streams_that_do_not_note_where_their_file_is() {
        let dir = tempfile::tempdir().unwrap();
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        with_stream(&share, "f");
        std::fs::remove_file(dir.path().join("f")).unwrap();
        let home = std::fs::read_dir(dir.path().join(HOME)).unwrap().next().unwrap().unwrap();
        // As an earlier server left it.
        rustix::fs::removexattr(home.path(), "user.landfast.part").unwrap();
        assert_eq!(share.sweep(SWEEP, NOW, NOW), Ok(Swept { kept: 1, ..Swept::default() }));
        assert_eq!(homes(&dir), 1);
        let all = Swept { orphans: 1, bytes: 100, ..Swept::default() };
        assert_eq!(share.sweep(ALL, NOW, NOW), Ok(all));
        assert_eq!(homes(&dir), 0);
    }

    #[test]
    fn a_sweep_sees_a_file_by_every_way_that_leads_to_it_and_below_what_covers_it() {
        if !has_own_mounts(
            "a_sweep_sees_a_file_by_every_way_that_leads_to_it_and_below_what_covers_it",
        ) {
            return;
        }
        let top = tempfile::tempdir().unwrap();
        let at = |path: &str| top.path().join(path);
        for directory in ["data/sub", "chroot/data", "covered/deep"] {
            std::fs::create_dir_all(at(directory)).unwrap();
        }
        let share = Share::open(&ShareConfig::new("s", top.path())).unwrap();
        for name in ["data\\sub\\f", "covered\\deep\\g", "alone", "goes"] {
            with_stream(&share, name);
        }
        std::fs::remove_file(at("goes")).unwrap();
        run("mount", &["--bind".as_ref(), &at("data"), &at("chroot/data")]);
        // What hides the file by one way leaves it where the other leads; which of them is read first is not known.
        for (hidden, shown) in [("data/sub", "chroot/data/sub"), ("chroot/data/sub", "data/sub")] {
            run("mount", &["-t".as_ref(), "tmpfs".as_ref(), "none".as_ref(), &at(hidden)]);
            assert!(at(shown).join("f").exists() && !at(hidden).join("f").exists());
            let found = Swept { bound: 3, orphans: 1, bytes: 100, kept: 0 };
            assert_eq!(share.sweep(DRY, NOW, NOW), Ok(found), "{hidden}");
            run("umount", &[&at(hidden)]);
        }
        std::fs::write(at("other"), "").unwrap();
        run("mount", &["--bind".as_ref(), &at("other"), &at("alone")]);
        run("mount", &["-t".as_ref(), "tmpfs".as_ref(), "none".as_ref(), &at("covered")]);
        let found = Swept { bound: 3, orphans: 1, bytes: 100, kept: 0 };
        assert_eq!(share.sweep(SWEEP, NOW, NOW), Ok(found));
        run("umount", &[&at("covered")]);
        run("umount", &[&at("alone")]);
        for name in ["data\\sub\\f", "covered\\deep\\g", "alone"] {
            assert!(has_stream(&share, name), "{name}");
        }
        run("umount", &[&at("chroot/data")]);
    }

    // Whether the mounts of this process are its own. In the first one the test runs again, in one whose are, and was good.
    fn has_own_mounts(test: &str) -> bool {
        const INSIDE: &str = "LANDFAST_OWN_MOUNTS";
        if std::env::var_os(INSIDE).is_some() {
            return true;
        }
        let own = ["--map-root-user", "--user", "--mount"];
        let own = if rustix::process::geteuid().is_root() { &own[2..] } else { &own[..] };
        let mut outside = Command::new("unshare");
        if !outside.args(own).arg("true").status().is_ok_and(|status| status.success()) {
            crate::skipped::skip("no mount namespace for this user");
            return false;
        }
        let mut inside = Command::new("unshare");
        inside.args(own).arg(std::env::current_exe().unwrap()).args(["--exact"]);
        inside.arg(format!("sweep::tests::{test}"));
        let output = inside.env(INSIDE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said} {output:?}");
        false
    }

    fn run(program: &str, arguments: &[&Path]) {
        assert!(Command::new(program).args(arguments).status().unwrap().success(), "{program}");
    }

    #[test]
    fn a_sweep_sees_files_whose_names_are_not_unicode() {
        let named = |bytes: &'static [u8]| OsStr::from_bytes(bytes);
        let dir = tempfile::tempdir().unwrap();
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        for name in ["g", "d\\h"] {
            with_stream(&share, name);
        }
        let moved = [("g", named(b"g\xe4.txt")), ("d", named(b"d\xff"))];
        for (from, to) in moved {
            std::fs::rename(dir.path().join(from), dir.path().join(to)).unwrap();
        }
        let swept = share.sweep(SWEEP, NOW, NOW);
        assert_eq!(swept, Ok(Swept { bound: 2, ..Swept::default() }));
        for (from, to) in moved {
            std::fs::rename(dir.path().join(to), dir.path().join(from)).unwrap();
        }
        assert!(has_stream(&share, "g") && has_stream(&share, "d\\h"));
    }

    #[test]
    fn a_sweep_removes_nothing_if_a_directory_cannot_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        with_stream(&share, "f");
        binding::set_unreadable(&dir.path().join("f"));
        assert!(matches!(share.sweep(SWEEP, NOW, NOW), Err(SweepError::Tree(_))));
        assert_eq!(homes(&dir), 1);
    }

    #[test]
    fn a_walk_disturbed_by_a_move_is_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        with_stream(&share, "f");
        let walk = Walk::through(&share.root).unwrap();
        assert!(walk.is_still_true(&share.root, NOW));
        assert!(!walk.is_still_true(&share.root, Duration::from_secs(3600)), "just changed");
        std::fs::rename(dir.path().join("f"), dir.path().join("a/f")).unwrap();
        assert!(!walk.is_still_true(&share.root, NOW));
    }
}
