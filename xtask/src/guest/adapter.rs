//! A devdax device that an adapter reaches by itself: server and client with provider `verbs` on rxe, both
//! in the guest, commits by native RDMA Flush, pointers by Atomic Write, and the power cut in mid-stream.
//!
//! What the host has heard of as acknowledged must lie on the medium, and what the pointer names.

use std::time::Duration;

use crate::failure::{Failure, Outcome};
use crate::guest::machine::{Guest, Setup};
use crate::guest::{dax, media, programs};
use crate::interop::report;
use crate::workspace;

/// What it is called beside the kinds of [`dax`].
pub(super) const KIND: &str = "devdax-rxe";

/// One life, its end, and the next.
pub(super) fn one(cut: u32) -> Outcome {
    let scratch = workspace::scratch()?;
    let memory = dax::blank_memory(scratch.path())?;
    let setup = Setup {
        persistent_memory: Some(memory.clone()),
        programs: vec![programs::program("commit_stream")],
        ..Setup::default()
    };
    let boot = |life: &str| {
        let script = format!("bash /tests/adapter.sh {life}");
        Guest::start(&format!("dax-{KIND}"), &setup, &script, LIMIT)
    };

    let mut guest = boot("new")?;
    let path = guest.wait_for("region ")?;
    let wanted = dax::wanted(cut);
    while number(&guest.hear(ACKNOWLEDGED)?).is_none_or(|reached| reached < wanted) {}
    let said = guest.cut_power();
    let mut tally = report::read(&said);
    let acknowledged = said.lines().filter_map(number).max().unwrap_or(0);
    let sent = acknowledged + UNHEARD_MAX;
    println!("  {path}; the power was cut after {acknowledged} acknowledged commits");
    let is_native = path.contains("class pmem, commit by native RDMA Flush, in one go");
    tally.count(
        &format!("{KIND}: flushes and atomic writes are native"),
        if is_native { Ok(()) } else { Err(path) },
    );
    let found = media::inspect(&memory, acknowledged, sent)?;
    let what = format!("{KIND}: {acknowledged} acknowledged commits and what was published since");
    tally.count(&format!("{what} lie on the medium"), found.sound());

    let guest = boot("again")?;
    guest.tell("stream", &format!("{acknowledged} {sent}"))?;
    let ended = guest.finish();
    tally.count(
        &format!("{KIND}: the guest's script"),
        ended.succeeded("adapter.sh").map_err(|failure: Failure| failure.to_string()),
    );
    tally.add(report::read(&ended.output));
    Ok(tally)
}

fn number(line: &str) -> Option<u64> {
    line.strip_prefix(ACKNOWLEDGED)?.trim().parse().ok()
}

const ACKNOWLEDGED: &str = "acknowledged ";
/// More than the stream can do while a line of its is on the way here; a pass over the file has 256.
const UNHEARD_MAX: u64 = 64 * 256;
const LIMIT: Duration = Duration::from_secs(600);
