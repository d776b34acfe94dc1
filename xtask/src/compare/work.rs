//! What the two servers are given to do, and how long one of it takes.

use crate::failure::Failure;
use crate::landfast::{bench_files_on, bench_on, number};
use crate::peer::Address;
use crate::placement::Placement;

use super::Options;

/// One kind of work.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) name: String,
    /// What comes out of it, as endings of its name: one time for most, five for small files.
    pub(super) phases: &'static [&'static str],
    kind: Kind,
    args: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Requests one after the other: the median time from a request to its answer.
    Latency,
    /// Many at once: the time between answers.
    Rate,
    /// Small files: the time each took, in each phase.
    Files { count: u32 },
}

impl Work {
    fn requests(name: String, kind: Kind, shape: &[&str], protection: &str) -> Self {
        let fixed = ["--mode", "smb", "-t", "1", "--protection", protection];
        let args = fixed.iter().chain(shape).map(|arg| (*arg).to_owned()).collect();
        Self { name, phases: &[""], kind, args }
    }

    /// Microseconds of one request or file, for each phase.
    pub(super) fn measure(
        &self,
        placement: Placement,
        address: &Address,
        seconds: f64,
    ) -> Result<Vec<f64>, Failure> {
        let mut args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let (url, seconds) = (address.url("compared"), seconds.to_string());
        if let Kind::Files { count } = self.kind {
            let report = bench_files_on(placement.client(), &url, &args)?;
            let each = |phase: &&str| {
                let took = number(&report, &["seconds", phase.trim_start()])?;
                Ok(took * 1e6 / f64::from(count))
            };
            return self.phases.iter().map(each).collect();
        }
        args.extend(["-d", &seconds]);
        let report = bench_on(placement.client(), &url, &args)?;
        let of_smb = |path: &[&str]| number(&report, &[&["modes", "smb"], path].concat());
        Ok(vec![match self.kind {
            Kind::Latency => of_smb(&["latency_us", "p50"])?,
            _ => 1e6 / of_smb(&["iops"])?,
        }])
    }
}

/// 4 KiB requests, one at a time. A write counts when its FLUSH is answered.
pub(super) fn glance() -> Vec<Work> {
    let shape = ["-b", "4K", "-o", "1", "-r", "--file-size", "16M", "-w"];
    [("WRITE+FLUSH", "100"), ("READ", "0")]
        .map(|(name, percent)| {
            let shape = [&shape[..], &[percent]].concat();
            Work::requests(name.into(), Kind::Latency, &shape, "signed")
        })
        .into()
}

/// Random blocks, long sequences, and small files. Writes count when they are answered: how fast
/// a disk flushes is not a file server's doing.
pub(super) fn full(protection: &str, options: &Options) -> Vec<Work> {
    let mut all = Vec::new();
    let directions = [("READ", "0"), ("WRITE", "100")];
    for (size, label) in [("4K", "4 KiB"), ("64K", "64 KiB")] {
        for (depth, kind) in [("1", Kind::Latency), ("32", Kind::Rate)] {
            for (verb, percent) in directions {
                let shape = ["-b", size, "-o", depth, "-r", "--file-size", "64M", "-w", percent];
                let name = format!("{verb} {label} x{depth}");
                all.push(unflushed(name, kind, &shape, protection));
            }
        }
    }
    for (verb, percent) in directions {
        let shape = ["-b", "1M", "-o", "4", "--file-size", "256M", "-w", percent];
        all.push(unflushed(format!("{verb} 1 MiB in order"), Kind::Rate, &shape, protection));
    }
    let count = options.files.to_string();
    let args = ["--count", &count, "--protection", protection].map(str::to_owned).into();
    let phases = &[" create", " stat", " rename", " list", " delete"];
    let kind = Kind::Files { count: options.files };
    all.push(Work { name: "small files".into(), phases, kind, args });
    all
}

fn unflushed(name: String, kind: Kind, shape: &[&str], protection: &str) -> Work {
    Work::requests(name, kind, &[shape, &["--uncommitted"]].concat(), protection)
}

/// How messages can be protected, as `landfast bench` calls it.
pub(super) const PROTECTIONS: [&str; 3] = ["plain", "signed", "encrypted"];
