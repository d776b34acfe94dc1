//! A persistent handle, new or wanted back.

use std::time::Instant;

use smb::create::{CreateDisposition, LeaseKey, LeaseState};
use smb::{FileId, Guid, NtStatus};
use tracing::info;

use super::session::{FailoverClient, Pause, Session};
use crate::error::{ClientError, ConnectionError};
use crate::file::{File, Lasting, OpenOptions};
use crate::region::{Getting, Returning, Wanted};

impl FailoverClient {
    // A new handle, at whichever session is the one of now.
    pub(super) async fn open_new(
        &self,
        path: &str,
        options: &OpenOptions,
        create_guid: Guid,
    ) -> Result<(u64, File), ClientError> {
        let key = LeaseKey(self.draw_guid()?.0);
        let mut lasting = Lasting { key: Some(key), ..Lasting::new(create_guid) };
        let deadline = self.deadline();
        let mut session = self.session().await;
        let mut pause = Pause::default();
        loop {
            let options = OpenOptions { lasting: Some(lasting), ..options.clone() };
            match session.client.open(path, &options).await {
                Ok(file) if file.is_persistent() => return Ok((session.number, file)),
                Ok(file) => {
                    file.close().await?;
                    return Err(ClientError::PeerNotPersistent);
                }
                // MS-SMB2 §3.3.5.9.10: with the flag a server that has carried it out answers the copy like the first. Without it
                // the copy is refused, and the handle, of which nobody knows, keeps others out.
                Err(error) if error.is_lost() && self.now() < deadline => {
                    lasting.replays = true;
                    session = self.session_after(session.number, deadline).await?;
                }
                // The server still has the session that is lost.
                Err(error)
                    if lasting.replays
                        && error.status() == Some(NtStatus::FILE_NOT_AVAILABLE)
                        && self.now() < deadline =>
                {
                    pause.wait().await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// What brings a handle back that a control side of a region has.
#[derive(Debug)]
pub(crate) struct ComingBack {
    pub(super) client: FailoverClient,
    pub(super) session: u64,
    pub(super) create_guid: Guid,
}

impl Returning for ComingBack {
    fn deadline(&self) -> Instant {
        self.client.deadline()
    }

    fn is_over(&self, deadline: Instant) -> bool {
        self.client.now() >= deadline
    }

    fn get<'a>(&'a mut self, wanted: Wanted<'a>, deadline: Instant) -> Getting<'a> {
        let Wanted { id, path, options, lease } = wanted;
        let wish = Wish { id, path, options, create_guid: self.create_guid, lease };
        Box::pin(async move {
            let (session, file) = wish.get(&self.client, self.session, deadline).await?;
            self.session = session.number;
            Ok((session.client, file))
        })
    }
}

/// A handle that is wanted back.
pub(super) struct Wish<'a> {
    pub(super) id: FileId,
    pub(super) path: &'a str,
    pub(super) options: &'a OpenOptions,
    pub(super) create_guid: Guid,
    /// The epoch and state of its lease that are known.
    pub(super) lease: Option<(u16, LeaseState)>,
}

impl Wish<'_> {
    /// Gets it by another session than the one of number `lost`.
    pub(super) async fn get(
        &self,
        client: &FailoverClient,
        lost: u64,
        deadline: Instant,
    ) -> Result<(Session, File), ClientError> {
        let (create_guid, lease) = (self.create_guid, self.lease);
        let back = Lasting { back: Some(self.id), lease, ..Lasting::new(create_guid) };
        let options = OpenOptions {
            lasting: Some(back),
            disposition: CreateDisposition::OPEN,
            security: None,
            ..self.options.clone()
        };
        let mut session = client.session_after(lost, deadline).await?;
        let mut pause = Pause::default();
        loop {
            match session.client.open(self.path, &options).await {
                Ok(file) => {
                    info!(path = self.path, session = session.number, "an open file is back");
                    return Ok((session, file));
                }
                Err(error) if error.is_lost() && client.now() < deadline => {
                    session = client.session_after(session.number, deadline).await?;
                }
                // The answer may still come, and give the handle to a session in which nobody has it. The end of the connection
                // makes it one that waits for its client again.
                Err(error @ ClientError::Connection(ConnectionError::PeerLate(_))) => {
                    session.client.tree().connection().give_up();
                    if client.now() >= deadline {
                        return Err(error);
                    }
                    session = client.session_after(session.number, deadline).await?;
                }
                // The server cannot open the file yet, or still has the connection that is lost.
                Err(error)
                    if error.status() == Some(NtStatus::FILE_NOT_AVAILABLE)
                        && client.now() < deadline =>
                {
                    pause.wait().await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
