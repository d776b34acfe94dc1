//! Opening the shares of a server: first all that can fail, then what changes the disk.
//!
//! ```text
//!  names --> directories, devices --> no private file inside --> what a crash has left, logs of persistent opens
//!  |______ a failure leaves the disk as it was ____________|     nobody else has our addresses
//! ```
//!
//! Whoever opens shares has its addresses first: a second server of the same configuration fails there, and takes
//! nothing from the first.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use basics::Environment;
use tracing::{info, warn};

use crate::config::Users;
use crate::share::{CommonNames, Share, ShareConfig, ShareOpenError};

/// The name that two of these shares have.
pub(crate) fn duplicate(wanted: &[ShareConfig]) -> Option<&str> {
    wanted.iter().enumerate().find_map(|(index, config)| {
        let is_same = |other: &ShareConfig| other.name.eq_ignore_ascii_case(&config.name);
        wanted[..index].iter().any(is_same).then_some(config.name.as_str())
    })
}

/// Opens shares as [`look`] does, and takes over what a server before has left of them. May block.
///
/// # Errors
/// As [`look`], or a log of persistent opens cannot be had.
pub(crate) fn open(
    wanted: &[&ShareConfig],
    kept: &[Arc<Share>],
    names: &CommonNames,
    environment: &Environment,
    users: &Users,
    capture: Option<&Path>,
) -> Result<Vec<Arc<Share>>, ShareOpenError> {
    let mut opened = look(wanted, kept, names, environment, users, capture)?;
    for share in &mut opened {
        share.take_over()?;
        announce(share);
    }
    Ok(opened.into_iter().map(Arc::new).collect())
}

/// Opens shares that will be served to `users` beside those in `kept`, which are open, and changes nothing. `names` is
/// what this server keeps of names for all its shares. `capture` is what RDMA connections are recorded in. May block.
///
/// # Errors
/// A share cannot be exported, or a share or one in `kept` contains a file with secrets of the server.
pub(crate) fn look(
    wanted: &[&ShareConfig],
    kept: &[Arc<Share>],
    names: &CommonNames,
    environment: &Environment,
    users: &Users,
    capture: Option<&Path>,
) -> Result<Vec<Share>, ShareOpenError> {
    let mut opened: Vec<Share> = Vec::with_capacity(wanted.len());
    for config in wanted {
        let mut share = Share::open(config)?;
        share.keep_names_in(names);
        share.live_in(environment);
        opened.push(share);
    }
    let all: Vec<&Share> = kept.iter().map(|share| &**share).chain(&opened).collect();
    let logs = all.iter().filter_map(|share| share.persistent_opens());
    let users = users.files().iter().map(PathBuf::as_path);
    for path in logs.chain(users).chain(capture) {
        check_outside(path, &all)?;
    }
    Ok(opened)
}

// Clients of a share could read what is in it, and put something else in its place.
fn check_outside(path: &Path, shares: &[&Share]) -> Result<(), ShareOpenError> {
    match shares.iter().find(|share| share.contains(path)) {
        None => Ok(()),
        Some(share) => Err(ShareOpenError::ConfigPrivateFile {
            path: path.to_owned(),
            share: share.name().to_owned(),
        }),
    }
}

fn announce(share: &Share) {
    let path = share.path().display();
    info!(share = share.name(), %path, class = %share.class(), "exporting");
    if share.emulates_persistence() && share.class() == pmem::DurabilityClass::Volatile {
        warn!(
            share = share.name(),
            "EMULATED PERSISTENCE: push commits on this share do NOT survive power loss"
        );
    }
}
