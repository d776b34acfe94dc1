//! File descriptors of the process: the highest limit, and a table of that size from the start.

use std::fs::File;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

use crate::config::ServerConfig;

/// Raises the soft limit to the hard one, and makes the kernel's table of that size. Returns the limit; `None`:
/// there is none.
///
/// Every connection and every open takes a descriptor, and the customary soft limit of 1,024 exists for programs
/// that use select(2).
pub(crate) fn raise() -> Option<usize> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, "the limit of open files stays at {:?}", limit.current);
    }
    let count = getrlimit(Resource::Nofile).current;
    let count = count.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    make_room(count.unwrap_or(MADE_MAX));
    count
}

/// Fits the bounds of users of descriptors to the number of descriptors, and logs the result. False: there are too
/// few to serve.
pub(crate) fn fit(config: &mut ServerConfig, count: usize) -> bool {
    let wanted = (config.limits.opens_max, config.limits.connections_max);
    let Some(kept) = config.limits.fit(count) else { return false };
    let push_connections = u32::try_from(kept / 4).unwrap_or(u32::MAX);
    config.push.connections_max = config.push.connections_max.min(push_connections);
    let (opens, connections) = (config.limits.opens_max, config.limits.connections_max);
    if (opens, connections) != wanted {
        warn!(
            descriptors = count,
            opens,
            connections,
            "fewer files and connections than could be served: raise the hard limit of open files (LimitNOFILE=, ulimit -Hn)"
        );
    }
    true
}

// The kernel doubles its table of descriptors when it is full, and with several threads it waits until none of them
// uses the old table: 10 to 30 ms for the thread that needs the next descriptor.
fn make_room(count: usize) {
    let highest = i32::try_from(count.clamp(1, MADE_MAX) - 1).unwrap_or(0);
    let made =
        File::open("/dev/null").and_then(|any| Ok(rustix::io::fcntl_dupfd_cloexec(any, highest)?));
    if let Err(error) = made {
        warn!(%error, "the table of descriptors stays short");
    }
}

/// Descriptors for which there is room at once: those that dist/landfast.service asks for, in a
/// MiB.
const MADE_MAX: usize = 81_920;
