//! A client of one share.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use basics::Environment;
use remote::{RegionConfigError, RegionSettings, Ways};
use smb::FileTime;
use smb::auth::{ClientFreshness, Initiator, NtlmInitiator};
use smb::create::{AccessMask, CreateDisposition, CreateOptions};
use smb::info::DirectoryEntry;
use smb::{Command, Empty, NtStatus};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::connection::{Connection, Negotiated, Patience, Request, negotiate};
use crate::error::{ClientError, ConnectionError};
use crate::file::{File, FileStat, OpenOptions};
use crate::options::{ConnectOptions, Protection};
use crate::region::{AsyncRegion, FileControl};
use crate::transport::{self, Transport};
use crate::tree::Tree;
use crate::url::SmbUrl;
use crate::{directory, session};

/// A session on one share. Cheap to clone; the connection closes with the last clone and file.
#[derive(Clone, Debug)]
pub struct Client {
    tree: Arc<Tree>,
    pub(crate) listing_bytes_max: usize,
}

impl Client {
    /// Connects to the share of `url`; the path of the URL is ignored. A URL without a user connects
    /// as a guest, who has no key: `options` must not require signing. Of several servers the first that
    /// serves the share; each has its part of the time.
    ///
    /// # Errors
    /// The host's network, the server's refusal, or a policy of `options` that the connection
    /// cannot meet. Of several servers, what the last one said.
    pub async fn connect(url: &SmbUrl, options: &ConnectOptions) -> Result<Self, ClientError> {
        let count = u32::try_from(1 + url.others.len()).unwrap_or(u32::MAX);
        let mut outcome = Err(ConnectionError::HostName.into());
        for (host, port) in url.servers() {
            let connecting = async {
                let transport = dial(host, port).await?;
                let mut initiator = initiator_at(host, url, &options.environment)?;
                Self::over(transport, &mut initiator, host, &url.share, options).await
            };
            let silent = ClientError::from(ConnectionError::HostIo(std::io::ErrorKind::TimedOut));
            outcome =
                timeout(options.connect_timeout / count, connecting).await.unwrap_or(Err(silent));
            if !outcome.as_ref().is_err_and(is_elsewhere) {
                break;
            }
        }
        outcome
    }

