//! Providers around a provider: each is itself what it wraps.

mod faults;
mod packet;
mod pcap;
mod tracer;

pub use faults::{FaultPlan, Faults};
pub use pcap::{Pcap, PcapError};
pub use tracer::Tracer;
