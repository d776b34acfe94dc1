//! The guest's tests in their short form, for `cargo xtask test`.

use std::thread;

use crate::failure::{Failure, Outcome, Tally};
use crate::guest::cache::Cache;
use crate::guest::{cifs, dax, machine, siw, verbs};
use crate::process::Step;

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
    let mut tally = Tally::default();
    for (name, run) in PARTS {
        let found = run().unwrap_or_else(|failure| Tally {
            failed: vec![format!("guest {name}: {failure}")],
            ..Tally::default()
        });
        println!("  guest {name}: {} passed, {} failed", found.passed, found.failed.len());
        tally.add(found);
    }
    Ok(tally)
}

type Part = (&'static str, fn() -> Outcome);

const PARTS: [Part; 5] = [
    ("cifs over TCP", || cifs::run(&cifs::Options::short(cifs::Wire::Tcp))),
    ("cifs over SMB Direct", || cifs::run(&cifs::Options::short(cifs::Wire::Rdma))),
    ("siw", || siw::run(&siw::short())),
    ("verbs", || verbs::run(&verbs::Options::default())),
    ("dax", || dax::run(&dax::Options::short())),
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
