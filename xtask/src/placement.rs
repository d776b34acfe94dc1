//! On which cores the two ends of a measurement run.
//!
//! Left alone, the scheduler puts client and server now on one core, now on two, and a round trip
//! over loopback differs by that alone: measured on two virtual cores, an SMB WRITE + FLUSH takes
//! 24 us together and 131 us apart (each idle core is woken by way of the hypervisor), a push
//! commit 31 us together (nobody can spin) and 10 us apart. So every comparison says where.

use std::fmt;
use std::thread::available_parallelism;

use crate::failure::Failure;

/// Where client and server run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Placement {
    /// Both on one core: one waits for the other, nobody for an idle core.
    Together,
    /// Each on a core of its own, as on two machines.
    Apart,
}

impl Placement {
    /// The core of the server, and of whatever stands in for it.
    pub(crate) fn server(self) -> usize {
        0
    }

    /// The core of the client.
    pub(crate) fn client(self) -> usize {
        match self {
            Self::Together => 0,
            Self::Apart => 1,
        }
    }

    /// Fails where there are not enough cores.
    pub(crate) fn check(self) -> Result<(), Failure> {
        let cores = available_parallelism().map_or(1, usize::from);
        if self.client() < cores {
            return Ok(());
        }
        Err(Failure::new(format!("client and server {self} need two cores, here is {cores}")))
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Together => "on one core",
            Self::Apart => "on two cores",
        })
    }
}
