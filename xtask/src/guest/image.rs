//! What the guest boots: a disk with Debian's user land, and a first file system that finds it.
//!
//! ```text
//! kernel ----> initramfs: busybox, the modules for a virtio disk ----> /init
//!                  mounts the disk, switches to it ----> /landfast/init (tests/guest/init)
//! ```
//!
//! Everything is made by the calling user; files belong to that user's number in the guest, where
//! only root works.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::guest::kernel::Kernel;
use crate::guest::packages::program_of;
use crate::process::Step;
use crate::workspace;

/// Puts the kernel's modules and our start script into `root`, and makes disk and initramfs.
pub(super) fn make(
    root: &Path,
    kernel: &Kernel,
    disk: &Path,
    initramfs: &Path,
) -> Result<(), Failure> {
    let modules = Modules::read(root, kernel)?;
    modules.install(root, kernel)?;
    arrange(root)?;
    first_file_system(root, kernel, &modules, initramfs)?;
    disk_of(root, disk, DISK_SIZE)
}

/// Makes a file system with the files of `tree`.
pub(super) fn disk_of(tree: &Path, disk: &Path, size: &str) -> Result<(), Failure> {
    let _ = fs::remove_file(disk);
    Step::new("truncate").args(["-s", size]).arg(disk).quiet().output()?;
    Step::new("/usr/sbin/mke2fs")
        .args(["-q", "-t", "ext4", "-O", "^has_journal,^metadata_csum", "-m", "0", "-d"])
        .arg(tree)
        .arg(disk)
        .run()
        .map_err(|failure| failure.remedy("apt-get install e2fsprogs"))
}

/// Changes when another image would come of the same packages and the same kernel.
pub(super) fn recipe() -> String {
    let modules = [DISK_MODULES.join(" "), MODULE_FOLDERS.join(" "), MODULES.join(" ")].join(" ");
    format!("{LAYOUT} {modules} {FIRST_SCRIPT_TAIL}")
}

/// The start script as the image carries it.
pub(super) fn start_script() -> Result<Vec<u8>, Failure> {
    let path = workspace::root().join("tests/guest/init");
    fs::read(&path).map_err(Failure::io("reading", &path))
}

/// Which module needs which, by the paths depmod writes.
struct Modules {
    needs: BTreeMap<String, Vec<String>>,
}

impl Modules {
    fn read(root: &Path, kernel: &Kernel) -> Result<Self, Failure> {
        let base = kernel.modules.ancestors().nth(3).unwrap_or(&kernel.modules);
        let listing = kernel.modules.join("modules.dep");
        if !listing.exists() {
            depmod(root, base, &kernel.release)?;
        }
        let text = fs::read_to_string(&listing).map_err(Failure::io("reading", &listing))?;
        Ok(Self { needs: parse_dependencies(&text) })
    }

    /// A module's path and those of all it needs, needed ones first.
    fn closure(&self, name: &str) -> Vec<String> {
        let file = format!("{}.ko", name.replace('-', "_"));
        let path = self.needs.keys().find(|path| {
            let own = path.rsplit('/').next().unwrap_or_default().replace('-', "_");
            own.strip_suffix(".xz").unwrap_or(&own) == file
        });
        let Some(path) = path else { return Vec::new() };
        // depmod lists what is needed last to first.
        let needed = self.needs.get(path).into_iter().flatten().rev();
        needed.chain([path]).cloned().collect()
    }

    fn chosen(&self) -> BTreeSet<String> {
        let folders = self.needs.keys().filter(|path| {
            MODULE_FOLDERS.iter().any(|folder| path.starts_with(&format!("kernel/{folder}/")))
        });
        let named: BTreeSet<String> = MODULES.iter().flat_map(|name| self.closure(name)).collect();
        let folders = folders.flat_map(|path| {
            self.needs.get(path).into_iter().flatten().chain([path]).cloned().collect::<Vec<_>>()
        });
        named.into_iter().chain(folders).collect()
    }

    /// Copies the chosen ones, unpacked: the guest's processor is slow. Ours replace Debian's.
    fn install(&self, root: &Path, kernel: &Kernel) -> Result<(), Failure> {
        let into = root.join("usr/lib/modules").join(&kernel.release);
        let _ = fs::remove_dir_all(root.join("usr/lib/modules"));
        let own: Vec<_> = kernel.built.iter().filter_map(|path| path.file_name()).collect();
        let mut packed = Vec::new();
        for path in self.chosen() {
            let plain = Path::new(path.strip_suffix(".xz").unwrap_or(&path));
            if plain.file_name().is_some_and(|name| own.contains(&name)) {
                continue;
            }
            copy(&kernel.modules.join(&path), &into.join(&path))?;
            if path.ends_with(".xz") {
                packed.push(into.join(&path));
            }
        }
        Step::new("xz").args(["--decompress", "--"]).args(packed).quiet().output()?;
        for path in &kernel.built {
            let name = path.file_name().unwrap_or_default();
            copy(path, &into.join("updates").join(name))?;
        }
        for name in ["modules.order", "modules.builtin", "modules.builtin.modinfo"] {
            copy(&kernel.modules.join(name), &into.join(name))?;
        }
        depmod(root, root, &kernel.release)
    }
}

