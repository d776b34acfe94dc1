//! `landfast store`: runs daemons of a striped store, makes, reads, writes and measures its regions.
//!
//! ```text
//!   serve    runs a daemon      regions  one command each      bench  measures
//! ```

pub(crate) mod args;
mod bench;
mod failure;
mod regions;
pub(crate) mod serve;

pub(crate) use failure::StoreFailure;

use std::path::Path;

use basics::Environment;
use store::{Store, StoreKey, StoreOptions};

use self::args::{StoreCommand, Which};
use crate::failure::Failure;

/// Does one thing with a store.
pub(crate) fn run(command: &StoreCommand) -> Result<(), Failure> {
    match command {
        StoreCommand::Serve(serve) => serve::run(serve),
        StoreCommand::Bench(bench) => bench::run(bench),
        other => regions::run(other),
    }
}

/// A client with the store's key.
fn open(which: &Which) -> Result<Store, Failure> {
    let key = Some(key(which.key_file.as_deref(), &which.meta)?);
    open_with(which, key)
}

fn open_with(which: &Which, key: Option<StoreKey>) -> Result<Store, Failure> {
    let meta = store::meta::open(&which.meta).map_err(StoreFailure::from)?;
    Ok(Store::open(StoreOptions::new(meta, key)).map_err(StoreFailure::from)?)
}

/// The key of a store: that of a file, or the one beside metadata in a directory, where it is made with the store.
pub(crate) fn key(file: Option<&Path>, place: &str) -> Result<StoreKey, StoreFailure> {
    let environment = Environment::host();
    match file {
        Some(file) => Ok(StoreKey::read_or_make(file, &environment)?),
        None if place.contains("://") => Err(StoreFailure::NoKeyFile),
        None => {
            // The directory is made with the metadata.
            store::meta::open(place)?;
            Ok(StoreKey::read_or_make(&Path::new(place).join("key"), &environment)?)
        }
    }
}
