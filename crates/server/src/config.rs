//! The decisions of an operator.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rdma::{PollPolicy, ProviderChoice};
use smb::Guid;
use smb::auth::{UserList, UserStore};
use tree::ShareConfig;

use crate::kerberos::{KerberosConfig, KeytabFileError, Tickets};
use crate::limits::Limits;
use crate::users::{UsersFile, UsersFileError};

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The address for TCP clients; port 0 chooses one.
    pub listen: SocketAddr,
    /// A socket that listens already, used instead of a new one on `listen`.
    pub listener: Option<Arc<std::net::TcpListener>>,
    /// The address for RDMA clients (SMB Direct and push), if there is one.
    pub rdma_listen: Option<SocketAddr>,
    /// The addresses for clients that look for more channels; none: those that the machine finds
    /// itself to have.
    pub announced: Vec<Announced>,
    /// The RDMA provider of this machine.
    pub rdma_provider: ProviderChoice,
    /// Lets clients of this host use shared memory in place of the network; for [`ProviderChoice::Soft`]
    /// without a capture.
    pub rdma_same_host: bool,
    /// How the RDMA engines wait for work.
    pub rdma_polling: PollPolicy,
    /// How many threads serve RDMA clients, each its share of the connections; at least one. With a
    /// capture there is one, whatever this says.
    pub rdma_threads: usize,
    /// A capture file for all bytes that RDMA clients send and receive. For diagnosis, not for
    /// speed. Provider `verbs` cannot show bytes and refuses.
    pub rdma_capture: Option<PathBuf>,
    /// The GUID by which clients know the server; none: a new one each time it starts. Servers that take a share over
    /// from each other have one.
    pub guid: Option<Guid>,
    /// The exported shares.
    pub shares: Vec<ShareConfig>,
    /// The users who may log on.
    pub users: Users,
    /// The sessions that have to sign.
    pub signing: SigningPolicy,
    /// Refuse every session that cannot encrypt, and every unencrypted request.
    pub encrypt_required: bool,
    /// Bounds of what peers can make the server spend.
    pub limits: Limits,
    /// Whether and how regions are mapped for one-sided access.
    pub push: PushPolicy,
    /// Most bytes of memory for the pages of files that are mapped lazily; none: an eighth of the machine's.
    pub flash_budget: Option<u64>,
}

impl ServerConfig {
    /// A server on `listen` without shares and users.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            listener: None,
            rdma_listen: None,
            announced: Vec::new(),
            rdma_provider: ProviderChoice::Soft,
            rdma_same_host: false,
            rdma_polling: PollPolicy::Adaptive,
            rdma_threads: 1,
            rdma_capture: None,
            guid: None,
            shares: Vec::new(),
            users: Users::default(),
            signing: SigningPolicy::Required,
            encrypt_required: false,
            limits: Limits::default(),
            push: PushPolicy::default(),
            flash_budget: None,
        }
    }
}

/// An address at which clients reach this server and which the server cannot find by itself: behind
/// address translation, in a container.
///
/// Written `ADDRESS[,rss][,rdma]`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Announced {
    /// The address.
    pub address: IpAddr,
    /// Several connections to this one address are worthwhile.
    pub rss: bool,
    /// The address leads to the RDMA listener too.
    pub rdma: bool,
}

impl FromStr for Announced {
    type Err = AnnouncedError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split(',');
        let address = words.next().unwrap_or_default().parse();
        let address = address.map_err(|_| AnnouncedError::ConfigAddress)?;
        let mut announced = Self { address, rss: false, rdma: false };
        for word in words {
            match word {
                "rss" => announced.rss = true,
                "rdma" => announced.rdma = true,
                _ => return Err(AnnouncedError::ConfigWord),
            }
        }
        Ok(announced)
    }
}

