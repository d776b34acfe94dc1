//! Whole files, with errors that name them.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use crate::failure::Failure;

/// All bytes of a file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(Failure::local("cannot read", path))
}

/// Makes a file of these bytes.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let written = File::create(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(Failure::local("cannot write", path))
}
