//! The log of persistent opens on a real file system.

use std::fs::Permissions;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};

use super::note_of_test as note;
use super::*;

const BOOT: BootId = TEST_BOOT;

fn open(path: &Path) -> io::Result<(Journal, Vec<OpenNote>)> {
    Journal::open(path, BOOT)
}

fn serials<'a>(notes: impl Iterator<Item = &'a OpenNote>) -> Vec<u64> {
    notes.map(|note| note.serial).collect()
}

#[test]
fn what_is_no_file_is_not_replaced_by_a_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert_eq!(Journal::open(&path, BOOT).unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert!(std::fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
}

#[test]
fn opens_at_the_death_of_the_server_are_restored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("opens");
    let (journal, notes) = open(&path).unwrap();
    assert_eq!(notes, []);
    for serial in [1, 2, 3] {
        journal.open_durably(note(serial)).unwrap();
    }
    journal.move_durably(2, "c").unwrap();
    journal.close(1).unwrap();
    drop(journal);
    let (_, notes) = open(&path).unwrap();
    let two = OpenNote { path: "c".to_owned(), earlier: Some("a/b".to_owned()), ..note(2) };
    assert_eq!(notes, [two.clone(), note(3)]);
    // And once more, from the new file of a rewrite.
    assert_eq!(open(&path).unwrap().1, [two, note(3)]);
}

#[test]
fn each_open_is_recorded_with_the_boot_of_its_making() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("opens");
    // A log of a server that knew no boots.
    let bytes = record(OPENED, |out| note(3).emit(out));
    std::fs::write(&path, [MAGIC, &bytes].concat()).unwrap();
    let (journal, _) = open(&path).unwrap();
    journal.open_durably(note(2)).unwrap();
    drop(journal);
    let next = BootId([10; 16]);
    let (journal, _) = Journal::open(&path, next).unwrap();
    journal.open_durably(note(1)).unwrap();
    drop(journal);
    for _ in 0..2 {
        let boots = |note: &OpenNote| (note.serial, note.boot);
        let found: Vec<_> = open(&path).unwrap().1.iter().map(boots).collect();
        assert_eq!(found, [(1, Some(next)), (2, Some(BOOT)), (3, None)]);
    }
}

#[test]
fn opens_that_are_forgotten_durably_are_so_together_and_a_closed_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("opens");
    let (journal, _) = open(&path).unwrap();
    for serial in 1..=5 {
        journal.open_durably(note(serial)).unwrap();
    }
    let after_a_power_failure = || {
        let bytes = std::fs::read(&path).unwrap();
        let durable = usize::try_from(journal.durable_len()).unwrap();
        serials(replay(&bytes[MAGIC.len()..durable]).values())
    };
    journal.close(1).unwrap();
    assert_eq!(after_a_power_failure(), [1, 2, 3, 4, 5]);
    journal.forget_durably([2, 7, 4]).unwrap();
    assert_eq!(after_a_power_failure(), [3, 5]);
    journal.close(3).unwrap();
    journal.forget_durably([3]).unwrap();
    drop(journal);
    assert_eq!(serials(open(&path).unwrap().1.iter()), [5]);
}

#[test]
fn an_open_of_an_instance_of_an_application_is_restored_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("opens");
    let (journal, _) = open(&path).unwrap();
    let of = |serial, version| {
        let instance = Some(InstanceNote { id: [4; 16], version });
        OpenNote { instance, ..note(serial) }
    };
    let notes = [of(1, None), of(2, Some((3, 4))), note(3)];
    notes.iter().for_each(|note| journal.open_durably(note.clone()).unwrap());
    let plain = record(OPENED, |out| note(2).emit(out));
    let with = record(OPENED, |out| notes[1].emit(out));
    assert_eq!(with.len(), plain.len() + 33);
    assert_eq!(
        with[plain.len()..],
        [&[1][..], &[4; 16], &[3, 0, 0, 0, 0, 0, 0, 0, 4], &[0; 7]].concat()
    );
    drop(journal);
    for _ in 0..2 {
        assert_eq!(open(&path).unwrap().1, notes);
    }
}

fn lock(offset: u64, exclusive: bool) -> LockNote {
    LockNote { offset, length: 10, exclusive }
}

