//! `landfast replica verify`: orders a comparison, and waits until each member has made it.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::args::Verify;
use super::control::Asked;
use super::{ReplicaFailure, ask};
use crate::failure::Failure;
use crate::output;

/// Orders a comparison; unless told otherwise, waits for it and says what differs.
pub(super) fn run(options: &Verify) -> Result<(), Failure> {
    let (_, answer) = ask::ask(&options.of, Asked::Verify { volume: options.volume.clone() })?;
    let (ranges, lsn) = (&answer["ranges"], answer["lsn"].as_u64().unwrap_or_default());
    if options.no_wait {
        return output::say(&format!(
            "{ranges} ranges are ordered to be compared, up to LSN {lsn}; the members' status counts what differs\n"
        ));
    }
    let since = answer["event"].as_u64().unwrap_or_default();
    let mut progress = Progress::new(answer["first"].as_u64().unwrap_or(lsn), lsn);
    // Who was away once has not compared all, whatever it has applied since.
    let mut absent = BTreeSet::new();
    loop {
        let (_, status) = ask::ask(&options.of, Asked::Status)?;
        if status["role"] != "source" {
            let why = "the member is the source no more: what was compared since is not known here";
            return Err(ReplicaFailure::Refused(why.to_owned()).into());
        }
        let replicas = status["replicas"].as_array().map(Vec::as_slice).unwrap_or_default();
        let (behind, away) = still(replicas, lsn);
        absent.extend(away);
        if behind.is_empty() {
            break;
        }
        progress.show(&behind);
        std::thread::sleep(PAUSE);
    }
    let (_, events) = ask::ask(&options.of, Asked::Events { since })?;
    let texts = |numbers: &'static [u64]| {
        let events = events.as_array().into_iter().flatten();
        let these =
            events.filter(move |it| it["event"].as_u64().is_some_and(|it| numbers.contains(&it)));
        these.filter_map(|event| event["text"].as_str())
    };
    let differences: Vec<&str> = texts(&[DIFFERS]).collect();
    // It was away in between two looks.
    absent.extend(texts(&FOLLOWS).map(|text| output::shown(text).into_owned()));
    for text in differences.iter().take(SHOWN) {
        output::say(&format!("{text}\n"))?;
    }
    if differences.len() > SHOWN {
        output::say(&format!("and {} more: landfast replica events\n", differences.len() - SHOWN))?;
    }
    output::say(&format!(
        "{ranges} ranges were compared, up to LSN {lsn}; {} differed\n",
        differences.len()
    ))?;
    if !absent.is_empty() {
        return Err(ReplicaFailure::NotCompared(Vec::from_iter(absent).join(", ")).into());
    }
    match differences.len() {
        0 => Ok(()),
        count => Err(ReplicaFailure::Differs(count).into()),
    }
}

/// The members that have not come so far, with how far they are, and those that will not compare now.
fn still(replicas: &[Value], lsn: u64) -> (Vec<(String, u64)>, Vec<String>) {
    let (mut behind, mut absent) = (Vec::new(), Vec::new());
    for replica in replicas {
        let name = replica["name"].as_str().unwrap_or_default().to_owned();
        let state = replica["state"].as_str().unwrap_or_default();
        let applied = replica["applied_lsn"].as_u64().unwrap_or_default();
        match () {
            () if applied >= lsn => {}
            () if AWAY.contains(&state) => absent.push(format!("{name} ({state})")),
            () => behind.push((name, applied)),
        }
    }
    (behind, absent)
}

/// Tells whoever waits at a terminal how far it is.
struct Progress {
    first: u64,
    last: u64,
    told: u64,
}

impl Progress {
    const fn new(first: u64, last: u64) -> Self {
        Self { first, last, told: 0 }
    }

    fn show(&mut self, behind: &[(String, u64)]) {
        let least = behind.iter().map(|(_, applied)| *applied).min().unwrap_or(self.last);
        let all = self.last.saturating_sub(self.first).max(1);
        let part = least.saturating_sub(self.first).saturating_mul(100) / all;
        if part > self.told {
            self.told = part;
            let names: Vec<&str> = behind.iter().map(|(name, _)| &**name).collect();
            output::note(&format!("{part} %, waiting for {}\n", names.join(", ")));
        }
    }
}

/// Members that compare nothing as they are.
const AWAY: [&str; 3] = ["Suspended", "WaitingForDestination", "InitialBlockCopy"];
/// The events of a member that begins to follow.
const FOLLOWS: [u64; 2] = [300, 301];
/// The event of a range that differs.
const DIFFERS: u64 = 400;
/// Ranges that are named one by one.
const SHOWN: usize = 20;
const PAUSE: Duration = Duration::from_millis(100);
