//! The key of a store, and a client with it.

use std::path::Path;

use basics::Environment;
use store::{Store, StoreKey, StoreOptions};

use super::args::Which;
use super::failure::StoreFailure;
use crate::failure::Failure;

/// A client with the store's key.
pub(super) fn open(which: &Which) -> Result<Store, Failure> {
    is_there(&which.meta)?;
    let key = Some(key(which.key_file.as_deref(), &which.meta)?);
    open_with(which, key)
}

pub(super) fn open_with(which: &Which, key: Option<StoreKey>) -> Result<Store, Failure> {
    is_there(&which.meta)?;
    let meta = store::meta::open(&which.meta).map_err(StoreFailure::from)?;
    Ok(Store::open(StoreOptions::new(meta, key)).map_err(StoreFailure::from)?)
}

/// Only a daemon makes a store: a command that is given a wrong directory shows no empty one.
pub(super) fn is_there(place: &str) -> Result<(), StoreFailure> {
    let is_directory = !place.contains("://");
    if is_directory && !Path::new(place).join("records").is_dir() {
        return Err(StoreFailure::NoStore { place: place.to_owned() });
    }
    Ok(())
}

/// The key of a store: that of a file, or the one beside metadata in a directory, where it is made with the store.
pub(super) fn key(file: Option<&Path>, place: &str) -> Result<StoreKey, StoreFailure> {
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