#[test]
fn a_lease_that_was_broken_or_may_have_been_does_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("opens");
    // A log of a server that recorded no broken leases.
    let mut older = record(OPENED, |out| note(3).emit(out));
    let flavor = 12 + 1 + 33;
    assert_eq!(older[flavor], 0x82);
    older[flavor] = 2;
    let body = older.split_off(12 + 1);
    let older = record(OPENED, |out| out.extend_from_slice(&body));
    std::fs::write(&path, [MAGIC, &older].concat()).unwrap();
    let (journal, _) = open(&path).unwrap();
    for serial in [1, 2] {
        journal.open_durably(note(serial)).unwrap();
    }
    journal.doubt_durably(&[1]).unwrap();
    journal.doubt_durably(&[7, 1]).unwrap();
    drop(journal);
    for _ in 0..2 {
        let leases = |note: &OpenNote| (note.serial, note.flavor, note.held, note.epoch);
        let found: Vec<_> = open(&path).unwrap().1.iter().map(leases).collect();
        assert_eq!(found, [(1, 2, 0, 4), (2, 2, 7, 3), (3, 2, 0, 4)]);
    }
}

#[test]
fn held_locks_are_restored_and_released_ones_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("opens");
    let (journal, _) = open(&path).unwrap();
    journal.open_durably(note(1)).unwrap();
    let both = [LockChange::Lock(lock(0, true)), LockChange::Lock(lock(10, false))];
    journal.lock_durably(1, 0x11, &both).unwrap();
    journal.lock_durably(1, 0x21, &[LockChange::Lock(lock(10, false))]).unwrap();
    journal.lock_durably(1, 0x12, &[LockChange::Unlock { offset: 0, length: 10 }]).unwrap();
    journal.lock_durably(1, 0, &[LockChange::Unlock { offset: 10, length: 10 }]).unwrap();
    journal.lock_durably(7, 0x11, &both).unwrap();
    drop(journal);
    let sequences = BTreeMap::from([(1, 0x12), (2, 0x21)]);
    let expected = OpenNote { locks: vec![lock(10, false)], sequences, ..note(1) };
    for _ in 0..2 {
        assert_eq!(open(&path).unwrap().1, std::slice::from_ref(&expected));
    }
}

#[test]
fn a_bounded_number_of_opens_is_recorded_and_restored() {
    // So many syncs take too long on a disk.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("opens");
    let (journal, _) = open(&path).unwrap();
    let max = OPENS_MAX as u64;
    (0..max).try_for_each(|serial| journal.open_durably(note(serial))).unwrap();
    let refused = journal.open_durably(note(max)).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    drop(journal);
    let (journal, notes) = open(&path).unwrap();
    assert_eq!(notes.len(), OPENS_MAX);
    journal.close(0).unwrap();
    journal.open_durably(note(max)).unwrap();
}

#[test]
fn locks_taken_and_released_do_not_grow_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("opens");
    let (journal, _) = open(&path).unwrap();
    journal.open_durably(note(1)).unwrap();
    let size = || std::fs::metadata(&path).unwrap().len();
    let mut largest = 0;
    for round in 0..u32::try_from(2 * COMPACT_FROM).unwrap() {
        let change = match round % 2 {
            0 => LockChange::Lock(lock(0, true)),
            _ => LockChange::Unlock { offset: 0, length: 10 },
        };
        // As the server does it, without waiting for the disk.
        journal.change_locks(1, 0x10 | round & 0xf, &[change], false).unwrap();
        largest = largest.max(size());
    }
    assert!(largest < 60 * u64::try_from(COMPACT_FROM + 2).unwrap(), "{largest} bytes");
}

#[test]
fn complete_records_before_any_cut_of_the_log_are_restored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("opens");
    let (journal, _) = open(&path).unwrap();
    let mut ends = vec![(MAGIC.len(), Vec::new())];
    let mut end = |expected: &[u64]| {
        let len = usize::try_from(std::fs::metadata(&path).unwrap().len()).unwrap();
        ends.push((len, expected.to_vec()));
    };
    journal.open_durably(note(1)).unwrap();
    end(&[1]);
    journal.open_durably(note(2)).unwrap();
    end(&[1, 2]);
    journal.lock_durably(2, 0x11, &[LockChange::Lock(lock(0, true))]).unwrap();
    end(&[1, 2]);
    journal.close(1).unwrap();
    end(&[2]);
    let whole = std::fs::read(&path).unwrap();
    for cut in MAGIC.len()..=whole.len() {
        let expected = &ends.iter().rev().find(|(len, _)| *len <= cut).unwrap().1;
        let found = replay(&whole[MAGIC.len()..cut]);
        assert_eq!(&serials(found.values()), expected, "cut at {cut}");
        // Bytes that never reached the disk read as other bytes.
        let mut torn = whole.clone();
        torn[cut..].fill(0xa5);
        let found = replay(&torn[MAGIC.len()..]);
        assert_eq!(&serials(found.values()), expected, "torn at {cut}");
    }
}

