//! What is measured, and how a turn is timed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// A row of the table: requests of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) bytes: usize,
    pub(super) is_random: bool,
    pub(super) writes: bool,
    pub(super) threads: usize,
}

/// The kinds that diskspd's usual runs have: small and random, large and in order.
pub(super) const ROWS: [Row; 4] = [
    Row { bytes: 4 << 10, is_random: true, writes: true, threads: 1 },
    Row { bytes: 4 << 10, is_random: true, writes: false, threads: 1 },
    Row { bytes: 128 << 10, is_random: false, writes: true, threads: 1 },
    Row { bytes: 128 << 10, is_random: false, writes: false, threads: 1 },
];

impl Row {
    /// Large requests in order are one thread's.
    pub(super) fn with_threads(self, threads: &[usize]) -> Vec<Self> {
        match self.is_random {
            true => threads.iter().map(|threads| Self { threads: *threads, ..self }).collect(),
            false => vec![self],
        }
    }

    pub(super) fn name(&self) -> String {
        let kind = if self.writes { "durable writes" } else { "reads" };
        let order = if self.is_random { "at random" } else { "in order" };
        let threads =
            if self.threads == 1 { String::new() } else { format!(", {} threads", self.threads) };
        format!("{kind} of {} KiB {order}{threads}", self.bytes >> 10)
    }

    #[allow(clippy::cast_precision_loss, reason = "a few KiB")]
    pub(super) fn bytes_f64(&self) -> f64 {
        self.bytes as f64
    }
}

/// One turn of an arm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Requests a second of all threads.
    pub(super) rate: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

/// The sample whose rate is in the middle.
pub(super) fn middle(samples: &[Sample]) -> Option<Sample> {
    let mut samples = samples.to_vec();
    samples.sort_by(|one, other| one.rate.total_cmp(&other.rate));
    samples.get(samples.len() / 2).copied()
}

/// One request: at an offset, with a buffer.
pub(super) type Request<'a> = dyn Fn(u64, &mut [u8]) -> Result<(), String> + Sync + 'a;

/// Times requests of `row` on a place of `len` bytes for so long: `request` gets an offset and a buffer that begins at a page.
#[allow(clippy::cast_precision_loss, reason = "counts of one turn")]
pub(super) fn timed(
    row: &Row,
    len: u64,
    turn: Duration,
    request: &Request<'_>,
) -> Result<Sample, String> {
    let (stop, began) = (AtomicBool::new(false), Instant::now());
    let bytes = row.bytes as u64;
    let blocks = (len / bytes).max(1);
    let one = |thread: usize| -> Result<Histogram<u64>, String> {
        let mut times = Histogram::new_with_max(HOUR_NS, 3).map_err(|error| error.to_string())?;
        let mut memory = Paged::new(row.bytes);
        let (mut random, mut next) = (0x9e37_79b9_7f4a_7c15 ^ (thread as u64 + 1), thread as u64);
        while !stop.load(Ordering::Relaxed) || times.is_empty() {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            next += 1;
            let block = if row.is_random { random % blocks } else { next % blocks };
            let at = Instant::now();
            let done = request(block * bytes, memory.bytes());
            let took = u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX);
            if done.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            done?;
            times.saturating_record(took.max(1));
        }
        Ok(times)
    };
    let (times, took) = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..row.threads).map(|thread| scope.spawn(move || one(thread))).collect();
        let end = began + turn;
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(2).min(turn));
        }
        stop.store(true, Ordering::Relaxed);
        let times: Result<Vec<_>, String> = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
            .collect();
        (times, began.elapsed())
    });
    let mut all = Histogram::<u64>::new_with_max(HOUR_NS, 3).map_err(|error| error.to_string())?;
    for times in times? {
        all.add(times).map_err(|error| error.to_string())?;
    }
    let at = |part| all.value_at_quantile(part) as f64 / 1e3;
    Ok(Sample { rate: all.len() as f64 / took.as_secs_f64(), p50_us: at(0.5), p99_us: at(0.99) })
}

/// A buffer that begins at a page, as direct I/O wants it.
struct Paged {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Paged {
    fn new(len: usize) -> Self {
        let memory = vec![0x5a; len + PAGE];
        let start = memory.as_ptr().align_offset(PAGE).min(PAGE);
        Self { memory, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

const PAGE: usize = 4096;
/// No request takes longer.
const HOUR_NS: u64 = 3_600_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_fails_ends_its_turn_and_says_why() {
        let row = Row { threads: 2, ..ROWS[0] };
        let failed = timed(&row, 1 << 20, Duration::from_secs(3_600), &|_, _| Err("no".to_owned()));
        assert_eq!(failed.map(|_| ()), Err("no".to_owned()));
    }

    #[test]
    fn requests_are_whole_blocks_of_pages() {
        for row in ROWS {
            let sample = timed(&row, 1 << 20, Duration::ZERO, &|offset, bytes| {
                assert_eq!((offset % row.bytes as u64, bytes.len()), (0, row.bytes));
                assert_eq!(bytes.as_ptr().align_offset(PAGE), 0);
                assert!(offset < 1 << 20);
                Ok(())
            });
            assert!(sample.is_ok_and(|sample| sample.p50_us <= sample.p99_us));
        }
    }
}
