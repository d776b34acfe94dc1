//! Rings in files: who may open them, and what is wrong with those that cannot be opened.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::order::{GEOMETRY, GROUP, Next, label};
use crate::format::{FormatError, Geometry};
use crate::names::{GroupId, MemberId};
use crate::ring::{CreateOptions, OpenCause, OpenError, Ring, RingError};

const OPTIONS: CreateOptions = CreateOptions {
    geometry: GEOMETRY,
    overwrite: false,
    fills: false,
    medium: pmem::OpenOptions { emulate_persistence: true },
};

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ring");
    (folder, path)
}

fn open(path: &std::path::Path) -> Result<Ring, OpenError> {
    Ring::open(path, OPTIONS.medium)
}

/// What opening says, with the path it names.
fn refused(path: &std::path::Path) -> OpenCause {
    let error = open(path).unwrap_err();
    assert!(error.to_string().starts_with(path.to_str().unwrap()), "{error}");
    error.cause
}

#[test]
fn a_ring_is_found_again_by_the_next_program() {
    let (_folder, path) = place();
    let ring = Ring::create(&path, &label(), OPTIONS).unwrap();
    let mut next = Next::first();
    let made = next.begin(7);
    made.place(&ring).unwrap();
    ring.persist(made.record.lsn, made.record.end()).unwrap();
    drop(ring);
    let ring = open(&path).unwrap();
    assert_eq!(ring.load_label().unwrap(), label());
    assert_eq!(ring.scan(&label()).unwrap().end, made.record.end());
    assert_eq!(ring.geometry(), GEOMETRY);
    ring.check_owner(GROUP, MemberId(1)).unwrap();
    let other = ring.check_owner(GroupId([1; 16]), MemberId(1));
    assert!(matches!(other, Err(RingError::OtherGroup { .. })));
    let other = ring.check_owner(GROUP, MemberId(2));
    assert!(matches!(other, Err(RingError::OtherMember { .. })));
}

#[test]
fn a_ring_that_was_filled_holds_nothing_of_the_one_before() {
    let (_folder, path) = place();
    fs::write(&path, vec![0x77; 1 << 20]).unwrap();
    let options = CreateOptions { overwrite: true, fills: true, ..OPTIONS };
    let ring = Ring::create(&path, &label(), options).unwrap();
    let is_disk = ring.medium().class() == pmem::DurabilityClass::Storage;
    let mut bytes = vec![1; 4096];
    ring.read(log::Lsn(0), &mut bytes).unwrap();
    assert_eq!(bytes.iter().all(|byte| *byte == 0), is_disk);
    assert_eq!(ring.scan(&label()).unwrap().end, log::Lsn(0));
}

#[test]
fn a_ring_has_one_owner() {
    let (_folder, path) = place();
    let ring = Ring::create(&path, &label(), OPTIONS).unwrap();
    assert!(matches!(refused(&path), OpenCause::InUse));
    let again = Ring::create(&path, &label(), CreateOptions { overwrite: true, ..OPTIONS });
    assert!(matches!(again.unwrap_err().cause, OpenCause::InUse));
    drop(ring);
    open(&path).unwrap();
}

#[test]
fn a_ring_is_not_made_over_something_else() {
    let (_folder, path) = place();
    drop(Ring::create(&path, &label(), OPTIONS).unwrap());
    let exists = Ring::create(&path, &label(), OPTIONS).unwrap_err().cause;
    assert!(matches!(exists, OpenCause::Ring(RingError::Exists(GROUP))), "{exists:?}");
    let other = crate::format::Label { group: GroupId([1; 16]), ..label() };
    let options = CreateOptions { overwrite: true, ..OPTIONS };
    let ring = Ring::create(&path, &other, options).unwrap();
    assert_eq!(ring.group(), GroupId([1; 16]));
    drop(ring);
    // Where ext4 has its magic.
    fs::write(&path, vec![0; 8192]).unwrap();
    File::options().write(true).open(&path).unwrap().write_all_at(&[0x53], 1080).unwrap();
    let foreign = Ring::create(&path, &label(), OPTIONS).unwrap_err().cause;
    let is_foreign = matches!(foreign, OpenCause::Ring(RingError::Foreign { offset: 1080 }));
    assert!(is_foreign, "{foreign:?}");
    assert_eq!(fs::metadata(&path).unwrap().len(), 8192, "it is as it was");
}

#[test]
fn files_that_hold_no_ring_say_why() {
    let (_folder, path) = place();
    let no_label = |cause: OpenCause| match cause {
        OpenCause::Ring(RingError::NoLabel { first, second }) => (first, second),
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused(&path), OpenCause::Open(_)), "there is no file");
    assert!(!path.exists(), "opening makes none");
    for len in [0, 5, 4096, 1 << 20] {
        fs::write(&path, vec![0x41; len]).unwrap();
        let expected = (FormatError::NoLabel, FormatError::NoLabel);
        assert_eq!(no_label(refused(&path)), expected, "{len} bytes of something else");
    }
    fs::remove_file(&path).unwrap();
    drop(Ring::create(&path, &label(), OPTIONS).unwrap());
    let whole = fs::read(&path).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(GEOMETRY.total() - 1).unwrap();
    let has = GEOMETRY.total() - 1;
    match refused(&path) {
        OpenCause::Ring(RingError::Truncated { has: found, .. }) => assert_eq!(found, has),
        other => panic!("{other:?}"),
    }
    let mut damaged = whole;
    damaged[100] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let expected = (FormatError::LabelChecksum, FormatError::NoLabel);
    assert_eq!(no_label(refused(&path)), expected);
}

#[test]
fn a_newer_version_in_either_slot_is_not_taken_for_damage() {
    let (_folder, path) = place();
    let ring = Ring::create(&path, &label(), OPTIONS).unwrap();
    ring.store_label(&crate::format::Label { sequence: 2, ..label() }).unwrap();
    drop(ring);
    let whole = fs::read(&path).unwrap();
    for slot in [0, 4096] {
        let mut newer = whole.clone();
        newer[slot + 8] = 5;
        newer[slot + 12..slot + 16].fill(0);
        let crc = crate::format::crc32c(&[&newer[slot..slot + 4096]]);
        newer[slot + 12..slot + 16].copy_from_slice(&crc.to_le_bytes());
        fs::write(&path, &newer).unwrap();
        let shown = refused(&path).to_string();
        assert!(shown.contains("format version 5, this program knows 4"), "{shown}");
    }
}

#[test]
fn what_is_no_file_or_has_no_room_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(refused(folder.path()), OpenCause::Open(_)));
    let path = folder.path().join("ring");
    let huge = Geometry { capacity: 1 << 60, ..GEOMETRY };
    let made = Ring::create(&path, &label(), CreateOptions { geometry: huge, ..OPTIONS });
    assert!(matches!(made.unwrap_err().cause, OpenCause::Reserve { .. }));
    let odd = Geometry { capacity: 5000, ..GEOMETRY };
    let made = Ring::create(&path, &label(), CreateOptions { geometry: odd, ..OPTIONS });
    let cause = made.unwrap_err().cause;
    assert!(matches!(cause, OpenCause::Ring(RingError::Geometry { capacity: 5000 })), "{cause:?}");
}
