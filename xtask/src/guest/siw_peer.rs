//! A verbs program in the guest and its counterpart here: every operation, misdeeds and deaths, each
//! end dialling and answering.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::{Failure, Outcome, Tally};
use crate::guest::cache::Cache;
use crate::guest::machine::{Guest, Setup};
use crate::guest::programs::program;
use crate::interop::report;
use crate::landfast::announced;
use crate::peer::free_port;
use crate::process::{Running, Step, tail};
use crate::workspace;

pub(super) fn run(connections: u32, capture: Option<&Path>) -> Outcome {
    let scratch = workspace::scratch()?;
    let program = scratch.path().join("siw_peer");
    let source = workspace::root().join("tests/guest/siw_peer.c");
    Cache::ready()?.verbs_program(&source, &program)?;
    let mut with_crc = Answering::start(&[])?;
    let mut without = Answering::start(&["nocrc"])?;
    let own = free_port()?;
    let (crc, plain) = (with_crc.address.port(), without.address.port());
    let script = format!("bash /tests/siw_peer.sh {crc} {plain} {own} {connections}");
    let setup = Setup {
        forwarded: vec![own],
        programs: vec![program],
        capture: capture.map(Path::to_owned),
        ..Setup::default()
    };
    let limit = LIMIT + Duration::from_secs(u64::from(connections) / 5);
    let mut guest = Guest::start("siw", &setup, &script, limit)?;
    let mut tally = Tally::default();
    ask_all(&mut guest, own, connections, &mut tally)?;
    let ended = guest.finish();
    tally.count(
        "the guest's script",
        ended.succeeded("siw_peer.sh").map_err(|failure| failure.to_string()),
    );
    tally.add(report::read(&ended.output));
    with_crc.finish(&mut tally);
    without.finish(&mut tally);
    Ok(tally)
}

/// Our side as initiator. The guest's program is started anew whenever it has died.
fn ask_all(
    guest: &mut Guest,
    port: u16,
    connections: u32,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let many = connections.to_string();
    let mut life: u32 = 0;
    guest.wait_for(&format!("siw answers {life}"))?;
    ask(port, &["sound"], tally)?;
    ask(port, &["sound", "nocrc"], tally)?;
    ask(port, &["sound", "forms=2"], tally)?;
    for misdeed in MISDEEDS {
        for actor in ["i", "r"] {
            ask(port, &[&format!("{actor}-{misdeed}")], tally)?;
        }
    }
    ask(port, &["hello", &many], tally)?;
    for stage in STAGES {
        ask(port, &[&format!("die-{stage}")], tally)?;
        guest.tell(&format!("life-{life}"), "again")?;
        life += 1;
        guest.wait_for(&format!("siw answers {life}"))?;
        ask(port, &["hello"], tally)?;
    }
    // Last, because siw's host may not survive a start-up of this form that fails.
    ask(port, &["sound", "forms=1"], tally)?;
    ask(port, &["enough"], tally)?;
    guest.tell(&format!("life-{life}"), "enough")
}

fn ask(port: u16, words: &[&str], tally: &mut Tally) -> Result<(), Failure> {
    let address = format!("127.0.0.1:{port}");
    let step = Step::new(program("siw_peer")).arg("ask").arg(address).args(words);
    let finished = step.limit(ASK_LIMIT).quiet().finish()?;
    for line in finished.stderr.lines() {
        println!("  host: {line}");
    }
    let found = report::read(&finished.stderr);
    if !finished.status.success() && found.failed.is_empty() {
        let evidence = format!("{}{}", finished.status, tail(&finished.stderr));
        tally.count(&format!("siw answers: {}", words.join(" ")), Err(evidence));
    }
    tally.add(found);
    Ok(())
}

/// Our side as responder.
#[derive(Debug)]
struct Answering {
    running: Running,
    address: SocketAddr,
    log: PathBuf,
}

impl Answering {
    fn start(extra: &[&str]) -> Result<Self, Failure> {
        let log = workspace::kept("logs")?.join(format!("siw-peer{}.log", extra.concat()));
        let step = Step::new(program("siw_peer")).args(["answer", "127.0.0.1:0"]).args(extra);
        let mut running = step.serve(&log, true)?;
        let address = announced(&mut running, &log, |line| {
            line.trim().strip_prefix("listening ")?.parse().ok()
        })?;
        Ok(Self { running, address, log })
    }

    /// Adds what it found; it has been told that this is enough.
    fn finish(&mut self, tally: &mut Tally) {
        let ended = match self.running.wait(Duration::from_secs(10)) {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(status.to_string()),
            Err(failure) => Err(failure.to_string()),
        };
        tally.count("whoever answers here ended when told", ended);
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        for line in said.lines() {
            println!("  host: {line}");
        }
        tally.add(report::read(&said));
    }
}

/// As in `crates/siw_peer`.
const MISDEEDS: [&str; 9] = [
    "write-key",
    "read-key",
    "write-bounds",
    "read-bounds",
    "write-right",
    "read-right",
    "send-long",
    "send-none",
    "crc",
];
/// Where the guest's program dies.
const STAGES: [&str; 9] =
    ["asked", "replied", "idle", "g-send", "g-write", "g-read", "h-send", "h-write", "h-read"];
const ASK_LIMIT: Duration = Duration::from_secs(600);
const LIMIT: Duration = Duration::from_secs(600);
