//! Samba's own tests of SMB2 servers, one by one, against ours or against smbd.
//!
//! ```text
//!   smbtorture --list --> each test alone, with a time limit, on an emptied share --> pass | fail | skip
//!                                     |                                                    |
//!            tests/interop/smbtorture.txt: those that passed before;           what is kept of it (`record`)
//!            one that fails now is a failure
//! ```
//!
//! Most tests sleep most of their time, so several lanes, each with a server and a share of its
//! own, take the next test that is left.

mod elsewhere;
pub(crate) mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use clap::Args;

use self::record::Record;
use crate::failure::{Failure, Outcome, Tally};
use crate::landfast::Landfast;
use crate::peer::{Against, OTHER_PASSWORD, OTHER_USER, PASSWORD, Peer, USER};
use crate::process::Step;
use crate::samba::Samba;
use crate::workspace;

/// Options of `cargo xtask smbtorture`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Whose server.
    #[arg(long, default_value = "landfast")]
    pub(crate) against: Against,
    /// Only tests whose name begins so, such as `smb2.lock`; may be given several times.
    pub(crate) names: Vec<String>,
    /// Only the tests that passed before: what must not get worse.
    #[arg(long)]
    pub(crate) known: bool,
    /// Write down what the tests came to, and which of ours pass twice in a row.
    #[arg(long, conflicts_with = "known")]
    pub(crate) update: bool,
    /// Run nothing; write the tables of docs/interop.md anew.
    #[arg(long, conflicts_with_all = ["known", "update"])]
    pub(crate) page: bool,
    /// Seconds a test may take.
    #[arg(long, default_value_t = LIMIT)]
    pub(crate) limit: u64,
    /// Tests at once, each with a server of its own.
    #[arg(long, default_value_t = 1)]
    pub(crate) lanes: usize,
    /// Samba's programs from this directory, into which other packages of it were unpacked (root).
    #[arg(long, value_name = "DIR", conflicts_with_all = ["update", "page"])]
    pub(crate) samba: Option<PathBuf>,
}

impl Options {
    /// What must not get worse.
    pub(crate) fn known() -> Self {
        let (against, names) = (Against::Landfast, Vec::new());
        Self {
            against,
            names,
            known: true,
            update: false,
            page: false,
            limit: LIMIT,
            lanes: LANES,
            samba: None,
        }
    }
}

/// Runs the tests and prints the table of suites.
pub(crate) fn run(options: &Options) -> Outcome {
    if options.page {
        record::write_page()?;
        return Ok(Tally::passed("docs/interop.md"));
    }
    if let Some(dir) = options.samba.as_ref().filter(|_| !elsewhere::is_entered()) {
        return elsewhere::enter(dir);
    }
    let known = known()?;
    let ours = options.against == Against::Landfast;
    let chosen: Vec<String> = tests()?
        .into_iter()
        .filter(|name| !options.known || known.contains(name))
        .filter(|name| {
            options.names.is_empty() || options.names.iter().any(|asked| name.starts_with(asked))
        })
        .collect();
    let logs = workspace::kept("smbtorture")?;
    let queue = Queue { chosen: &chosen, next: AtomicUsize::new(0) };
    let lanes = std::thread::scope(|scope| {
        let lane = || lane(options, &queue, &known, &logs);
        let lanes: Vec<_> = (0..options.lanes.max(1)).map(|_| scope.spawn(lane)).collect();
        let join = |lane: ScopedJoinHandle<'_, _>| lane.join().expect("a lane does not panic");
        lanes.into_iter().map(join).collect::<Result<Vec<_>, Failure>>()
    })?;
    let (mut results, mut tally) = (BTreeMap::new(), Tally::default());
    for (found, counted) in lanes {
        results.extend(found);
        tally.add(counted);
    }
    print_table(&results);
    if options.update {
        if ours {
            remember(&known, &results)?;
        }
        let mut record = Record::read()?;
        record.learn(options.against, &results);
        record.write()?;
    }
    let passed = results.values().filter(|result| **result == Verdict::Pass).count();
    let unsteady = std::mem::take(&mut tally.note);
    tally.note = format!("{passed} of {} tests pass", results.len());
    if !unsteady.is_empty() {
        tally.note.push_str(&format!("; {unsteady}"));
    }
    Ok(tally)
}

/// Runs the tests whose names begin so against ours on a directory of the caller's. One that is
/// skipped counts as skipped, with its name.
pub(crate) fn all_pass_on(directory: &Path, beginning: &str) -> Outcome {
    let logs = workspace::kept("smbtorture")?;
    let mut peer = serve(Against::Landfast, directory)?;
    let mut tally = Tally::default();
    for name in tests()?.iter().filter(|name| name.starts_with(beginning)) {
        let result = one(&peer, name, LIMIT, &logs)?;
        println!("  {result:<7} {name}");
        match result {
            Verdict::Pass => tally.passed += 1,
            Verdict::Skip => tally.skipped.push(format!("{name}: by itself")),
            Verdict::Fail | Verdict::Timeout => {
                tally.failed.push(format!("{name}: read {}", logs.join(name).display()));
            }
        }
        peer.still_runs()?;
        empty(directory)?;
    }
    Ok(tally)
}

