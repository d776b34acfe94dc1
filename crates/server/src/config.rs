//! What an operator decides.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rdma::{PollPolicy, ProviderChoice};
use smb::auth::{UserList, UserStore};

use crate::kerberos::{KerberosConfig, KeytabFileError, Tickets};
use crate::limits::Limits;
use crate::share::ShareConfig;
use crate::users::{UsersFile, UsersFileError};

/// Everything a server is started with.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where TCP clients connect; port 0 chooses one.
    pub listen: SocketAddr,
    /// A socket that listens already, to be used instead of one on `listen`.
    pub listener: Option<Arc<std::net::TcpListener>>,
    /// Where RDMA clients connect (SMB Direct and push), if at all.
    pub rdma_listen: Option<SocketAddr>,
    /// The addresses clients are told of when they look for more channels; none: those this machine
    /// finds itself to have.
    pub announced: Vec<Announced>,
    /// What does RDMA on this machine.
    pub rdma_provider: ProviderChoice,
    /// How the RDMA engines wait for work.
    pub rdma_polling: PollPolicy,
    /// How many threads serve RDMA clients, each its share of the connections; at least one. With
    /// a capture it is one, whatever this says.
    pub rdma_threads: usize,
    /// A capture file for everything that RDMA clients send and get. For looking, not for speed.
    /// Provider `verbs` has no bytes to show and refuses.
    pub rdma_capture: Option<PathBuf>,
    /// What is exported.
    pub shares: Vec<ShareConfig>,
    /// Who may log on.
    pub users: Users,
    /// Who has to sign.
    pub signing: SigningPolicy,
    /// Refuse every session that cannot encrypt, and every request that is not.
    pub encrypt_required: bool,
    /// Bounds on what peers can make the server spend.
    pub limits: Limits,
    /// Whether and how regions are mapped for one-sided access.
    pub push: PushPolicy,
}

impl ServerConfig {
    /// A server on `listen` that exports nothing to nobody yet.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            listener: None,
            rdma_listen: None,
            announced: Vec::new(),
            rdma_provider: ProviderChoice::Soft,
            rdma_polling: PollPolicy::Adaptive,
            rdma_threads: 1,
            rdma_capture: None,
            shares: Vec::new(),
            users: Users::default(),
            signing: SigningPolicy::Required,
            encrypt_required: false,
            limits: Limits::default(),
            push: PushPolicy::default(),
        }
    }
}

/// An address at which clients reach this server, where it cannot know that by itself: behind a
/// translation of addresses, in a container.
///
/// Written `ADDRESS[,rss][,rdma]`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Announced {
    /// Where.
    pub address: IpAddr,
    /// Several connections to this one address are worth while.
    pub rss: bool,
    /// It leads to the RDMA listener too.
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

/// Why a text is no [`Announced`] address.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AnnouncedError {
    /// It does not begin with an address.
    #[error("it begins with no IP address")]
    ConfigAddress,
    /// What follows is neither of the two words.
    #[error("after the address only `rss` and `rdma` mean something")]
    ConfigWord,
}

/// Who has to sign requests that are not encrypted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SigningPolicy {
    /// Every session with a user behind it.
    #[default]
    Required,
    /// Those whose client asks for it.
    WhenAsked,
}

/// Whether and how regions are mapped for one-sided access.
#[derive(Clone, Debug)]
pub struct PushPolicy {
    /// Grant it at all.
    pub enabled: bool,
    /// How long a client has to give a region back before it is taken.
    pub grace: Duration,
    /// How long a token that binds a push connection stays good.
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

/// Who may log on.
#[derive(Clone, Debug)]
pub struct Users {
    store: Arc<dyn UserStore>,
    tickets: Option<Arc<Tickets>>,
    files: Vec<PathBuf>,
}

impl Users {
    /// Users kept by someone else.
    pub fn from_store(store: Arc<dyn UserStore>) -> Self {
        Self { store, tickets: None, files: Vec::new() }
    }

    /// The same users, about whom a file says something that no share may contain.
    #[must_use]
    pub fn kept_in(mut self, path: impl Into<PathBuf>) -> Self {
        self.files.push(path.into());
        self
    }

    /// Where users and keys are kept on this machine.
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

    /// The same users, who may show a Kerberos ticket instead of their password; and others, who
    /// have no password here.
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

    /// These users in the place of others: what tickets those have seen counts here too.
    pub(crate) fn succeeding(self, before: &Self) -> Self {
        let tickets = match (&self.tickets, &before.tickets) {
            (Some(ours), Some(theirs)) => Some(Arc::new(ours.sharing_replays(theirs))),
            _ => self.tickets.clone(),
        };
        Self { tickets, ..self }
    }

    /// How tickets are taken, if they are.
    pub(crate) fn tickets(&self) -> Option<&Tickets> {
        self.tickets.as_deref()
    }
}

impl Default for Users {
    fn default() -> Self {
        Self::from_store(Arc::new(UserList::new()))
    }
}
