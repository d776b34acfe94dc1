//! The control side of a region, over an open file of this client.
//!
//! ```text
//!   owner (block_on)                      watcher (a task on the runtime)
//!   ----------------                      -------------------------------
//!   invite, map  --- registration --->    lease.next_break()  | WAIT_REGION_RECALL
//!                                            |
//!   Recall::ask  <---------------------------'
//!   last commit, unmap, settle --------->  waits half the grace for it, then unmaps itself
//!                                         acknowledges the lease break
//! ```
//!
//! While nothing is mapped a break is acknowledged at once, so that no other client waits. Between
//! unmap and settle the owner writes again what a lost connection left unconfirmed, and the break
//! waits as long as for a mapping.
//!
//! A control side that comes back ([`FileControl::coming_back`]) gets its persistent handle back after its session is
//! lost, at whichever server serves the share then. The registration has ended with the connection; the lease is held on,
//! unless a break took some of it meanwhile.
//!
//! A token opens one push connection. The first token comes with the open itself; for another the
//! file is opened once more under the same lease key, which breaks no lease of this client (MS-SMB2
//! §3.3.5.9.8), and the new open carries the registrations.

use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use remote::{Control, Invitation, Mapping, Messages, Promise, Recall};
use smb::create::{CreateDisposition, LeaseState};
use smb::push::{
    Capabilities, MapRequest, MapResponse, PushAccept, PushConnectionId, PushGrant, Rights,
    WriteUnderLease,
};
use smb::{ControlCode, FileId, NtStatus};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::watch;

use super::answers::{class_of, granted, malformed, mapping_of, promised, takes};
use super::listeners::{self, Listeners};
use super::smb2::{FallbackReason, Smb2};
use super::watcher::{Shared, Standing, Watcher, owners_part};
use crate::client::Client;
use crate::error::{ClientError, ConnectionError};
use crate::file::{File, Known, Lease, OpenOptions};

/// A file whose region is mapped.
#[derive(Debug)]
pub(crate) struct FileControl {
    runtime: Handle,
    client: Client,
    path: String,
    options: OpenOptions,
    range: Range<u64>,
    /// The open for reads and writes.
    file: Arc<File>,
    /// The grant of the latest open, until its token is used.
    grant: Option<Result<PushGrant, FallbackReason>>,
    /// What is known of the lease.
    known: Option<Known>,
    /// What the latest open that told it says of commits.
    promise: Option<Promise>,
    grace: Duration,
    /// The epoch of the lease, complete, at the latest mapping.
    mapped_at: Option<u16>,
    shared: Arc<Shared>,
    back: Option<Box<dyn Returning>>,
    /// Watchers end when this is dropped.
    alive: watch::Sender<()>,
    /// The runtime of a caller that has no other: the last field, so that it outlives everything above.
    _kept: Option<Arc<Runtime>>,
}

/// What gets a handle back by another session: the module `failover`, which stands above this one.
pub(crate) trait Returning: fmt::Debug + Send {
    /// When a call that begins now gives up.
    fn deadline(&self) -> Instant;

    /// Whether a call has to give up.
    fn is_over(&self, deadline: Instant) -> bool;

    /// Gets the handle by another session than the one that is lost.
    fn get<'a>(&'a mut self, wanted: Wanted<'a>, deadline: Instant) -> Getting<'a>;
}

/// A handle on its way back.
pub(crate) type Getting<'a> =
    Pin<Box<dyn Future<Output = Result<(Client, File), ClientError>> + Send + 'a>>;

/// The handle that is wanted back.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// It, at the session that is lost.
    pub(crate) id: FileId,
    /// Of its file.
    pub(crate) path: &'a str,
    /// Those of its open.
    pub(crate) options: &'a OpenOptions,
    /// The epoch and state of its lease that are known.
    pub(crate) lease: Option<(u16, LeaseState)>,
}

