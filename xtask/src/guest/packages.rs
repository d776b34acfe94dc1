//! Debian packages without installing any: a private apt, downloads into the cache, unpacked trees.
//!
//! Nothing here needs root, and nothing of the machine's own package database is read but the
//! address of its mirror.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::Failure;
use crate::process::Step;

/// An apt of our own, with lists and downloads below one directory.
#[derive(Debug)]
pub(super) struct Apt {
    dir: PathBuf,
    config: PathBuf,
}

impl Apt {
    /// Prepares it in `dir` and fetches the package lists.
    pub(super) fn open(dir: &Path) -> Result<Self, Failure> {
        for folder in FOLDERS {
            let folder = dir.join(folder);
            fs::create_dir_all(&folder).map_err(Failure::io("creating", &folder))?;
        }
        let sources = sources(&mirror()?);
        let shown = dir.display();
        let settings = format!(
            "Dir \"{shown}\";\nDir::State \"state\";\nDir::State::status \"{shown}/state/status\";\n\
             Dir::Cache \"cache\";\nDir::Etc \"etc\";\n{SETTINGS}"
        );
        let config = dir.join("apt.conf");
        for (path, text) in [
            (dir.join("etc/sources.list"), sources.as_str()),
            (dir.join("state/status"), ""),
            (config.clone(), settings.as_str()),
        ] {
            fs::write(&path, text).map_err(Failure::io("writing", &path))?;
        }
        let apt = Self { dir: dir.to_owned(), config };
        apt.step("apt-get").args(["update", "--quiet", "--quiet"]).run()?;
        Ok(apt)
    }

    /// Downloads `packages` with everything they depend on and unpacks it all into `into`.
    pub(super) fn unpack_closure(&self, packages: &[&str], into: &Path) -> Result<(), Failure> {
        let archives = self.archives(into)?;
        self.step("apt-get")
            .args(["install", "--yes", "--download-only", "--no-install-recommends", "--quiet=2"])
            .arg("-o")
            .arg(format!("Dir::Cache::archives={}", archives.display()))
            .args(packages)
            .run()?;
        merged_directories(into)?;
        unpack(&archives, into)
    }

    /// Downloads just `packages` and unpacks them into `into`.
    pub(super) fn unpack(&self, packages: &[String], into: &Path) -> Result<(), Failure> {
        let archives = self.archives(into)?;
        self.step("apt-get").args(["download", "--quiet=2"]).args(packages).dir(&archives).run()?;
        unpack(&archives, into)
    }

    /// The version of a package and what it depends on, as the newest of the lists has it.
    pub(super) fn newest(&self, package: &str) -> Result<(String, String), Failure> {
        let shown = self.step("apt-cache").args(["show", "--no-all-versions", package]).output()?;
        let field = |name: &str| {
            let mut values = shown.lines().filter_map(|line| line.strip_prefix(name));
            values.next().map(|value| value.trim().to_owned())
        };
        field("Version:").zip(field("Depends:")).ok_or_else(|| {
            Failure::new(format!("Debian's lists have no {package}"))
                .remedy("name a kernel that is there in xtask/src/guest/kernel.rs")
        })
    }

    /// Downloads one file of Debian's pool, named by its sum.
    pub(super) fn pool_file(&self, path: &str, sha256: &str, to: &Path) -> Result<(), Failure> {
        let url = format!("{}/debian/pool/{path}", mirror()?);
        self.step("/usr/lib/apt/apt-helper")
            .args(["download-file", &url])
            .arg(to)
            .arg(format!("SHA256:{sha256}"))
            .quiet()
            .output()
            .map(drop)
    }

    fn archives(&self, into: &Path) -> Result<PathBuf, Failure> {
        let name = into.file_name().unwrap_or_default();
        let archives = self.dir.join("archives").join(name);
        // What an interrupted or older run left would be unpacked too.
        let _ = fs::remove_dir_all(&archives);
        let partial = archives.join("partial");
        fs::create_dir_all(&partial).map_err(Failure::io("creating", &partial))?;
        let _ = fs::remove_dir_all(into);
        fs::create_dir_all(into).map_err(Failure::io("creating", into))?;
        Ok(archives)
    }

