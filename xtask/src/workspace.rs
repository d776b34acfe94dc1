//! Where things are: the root of the repository, the build, the scratch space of this tool.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::failure::Failure;
use crate::process::Step;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().map_or_else(|| manifest.to_owned(), Path::to_owned)
}

/// Cargo's target directory, which an environment variable may move.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A directory for this tool's logs and captures, kept between runs.
pub(crate) fn kept(name: &str) -> Result<PathBuf, Failure> {
    let dir = target().join("xtask").join(name);
    fs::create_dir_all(&dir).map_err(Failure::io("creating", &dir))?;
    Ok(dir)
}

/// A scratch directory on the disk file system below `target`, removed when dropped.
pub(crate) fn scratch() -> Result<TempDir, Failure> {
    let dir = kept("tmp")?;
    tempfile::tempdir_in(&dir).map_err(Failure::io("making a temporary directory in", &dir))
}

/// A scratch directory on tmpfs, removed when dropped.
pub(crate) fn scratch_on_tmpfs() -> Result<TempDir, Failure> {
    let shm = Path::new("/dev/shm");
    tempfile::tempdir_in(shm).map_err(Failure::io("making a temporary directory in", shm))
}

/// All files of the repository that git tracks or would track, as paths from the root.
pub(crate) fn files() -> Result<Vec<PathBuf>, Failure> {
    let listing = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let output = Step::new("git").args(listing).dir(&root()).quiet().output()?;
    // A file deleted but not yet committed is still listed.
    Ok(output.lines().map(PathBuf::from).filter(|path| root().join(path).is_file()).collect())
}

/// The binary under test: the one named by [`BINARY_VARIABLE`], or the product built as it is
/// shipped.
pub(crate) fn landfast() -> Result<PathBuf, Failure> {
    if let Some(binary) = std::env::var_os(BINARY_VARIABLE) {
        return Ok(PathBuf::from(binary));
    }
    Ok(shipped()?.join("landfast"))
}

/// The directory with what is shipped: the program, `liblandfast.so`, `liblandfast.a`, `lib_landfast.so`, the module of the
/// Python package, and `liblandfast_sqlite.so`. They are built by one command: built one by one, their dependencies would be
/// compiled with other features each time.
pub(crate) fn shipped() -> Result<PathBuf, Failure> {
    // Once is enough: no step of ours changes the source.
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    if let Some(directory) = BUILT.get() {
        return Ok(directory.clone());
    }
    ship()?;
    Ok(BUILT.get_or_init(|| target().join("release")).clone())
}

/// Puts what is shipped in its place, where `cargo test` may have put the same built for tests. Programs that run from
/// there meanwhile lose their file.
pub(crate) fn ship() -> Result<(), Failure> {
    ship_step().run()
}

/// The command of [`ship`].
pub(crate) fn ship_step() -> Step {
    let step = Step::new("cargo").args(["build", "--release"]).args(shipped_packages());
    step.dir(&root()).builds()
}

/// Options of cargo that name the packages of what is shipped.
pub(crate) fn shipped_packages() -> impl Iterator<Item = String> {
    let packages = ["landfast", "landfast-capi", "landfast-python", "landfast-sqlite"];
    packages.into_iter().flat_map(|package| ["--package".to_owned(), package.to_owned()])
}

/// `cargo build` of programs beside the product, which `targets` name (`--bin`, `--example`): of the packages that `cargo
/// test` has built before in the suite, as for others their dependencies would be compiled with other features.
pub(crate) fn build_of<'a>(targets: impl IntoIterator<Item = &'a str>) -> Step {
    let step = Step::new("cargo").args(["build", "--release"]).args(TESTED).args(targets);
    step.dir(&root()).builds()
}

/// Whether this process may install packages, capture packets and change users.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Options of cargo that name the packages whose tests `cargo test` runs: all but the bodies of the fuzz targets, whose tests
/// run instrumented ([`crate::fuzz`]): with them, packages would be built with other features than for the product.
pub(crate) const TESTED: [&str; 3] = ["--workspace", "--exclude", "landfast-fuzz-bodies"];
/// Names a binary built elsewhere, to hold one build against another.
const BINARY_VARIABLE: &str = "LANDFAST_BINARY";
