//! Shared extents: our server on a file system that clones, an XFS in a file of this machine.
//!
//! Samba's tests of DUPLICATE_EXTENTS_TO_FILE say whether the answers are right;
//! `crates/server/tests/files/clones.rs` looks at the space that two files take together.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::failure::{Failure, Outcome, Tally};
use crate::process::Step;
use crate::{torture, workspace};

/// Makes the file system, runs the tests on it.
pub(crate) fn run() -> Outcome {
    if let Some(reason) = lacking() {
        println!("  NO FILE SYSTEM THAT CLONES ON THIS MACHINE: {reason}");
        return Ok(Tally { skipped: vec![format!("clones: {reason}")], ..Tally::default() });
    }
    let mounted = match Mounted::new() {
        Ok(mounted) => mounted,
        // Root of a container may lack the right, and nothing can be done about it here.
        Err(failure) => {
            println!("  NO FILE SYSTEM THAT CLONES ON THIS MACHINE: {failure}");
            return Ok(Tally { skipped: vec![format!("clones: {failure}")], ..Tally::default() });
        }
    };
    let mut tally = torture::all_pass_on(mounted.path(), TESTS)?;
    let ours = ["test", "--release"].into_iter().chain(workspace::TESTED);
    let ours: Vec<&str> = ours.chain(["--test", "files"]).collect();
    Step::new("cargo").args(&ours).arg("--no-run").dir(&workspace::root()).builds().run()?;
    let ours = Step::new("cargo")
        .args(ours)
        .arg("clones::")
        .env("LANDFAST_CLONES_DIR", mounted.path().display().to_string())
        .dir(&workspace::root())
        .run();
    tally.count("crates/server/tests/files/clones.rs", ours.map_err(|failure| failure.to_string()));
    Ok(tally)
}

fn lacking() -> Option<&'static str> {
    if !workspace::is_root() {
        return Some("only root can mount it");
    }
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let has_xfs = known.lines().any(|line| line.trim() == "xfs")
        || Step::new("modprobe").arg("xfs").quiet().output().is_ok();
    let has_loop = Path::new("/dev/loop-control").exists();
    match (has_xfs, has_loop) {
        (false, _) => Some("its kernel has no XFS"),
        (_, false) => Some("its kernel has no loop devices"),
        _ => None,
    }
}

/// A mounted file system in a file. Dropping it unmounts it.
#[derive(Debug)]
struct Mounted {
    mount: PathBuf,
    _scratch: TempDir,
}

impl Mounted {
    fn new() -> Result<Self, Failure> {
        let scratch = workspace::scratch()?;
        let (image, mount) = (scratch.path().join("image"), scratch.path().join("mount"));
        let file = std::fs::File::create(&image).map_err(Failure::io("creating", &image))?;
        file.set_len(IMAGE_BYTES).map_err(Failure::io("sizing", &image))?;
        std::fs::create_dir(&mount).map_err(Failure::io("creating", &mount))?;
        Step::new("mkfs.xfs").args(["-q", "-m", "reflink=1"]).arg(&image).output()?;
        Step::new("mount").args(["-t", "xfs", "-o", "loop"]).arg(&image).arg(&mount).output()?;
        Ok(Self { mount, _scratch: scratch })
    }

    fn path(&self) -> &Path {
        &self.mount
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Its server may still be closing files.
        let mut unmounted = Step::new("umount").arg(&self.mount).quiet().output();
        for _ in 0..UNMOUNT_TRIES {
            if unmounted.is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
            unmounted = Step::new("umount").arg(&self.mount).quiet().output();
        }
        let _ = Step::new("umount").arg("--lazy").arg(&self.mount).output();
    }
}

/// What they are about needs nothing but a file system that clones.
const TESTS: &str = "smb2.ioctl.dup_extents_";
/// The smallest that mkfs.xfs takes is 300 MiB; the file is sparse.
const IMAGE_BYTES: u64 = 512 << 20;
const UNMOUNT_TRIES: usize = 50;
