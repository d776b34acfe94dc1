//! The kernel's software iWARP against our provider `soft`, each in both roles: rping, which somebody
//! else wrote for verbs, in the guest, and `crates/rdma/examples/rping.rs` here; then a verbs program
//! that misbehaves and dies, `tests/guest/siw_peer.c`, and `crates/siw_peer` here.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::failure::{Failure, Outcome, Tally};
use crate::guest::machine::{Guest, Setup};
use crate::guest::{programs, siw_peer};
use crate::interop::report;
use crate::landfast::announced;
use crate::peer::free_port;
use crate::process::{Running, Step, tail};
use crate::workspace;

/// Options of `cargo xtask guest siw`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Connections opened and closed in each role, beside those that do something
    #[arg(long, default_value_t = 1000)]
    pub(crate) connections: u32,
    /// Fewer connections, fewer sizes, no rping
    #[arg(long)]
    pub(crate) short: bool,
    /// Where to write the guest's network traffic, for tshark
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
}

/// The short form, for the suite: about a minute once the guest is made.
pub(crate) fn short() -> Options {
    Options { connections: SHORT_CONNECTIONS, short: true, pcap: None }
}

/// Both roles, with CRC and without, several sizes, misdeeds, and peers that die.
pub(crate) fn run(options: &Options) -> Outcome {
    let pcap = options.pcap.clone();
    let options = if options.short { Options { pcap, ..short() } } else { options.clone() };
    let connections = options.connections;
    programs::build()?;
    let mut tally = siw_peer::run(connections, options.pcap.as_deref())?;
    if !options.short {
        tally.add(rping(RPING_CONNECTIONS)?);
    }
    tally.note = format!("siw, {connections} connections in each role");
    Ok(tally)
}

fn rping(connections: u32) -> Outcome {
    let program = programs::example("rping");
    let sizes_len = u32::try_from(SIZES.len()).unwrap_or(u32::MAX);
    let mut with_crc = Answering::start(&program, sizes_len + connections + KILLS + 1, &[])?;
    let mut without = Answering::start(&program, sizes_len, &["nocrc"])?;
    let own = free_port()?;
    let sizes = SIZES.map(|size| size.to_string()).join(" ");
    let (crc, plain) = (with_crc.address.port(), without.address.port());
    let script = format!("bash /tests/siw.sh {crc} {plain} {own} '{sizes}' {connections} {KILLS}");
    let setup = Setup { forwarded: vec![own], ..Setup::default() };
    let limit = LIMIT + Duration::from_secs(connections.into());
    let mut guest = Guest::start("siw-rping", &setup, &script, limit)?;
    guest.wait_for("siw answers")?;
    let mut tally = Tally::default();
    ask_all(&program, own, connections, &mut tally)?;
    guest.tell("asked", "")?;
    let ended = guest.finish();
    tally.count(
        "the guest's script",
        ended.succeeded("siw.sh").map_err(|failure| failure.to_string()),
    );
    tally.add(report::read(&ended.output));
    // Each connection came to an end here too, however its peer ended.
    tally.count("every connection with CRC ended here", with_crc.finished());
    tally.count("every connection without CRC ended here", without.finished());
    Ok(tally)
}

/// Our side as initiator.
fn ask_all(program: &Path, port: u16, connections: u32, tally: &mut Tally) -> Result<(), Failure> {
    let address = format!("127.0.0.1:{port}");
    let ask = |rounds: &str, size: &str, extra: &[&str]| {
        let step = Step::new(program).args(["client", &address, rounds, size]).args(extra);
        step.limit(ASK_LIMIT).quiet().finish()
    };
    for size in SIZES {
        for (name, extra) in [("CRC", &[][..]), ("no CRC", &["nocrc"][..])] {
            let finished = ask("10", &size.to_string(), extra)?;
            println!("  siw answers, {name}: {}", finished.stdout.trim_end());
            let sound =
                if finished.status.success() { Ok(()) } else { Err(tail(&finished.stderr)) };
            tally.count(&format!("siw answers, {name}, {size} bytes"), sound);
        }
    }
    let mut broken = String::new();
    for number in 0..connections {
        let finished = ask("1", "64", &[])?;
        if !finished.status.success() {
            let _ = write!(broken, "connection {number}:{}", tail(&finished.stderr));
        }
    }
    let all = if broken.is_empty() { Ok(()) } else { Err(broken) };
    tally.count(&format!("siw answers, {connections} connections one after the other"), all);
    for _ in 0..KILLS {
        let step = Step::new("timeout").args(["-s", "KILL", "1"]).arg(program);
        step.args(["client", &address, "1000000", "64"]).quiet().finish()?;
    }
    let finished = ask("10", "64", &[])?;
    let sound = if finished.status.success() { Ok(()) } else { Err(tail(&finished.stderr)) };
    tally.count(&format!("siw answers after {KILLS} peers were killed"), sound);
    Ok(())
}

/// Our side as responder.
#[derive(Debug)]
struct Answering {
    running: Running,
    address: SocketAddr,
}

impl Answering {
    fn start(program: &Path, connections: u32, extra: &[&str]) -> Result<Self, Failure> {
        let name = format!("rping{}.log", extra.concat());
        let log = workspace::kept("logs")?.join(name);
        let step = Step::new(program)
            .args(["server", "127.0.0.1:0", &connections.to_string()])
            .args(extra);
        let mut running = step.serve(&log, true)?;
        let address = announced(&mut running, &log, |line| {
            line.trim().strip_prefix("listening ")?.parse().ok()
        })?;
        Ok(Self { running, address })
    }

    fn finished(&mut self) -> Result<(), String> {
        match self.running.wait(Duration::from_secs(10)) {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(status.to_string()),
            Err(failure) => Err(failure.to_string()),
        }
    }
}

/// What rping takes; it frames 65,535 bytes in many segments.
const SIZES: [u32; 4] = [64, 1001, 4096, 65_535];
const KILLS: u32 = 3;
/// rping is started for each, which takes an emulated processor a while.
const RPING_CONNECTIONS: u32 = 30;
const SHORT_CONNECTIONS: u32 = 30;
const ASK_LIMIT: Duration = Duration::from_secs(120);
const LIMIT: Duration = Duration::from_secs(600);
