//! The network of this machine: addresses, speeds, queues.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use tracing::warn;

/// One address of a network interface that is up.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct HostAddress {
    /// The interface's number.
    pub(crate) index: u32,
    pub(crate) address: IpAddr,
    /// Bits per second.
    pub(crate) speed: u64,
    /// The interface spreads connections over several queues (receive-side scaling).
    pub(crate) has_queues: bool,
}

impl HostAddress {
    /// Whether other machines, on more than one link, can use the address.
    pub(crate) fn leads_here_from_elsewhere(&self) -> bool {
        match self.address {
            IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
            IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
        }
    }
}

/// All addresses of this machine now; none if it does not report them.
pub(crate) fn addresses() -> Vec<HostAddress> {
    let found = if_addrs::get_if_addrs().unwrap_or_else(|error| {
        warn!(%error, "the network interfaces cannot be listed");
        Vec::new()
    });
    let known = |interface: if_addrs::Interface| {
        let folder = Path::new("/sys/class/net").join(&interface.name);
        HostAddress {
            index: interface.index.unwrap_or(0),
            address: interface.ip(),
            speed: speed(&folder).unwrap_or(SPEED_UNKNOWN),
            has_queues: queues(&folder) > 1,
        }
    };
    found.into_iter().map(known).collect()
}

// In Mbit/s; a virtual interface has -1 or no value.
fn speed(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join("speed")).ok()?;
    let mbit: u64 = text.trim().parse().ok()?;
    mbit.checked_mul(1_000_000).filter(|speed| *speed > 0)
}

fn queues(folder: &Path) -> usize {
    let queues: PathBuf = folder.join("queues");
    let Ok(entries) = fs::read_dir(queues) else { return 0 };
    entries
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"rx-"))
        .count()
}

/// The speed announced for an interface without one: 10 Gbit/s keeps a client from preferring
/// others.
pub(crate) const SPEED_UNKNOWN: u64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_address_is_found_and_reachable_only_locally() {
        let found = addresses();
        let own = found.iter().find(|one| one.address.is_loopback());
        assert!(
            own.is_some_and(|one| one.index > 0 && !one.leads_here_from_elsewhere()),
            "{found:?}"
        );
    }
}
