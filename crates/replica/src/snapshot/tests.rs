use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use block::{BlockDevice, BlockError, FileDevice, MemoryDevice, Survives, Zeroing};
use log::Lsn;
use pmem::crash::{AckLog, Budget, Recorder, Sabotage, check};
use pmem::{AtomicOp, DurabilityClass, Medium, MediumError, StoreGranularity};

use super::{How, KEPT_GRANULE, KeepError, Kept, Moment, SnapshotError, Snapshots, Source};
use crate::format::Extent;
use crate::names::GroupId;
use crate::testing::{self, bytes};

#[path = "../../../../tests/skipped.rs"]
mod skipped;

/// A part of a medium, so that a volume and its snapshot lose power together.
#[derive(Debug)]
struct Part {
    whole: Arc<dyn Medium>,
    start: u64,
    len: u64,
}

impl Medium for Part {
    fn class(&self) -> DurabilityClass {
        self.whole.class()
    }
    fn store_granularity(&self) -> StoreGranularity {
        self.whole.store_granularity()
    }
    fn len(&self) -> u64 {
        self.len
    }
    fn try_place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.whole.try_place(self.start + offset, bytes)
    }
    fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.whole.try_read(self.start + offset, out)
    }
    fn try_persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.whole.try_persist(self.start + offset, len)
    }
    fn try_atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.whole.try_atomic(self.start + offset, op)
    }
    fn place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.whole.place(self.start + offset, bytes)
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.whole.read(self.start + offset, out)
    }
    fn persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.whole.persist(self.start + offset, len)
    }
    fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.whole.atomic(self.start + offset, op)
    }
    fn prepare(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.whole.prepare(self.start + offset, len)
    }
}

/// The last granule is a short one.
const SIZE: u64 = 5 * KEPT_GRANULE + 1024;
const MANY: u64 = 1 << 20;
const ID: u64 = 0x1d;

fn parts(whole: &Arc<dyn Medium>) -> (Arc<dyn BlockDevice>, Arc<dyn Medium>) {
    let part = |start, len| Arc::new(Part { whole: Arc::clone(whole), start, len });
    let base = MemoryDevice::new(part(0, SIZE));
    (Arc::new(base), part(SIZE, whole.len() - SIZE))
}

fn whole_len() -> usize {
    testing::len(SIZE + Kept::file_len(SIZE, MANY))
}

/// What the volume has at first: each block its number; granule 2 is zeroes.
fn at_first(base: &dyn BlockDevice) -> Vec<u8> {
    let blocks = SIZE / 512;
    let first: Vec<u8> = (0..blocks).flat_map(|block| [testing::low(block) | 1; 512]).collect();
    base.write(0, &first, Survives::Placed).unwrap();
    base.write_zeroes(2 * KEPT_GRANULE, KEPT_GRANULE, Zeroing::MayFree, Survives::Placed).unwrap();
    bytes(base)
}

/// Changes of the volume under a snapshot, in which a crash comes at each event: `true` if the snapshot is what the
/// volume was, in every state.
fn survives(recorder: Recorder, states_per_point: u64) -> Result<u64, String> {
    let recorder = Arc::new(recorder);
    let whole: Arc<dyn Medium> = Arc::<Recorder>::clone(&recorder);
    let (base, store) = parts(&whole);
    let first = at_first(&*base);
    let kept = Kept::create(Arc::clone(&base), store, ID, 0, MANY).unwrap();
    let mut made = AckLog::new();
    made.note(recorder.position(), ());
    // A part, a change of what is kept already, two granules at once, zeroes, the short end.
    let k = KEPT_GRANULE;
    for (offset, len) in [(512, 512), (0, 1024), (k - 512, 1024), (2 * k, 512), (SIZE - 512, 512)] {
        kept.preserve_durably(&[(offset, len)]).unwrap();
        base.write(offset, &vec![0xff; testing::len(len)], Survives::Placed).unwrap();
    }
    base.flush().unwrap();
    kept.preserve_durably(&[(0, SIZE)]).unwrap();
    base.write_zeroes(0, SIZE, Zeroing::MayFree, Survives::Placed).unwrap();
    assert!(bytes(&kept) == first);
    let log = recorder.log();
    let budget = Budget { states_per_point, seed: 7 };
    let checked = check(&log, &made, budget, |state| {
        if state.acknowledged.is_empty() {
            return Ok(());
        }
        let whole: Arc<dyn Medium> = Arc::new(Recorder::after_crash(&log, state.image.to_vec()));
        let (base, store) = parts(&whole);
        let opened = Kept::open(Arc::clone(&base), store, ID, 0);
        let kept = opened.map_err(|error| format!("{error}"))?;
        if bytes(&kept) != first {
            return Err("the bytes are other ones".to_owned());
        }
        // It goes on, over what the crash has left of the batch under way.
        kept.preserve_durably(&[(0, SIZE)]).map_err(|error| format!("{error}"))?;
        base.write(0, &vec![0xaa; testing::len(SIZE)], Survives::Placed).unwrap();
        let (base, store) = parts(&whole);
        let again = Kept::open(base, store, ID, 0).map_err(|error| format!("{error}"))?;
        match bytes(&kept) == first && bytes(&again) == first {
            true => Ok(()),
            false => Err("the bytes are other ones later".to_owned()),
        }
    });
    checked.map_err(|violation| format!("{violation:?}"))
}

