//! Samba's smbd on a private configuration: the server every number and every client is held
//! against.
//!
//! Nothing of the machine's own Samba is touched: all of smbd's directories, its password
//! database and its port are below one temporary directory, and it listens on loopback only.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::failure::Failure;
use crate::peer::{
    Address, GUESTS, OTHER_PASSWORD, OTHER_USER, PASSWORD, SEALED, SHARE, USER, free_port,
    wait_for_port,
};
use crate::process::{Running, Step};
use crate::workspace;

/// A running smbd. Dropping it ends it and removes its directories.
#[derive(Debug)]
pub(crate) struct Samba {
    // Declared before the directory: fields drop in this order.
    /// The process.
    pub(crate) running: Running,
    /// How to reach it.
    pub(crate) address: Address,
    /// Where it logs.
    pub(crate) log: PathBuf,
    _state: TempDir,
}

impl Samba {
    /// Serves `directory` and waits until the port answers.
    pub(crate) fn start(directory: &Path) -> Result<Self, Failure> {
        Self::start_as(directory, Setup::Plain, |step| step)
    }

    /// The same for two ordinary users, with what files of Windows have kept in attributes.
    pub(crate) fn start_fairly(directory: &Path) -> Result<Self, Failure> {
        if !has_modules() {
            return Err(Failure::new("smbd lacks the modules for streams and access lists")
                .remedy(format!("apt-get install --no-install-recommends {MODULES_PACKAGE}")));
        }
        // They have no rights of their own on this machine.
        open_to_all(directory, 0o777)?;
        Self::start_as(directory, Setup::Fair, |step| step)
    }

    /// The shares of the table of rights, each with its directory below this one, and one of the keeper's beside it.
    pub(crate) fn start_for_rights(directory: &Path) -> Result<Self, Failure> {
        open_to_all(directory, 0o755)?;
        for (share, _) in RIGHTS_SHARES {
            let below = directory.join(share);
            fs::create_dir(&below).map_err(Failure::io("creating", &below))?;
        }
        Self::start_as(directory, Setup::Rights, |step| step)
    }

    /// The plain one on one core.
    pub(crate) fn start_on(core: usize, directory: &Path) -> Result<Self, Failure> {
        Self::start_as(directory, Setup::Plain, |step| step.on_core(core))
    }

    fn start_as(
        directory: &Path,
        setup: Setup,
        placed: impl FnOnce(Step) -> Step,
    ) -> Result<Self, Failure> {
        if !workspace::is_root() {
            return Err(Failure::new("smbd serves files as their owner and so must start as root")
                .remedy("run this as root, for instance in a container"));
        }
        let state =
            tempfile::tempdir().map_err(Failure::io("making a directory in", Path::new("/tmp")))?;
        if let Setup::Fair = setup {
            // An smbd that works as its user looks there whether another one still lives, and takes
            // what it may not see for dead: its share modes and oplocks would be nobody's.
            open_to_all(state.path(), 0o755)?;
        }
        let port = free_port()?;
        let config = configure(state.path(), directory, port, setup)?;
        for (_, account, password) in setup.users() {
            set_password(&config, account, password)?;
        }
        let log = workspace::kept("logs")?.join("smbd.log");
        let step = Step::new("smbd")
            .args(["--foreground", "--no-process-group", "--debug-stdout"])
            .arg("--configfile")
            .arg(&config);
        let mut running = placed(step).serve(&log, false)?;
        let smb = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        wait_for_port(smb, || match running.ended() {
            None => Ok(()),
            Some(status) => Err(Failure::new(format!("smbd ended with {status}"))
                .remedy(format!("read {}", log.display()))),
        })?;
        let address = Address { smb, rdma: None, directory: directory.to_owned() };
        Ok(Self { running, address, log, _state: state })
    }
}

fn open_to_all(directory: &Path, mode: u32) -> Result<(), Failure> {
    fs::set_permissions(directory, fs::Permissions::from_mode(mode))
        .map_err(Failure::io("opening to all", directory))
}

/// Whether smbd can keep in attributes what files of Windows have.
pub(crate) fn has_modules() -> bool {
    Path::new(MODULES).exists() || Path::new(MODULES_ELSEWHERE).exists()
}

/// What smbd is set up for.
#[derive(Clone, Copy, Debug)]
enum Setup {
    /// One user, who may do all that root may: speed and plain files.
    Plain,
    /// Two users who are nobody in particular; streams and access lists in extended attributes.
    Fair,
    /// The people of the table of rights. All work as root, so that only the share tells them apart.
    Rights,
}

