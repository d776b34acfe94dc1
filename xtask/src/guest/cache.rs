//! What a guest is made of, made once and kept in `target/guest`.
//!
//! ```text
//! target/guest/tools      QEMU and its libraries
//!              root       the guest's user land
//!              kernel     Debian's kernel, headers, sources; modules built from them
//!              verbs      headers of libibverbs and librdmacm, for programs the guest runs
//!              disk.img, initramfs    made of root and kernel
//!              compiler, compiler.img a C compiler and a program's source; only when asked for
//!              fsx        the file system exerciser; only when asked for
//! ```
//!
//! Each part has a stamp that says what it was made from; a part whose stamp differs is made anew.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::guest::image;
use crate::guest::kernel::{self, Kernel};
use crate::guest::packages::Apt;
use crate::process::Step;
use crate::workspace;

/// A complete cache.
#[derive(Debug)]
pub(super) struct Cache {
    dir: PathBuf,
    kernel: Kernel,
}

impl Cache {
    /// Makes what is missing: two to four minutes from nothing, and 450 MiB to download.
    pub(super) fn ready() -> Result<Self, Failure> {
        let dir = workspace::target().join("guest");
        fs::create_dir_all(&dir).map_err(Failure::io("creating", &dir))?;
        let _lock = locked(&dir)?;
        let parts = Parts { dir: &dir };
        parts.make("tools", &TOOLS.join(" "), |apt, into| apt.unpack_closure(TOOLS, into))?;
        parts
            .make("root", &USER_LAND.join(" "), |apt, into| apt.unpack_closure(USER_LAND, into))?;
        parts
            .make("kernel", &kernel::recipe(), |apt, into| Kernel::prepare(apt, into).map(drop))?;
        parts.make("verbs", &VERBS.join(" "), |apt, into| {
            apt.unpack(&VERBS.map(str::to_owned), into)
        })?;
        let kernel = Kernel::find(&dir.join("kernel"))?;
        let cache = Self { dir: dir.clone(), kernel };
        let recipe = cache.image_recipe()?;
        if !parts.is_made("disk.img", &recipe) {
            image::make(&dir.join("root"), &cache.kernel, &cache.disk(), &cache.initramfs())?;
            parts.stamp("disk.img", &recipe)?;
        }
        Ok(cache)
    }

    /// The kernel's image.
    pub(super) fn image(&self) -> &Path {
        &self.kernel.image
    }

    /// The guest's disk; never written to.
    pub(super) fn disk(&self) -> PathBuf {
        self.dir.join("disk.img")
    }

    /// The guest's first file system.
    pub(super) fn initramfs(&self) -> PathBuf {
        self.dir.join("initramfs")
    }

    /// The tree that holds QEMU.
    pub(super) fn tools(&self) -> PathBuf {
        self.dir.join("tools")
    }

    /// A disk with a C compiler, make, the C library's headers, and the source of Lua: 20 MiB more to
    /// download, made when it is first asked for.
    pub(super) fn compiler(&self) -> Result<PathBuf, Failure> {
        let _lock = locked(&self.dir)?;
        let parts = Parts { dir: &self.dir };
        let recipe = format!("{} {SOURCE_SHA256}", COMPILER.join(" "));
        parts.make("compiler", &recipe, |apt, into| {
            apt.unpack(&COMPILER.map(str::to_owned), into)?;
            apt.pool_file(SOURCE, SOURCE_SHA256, &into.join("source.tar.gz"))
        })?;
        let disk = self.dir.join("compiler.img");
        if !parts.is_made("compiler.img", &recipe) {
            image::disk_of(&self.dir.join("compiler"), &disk, COMPILER_SIZE)?;
            parts.stamp("compiler.img", &recipe)?;
        }
        Ok(disk)
    }

    /// The file system exerciser fsx-rs, built here when it is first asked for. It is a tool that is run
    /// and nothing else: its licence (APSL 2.0) reaches no part of this project.
    pub(super) fn fsx(&self) -> Result<PathBuf, Failure> {
        fsx()
    }