#[test]
fn no_crash_loses_a_kept_block_on_storage_or_persistent_memory() {
    for recorder in [Recorder::storage(whole_len()), Recorder::pmem(whole_len())] {
        let class = recorder.class();
        let states = survives(recorder, 40).unwrap();
        assert!(states > 100, "{states} states on {class}");
    }
}

#[test]
fn a_machine_that_ignores_persists_loses_kept_blocks() {
    for sabotage in [Sabotage::SkipFlush, Sabotage::SkipDrain] {
        survives(Recorder::sabotaged(whole_len(), sabotage), 40).unwrap_err();
    }
}

#[test]
fn a_second_crash_after_the_first_loses_nothing() {
    // The first crash leaves a batch of which entries are whole and slots are not, and the other way round.
    let recorder = Arc::new(Recorder::storage(whole_len()));
    let whole: Arc<dyn Medium> = Arc::<Recorder>::clone(&recorder);
    let (base, store) = parts(&whole);
    let first = at_first(&*base);
    let kept = Kept::create(base, store, ID, 0, MANY).unwrap();
    let from = recorder.position();
    kept.preserve_durably(&[(0, 4 * KEPT_GRANULE)]).unwrap();
    let log = recorder.log();
    let mut twice = 0;
    let budget = Budget { states_per_point: 12, seed: 3 };
    check(&log, &AckLog::<()>::new(), budget, |state| {
        if state.at < from {
            return Ok(());
        }
        let recorder = Arc::new(Recorder::after_crash(&log, state.image.to_vec()));
        let whole: Arc<dyn Medium> = Arc::<Recorder>::clone(&recorder);
        let (base, store) = parts(&whole);
        let kept = Kept::open(Arc::clone(&base), store, ID, 0).unwrap();
        kept.preserve_durably(&[(KEPT_GRANULE, KEPT_GRANULE)]).unwrap();
        base.write(KEPT_GRANULE, &[9; 512], Survives::Durable).unwrap();
        let second = recorder.log();
        check(&second, &AckLog::<()>::new(), Budget { states_per_point: 4, seed: 5 }, |state| {
            twice += 1;
            let whole: Arc<dyn Medium> =
                Arc::new(Recorder::after_crash(&second, state.image.to_vec()));
            let (base, store) = parts(&whole);
            match bytes(&Kept::open(base, store, ID, 0).unwrap()) == first {
                true => Ok(()),
                false => Err("the bytes are other ones"),
            }
        })
        .map(drop)
        .map_err(|violation| format!("{violation:?}"))
    })
    .unwrap();
    assert!(twice > 100, "{twice}");
}

#[test]
fn readers_see_the_snapshot_while_the_volume_changes() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(SIZE).unwrap();
    let base: Arc<dyn BlockDevice> = Arc::new(FileDevice::new(file).unwrap());
    let first = at_first(&*base);
    let store = memory(Kept::file_len(SIZE, MANY));
    let kept = Kept::create(Arc::clone(&base), store, ID, 0, MANY).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert!(bytes(&kept) == first);
                }
            });
        }
        for at in (0..SIZE).step_by(512) {
            kept.preserve_durably(&[(at, 512)]).unwrap();
            base.write(at, &[0xff; 512], Survives::Placed).unwrap();
            std::thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(bytes(&kept) == first);
}

