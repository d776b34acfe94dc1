//! Rows as text, as a table of a document, and as a plot.

use std::fmt::Write as _;

use super::events::{Outcome, Station};
use super::work::{WORK, Work};

/// One run of the model.
pub(super) struct Row {
    pub(super) work: &'static Work,
    pub(super) servers: u32,
    pub(super) found: Outcome,
}

impl Row {
    /// The kind of station that is busiest, which is what more of would help.
    fn saturated(&self) -> (Station, f64) {
        self.found.busiest()
    }
}

pub(super) const HEAD: &str = "servers  operations/s  for each server  p50 us  p99 us  busiest";

/// A row for people.
pub(super) fn line(row: &Row) -> String {
    let (station, busy) = row.saturated();
    let found = &row.found;
    format!(
        "{:>7} {:>13.0} {:>16.0} {:>7.1} {:>7.1}  {} {:.0} %: {}",
        row.servers,
        found.rate,
        found.rate / f64::from(row.servers),
        found.p50_ns / 1000.0,
        found.p99_ns / 1000.0,
        station.name(),
        busy * 100.0,
        row.work.name,
    )
}

/// The document with the rows in place of the table that it has; `None` if it has no place for one.
pub(super) fn with_table(document: &str, rows: &[Row]) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    let mut table = String::from(
        "\n| work | servers | operations a second, each server | p50, µs | p99, µs | busiest |\n|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let (station, busy) = row.saturated();
        let _ = writeln!(
            table,
            "| {} | {} | {:.0} | {:.1} | {:.1} | {}, {:.0} % |",
            row.work.name,
            row.servers,
            row.found.rate / f64::from(row.servers),
            row.found.p50_ns / 1000.0,
            row.found.p99_ns / 1000.0,
            station.name(),
            busy * 100.0,
        );
    }
    Some(format!("{before}{BEGIN}{table}{END}{after}"))
}

/// Operations a second of each server against the number of servers, both logarithmic.
pub(super) fn plot(rows: &[Row]) -> String {
    let rates = rows.iter().map(|row| row.found.rate / f64::from(row.servers));
    let (least, most) = rates.fold((f64::MAX, 0.0_f64), |(a, b), it| (a.min(it), b.max(it)));
    let (least, most) = (least.max(1.0).log10().floor(), most.max(10.0).log10().ceil());
    let sizes = rows.iter().map(|row| f64::from(row.servers).log10());
    let (first, last) = sizes.fold((f64::MAX, 0.0_f64), |(a, b), it| (a.min(it), b.max(it)));
    let x = |servers: u32| {
        LEFT + (f64::from(servers).log10() - first) / (last - first).max(0.1) * WIDTH
    };
    let y = |rate: f64| TOP + (most - rate.max(1.0).log10()) / (most - least).max(0.1) * HEIGHT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0}\" height=\"{:.0}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        LEFT + WIDTH + LEGEND,
        TOP + HEIGHT + 50.0
    );
    let mut power = least;
    while power <= most {
        let (value, at) = (10_f64.powf(power), y(10_f64.powf(power)));
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value:.0}</text>",
            LEFT + WIDTH,
            LEFT - 6.0,
            at + 4.0
        );
        power += 1.0;
    }
    for (number, (work, colour)) in WORK.iter().zip(COLOURS).enumerate() {
        let of_work: Vec<&Row> = rows.iter().filter(|row| row.work.name == work.name).collect();
        let points: Vec<String> = of_work
            .iter()
            .map(|row| {
                let rate = row.found.rate / f64::from(row.servers);
                format!("{:.1},{:.1}", x(row.servers), y(rate))
            })
            .collect();
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
            points.join(" "),
            LEFT + WIDTH + 12.0,
            TOP + 16.0 + number as f64 * 18.0,
            work.name
        );
        if number == 0 {
            for row in of_work {
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                    x(row.servers),
                    TOP + HEIGHT + 18.0,
                    row.servers
                );
            }
        }
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">servers, and as many clients</text>\
         <text x=\"{LEFT}\" y=\"14\">operations a second of each server</text>\n</svg>",
        LEFT + WIDTH / 2.0,
        TOP + HEIGHT + 38.0
    );
    svg
}

const BEGIN: &str = "<!-- cargo xtask scale --update -->";
const END: &str = "<!-- end -->";
const LEFT: f64 = 90.0;
const TOP: f64 = 24.0;
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 300.0;
const LEGEND: f64 = 330.0;
const COLOURS: [&str; 8] =
    ["#1b6ca8", "#d1495b", "#8d5a97", "#2e8b57", "#e09f3e", "#444444", "#17a2b8", "#7f7f00"];