#[test]
fn closed_opens_do_not_grow_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("opens");
    let (journal, _) = open(&path).unwrap();
    for serial in 0..2_000 {
        // As the server does it, without waiting for the disk.
        let mut log = journal.lock();
        log.append(&record(OPENED, |out| note(serial).emit(out)), false, For::More).unwrap();
        log.live.insert(serial, note(serial));
        drop(log);
        journal.close(serial).unwrap();
    }
    let one = record(OPENED, |out| note(0).emit(out)).len();
    let len = usize::try_from(std::fs::metadata(&path).unwrap().len()).unwrap();
    assert!(len < (COMPACT_FROM + 2) * one);
    drop(journal);
    assert_eq!(open(&path).unwrap().1, []);
}

#[test]
fn renames_do_not_grow_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("opens");
    let (journal, _) = open(&path).unwrap();
    journal.open_durably(note(1)).unwrap();
    for number in 0..3 * COMPACT_FROM {
        journal.move_durably(1, if number % 2 == 0 { "f" } else { "g" }).unwrap();
    }
    let longest = record(OPENED, |out| note(1).emit(out)).len();
    let len = usize::try_from(std::fs::metadata(&path).unwrap().len()).unwrap();
    assert!(len < (COMPACT_FROM + 4) * longest.min(moved(1, "f").len()) + longest, "{len}");
    let renamed = OpenNote { path: "g".to_owned(), earlier: Some("f".to_owned()), ..note(1) };
    drop(journal);
    assert_eq!(open(&path).unwrap().1, [renamed]);
}

#[test]
fn a_log_after_an_undurable_rewrite_promises_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("opens");
    let (journal, _) = open(&path).unwrap();
    journal.open_durably(note(1)).unwrap();
    let mut log = journal.lock();
    let file = write_beside(&path, &log.live, BOOT).unwrap();
    let failed = log.replace(&path, file, |_| Err(io::Error::other("the disk")));
    drop(log);
    failed.unwrap_err();
    journal.open_durably(note(2)).unwrap_err();
    drop(journal);
    assert_eq!(open(&path).unwrap().1, [note(1)]);
}

#[test]
fn a_log_that_has_lost_its_name_promises_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("opens");
    let (journal, _) = open(&path).unwrap();
    journal.open_durably(note(1)).unwrap();
    std::fs::remove_file(&path).unwrap();
    journal.open_durably(note(2)).unwrap_err();
}

#[test]
fn logs_that_differ_in_their_extension_are_rewritten_apart() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("opens.one"), dir.path().join("opens.two"));
    assert_ne!(beside(&one), beside(&two));
    let logs = [&one, &two].map(|path| open(path).unwrap().0);
    for (serial, log) in (1..).zip(&logs) {
        log.open_durably(note(serial)).unwrap();
    }
    // Both logs are rewritten at one time: each new file is there before the first takes its place.
    let [file, other] = [(&logs[0], &one), (&logs[1], &two)]
        .map(|(log, path)| write_beside(path, &log.lock().live, BOOT).unwrap());
    logs[0].lock().replace(&one, file, sync_directory_of).unwrap();
    logs[1].lock().replace(&two, other, sync_directory_of).unwrap();
    drop(logs);
    assert_eq!(open(&one).unwrap().1, [note(1)]);
    assert_eq!(open(&two).unwrap().1, [note(2)]);
}

#[test]
fn a_log_never_has_the_name_of_a_rewrite_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("opens.new");
    open(&path).unwrap_err();
    assert!(!path.exists());
}