/// The tests that are left.
struct Queue<'a> {
    chosen: &'a [String],
    next: AtomicUsize,
}

/// Runs what is left of the tests, one after the other, on a server and a share of its own.
fn lane(
    options: &Options,
    queue: &Queue<'_>,
    known: &BTreeSet<String>,
    logs: &Path,
) -> Result<(BTreeMap<String, Verdict>, Tally), Failure> {
    let ours = options.against == Against::Landfast;
    let share = workspace::scratch()?;
    let mut peer = serve(options.against, share.path())?;
    let (mut results, mut tally) = (BTreeMap::new(), Tally::default());
    let mut again = Vec::new();
    loop {
        let index = queue.next.fetch_add(1, Ordering::Relaxed);
        let Some(name) = queue.chosen.get(index) else {
            if !again.is_empty() {
                tally.note = format!("at the second attempt: {}", again.join(" "));
            }
            return Ok((results, tally));
        };
        let begin = Instant::now();
        let mut result = one(&peer, name, options.limit, logs)?;
        let is_new = ours && options.update && !known.contains(name);
        if is_new && result == Verdict::Pass {
            // Only what passes again goes on the list of those that must.
            empty(share.path())?;
            result = one(&peer, name, options.limit, logs)?;
        }
        if options.known && result != Verdict::Pass && peer.still_runs().is_ok() {
            // Some lean on who is faster, the server with an end or the client with a beginning.
            println!("  {name}: {result}, once more");
            empty(share.path())?;
            result = one(&peer, name, options.limit, logs)?;
            if result == Verdict::Pass {
                again.push(name.as_str());
            }
        }
        println!(
            "  [{}/{}] {result:<7} {name} ({:.1} s)",
            index + 1,
            queue.chosen.len(),
            begin.elapsed().as_secs_f64()
        );
        if ours && result != Verdict::Pass && known.contains(name) {
            let log = logs.join(name);
            tally.failed.push(format!("{name} passed before: read {}", log.display()));
        } else {
            tally.passed += u32::from(result == Verdict::Pass);
        }
        if let Err(ended) = peer.still_runs() {
            tally.failed.push(format!("{name}: {ended}"));
            peer = serve(options.against, share.path())?;
        }
        results.insert(name.clone(), result);
        empty(share.path())?;
    }
}

/// A server of `directory` with two users. Ours is set up as smbd is by default: who does not ask
/// need not sign, or smbtorture takes no answer that cannot be signed.
fn serve(against: Against, directory: &Path) -> Result<Peer, Failure> {
    let other = format!("{OTHER_USER}:{OTHER_PASSWORD}");
    Ok(match against {
        Against::Landfast => {
            let extra = ["--signing", "when-asked", "--user", &other];
            Peer::Landfast(Landfast::start(directory, &extra)?)
        }
        Against::Smbd => Peer::Smbd(Samba::start_fairly(directory)?),
    })
}

/// How a test ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Verdict {
    Pass,
    Fail,
    Skip,
    Timeout,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pass => "pass",
            Self::Fail => "FAIL",
            Self::Skip => "skip",
            Self::Timeout => "TIMEOUT",
        })
    }
}

/// The names of all SMB2 tests, as smbtorture takes them on its command line.
fn tests() -> Result<Vec<String>, Failure> {
    let list = Step::new("smbtorture").arg("--list").quiet().output()?;
    let mut names: Vec<String> = list
        .lines()
        .filter_map(runnable)
        .filter(|name| !ENDLESS.iter().any(|endless| name.starts_with(endless)))
        .map(str::to_owned)
        .collect();
    names.dedup();
    Ok(names)
}

/// The list says the last part of each name twice.
fn runnable(line: &str) -> Option<&str> {
    let listed = line.trim();
    listed.strip_prefix("smb2.")?;
    let (name, last) = listed.rsplit_once('.')?;
    if name.ends_with(last) { Some(name) } else { Some(listed) }
}

fn one(peer: &Peer, name: &str, limit: u64, logs: &Path) -> Result<Verdict, Failure> {
    let address = peer.address();
    let limit = limit.to_string();
    let finished = Step::new("timeout")
        .args(["--kill-after=5", &limit, "smbtorture"])
        .arg(address.unc())
        .args(["--smb-ports", &address.smb.port().to_string()])
        .args(["--user", &format!("{USER}%{PASSWORD}")])
        .arg(format!("--option=torture:user2name={OTHER_USER}"))
        .arg(format!("--option=torture:user2password={OTHER_PASSWORD}"))
        .args(signing_of(name))
        .args(["--configfile", "/dev/null", name])
        .limit(Duration::from_secs(600))
        .quiet()
        .finish()?;
    let text = finished.stdout + &finished.stderr;
    let log = logs.join(name);
    fs::write(&log, &text).map_err(Failure::io("writing", &log))?;
    // timeout(1): 124 when it had to end the program, 137 when it had to kill it; it dies of the
    // signal that the program dies of.
    Ok(match finished.status.code() {
        Some(124 | 137) => Verdict::Timeout,
        Some(_) => judge(&text),
        None => Verdict::Fail,
    })
}

