//! Address space of the process: how much of it mapped regions may take.
//!
//! Memory is given out of address space too: where regions have taken it all, the next allocation ends the server.
//!
//! Spec: getrlimit(2) RLIMIT_AS; Linux Documentation/arch/x86/x86_64/mm.rst, Documentation/arch/arm64/memory.rst.

use rustix::process::{Resource, getrlimit};
use tracing::warn;

use crate::config::ServerConfig;

/// Fits the bounds of mapped regions to the address space of the process, and logs the result.
pub(crate) fn fit(config: &mut ServerConfig) {
    let wanted = config.limits.mapped_max;
    let bytes = of_process();
    config.limits.fit_mapped(bytes);
    let mapped_max = config.limits.mapped_max;
    if mapped_max != wanted {
        warn!(
            address_space = bytes,
            mapped_max,
            "less may be mapped for push mode than could be: raise the limit of address space (LimitAS=, ulimit -Hv)"
        );
    }
}

// The kernel lays stacks and mappings from the top of the address space down, so a stack tells how many bits there are: 47
// on x86-64, 39 to 48 on AArch64.
fn of_process() -> u64 {
    let here = 0_u8;
    let stack = std::ptr::from_ref(&here).addr();
    let whole = stack.checked_next_power_of_two().unwrap_or(usize::MAX);
    let whole = u64::try_from(whole).unwrap_or(u64::MAX);
    getrlimit(Resource::As).current.map_or(whole, |limit| limit.min(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_no_more_address_space_than_its_limit_and_its_processor_allow() {
        let bytes = of_process();
        assert!(bytes >= 1 << 30, "{bytes}");
        assert!(bytes <= 1 << 57, "{bytes}");
    }
}
