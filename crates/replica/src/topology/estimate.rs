//! What replication will cost between what was measured.

use serde::Serialize;

use super::disk::DiskRates;
use super::probe::LinkRates;

/// Bytes of a log that is recommended at least.
pub const LOG_MIN: u64 = 256 << 20;
/// Bytes of a log that is recommended at most.
pub const LOG_MAX: u64 = 1 << 40;

/// What is wanted of a group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wanted {
    /// Bytes of its volumes that are no holes.
    pub volume_bytes: u64,
    /// Bytes that applications write in a second, if that is known.
    pub writes_per_second: Option<u64>,
    /// A member that is away for so many seconds is to go on from the log, without copies.
    pub outage_s: u64,
}

/// What replication will cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimates {
    /// Seconds of the first copy of the volumes, where nothing else is at work.
    pub initial_copy_s: f64,
    /// What the first copy waits for: `link`, `read` or `write`.
    pub initial_copy_bound: &'static str,
    /// A write of 4 KiB without replication, in microseconds: the log alone.
    pub write_alone_us: f64,
    /// The same with a member that is synchronous, whose log is as fast as this one.
    pub write_sync_us: f64,
    /// The same with a member that is semi-synchronous.
    pub write_semi_sync_us: f64,
    /// Bytes in a second that can be written for hours while a member keeps up.
    pub steady_per_second: f64,
    /// Bytes of the log that are recommended, a power of two.
    pub log_bytes: u64,
}

impl Estimates {
    /// What `wanted` will cost, with a log on `log` and volumes on `data` at either end.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "estimates; no number is negative, and what is too large is clamped"
    )]
    pub fn new(link: &LinkRates, log: &DiskRates, data: &DiskRates, wanted: &Wanted) -> Self {
        let bandwidth = link.bytes_per_second();
        let bounds =
            [(bandwidth, "link"), (data.read_per_second, "read"), (data.write_per_second, "write")];
        let (copy, initial_copy_bound) =
            bounds.into_iter().min_by(|(a, _), (b, _)| a.total_cmp(b)).unwrap_or((0.0, "link"));
        let (trip, alone) = (link.round_trip.p50_us, log.append.p50_us);
        let steady_per_second = bandwidth.min(log.write_per_second).min(data.write_per_second);
        // What is written while the member is away; and room for what is on its way, twice.
        let writes = wanted.writes_per_second.map_or(steady_per_second, |writes| writes as f64);
        let on_the_way = 2.0 * bandwidth * link.round_trip.p99_us / 1e6;
        let log_bytes = (writes * wanted.outage_s as f64 + on_the_way) as u64;
        Self {
            initial_copy_s: wanted.volume_bytes as f64 / copy.max(1.0),
            initial_copy_bound,
            write_alone_us: alone,
            // The other log is written while this one is: only the way comes on top.
            write_sync_us: trip + alone,
            write_semi_sync_us: trip.max(alone),
            steady_per_second,
            log_bytes: log_bytes.clamp(LOG_MIN, LOG_MAX).next_power_of_two().min(LOG_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Percentiles, StreamRate};
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < b.abs() * 1e-9
    }

    #[test]
    fn estimates_follow_from_the_slowest_part() {
        let percentiles =
            |p50_us, p99_us| Percentiles { count: 9, p50_us, p90_us: p99_us, p99_us, max_us: 0.0 };
        let stream = |streams, bytes_per_second| StreamRate { streams, bytes_per_second };
        let link = LinkRates {
            round_trip: percentiles(500.0, 1000.0),
            streams: vec![stream(1, 5e8), stream(4, 1e9)],
        };
        let disk = |write_per_second, read_per_second| DiskRates {
            directory: "/".into(),
            append: percentiles(100.0, 200.0),
            write_per_second,
            read_per_second,
        };
        let (log, data) = (disk(9e8, 3e9), disk(8e8, 2e9));
        let mut wanted =
            Wanted { volume_bytes: 800_000_000_000, writes_per_second: None, outage_s: 60 };
        let of = |link: &LinkRates, data: &DiskRates, wanted: &Wanted| {
            Estimates::new(link, &log, data, wanted)
        };
        let found = of(&link, &data, &wanted);
        assert!(near(found.initial_copy_s, 1000.0) && found.initial_copy_bound == "write");
        assert!(near(found.write_alone_us, 100.0) && near(found.write_sync_us, 600.0));
        assert!(near(found.write_semi_sync_us, 500.0) && near(found.steady_per_second, 8e8));
        assert_eq!(found.log_bytes, 64 << 30, "48 GB and 2 MB");
        wanted.writes_per_second = Some(1000);
        assert_eq!(of(&link, &data, &wanted).log_bytes, LOG_MIN);
        wanted.writes_per_second = Some(u64::MAX);
        assert_eq!(of(&link, &data, &wanted).log_bytes, LOG_MAX);
        let read = Estimates::new(&link, &log, &disk(9e9, 1e5), &wanted);
        assert_eq!(read.initial_copy_bound, "read");
        // Nothing measured: nothing divided by.
        let mut other = LinkRates { streams: Vec::new(), ..link };
        assert!(of(&other, &data, &wanted).initial_copy_s.is_finite());
        other.streams.push(stream(1, 1e6));
        assert_eq!(of(&other, &data, &wanted).initial_copy_bound, "link");
    }
}
