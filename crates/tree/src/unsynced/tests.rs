//! Directories that have to be synced, and syncs that fail.

use std::cell::Cell;

use super::*;
use crate::rights::given::MayAdd;
use crate::{DosAttributes, OpenMode, Share, ShareConfig, SharePath};

fn key(inode: u64) -> FileKey {
    FileKey { device: 1, inode }
}

fn handle() -> Result<File, ShareError> {
    Ok(File::open("/").unwrap())
}

fn syncs(unsynced: &Unsynced, inode: u64) -> bool {
    let synced = Cell::new(false);
    let sync = |_: &File| {
        synced.set(true);
        Ok(())
    };
    unsynced.settle(key(inode), handle, sync).unwrap();
    synced.get()
}

#[test]
fn a_change_is_synced_once() {
    let unsynced = Unsynced::default();
    syncs(&unsynced, 1);
    drop(unsynced.begin(key(1)));
    assert!(syncs(&unsynced, 1));
    assert!(!syncs(&unsynced, 1));
}

#[test]
fn a_directory_not_synced_since_the_start_is_synced() {
    let unsynced = Unsynced::default();
    assert!(syncs(&unsynced, 1));
    assert!(!syncs(&unsynced, 1));
    assert!(syncs(&unsynced, 2));
}

#[test]
fn a_change_that_ends_during_or_after_the_sync_is_synced_again() {
    let unsynced = Unsynced::default();
    let early = unsynced.begin(key(1));
    assert!(syncs(&unsynced, 1));
    drop(early);
    for _ in 0..2 {
        let meanwhile = |_: &File| {
            drop(unsynced.begin(key(1)));
            Ok(())
        };
        unsynced.settle(key(1), handle, meanwhile).unwrap();
        assert!(syncs(&unsynced, 1));
        // Once more for a directory without a note when its sync begins.
        unsynced.lock().settled.clear();
    }
}

#[test]
fn a_change_after_the_sync_of_another_is_not_covered_by_an_older_sync() {
    let unsynced = Unsynced::default();
    drop(unsynced.begin(key(1)));
    let meanwhile = |_: &File| {
        assert!(syncs(&unsynced, 1), "the note goes with the sync that ends first");
        drop(unsynced.begin(key(1)));
        Ok(())
    };
    unsynced.settle(key(1), handle, meanwhile).unwrap();
    assert!(syncs(&unsynced, 1));
}

#[test]
fn a_sync_that_failed_is_never_retried_into_success() {
    let unsynced = Unsynced::default();
    drop(unsynced.begin(key(1)));
    let generation = unsynced.generation();
    let failed = unsynced.settle(key(1), handle, |_| Err(ShareError::MediaIo(Errno::NOSPC)));
    assert_eq!(failed, Err(ShareError::MediaIo(Errno::NOSPC)));
    assert_ne!(unsynced.generation(), generation, "whoever was told otherwise asks again");
    for _ in 0..2 {
        let again = unsynced.settle(key(1), handle, |_| panic!("tried again"));
        assert_eq!(again, Err(ShareError::MediaIo(Errno::IO)));
    }
    assert!(syncs(&unsynced, 2), "others go on");
}

#[test]
fn all_syncs_of_a_directory_share_one_group() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
    let found = share.locate(&SharePath::root()).unwrap().found.unwrap();
    let top = share.open_found(&found, OpenMode::default()).unwrap();
    assert_eq!(share.persist_entries(&top), Ok(()));
    // The inode stays open, so that no other test gets its number.
    let directory = File::open(dir.path()).unwrap();
    CommitGroup::of(&directory).unwrap().poison();
    std::mem::forget(directory);
    assert_eq!(share.persist_entries(&top), Err(ShareError::MediaIo(Errno::IO)));
    let path = SharePath::parse("f").unwrap();
    let file = share.create_file(MayAdd::TEST, &path, DosAttributes::default()).unwrap();
    assert_eq!(share.persist_name(&file), Err(ShareError::MediaIo(Errno::IO)));
}

#[test]
fn a_directory_whose_sync_could_not_begin_is_synced_later() {
    let unsynced = Unsynced::default();
    let failed = unsynced.settle(key(1), handle, |_| Err(ShareError::HandlesExhausted));
    assert_eq!(failed, Err(ShareError::HandlesExhausted));
    assert!(syncs(&unsynced, 1));
}

#[test]
fn a_directory_that_cannot_be_opened_is_synced_later() {
    let unsynced = Unsynced::default();
    let unopened = || Err(ShareError::HandlesExhausted);
    let failed = unsynced.settle(key(1), unopened, |_| Ok(()));
    assert_eq!(failed, Err(ShareError::HandlesExhausted));
    assert!(syncs(&unsynced, 1));
}

#[test]
fn directories_of_dropped_notes_are_synced_again() {
    let unsynced = Unsynced::default();
    let under_way = unsynced.begin(key(u64::MAX));
    for inode in 0..=u64::try_from(PLACES_MAX).unwrap() {
        assert!(syncs(&unsynced, inode));
        drop(unsynced.begin(key(inode)));
    }
    assert!(unsynced.lock().noted.len() <= PLACES_MAX);
    assert!(unsynced.lock().settled.len() <= PLACES_MAX);
    assert!(syncs(&unsynced, 0), "its note is gone, what it said is not");
    drop(under_way);
    assert!(syncs(&unsynced, u64::MAX));
}
