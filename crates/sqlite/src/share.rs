//! Databases of a share.
//!
//! SQLite's five locks are byte-range locks of the server, on the bytes on which SQLite has them everywhere; the server
//! takes them back when the connection of a client ends.
//!
//! ```text
//!   PENDING_BYTE 0x40000000, RESERVED_BYTE +1, SHARED_FIRST +2, 510 bytes
//!   SHARED      shared lock on the 510 bytes, taken while the pending byte is held
//!   RESERVED    exclusive lock on the reserved byte
//!   PENDING     exclusive lock on the pending byte
//!   EXCLUSIVE   the shared lock is given back, and an exclusive one taken
//! ```

use std::ffi::c_int;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use client::{ClientError, ConnectOptions, OpenOptions, RangeLock, SmbUrl, blocking};
use logged::ShareBase;
use smb::NtStatus;

use crate::abi;

/// Where a database is.
#[derive(Clone, Debug)]
pub(crate) enum Location {
    /// A path of this machine.
    Local(PathBuf),
    /// A file of a share.
    Share(ShareFile),
}

impl Location {
    /// What a name that SQLite gives says.
    pub(crate) fn of(name: &str) -> Result<Self, client::UrlError> {
        if is_share(name) {
            Ok(Self::Share(ShareFile { url: name.parse()? }))
        } else {
            Ok(Self::Local(name.into()))
        }
    }

    /// What no other database of this process has.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Local(path) => path.to_string_lossy().into_owned(),
            Self::Share(share) => share.url.to_string(),
        }
    }

    /// The name of a file beside the database, on this machine.
    pub(crate) fn beside(&self, end: &str) -> String {
        self.key() + end
    }
}

/// Whether a name is that of a file of a share.
pub(crate) fn is_share(name: &str) -> bool {
    name.starts_with("smb://")
}

/// A file of a share, by its address.
#[derive(Clone, Debug)]
pub(crate) struct ShareFile {
    url: SmbUrl,
}

impl ShareFile {
    /// Opens the file whose name has `end` behind that of this one, and makes it if need be.
    pub(crate) fn open(&self, end: &str) -> Result<ShareBase, ClientError> {
        let path = self.url.path.clone() + end;
        Ok(ShareBase(self.client()?.open(&path, &OpenOptions::read_write())?))
    }

