//! A report as one page that needs nothing else: text, a table, three charts.

use std::fmt::Write as _;

use super::report::Report;

impl Report {
    /// The report as a page.
    pub fn to_html(&self) -> String {
        let (source, destination) = (escaped(&self.source), escaped(&self.destination));
        let mut page =
            String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
        let _ =
            write!(page, "<title>{source} to {destination}</title><style>{STYLE}</style></head>");
        let _ = writeln!(page, "<body><h1>{source} to {destination}</h1>");
        page.push_str(&self.table());
        let (trip, log, data) = (&self.link.round_trip, &self.log.append, &self.data.append);
        let percentiles = [
            ("round trip p50", trip.p50_us),
            ("round trip p99", trip.p99_us),
            ("durable append, log, p50", log.p50_us),
            ("durable append, log, p99", log.p99_us),
            ("durable append, volumes, p50", data.p50_us),
            ("durable append, volumes, p99", data.p99_us),
        ];
        chart(&mut page, "Latency", &percentiles.map(|(name, us)| (name.to_owned(), us)), micros);
        let streams: Vec<_> = self
            .link
            .streams
            .iter()
            .map(|it| (format!("{} link(s)", it.streams), it.bytes_per_second))
            .collect();
        chart(&mut page, "Bandwidth of links", &streams, per_second);
        let disks = [
            ("log, write", self.log.write_per_second),
            ("log, read", self.log.read_per_second),
            ("volumes, write", self.data.write_per_second),
            ("volumes, read", self.data.read_per_second),
        ];
        chart(&mut page, "Disks", &disks.map(|(name, rate)| (name.to_owned(), rate)), per_second);
        page.push_str("</body></html>\n");
        page
    }

    fn table(&self) -> String {
        let estimates = &self.estimates;
        let rows = [
            (
                "first copy of the volumes",
                format!(
                    "{}, bound by: {}",
                    seconds(estimates.initial_copy_s),
                    estimates.initial_copy_bound
                ),
            ),
            ("write of 4 KiB without replication", micros(estimates.write_alone_us)),
            ("write of 4 KiB, synchronous", micros(estimates.write_sync_us)),
            ("write of 4 KiB, semi-synchronous", micros(estimates.write_semi_sync_us)),
            ("writes for hours", per_second(estimates.steady_per_second)),
            ("log recommended", format!("{} MiB", estimates.log_bytes >> 20)),
            ("log on", escaped(&self.log.directory.display().to_string())),
            ("volumes on", escaped(&self.data.directory.display().to_string())),
        ];
        let mut table = String::from("<table>");
        for (name, value) in rows {
            let _ = write!(table, "<tr><th>{name}</th><td>{value}</td></tr>");
        }
        table + "</table>\n"
    }
}

/// Bars, the longest of which is as wide as the chart.
fn chart(page: &mut String, title: &str, bars: &[(String, f64)], shown: fn(f64) -> String) {
    let most = bars.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let height = bars.len() * 26 + 4;
    let _ = write!(
        page,
        "<h2>{title}</h2>\n<svg role=\"img\" aria-label=\"{title}\" width=\"760\" height=\"{height}\">"
    );
    for (row, (name, value)) in bars.iter().enumerate() {
        let (top, width) = (row * 26 + 4, (value / most * 400.0).clamp(1.0, 400.0));
        let (text, name, value) = (top + 15, escaped(name), shown(*value));
        let _ = write!(
            page,
            "<text x=\"230\" y=\"{text}\" text-anchor=\"end\">{name}</text>\
             <rect x=\"240\" y=\"{top}\" width=\"{width:.1}\" height=\"20\"/>\
             <text x=\"{:.1}\" y=\"{text}\">{value}</text>",
            width + 246.0
        );
    }
    page.push_str("</svg>\n");
}

fn micros(us: f64) -> String {
    if us < 10_000.0 { format!("{us:.1} µs") } else { format!("{:.1} ms", us / 1e3) }
}

fn per_second(bytes: f64) -> String {
    format!("{:.0} MiB/s", bytes / f64::from(1 << 20))
}

fn seconds(seconds: f64) -> String {
    match seconds {
        minutes if minutes < 120.0 => format!("{seconds:.0} s"),
        hours if hours < 7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter => escaped.push(letter),
        }
    }
    escaped
}

const STYLE: &str = "body{font:15px sans-serif;max-width:800px;margin:2em auto;padding:0 1em}\
    table{border-collapse:collapse}th,td{text-align:left;padding:.2em 1em .2em 0;font-weight:normal}\
    td{font-weight:bold}rect{fill:#36c}text{font-size:13px}";