fn memory(len: u64) -> Arc<dyn Medium> {
    pmem::anonymous_with(len, pmem::OpenOptions { emulate_persistence: true }).unwrap()
}

#[test]
fn ranges_that_touch_one_granule_keep_it_once() {
    let base: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::anonymous(SIZE).unwrap());
    let first = at_first(&*base);
    let store = memory(Kept::file_len(SIZE, MANY));
    let kept = Kept::create(Arc::clone(&base), store, ID, 0, MANY).unwrap();
    kept.preserve_durably(&[(0, 512), (1024, 512), (0, KEPT_GRANULE + 512), (512, 512)]).unwrap();
    assert_eq!(kept.held().0, 2 * KEPT_GRANULE);
    kept.preserve_durably(&[(u64::MAX, u64::MAX), (SIZE, 1), (0, 0)]).unwrap();
    assert_eq!(kept.held().0, 2 * KEPT_GRANULE);
    base.write(0, &[7; 512], Survives::Placed).unwrap();
    assert!(bytes(&kept) == first);
}

#[test]
fn a_full_snapshot_refuses_and_keeps_what_it_has() {
    let base: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::anonymous(SIZE).unwrap());
    let first = at_first(&*base);
    let most = 2 * KEPT_GRANULE;
    let store = memory(Kept::file_len(SIZE, most));
    let kept = Kept::create(Arc::clone(&base), store, ID, 0, most).unwrap();
    kept.preserve_durably(&[(0, 2 * KEPT_GRANULE)]).unwrap();
    base.write(0, &[7; 512], Survives::Placed).unwrap();
    let full = kept.preserve_durably(&[(4 * KEPT_GRANULE, 512)]);
    assert_eq!(full, Err(KeepError::ConfigOutgrown));
    assert_eq!(kept.preserve_durably(&[(0, 512)]), Ok(()));
    assert!(bytes(&kept) == first);
    assert_eq!(kept.held(), (most, most));
    assert_eq!(kept.write(0, &[1; 512], Survives::Placed), Err(BlockError::ConfigReadOnly));
}

#[test]
fn a_file_of_another_snapshot_or_a_smaller_volume_is_refused() {
    let base: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::anonymous(SIZE).unwrap());
    let store = memory(Kept::file_len(SIZE, MANY));
    let open = |base: &Arc<dyn BlockDevice>, id, volume| {
        Kept::open(Arc::clone(base), Arc::clone(&store), id, volume).map(drop)
    };
    assert_eq!(open(&base, ID, 0), Err(KeepError::MediaDamaged));
    Kept::create(Arc::clone(&base), Arc::clone(&store), ID, 0, MANY).unwrap();
    assert_eq!(open(&base, ID, 0), Ok(()));
    assert_eq!(open(&base, ID + 1, 0), Err(KeepError::MediaDamaged));
    assert_eq!(open(&base, ID, 1), Err(KeepError::MediaDamaged));
    let small: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::anonymous(512).unwrap());
    let other = KeepError::ConfigOtherVolume { kept: SIZE, found: 512 };
    assert_eq!(open(&small, ID, 0), Err(other));
}

fn volume(directory: &std::path::Path, name: &str) -> (File, Arc<dyn BlockDevice>) {
    let path = directory.join(name);
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    file.set_len(SIZE).unwrap();
    let device: Arc<dyn BlockDevice> =
        Arc::new(FileDevice::new(file.try_clone().unwrap()).unwrap());
    at_first(&*device);
    (file, device)
}

const MOMENT: Moment =
    Moment { group: GroupId([3; 16]), at: Lsn(640), time_ns: 5, id: ID, bytes_max: MANY };