// Its client binds connections that have counted on, and wants the answers signed under message ids the
// session's key has used: AES-GMAC would repeat a nonce, AES-CMAC has none. docs/keys.md.
fn signing_of(name: &str) -> Option<&'static str> {
    BINDS.iter().any(|beginning| name.starts_with(beginning)).then_some(WITHOUT_NONCES)
}

/// Reads smbtorture's lines: one for each part of a test.
fn judge(text: &str) -> Verdict {
    let has = |word: &str| text.lines().any(|line| line.starts_with(word));
    if has("failure:") || has("error:") {
        Verdict::Fail
    } else if has("success:") {
        Verdict::Pass
    } else if has("skip:") {
        Verdict::Skip
    } else {
        Verdict::Fail
    }
}

fn print_table(results: &BTreeMap<String, Verdict>) {
    let mut suites: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    for (name, verdict) in results {
        let suite = name.splitn(3, '.').take(2).map(str::len).sum::<usize>() + 1;
        let counts = suites.entry(&name[..suite]).or_default();
        counts[match verdict {
            Verdict::Pass => 0,
            Verdict::Fail => 1,
            Verdict::Timeout => 2,
            Verdict::Skip => 3,
        }] += 1;
    }
    println!("\n  {:<34} {:>5} {:>5} {:>8} {:>5}", "suite", "pass", "fail", "timeout", "skip");
    for (suite, [pass, fail, timeout, skip]) in suites {
        println!("  {suite:<34} {pass:>5} {fail:>5} {timeout:>8} {skip:>5}");
    }
}

/// The tests that passed when the list was last written.
fn known() -> Result<BTreeSet<String>, Failure> {
    let path = list_path();
    let text = fs::read_to_string(&path).map_err(Failure::io("reading", &path))?;
    let names = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(names.map(str::to_owned).collect())
}

/// Writes the list again; tests that did not run now stay as they were.
fn remember(known: &BTreeSet<String>, results: &BTreeMap<String, Verdict>) -> Result<(), Failure> {
    let mut passing: BTreeSet<&str> =
        known.iter().map(String::as_str).filter(|name| !results.contains_key(*name)).collect();
    let now = results.iter().filter(|(_, verdict)| **verdict == Verdict::Pass);
    passing.extend(now.map(|(name, _)| name.as_str()));
    let names: Vec<&str> = passing.into_iter().collect();
    let path = list_path();
    fs::write(&path, format!("{LIST_HEADING}{}\n", names.join("\n")))
        .map_err(Failure::io("writing", &path))
}

fn list_path() -> PathBuf {
    workspace::root().join("tests/interop/smbtorture.txt")
}

fn empty(share: &Path) -> Result<(), Failure> {
    let entries = fs::read_dir(share).map_err(Failure::io("listing", share))?;
    for entry in entries.flatten() {
        let path = entry.path();
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(Failure::io("removing", &path))?;
    }
    Ok(())
}

/// Seconds a test may take.
const LIMIT: u64 = 30;
const WITHOUT_NONCES: &str = "--option=clientsmb3signingalgorithms=AES-128-CMAC,HMAC-SHA256";
const BINDS: &[&str] = &[
    "smb2.multichannel.",
    "smb2.replay.dhv2-pending2",
    "smb2.replay.replay3",
    "smb2.replay.replay4",
    "smb2.session.bind1",
    "smb2.session.bind2",
    "smb2.session.bind_different_user",
    "smb2.session.bind_invalid_auth",
    "smb2.session.bind_negative_smb3enc",
];
/// Tests at once in `cargo xtask test`: most of them sleep.
const LANES: usize = 3;

const LIST_HEADING: &str = "\
# Tests of Samba's smbtorture that pass against this server: `cargo xtask smbtorture --update` writes
# this list, `cargo xtask smbtorture --known` fails when one of them no longer passes.
";

/// Benchmarks and endurance runs: they measure or hold on, and say nothing of right or wrong.
const ENDLESS: &[&str] = &["smb2.bench", "smb2.hold-oplock", "smb2.hold-sharemode", "smb2.maxfid"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_list_become_names_of_the_command_line() {
        assert_eq!(runnable("smb2.lock.auto-unlock.auto-unlock"), Some("smb2.lock.auto-unlock"));
        assert_eq!(runnable("smb2.connect.connect"), Some("smb2.connect"));
        assert_eq!(runnable("raw.lock.x.x"), None);
    }

    #[test]
    fn one_failed_part_fails_the_test() {
        assert_eq!(judge("test: a\nsuccess: a\ntest: b\nfailure: b [\n]"), Verdict::Fail);
        assert_eq!(judge("skip: a [\n]"), Verdict::Skip);
        assert_eq!(judge("success: a"), Verdict::Pass);
        assert_eq!(judge("Segmentation fault"), Verdict::Fail);
    }
}
