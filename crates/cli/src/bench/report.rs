//! The result of a benchmark: the table for people and the JSON object for programs.

use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::process::Usage;

/// The measurements of one arm in all its slices.
#[derive(Debug)]
pub(crate) struct Measurement {
    pub(crate) name: &'static str,
    pub(crate) latency_ns: Histogram<u64>,
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
    pub(crate) client: Usage,
    pub(crate) server: Option<Usage>,
    /// The durability class of the arm's commits and the operation that reaches it, in words.
    pub(crate) durability: String,
    /// The kind of the commit: `native-rdma-flush`, `rdma-flush`, `message`, `smb2-flush` or `none`.
    pub(crate) commit: &'static str,
}

impl Measurement {
    /// An arm that has measured nothing yet.
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            latency_ns: histogram(),
            bytes: 0,
            elapsed: Duration::ZERO,
            client: Usage::default(),
            server: None,
            durability: String::new(),
            commit: "none",
        }
    }

    fn operations(&self) -> f64 {
        as_f64(self.latency_ns.len())
    }

    fn iops(&self) -> f64 {
        self.operations() / self.elapsed.as_secs_f64()
    }

    fn mib_per_s(&self) -> f64 {
        as_f64(self.bytes) / f64::from(1 << 20) / self.elapsed.as_secs_f64()
    }

    /// Latency in microseconds at a quantile.
    pub(crate) fn quantile_us(&self, quantile: f64) -> f64 {
        as_f64(self.latency_ns.value_at_quantile(quantile)) / 1000.0
    }

    fn per_operation(&self, total: u64) -> f64 {
        as_f64(total) / self.operations().max(1.0)
    }

    fn row(&self, row: Row) -> f64 {
        match row {
            Row::Quantile(quantile) => self.quantile_us(quantile),
            Row::Min => as_f64(self.latency_ns.min()) / 1000.0,
            Row::Max => as_f64(self.latency_ns.max()) / 1000.0,
            Row::Mean => self.latency_ns.mean() / 1000.0,
        }
    }
}

/// Nanoseconds from 1 to a minute, three digits: latencies of any arm fit.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are constants that fit")
}

/// The whole report.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) measurements: Vec<Measurement>,
    pub(crate) conditions: Conditions,
}

/// The conditions of the measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Conditions {
    pub(crate) block: usize,
    pub(crate) threads: usize,
    pub(crate) outstanding: usize,
    pub(crate) write_percent: u8,
    pub(crate) committed: bool,
    pub(crate) think_us: u128,
    pub(crate) random: bool,
    pub(crate) rdma_provider: &'static str,
    pub(crate) poll: String,
    pub(crate) placement: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    pub(crate) load_average: String,
}

impl Report {
    fn floor_p50_us(&self) -> Option<f64> {
        let floor = self.measurements.iter().find(|measurement| measurement.name == "floor")?;
        Some(floor.quantile_us(0.5))
    }

    /// One object: `conditions`, and `modes.NAME` for each arm.
    pub(crate) fn json(&self) -> Value {
        let floor = self.floor_p50_us();
        let modes: Map<String, Value> = self
            .measurements
            .iter()
            .map(|measurement| (measurement.name.to_owned(), object(measurement, floor)))
            .collect();
        json!({ "conditions": self.conditions, "modes": modes })
    }

    /// The table that a person reads: one column for each arm.
    pub(crate) fn table(&self) -> String {
        let mut out = self.heading();
        let floor = self.floor_p50_us();
        self.line(&mut out, "", |measurement| measurement.name.to_owned());
        self.line(&mut out, "operations", |m| m.latency_ns.len().to_string());
        self.line(&mut out, "IOPS", |m| format!("{:.0}", m.iops()));
        self.line(&mut out, "MiB/s", |m| format!("{:.1}", m.mib_per_s()));
        for (label, _, row) in ROWS {
            self.line(&mut out, &format!("{label} us"), |m| format!("{:.2}", m.row(*row)));
        }
        self.line(&mut out, "client CPU us/op", |m| cpu(m, Some(m.client)));
        self.line(&mut out, "server CPU us/op", |m| cpu(m, m.server));
        self.line(&mut out, "client switches/op", |m| switches(m, Some(m.client)));
        self.line(&mut out, "server switches/op", |m| switches(m, m.server));
        self.line(&mut out, "waited for a CPU us/op", |m| {
            let delay = m.client.run_delay_ns + m.server.unwrap_or_default().run_delay_ns;
            format!("{:.2}", m.per_operation(delay) / 1000.0)
        });
        self.line(&mut out, "p50 ratio to floor", |m| {
            floor.map_or_else(|| "-".into(), |floor| format!("{:.2}", m.quantile_us(0.5) / floor))
        });
        for measurement in &self.measurements {
            let _ = writeln!(out, "{:>11}: {}", measurement.name, measurement.durability);
        }
        out
    }