/// `kernel/fs/ext4/ext4.ko.xz: kernel/lib/crc16.ko.xz kernel/fs/jbd2/jbd2.ko.xz` for each module.
fn parse_dependencies(text: &str) -> BTreeMap<String, Vec<String>> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let words = |needed: &str| needed.split_whitespace().map(str::to_owned).collect();
    lines.map(|(path, needed)| (path.to_owned(), words(needed))).collect()
}

/// Runs the guest's own depmod: a machine that loads no modules may have none.
fn depmod(root: &Path, base: &Path, release: &str) -> Result<(), Failure> {
    program_of(root, "usr/sbin/depmod").arg("-b").arg(base).arg(release).quiet().output().map(drop)
}

/// What the packages' own scripts would have done, as far as the guest needs it.
fn arrange(root: &Path) -> Result<(), Failure> {
    for folder in [
        "landfast", "job", "tests", "host", "mnt", "proc", "sys", "dev", "run", "tmp", "root",
        "etc",
    ] {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).map_err(Failure::io("creating", &folder))?;
    }
    for needless in ["usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info"] {
        let _ = fs::remove_dir_all(root.join(needless));
    }
    // Not busybox's, whose shell runs its own applets before the programs of the same names.
    let shell = root.join("usr/bin/sh");
    let _ = fs::remove_file(&shell);
    symlink("bash", &shell).map_err(Failure::io("linking", &shell))?;
    let applets = Step::new(root.join("usr/bin/busybox")).arg("--list").quiet().output()?;
    for applet in applets.lines() {
        let taken = ["usr/bin", "usr/sbin"]
            .iter()
            .any(|dir| root.join(dir).join(applet).symlink_metadata().is_ok());
        if !taken {
            let link = root.join("usr/bin").join(applet);
            symlink("busybox", &link).map_err(Failure::io("linking", &link))?;
        }
    }
    let texts = [
        ("etc/passwd", "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n"),
        ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
        ("etc/hosts", "127.0.0.1 localhost guest\n"),
    ];
    for (path, text) in texts {
        let path = root.join(path);
        fs::write(&path, text).map_err(Failure::io("writing", &path))?;
    }
    let mounts = root.join("etc/mtab");
    let _ = fs::remove_file(&mounts);
    symlink("/proc/mounts", &mounts).map_err(Failure::io("linking", &mounts))?;
    let script = root.join("landfast/init");
    fs::write(&script, start_script()?).map_err(Failure::io("writing", &script))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))
        .map_err(Failure::io("making executable", &script))
}

fn first_file_system(
    root: &Path,
    kernel: &Kernel,
    modules: &Modules,
    initramfs: &Path,
) -> Result<(), Failure> {
    let mut archive = Cpio::default();
    for folder in ["bin", "dev", "proc", "sys", "new", "modules"] {
        archive.add(folder, FOLDER, &[]);
    }
    let busybox = root.join("usr/bin/busybox");
    archive.add(
        "bin/busybox",
        PROGRAM,
        &fs::read(&busybox).map_err(Failure::io("reading", &busybox))?,
    );
    let installed = root.join("usr/lib/modules").join(&kernel.release);
    let mut script = FIRST_SCRIPT_HEAD.to_owned();
    let mut seen = BTreeSet::new();
    for path in DISK_MODULES.iter().flat_map(|name| modules.closure(name)) {
        if !seen.insert(path.clone()) {
            continue;
        }
        let plain = path.strip_suffix(".xz").unwrap_or(&path);
        let name = plain.rsplit('/').next().unwrap_or(plain);
        let file = installed.join(plain);
        archive.add(
            &format!("modules/{name}"),
            DATA,
            &fs::read(&file).map_err(Failure::io("reading", &file))?,
        );
        let _ = writeln!(script, "/bin/busybox insmod /modules/{name}");
    }
    script.push_str(FIRST_SCRIPT_TAIL);
    archive.add("init", PROGRAM, script.as_bytes());
    fs::write(initramfs, archive.finish()).map_err(Failure::io("writing", initramfs))
}

