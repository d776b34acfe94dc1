//! The guest's kernel: Debian's own, unmodified, and the modules Debian does not build.
//!
//! No kernel of Debian's enables `RDMA_SIW` or `CIFS_SMB_DIRECT`. Both are built here, outside the
//! kernel's tree, from the source package of the very same version against its headers.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::guest::packages::Apt;
use crate::process::Step;

/// An unpacked kernel with its modules.
#[derive(Debug)]
pub(super) struct Kernel {
    /// As `uname -r` says.
    pub(super) release: String,
    /// The image that boots.
    pub(super) image: PathBuf,
    /// Debian's modules, below `lib/modules/RELEASE`.
    pub(super) modules: PathBuf,
    /// Ours.
    pub(super) built: Vec<PathBuf>,
}

impl Kernel {
    /// Downloads kernel, headers and source into `dir` and builds what is missing.
    pub(super) fn prepare(apt: &Apt, dir: &Path) -> Result<Self, Failure> {
        let (version, depends) = apt.newest(HEADERS)?;
        let release = release_of(&depends).ok_or_else(|| {
            Failure::new(format!("{HEADERS} depends on `{depends}`, which names no kernel"))
        })?;
        let abi = release.trim_end_matches("-amd64");
        let packages = [
            format!("linux-image-{release}"),
            format!("linux-headers-{release}"),
            format!("linux-headers-{abi}-common"),
            format!("linux-kbuild-{abi}"),
        ];
        let packages: Vec<_> = packages
            .into_iter()
            .chain([SOURCE.to_owned()])
            .map(|package| format!("{package}={version}"))
            .collect();
        apt.unpack(&packages, dir)?;
        let built = Build::new(dir, &release)?.all()?;
        Self::found(dir, release, built)
    }

    /// The kernel an earlier [`Kernel::prepare`] left in `dir`.
    pub(super) fn find(dir: &Path) -> Result<Self, Failure> {
        let modules = dir.join("lib/modules");
        let release = only_entry(&modules)?;
        let built = MODULES.iter().map(|module| dir.join("source").join(module.object)).collect();
        Self::found(dir, release, built)
    }

    fn found(dir: &Path, release: String, built: Vec<PathBuf>) -> Result<Self, Failure> {
        let image = dir.join(format!("boot/vmlinuz-{release}"));
        let modules = dir.join("lib/modules").join(&release);
        for path in built.iter().chain([&image, &modules]) {
            if !path.exists() {
                return Err(Failure::new(format!("{} is not there", path.display()))
                    .remedy(format!("rm -r {} and try again", dir.display())));
            }
        }
        Ok(Self { release, image, modules, built })
    }
}

/// A build of modules outside the kernel's tree.
struct Build {
    headers: PathBuf,
    source: PathBuf,
}

impl Build {
    fn new(dir: &Path, release: &str) -> Result<Self, Failure> {
        let packaged = dir.join("usr/src");
        let headers = packaged.join(format!("linux-headers-{release}"));
        let abi = release.trim_end_matches("-amd64");
        let common = packaged.join(format!("linux-headers-{abi}-common"));
        // Debian's headers name their other half by the path it would have if installed.
        let makefile = headers.join("Makefile");
        let text = format!("include {}/Makefile\n", common.display());
        fs::write(&makefile, text).map_err(Failure::io("writing", &makefile))?;
        // BTF would need pahole; modules load without.
        let _ = fs::remove_file(headers.join("vmlinux"));
        let build = Self { headers, source: dir.join("source") };
        build.choose_compiler()?;
        build.unpack_source(&packaged)?;
        build.edit()?;
        Ok(build)
    }

    /// The kernel's own compiler where there is one; any later one knows its options too.
    fn choose_compiler(&self) -> Result<(), Failure> {
        let variables = self.headers.join(".kernelvariables");
        let text = fs::read_to_string(&variables).map_err(Failure::io("reading", &variables))?;
        let Some(wanted) = text
            .split(|c: char| c.is_whitespace() || c == ')')
            .find(|word| word.starts_with("gcc-"))
        else {
            return Ok(());
        };
        if Step::new(wanted).arg("--version").quiet().output().is_ok() {
            return Ok(());
        }
        println!("  no {wanted} here: the modules are built with this machine's gcc");
        fs::write(&variables, text.replace(wanted, "gcc"))
            .map_err(Failure::io("writing", &variables))
    }

    fn unpack_source(&self, packaged: &Path) -> Result<(), Failure> {
        let archive = packaged.join(format!("{SOURCE}.tar.xz"));
        fs::create_dir_all(&self.source).map_err(Failure::io("creating", &self.source))?;
        Step::new("tar")
            .args(["--extract", "--xz", "--wildcards", "--strip-components=1", "--directory"])
            .arg(&self.source)
            .arg("--file")
            .arg(&archive)
            .args(SOURCES.map(|path| format!("linux-source-*/{path}")))
            .run()?;
        // 150 MiB that are not read again.
        fs::remove_file(&archive).map_err(Failure::io("removing", &archive))
    }

    fn edit(&self) -> Result<(), Failure> {
        for Edit { file, from, to } in &EDITS {
            let path = self.source.join(file);
            let text = fs::read_to_string(&path).map_err(Failure::io("reading", &path))?;
            if text.contains(from) {
                fs::write(&path, text.replace(from, to)).map_err(Failure::io("writing", &path))?;
            } else {
                println!("  {file} does not say `{from}` any more");
            }
        }
        Ok(())
    }