    fn heading(&self) -> String {
        let Conditions { block, threads, outstanding, write_percent, random, .. } = self.conditions;
        let think = match self.conditions.think_us {
            0 => String::new(),
            pause => format!("{pause} us of pause on average, "),
        };
        let committed = if self.conditions.committed { "each committed" } else { "none committed" };
        let order = if random { "random" } else { "sequential" };
        format!(
            "{block} B, {threads} thread(s) x {outstanding} outstanding, {write_percent} % writes \
             ({committed}), {order}, {think}provider {}, {} polling\n{}\n{} cores, Linux {}, load {}\n",
            self.conditions.rdma_provider,
            self.conditions.poll,
            self.conditions.placement,
            self.conditions.cores,
            self.conditions.kernel,
            self.conditions.load_average,
        )
    }

    fn line(&self, out: &mut String, label: &str, cell: impl Fn(&Measurement) -> String) {
        let _ = write!(out, "{label:<24}");
        for measurement in &self.measurements {
            let _ = write!(out, "{:>14}", cell(measurement));
        }
        out.push('\n');
    }
}

fn object(measurement: &Measurement, floor_p50_us: Option<f64>) -> Value {
    let latency: Map<String, Value> = ROWS
        .iter()
        .map(|(_, key, row)| ((*key).to_owned(), json!(measurement.row(*row))))
        .collect();
    let per_operation_us = |ns: u64| measurement.per_operation(ns) / 1000.0;
    json!({
        "operations": measurement.latency_ns.len(),
        "iops": measurement.iops(),
        "mib_per_s": measurement.mib_per_s(),
        "latency_us": latency,
        "cpu_us_per_op": {
            "client": per_operation_us(measurement.client.cpu_ns),
            "server": measurement.server.map(|server| per_operation_us(server.cpu_ns)),
        },
        "context_switches_per_op": {
            "client": measurement.per_operation(measurement.client.switches),
            "server": measurement.server.map(|server| measurement.per_operation(server.switches)),
        },
        "durability": measurement.durability,
        "commit": measurement.commit,
        "ratio_to_floor": floor_p50_us.map(|floor| measurement.quantile_us(0.5) / floor),
    })
}

fn cpu(measurement: &Measurement, usage: Option<Usage>) -> String {
    let each = |usage: Usage| format!("{:.2}", measurement.per_operation(usage.cpu_ns) / 1000.0);
    usage.map_or_else(|| "-".into(), each)
}

fn switches(measurement: &Measurement, usage: Option<Usage>) -> String {
    let each = |usage: Usage| format!("{:.3}", measurement.per_operation(usage.switches));
    usage.map_or_else(|| "-".into(), each)
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

/// A row of the latency table.
#[derive(Clone, Copy, Debug)]
enum Row {
    Min,
    Quantile(f64),
    Max,
    Mean,
}

// diskspd's rows: label, JSON key, value.
const ROWS: &[(&str, &str, Row)] = &[
    ("average", "mean", Row::Mean),
    ("min", "min", Row::Min),
    ("25th", "p25", Row::Quantile(0.25)),
    ("50th", "p50", Row::Quantile(0.50)),
    ("75th", "p75", Row::Quantile(0.75)),
    ("90th", "p90", Row::Quantile(0.90)),
    ("95th", "p95", Row::Quantile(0.95)),
    ("99th", "p99", Row::Quantile(0.99)),
    ("3-nines", "p99_9", Row::Quantile(0.999)),
    ("4-nines", "p99_99", Row::Quantile(0.9999)),
    ("5-nines", "p99_999", Row::Quantile(0.999_99)),
    ("6-nines", "p99_9999", Row::Quantile(0.999_999)),
    ("7-nines", "p99_99999", Row::Quantile(0.999_999_9)),
    ("max", "max", Row::Max),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_key_is_in_the_object() {
        let mut floor = Measurement::new("floor");
        floor.latency_ns.record(8000).unwrap();
        floor.elapsed = Duration::from_secs(1);
        let mut push = Measurement::new("push");
        push.latency_ns.record(10_000).unwrap();
        push.elapsed = Duration::from_secs(1);
        push.server = Some(Usage::default());
        let conditions = Conditions {
            block: 4096,
            threads: 1,
            outstanding: 1,
            write_percent: 100,
            committed: true,
            think_us: 0,
            random: false,
            rdma_provider: "soft",
            poll: "adaptive".into(),
            placement: "free".into(),
            cores: 2,
            kernel: "6".into(),
            load_average: "0".into(),
        };
        let report = Report { measurements: vec![floor, push], conditions };
        let object = report.json();
        let push = &object["modes"]["push"];
        for (_, key, _) in ROWS {
            assert!(push["latency_us"][key].is_number(), "{key}");
        }
        let ratio = push["ratio_to_floor"].as_f64().unwrap();
        assert!((ratio - 1.25).abs() < 0.01, "{ratio}");
        assert!(push["cpu_us_per_op"]["server"].is_number());
        assert!(report.table().contains("7-nines"));
    }
}
