//! Samba's smbd on a private configuration: the server every number and every client is held
//! against.
//!
//! Nothing of the machine's own Samba is touched: all of smbd's directories, its password
//! database and its port are below one temporary directory, and it listens on loopback only.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::failure::Failure;
use crate::peer::{Address, PASSWORD, SEALED, SHARE, USER, free_port, wait_for_port};
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
        Self::start_as(directory, |step| step)
    }

    /// The same on one core.
    pub(crate) fn start_on(core: usize, directory: &Path) -> Result<Self, Failure> {
        Self::start_as(directory, |step| step.on_core(core))
    }

    fn start_as(directory: &Path, placed: impl FnOnce(Step) -> Step) -> Result<Self, Failure> {
        if !workspace::is_root() {
            return Err(Failure::new("smbd serves files as their owner and so must start as root")
                .remedy("run this as root, for instance in a container"));
        }
        let state =
            tempfile::tempdir().map_err(Failure::io("making a directory in", Path::new("/tmp")))?;
        let port = free_port()?;
        let config = configure(state.path(), directory, port)?;
        set_password(&config)?;
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

/// Writes smb.conf and the directories it names. Where nothing is said Samba's default holds, so
/// that the comparison is with smbd as people run it: asynchronous I/O on, `strict sync` on (a
/// FLUSH is an fsync), `sync always` off, log level 0.
fn configure(state: &Path, share: &Path, port: u16) -> Result<PathBuf, Failure> {
    let mut text = format!("{GLOBAL}  smb ports = {port}\n  passdb backend = tdbsam\n");
    for name in ["private", "lock", "state", "cache", "pid", "ncalrpc"] {
        let dir = state.join(name);
        fs::create_dir(&dir).map_err(Failure::io("creating", &dir))?;
        let option = if name == "private" || name == "ncalrpc" { " dir" } else { " directory" };
        let _ = writeln!(text, "  {name}{option} = {}", dir.display());
    }
    let _ = write!(
        text,
        "[{SHARE}]\n  path = {}\n  read only = no\n  force user = root\n",
        share.display()
    );
    let _ = write!(text, "[{SEALED}]\n  copy = {SHARE}\n  server smb encrypt = required\n",);
    let config = state.join("smb.conf");
    fs::write(&config, text).map_err(Failure::io("writing", &config))?;
    Ok(config)
}

/// Enters the account into the private password database. smbd wants each account to be one of
/// the machine's too, so the run's user name is mapped to root inside this configuration.
fn set_password(config: &Path) -> Result<(), Failure> {
    let map = config.with_file_name("users.map");
    fs::write(&map, format!("root = {USER}\n")).map_err(Failure::io("writing", &map))?;
    let text = fs::read_to_string(config).map_err(Failure::io("reading", config))?;
    let mapped =
        text.replacen("[global]\n", &format!("[global]\n  username map = {}\n", map.display()), 1);
    fs::write(config, mapped).map_err(Failure::io("writing", config))?;

    println!("  $ smbpasswd -c {} -L -a -s root", config.display());
    let mut child = Command::new("smbpasswd")
        .arg("-c")
        .arg(config)
        .args(["-L", "-a", "-s", "root"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| {
            Failure::new(format!("starting smbpasswd: {error}")).remedy("cargo xtask deps")
        })?;
    if let Some(mut input) = child.stdin.take() {
        use std::io::Write as _;
        let _ = input.write_all(format!("{PASSWORD}\n{PASSWORD}\n").as_bytes());
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
  map to guest = never
";