#[test]
fn a_locked_log_is_refused_to_other_servers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("opens");
    let (journal, _) = open(&path).unwrap();
    let is_refused = || match open(&path) {
        Err(error) => error.kind() == io::ErrorKind::ResourceBusy,
        Ok(_) => false,
    };
    assert!(is_refused());
    journal.open_durably(note(1)).unwrap();
    // Also once another file has taken its place.
    let mut log = journal.lock();
    let file = write_beside(&path, &log.live, BOOT).unwrap();
    log.replace(&path, file, sync_directory_of).unwrap();
    drop(log);
    assert!(is_refused());
    drop(journal);
    assert_eq!(open(&path).unwrap().1, [note(1)]);
}

#[test]
fn a_log_is_not_opened_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let (path, link) = (dir.path().join("opens"), dir.path().join("link"));
    drop(open(&path).unwrap());
    std::os::unix::fs::symlink(&path, &link).unwrap();
    open(&link).unwrap_err();
}

#[test]
fn a_file_that_is_no_log_stays_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("opens");
    std::fs::write(&path, "somebody's notes").unwrap();
    open(&path).unwrap_err();
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody's notes");
}

#[test]
fn only_the_owner_of_a_log_may_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("opens");
    let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    drop(open(&path).unwrap());
    assert_eq!(mode(), 0o600);
    for file in [path.clone(), beside(&path)] {
        std::fs::write(&file, MAGIC).unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    }
    drop(open(&path).unwrap());
    assert_eq!(mode(), 0o600);
}

// The kernel takes writes to the null device and refuses to flush it: EINVAL.
#[test]
fn a_record_is_promised_only_after_its_flush() {
    let file = File::options().write(true).open("/dev/null").unwrap();
    let room = Room::of(0, &file);
    let durable = room.end();
    let mut log =
        Log { file, room, live: BTreeMap::new(), records: 0, durable, syncs: 0, poisoned: false };
    log.append(b"record", false, For::More).unwrap();
    log.append(b"record", true, For::More).unwrap_err();
    log.append(b"record", false, For::More).expect_err("what the file has is unknown from here on");
}

// On a small tmpfs, in a mount namespace: the test runs itself there.
#[test]
fn a_full_disk_ends_no_log_and_keeps_nobody_from_giving_back() {
    if let Some(small) = std::env::var_os(SMALL_DISK) {
        return a_log_on_a_full_disk(Path::new(&small));
    }
    let dir = tempfile::tempdir().unwrap();
    let name = "journal::tests::a_full_disk_ends_no_log_and_keeps_nobody_from_giving_back";
    let script = "mount -t tmpfs -o size=1m none \"$1\" || exit 77; exec \"$0\" --exact \"$2\"";
    let mut command = std::process::Command::new("unshare");
    command.args(["-rm", "sh", "-c", script]).arg(std::env::current_exe().unwrap());
    command.arg(dir.path()).arg(name).env(SMALL_DISK, dir.path());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    if matches!(output.status.code(), Some(77)) {
        return crate::skipped::skip("no mount namespace on this machine");
    }
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn a_log_on_a_full_disk(at: &Path) {
    let path = at.join("opens");
    let (journal, _) = open(&path).unwrap();
    journal.open_durably(note(1)).unwrap();
    journal.lock_durably(1, 0x11, &[LockChange::Lock(lock(0, true))]).unwrap();
    std::fs::write(at.join("rest"), vec![1; 1 << 20]).unwrap_err();
    let full = |outcome: io::Result<()>| {
        outcome.is_err_and(|error| error.kind() == io::ErrorKind::StorageFull)
    };
    let last = (2..100_000).find(|serial| full(journal.open_durably(note(*serial))));
    let last = last.expect("what was reserved is used up");
    assert!(full(journal.lock_durably(1, 0x12, &[LockChange::Lock(lock(20, true))])));
    journal.lock_durably(1, 0x13, &[LockChange::Unlock { offset: 0, length: 10 }]).unwrap();
    journal.close(2).unwrap();
    std::fs::remove_file(at.join("rest")).unwrap();
    journal.open_durably(note(last)).unwrap();
    drop(journal);
    let (_journal, notes) = open(&path).unwrap();
    assert_eq!(serials(notes.iter()), [1].into_iter().chain(3..=last).collect::<Vec<_>>());
    assert!(notes[0].locks.is_empty());
}

const SMALL_DISK: &str = "LANDFAST_TEST_SMALL_DISK";
