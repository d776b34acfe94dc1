//! Replaces users and shares while the server serves, and ends the sessions that the new ones do
//! not allow.
//!
//! ```text
//!  open the new shares --> users, shares, policies --> sessions that lost something end --> closed
//!      |  one fails              |                         ^
//!       v                         +-- a logon or tree connect from here on checks the new ones,
//!   nothing has changed               also once more after it was admitted
//! ```
//!
//! A session that the old users or shares admitted either is in the table before the sessions are
//! checked, and ends there, or checks again afterwards and is refused.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use thiserror::Error;
use tracing::{info, warn};
use tree::{MayWait, Share, ShareConfig, ShareOpenError};

use crate::access::Identity;
use crate::config::Users;
use crate::connections::Session;
use crate::exports;
use crate::push;
use crate::service::Core;

/// The outcome of [`crate::Running::reload`].
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Reloaded {
    /// Shares that were added.
    pub added: Vec<String>,
    /// Shares that were removed.
    pub removed: Vec<String>,
    /// Shares whose directory, devices or persistent opens differ: they keep the old ones until the
    /// server restarts, with the new users and switches.
    pub unchanged: Vec<String>,
    /// Shares whose directory was moved, or has another mounted over it: they keep their directory until the
    /// server restarts.
    pub moved: Vec<String>,
    /// Sessions that ended because they lost a right.
    pub sessions_ended: usize,
}

/// Why users and shares stay unchanged.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// A share cannot be exported.
    #[error(transparent)]
    ConfigShare(#[from] ShareOpenError),
    /// Two shares of one name.
    #[error("there are two shares named {0:?}; names are compared ignoring case")]
    ConfigDuplicateShare(String),
    /// The server is ending.
    #[error("the server is ending")]
    HostEnding,
}

pub(crate) async fn reload(
    core: &Arc<Core>,
    users: Users,
    wanted: Vec<ShareConfig>,
    capture: Option<PathBuf>,
) -> Result<Reloaded, ReloadError> {
    let replacing = Arc::clone(core);
    let replace = move || replace(&replacing, users, &wanted, capture.as_deref());
    let task = core.runtime.spawn_blocking(replace).await;
    let mut reloaded = task.map_err(|_| ReloadError::HostEnding)??;
    let ended = end_unwelcome(core);
    reloaded.sessions_ended = ended.len();
    let closed = async {
        for session in &ended {
            session.work().settled().await;
        }
        // No region of a closed session is mapped any more.
        let ids: Vec<_> = ended.iter().map(|session| session.id).collect();
        push::ended_with(&core.push, &ids).await;
    };
    if tokio::time::timeout(core.connections.limits.shutdown_grace, closed).await.is_err() {
        warn!("sessions that were ended are still busy with a file or a region");
    }
    info!(?reloaded, "users and shares are replaced");
    Ok(reloaded)
}

fn replace(
    core: &Arc<Core>,
    users: Users,
    wanted: &[ShareConfig],
    capture: Option<&Path>,
) -> Result<Reloaded, ReloadError> {
    if let Some(name) = exports::duplicate(wanted) {
        return Err(ReloadError::ConfigDuplicateShare(name.to_owned()));
    }
    let before = core.files.shares();
    let named = |shares: &[Arc<Share>], name: &str| {
        shares.iter().find(|share| share.name().eq_ignore_ascii_case(name)).cloned()
    };
    let is_open = |config: &&ShareConfig| named(&before, &config.name).is_some();
    let (goes_on, new): (Vec<_>, Vec<_>) = wanted.iter().partition(is_open);
    let kept: Vec<_> = goes_on.iter().filter_map(|config| named(&before, &config.name)).collect();
    let added = exports::open(&new, &kept, &core.files.names, &core.environment, &users, capture)?;
    let mut reloaded = Reloaded {
        added: new.iter().map(|config| config.name.clone()).collect(),
        moved: names(kept.iter().filter(|share| share.has_moved())),
        ..Reloaded::default()
    };
    let open = [kept, added.clone()].concat();
    let shares: Vec<_> = wanted.iter().filter_map(|config| named(&open, &config.name)).collect();
    for (share, config) in shares.iter().zip(wanted) {
        if !share.is_of(config) {
            warn!(share = share.name(), "goes on as it was opened until the server starts again");
            reloaded.unchanged.push(share.name().to_owned());
        }
        share.set_policy(config);
    }
    reloaded.removed = names(before.iter().filter(|share| named(&shares, share.name()).is_none()));
    core.identity.set_users(users);
    // Before any client can enter: a file that a client wants may belong to a persistent open.
    let restorer = core.restorer(MayWait::here());
    added.iter().for_each(|share| restorer.restore(share));
    core.files.set_shares(shares);
    Ok(reloaded)
}

fn names<'a>(shares: impl Iterator<Item = &'a Arc<Share>>) -> Vec<String> {
    shares.map(|share| share.name().to_owned()).collect()
}

/// Ends the sessions that lost a right, and gives up their durable opens. The caller has to wait for
/// what these sessions are still doing.
fn end_unwelcome(core: &Arc<Core>) -> Vec<Arc<Session>> {
    let users = core.identity.users();
    let is_welcome = |session: &Session| {
        let trees = session.all_trees();
        session.identity.is_welcome_to(&users)
            && trees.iter().all(|tree| core.files.is_welcome_in(&session.identity, tree))
    };
    let mut ended = Vec::new();
    for session in core.sessions.all().into_iter().filter(|session| !is_welcome(session)) {
        let user = match &session.identity {
            Identity::User(name) => name,
            Identity::Guest { .. } => "a guest",
        };
        info!(user, session = session.id, "a session ends: what it was granted was taken away");
        core.dissolve_session(session.id);
        ended.push(session);
    }
    let orphans = core.files.orphans.all().into_iter().filter(|open| {
        let user = &open.origin.user;
        !user.is_welcome_to(&users) || !core.files.is_welcome_in(user, &open.tree)
    });
    core.files.orphans.give_up(&orphans.map(|open| open.serial).collect::<Vec<_>>());
    ended
}

/// Ends the sessions of users that are no longer in their file, as long as the server lives.
pub(crate) async fn watch_users(core: Weak<Core>) {
    let mut seen = None;
    loop {
        {
            let Some(core) = core.upgrade() else { return };
            let revision = core.identity.users().store().revision();
            if seen.replace(revision).is_some_and(|seen| seen != revision) {
                drop(end_unwelcome(&core));
            }
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// How long a user who was removed from the users file may go on.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Server, ServerConfig};

    #[tokio::test]
    async fn shares_added_after_an_empty_reload_share_name_locks_with_earlier_ones() {
        let dir = tempfile::tempdir().unwrap();
        let shares = ["a", "b"].map(|name| ShareConfig::new(name, dir.path())).to_vec();
        let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        config.shares.clone_from(&shares);
        let running = Server::start(config).await.unwrap();
        let core = running.core();
        let before = core.files.shares();
        assert!(before[0].keeps_names_with(&before[1]));
        reload(core, Users::default(), Vec::new(), None).await.unwrap();
        assert!(core.files.shares().is_empty());
        reload(core, Users::default(), shares, None).await.unwrap();
        assert!(core.files.shares().iter().all(|share| share.keeps_names_with(&before[0])));
    }
}