    fn all(&self) -> Result<Vec<PathBuf>, Failure> {
        let compiler = self.headers.join("scripts/asn1_compiler");
        if !compiler.exists() {
            let include = self.source.join("include");
            let program = self.source.join("scripts/asn1_compiler.c");
            let step = Step::new("cc").arg("-O1").arg("-I").arg(include).arg("-o").arg(compiler);
            step.arg(program).run()?;
        }
        MODULES.iter().map(|module| self.one(module)).collect()
    }

    fn one(&self, module: &Module) -> Result<PathBuf, Failure> {
        let object = self.source.join(module.object);
        let folder = object.parent().unwrap_or(&self.source);
        Step::new("make")
            .arg("-C")
            .arg(&self.headers)
            .arg(format!("M={}", folder.display()))
            .args(["-j2", "modules"])
            .args(module.options)
            .builds()
            .output()?;
        Ok(object)
    }
}

/// `linux-headers-6.12.117+deb12-amd64 (= 6.12.117-1~deb12u1)` gives `6.12.117+deb12-amd64`.
fn release_of(depends: &str) -> Option<String> {
    let package = depends.split(' ').next()?;
    Some(package.strip_prefix("linux-headers-")?.to_owned())
}

fn only_entry(dir: &Path) -> Result<String, Failure> {
    let mut entries = fs::read_dir(dir).map_err(Failure::io("reading", dir))?.flatten();
    let name = entries.next().map(|entry| entry.file_name().to_string_lossy().into_owned());
    name.ok_or_else(|| Failure::new(format!("{} is empty", dir.display())))
}

/// A module that Debian leaves out.
struct Module {
    object: &'static str,
    options: &'static [&'static str],
}

/// A line of the kernel's source, and what stands there before it is compiled.
struct Edit {
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

/// Repairs of what would end every other run, and parameters for what siw decides when it is
/// compiled; docs/interop.md tells of each. Nothing else of the kernel is changed.
const EDITS: [Edit; 7] = [
    // Pages of a registration: 1 MiB, where cifs.ko makes up to 8 MiB of one READ.
    Edit {
        file: SIW_HEADER,
        from: "#define SIW_MAX_SGE_PBL 256",
        to: "#define SIW_MAX_SGE_PBL 2048",
    },
    // Pad and CRC of a frame that arrive in two pieces: the second is put over the first instead of
    // behind it, and the CRC does not match. QEMU's network cuts the stream wherever it likes.
    Edit {
        file: "drivers/infiniband/sw/siw/siw_qp_rx.c",
        from: "srx->skb_offset, tbuf, avail)",
        to: "srx->skb_offset, tbuf + srx->pad + MPA_CRC_SIZE - srx->fpdu_part_rem, avail)",
    },
    // The revision of the start-up that siw dials with, whether it asks for CRC, and flag A.
    Edit {
        file: SIW_MAIN,
        from: "u_char mpa_version = MPA_REVISION_2;",
        to: "u_char mpa_version = MPA_REVISION_2; module_param(mpa_version, byte, 0644);",
    },
    Edit {
        file: SIW_MAIN,
        from: "const bool mpa_crc_required;",
        to: "bool mpa_crc_required; module_param(mpa_crc_required, bool, 0644);",
    },
    Edit {
        file: SIW_MAIN,
        from: "const bool peer_to_peer;",
        to: "bool peer_to_peer; module_param(peer_to_peer, bool, 0644);",
    },
    Edit {
        file: SIW_HEADER,
        from: "extern const bool mpa_crc_required;",
        to: "extern bool mpa_crc_required;",
    },
    Edit {
        file: SIW_HEADER,
        from: "extern const bool peer_to_peer;",
        to: "extern bool peer_to_peer;",
    },
];
const SIW_MAIN: &str = "drivers/infiniband/sw/siw/siw_main.c";
const SIW_HEADER: &str = "drivers/infiniband/sw/siw/siw.h";
/// What is built. An option that changes C code must be defined for the compiler too: the kernel's
/// own configuration, which says the opposite, is already compiled in.
const MODULES: [Module; 2] = [
    Module { object: "drivers/infiniband/sw/siw/siw.ko", options: &["CONFIG_RDMA_SIW=m"] },
    Module {
        object: "fs/smb/client/cifs.ko",
        options: &[
            "CONFIG_CIFS=m",
            "CONFIG_CIFS_SMB_DIRECT=y",
            "KCFLAGS=-DCONFIG_CIFS_SMB_DIRECT=1",
        ],
    },
];
/// What the modules are compiled from, beside the headers.
const SOURCES: [&str; 7] = [
    "scripts/asn1_compiler.c",
    "include/linux/asn1*.h",
    "drivers/infiniband/sw/siw",
    "fs/smb",
    "fs/internal.h",
    "fs/mount.h",
    "fs/nls/*.h",
];
/// The package that names the newest kernel; 6.12 is the first whose rxe flushes.
const HEADERS: &str = "linux-headers-6.12-amd64";
const SOURCE: &str = "linux-source-6.12";

/// Changes when what is built changes, so that an older cache is not mistaken for it.
pub(super) fn recipe() -> String {
    let modules: Vec<_> = MODULES.iter().map(|module| module.object).collect();
    let edits: Vec<_> = EDITS.iter().map(|edit| edit.to).collect();
    format!("{HEADERS} {} {}", modules.join(" "), edits.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_name_is_in_what_its_headers_depend_on() {
        let depends = "linux-headers-6.12.117+deb12-amd64 (= 6.12.117-1~deb12u1)";
        assert_eq!(release_of(depends).as_deref(), Some("6.12.117+deb12-amd64"));
        assert_eq!(release_of("libc6"), None);
    }
}