/// Makes, opens, lists and drops a snapshot of two volumes of `directory`; how the first was kept.
fn life_of_a_snapshot(directory: &std::path::Path) -> How {
    let kept_at = directory.join("snapshots");
    std::fs::create_dir(&kept_at).unwrap();
    let emulate = pmem::OpenOptions { emulate_persistence: true };
    let snapshots = Snapshots::open(&kept_at, emulate).unwrap();
    let (file, one) = volume(directory, "one");
    let (_, two) = volume(directory, "two");
    let first = bytes(&*one);
    let sources = [
        Source { device: Arc::clone(&one), file: Some(&file) },
        Source { device: Arc::clone(&two), file: None },
    ];
    let made = snapshots.keep("before", MOMENT, &sources).unwrap();
    let twice = snapshots.keep("before", MOMENT, &sources);
    assert!(matches!(twice, Err(SnapshotError::ConfigExists(_))));
    for (number, device) in [(0, &one), (1, &two)] {
        made.preserve_durably(&[Extent { volume: number, offset: 0, len: 4096 }]).unwrap();
        device.write(0, &[0xff; 4096], Survives::Durable).unwrap();
    }
    drop(made);
    let bases = [Arc::clone(&one), Arc::clone(&two)];
    // As after a restart; what a crash has left is gone.
    std::fs::create_dir(kept_at.join("half.making")).unwrap();
    std::fs::create_dir(kept_at.join("half.dropping")).unwrap();
    let snapshots = Snapshots::open(&kept_at, emulate).unwrap();
    let listed = snapshots.list().unwrap();
    assert_eq!(listed.len(), 1);
    let (name, facts) = &listed[0];
    assert_eq!((&**name, facts.at, facts.group), ("before", Lsn(640), GroupId([3; 16])));
    let again = snapshots.get("before", &bases).unwrap();
    for number in 0..2 {
        assert!(bytes(&*again.device(number).unwrap()) == first);
    }
    assert_eq!(again.facts(), facts);
    let refused = snapshots.get("before", &bases[..1]);
    assert!(matches!(refused, Err(SnapshotError::ConfigVolumes { kept: 2, found: 1 })));
    snapshots.drop("before").unwrap();
    assert!(matches!(snapshots.drop("before"), Err(SnapshotError::ConfigUnknown(_))));
    assert!(snapshots.list().unwrap().is_empty());
    assert_eq!(std::fs::read_dir(&kept_at).unwrap().count(), 0);
    facts.volumes[0].how
}

#[test]
fn a_snapshot_of_two_volumes_is_made_opened_again_listed_and_dropped() {
    let directory = tempfile::tempdir().unwrap();
    life_of_a_snapshot(directory.path());
}

#[test]
fn a_volume_on_xfs_is_cloned() {
    let directory = tempfile::tempdir().unwrap();
    let (image, at) = (directory.path().join("image"), directory.path().join("mounted"));
    File::create(&image).unwrap().set_len(400 << 20).unwrap();
    std::fs::create_dir(&at).unwrap();
    let run = |program: &str, arguments: &[&std::ffi::OsStr]| {
        let output = std::process::Command::new(program).args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    };
    let made = run("mkfs.xfs", &["-q".as_ref(), image.as_os_str()]);
    let loops: [&std::ffi::OsStr; 4] =
        ["-o".as_ref(), "loop".as_ref(), image.as_os_str(), at.as_os_str()];
    if !made || !run("mount", &loops) {
        skipped::skip("this machine makes and mounts no XFS");
        return;
    }
    let how = std::panic::catch_unwind(|| life_of_a_snapshot(&at));
    assert!(run("umount", &[at.as_os_str()]));
    assert_eq!(how.unwrap(), How::Clone);
}

#[test]
fn names_that_are_no_names_of_snapshots_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let snapshots = Snapshots::open(directory.path(), pmem::OpenOptions::default()).unwrap();
    for name in ["", ".", "..", ".x", "a/b", "a.making", "a.dropping", "a b", &"n".repeat(101)] {
        let refused = snapshots.keep(name, MOMENT, &[]);
        assert!(matches!(refused, Err(SnapshotError::ConfigName(_))), "{name:?}");
        let refused = snapshots.drop(name);
        assert!(matches!(refused, Err(SnapshotError::ConfigName(_))), "{name:?}");
    }
}

#[test]
fn damaged_facts_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let snapshots = Snapshots::open(directory.path(), pmem::OpenOptions::default()).unwrap();
    snapshots.keep("x", MOMENT, &[]).unwrap();
    std::fs::write(directory.path().join("x/facts"), [1; 5000]).unwrap();
    assert!(matches!(snapshots.list(), Err(SnapshotError::MediaFacts(_))));
    snapshots.drop("x").unwrap();
}