    /// Connects over an established transport, with any authentication.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn over(
        transport: Transport,
        initiator: &mut dyn Initiator,
        host: &str,
        share: &str,
        options: &ConnectOptions,
    ) -> Result<Self, ClientError> {
        let patience = Patience { silence: options.answer_timeout, call: options.call_timeout };
        let mut addresses: Vec<IpAddr> = transport.peer.into_iter().collect();
        addresses.extend(&options.push_addresses);
        let environment = options.environment.clone();
        let connection = Connection::start(transport, patience, addresses, environment);
        negotiate(&connection, options, host).await?;
        let session = session::set_up(&connection, initiator, options).await?;
        let encrypt = options.encryption == Protection::Required;
        let tree = Tree::enter(connection, session, host, share, encrypt).await?;
        Ok(Self { tree: Arc::new(tree), listing_bytes_max: options.listing_bytes_max })
    }

    /// The outcome of the negotiation.
    pub fn negotiated(&self) -> &Negotiated {
        self.tree.connection().negotiated()
    }

    /// Whether the connection has ended: every call fails, and only another client can go on.
    pub fn has_ended(&self) -> bool {
        self.tree.connection().has_ended()
    }

    /// Whether requests are signed or encrypted.
    pub fn is_protected(&self) -> bool {
        self.tree.is_protected()
    }

    /// Whether requests are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tree.is_encrypted()
    }

    /// Checks that the server answers.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn echo(&self) -> Result<(), ClientError> {
        let request = Request::new(Command::ECHO).session(self.tree.session());
        let response = self.tree.connection().call(request, |out| Empty.emit(out)).await?;
        response.parse(Empty::parse).map(drop)
    }

    /// Opens or creates a file or directory. Slashes and backslashes both separate.
    ///
    /// # Errors
    /// The server's status.
    pub async fn open(&self, path: &str, options: &OpenOptions) -> Result<File, ClientError> {
        File::open(Arc::clone(&self.tree), path, options).await
    }

    /// Opens a file and maps `range` of it. If the server does not push, the region works over SMB
    /// and [`AsyncRegion::path`] says why. The region ends before the runtime does.
    ///
    /// # Errors
    /// [`ClientError::ConfigRegion`] says which setting is out of bounds, that the range is empty,
    /// or that the file is shorter than the range's end; [`ClientError::HostThread`]; else the server's
    /// status for the open.
    pub async fn map(
        &self,
        path: &str,
        options: &OpenOptions,
        range: Range<u64>,
        settings: RegionSettings,
    ) -> Result<AsyncRegion, ClientError> {
        let control = Box::new(self.control(path, options, &range, &settings).await?);
        let ways = Ways::of(&settings);
        let opened = AsyncRegion::open(control, ways, settings, self.environment(), range).await;
        opened.map_err(|_| ClientError::HostThread)
    }

    /// Opens a file as the control side of a region.
    pub(crate) async fn control(
        &self,
        path: &str,
        options: &OpenOptions,
        range: &Range<u64>,
        settings: &RegionSettings,
    ) -> Result<FileControl, ClientError> {
        settings.check()?;
        if range.is_empty() {
            return Err(RegionConfigError::EmptyRange(range.clone()).into());
        }
        let file = self.open(path, options).await?;
        let len = file.opened_as().len;
        if len < range.end {
            file.close().await?;
            return Err(RegionConfigError::FileTooShort { len, end: range.end }.into());
        }
        let runtime = Handle::current();
        Ok(FileControl::new(runtime, self.clone(), path, options, file, range.clone()))
    }

    /// A client whose share a test has entered.
    #[cfg(test)]
    pub(crate) fn of(tree: Tree) -> Self {
        Self { tree: Arc::new(tree), listing_bytes_max: usize::MAX }
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(crate) fn environment(&self) -> &Environment {
        self.tree.connection().environment()
    }

    /// Makes a file that is removed when this open ends, for whatever reason, until the file is
    /// [kept](File::keep_as). The open has the right to delete, and lets others ask for that right.
    ///
    /// # Errors
    /// The server's status; `OBJECT_NAME_COLLISION` if it exists.
    pub async fn create_temporary(
        &self,
        path: &str,
        options: &OpenOptions,
    ) -> Result<File, ClientError> {
        File::create_temporary(Arc::clone(&self.tree), path, options).await
    }

    /// Sizes, times and attributes.
    ///
    /// # Errors
    /// The server's status.
    pub async fn stat(&self, path: &str) -> Result<FileStat, ClientError> {
        let file = self.open(path, &OpenOptions::attributes()).await?;
        let stat = file.opened_as();
        file.close().await?;
        Ok(stat)
    }

    /// The entries of a directory, without `.` and `..`. Where a name is no UTF-16 it has U+FFFD, and no path
    /// leads to it.
    ///
    /// # Errors
    /// The server's status; a listing beyond the bounds of [`ConnectOptions`]; a name that is no name.
    pub async fn list(&self, path: &str) -> Result<Vec<DirectoryEntry>, ClientError> {
        let file = self.open(path, &OpenOptions::directory()).await?;
        let entries = directory::list(&self.tree, file.id(), self.listing_bytes_max).await?;
        file.close().await?;
        Ok(entries)
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// The server's status; `OBJECT_NAME_COLLISION` if it exists.
    pub async fn create_directory(&self, path: &str) -> Result<(), ClientError> {
        let options =
            OpenOptions { disposition: CreateDisposition::CREATE, ..OpenOptions::directory() };
        self.open(path, &options).await?.close().await
    }

    /// Deletes a file, or an empty directory.
    ///
    /// # Errors
    /// The server's status.
    pub async fn delete(&self, path: &str) -> Result<(), ClientError> {
        let file = self.open(path, &for_delete()).await?;
        file.delete_on_close(true).await?;
        file.close().await
    }

    /// Gives a file another path on the same share. After a crash of the server's machine it may have either.
    ///
    /// # Errors
    /// The server's status; `OBJECT_NAME_COLLISION` if `to` exists and `replace` is not set.
    pub async fn rename(&self, from: &str, to: &str, replace: bool) -> Result<(), ClientError> {
        self.rename_by(&for_delete(), from, to, replace).await
    }

    /// [`Client::rename`] whose outcome a crash does not undo.
    ///
    /// # Durability
    /// After `Ok` the file is found by its new path after a crash of the server's machine, if the medium is not volatile and the
    /// server lets a handle that writes through make its names durable, as ours does. Its bytes are as durable as they were.
    ///
    /// # Errors
    /// As [`Client::rename`]. The file may have its new path all the same.
    pub async fn rename_durably(
        &self,
        from: &str,
        to: &str,
        replace: bool,
    ) -> Result<(), ClientError> {
        let mut options = for_delete();
        options.options |= CreateOptions::WRITE_THROUGH;
        self.rename_by(&options, from, to, replace).await
    }

    async fn rename_by(
        &self,
        options: &OpenOptions,
        from: &str,
        to: &str,
        replace: bool,
    ) -> Result<(), ClientError> {
        let file = self.open(from, options).await?;
        file.rename(to, replace).await?;
        file.close().await
    }
}

pub(crate) fn for_delete() -> OpenOptions {
    OpenOptions {
        access: AccessMask::DELETE | AccessMask::READ_ATTRIBUTES,
        options: CreateOptions::OPEN_REPARSE_POINT,
        ..OpenOptions::attributes()
    }
}

/// Proves who the user of `url` is; who names none is a guest.
///
/// # Errors
/// A name that is too long, or a system without random numbers.
pub fn initiator(url: &SmbUrl, environment: &Environment) -> Result<NtlmInitiator, ClientError> {
    initiator_at(&url.host, url, environment)
}

fn initiator_at(
    host: &str,
    url: &SmbUrl,
    environment: &Environment,
) -> Result<NtlmInitiator, ClientError> {
    let SmbUrl { domain, password, .. } = url;
    let user = if url.user.is_empty() { GUEST } else { &url.user };
    let mut random = [0; 24];
    environment.random.fill(&mut random).map_err(|_| ClientError::HostRandom)?;
    let now = environment.clock.time_of_day();
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let now = FileTime::from_unix_ns(i128::try_from(now).unwrap_or(i128::MAX));
    let fresh = ClientFreshness::new(&random, now.0);
    Ok(NtlmInitiator::with_password(user, domain, password, host, fresh)?)
}

/// Whether another server may do what this one did not: it cannot be reached, or does not have the share.
pub(crate) fn is_elsewhere(error: &ClientError) -> bool {
    match error {
        ClientError::Connection(_) => true,
        other => other.status() == Some(NtStatus::BAD_NETWORK_NAME),
    }
}

/// Dials the addresses of a host, one after the other.
async fn dial(host: &str, port: u16) -> Result<Transport, ClientError> {
    let found = tokio::net::lookup_host((host, port)).await;
    let addresses: Vec<SocketAddr> = found.map_err(|_| ConnectionError::HostName)?.collect();
    let mut last = ConnectionError::HostName;
    for address in addresses {
        match transport::connect(address).await {
            Ok(transport) => return Ok(transport),
            Err(error) => last = error,
        }
    }
    Err(last.into())
}

/// The name of a user who gives none: no account of this server, and the name of the guest account
/// of Windows and Samba.
const GUEST: &str = "guest";
