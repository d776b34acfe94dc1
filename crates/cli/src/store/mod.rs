//! `landfast store`: runs daemons of a striped store, makes, reads, writes and measures its regions.
//!
//! ```text
//!   opened   the key and the client
//!   serve    runs a daemon      regions  one command each      bench  measures
//! ```

pub(crate) mod args;
mod bench;
mod failure;
mod opened;
mod regions;
pub(crate) mod serve;

pub(crate) use failure::StoreFailure;

use self::args::StoreCommand;
use crate::failure::Failure;

/// Does one thing with a store.
pub(crate) fn run(command: &StoreCommand) -> Result<(), Failure> {
    match command {
        StoreCommand::Serve(serve) => serve::run(serve),
        StoreCommand::Bench(bench) => bench::run(bench),
        other => regions::run(other),
    }
}
