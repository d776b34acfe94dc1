//! Opens the shares of a server: first every step that can fail, then the steps that change the
//! disk.
//!
//! ```text
//!   names --> directories, devices --> no private file inside --> leftovers of a crash, logs of persistent opens
//!   |______ a failure leaves the disk as it was ____________|     no other server has our addresses
//! ```
//!
//! A server has its addresses before it opens shares: a second server of the same configuration fails there, and
//! takes nothing from the first.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use basics::Environment;
use tracing::{info, warn};
use tree::{CommonNames, Share, ShareConfig, ShareOpenError};

use crate::config::Users;

/// The name of two of these shares, if two have the same.
pub(crate) fn duplicate(wanted: &[ShareConfig]) -> Option<&str> {
    wanted.iter().enumerate().find_map(|(index, config)| {
        let is_same = |other: &ShareConfig| other.name.eq_ignore_ascii_case(&config.name);
        wanted[..index].iter().any(is_same).then_some(config.name.as_str())
    })
}

/// Opens shares as [`look`] does, and takes over what an earlier server has left of them. May
/// block.
///
/// # Errors
/// As [`look`], or a log of persistent opens cannot be opened.
pub(crate) fn open(
    wanted: &[&ShareConfig],
    kept: &[Arc<Share>],
    names: &CommonNames,
    environment: &Environment,
    users: &Users,
    capture: Option<&Path>,
) -> Result<Vec<Arc<Share>>, ShareOpenError> {
    take_over(look(wanted, kept, names, environment, users, capture)?)
}

/// Takes over what an earlier server has left of shares that were looked at. May block.
///
/// # Errors
/// A log of persistent opens cannot be opened.
pub(crate) fn take_over(mut opened: Vec<Share>) -> Result<Vec<Arc<Share>>, ShareOpenError> {
    for share in &mut opened {
        share.take_over()?;
        announce(share);
    }
    Ok(opened.into_iter().map(Arc::new).collect())
}

/// Opens shares that will be served to `users` beside the open shares in `kept`, and changes nothing. `names` is the
/// state of names that this server keeps for all its shares. `capture` is the file that records RDMA connections. May
/// block.
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
    // In its own share the file is shown as the body that it holds, in another one it would be the bare bytes.
    for share in &all {
        let others: Vec<&Share> =
            all.iter().copied().filter(|other| other.name() != share.name()).collect();
        for path in share.shown_sources() {
            check_outside(path, &others)?;
        }
    }
    Ok(opened)
}

// Clients of a share could read the file, or replace it.
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