    /// As [`ShareFile::open`], if the file exists.
    pub(crate) fn open_existing(&self, end: &str) -> Result<Option<ShareBase>, ClientError> {
        let path = self.url.path.clone() + end;
        match self.client()?.open(&path, &OpenOptions::read()) {
            Ok(file) => Ok(Some(ShareBase(file))),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens this file as SQLite asks.
    pub(crate) fn open_for(&self, flags: c_int) -> Result<blocking::File, ClientError> {
        let options = if flags & abi::OPEN_READONLY != 0 {
            OpenOptions::read()
        } else if flags & abi::OPEN_CREATE != 0 {
            OpenOptions::read_write()
        } else {
            let disposition = OpenOptions::read().disposition;
            OpenOptions { disposition, ..OpenOptions::read_write() }
        };
        self.client()?.open(&self.url.path, &options)
    }

    /// Whether the file exists.
    pub(crate) fn exists(&self) -> Result<bool, ClientError> {
        match self.client()?.stat(&self.url.path) {
            Ok(stat) => Ok(!stat.is_directory()),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes the file; `false` if there is none.
    ///
    /// A file that somebody has open keeps its name, which nobody can open any more, until the last one closes it. A
    /// server that dies meanwhile has the file again: a journal, which would undo a transaction. So this waits until the
    /// name is gone.
    ///
    /// # Durability
    ///
    /// On `Ok` the file does not come back if the server dies; where `durably`, nor if its machine does.
    pub(crate) fn delete(&self, durably: bool) -> Result<bool, ClientError> {
        let client = self.client()?;
        match client.delete(&self.url.path) {
            Err(error) if is_absent(&error) => return Ok(false),
            outcome => outcome?,
        }
        let begin = Instant::now();
        loop {
            match client.stat(&self.url.path) {
                Err(error) if error.status() == Some(NtStatus::DELETE_PENDING) => {
                    if begin.elapsed() >= GONE_MAX {
                        return Err(error);
                    }
                    thread::sleep(PAUSE);
                }
                Err(error) if is_absent(&error) => break,
                Err(error) => return Err(error),
                // The server could not remove it. Nobody makes a file of this name while its database is locked.
                Ok(_) => {
                    return Err(ClientError::PeerStatus {
                        command: smb::Command::CLOSE,
                        status: NtStatus::CANNOT_DELETE,
                    });
                }
            }
        }
        if durably {
            let parent = self.url.path.rsplit_once('/').map_or("", |(parent, _)| parent);
            client.open(parent, &OpenOptions::directory())?.flush()?;
        }
        Ok(true)
    }

    fn client(&self) -> Result<blocking::Client, ClientError> {
        // One connection for each share and user, as long as it lives. The password counts: who knows none gets nothing
        // because somebody else of this program knew it.
        let key = SmbUrl { path: String::new(), is_directory: false, ..self.url.clone() };
        // Known before it is connected, and connected under its own lock: one server that hangs is waited for by those who
        // want that one alone.
        let slot = slot_of(key);
        let mut connected = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = connected.as_ref().filter(|client| client.echo().is_ok()) {
            return Ok(client.clone());
        }
        *connected = None;
        let client = blocking::Client::connect(&self.url, &ConnectOptions::default())?;
        *connected = Some(client.clone());
        Ok(client)
    }
}

/// The connection of one share and user, once it is there.
type Slot = Arc<Mutex<Option<blocking::Client>>>;

/// The place of a connection; that which was asked for least recently goes where there are too many.
fn slot_of(key: SmbUrl) -> Slot {
    let mut slots = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = slots.iter().position(|(known, _)| *known == key);
    let slot = known.map_or_else(Slot::default, |at| slots.remove(at).1);
    if slots.len() == CLIENTS_MAX {
        slots.remove(0);
    }
    slots.push((key, Arc::clone(&slot)));
    slot
}

fn is_absent(error: &ClientError) -> bool {
    matches!(
        error.status(),
        Some(
            NtStatus::OBJECT_NAME_NOT_FOUND
                | NtStatus::OBJECT_PATH_NOT_FOUND
                | NtStatus::DELETE_PENDING
        )
    )
}

static CLIENTS: Mutex<Vec<(SmbUrl, Slot)>> = Mutex::new(Vec::new());
/// Connections that are kept for the next file: as many as shares that one program uses at once.
const CLIENTS_MAX: usize = 16;

/// How long others may have a deleted file open: who finds a journal looks at it and closes it.
const GONE_MAX: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_micros(500);

/// An open file of a share, and SQLite's lock on it.
#[derive(Debug)]
pub(crate) struct LockedFile {
    pub(crate) file: ShareBase,
    level: c_int,
    has_reserved: bool,
    has_pending: bool,
}

impl LockedFile {
    pub(crate) fn new(file: blocking::File) -> Self {
        Self {
            file: ShareBase(file),
            level: abi::LOCK_NONE,
            has_reserved: false,
            has_pending: false,
        }
    }

    /// Raises the lock; `false` if another open is in the way.
    pub(crate) fn lock(&mut self, wanted: c_int) -> Result<bool, ClientError> {
        if self.level >= wanted {
            return Ok(true);
        }
        if self.level == abi::LOCK_NONE {
            if !self.range(PENDING, RangeLock::Exclusive)? {
                return Ok(false);
            }
            let shared = self.range(SHARED, RangeLock::Shared);
            self.range(PENDING, RangeLock::Unlock)?;
            if !shared? {
                return Ok(false);
            }
            self.level = abi::LOCK_SHARED;
        }
        // From SHARED straight to EXCLUSIVE goes who rolls a hot journal back, without the reserved byte: others take
        // a journal beside a reserved byte for that of a transaction under way, and would read what is not rolled back.
        if wanted == abi::LOCK_RESERVED {
            if !self.range(RESERVED, RangeLock::Exclusive)? {
                return Ok(false);
            }
            self.has_reserved = true;
            self.level = abi::LOCK_RESERVED;
        }
        if wanted >= abi::LOCK_PENDING && !self.has_pending {
            if !self.range(PENDING, RangeLock::Exclusive)? {
                return Ok(false);
            }
            self.has_pending = true;
            self.level = abi::LOCK_PENDING;
        }
        if wanted == abi::LOCK_EXCLUSIVE {
            self.range(SHARED, RangeLock::Unlock)?;
            if !self.range(SHARED, RangeLock::Exclusive)? {
                // Nobody new can have come while the pending byte is held, but those who were there read on.
                if !self.range(SHARED, RangeLock::Shared)? {
                    self.level = abi::LOCK_NONE;
                    return Err(ClientError::PeerStatus {
                        command: smb::Command::LOCK,
                        status: NtStatus::LOCK_NOT_GRANTED,
                    });
                }
                return Ok(false);
            }
            self.level = abi::LOCK_EXCLUSIVE;
        }
        Ok(true)
    }

    /// Lowers the lock to SHARED or to none.
    pub(crate) fn unlock(&mut self, to: c_int) -> Result<(), ClientError> {
        if self.level <= to {
            return Ok(());
        }
        let was = std::mem::replace(&mut self.level, to);
        if was == abi::LOCK_EXCLUSIVE {
            self.range(SHARED, RangeLock::Unlock)?;
            if to == abi::LOCK_SHARED {
                self.range(SHARED, RangeLock::Shared)?;
            }
        } else if to == abi::LOCK_NONE {
            self.range(SHARED, RangeLock::Unlock)?;
        }
        if std::mem::take(&mut self.has_reserved) {
            self.range(RESERVED, RangeLock::Unlock)?;
        }
        if std::mem::take(&mut self.has_pending) {
            self.range(PENDING, RangeLock::Unlock)?;
        }
        Ok(())
    }

    /// Whether any open has the reserved lock.
    pub(crate) fn is_reserved(&self) -> Result<bool, ClientError> {
        if self.has_reserved {
            return Ok(true);
        }
        // A shared lock, so that nobody takes another one's question for the lock.
        if self.range(RESERVED, RangeLock::Shared)? {
            self.range(RESERVED, RangeLock::Unlock)?;
            return Ok(false);
        }
        Ok(true)
    }

    fn range(&self, range: Range<u64>, kind: RangeLock) -> Result<bool, ClientError> {
        self.file.0.lock(range, kind)
    }
}

const PENDING: Range<u64> = 0x4000_0000..0x4000_0001;
const RESERVED: Range<u64> = 0x4000_0001..0x4000_0002;
const SHARED: Range<u64> = 0x4000_0002..0x4000_0200;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::path::Path;

    use server::{Running, Server, ServerConfig, ShareConfig, Users};
    use tokio::runtime::Runtime;

    use super::*;

    fn serve(directory: &Path, path: &str) -> (Runtime, Running, SmbUrl) {
        let runtime = Runtime::new().unwrap();
        let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        config.shares.push(ShareConfig::new("share", directory));
        config.users = Users::with_passwords([("user", "secret")]);
        let running = runtime.block_on(Server::start(config)).unwrap();
        let port = running.tcp_address().port();
        let url = format!("smb://user:secret@127.0.0.1:{port}/share/{path}").parse().unwrap();
        (runtime, running, url)
    }

    #[test]
    fn a_server_that_hangs_keeps_no_one_from_another_server() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        std::fs::write(dir.path().join("db"), "a database").unwrap();
        let (_runtime, _running, url) = serve(dir.path(), "db");
        let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = hangs.local_addr().unwrap().port();
        let never = format!("smb://user:secret@127.0.0.1:{port}/share/db").parse().unwrap();
        let waiting = thread::spawn(move || ShareFile { url: never }.exists());
        let (silent, _) = hangs.accept().unwrap();
        assert!(ShareFile { url: url.clone() }.exists().unwrap());
        assert!(ShareFile { url }.open_existing("").unwrap().is_some());
        assert!(!waiting.is_finished());
        drop((silent, hangs));
        waiting.join().unwrap().unwrap_err();
    }

    #[test]
    fn a_deleted_journal_is_gone_although_another_client_had_it_open() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("journal");
        std::fs::write(&path, "a journal").unwrap();
        let (_runtime, _running, url) = serve(dir.path(), "journal");
        let other = blocking::Client::connect(&url, &ConnectOptions::default()).unwrap();
        let held = other.open("journal", &OpenOptions::read()).unwrap();
        let file = ShareFile { url };
        let deleting = thread::spawn(move || {
            let deleted = file.delete(false);
            (deleted, path.exists())
        });
        let is_pending = || {
            let status = other.stat("journal").map_err(|error| error.status());
            matches!(status, Err(Some(NtStatus::DELETE_PENDING)))
        };
        while !is_pending() {}
        // Long enough for one that would not wait.
        (0..200).for_each(|_| assert!(is_pending()));
        drop(held);
        let (deleted, is_there) = deleting.join().unwrap();
        assert!(deleted.unwrap());
        assert!(!is_there);
    }
}
