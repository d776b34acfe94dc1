//! Clients that do anything, against their model; at the end the server holds nothing.

use std::ffi::OsString;
use std::fs;

use super::{
    CONTROL, MILLISECOND, PASSWORD, RDMA, SECOND, SHARE, SMB, Scenario, USER, WORK_MAX, last_line,
};
use crate::failure::Failure;
use crate::plan::Plan;

impl Scenario<'_> {
    /// Runs the clients, lets happen what the plan says, and looks at what is left.
    pub(super) fn smb(&mut self) -> Result<(), Failure> {
        let Plan { seed, clients, lasts, .. } = *self.plan;
        let seconds = format!("{}.{:03}", lasts / 1_000, lasts % 1_000);
        let share = self.site.join("share").to_string_lossy().into_owned();
        let (clients, seed) = (clients.to_string(), seed.to_string());
        let user = format!("{USER}:{PASSWORD}");
        let began = self.machine.now;
        let words = [
            SMB,
            SHARE,
            &share,
            "--direct",
            RDMA,
            "--user",
            &user,
            "--clients",
            &clients,
            "--seconds",
            &seconds,
            "--seed",
            &seed,
        ];
        let model = self.start_example("model", &words)?;
        for (at, befalls) in self.timeline() {
            if !self.ended.is_empty() {
                break;
            }
            if !self.pass(began + at * MILLISECOND)? {
                return Ok(());
            }
            match befalls {
                Befalls::Kill => {
                    if !self.kill_server()? {
                        return Ok(());
                    }
                }
                Befalls::Pause(length) => {
                    let until = self.machine.now + length * MILLISECOND;
                    self.machine.pause(self.server, until);
                }
            }
        }
        match self.finish(model, "model", WORK_MAX)? {
            None => return Ok(()),
            Some(0) => {}
            Some(status) => {
                let printed = self.printed("model");
                let mut faults: Vec<_> = printed
                    .lines()
                    .filter(|line| line.starts_with("FAULT"))
                    .map(str::to_owned)
                    .collect();
                if faults.is_empty() {
                    faults.push(format!("model ends with {status}: {}", last_line(&printed)));
                }
                self.faults.extend(faults);
                return Ok(());
            }
        }
        self.look_for_rests()
    }

    // What befalls the server, in order.
    fn timeline(&self) -> Vec<(u64, Befalls)> {
        let kills = self.plan.kills.iter().map(|at| (*at, Befalls::Kill));
        let pauses = self.plan.pauses.iter().map(|(at, length)| (*at, Befalls::Pause(*length)));
        let mut all: Vec<_> = kills.chain(pauses).collect();
        all.sort_by_key(|(at, _)| *at);
        all
    }

    /// When all clients have gone the server holds nothing, at the latest when its patience is over.
    fn look_for_rests(&mut self) -> Result<(), Failure> {
        let end = self.machine.now + REST_MAX;
        loop {
            let seen = self.status()?;
            match seen {
                None => return Ok(()),
                Some(rests) if rests.is_empty() => return Ok(()),
                Some(rests) if self.machine.now >= end => {
                    self.faults.push(format!("left when all clients have gone: {rests}"));
                    return Ok(());
                }
                Some(_) if !self.pass(self.machine.now + 5 * SECOND)? => return Ok(()),
                Some(_) => {}
            }
        }
    }

    /// What the server says it holds; none where it says nothing.
    fn status(&mut self) -> Result<Option<String>, Failure> {
        let _ = fs::remove_file(self.output("status"));
        let control = self.site.join(CONTROL);
        let mut words: Vec<OsString> = vec![self.programs.landfast.clone().into(), "status".into()];
        words.extend(["--json".into(), "--control".into(), control.into()]);
        let output = self.output("status");
        let program = self.machine.start(&words, &output, &self.errors("status"))?;
        let Some(status) = self.finish(program, "status", WORK_MAX)? else { return Ok(None) };
        let printed = self.printed("status");
        if status != 0 {
            self.faults
                .push(format!("`landfast status` ends with {status}: {}", last_line(&printed)));
            return Ok(None);
        }
        let report: serde_json::Value = serde_json::from_str(&printed).unwrap_or_default();
        let held = NOTHING.iter().filter(|what| report["counters"][**what].as_u64() != Some(0));
        let held: Vec<_> =
            held.map(|what| format!("{what} {}", report["counters"][*what])).collect();
        Ok(Some(held.join(", ")))
    }
}

#[derive(Clone, Copy, Debug)]
enum Befalls {
    Kill,
    Pause(u64),
}

/// Counters that are zero when nobody is there.
const NOTHING: [&str; 8] = [
    "connections",
    "unauthenticated",
    "sessions",
    "opens",
    "orphans",
    "files",
    "leases",
    "regions",
];

const REST_MAX: u64 = 600 * SECOND;
