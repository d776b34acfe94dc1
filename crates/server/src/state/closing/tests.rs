//! What the log of opens keeps of opens that end, when the machine loses its power at that moment.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use smb::create::{CreateDisposition, CreateRequestContext, CreateResponse, DurableRequestV2};
use smb::info::{FileInfoClass, Rename, RenameFlags};
use smb::push::PushConnectionId;
use smb::{FileId, Guid, Name, NtStatus};
use tempfile::TempDir;
use tree::MayWait;
use tree::journal::{Journal, replay};

use super::*;
use crate::push::tests::rig::{Opened, Rig};

fn persistent() -> CreateRequestContext<'static> {
    let (timeout_ms, create_guid) = (0, Guid([9; 16]));
    CreateRequestContext::DurableV2(DurableRequestV2 { timeout_ms, persistent: true, create_guid })
}

struct Noted {
    rig: Rig,
    log: PathBuf,
    _dir: TempDir,
}

impl Noted {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("opens");
        Self { rig: Rig::with_log(&log), log, _dir: dir }
    }

    /// A persistent open, by its client and in the server.
    async fn open(&self) -> (Opened, Arc<Open>) {
        let opened = self.rig.open_with("f", 1, persistent()).await.unwrap();
        let FileId { persistent, volatile } = opened.id;
        let open = self.rig.session().open(persistent, volatile).unwrap();
        assert!(open.is_persistent());
        assert_eq!(self.left(), [persistent]);
        (opened, open)
    }

    /// Persistent opens of one file under one lease.
    async fn open_many(&self, count: u8) -> Vec<Opened> {
        let mut opened = Vec::new();
        for number in 1..=count {
            let kept = DurableRequestV2 {
                timeout_ms: 0,
                persistent: true,
                create_guid: Guid([number; 16]),
            };
            let (how, context) =
                (CreateDisposition::OPEN_IF, CreateRequestContext::DurableV2(kept));
            let pdu = self.rig.create("f", 1, how, context).await.unwrap();
            let id = CreateResponse::parse(&pdu).unwrap().file_id;
            opened.push(Opened { id, connection: PushConnectionId(0) });
        }
        assert_eq!(self.left().len(), usize::from(count));
        opened
    }

    /// How often the log has waited for the disk.
    fn syncs(&self) -> u64 {
        self.share().journal(MayWait::here()).unwrap().syncs()
    }

    fn share(&self) -> Arc<Share> {
        Arc::clone(&self.rig.core.files.shares()[0])
    }

    /// The opens that would come back, had the machine lost what nobody had asked to be durable.
    fn left(&self) -> Vec<u64> {
        left_of(&self.log, self.share().journal(MayWait::here()).unwrap())
    }
}

fn left_of(log: &Path, journal: &Journal) -> Vec<u64> {
    let bytes = std::fs::read(log).unwrap();
    let durable = &bytes[..usize::try_from(journal.durable_len()).unwrap()];
    replay(&durable[MAGIC..]).into_keys().collect()
}

#[tokio::test]
async fn an_open_whose_time_was_over_does_not_come_back_whatever_the_machine_lost() {
    let mut noted = Noted::new();
    let (opened, _) = noted.open().await;
    noted.rig.reconnect();
    assert_eq!(noted.left(), [opened.id.persistent]);
    let files = Arc::clone(&noted.rig.core.files);
    let (due, _) = files.orphans.take_due(files.now() + Duration::from_secs(3600));
    assert_eq!(due.len(), 1);
    close_all(&files, due, MayWait::here());
    assert!(noted.left().is_empty());
}

#[tokio::test]
async fn an_open_that_others_end_does_not_come_back_whatever_the_machine_lost() {
    let noted = Noted::new();
    let (_, open) = noted.open().await;
    open.close(&noted.rig.core.files, MayWait::here()).unwrap();
    assert!(noted.left().is_empty());
}

#[tokio::test]
async fn an_open_that_its_client_closes_waits_for_no_disk() {
    let noted = Noted::new();
    let (opened, _) = noted.open().await;
    let durable = noted.share().journal(MayWait::here()).unwrap().durable_len();
    noted.rig.close(opened.id).await;
    assert_eq!(noted.share().journal(MayWait::here()).unwrap().durable_len(), durable);
    let written = std::fs::read(&noted.log).unwrap();
    assert!(replay(&written[MAGIC..]).is_empty());
}

#[tokio::test]
async fn an_open_that_cannot_be_restored_is_lost_whatever_the_machine_lost() {
    let before = Noted::new();
    let (opened, _) = before.open().await;
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("opens");
    std::fs::copy(&before.log, &log).unwrap();
    // Its file is not in the share of this server.
    let after = Noted { rig: Rig::with_log(&log), log, _dir: dir };
    assert_eq!(after.left(), [opened.id.persistent]);
    after.rig.core.restorer(MayWait::here()).restore(&after.share());
    assert!(after.left().is_empty());
}

#[tokio::test]
async fn a_rename_syncs_the_log_once_however_many_have_the_file_open() {
    let noted = Noted::new();
    let opened = noted.open_many(20).await;
    let mut to = Vec::new();
    Rename { flags: RenameFlags::empty(), name: Name::new("g").unwrap() }.emit(&mut to);
    let before = noted.syncs();
    noted.rig.set_info(opened[0], FileInfoClass::RENAME, &to).await.unwrap();
    assert_eq!(noted.syncs(), before + 1);
    let written = std::fs::read(&noted.log).unwrap();
    assert!(replay(&written[MAGIC..]).values().all(|note| note.path == "g"));
}

