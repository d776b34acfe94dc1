//! The guest's tests in their short form, for `cargo xtask test`: two guests at a time, as each keeps
//! one core busy and a machine of CI has two.

use std::thread;
use std::time::Instant;

use crate::failure::{Failure, Outcome, Tally};
use crate::guest::cache::Cache;
use crate::guest::{cifs, dax, machine, programs, siw, verbs};
use crate::process::Step;
use crate::workspace;

/// Begins to make the guest while other steps run. Whoever needs it waits for what is not done yet.
pub(crate) fn begin() {
    thread::spawn(|| {
        // Of this thread and of what it starts: compilers of other steps come first.
        let _ = rustix::process::nice(NICE);
        if let Err(failure) = Cache::ready() {
            println!("  the guest is not made yet: {failure}");
        }
    });
}

/// The kernel's client over both wires, its software iWARP, its devices under our provider, its
/// persistent memory.
pub(crate) fn short() -> Outcome {
    if let Some(reason) = lacking()? {
        println!("  {BANNER}\n  NO GUEST ON THIS MACHINE: {reason}\n  {BANNER}");
        return Ok(Tally { skipped: vec![format!("guest: {reason}")], ..Tally::default() });
    }
    // Before the first lane begins, so that none of them waits for the other's.
    workspace::landfast()?;
    programs::build()?;
    let mut tally = Tally::default();
    thread::scope(|scope| {
        let lanes = LANES.map(|parts| scope.spawn(|| parts.iter().map(run).collect::<Vec<_>>()));
        for (lane, parts) in lanes.into_iter().zip(LANES) {
            let found = lane.join().unwrap_or_else(|_| vec![panicked(parts)]);
            found.into_iter().for_each(|found| tally.add(found));
        }
    });
    Ok(tally)
}

fn run(part: &Part) -> Tally {
    let begin = Instant::now();
    let Part { name, run } = part;
    let found = run().unwrap_or_else(|failure| Tally {
        failed: vec![format!("guest {name}: {failure}")],
        ..Tally::default()
    });
    let (passed, failed, took) = (found.passed, found.failed.len(), begin.elapsed().as_secs());
    println!("  guest {name}: {passed} passed, {failed} failed, {took} s");
    found
}

fn panicked(parts: &[Part]) -> Tally {
    let names: Vec<_> = parts.iter().map(|part| part.name).collect();
    let failed = vec![format!("guest {}: xtask itself panicked", names.join(", "))];
    Tally { failed, ..Tally::default() }
}

/// One guest, or one after the other.
struct Part {
    name: &'static str,
    run: fn() -> Outcome,
}

const fn part(name: &'static str, run: fn() -> Outcome) -> Part {
    Part { name, run }
}

/// Parts in the same lane follow one another; the lanes take about as long. Both of cifs are in one:
/// their servers share a log.
const LANES: [&[Part]; 2] = [
    &[
        part("cifs over TCP", || cifs::run(&cifs::Options::short(cifs::Wire::Tcp))),
        part("cifs over SMB Direct", || cifs::run(&cifs::Options::short(cifs::Wire::Rdma))),
        part("dax, ext4", || dax::run(&dax::Options::short("ext4"))),
    ],
    &[
        part("siw", || siw::run(&siw::short())),
        part("verbs over rxe", || verbs::run(&verbs::Options::short(verbs::Device::Rxe))),
        part("verbs over siw", || verbs::run(&verbs::Options::short(verbs::Device::Siw))),
        part("dax, devdax", || dax::run(&dax::Options::short("devdax"))),
    ],
];

/// Why there can be no guest here, whatever is downloaded or installed. That something could not be
/// downloaded is a failure, and no reason to do without.
fn lacking() -> Result<Option<String>, Failure> {
    let machine = std::env::consts::ARCH;
    if machine != "x86_64" {
        return Ok(Some(format!("its QEMU is a program for x86_64, this is {machine}")));
    }
    if Step::new("apt-get").arg("--version").quiet().output().is_err() {
        return Ok(Some("it is made of Debian packages, and there is no apt-get".to_owned()));
    }
    let said = machine::emulator(&Cache::ready()?).args(["-accel", "help"]).quiet().finish()?;
    let emulates = said.stdout.lines().any(|line| line.trim() == "tcg");
    Ok((!emulates).then(|| format!("QEMU cannot emulate (-accel help says {:?})", said.stdout)))
}

/// How much the guest's making gives way.
const NICE: i32 = 10;
const BANNER: &str = "##################################################################";
