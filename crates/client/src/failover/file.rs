//! An open file that comes back with its session.
//!
//! It comes back by a task of its own: whoever has made the call may stop waiting for it at any time, and the answer that gives
//! the handle back must find somebody who keeps it. A CREATE whose caller is gone is followed by a CLOSE.

use std::sync::Arc;
use std::time::Instant;

use smb::{Guid, NtStatus};
use tokio::sync::Mutex;

use super::coming_back::Wish;
use super::session::FailoverClient;
use crate::error::{ClientError, ConnectionError};
use crate::file::{File, FileStat, OpenOptions};

/// A persistent open. Calls wait while it is away, up to the patience of its client. Any of them may be dropped.
///
/// Changes are durable when they return: a persistent open writes through.
#[derive(Debug)]
pub struct FailoverFile {
    client: FailoverClient,
    path: String,
    options: OpenOptions,
    create_guid: Guid,
    held: Arc<Mutex<Held>>,
}

/// The open of one session.
#[derive(Clone, Debug)]
struct Held {
    session: u64,
    file: Arc<File>,
}

impl FailoverClient {
    /// Opens a file by a persistent handle. A lease or push mode among `options` is not asked for: a region has them
    /// ([`FailoverClient::map`]).
    ///
    /// # Errors
    /// The server's status; [`ClientError::PeerNotPersistent`] where the share keeps no log of persistent opens.
    pub async fn open(
        &self,
        path: &str,
        options: &OpenOptions,
    ) -> Result<FailoverFile, ClientError> {
        let create_guid = self.draw_guid()?;
        let options = OpenOptions { lease: None, push: None, ..options.clone() };
        let (session, file) = self.open_new(path, &options, create_guid).await?;
        let held = Arc::new(Mutex::new(Held { session, file: Arc::new(file) }));
        let (client, path) = (self.clone(), path.to_owned());
        Ok(FailoverFile { client, path, options, create_guid, held })
    }
}

impl FailoverFile {
    /// See [`File::read_at`].
    ///
    /// # Errors
    /// The server's status; the file did not come back in time.
    pub async fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize, ClientError> {
        let deadline = self.client.deadline();
        loop {
            let held = self.held().await;
            match held.file.read_at(offset, out).await {
                Err(error) => self.come_back(&held, error, deadline).await?,
                done => return done,
            }
        }
    }

    /// Writes all of `data` at `offset`.
    ///
    /// # Durability
    /// After `Ok` the bytes survive the server, its machine, and its replacement by another one of the URL, where the share is
    /// on a disk or on persistent memory. Of a share in memory they survive the server's process alone.
    ///
    /// # Errors
    /// The server's status; the file did not come back in time. Any part may have been written.
    pub async fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        let deadline = self.client.deadline();
        loop {
            let held = self.held().await;
            match held.file.write_through_at(offset, data).await {
                Err(error) => self.come_back(&held, error, deadline).await?,
                done => return done,
            }
        }
    }

    /// See [`File::flush`]; every write was durable when it returned.
    ///
    /// # Errors
    /// The server's status; the file did not come back in time.
    pub async fn flush(&self) -> Result<(), ClientError> {
        let deadline = self.client.deadline();
        loop {
            let held = self.held().await;
            match held.file.flush().await {
                Err(error) => self.come_back(&held, error, deadline).await?,
                done => return done,
            }
        }
    }

    /// See [`File::set_len`].
    ///
    /// # Errors
    /// The server's status; the file did not come back in time.
    pub async fn set_len(&self, len: u64) -> Result<(), ClientError> {
        let deadline = self.client.deadline();
        loop {
            let held = self.held().await;
            match held.file.set_len(len).await {
                Err(error) => self.come_back(&held, error, deadline).await?,
                done => return done,
            }
        }
    }

    /// See [`File::stat`].
    ///
    /// # Errors
    /// The server's status; the file did not come back in time.
    pub async fn stat(&self) -> Result<FileStat, ClientError> {
        let deadline = self.client.deadline();
        loop {
            let held = self.held().await;
            match held.file.stat().await {
                Err(error) => self.come_back(&held, error, deadline).await?,
                done => return done,
            }
        }
    }

    /// Closes the file, after it has come back if its session is lost: a handle that nobody closes keeps others from
    /// the file until its time is over.
    ///
    /// # Errors
    /// The server's status; the file did not come back in time.
    pub async fn close(self) -> Result<(), ClientError> {
        let deadline = self.client.deadline();
        loop {
            let held = self.held().await;
            let Err(error) = held.file.close_once().await else { return Ok(()) };
            match self.come_back(&held, error, deadline).await {
                // The CLOSE whose answer was lost has done it.
                Err(error) if error.status() == Some(NtStatus::OBJECT_NAME_NOT_FOUND) => {
                    return Ok(());
                }
                other => other?,
            }
        }
    }

    /// How many sessions the file has had before the present one.
    pub async fn sessions_lost(&self) -> u64 {
        self.held.lock().await.session
    }

    async fn held(&self) -> Held {
        self.held.lock().await.clone()
    }

    // After the error of a call: gets the handle back, or reports the error. Of several callers one does it.
    async fn come_back(
        &self,
        failed: &Held,
        error: ClientError,
        deadline: Instant,
    ) -> Result<(), ClientError> {
        if !error.is_lost() || self.client.now() >= deadline {
            return Err(error);
        }
        let mut held = Arc::clone(&self.held).lock_owned().await;
        if held.session != failed.session {
            return Ok(());
        }
        // The server of the lost session, if it lives, must not take its end for the end of the handle.
        held.file.leave();
        let (client, create_guid) = (self.client.clone(), self.create_guid);
        let (path, options) = (self.path.clone(), self.options.clone());
        // It has the lock: there is one such task, and the calls behind this one wait for it.
        let coming_back = tokio::spawn(async move {
            let (id, lost) = (held.file.id(), held.session);
            let wish = Wish { id, path: &path, options: &options, create_guid, lease: None };
            let (session, file) = wish.get(&client, lost, deadline).await?;
            *held = Held { session: session.number, file: Arc::new(file) };
            Ok::<_, ClientError>(())
        });
        // It ends otherwise with its runtime alone.
        coming_back.await.unwrap_or_else(|_| Err(ConnectionError::Closed.into()))
    }
}
