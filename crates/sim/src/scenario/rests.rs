//! When all clients have gone the server holds nothing of them.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use super::{CONTROL, SECOND, Scenario, WORK_MAX, last_line};
use crate::failure::Failure;

impl Scenario<'_> {
    /// Looks until the server holds nothing, at the latest when its patience is over.
    pub(super) fn look_for_rests(&mut self) -> Result<(), Failure> {
        let end = self.machine.now + REST_MAX;
        let mut pause = 5 * SECOND;
        loop {
            let Some(mut rests) = self.status()? else { return Ok(()) };
            let held = self.held_files()?.into_iter().map(|path| format!("{path:?} is open"));
            rests.extend(held);
            if rests.is_empty() {
                return Ok(());
            }
            if self.machine.now >= end {
                let rests = rests.join(", ");
                self.faults.push(format!("left when all clients have gone: {rests}"));
                return Ok(());
            }
            if !self.pass(self.machine.now + pause)? {
                return Ok(());
            }
            pause *= 2;
        }
    }

    /// What the server says it holds; none where it says nothing.
    fn status(&mut self) -> Result<Option<Vec<String>>, Failure> {
        let _ = fs::remove_file(self.output("status"));
        let control = self.site.join(CONTROL);
        let landfast = self.program(&self.programs.landfast, "landfast")?;
        let mut words: Vec<OsString> = vec![landfast, "status".into()];
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
        Ok(Some(held.map(|what| format!("{what} {}", report["counters"][*what])).collect()))
    }

    // The files of the share that the server's process has open, whatever it says.
    fn held_files(&self) -> Result<Vec<PathBuf>, Failure> {
        let (share, pid) = (self.site.join("share"), self.machine.programs[self.server].pid);
        let directory = PathBuf::from(format!("/proc/{pid}/fd"));
        let listed =
            fs::read_dir(&directory).map_err(|error| Failure::io("listing", &directory, error))?;
        let links = listed.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        Ok(links.filter(|path| *path != share && path.starts_with(&share)).collect())
    }
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
