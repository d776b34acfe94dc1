//! Locks of names, and operations of shares under them.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::*;
use crate::rights::given::{MayAdd, MayRemove};
use crate::{
    DosAttributes, Entry as OpenFile, Replace, Share, ShareConfig, ShareError, SharePath,
    StreamName, binding, inode, name,
};

fn share() -> (tempfile::TempDir, Share) {
    let dir = tempfile::tempdir().unwrap();
    let share = Share::open(&ShareConfig::new("data", dir.path())).unwrap();
    (dir, share)
}

fn path(text: &str) -> SharePath {
    SharePath::parse(text).unwrap()
}

fn stream_name(text: &str) -> StreamName {
    StreamName::parse(text).unwrap()
}

fn create(share: &Share, name: &str) -> OpenFile {
    share.create_file(MayAdd::TEST, &path(name), DosAttributes::default()).unwrap()
}

// Makes a request wait at the lock of a directory, swaps names there as another request would, and lets the
// request continue.
fn meanwhile<T: Send>(
    share: &Share,
    directory: FileKey,
    request: impl FnOnce() -> T + Send,
    swap: impl FnOnce(),
) -> T {
    thread::scope(|scope| {
        let held = share.name_locks.hold([directory]);
        let request = scope.spawn(request);
        while share.name_locks.waiting(directory) == 0 {
            assert!(!request.is_finished(), "the request did not wait");
            thread::yield_now();
        }
        swap();
        drop(held);
        request.join().unwrap()
    })
}

#[test]
fn a_file_that_gets_a_name_meanwhile_is_not_moved_or_removed() {
    let (dir, share) = share();
    let top = dir.path();
    let file = create(&share, "f");
    let swap = || {
        std::fs::rename(top.join("f"), top.join("g")).unwrap();
        std::fs::write(top.join("f"), "third").unwrap();
    };
    let unswap = || {
        assert_eq!(std::fs::read(top.join("f")).unwrap(), b"third");
        std::fs::rename(top.join("g"), top.join("f")).unwrap();
    };
    let rename = || share.rename(MayRemove::TEST, &path("f"), &path("h"), file.key(), None);
    let renamed = meanwhile(&share, share.root_key(), rename, swap);
    assert_eq!(renamed, Err(ShareError::NotFound));
    unswap();
    let remove = || share.remove(MayRemove::TEST, &path("f"), file.key(), false);
    let removed = meanwhile(&share, share.root_key(), remove, swap);
    assert_eq!(removed, Err(ShareError::NotFound));
    unswap();
    assert_eq!(remove(), Ok(()));
}

#[test]
fn a_file_that_gets_a_name_meanwhile_is_not_replaced() {
    let (dir, share) = share();
    let top = dir.path();
    let (file, victim) = (create(&share, "f"), create(&share, "v"));
    let replace = Some(Replace::of(victim.key(), MayRemove::TEST));
    let swap = || {
        std::fs::rename(top.join("v"), top.join("w")).unwrap();
        std::fs::write(top.join("v"), "third").unwrap();
    };
    let unswap = || {
        assert_eq!(std::fs::read(top.join("v")).unwrap(), b"third");
        std::fs::rename(top.join("w"), top.join("v")).unwrap();
    };
    let rename = || share.rename(MayRemove::TEST, &path("f"), &path("v"), file.key(), replace);
    let renamed = meanwhile(&share, share.root_key(), rename, swap);
    assert_eq!(renamed, Err(ShareError::Exists));
    unswap();
    let link = || share.link(MayAdd::TEST, &file, &path("v"), replace);
    let linked = meanwhile(&share, share.root_key(), link, swap);
    assert_eq!(linked, Err(ShareError::Exists));
    unswap();
    assert_eq!(rename(), Ok(()));
}

#[test]
fn a_link_given_a_name_meanwhile_is_not_taken_for_its_file() {
    let (dir, share) = share();
    let top = dir.path();
    let file = create(&share, "f");
    symlink("f", top.join("good")).unwrap();
    let remove = |name| share.remove(MayRemove::TEST, &path(name), file.key(), false);
    assert_eq!(remove("good"), Ok(()));
    std::fs::rename(top.join("f"), top.join("g")).unwrap();
    std::fs::write(top.join("other"), "").unwrap();
    symlink("other", top.join("f")).unwrap();
    assert_eq!(remove("f"), Err(ShareError::NotFound));
    let to = path("h");
    let renamed = share.rename(MayRemove::TEST, &path("f"), &to, file.key(), None);
    assert_eq!(renamed, Err(ShareError::NotFound));
    assert_eq!(std::fs::read_link(top.join("f")).unwrap(), Path::new("other"));
}