impl FileControl {
    /// Takes over an open file. `options` are those of its open, push and lease included.
    pub(crate) fn new(
        runtime: Handle,
        client: Client,
        path: &str,
        options: &OpenOptions,
        mut file: File,
        range: Range<u64>,
    ) -> Self {
        let lease = file.take_lease();
        let known = lease.as_ref().map(Lease::known);
        let options = OpenOptions { lease_key: lease.as_ref().map(Lease::key), ..options.clone() };
        let (grant, promise) = (Some(granted(&file)), promised(&file));
        let file = Arc::new(file);
        let shared = Shared {
            mapper: Mutex::new(Arc::clone(&file)),
            standing: watch::Sender::new(Standing::Unmapped),
            outlives: AtomicBool::new(false),
            lease: tokio::sync::Mutex::new(lease),
        };
        let control = Self {
            runtime,
            client,
            path: path.to_owned(),
            options,
            range,
            file,
            grant,
            known,
            promise,
            grace: Duration::ZERO,
            mapped_at: None,
            shared: Arc::new(shared),
            back: None,
            alive: watch::Sender::new(()),
            _kept: None,
        };
        control.listen(Duration::ZERO);
        control
    }

    /// Comes back after its session is lost.
    pub(crate) fn coming_back(mut self, back: Box<dyn Returning>) -> Self {
        self.shared.outlives.store(true, Ordering::Relaxed);
        self.back = Some(back);
        self
    }

    /// Makes a call, and makes it again by another session where the present one is lost.
    fn lasting<T>(
        &mut self,
        mut call: impl FnMut(&mut Self) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let deadline = self.back.as_ref().map(|back| back.deadline());
        loop {
            let error = match call(self) {
                Err(error) if error.is_lost() => error,
                done => return done,
            };
            let Some((deadline, back)) = deadline.zip(self.back.as_mut()) else {
                return Err(error);
            };
            if back.is_over(deadline) {
                return Err(error);
            }
            self.come_back(deadline)?;
        }
    }

    /// Gets the handle back by another session. The registration is gone; the lease is held on if it is still whole.
    fn come_back(&mut self, deadline: Instant) -> Result<(), ClientError> {
        let Self { back: Some(back), runtime, shared, file, path, options, known, .. } = self
        else {
            return Err(ConnectionError::Closed.into());
        };
        // The server of the lost session, if it lives, must not take its end for the end of the handle.
        file.leave();
        let found = runtime.block_on(async {
            // The watchers of the lost session end with it.
            let mut lease = shared.lease.lock().await;
            let before = known.as_ref().map(Known::now);
            let wanted = Wanted { id: file.id(), path, options, lease: before };
            let (client, mut file) = back.get(wanted, deadline).await?;
            *lease = file.take_lease();
            *known = lease.as_ref().map(Lease::known);
            Ok::<_, ClientError>((client, file))
        });
        let (client, file) = found?;
        self.grant = Some(granted(&file));
        // A server that gives a handle back may say nothing of push mode: the share is the same, and so is its file.
        self.promise = promised(&file).or(self.promise);
        self.client = client;
        self.file = Arc::new(file);
        *self.shared.mapper() = Arc::clone(&self.file);
        self.shared.standing.send_if_modified(|standing| {
            let was_mapped = standing.is_mapped();
            if was_mapped {
                *standing = Standing::Settling;
            }
            was_mapped
        });
        self.listen(owners_part(self.grace));
        Ok(())
    }

    // Answers breaks while nothing is mapped.
    fn listen(&self, patience: Duration) {
        let shared = Arc::clone(&self.shared);
        self.while_alive(async move {
            if let Some(lease) = shared.lease.lock().await.as_mut() {
                shared.acknowledge_while_unmapped(lease, patience).await;
            }
        });
    }

    /// Keeps the runtime alive as long as the region.
    pub(crate) fn keeping(mut self, runtime: Arc<Runtime>) -> Self {
        self._kept = Some(runtime);
        self
    }

    /// Opens the file once more under the same lease, for a new token. The file must exist: if it
    /// was renamed, neither a new file nor an emptied one may take its place. The server checks
    /// that it is the same file, because the lease key is bound to it (MS-SMB2 §3.3.5.9.8).
    fn open_again(&mut self) -> Result<PushGrant, FallbackReason> {
        let options = OpenOptions { disposition: CreateDisposition::OPEN, ..self.options.clone() };
        let opened = self.runtime.block_on(self.client.open(&self.path, &options));
        let file = opened.map_err(|error| Smb2::reason(&error))?;
        self.promise = promised(&file).or(self.promise);
        // The lease is as wide again as a region needs it, and what it is then is what has to come back.
        if let Some((known, (epoch, state))) = self.known.as_ref().zip(file.joined()) {
            known.hear(epoch, state);
        }
        let grant = granted(&file)?;
        *self.shared.mapper() = Arc::new(file);
        Ok(grant)
    }

