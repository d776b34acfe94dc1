//! The kernel's SMB client against our server: a tree of real files both ways, in each protection,
//! over TCP or over SMB Direct on siw; over one connection and over several; the same mount after a
//! restart of the server; and all of that once more as tshark reads it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::failure::{Failure, Outcome, Tally};
use crate::guest::machine::{Guest, Setup};
use crate::interop::fpdus::{self, Moved, Side};
use crate::interop::{glance, report};
use crate::landfast::Landfast;
use crate::peer::{PASSWORD, SHARE, USER, for_guests};
use crate::process::{Step, tail};
use crate::workspace;

/// Options of `cargo xtask guest cifs`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// What carries the messages
    #[arg(long, default_value = "tcp")]
    pub(crate) wire: Wire,
    /// Only this protection; may be given several times
    #[arg(long)]
    pub(crate) mode: Vec<Mode>,
}

impl Options {
    /// What `cargo xtask test` runs: what the other wire does not show.
    pub(crate) fn short(wire: Wire) -> Self {
        let mode = match wire {
            Wire::Tcp => vec![Mode::Signed, Mode::Sealed],
            Wire::Rdma => vec![Mode::Plain],
        };
        Self { wire, mode }
    }
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
    let wire = options.wire.word();
    let pcap = workspace::kept("captures")?.join(format!("guest-cifs-{wire}.pcap"));
    let _ = fs::remove_file(&pcap);
    let shown = pcap.display().to_string();
    // tests/guest/redirect.inc leads this address here.
    let guests = for_guests(share.path());
    let mut common = vec!["--signing", "when-asked", "--announce", "10.0.2.3,rss,rdma"];
    common.extend(guests.iter().map(String::as_str));
    let extra = match options.wire {
        Wire::Tcp => common.clone(),
        Wire::Rdma => [&common[..], &["--pcap", &shown]].concat(),
    };
    let mut server = Landfast::start(share.path(), &extra)?;
    let address = server.address.clone();
    let port = match options.wire {
        Wire::Tcp => address.smb.port(),
        Wire::Rdma => address.rdma.map_or(0, |rdma| rdma.port()),
    };
    let modes: Vec<_> = Mode::value_variants()
        .iter()
        .filter(|mode| options.mode.is_empty() || options.mode.contains(mode))
        .map(|mode| mode.word())
        .collect();
    let modes_words = modes.join(" ");
    let script =
        format!("bash /tests/cifs.sh {wire} {port} {SHARE} {USER} {PASSWORD} {modes_words}");
    let capture = (options.wire == Wire::Tcp).then(|| pcap.clone());
    let (name, setup) = (format!("cifs-{wire}"), Setup { capture, ..Setup::default() });
    let mut guest = Guest::start(&name, &setup, &script, LIMIT)?;
    guest.wait_for("restart the server")?;
    server.running.stop(Duration::from_secs(10))?;
    drop(server);
    let again = Landfast::start_again(&address, &common)?;
    guest.tell("restarted", "")?;
    let ended = guest.finish();
    drop(again);

    let mut tally = report::read(&ended.output);
    tally.count(
        "the guest's script",
        ended.succeeded("cifs.sh").map_err(|failure| failure.to_string()),
    );
    for mode in &modes {
        tally.count(&format!("{mode} upload, as it lies here"), uploaded(share.path(), mode));
    }
    let large = modes.iter().any(|mode| *mode != "sealed");
    match options.wire {
        Wire::Tcp => {
            let renamed = pcap.with_extension("445.pcap");
            glance::on_smbs_port(&pcap, &renamed, port)?;
            fs::remove_file(&pcap).map_err(Failure::io("removing", &pcap))?;
            looked_at(&renamed, large, &mut tally)?;
        }
        Wire::Rdma => {
            let cut = pcap.with_extension("cut.pcap");
            let moved = fpdus::one_a_frame(&pcap, &cut)?;
            let plain = modes.contains(&"plain");
            looked_at(&cut, plain, &mut tally)?;
            if plain {
                by_rdma(&moved, &mut tally);
            }
        }
    }
    tally.note = format!("cifs.ko over {wire}: {modes_words}");
    Ok(tally)
}

/// All that travelled, as tshark reads it. `large`: requests of [`LARGE`] were sent readable.
fn looked_at(capture: &Path, large: bool, tally: &mut Tally) -> Result<(), Failure> {
    let seen = glance::glance(capture)?;
    println!(
        "  tshark: {} frames of SMB2, {} malformed, READs of up to {} bytes, WRITEs of up to {}",
        seen.smb2,
        seen.malformed.len(),
        seen.read_max,
        seen.write_max
    );
    let sound = match seen.malformed.first() {
        None if seen.smb2 > 0 => Ok(()),
        None => Err("not one frame of SMB2".to_owned()),
        Some(first) => Err(format!("{} frames, first: {first}", seen.malformed.len())),
    };
    tally.count("no malformed frame", sound);
    if large {
        for (what, most) in [("READ", seen.read_max), ("WRITE", seen.write_max)] {
            let enough = if most >= LARGE { Ok(()) } else { Err(format!("{most} bytes at most")) };
            tally.count(&format!("a {what} of 8 MiB"), enough);
        }
    }
    Ok(())
}

/// What the client read and wrote came by operations of our provider, not in messages.
fn by_rdma(moved: &Moved, tally: &mut Tally) {
    for (what, side, opcode) in [
        ("reads are RDMA Writes", Side::Server, fpdus::WRITE),
        ("writes are RDMA Reads", Side::Client, fpdus::READ_RESPONSE),
    ] {
        let (by_rdma, in_messages) = (moved.bytes(side, opcode), moved.bytes(side, fpdus::SEND));
        println!("  {what}: {by_rdma} bytes, and {in_messages} in messages");
        let most = by_rdma > 3 * LARGE && by_rdma / 4 > in_messages;
        tally.count(what, if most { Ok(()) } else { Err(format!("{by_rdma} bytes")) });
    }
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
    pub(super) fn word(self) -> &'static str {
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
/// The largest READ and WRITE our server offers.
const LARGE: u64 = 8 << 20;
