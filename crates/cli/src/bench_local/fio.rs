//! fio's mmap engine as a control arm that is nobody's here: stores into a mapping of the page cache, msync behind each.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::arms::{Arm, Site};
use super::row::{Row, Sample};

/// Whether fio is there.
pub(super) fn find() -> Result<(), String> {
    match Command::new("fio").arg("--version").output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("fio cannot be started: {error}")),
    }
}

/// fio on a file of its own.
pub(super) fn arm(site: &Site) -> Box<dyn Arm> {
    Box::new(Fio { directory: site.directory.display().to_string(), len: site.len })
}

#[derive(Debug)]
struct Fio {
    directory: String,
    len: u64,
}

impl Arm for Fio {
    fn name(&self) -> &'static str {
        "fio mmap, msync"
    }

    fn measure(&self, row: &Row, turn: Duration) -> Result<Option<Sample>, String> {
        let kind = match (row.is_random, row.writes) {
            (true, true) => "randwrite",
            (true, false) => "randread",
            (false, true) => "write",
            (false, false) => "read",
        };
        let home = tempfile::tempdir_in(&self.directory).map_err(|error| error.to_string())?;
        let output = Command::new("fio")
            .args([
                "--name=arm",
                "--ioengine=mmap",
                "--fdatasync=1",
                "--time_based",
                "--group_reporting",
            ])
            .args(["--output-format=json", "--thread", "--filename=fio"])
            .arg(format!("--rw={kind}"))
            .arg(format!("--bs={}", row.bytes))
            .arg(format!("--size={}", self.len))
            .arg(format!("--numjobs={}", row.threads))
            .arg(format!("--runtime={}ms", turn.as_millis().max(100)))
            .current_dir(home.path())
            .output()
            .map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(format!("fio: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        sample(&output.stdout, row)
            .map(Some)
            .ok_or_else(|| "fio's report cannot be read".to_owned())
    }
}

// fio times the store by itself and the msync by itself: a request is both.
fn sample(report: &[u8], row: &Row) -> Option<Sample> {
    let report: Value = serde_json::from_slice(report).ok()?;
    let job = &report["jobs"][0];
    let side = &job[if row.writes { "write" } else { "read" }];
    let at = |part: &str| {
        let of = |times: &Value| times["percentile"][part].as_f64().unwrap_or(0.0);
        let sync = if row.writes { of(&job["sync"]["lat_ns"]) } else { 0.0 };
        (of(&side["clat_ns"]) + sync) / 1e3
    };
    let rate = side["iops"].as_f64()?;
    Some(Sample { rate, p50_us: at("50.000000"), p99_us: at("99.000000") })
}