    fn watch(&self, recall: &Arc<Recall>, mapped: Standing) {
        let watcher = Watcher {
            shared: Arc::clone(&self.shared),
            recall: Arc::clone(recall),
            mapped,
            grace: self.grace,
        };
        self.while_alive(watcher.run());
    }

    fn while_alive(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut alive = self.alive.subscribe();
        self.runtime.spawn(async move {
            tokio::select! {
                () = task => {}
                _ = alive.changed() => {}
            }
        });
    }
}

impl Control<Smb2> for FileControl {
    fn invite(&mut self) -> Result<Invitation, FallbackReason> {
        let grant = match self.grant.take() {
            Some(grant) => grant?,
            None => self.open_again()?,
        };
        let class = class_of(grant.durability).ok_or(FallbackReason::PeerIncapable)?;
        let is_emulated = grant.capabilities.contains(Capabilities::EMULATED_PERSISTENCE);
        self.grace = Duration::from_millis(u64::from(grant.recall_grace_ms));
        let listeners = self.runtime.block_on(listeners::of(self.client.tree(), &grant))?;
        let Listeners { network: listeners, same_host } = listeners;
        Ok(Invitation { listeners, same_host, class, is_emulated })
    }

    fn promise(&self) -> Option<Promise> {
        self.promise
    }

    fn takes(&self, promise: Promise) -> bool {
        takes(self.options.push, promise)
    }

    fn connection(&self, reply: &[u8]) -> Option<u64> {
        let accept = PushAccept::parse(reply).ok()?;
        (accept.status == NtStatus::SUCCESS).then_some(accept.push_connection_id.0)
    }

    fn map(&mut self, connection: u64, recall: &Arc<Recall>) -> Result<Mapping, ClientError> {
        let request = MapRequest {
            rights: self.options.push.map_or(Rights::empty(), |push| push.rights),
            push_connection_id: PushConnectionId(connection),
            file_offset: self.range.start,
            length: self.range.end - self.range.start,
        };
        let mut input = Vec::new();
        request.emit(&mut input);
        let mapper = Arc::clone(&self.shared.mapper());
        // Before the server looks at the lease: what changes it later is counted.
        self.mapped_at = self.known.as_ref().and_then(|known| whole_since(known.now()));
        let code = ControlCode::MAP_REMOTE_REGION;
        let output = self.runtime.block_on(mapper.ioctl(code, &input, MAP_OUTPUT_MAX))?;
        let mapped = MapResponse::parse(&output).map_err(malformed)?;
        let standing = Standing::Mapped(mapped.registration, mapped.generation);
        self.shared.standing.send_replace(standing);
        self.watch(recall, standing);
        Ok(mapping_of(&mapped))
    }

    fn unmap(&mut self) -> Result<(), ClientError> {
        // Another session has nothing to unmap: the registration ended with the connection.
        self.lasting(|it| it.runtime.block_on(it.shared.unmap(Standing::Settling)))
    }

    fn may_replay(&mut self) -> bool {
        self.mapped_at.is_some()
    }

