//! The key of a store, and a client with it.

use std::path::{Path, PathBuf};

use basics::Environment;
use store::host::record_of;
use store::meta::Meta;
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

/// The key of a store, for a client: that of a file, or the one beside metadata in a directory.
pub(super) fn key(file: Option<&Path>, place: &str) -> Result<StoreKey, StoreFailure> {
    let path = key_path(file, place)?;
    let key = StoreKey::read(&path)?;
    let record = record_of(&*store::meta::open(place)?)?;
    match record.and_then(|record| record.key) {
        Some(of) if of != key.mark() => Err(StoreFailure::WrongKey { path }),
        _ => Ok(key),
    }
}

/// The same for a daemon. The first one of a store makes the key; another one that lacks it was not given the store's.
pub(super) fn key_of_daemon(
    file: Option<&Path>,
    place: &str,
    meta: &dyn Meta,
) -> Result<StoreKey, StoreFailure> {
    let path = key_path(file, place)?;
    Ok(match record_of(meta)? {
        Some(_) => StoreKey::read(&path)?,
        None => StoreKey::read_or_make(&path, &Environment::host())?,
    })
}

/// Where the key is.
pub(super) fn key_path(file: Option<&Path>, place: &str) -> Result<PathBuf, StoreFailure> {
    match file {
        Some(file) => Ok(file.into()),
        None if place.contains("://") => Err(StoreFailure::NoKeyFile),
        None => Ok(Path::new(place).join("key")),
    }
}