    /// Compiles a C program of `tests/guest` against the guest's own verbs libraries.
    pub(super) fn verbs_program(&self, source: &Path, program: &Path) -> Result<(), Failure> {
        let libraries = self.dir.join("root/usr/lib/x86_64-linux-gnu");
        Step::new("cc")
            .args(["-std=gnu17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(program)
            .arg(source)
            .arg("-I")
            .arg(self.dir.join("verbs/usr/include"))
            .args(["librdmacm.so.1", "libibverbs.so.1"].map(|name| libraries.join(name)))
            // They were linked with the guest's C library, which may be newer than this machine's.
            .arg("-Wl,--allow-shlib-undefined")
            .quiet()
            .output()
            .map(drop)
    }

    fn image_recipe(&self) -> Result<String, Failure> {
        let mut hasher = DefaultHasher::new();
        image::start_script()?.hash(&mut hasher);
        let script = hasher.finish();
        let (release, kernel, image) = (&self.kernel.release, kernel::recipe(), image::recipe());
        Ok(format!("{release} {kernel} {} {script:x} {image}", USER_LAND.join(" ")))
    }
}

// Several guests may run at once, but only one may build.
fn locked(dir: &Path) -> Result<fs::File, Failure> {
    let lock = dir.join("lock");
    let lock = fs::File::create(&lock).map_err(Failure::io("creating", &lock))?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)
        .map_err(|error| Failure::new(format!("locking the cache of guests: {error}")))?;
    Ok(lock)
}

/// [`Cache::fsx`] for this machine, which needs no guest.
pub(crate) fn fsx() -> Result<PathBuf, Failure> {
    let dir = workspace::target().join("guest");
    fs::create_dir_all(&dir).map_err(Failure::io("creating", &dir))?;
    let _lock = locked(&dir)?;
    let parts = Parts { dir: &dir };
    let root = dir.join("fsx");
    if !parts.is_made("fsx", FSX) {
        Step::new("cargo")
            .args(["install", "fsx", "--locked", "--force", "--version", FSX, "--root"])
            .arg(&root)
            .builds()
            .run()?;
        parts.stamp("fsx", FSX)?;
    }
    Ok(root.join("bin/fsx"))
}

/// The parts of a cache and their stamps.
struct Parts<'a> {
    dir: &'a Path,
}

impl Parts<'_> {
    fn make(
        &self,
        name: &str,
        recipe: &str,
        build: impl FnOnce(&Apt, &Path) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.is_made(name, recipe) {
            return Ok(());
        }
        println!("  making the guest's {name} in {}", self.dir.display());
        needed()?;
        let apt = Apt::open(&self.dir.join("apt"))?;
        build(&apt, &self.dir.join(name))?;
        self.stamp(name, recipe)
    }

    fn is_made(&self, name: &str, recipe: &str) -> bool {
        let stamp = fs::read_to_string(self.stamp_path(name));
        self.dir.join(name).exists() && stamp.is_ok_and(|stamp| stamp == recipe)
    }

    fn stamp(&self, name: &str, recipe: &str) -> Result<(), Failure> {
        let path = self.stamp_path(name);
        fs::write(&path, recipe).map_err(Failure::io("writing", &path))
    }

    fn stamp_path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.stamp"))
    }
}

/// Names every program that is missing at once.
fn needed() -> Result<(), Failure> {
    let script = "PATH=$PATH:/usr/sbin:/sbin; for p in \"$@\"; do command -v \"$p\" >/dev/null || echo \"$p\"; done";
    let programs = NEEDED.map(|(program, _)| program);
    let missing = Step::new("sh").args(["-c", script, "needed"]).args(programs).quiet().output()?;
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<_> = NEEDED
        .iter()
        .filter(|(program, _)| missing.lines().any(|line| line == *program))
        .map(|(_, package)| *package)
        .collect();
    let missing: Vec<_> = missing.lines().collect();
    Err(Failure::new(format!("to make a guest these programs are missing: {}", missing.join(" ")))
        .remedy(format!("apt-get install {}", packages.join(" "))))
}

/// What the machine itself must have, with the package that brings it.
const NEEDED: [(&str, &str); 8] = [
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
    ("make", "make"),
    ("cc", "gcc"),
    ("mke2fs", "e2fsprogs"),
    ("truncate", "coreutils"),
];
/// QEMU alone: no display, no sound.
const TOOLS: &[&str] = &["qemu-system-x86"];
/// Headers alone: the libraries are those of the guest.
const VERBS: [&str; 2] = ["libibverbs-dev", "librdmacm-dev"];
/// tcc builds in seconds what gcc, emulated, builds in minutes.
const COMPILER: [&str; 4] = ["tcc", "make", "libc6-dev", "linux-libc-dev"];
/// Lua as Debian 13 has it: 60 files, 30,000 lines.
const SOURCE: &str = "main/l/lua5.4/lua5.4_5.4.7.orig.tar.gz";
const SOURCE_SHA256: &str = "9fbf5e28ef86c69858f6d3d34eccc32e911c1a28b4120ff3e84aaa70cfbf1e30";
const COMPILER_SIZE: &str = "128M";
/// The version of fsx-rs.
const FSX: &str = "0.3.2";
/// What the guest's commands are made of.
const USER_LAND: &[&str] = &[
    "base-files",
    "bash",
    "busybox-static",
    "cifs-utils",
    "coreutils",
    "e2fsprogs",
    "fio",
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "kmod",
    "liblzma5",
    "mount",
    "nbd-client",
    "ndctl",
    "nftables",
    "rdma-core",
    "rdmacm-utils",
    "tcpdump",
    "util-linux",
    "xfsprogs",
];
