//! The client for programs that do not use tokio.
//!
//! A runtime with one thread of its own keeps the connection alive between calls: it answers breaks
//! of leases and echoes while the caller is busy.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use remote::{RegionSettings, Ways};
use smb::info::{DirectoryEntry, FileInfoClass};
use tokio::runtime::{Builder, Runtime};

use crate::connection::LeaseBreak;
use crate::error::{ClientError, ConnectionError};
use crate::failover;
use crate::file::{self, FileStat, OpenOptions, RangeLock};
use crate::options::ConnectOptions;
use crate::region::Region;
use crate::url::SmbUrl;

/// A session on one share; see [`crate::Client`].
#[derive(Clone, Debug)]
pub struct Client {
    runtime: Arc<Runtime>,
    inner: crate::Client,
}

impl Client {
    /// Connects to the share of `url`.
    ///
    /// # Errors
    /// As [`crate::Client::connect`], or the host starts no thread.
    ///
    /// # Panics
    /// Inside an async runtime, as all calls of this module.
    pub fn connect(url: &SmbUrl, options: &ConnectOptions) -> Result<Self, ClientError> {
        let runtime = Arc::new(runtime().map_err(ConnectionError::from)?);
        Self::connect_on(runtime, url, options)
    }

    /// [`Client::connect`] on a runtime that the caller has, with threads of its own and all drivers. The runtime lives
    /// at least as long as this client, its files and its regions.
    ///
    /// # Errors
    /// As [`crate::Client::connect`].
    ///
    /// # Panics
    /// Inside an async runtime.
    pub fn connect_on(
        runtime: Arc<Runtime>,
        url: &SmbUrl,
        options: &ConnectOptions,
    ) -> Result<Self, ClientError> {
        let inner = runtime.block_on(crate::Client::connect(url, options))?;
        Ok(Self { runtime, inner })
    }

    /// The async client behind this one.
    pub fn inner(&self) -> &crate::Client {
        &self.inner
    }

    /// See [`crate::Client::echo`].
    ///
    /// # Errors
    /// The connection is lost.
    pub fn echo(&self) -> Result<(), ClientError> {
        self.runtime.block_on(self.inner.echo())
    }

    /// See [`crate::Client::open`].
    ///
    /// # Errors
    /// The server's status.
    pub fn open(&self, path: &str, options: &OpenOptions) -> Result<File, ClientError> {
        let inner = self.runtime.block_on(self.inner.open(path, options))?;
        Ok(File { inner, runtime: Arc::clone(&self.runtime) })
    }

    /// Opens a file and maps `range` of it. If the server does not push, the region works over SMB
    /// and [`Region::path`] says why.
    ///
    /// # Errors
    /// [`ClientError::ConfigRegion`] says which setting is out of bounds, that the range is empty,
    /// or that the file is shorter than the range's end; else the server's status for the open.
    pub fn map(
        &self,
        path: &str,
        options: &OpenOptions,
        range: Range<u64>,
        settings: RegionSettings,
    ) -> Result<Region, ClientError> {
        let control =
            self.runtime.block_on(self.inner.control(path, options, &range, &settings))?;
        let control = Box::new(control.keeping(Arc::clone(&self.runtime)));
        let environment = self.inner.environment();
        Ok(Region::open(control, Ways::of(&settings), settings, environment, range))
    }

    /// See [`crate::Client::stat`].
    ///
    /// # Errors
    /// The server's status.
    pub fn stat(&self, path: &str) -> Result<FileStat, ClientError> {
        self.runtime.block_on(self.inner.stat(path))
    }

    /// See [`crate::Client::list`].
    ///
    /// # Errors
    /// The server's status.
    pub fn list(&self, path: &str) -> Result<Vec<DirectoryEntry>, ClientError> {
        self.runtime.block_on(self.inner.list(path))
    }

    /// See [`crate::Client::create_directory`].
    ///
    /// # Errors
    /// The server's status.
    pub fn create_directory(&self, path: &str) -> Result<(), ClientError> {
        self.runtime.block_on(self.inner.create_directory(path))
    }

    /// See [`crate::Client::delete`].
    ///
    /// # Errors
    /// The server's status.
    pub fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.runtime.block_on(self.inner.delete(path))
    }

    /// See [`crate::Client::rename`].
    ///
    /// # Errors
    /// The server's status.
    pub fn rename(&self, from: &str, to: &str, replace: bool) -> Result<(), ClientError> {
        self.runtime.block_on(self.inner.rename(from, to, replace))
    }
}

/// An open file; see [`crate::File`]. The file stands before the runtime, which it closes on.
#[derive(Debug)]
pub struct File {
    inner: file::File,
    runtime: Arc<Runtime>,
}

impl File {
    /// The async file behind this one.
    pub fn inner(&self) -> &file::File {
        &self.inner
    }