    fn step(&self, program: &str) -> Step {
        Step::new(program)
            .env("APT_CONFIG", self.config.display().to_string())
            .limit(DOWNLOAD_LIMIT)
    }
}

/// A program of an unpacked tree, run with that tree's own C library: the machine's may be older.
pub(super) fn program_of(tree: &Path, program: &str) -> Step {
    let (folder, name) = program.rsplit_once('/').unwrap_or_default();
    Step::new(tree.join("usr/lib64/ld-linux-x86-64.so.2"))
        .arg("--library-path")
        .arg(tree.join("usr/lib/x86_64-linux-gnu"))
        .args(["--argv0", name])
        .arg(tree.join(folder).join(name))
}

/// The mirror this machine's apt takes Debian from, or Debian's own.
fn mirror() -> Result<String, Failure> {
    let listed = Step::new("apt-get").args(["indextargets", "--format", "$(REPO_URI)"]).quiet();
    let listed = listed.output().map_err(|failure| {
        failure.remedy("the guest is made of Debian packages: run this on Debian 12 or later")
    })?;
    Ok(mirror_of(&listed))
}

fn mirror_of(listed: &str) -> String {
    let mut found =
        listed.lines().filter_map(|line| line.trim_end_matches('/').strip_suffix("/debian"));
    found.next().unwrap_or("http://deb.debian.org").to_owned()
}

/// User land from Debian 13, whose rdma-core knows flush and atomic write. Its kernel needs a
/// compiler that Debian 12 has not; the same kernel built for Debian 12 is in that one's security
/// archive, and compilers of both releases build modules for it.
fn sources(mirror: &str) -> String {
    let suites =
        ["debian trixie", "debian-security trixie-security", "debian-security bookworm-security"];
    suites.iter().fold(String::new(), |text, suite| {
        let (archive, suite) = suite.split_once(' ').unwrap_or_default();
        text + &format!("deb [signed-by={KEYRING}] {mirror}/{archive} {suite} main\n")
    })
}

/// Makes the links of a merged /usr, as base-files would before anything else is unpacked.
fn merged_directories(root: &Path) -> Result<(), Failure> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        let (link, target) = (root.join(name), root.join("usr").join(name));
        fs::create_dir_all(&target).map_err(Failure::io("creating", &target))?;
        std::os::unix::fs::symlink(format!("usr/{name}"), &link)
            .map_err(Failure::io("linking", &link))?;
    }
    Ok(())
}

fn unpack(archives: &Path, into: &Path) -> Result<(), Failure> {
    // A pipe, because dpkg-deb itself would replace the links of a merged /usr by directories.
    let script = "set -e; for package in \"$1\"/*.deb; do dpkg-deb --fsys-tarfile \"$package\" | \
                  tar --extract --no-same-owner --keep-directory-symlink --directory \"$2\"; done";
    let step = Step::new("sh").args(["-c", script, "unpack"]).arg(archives).arg(into).quiet();
    step.output()?;
    // Half the cache would be archives that nobody reads again.
    fs::remove_dir_all(archives).map_err(Failure::io("removing", archives))
}

const FOLDERS: [&str; 5] = [
    "state/lists/partial",
    "cache/archives/partial",
    "etc/apt.conf.d",
    "etc/preferences.d",
    "etc/sources.list.d",
];
/// Everything is done as the calling user; nothing is ever installed, so nothing needs a lock.
const SETTINGS: &str = "\
APT::Architecture \"amd64\";
APT::Sandbox::User \"root\";
APT::Default-Release \"trixie\";
Acquire::Languages \"none\";
Debug::NoLocking \"1\";
";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The longest download, 150 MiB, over a slow line.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(20 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_one_the_machine_uses() {
        let listed = "https://example.org/other/\nhttp://ftp.example.org/debian/\n";
        assert_eq!(mirror_of(listed), "http://ftp.example.org");
        assert_eq!(mirror_of(""), "http://deb.debian.org");
    }
}