/// Why a text is not an [`Announced`] address.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AnnouncedError {
    /// The text does not begin with an address.
    #[error("it begins with no IP address")]
    ConfigAddress,
    /// A word after the address is neither `rss` nor `rdma`.
    #[error("after the address only `rss` and `rdma` mean something")]
    ConfigWord,
}

/// The sessions whose unencrypted requests must be signed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SigningPolicy {
    /// Every session with a user behind it.
    #[default]
    Required,
    /// Sessions whose client asks for it.
    WhenAsked,
}

/// Whether and how regions are mapped for one-sided access.
#[derive(Clone, Debug)]
pub struct PushPolicy {
    /// Whether push is granted at all.
    pub enabled: bool,
    /// How long a client has to return a recalled region before it is revoked.
    pub grace: Duration,
    /// How long a token that binds a push connection stays valid.
    pub token_lifetime: Duration,
    /// Regions of one open.
    pub regions_per_open_max: u32,
    /// Regions of the whole server; a user has half of them at most.
    pub regions_max: u32,
    /// Push connections at once; a user has half of them at most.
    pub connections_max: u32,
}

impl Default for PushPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            grace: Duration::from_secs(5),
            token_lifetime: Duration::from_secs(30),
            regions_per_open_max: 64,
            regions_max: 16_384,
            connections_max: 1_024,
        }
    }
}

/// The users who may log on.
#[derive(Clone, Debug)]
pub struct Users {
    store: Arc<dyn UserStore>,
    tickets: Option<Arc<Tickets>>,
    files: Vec<PathBuf>,
}

impl Users {
    /// Users of another store.
    pub fn from_store(store: Arc<dyn UserStore>) -> Self {
        Self { store, tickets: None, files: Vec::new() }
    }

    /// The same users, with a file about them that no share may contain.
    #[must_use]
    pub fn kept_in(mut self, path: impl Into<PathBuf>) -> Self {
        self.files.push(path.into());
        self
    }

    /// The files with users and keys on this machine.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Users by name and password.
    pub fn with_passwords<'a>(users: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut list = UserList::new();
        for (user, password) in users {
            list.add_password(user, password);
        }
        Self::from_store(Arc::new(list))
    }

    /// Users of a file that `landfast passwd` writes, and some more by name and password.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn in_file<'a>(
        path: &Path,
        more: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, UsersFileError> {
        let mut list = UserList::new();
        for (user, password) in more {
            list.add_password(user, password);
        }
        Ok(Self::from_store(Arc::new(UsersFile::open(path, list)?)).kept_in(path))
    }

    /// The same users, who may also log on by Kerberos ticket; and users by ticket alone, who have
    /// no password here.
    ///
    /// # Errors
    /// The keytab cannot be used.
    pub fn with_kerberos(self, config: &KerberosConfig) -> Result<Self, KeytabFileError> {
        let tickets = Some(Arc::new(Tickets::open(config)?));
        Ok(Self { tickets, ..self }.kept_in(&config.keytab))
    }

    pub(crate) fn store(&self) -> Arc<dyn UserStore> {
        Arc::clone(&self.store)
    }

    /// Whether there is a user of that name, by password or by ticket.
    pub fn knows(&self, user: &str) -> bool {
        let by_ticket = || self.tickets.as_ref().is_some_and(|tickets| tickets.admits(user));
        self.store.lookup(user, "").is_some() || by_ticket()
    }

    /// These users as successors of `before`: tickets that `before` has seen stay used.
    pub(crate) fn succeeding(self, before: &Self) -> Self {
        let tickets = match (&self.tickets, &before.tickets) {
            (Some(ours), Some(theirs)) => Some(Arc::new(ours.sharing_replays(theirs))),
            _ => self.tickets.clone(),
        };
        Self { tickets, ..self }
    }

    /// How tickets are checked, if they are accepted.
    pub(crate) fn tickets(&self) -> Option<&Tickets> {
        self.tickets.as_deref()
    }
}

impl Default for Users {
    fn default() -> Self {
        Self::from_store(Arc::new(UserList::new()))
    }
}
