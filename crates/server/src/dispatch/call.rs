//! One request under way: who asks, on what, and how to answer later.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use smb::push::RecallReason;
use smb::{AsyncId, FileId, Header, HeaderFlags, NtStatus, Route};
use tree::{InlineIo, MayWait, Reach, Share, ShareError};

use super::asker::Asker;
use super::frame::{self, Terms};
use super::persist;
use super::prepared::Prepared;
use crate::connections::kept::releases;
use crate::connections::{Channel, Kept, Link, Pending, Session, async_id_of};
use crate::limits::WAITING_KEPT_MAX;
use crate::push::{self, Push, Region};
use crate::service::Core;
use crate::state::caching::Intent;
use crate::state::changing::Changing;
use crate::state::ends::Over;
use crate::state::holder::BreaksWait;
use crate::state::lease::Owner;
use crate::state::locks::LockTable;
use crate::state::node::Node;
use crate::state::open::UnderWay;
use crate::state::range::LockRange;
use crate::state::{Account, Hold, Open, Resource, Room};
use crate::status::OrStatus as _;

/// How long other clients may let a request wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lasting {
    /// They have a time for what they are asked for, which the server ends.
    Bounded,
    /// As long as they like.
    Unbounded,
}

/// A request with everything it needs to outlive the read loop.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) core: Arc<Core>,
    pub(crate) link: Arc<Link>,
    pub(crate) header: Header,
    pub(crate) channel: Arc<Channel>,
    pub(crate) sealed: bool,
    pub(crate) frame: Arc<Kept>,
    pub(crate) range: Range<usize>,
    /// The file of the compound so far: set by CREATE, used by related requests.
    pub(crate) chain_file: Option<FileId>,
    /// The tree a TREE_CONNECT made.
    pub(crate) chain_tree: Option<u32>,
    pub(crate) pending: Arc<Pending>,
    /// Whether it may go asynchronous: not every request of a compound may.
    pub(crate) may_pend: bool,
    /// Counts the request among those of the open it names.
    pub(crate) under_way: Option<UnderWay>,
    /// What was found out on the spot.
    pub(crate) prepared: Option<Prepared>,
    /// Dropped when the answer is queued.
    pub(crate) breaks_wait: Option<BreaksWait>,
}