/// An archive in the one format a kernel unpacks at boot.
///
/// Spec: Linux Documentation/driver-api/early-userspace/buffer-format.rst: thirteen numbers of
/// eight hexadecimal digits behind a magic, then name and data, each padded to four bytes.
#[derive(Debug, Default)]
struct Cpio {
    bytes: Vec<u8>,
    entries: usize,
}

impl Cpio {
    fn add(&mut self, name: &str, mode: u32, data: &[u8]) {
        self.entries += 1;
        let numbers = [
            self.entries,
            usize::try_from(mode).unwrap_or_default(),
            0, // user
            0, // group
            1, // links
            0, // time
            data.len(),
            0, // device, major
            0, // device, minor
            0, // represented device, major
            0, // represented device, minor
            name.len() + 1,
            0, // checksum, which this magic has not
        ];
        self.bytes.extend_from_slice(b"070701");
        for number in numbers {
            self.bytes.extend_from_slice(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn pad(&mut self) {
        let len = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(len, 0);
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let folder: PathBuf = to.parent().map(Path::to_owned).unwrap_or_default();
    fs::create_dir_all(&folder).map_err(Failure::io("creating", &folder))?;
    fs::copy(from, to).map(drop).map_err(Failure::io("copying", from))
}

// File types and modes of cpio(5).
const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DATA: u32 = 0o100_644;

/// Without these there is no disk. ext4 asks for its checksum by name, which nobody answers there.
const DISK_MODULES: [&str; 4] = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4"];
/// Folders of Debian's modules that are taken whole: which of the small ones a file system or a
/// key exchange asks for is decided while it runs.
const MODULE_FOLDERS: [&str; 4] = ["crypto", "arch/x86/crypto", "lib/crypto", "drivers/nvdimm"];
/// Modules, beside those they need.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "virtio_console",
    "virtio_rng",
    "ext4",
    "xfs",
    "9p",
    "9pnet_virtio",
    "overlay",
    "loop",
    "nbd",
    "ublk_drv",
    "nfit",
    "device_dax",
    "dax_pmem",
    "kmem",
    "rdma_rxe",
    "rdma_ucm",
    "rdma_cm",
    "ib_uverbs",
    "ib_umad",
    "ib_core",
    "iw_cm",
    "siw",
    "cifs",
    "ksmbd",
    "nls_utf8",
    "nls_ucs2_utils",
    "cifs_arc4",
    "cifs_md4",
    "tls",
    "nf_tables",
    "nft_chain_nat",
    "nft_nat",
    "nf_nat",
    "nft_ct",
    "nft_redir",
    "sch_netem",
    "af_packet",
    "tcp_diag",
    "dummy",
    "dm_log_writes",
    "dm_flakey",
    "crc32c_intel",
    "crc32c_generic",
    "libcrc32c",
];

const FIRST_SCRIPT_HEAD: &str = "\
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
";
const FIRST_SCRIPT_TAIL: &str = "\
n=0
while [ ! -b /dev/vda ] && [ $n -lt 200 ]; do /bin/busybox usleep 20000; n=$((n + 1)); done
/bin/busybox mount -t ext4 /dev/vda /new
for folder in dev proc sys; do /bin/busybox mount --move /$folder /new/$folder; done
exec /bin/busybox switch_root /new /landfast/init
";
/// Raised when the disk is arranged otherwise.
const LAYOUT: u32 = 1;
/// Sparse: what matters is what it may grow to.
const DISK_SIZE: &str = "2G";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_comes_after_those_it_needs() {
        let text = "kernel/fs/ext4/ext4.ko.xz: kernel/fs/jbd2/jbd2.ko.xz kernel/lib/crc-16.ko.xz\n\
                    kernel/fs/jbd2/jbd2.ko.xz:\nkernel/lib/crc-16.ko.xz:\n";
        let modules = Modules { needs: parse_dependencies(text) };
        let wanted =
            ["kernel/lib/crc-16.ko.xz", "kernel/fs/jbd2/jbd2.ko.xz", "kernel/fs/ext4/ext4.ko.xz"];
        assert_eq!(modules.closure("ext4"), wanted);
        assert_eq!(modules.closure("crc_16"), wanted[..1]);
        assert!(modules.closure("ext").is_empty());
    }

    #[test]
    fn an_archive_is_what_the_kernel_unpacks() {
        let mut archive = Cpio::default();
        archive.add("a", DATA, b"hello");
        let bytes = archive.finish();
        // Typed from buffer-format.rst.
        let head = "070701\
                    00000001000081a4000000000000000000000001000000000000000500000000\
                    00000000000000000000000000000002000000";
        assert!(bytes.starts_with(head.as_bytes()));
        assert_eq!(&bytes[110..126], b"a\x00hello\x00\x00\x00070701");
        assert_eq!(bytes.len() % 4, 0);
    }
}
