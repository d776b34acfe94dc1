//! What a step found, how long it took, and a line of JSON of that between two runs of this program.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::failure::{Failure, Tally};

/// One step of a suite that has run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Report {
    pub(super) step: String,
    pub(super) seconds: f64,
    /// The fraction of all processors that was at work meanwhile, with whatever ran beside the step.
    pub(super) busy: Option<f64>,
    pub(super) found: Tally,
}

impl Report {
    /// A step of which nothing is known but why.
    pub(super) fn missing(step: &str, why: &str) -> Self {
        let failed = vec![format!("{step}: {why}")];
        let found = Tally { failed, ..Tally::default() };
        Self { step: step.to_owned(), seconds: 0.0, busy: None, found }
    }

    /// Its line in the table.
    pub(super) fn row(&self) -> String {
        let Self { step, seconds, busy, found } = self;
        let busy = busy.map_or_else(String::new, |busy| format!("{:.0}%", busy * 100.0));
        let (failed, skipped) = (found.failed.len(), found.skipped.len());
        let passed = found.passed;
        let note = &found.note;
        format!("{step:<14} {seconds:>8.1} {busy:>5} {passed:>7} {failed:>7} {skipped:>7}  {note}")
    }

    pub(super) fn append(&self, file: &Path) -> Result<(), Failure> {
        let opened = OpenOptions::new().create(true).append(true).open(file);
        let line = format!("{}\n", self.emit());
        opened
            .and_then(|mut opened| opened.write_all(line.as_bytes()))
            .map_err(Failure::io("writing", file))
    }

    fn emit(&self) -> Value {
        let Self { step, seconds, busy, found } = self;
        let Tally { passed, failed, skipped, note } = found;
        json!({"step": step, "seconds": seconds, "busy": busy, "passed": passed, "failed": failed,
            "skipped": skipped, "note": note})
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let texts = |name: &str| -> Option<Vec<String>> {
            let list = value[name].as_array()?;
            list.iter().map(|text| text.as_str().map(str::to_owned)).collect()
        };
        let found = Tally {
            passed: value["passed"].as_u64()?.try_into().ok()?,
            failed: texts("failed")?,
            skipped: texts("skipped")?,
            note: value["note"].as_str()?.to_owned(),
        };
        let step = value["step"].as_str()?.to_owned();
        Some(Self {
            step,
            seconds: value["seconds"].as_f64()?,
            busy: value["busy"].as_f64(),
            found,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reaches_another_process_as_it_was() {
        let found = Tally {
            passed: 3,
            failed: vec!["a \"quoted\" fault".into()],
            skipped: vec!["b: why".into()],
            note: "7 MiB".into(),
        };
        let report = Report { step: "pike".into(), seconds: 2.5, busy: Some(0.25), found };
        assert_eq!(Report::parse(&report.emit().to_string()), Some(report));
        assert_eq!(Report::parse("{\"step\": \"pike\"}"), None);
    }
}