impl Setup {
    /// The names clients give, the accounts of this machine behind them, their passwords. smbd
    /// wants accounts of the machine's: those that every Debian has, and nobody uses.
    fn users(self) -> &'static [(&'static str, &'static str, &'static str)] {
        match self {
            Self::Plain => &[(USER, "root", PASSWORD)],
            Self::Fair => &[(USER, "games", PASSWORD), (OTHER_USER, "news", OTHER_PASSWORD)],
            Self::Rights => &[
                ("owner", "games", PASSWORD),
                ("writer", "news", PASSWORD),
                ("reader", "mail", PASSWORD),
                ("nobody-here", "lp", PASSWORD),
            ],
        }
    }

    fn of_the_share(self) -> &'static str {
        match self {
            Self::Plain => "  force user = root\n",
            // What clients lock is compared, not what local programs see of it. With locks of POSIX below,
            // smbd refuses a WRITE to a range that nobody holds any more (lockstep, part locks, seed 294).
            Self::Fair => "  vfs objects = acl_xattr streams_xattr\n  posix locking = no\n",
            Self::Rights => "  vfs objects = streams_xattr\n  force user = root\n",
        }
    }

    fn shares(self, directory: &Path) -> String {
        let path = directory.display();
        let common = self.of_the_share();
        let Self::Rights = self else {
            return format!(
                "[{SHARE}]\n  path = {path}\n  read only = no\n{common}\
                 [{SEALED}]\n  copy = {SHARE}\n  server smb encrypt = required\n\
                 [{GUESTS}]\n  copy = {SHARE}\n  guest ok = yes\n  read only = yes\n"
            );
        };
        let share = |(name, special): (&str, &str)| {
            format!(
                "[{name}]\n  path = {path}/{name}\n{special}{common}\
                 [{name}-kept]\n  path = {path}/{name}\n  read only = no\n  valid users = games\n{common}"
            )
        };
        RIGHTS_SHARES.into_iter().map(share).collect()
    }
}

/// The shares of the table of rights, and what is special about each. Guests are `nobody`.
const RIGHTS_SHARES: [(&str, &str); 4] = [
    (
        "plain",
        "  read only = no\n  guest ok = yes\n  valid users = games news mail nobody\n  read list = mail nobody\n",
    ),
    ("readonly", "  read only = yes\n  guest ok = yes\n  valid users = games news mail nobody\n"),
    (
        "sealed",
        "  read only = no\n  server smb encrypt = required\n  valid users = games news mail\n  read list = mail\n",
    ),
    (
        "clear",
        "  read only = no\n  server smb encrypt = required\n  valid users = games news mail\n  read list = mail\n",
    ),
];

/// Writes smb.conf and the directories it names. Where nothing is said Samba's default holds, so
/// that the comparison is with smbd as people run it: asynchronous I/O on, `strict sync` on (a
/// FLUSH is an fsync), `sync always` off, log level 0.
fn configure(state: &Path, share: &Path, port: u16, setup: Setup) -> Result<PathBuf, Failure> {
    let map = state.join("users.map");
    let users = setup.users().iter();
    let lines: String = users.map(|(name, account, _)| format!("{account} = {name}\n")).collect();
    fs::write(&map, lines).map_err(Failure::io("writing", &map))?;
    let mut text = format!("{GLOBAL}  smb ports = {port}\n  passdb backend = tdbsam\n");
    let _ = writeln!(text, "  username map = {}", map.display());
    for name in ["private", "lock", "state", "cache", "pid", "ncalrpc"] {
        let dir = state.join(name);
        fs::create_dir(&dir).map_err(Failure::io("creating", &dir))?;
        let option = if name == "private" || name == "ncalrpc" { " dir" } else { " directory" };
        let _ = writeln!(text, "  {name}{option} = {}", dir.display());
    }
    text.push_str(&setup.shares(share));
    let config = state.join("smb.conf");
    fs::write(&config, text).map_err(Failure::io("writing", &config))?;
    Ok(config)
}

/// Enters an account into the private password database.
fn set_password(config: &Path, account: &str, password: &str) -> Result<(), Failure> {
    println!("  $ smbpasswd -c {} -L -a -s {account}", config.display());
    let mut child = Command::new("smbpasswd")
        .arg("-c")
        .arg(config)
        .args(["-L", "-a", "-s", account])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| {
            Failure::new(format!("starting smbpasswd: {error}")).remedy("cargo xtask deps")
        })?;
    if let Some(mut input) = child.stdin.take() {
        use std::io::Write as _;
        let _ = input.write_all(format!("{password}\n{password}\n").as_bytes());
    }
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        ended => Err(Failure::new(format!("smbpasswd: {ended:?}"))),
    }
}

/// What differs from Samba's defaults, and why: a stand-alone server on loopback without printers.
const GLOBAL: &str = "[global]
  workgroup = LANDFAST
  server role = standalone server
  interfaces = lo
  bind interfaces only = yes
  disable netbios = yes
  load printers = no
  printcap name = /dev/null
  server min protocol = SMB2_02
  strict sync = yes
  sync always = no
  log level = 0
  map to guest = bad user
";

/// What brings these modules.
pub(crate) const MODULES_PACKAGE: &str = "samba-vfs-modules";
/// One of the modules that Debian packs apart, on the machines it is met on.
const MODULES: &str = "/usr/lib/x86_64-linux-gnu/samba/vfs/streams_xattr.so";
const MODULES_ELSEWHERE: &str = "/usr/lib/aarch64-linux-gnu/samba/vfs/streams_xattr.so";
