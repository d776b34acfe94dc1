//! The kernel's SMB client against our server: a tree of real files both ways, in each protection,
//! over TCP or over SMB Direct on siw; then the same mount after a restart of the server.

use std::fs;
use std::path::Path;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::failure::{Failure, Outcome};
use crate::guest::machine::{Guest, Setup};
use crate::interop::report;
use crate::landfast::Landfast;
use crate::peer::{PASSWORD, SHARE, USER};
use crate::process::{Step, tail};
use crate::workspace;

/// Options of `cargo xtask guest cifs`.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Options {
    /// What carries the messages
    #[arg(long, default_value = "tcp")]
    pub(crate) wire: Wire,
    /// Only this protection
    #[arg(long)]
    pub(crate) mode: Option<Mode>,
}

/// What carries SMB messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Wire {
    /// TCP.
    Tcp,
    /// SMB Direct over the kernel's software iWARP.
    Rdma,
}

/// How messages are protected.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Mode {
    /// `sec=ntlmssp`: only where the protocol insists.
    Plain,
    /// `sec=ntlmsspi`: each message signed.
    Signed,
    /// `seal`: each message encrypted.
    Sealed,
}

/// Mounts, copies, restarts the server, mounts again.
pub(crate) fn run(options: &Options) -> Outcome {
    let share = workspace::scratch()?;
    let sums = fill(share.path())?;
    println!("  {sums} files to download");
    let pcap =
        workspace::kept("captures")?.join(format!("guest-cifs-{}.pcap", options.wire.word()));
    let pcap = pcap.display().to_string();
    let extra: &[&str] = match options.wire {
        Wire::Tcp => &["--signing", "when-asked"],
        Wire::Rdma => &["--signing", "when-asked", "--pcap", &pcap],
    };
    let mut server = Landfast::start(share.path(), extra)?;
    let address = server.address.clone();
    let port = match options.wire {
        Wire::Tcp => address.smb.port(),
        Wire::Rdma => address.rdma.map_or(0, |rdma| rdma.port()),
    };
    let modes: Vec<_> = Mode::value_variants()
        .iter()
        .filter(|mode| options.mode.is_none_or(|only| only == **mode))
        .map(|mode| mode.word())
        .collect();
    let modes_words = modes.join(" ");
    let wire = options.wire.word();
    let script =
        format!("bash /tests/cifs.sh {wire} {port} {SHARE} {USER} {PASSWORD} {modes_words}");
    let mut guest = Guest::start(&Setup::default(), &script, LIMIT)?;
    guest.wait_for("restart the server")?;
    server.running.stop(Duration::from_secs(10))?;
    drop(server);
    let again = Landfast::start_again(&address, &extra[..2])?;
    guest.tell("restarted", "")?;
    let ended = guest.finish(|line| println!("  guest: {line}"));
    drop(again);

    let mut tally = report::read(&ended.output);
    tally.count(
        "the guest's script",
        ended.succeeded("cifs.sh").map_err(|failure| failure.to_string()),
    );
    for mode in modes {
        tally.count(&format!("{mode} upload, as it lies here"), uploaded(share.path(), mode));
    }
    tally.note = format!("cifs.ko over {wire}: {modes_words}");
    Ok(tally)
}

/// Puts a tree of real files and their sums into the share: this repository's own crates.
fn fill(share: &Path) -> Result<usize, Failure> {
    let down = share.join("down");
    Step::new("cp")
        .arg("-r")
        .arg(workspace::root().join("crates/smb"))
        .arg(&down)
        .quiet()
        .output()?;
    let script = "cd \"$1\" && find . -type f -exec sha256sum {} +";
    let sums = Step::new("sh").args(["-c", script, "sums"]).arg(&down).quiet().output()?;
    let list = share.join("down.sha256");
    fs::write(&list, &sums).map_err(Failure::io("writing", &list))?;
    Ok(sums.lines().count())
}

/// Holds what the guest has written against the sums it took on its own disk.
fn uploaded(share: &Path, mode: &str) -> Result<(), String> {
    let (list, tree) = (share.join(format!("up-{mode}.sha256")), share.join(format!("up-{mode}")));
    let checked = Step::new("sha256sum").args(["--quiet", "--strict", "-c"]).arg(list).dir(&tree);
    let checked = checked.quiet().finish().map_err(|failure| failure.to_string())?;
    if checked.status.success() { Ok(()) } else { Err(tail(&checked.stderr)) }
}

impl Wire {
    fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
        }
    }
}

impl Mode {
    fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Signed => "signed",
            Self::Sealed => "sealed",
        }
    }
}

/// Ten minutes: each step takes seconds, each mode a minute, on a processor emulated by half a one.
const LIMIT: Duration = Duration::from_secs(900);
