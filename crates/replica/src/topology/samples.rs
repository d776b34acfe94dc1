//! Times that something took.

use std::time::Duration;

use serde::Serialize;

/// How long something took, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// How often it was measured.
    pub count: usize,
    /// Half were faster.
    pub p50_us: f64,
    /// Nine of ten were faster.
    pub p90_us: f64,
    /// 99 of 100 were faster.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Percentiles {
    /// Those of `times`; zeros of none.
    pub(super) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |hundredths: usize| {
            let rank = (times.len() * hundredths).div_ceil(100).saturating_sub(1);
            times.get(rank).map_or(0.0, |time| time.as_secs_f64() * 1e6)
        };
        Self { count: times.len(), p50_us: at(50), p90_us: at(90), p99_us: at(99), max_us: at(100) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let of = Percentiles::of((1..=200).rev().map(Duration::from_micros).collect());
        let (p50_us, p90_us, p99_us, max_us) = (100.0, 180.0, 198.0, 200.0);
        let expected = Percentiles { count: 200, p50_us, p90_us, p99_us, max_us };
        let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert_eq!(of.count, expected.count);
        assert!(near(of.p50_us, p50_us) && near(of.p90_us, p90_us));
        assert!(near(of.p99_us, p99_us) && near(of.max_us, max_us));
        assert_eq!(Percentiles::of(Vec::new()), Percentiles::default());
        assert!(near(Percentiles::of(vec![Duration::from_micros(7)]).p50_us, 7.0));
    }
}