#[test]
fn a_stream_that_gets_a_name_meanwhile_is_not_moved_or_removed() {
    let (dir, share) = share();
    create(&share, "f");
    let found = share.locate(&path("f")).unwrap().found.unwrap();
    let stream = share.create_stream(MayAdd::TEST, &found, &stream_name("s"), |_| ()).unwrap();
    let homes = dir.path().join(name::HOME);
    let home = std::fs::read_dir(&homes).unwrap().next().unwrap().unwrap().path();
    let (home_key, _) = inode::identify(std::fs::File::open(&home).unwrap()).unwrap();
    let swap = || {
        std::fs::rename(home.join(":s"), home.join(":t")).unwrap();
        std::fs::write(home.join(":s"), "third").unwrap();
    };
    let rename = || share.rename_stream(MayRemove::TEST, &stream, &stream_name("u"), None);
    assert_eq!(meanwhile(&share, home_key, rename, swap), Ok(()), "by its new name");
    assert_eq!(share.stream_name(&stream).as_deref(), Some("u"));
    std::fs::rename(home.join(":s"), home.join(":third")).unwrap();
    std::fs::rename(home.join(":u"), home.join(":s")).unwrap();
    let remove = || share.remove_stream(MayRemove::TEST, &stream);
    assert_eq!(meanwhile(&share, home_key, remove, swap), Ok(()));
    assert!(!home.join(":t").exists());
    assert_eq!(std::fs::read(home.join(":s")).unwrap(), b"third");
    assert_eq!(std::fs::read(home.join(":third")).unwrap(), b"third");
}

#[test]
fn two_first_streams_of_a_copied_file_are_both_kept() {
    let (dir, share) = share();
    let (first, second) = (stream_name("first"), stream_name("second"));
    // A copy of a file that kept its xattrs.
    let copy = create(&share, "copy");
    let found = share.locate(&path("copy")).unwrap().found.unwrap();
    binding::bind_to(&dir.path().join("copy"), copy.key().inode + 1);
    let make = || share.create_stream(MayAdd::TEST, &found, &second, |_| ()).map(drop);
    // The change of another request that held the lock.
    let made = meanwhile(&share, copy.key(), make, || {
        let home = dir.path().join(name::HOME).join(format!("{:032x}", 7));
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join(":first"), "flushed").unwrap();
        binding::bind_to(&dir.path().join("copy"), copy.key().inode);
    });
    assert_eq!(made, Ok(()));
    for name in [first, second] {
        assert!(share.find_stream(&found, &name).unwrap().is_some(), "{name:?}");
    }
}

#[test]
fn an_added_share_sweeps_no_link_that_is_being_made() {
    let (dir, share) = share();
    let top = dir.path();
    let (file, victim) = (create(&share, "f"), create(&share, "v"));
    let replace = Some(Replace::of(victim.key(), MayRemove::TEST));
    assert_eq!(share.link(MayAdd::TEST, &file, &path("v"), replace), Ok(()));
    let new = top.join(name::HOME).join("links");
    let (new_key, _) = inode::identify(std::fs::File::open(&new).unwrap()).unwrap();
    let mut added = Share::open(&ShareConfig::new("added", top)).unwrap();
    added.name_locks = Arc::clone(&share.name_locks);
    std::fs::hard_link(top.join("f"), new.join("being made")).unwrap();
    let got_its_name = || std::fs::rename(new.join("being made"), top.join("w")).unwrap();
    meanwhile(&share, new_key, move || added.take_over().unwrap(), got_its_name);
}

fn key(inode: u64) -> FileKey {
    FileKey { device: 1, inode }
}

#[test]
fn requests_that_lock_the_same_inodes_never_deadlock_or_overlap() {
    let (locks, inside) = (NameLocks::default(), AtomicUsize::new(0));
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (locks, inside) = (&locks, &inside);
            scope.spawn(move || {
                for round in 0..500 {
                    // All of them want 3, and either 1 or 2 before or after it.
                    let other = key(1 + (thread + round) % 2);
                    let wanted = if round % 2 == 0 { [key(3), other] } else { [other, key(3)] };
                    let held = locks.hold(wanted);
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(held);
                }
            });
        }
    });
    assert!(locks.lock().is_empty(), "nothing is kept of locks that nobody holds");
}

#[test]
fn a_lock_that_is_named_twice_is_taken_once() {
    let locks = NameLocks::default();
    drop(locks.hold([key(1), key(1)]));
    assert!(locks.lock().is_empty());
}

#[test]
fn a_request_for_another_inode_does_not_wait() {
    let locks = NameLocks::default();
    let _held = locks.hold([key(1)]);
    drop(locks.hold([key(2), key(3)]));
}

#[test]
fn a_file_in_memory_is_removed_on_the_spot_unless_that_would_wait() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let share = Share::open(&ShareConfig::new("data", dir.path())).unwrap();
    let file = create(&share, "f");
    let on_the_spot = |name: &str, key| share.remove_on_the_spot(MayRemove::TEST, &path(name), key);
    for taken in [share.root_key(), file.key()] {
        let held = share.name_locks.hold([taken]);
        assert_eq!(on_the_spot("f", file.key()), None, "another request has it");
        drop(held);
    }
    assert!(share.name_locks.lock().is_empty());
    symlink("f", dir.path().join("link")).unwrap();
    assert_eq!(on_the_spot("link", file.key()), None, "a link may lead to a disk");
    let other = create(&share, "g");
    assert_eq!(on_the_spot("f", other.key()), None, "another file has the name");
    assert_eq!(on_the_spot("f", file.key()), Some(Ok(())));
    assert_eq!(names_in(dir.path()), ["g", "link"]);
    let disk = tempfile::tempdir_in("/var/tmp").unwrap();
    let share = Share::open(&ShareConfig::new("data", disk.path())).unwrap();
    let file = create(&share, "f");
    let removed = share.remove_on_the_spot(MayRemove::TEST, &path("f"), file.key());
    assert_eq!((removed, disk.path().join("f").exists()), (None, true));
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}
