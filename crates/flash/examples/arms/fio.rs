//! fio on the file itself, without a network: what the device gives.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::{Failure, Outcome, Plan};

/// Random reads of 4 KiB, `depth` at once; the processor time is that of fio.
pub(crate) fn run(plan: &Plan, path: &Path, depth: usize) -> Result<(Outcome, Duration), Failure> {
    let output = Command::new("fio")
        .args(["--name=arm", "--rw=randread", "--bs=4k", "--ioengine=io_uring", "--direct=1"])
        .args(["--time_based", "--output-format=terse", "--terse-version=3"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--iodepth={depth}"))
        .arg(format!("--runtime={}", plan.time.as_secs()))
        .output()
        .map_err(|error| {
            format!("fio cannot be run ({error}): install it, or leave the arm out with --arms")
        })?;
    let text = String::from_utf8(output.stdout)?;
    let line = text.lines().find(|line| line.starts_with("3;")).ok_or("fio reports nothing")?;
    let fields: Vec<&str> = line.split(';').collect();
    let of = |place: usize| fields.get(place).copied().ok_or("fio reports too little");
    // Version 3 of the terse form: kilobytes read, milliseconds, percentiles `50.000000%=N` in us, shares of processor time.
    let reads = of(5)?.parse::<u64>()? / 4;
    let took = Duration::from_millis(of(8)?.parse()?);
    let percent = |place: usize| -> Result<f64, Failure> {
        Ok(of(place)?.trim_end_matches('%').parse::<f64>()?)
    };
    let cpu = took.mul_f64((percent(87)? + percent(88)?) / 100.0);
    let percentiles = fields.iter().filter_map(|field| field.split_once("%="));
    let mut latencies: Vec<(f64, u64)> = percentiles
        .filter_map(|(part, value)| Some((part.parse().ok()?, value.parse().ok()?)))
        .filter(|(_, micros)| *micros > 0)
        .collect();
    latencies.dedup();
    // A list in which the percentiles of fio stand where the report looks for them.
    let at = |of_thousand: f64| {
        let known = latencies.iter().find(|(part, _)| *part * 10.0 >= of_thousand);
        known.map_or(0, |(_, micros)| micros * 1000)
    };
    let latencies = (0..1000).map(|place| at(f64::from(place))).collect();
    Ok((Outcome { reads, took, latencies }, cpu))
}
