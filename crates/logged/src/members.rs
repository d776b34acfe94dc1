//! Where the members of a log are, as a user writes it.

use std::fs::File;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::str::FromStr;

use client::{ConnectOptions, OpenOptions, RegionSettings, SmbUrl, UrlError, blocking};
use log::{CreateOptions, MasterKey, MemberSet, RemoteStore, Store, TailLog};
use smb::push::{Durability, PushRequest, Rights};
use thiserror::Error;

use crate::error::LoggedError;

/// Where one member is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Place {
    /// A file of this machine.
    Local(PathBuf),
    /// A file of a share, which the server has to push.
    Share(SmbUrl),
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        if text.starts_with("smb://") {
            let url: SmbUrl = text.parse()?;
            if url.path.is_empty() || url.is_directory {
                return Err(PlaceError::ConfigNoFile);
            }
            return Ok(Self::Share(url));
        }
        match text {
            "" => Err(PlaceError::ConfigEmpty),
            path => Ok(Self::Local(path.into())),
        }
    }
}

/// A text names no member.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum PlaceError {
    /// The text is empty.
    #[error("a member of a log has a path or an smb:// address")]
    ConfigEmpty,
    /// The address is none.
    #[error(transparent)]
    ConfigUrl(#[from] UrlError),
    /// The address names a share or a directory.
    #[error("the address names no file")]
    ConfigNoFile,
}

/// The members of one log, and what its memory is like.
#[derive(Clone, Debug)]
pub struct Members {
    /// Where they are.
    pub places: Vec<Place>,
    /// Bytes of each member that is made.
    pub len: u64,
    /// Memory that is not persistent counts as if it were: a power failure loses what is there.
    pub emulate_persistence: bool,
    /// Members that are gone for good, by their place: the log goes on without them.
    pub given_up: MemberSet,
}

impl Members {
    /// Opens the log; `None` if no member holds one.
    ///
    /// # Errors
    ///
    /// A member cannot be opened, or the log cannot.
    pub fn open(&self, key: Option<&MasterKey>) -> Result<Option<TailLog>, LoggedError> {
        let is_absent = |place: &Place| matches!(place, Place::Local(path) if !path.exists());
        if self.places.iter().all(is_absent) {
            return Ok(None);
        }
        let (mut holders, mut blank) = (Vec::new(), Vec::new());
        for mut store in self.stores(true)? {
            match log::is_blank(&mut *store)? {
                true => blank.push(store),
                false => holders.push(store),
            }
        }
        if holders.is_empty() {
            return Ok(None);
        }
        let options = log::OpenOptions { key: key.cloned(), given_up: self.given_up };
        let log = TailLog::open(holders, &options)?;
        // In place of members that were lost: the log may be as good as it was.
        for store in blank {
            match log.add_member(store) {
                Ok(number) => tracing::info!(member = number, "a new member has joined the log"),
                Err(error) => tracing::warn!(%error, "a new member did not join the log"),
            }
        }
        Ok(Some(log))
    }

    /// Makes the log. A member that holds a log already is refused.
    ///
    /// # Errors
    ///
    /// As [`Members::open`].
    pub fn create(&self, key: Option<&MasterKey>) -> Result<TailLog, LoggedError> {
        let options = CreateOptions { key: key.cloned(), ..CreateOptions::default() };
        Ok(TailLog::create(self.stores(false)?, &options)?)
    }

    /// Opens the members. A member that cannot be reached is left out if the log can do without it, and another
    /// one is here.
    fn stores(&self, may_lack: bool) -> Result<Vec<Box<dyn Store>>, LoggedError> {
        let (mut stores, mut failed) = (Vec::new(), None);
        for place in &self.places {
            match self.store(place) {
                Ok(store) => stores.push(store),
                // Another owner of one member is an owner of the log.
                Err(error @ LoggedError::Member(log::LocalStoreError::InUse)) => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "a member of a log cannot be opened");
                    failed = Some(error);
                }
            }
        }
        match failed {
            Some(error) if stores.is_empty() || !may_lack => Err(error),
            _ => Ok(stores),
        }
    }

    fn store(&self, place: &Place) -> Result<Box<dyn Store>, LoggedError> {
        match place {
            Place::Local(path) => {
                if let Ok(found) = std::fs::metadata(path)
                    && (found.file_type().is_fifo() || found.file_type().is_socket())
                {
                    // A pipe that nobody reads would never open.
                    return Err(log::LocalStoreError::Foreign.into());
                }
                // The log holds what the file holds, which only its owner may read.
                let mut private = File::options();
                private.write(true).create(true).truncate(false).mode(0o600).open(path)?;
                let options = pmem::OpenOptions { emulate_persistence: self.emulate_persistence };
                Ok(Box::new(log::LocalStore::open(path, self.len, options)?))
            }
            Place::Share(url) => {
                let client = blocking::Client::connect(url, &ConnectOptions::default())?;
                let file = client.open(&url.path, &OpenOptions::read_write())?;
                let mut len = file.stat()?.len;
                if len < self.len {
                    len = self.len;
                    file.set_len(len)?;
                }
                file.close()?;
                let push = PushRequest {
                    rights: Rights::READ | Rights::WRITE | Rights::FLUSH | Rights::ATOMIC_WRITE,
                    durability: Durability::ANY,
                    accept_emulated: self.emulate_persistence,
                    regions_max: 1,
                };
                let options = OpenOptions::read_write().with_push(push);
                let settings = RegionSettings::default();
                let region = client.map(&url.path, &options, 0..len, settings)?;
                Ok(Box::new(RemoteStore::new(region)?))
            }
        }
    }
}

/// Bytes of a member if the user names no other: what the published result had.
pub const LOG_LEN_DEFAULT: u64 = 20 << 20;
/// Least bytes of a member: the labels and a ring that takes some pages of a database.
pub const LOG_LEN_MIN: u64 = 256 << 10;
/// Most bytes of a member.
pub const LOG_LEN_MAX: u64 = 64 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_a_path_or_an_address_of_a_file() {
        assert_eq!("/a/b".parse::<Place>().unwrap(), Place::Local("/a/b".into()));
        assert!(matches!("smb://u:p@h:1/s/f".parse::<Place>().unwrap(), Place::Share(_)));
        assert_eq!("".parse::<Place>().unwrap_err(), PlaceError::ConfigEmpty);
        assert_eq!("smb://h/s".parse::<Place>().unwrap_err(), PlaceError::ConfigNoFile);
        assert!(matches!("smb://h".parse::<Place>(), Err(PlaceError::ConfigUrl(_))));
    }
}