#[tokio::test]
async fn a_wish_to_delete_syncs_the_log_once_however_many_have_the_file_open() {
    let noted = Noted::new();
    let opened = noted.open_many(20).await;
    let before = noted.syncs();
    noted.rig.set_info(opened[0], FileInfoClass::DISPOSITION, &[1]).await.unwrap();
    assert_eq!(noted.syncs(), before + 1);
    let written = std::fs::read(&noted.log).unwrap();
    assert!(replay(&written[MAGIC..]).values().all(|note| note.delete_pending));
}

#[tokio::test]
async fn opens_that_are_lost_at_a_start_cost_one_sync() {
    let before = Noted::new();
    before.open_many(20).await;
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("opens");
    std::fs::copy(&before.log, &log).unwrap();
    let after = Noted { rig: Rig::with_log(&log), log, _dir: dir };
    let syncs = after.syncs();
    after.rig.core.restorer(MayWait::here()).restore(&after.share());
    assert_eq!((after.left().len(), after.syncs()), (0, syncs + 1));
}

/// The names of a log, which a thread holds.
struct HeldNames {
    release: Sender<()>,
    holder: JoinHandle<()>,
}

impl HeldNames {
    fn release(self) {
        drop(self.release);
        self.holder.join().unwrap();
    }
}

type Created<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, NtStatus>> + 'a>>;

/// A persistent CREATE that is granted its open, and is not answered before its note is written.
struct Granted<'a> {
    create: Created<'a>,
    open: Arc<Open>,
    names: HeldNames,
}

impl Noted {
    fn hold_names(&self) -> HeldNames {
        let share = self.share();
        let ((held, is_held), (release, released)) = (channel(), channel());
        let holder = thread::spawn(move || {
            let _names = share.journal(MayWait::here()).unwrap().hold_names();
            held.send(()).unwrap();
            let _ = released.recv();
        });
        is_held.recv().unwrap();
        HeldNames { release, holder }
    }

    async fn grant(&self) -> Granted<'_> {
        let names = self.hold_names();
        let how = CreateDisposition::OPEN_IF;
        let mut create: Created<'_> = Box::pin(self.rig.create("f", 1, how, persistent()));
        let open = loop {
            tokio::select! {
                biased;
                outcome = &mut create => panic!("it is not noted yet: {outcome:?}"),
                () = tokio::task::yield_now() => {}
            }
            let open = self.rig.session().all_opens().pop();
            let is_granted = |open: &Arc<Open>| {
                open.node.lock().record(open.serial).is_some_and(|record| !record.is_coming())
            };
            if let Some(open) = open.filter(is_granted) {
                break open;
            }
        };
        Granted { create, open, names }
    }

    /// Another instance of the application takes the file, on a thread that ends when others may get in.
    fn take(&self, open: &Arc<Open>) -> JoinHandle<()> {
        let (files, taken) = (Arc::clone(&self.rig.core.files), Arc::clone(open));
        thread::spawn(move || {
            assert!(taken.wrest());
            close_all(&files, vec![taken], MayWait::here());
        })
    }
}

#[tokio::test]
async fn an_open_that_is_taken_before_its_answer_is_not_noted_afterwards() {
    let noted = Noted::new();
    let Granted { create, open, names } = noted.grant().await;
    let taking = noted.take(&open);
    names.release();
    taking.join().unwrap();
    assert!(open.node.lock().record(open.serial).is_none(), "others may get in");
    // The CREATE does not go on: the server may die here. Who notes for it has ended when it and the test alone have the open.
    while Arc::strong_count(&open) > 2 {
        tokio::task::yield_now().await;
    }
    assert!(noted.left().is_empty());
    drop(create);
}

#[tokio::test]
async fn the_log_forgets_an_open_whose_note_is_on_its_way_in_a_part_of_its_own() {
    let noted = Noted::new();
    let Granted { create, open, names } = noted.grant().await;
    while !open.is_being_noted.load(Ordering::Acquire) {
        tokio::task::yield_now().await;
    }
    let forgotten = Arc::clone(&open);
    let forgetting = thread::spawn(move || forget_all(&[forgotten], MayWait::here()));
    names.release();
    forgetting.join().unwrap();
    assert!(open.is_persistent() && noted.left().is_empty());
    drop(create);
}

#[tokio::test]
async fn an_open_that_is_closed_before_its_answer_is_no_create_that_may_come_again() {
    let noted = Noted::new();
    let Granted { create, open, names } = noted.grant().await;
    let taking = noted.take(&open);
    names.release();
    taking.join().unwrap();
    create.await.unwrap();
    assert_eq!(noted.rig.core.files.creates.len(), 0);
}

#[tokio::test]
async fn an_open_that_is_used_before_its_answer_is_no_create_that_may_come_again() {
    let noted = Noted::new();
    let Granted { create, open, names } = noted.grant().await;
    open.set_used(&noted.rig.core.files.creates);
    names.release();
    create.await.unwrap();
    assert_eq!(noted.rig.core.files.creates.len(), 0);
}

const MAGIC: usize = 8;