impl Call {
    pub(crate) fn asker(&self) -> Asker<'_> {
        Asker {
            core: &self.core,
            link: &self.link,
            header: &self.header,
            channel: &self.channel,
            sealed: self.sealed,
            streams: false,
        }
    }

    /// The whole PDU, from its header on.
    pub(crate) fn pdu(&self) -> &[u8] {
        &self.frame[self.range.clone()]
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.channel.session
    }

    /// The id to look up. MS-SMB2 §3.3.5.2.7.2: a related request is about the file of the one before it,
    /// whichever it names.
    pub(crate) fn resolve(&self, id: FileId) -> Result<FileId, NtStatus> {
        let is_related = self.header.flags.contains(HeaderFlags::RELATED);
        match self.chain_file.filter(|_| is_related || id == FileId::RELATED) {
            Some(file) => Ok(file),
            None if id == FileId::RELATED => Err(NtStatus::FILE_CLOSED),
            None => Ok(id),
        }
    }

    /// The open a request names.
    pub(crate) fn open(&mut self, id: FileId) -> Result<Arc<Open>, NtStatus> {
        let (open, under_way) = self.open_counted(id)?;
        self.under_way = Some(under_way);
        Ok(open)
    }

    /// [`Call::open`] for who counts the request himself: it is under way until the second value is dropped.
    pub(super) fn open_counted(&mut self, id: FileId) -> Result<(Arc<Open>, UnderWay), NtStatus> {
        let id = self.resolve(id)?;
        let found = self.asker().open_counted(id)?;
        self.chain_file = Some(id);
        Ok(found)
    }

    /// Runs work that may wait for a device: at once where nothing ever waits, else on the pool.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        inline: InlineIo,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NtStatus> {
        self.somewhere(inline, move |_| work()).await
    }

    /// Runs work that waits for a disk, wherever the file is.
    pub(crate) async fn waiting<T: Send + 'static>(
        &self,
        work: impl FnOnce(MayWait) -> T + Send + 'static,
    ) -> Result<T, NtStatus> {
        self.on_the_pool(work).await
    }

    /// [`Call::blocking`], for work that has more to do where it may wait.
    pub(crate) async fn somewhere<T: Send + 'static>(
        &self,
        inline: InlineIo,
        work: impl FnOnce(Option<MayWait>) -> T + Send + 'static,
    ) -> Result<T, NtStatus> {
        if inline == InlineIo::Everything {
            return Ok(work(None));
        }
        self.on_the_pool(move |may_wait| work(Some(may_wait))).await
    }

    /// [`Call::somewhere`], for what ends an open: see [`Call::ending_on_a_thread`].
    pub(super) async fn ending<T: Send + 'static>(
        &self,
        over: Over,
        inline: InlineIo,
        work: impl FnOnce(Option<MayWait>) -> T + Send + 'static,
    ) -> Result<T, NtStatus> {
        if inline == InlineIo::Everything {
            return Ok(work(None));
        }
        self.ending_on_a_thread(over, move |may_wait| work(Some(may_wait))).await
    }

    /// [`Call::waiting`], for what ends an open and waits for one file system: where its disk hangs, what ends over another
    /// has other threads.
    pub(super) async fn ending_on_a_thread<T: Send + 'static>(
        &self,
        over: Over,
        work: impl FnOnce(MayWait) -> T + Send + 'static,
    ) -> Result<T, NtStatus> {
        let lanes = (&over.of(&self.link.account), &over.of(&self.session().account));
        let of_lanes = Self::turn_of(lanes, Resource::ReleaseJobs).await;
        self.on_the_pool(move |may_wait| {
            let _of_lanes = of_lanes;
            work(may_wait)
        })
        .await
    }

    async fn on_the_pool<T: Send + 'static>(
        &self,
        work: impl FnOnce(MayWait) -> T + Send + 'static,
    ) -> Result<T, NtStatus> {
        let turn = self.turn().await;
        let task = self.core.runtime.spawn_blocking(move || {
            let _turn = turn;
            work(MayWait::here())
        });
        // The only failure is a panic in `work`, or the runtime going down.
        task.await.map_err(|ended| {
            if ended.is_panic() {
                self.core.note_panic("a request's work on a file");
            }
            NtStatus::UNSUCCESSFUL
        })
    }

    /// The right to look at any number of names, until dropped: to be held before a thread is.
    pub(crate) async fn scan(&self) -> Result<Hold, NtStatus> {
        self.wait(self.session().account.take(Resource::Scans, 1)).await
    }

    /// Looks something up in a share by its name: on the calling thread as far as that goes, else on the pool, and as
    /// a scan where many names have to be compared.
    pub(crate) async fn looking_up<T: Send + 'static>(
        &self,
        share: &Share,
        look: impl Fn(Reach) -> Result<T, ShareError> + Send + Sync + 'static,
    ) -> Result<T, NtStatus> {
        if let Some(reach) = share.reach_on_the_spot() {
            match look(reach) {
                Err(ShareError::WouldBlock) => {}
                found => return found.or_status(),
            }
        }
        let look = Arc::new(look);
        let again = Arc::clone(&look);
        match self.blocking(InlineIo::CachedReads, move || again(Reach::FewNames)).await? {
            Err(ShareError::WouldBlock) => {}
            found => return found.or_status(),
        }
        let _scan = self.scan().await?;
        self.blocking(InlineIo::CachedReads, move || look(Reach::Everywhere)).await?.or_status()
    }

    /// The right to one thread for what may wait, until dropped. Those who have as many as they may wait for one
    /// of their own to end, without a thread. What releases something waits for others of its kind alone.
    pub(crate) async fn turn(&self) -> Room {
        let whose = (&self.link.account, &self.session().account);
        let releases = releases(self.header.command);
        Self::turn_of(whose, if releases { Resource::ReleaseJobs } else { Resource::Jobs }).await
    }

    async fn turn_of(whose: (&Arc<Account>, &Arc<Account>), what: Resource) -> Room {
        match Room::try_take(whose, what, 1) {
            Some(turn) => turn,
            None => Room::take(whose, what, 1).await,
        }
    }

    /// [`Call::blocking`] for what changes the file of an open: it does not happen once the open has
    /// ended or is in other hands. Where it has to wait for another change it does so on a thread.
    pub(crate) async fn changing<T: Send + 'static>(
        &self,
        open: &Arc<Open>,
        inline: InlineIo,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NtStatus> {
        self.changing_somewhere(open, inline, move |_| work()).await
    }

    /// [`Call::changing`], for work that has more to do where it may wait.
    pub(crate) async fn changing_somewhere<T: Send + 'static>(
        &self,
        open: &Arc<Open>,
        inline: InlineIo,
        work: impl FnOnce(Option<MayWait>) -> T + Send + 'static,
    ) -> Result<T, NtStatus> {
        if inline == InlineIo::Everything
            && let Some(begun) = open.try_begin_change()
        {
            let _until_done = begun?;
            return Ok(work(None));
        }
        let open = Arc::clone(open);
        let change = move |may_wait| {
            open.change_blocking(|begun| -> Result<T, NtStatus> {
                begun?;
                Ok(work(Some(may_wait)))
            })
        };
        self.on_the_pool(change).await?
    }

    /// Admits a change of bytes, which byte-range locks keep nobody from, once nobody else caches them.
    pub(crate) async fn begin_change(
        &self,
        open: &Open,
        range: LockRange,
    ) -> Result<Changing, NtStatus> {
        let admitted = self.wait(open.node.begin_change(open.change(range), |_| true)).await?;
        admitted.ok_or(NtStatus::FILE_LOCK_CONFLICT)
    }

    /// [`Call::begin_change`] for what a byte-range lock forbids.
    pub(crate) async fn begin_write(
        &self,
        open: &Open,
        offset: u64,
        length: u64,
    ) -> Result<Changing, NtStatus> {
        let range = LockRange::new(offset, length).ok_or(NtStatus::INVALID_PARAMETER)?;
        let is_free = |locks: &LockTable| locks.allows_write(open.serial, offset, length);
        let admitted = self.wait(open.node.begin_change(open.change(range), is_free)).await?;
        admitted.ok_or(NtStatus::FILE_LOCK_CONFLICT)
    }

    /// [`Call::changing`] for what changes the bytes of a file or how many they are: through an open that
    /// writes through it is durable when this returns, also what was done of work that failed.
    pub(crate) async fn changing_bytes<T: Send + 'static>(
        &self,
        open: &Arc<Open>,
        admitted: Changing,
        inline: InlineIo,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NtStatus> {
        let work = move || {
            let _until_done = admitted;
            work()
        };
        if !open.is_write_through() {
            return self.changing(open, inline, work).await;
        }
        let changed = Arc::clone(open);
        let work = move || (work(), persist::persist(&changed));
        let (outcome, persisted) = self.changing(open, InlineIo::CachedReads, work).await?;
        persisted.map(|()| outcome)
    }

    /// Waits for work of this server that ends by itself, unless the session ends first: then nobody needs what comes after.
    pub(crate) async fn wait_for_work<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, NtStatus> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.session().ended() => Err(NtStatus::USER_SESSION_DELETED),
        }
    }

    /// Waits for other clients, who have a time for it, unless the session ends.
    pub(crate) async fn wait<T>(&self, event: impl Future<Output = T>) -> Result<T, NtStatus> {
        tokio::pin!(event);
        // Most often nobody is in the way.
        if let Poll::Ready(happened) = poll_once(event.as_mut()).await {
            return Ok(happened);
        }
        self.begin_wait(Lasting::Bounded)?;
        self.wait_for_work(event).await
    }

    /// [`Call::wait_pending`], unless the event has happened already.
    pub(crate) async fn wait_unless_ready<T>(
        &self,
        lasting: Lasting,
        event: impl Future<Output = T>,
    ) -> Result<T, NtStatus> {
        tokio::pin!(event);
        match poll_once(event.as_mut()).await {
            Poll::Ready(happened) => Ok(happened),
            Poll::Pending => self.wait_pending(lasting, event).await,
        }
    }

    /// [`Call::wait`] for what may last longer than a client is used to: it is told, and may give up.
    pub(crate) async fn wait_pending<T>(
        &self,
        lasting: Lasting,
        event: impl Future<Output = T>,
    ) -> Result<T, NtStatus> {
        self.begin_wait(lasting)?;
        self.go_pending();
        tokio::select! {
            biased;
            happened = event => Ok(happened),
            () = self.pending.cancelled() => Err(NtStatus::CANCELLED),
            () = self.session().ended() => Err(NtStatus::USER_SESSION_DELETED),
        }
    }

    // What the request holds of the room that others wait for it gives back, and is counted among those that wait.
    fn begin_wait(&self, lasting: Lasting) -> Result<(), NtStatus> {
        if lasting == Lasting::Unbounded {
            // MS-SMB2 §3.3.5.2.7, note on Windows: of a compound only the last request may wait like this.
            if !self.may_pend {
                return Err(NtStatus::INTERNAL_ERROR);
            }
            if self.frame.len_kept() > WAITING_KEPT_MAX {
                return Err(NtStatus::INSUFFICIENT_RESOURCES);
            }
        }
        let whose = (&self.link.account, &self.session().account);
        if self.frame.begin_wait(whose) {
            return Ok(());
        }
        // Writes of a client's cache that wait for a break must not fail for being many: those of a user keep the room of
        // requests, and nothing more is read before the break is over.
        match lasting {
            Lasting::Bounded if !self.session().identity.is_guest() => Ok(()),
            Lasting::Bounded | Lasting::Unbounded => Err(NtStatus::INSUFFICIENT_RESOURCES),
        }
    }

    /// Breaks what others cache of a file and `intent` does not agree with, and waits until it is
    /// given back or taken.
    pub(crate) async fn yield_caching(
        &self,
        node: &Arc<Node>,
        owner: Owner,
        intent: Intent,
    ) -> Result<(), NtStatus> {
        self.wait(node.yield_caching(owner, intent)).await
    }

    /// Push mode.
    pub(crate) fn push(&self) -> &Arc<Push> {
        &self.core.push
    }

    /// Takes back the regions of a file that `wanted` picks; see [`push::recall`].
    pub(crate) async fn recall(
        &self,
        node: &Arc<Node>,
        reason: RecallReason,
        wanted: impl Fn(&Region) -> bool,
    ) -> Result<(), NtStatus> {
        self.wait(push::recall(&self.core.push, node, reason, wanted)).await
    }

    // Tells the client that the answer will take its time. MS-SMB2 §3.3.4.2.
    fn go_pending(&self) {
        if !self.may_pend || self.pending.async_id.load(Ordering::Acquire) != 0 {
            return;
        }
        let id = async_id_of(self.header.message_id.0);
        self.pending.async_id.store(id, Ordering::Release);
        let mut out = Vec::new();
        let start = frame::begin(&mut out, self.sealed);
        let at = frame::begin_pdu(&mut out, &self.header);
        let credits = self.link.window().grant(self.header.credits);
        let session_id = self.header.session_id;
        let route = Some(Route::Async(AsyncId(id)));
        let terms = Terms { credits, session_id, route };
        frame::end_pdu(&mut out, at, &self.header, Err(NtStatus::PENDING), terms);
        let seal = self.sealed.then_some(&*self.channel);
        match frame::end(&mut out, start, seal) {
            Ok(()) => self.link.deliver(out),
            Err(_) => self.link.close(),
        }
    }
}