    /// See [`crate::File::read_at`].
    ///
    /// # Errors
    /// The server's status.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize, ClientError> {
        self.runtime.block_on(self.inner.read_at(offset, out))
    }

    /// See [`crate::File::write_at`].
    ///
    /// # Durability
    /// None.
    ///
    /// # Errors
    /// The server's status.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        self.runtime.block_on(self.inner.write_at(offset, data))
    }

    /// See [`crate::File::flush`].
    ///
    /// # Durability
    /// Every write answered before the call.
    ///
    /// # Errors
    /// The server's status.
    pub fn flush(&self) -> Result<(), ClientError> {
        self.runtime.block_on(self.inner.flush())
    }

    /// See [`crate::File::lock`].
    ///
    /// # Errors
    /// The server's status.
    pub fn lock(&self, range: Range<u64>, kind: RangeLock) -> Result<bool, ClientError> {
        self.runtime.block_on(self.inner.lock(range, kind))
    }

    /// See [`crate::File::stat`].
    ///
    /// # Errors
    /// The server's status.
    pub fn stat(&self) -> Result<FileStat, ClientError> {
        self.runtime.block_on(self.inner.stat())
    }

    /// See [`crate::File::query_info`].
    ///
    /// # Errors
    /// The server's status.
    pub fn query_info(&self, class: FileInfoClass, len_max: u32) -> Result<Vec<u8>, ClientError> {
        self.runtime.block_on(self.inner.query_info(class, len_max))
    }

    /// See [`crate::File::set_len`].
    ///
    /// # Errors
    /// The server's status.
    pub fn set_len(&self, len: u64) -> Result<(), ClientError> {
        self.runtime.block_on(self.inner.set_len(len))
    }

    /// Waits until the server breaks the lease; `None` if there is no lease.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn next_break(&mut self) -> Result<Option<LeaseBreak>, ClientError> {
        match self.inner.lease() {
            Some(lease) => self.runtime.block_on(lease.next_break()).map(Some),
            None => Ok(None),
        }
    }

    /// See [`crate::Lease::acknowledge`].
    ///
    /// # Errors
    /// The server's status.
    pub fn acknowledge(&mut self, found: LeaseBreak) -> Result<(), ClientError> {
        match self.inner.lease() {
            Some(lease) => self.runtime.block_on(lease.acknowledge(found)),
            None => Ok(()),
        }
    }

    /// See [`crate::File::close`].
    ///
    /// # Errors
    /// The server's status.
    pub fn close(self) -> Result<(), ClientError> {
        let Self { inner, runtime } = self;
        runtime.block_on(inner.close())
    }
}

/// A session on a share that comes back; see [`crate::FailoverClient`].
#[derive(Clone, Debug)]
pub struct FailoverClient {
    runtime: Arc<Runtime>,
    inner: crate::FailoverClient,
}

impl FailoverClient {
    /// See [`crate::FailoverClient::connect`].
    ///
    /// # Errors
    /// As there, or the host starts no thread.
    pub fn connect(
        url: &SmbUrl,
        options: &ConnectOptions,
        patience: Duration,
    ) -> Result<Self, ClientError> {
        let runtime = runtime().map_err(ConnectionError::from)?;
        let inner = runtime.block_on(crate::FailoverClient::connect(url, options, patience))?;
        Ok(Self { runtime: Arc::new(runtime), inner })
    }

    /// See [`crate::FailoverClient::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(&self, path: &str, options: &OpenOptions) -> Result<FailoverFile, ClientError> {
        let inner = self.runtime.block_on(self.inner.open(path, options))?;
        Ok(FailoverFile { inner, runtime: Arc::clone(&self.runtime) })
    }

    /// See [`crate::FailoverClient::map`].
    ///
    /// # Errors
    /// As there.
    pub fn map(
        &self,
        path: &str,
        options: &OpenOptions,
        range: Range<u64>,
        settings: RegionSettings,
    ) -> Result<Region, ClientError> {
        let control =
            self.runtime.block_on(self.inner.control(path, options, &range, &settings))?;
        let control = Box::new(control.keeping(Arc::clone(&self.runtime)));
        let environment = self.inner.environment();
        Ok(Region::open(control, Ways::of(&settings), settings, environment, range))
    }
}

/// A file that comes back; see [`crate::FailoverFile`]. The file stands before the runtime, which it needs.
#[derive(Debug)]
pub struct FailoverFile {
    inner: failover::FailoverFile,
    runtime: Arc<Runtime>,
}

impl FailoverFile {
    /// See [`crate::FailoverFile::read_at`].
    ///
    /// # Errors
    /// As there.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize, ClientError> {
        self.runtime.block_on(self.inner.read_at(offset, out))
    }

    /// See [`crate::FailoverFile::write_at`].
    ///
    /// # Durability
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        self.runtime.block_on(self.inner.write_at(offset, data))
    }

    /// See [`crate::FailoverFile::set_len`].
    ///
    /// # Errors
    /// As there.
    pub fn set_len(&self, len: u64) -> Result<(), ClientError> {
        self.runtime.block_on(self.inner.set_len(len))
    }

    /// See [`crate::FailoverFile::stat`].
    ///
    /// # Errors
    /// As there.
    pub fn stat(&self) -> Result<FileStat, ClientError> {
        self.runtime.block_on(self.inner.stat())
    }

    /// See [`crate::FailoverFile::sessions_lost`].
    pub fn sessions_lost(&self) -> u64 {
        self.runtime.block_on(self.inner.sessions_lost())
    }

    /// See [`crate::FailoverFile::close`].
    ///
    /// # Errors
    /// As there.
    pub fn close(self) -> Result<(), ClientError> {
        let Self { inner, runtime } = self;
        runtime.block_on(inner.close())
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(1).thread_name("landfast-smb").enable_all().build()
}
