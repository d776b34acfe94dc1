//! What two machines and the way between them are good for, before a group is made of them.
//!
//! [`measure_links`] measures round trips and bandwidth over the links that members use, TLS included; the other end runs
//! [`answer`]. [`measure_disk`] measures what a log, or volumes, would lie on. A [`Report`] puts that together, estimates
//! what replication will cost, and is JSON or a page.

mod disk;
mod estimate;
mod page;
mod probe;
mod report;
mod samples;

pub use self::disk::{DiskError, DiskRates, measure_disk};
pub use self::estimate::{Estimates, LOG_MAX, LOG_MIN, Wanted};
pub use self::probe::{LinkRates, STREAMS_MAX, StreamRate, answer, measure_links};
pub use self::report::Report;
pub use self::samples::Percentiles;
