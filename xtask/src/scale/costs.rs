//! What operations cost, as measured.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::failure::Failure;

/// Times in nanoseconds, rates in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Costs {
    /// Processor time of a client for one operation, and for each byte.
    pub(super) client_ns: f64,
    pub(super) client_byte_ns: f64,
    /// Processor time of an engine for one operation, and for each byte.
    pub(super) engine_ns: f64,
    pub(super) engine_byte_ns: f64,
    /// Engine threads of a server.
    pub(super) engines: u32,
    /// What an engine spends on a miss besides.
    pub(super) miss_ns: f64,
    /// What the metadata take for one look or change, at one place.
    pub(super) meta_ns: f64,
    pub(super) nic_bytes_per_s: f64,
    /// One way through NICs and switches, without waiting.
    pub(super) wire_ns: f64,
    /// A read of 4 KiB from flash, alone.
    pub(super) flash_ns: f64,
    pub(super) flash_iops: f64,
    pub(super) flash_bytes_per_s: f64,
}

impl Costs {
    /// Reads the file, in which each cost stands as `{"value": ..., "source": "..."}`.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(Failure::io("reading", path))?;
        let all: Value = serde_json::from_str(&text)
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        let cost = |name: &str| {
            let entry = &all[name];
            let has_source = entry["source"].as_str().is_some_and(|source| !source.is_empty());
            let value = entry["value"].as_f64().filter(|value| *value > 0.0 && has_source);
            value.ok_or_else(|| {
                let what = format!("{}: {name} wants a value above 0 and a source", path.display());
                Failure::new(what)
            })
        };
        Ok(Self {
            client_ns: cost("client_ns")?,
            client_byte_ns: cost("client_byte_ns")?,
            engine_ns: cost("engine_ns")?,
            engine_byte_ns: cost("engine_byte_ns")?,
            engines: cost("engines")? as u32,
            miss_ns: cost("miss_ns")?,
            meta_ns: cost("meta_ns")?,
            nic_bytes_per_s: cost("nic_bytes_per_s")?,
            wire_ns: cost("wire_ns")?,
            flash_ns: cost("flash_ns")?,
            flash_iops: cost("flash_iops")?,
            flash_bytes_per_s: cost("flash_bytes_per_s")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn each_cost_has_a_value_and_says_where_it_is_from() {
        Costs::read(&workspace::root().join(super::super::COSTS)).unwrap();
    }
}