// Whether an event has happened already.
async fn poll_once<T>(mut event: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    poll_fn(|context| Poll::Ready(event.as_mut().poll(context))).await
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};
    use std::thread;
    use std::time::Duration;

    use smb::info::FileInfoClass;
    use smb::{Channel as Memory, Command, LockElement, LockFlags, LockRequest};
    use smb::{WriteFlags, WriteRequest};

    use crate::limits::RELEASE_JOBS_MAX;
    use crate::push::tests::rig::Rig;
    use crate::state::ends::Over;

    #[tokio::test]
    async fn a_close_that_hangs_over_one_disk_holds_up_none_over_another() {
        let rig = Rig::new();
        let (release, hung) = channel::<()>();
        let hung = Arc::new(Mutex::new(hung));
        let hang = |_| {
            let (call, hung) = (rig.call(Command::CLOSE, |_| ()), Arc::clone(&hung));
            tokio::spawn(async move {
                let hangs = move |_| drop(hung.lock().map(|hung| hung.recv()));
                call.ending_on_a_thread(Over::file_system(1), hangs).await
            })
        };
        let hanging: Vec<_> = (0..RELEASE_JOBS_MAX).map(hang).collect();
        // Each of them has asked for its thread.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let other = rig.call(Command::CLOSE, |_| ());
        assert_eq!(other.ending_on_a_thread(Over::file_system(2), |_| ()).await, Ok(()));
        drop(release);
        for one in hanging {
            assert_eq!(one.await.unwrap(), Ok(()));
        }
    }

    /// A stream that becomes its file's content is copied all the while.
    #[tokio::test]
    async fn what_waits_for_a_change_of_the_same_open_leaves_the_reactor_to_others() {
        let rig = Rig::on("/dev/shm", Duration::from_secs(10));
        let file = rig.open("f", 1).await;
        let open = rig.session().open(file.id.persistent, file.id.volatile).unwrap();
        let write = WriteRequest {
            offset: 0,
            file_id: file.id,
            channel: Memory::NONE,
            remaining_bytes: 0,
            flags: WriteFlags::empty(),
            data: b"late",
            channel_info: &[],
        };
        let lock = LockRequest {
            lock_sequence: 0,
            file_id: file.id,
            locks: vec![LockElement { offset: 0, length: 1, flags: LockFlags::EXCLUSIVE }],
        };
        let (begun, has_begun) = channel();
        let (ends, ended) = channel::<()>();
        let superseding = thread::spawn(move || {
            open.supersede(|| {
                begun.send(()).unwrap();
                ended.recv().unwrap();
            })
        });
        has_begun.recv().unwrap();
        let others = async {
            // Each of them is polled first, and would wait here for good.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            ends.send(()).unwrap();
        };
        let end = 100_u64.to_le_bytes();
        let (written, set, locked, ()) = tokio::join!(
            rig.ask(Command::WRITE, |out| write.emit(out)),
            rig.set_info(file, FileInfoClass::END_OF_FILE, &end),
            rig.ask(Command::LOCK, |out| lock.emit(out)),
            others,
        );
        superseding.join().unwrap().unwrap();
        assert_eq!(
            (written.is_ok(), set, locked.is_ok()),
            (true, Ok(()), true),
            "they are done behind it"
        );
    }
}
