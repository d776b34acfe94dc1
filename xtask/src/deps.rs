//! Brings the machine to the state the tests need: Debian packages, and Python clients in a
//! virtual environment of ours. Nothing is installed globally except through apt, and that only
//! as root.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::failure::{Failure, Outcome, Tally};
use crate::process::Step;
use crate::{samba, workspace};

/// Installs what is missing, or says what to install. The product is built meanwhile: it needs none of them.
pub(crate) fn run_while_building() -> Outcome {
    // Not waited for: the step that needs the build waits for it, and says what went wrong.
    run_with(|| drop(thread::spawn(|| workspace::ship_step().quiet().finish())))
}

/// Installs what is missing, or says what to install.
pub(crate) fn run() -> Outcome {
    run_with(|| ())
}

fn run_with(meanwhile: impl FnOnce()) -> Outcome {
    let missing = PROGRAMS.iter().filter(|(program, _)| !on_path(program));
    let mut packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
    packages.dedup();
    // Debian splits the part of Python that makes virtual environments into a package of its own.
    let ensurepip = Step::new("python3").args(["-c", "import ensurepip"]).quiet().finish()?;
    if !ensurepip.status.success() && !packages.contains(&"python3-venv") {
        packages.push("python3-venv");
    }
    if !samba::has_modules() {
        packages.push(samba::MODULES_PACKAGE);
    }
    if !Path::new(SQLITE_HEADER).exists() {
        packages.push("libsqlite3-dev");
    }
    if packages.is_empty() {
        println!("  all programs are there");
    } else {
        meanwhile();
        install(&packages)?;
    }
    for (program, package) in PROGRAMS {
        if !on_path(program) {
            return Err(Failure::new(format!(
                "no program {program}, though {package} is installed"
            ))
            .remedy(format!("apt-get install --reinstall {package}")));
        }
    }
    python()?;
    Ok(Tally::passed(format!("{} programs, Python clients", PROGRAMS.len())))
}

/// The interpreter of the virtual environment that holds smbprotocol and impacket; made first if
/// it is not there or was made from another list of versions.
pub(crate) fn python() -> Result<PathBuf, Failure> {
    let venv = workspace::target().join("interop-venv");
    let interpreter = venv.join("bin").join("python");
    let wanted_path = workspace::root().join(REQUIREMENTS);
    let wanted = fs::read(&wanted_path).map_err(Failure::io("reading", &wanted_path))?;
    let stamp = venv.join("requirements.installed");
    if interpreter.exists() && fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(interpreter);
    }
    let limit = Duration::from_secs(300);
    Step::new("python3").args(["-m", "venv", "--clear"]).arg(&venv).limit(limit).run()?;
    Step::new(&interpreter)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
        .arg("--requirement")
        .arg(&wanted_path)
        .limit(limit)
        .run()?;
    fs::write(&stamp, wanted).map_err(Failure::io("writing", &stamp))?;
    Ok(interpreter)
}

fn install(packages: &[&str]) -> Result<(), Failure> {
    let by_hand = format!("apt-get install --no-install-recommends {}", packages.join(" "));
    if !workspace::is_root() {
        return Err(Failure::new(format!("missing packages: {}", packages.join(" ")))
            .remedy(format!("sudo {by_hand}")));
    }
    let apt = |args: &[&str]| {
        Step::new("apt-get")
            .args(args)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .limit(Duration::from_secs(600))
            .run()
            .map_err(|failure| failure.remedy(by_hand.clone()))
    };
    // Debian's package lists age: without an update the named versions may be gone.
    apt(&["update", "--quiet"])?;
    apt(&[&["install", "--quiet", "--yes", "--no-install-recommends"], packages].concat())?;
    // Debian starts what it installs. The tests bring a smbd and a KDC of their own, on loopback; nobody
    // asked for those that serve the network.
    if Path::new("/run/systemd/system").exists() {
        for (package, services) in SERVICES.iter().filter(|(package, _)| packages.contains(package))
        {
            println!("  {package} was not there: its services stay off");
            Step::new("systemctl").args(["disable", "--now"]).args(*services).run()?;
        }
    }
    Ok(())
}

fn on_path(program: &str) -> bool {
    // smbd lives in /usr/sbin, which an ordinary user's PATH leaves out.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(sbin).any(|dir| dir.join(program).is_file())
}

/// Each program a step starts, with the Debian package that brings it. Sorted by package.
const PROGRAMS: &[(&str, &str)] = &[
    ("cc", "build-essential"),
    ("mke2fs", "e2fsprogs"),
    ("etcdctl", "etcd-client"),
    ("etcd", "etcd-server"),
    ("fio", "fio"),
    ("git", "git"),
    ("go", "golang-go"),
    ("kadmin.local", "krb5-admin-server"),
    ("krb5kdc", "krb5-kdc"),
    ("kinit", "krb5-user"),
    ("nbdcopy", "libnbd-bin"),
    ("nbdinfo", "libnbd-bin"),
    ("nbdkit", "nbdkit"),
    ("openssl", "openssl"),
    ("pkg-config", "pkg-config"),
    ("python3", "python3-venv"),
    ("xmllint", "libxml2-utils"),
    ("qemu-img", "qemu-utils"),
    ("qemu-io", "qemu-utils"),
    ("smbd", "samba"),
    ("smbpasswd", "samba-common-bin"),
    ("smbclient", "smbclient"),
    ("psql", "postgresql"),
    ("sqlite3", "sqlite3"),
    ("rpcclient", "smbclient"),
    ("dumpcap", "tshark"),
    ("tshark", "tshark"),
    ("shellcheck", "shellcheck"),
    ("setpriv", "util-linux"),
    ("iperf3", "iperf3"),
    ("smbtorture", "samba-testsuite"),
    ("mkfs.xfs", "xfsprogs"),
    ("xz", "xz-utils"),
];
/// With it a test compares our interface of SQLite.
const SQLITE_HEADER: &str = "/usr/include/sqlite3ext.h";
/// What Debian starts of them.
const SERVICES: &[(&str, &[&str])] = &[
    ("krb5-admin-server", &["krb5-admin-server"]),
    ("krb5-kdc", &["krb5-kdc"]),
    ("etcd-server", &["etcd"]),
    ("postgresql", &["postgresql"]),
    ("samba", &["smbd", "nmbd"]),
];
/// The pinned Python packages.
const REQUIREMENTS: &str = "tests/interop/requirements.txt";
