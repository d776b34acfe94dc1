//! Figures of a running process for Prometheus and what reads its format.
//!
//! ```text
//!   of_server, of_member    families: name, what it means, values with labels
//!   endpoint                GET /metrics, answered with them as they are at that moment
//! ```

mod endpoint;
mod of_member;
mod of_server;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

pub(crate) use endpoint::Endpoint;
pub(crate) use of_member::of_member;
pub(crate) use of_server::of_server;

/// Values that mean the same and differ by their labels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Family {
    /// As `landfast_sessions`; a counter's gets `_total` behind it.
    name: &'static str,
    /// One sentence, without its full stop.
    help: &'static str,
    kind: Kind,
    samples: Vec<Sample>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// It goes up and down.
    Gauge,
    /// It only grows while the process lives.
    Counter,
}

#[derive(Clone, Debug, PartialEq)]
struct Sample {
    labels: Vec<(&'static str, String)>,
    value: f64,
}

impl Family {
    fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: Kind::Gauge, samples: Vec::new() }
    }

    fn counter(name: &'static str, help: &'static str) -> Self {
        Self { kind: Kind::Counter, ..Self::gauge(name, help) }
    }

    /// With one more value.
    fn with(mut self, labels: &[(&'static str, &str)], value: f64) -> Self {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.samples.push(Sample { labels, value });
        self
    }
}

/// Families of one moment, for the encoder.
#[derive(Debug)]
struct Moment(Vec<Family>);

impl Collector for Moment {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for Family { name, help, kind, samples } in &self.0 {
            let of = match kind {
                Kind::Gauge => MetricType::Gauge,
                Kind::Counter => MetricType::Counter,
            };
            let mut family = encoder.encode_descriptor(name, help, None, of)?;
            for Sample { labels, value } in samples {
                let labels: Vec<(&str, &str)> =
                    labels.iter().map(|(name, value)| (*name, &**value)).collect();
                if labels.is_empty() {
                    // `encode_family` would write empty braces; this takes the encoder, and there is one such value.
                    encode_value(*kind, *value, family)?;
                    break;
                }
                encode_value(*kind, *value, family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn encode_value(kind: Kind, value: f64, to: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
    match kind {
        Kind::Gauge => ConstGauge::new(value).encode(to),
        Kind::Counter => ConstCounter::new(value).encode(to),
    }
}

/// A number as Prometheus has them.
#[allow(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
fn count(number: impl TryInto<u64>) -> f64 {
    number.try_into().unwrap_or(u64::MAX) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_text_that_prometheus_reads() {
        let gauge = Family::gauge("landfast_x", "Things").with(&[("a", "say \"b\"\n")], 1.5);
        let counter = Family::counter("landfast_y", "Steps").with(&[], 7.0);
        let text = endpoint::text(vec![gauge, counter]);
        let expected = "# HELP landfast_x Things\n# TYPE landfast_x gauge\n\
            landfast_x{a=\"say \\\"b\\\"\\n\"} 1.5\n\
            # HELP landfast_y Steps\n# TYPE landfast_y counter\nlandfast_y_total 7.0\n# EOF\n";
        assert_eq!(text, expected);
    }
}
