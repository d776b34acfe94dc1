//! Providers that wrap a provider, and are providers themselves.

mod faults;
mod packet;
mod pcap;
mod tracer;

pub use faults::{FaultPlan, Faults};
pub use pcap::{Pcap, PcapError};
pub use tracer::Tracer;