    fn write_again(&mut self, file_offset: u64, bytes: &[u8]) -> Result<bool, ClientError> {
        let Some(epoch) = self.mapped_at else { return Ok(false) };
        let max = self.client.tree().request_max().min(WRITE_AGAIN_MAX);
        let room = usize::try_from(max).expect("a u32 fits") - WriteUnderLease::OVERHEAD;
        let mut offset = file_offset;
        // One after the other: where the lease is gone nothing more is sent.
        for data in bytes.chunks(room) {
            let mut input = Vec::with_capacity(WriteUnderLease::OVERHEAD + data.len());
            WriteUnderLease { file_offset: offset, epoch, data }.emit(&mut input);
            let code = ControlCode::WRITE_UNDER_LEASE;
            let written = self.lasting(|it| it.runtime.block_on(it.file.ioctl(code, &input, 0)));
            match written {
                Ok(_) => offset += u64::try_from(data.len()).expect("usize has at most 64 bits"),
                Err(error) if error.status().is_some_and(is_lease_gone) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn settle(&mut self) {
        self.shared.standing.send_if_modified(|standing| {
            let is_settling = *standing == Standing::Settling;
            if is_settling {
                *standing = Standing::Unmapped;
            }
            is_settling
        });
    }

    fn read(&mut self, file_offset: u64, out: &mut [u8]) -> Result<(), ClientError> {
        let taken =
            self.lasting(|it| it.runtime.block_on(it.file.read_at(file_offset, &mut *out)))?;
        // Another client truncated the file: bytes beyond its end read as zero in a mapping too.
        out[taken..].fill(0);
        Ok(())
    }

    fn write(&mut self, file_offset: u64, bytes: &[u8]) -> Result<(), ClientError> {
        self.lasting(|it| it.runtime.block_on(it.file.write_at(file_offset, bytes)))
    }

    // Not made again by another session: what was placed through this one is not at the next server.
    fn commit(&mut self, range: Range<u64>) -> Result<(), ClientError> {
        match self.runtime.block_on(self.shared.commit(range)) {
            // The server has ended the registration. The bytes that were placed are in the file.
            Err(error) if error.status().is_some_and(is_no_registration) => {
                self.runtime.block_on(self.file.flush())
            }
            other => other,
        }
    }

    // By another session too: a handle that comes back is persistent, and every write by it was durable when it was answered.
    fn flush(&mut self) -> Result<(), ClientError> {
        self.lasting(|it| it.runtime.block_on(it.file.flush()))
    }

    fn close(&mut self) -> Result<(), ClientError> {
        // A task of a runtime may not block, and must not panic for it in a drop: the file is closed soon.
        if Handle::try_current().is_ok() {
            return Ok(());
        }
        let closed = self.lasting(|it| {
            it.alive.send_replace(());
            let mapper = Arc::clone(&it.shared.mapper());
            // It has the registration, and the lease as the other open does.
            let mapped = it.runtime.block_on(mapper.close_once());
            let held = it.runtime.block_on(it.file.close_once());
            mapped.and(held)
        });
        match closed {
            // Opens that do not outlive their session ended with it, and one that does by the CLOSE whose answer was lost.
            Err(error) if error.is_lost() && self.back.is_none() => Ok(()),
            Err(error) if error.status() == Some(NtStatus::OBJECT_NAME_NOT_FOUND) => Ok(()),
            other => other,
        }
    }
}

impl Drop for FileControl {
    /// At once, and not when the last task that watches the file has noticed: it is asked for before anything that the
    /// owner asks for next.
    fn drop(&mut self) {
        self.shared.mapper().close_soon();
        self.file.close_soon();
    }
}

/// The epoch of a lease that is complete.
fn whole_since((epoch, state): (u16, LeaseState)) -> Option<u16> {
    let complete = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
    (state == complete).then_some(epoch)
}

/// Whether the server does not write bytes again: the lease is not as it was, or an older server cannot know.
fn is_lease_gone(status: NtStatus) -> bool {
    [NtStatus::INVALID_OPLOCK_PROTOCOL, NtStatus::INVALID_DEVICE_REQUEST].contains(&status)
}

fn is_no_registration(status: NtStatus) -> bool {
    // Not NOT_SUPPORTED: that refuses the commit itself, of a file in memory, and a flush of it would succeed.
    [NtStatus::NOT_FOUND, NtStatus::FILE_CLOSED].contains(&status)
}

// Room for the fixed part and the greatest number of descriptors.
const MAP_OUTPUT_MAX: u32 = 64 + 256 * 16;
// Bytes of one request that writes again; a store of eight bytes is always one.
const WRITE_AGAIN_MAX: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_again_under_a_complete_lease_alone() {
        let all = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
        assert_eq!(whole_since((3, all)), Some(3));
        for less in [LeaseState::empty(), LeaseState::READ | LeaseState::HANDLE] {
            assert_eq!(whole_since((3, less)), None, "{less:?}");
        }
    }
}
