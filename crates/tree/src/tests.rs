//! Whole shares on real directories.

use crate::rights::given::{MayAdd, MayRemove, MaySet, MayWrite};
use std::os::unix::fs::symlink;

use pmem::DurabilityClass;
use rustix::fs::Mode;

use super::*;

fn share() -> (tempfile::TempDir, Share) {
    let dir = tempfile::tempdir().unwrap();
    let share = Share::open(&ShareConfig::new("data", dir.path())).unwrap();
    (dir, share)
}

fn path(text: &str) -> SharePath {
    SharePath::parse(text).unwrap()
}

fn names(share: &Share, directory: &str, pattern: &str) -> Vec<String> {
    let at = path(directory);
    let found = share.locate(&at).unwrap().found.unwrap();
    let entry = share.open_found(&found, OpenMode { read: true, write: None }).unwrap();
    let mut cursor = Enumeration::start(&entry, Pattern::parse(pattern).unwrap()).unwrap();
    let mut names = Vec::new();
    let mut looks = Looks { left: usize::MAX, reach: Reach::Everywhere };
    while let Next::Found(listed) = cursor.next(share, &entry, &at, &mut looks).unwrap() {
        names.push(listed.name);
    }
    names.sort();
    names
}

#[test]
fn a_file_is_created_found_ignoring_case_and_removed() {
    let (_dir, share) = share();
    let entry =
        share.create_file(MayAdd::TEST, &path("Report.TXT"), DosAttributes::HIDDEN).unwrap();
    entry.write_at(b"hello", 0).unwrap();
    let located = share.locate(&path("rEPORT.txt")).unwrap();
    assert_eq!(located.path.to_wire(), "Report.TXT");
    let found = located.found.unwrap();
    let metadata = share.metadata_of(&found).unwrap();
    assert_eq!((metadata.size, metadata.is_directory), (5, false));
    assert!(metadata.attributes.contains(DosAttributes::HIDDEN));
    assert_eq!(metadata, entry.metadata().unwrap());
    share.remove(MayRemove::TEST, &located.path, found.key, false).unwrap();
    assert!(share.locate(&path("report.txt")).unwrap().found.is_none());
}

#[test]
fn an_exact_name_precedes_a_name_that_differs_in_case() {
    let (dir, share) = share();
    std::fs::write(dir.path().join("A"), "upper").unwrap();
    std::fs::write(dir.path().join("a"), "lower").unwrap();
    assert_eq!(share.locate(&path("a")).unwrap().path.to_wire(), "a");
    assert_eq!(share.locate(&path("A")).unwrap().path.to_wire(), "A");
}

#[test]
fn only_links_that_stay_inside_the_share_are_followed() {
    let (dir, share) = share();
    std::fs::create_dir(dir.path().join("inner")).unwrap();
    std::fs::write(dir.path().join("inner/file"), "x").unwrap();
    symlink("inner/file", dir.path().join("good")).unwrap();
    symlink("/etc/passwd", dir.path().join("absolute")).unwrap();
    symlink("../../../../../etc/passwd", dir.path().join("climbing")).unwrap();
    symlink("/proc/self/root", dir.path().join("magic")).unwrap();
    assert!(share.locate(&path("good")).unwrap().found.is_some());
    for escape in ["absolute", "climbing", "magic", "magic\\etc"] {
        let refused = share.locate(&path(escape)).map(|located| located.path);
        assert_eq!(refused, Err(ShareError::AccessDenied), "{escape}");
    }
    assert_eq!(names(&share, "", "*"), [".", "..", "good", "inner"]);
    let created = share.create_file(MayAdd::TEST, &path("climbing"), DosAttributes::default());
    assert_eq!(created.unwrap_err(), ShareError::Exists);
}

#[test]
fn nothing_is_made_or_removed_behind_a_link_that_leaves_the_share() {
    let (dir, share) = share();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("f"), "x").unwrap();
    symlink(outside.path(), dir.path().join("out")).unwrap();
    std::fs::write(dir.path().join("g"), "x").unwrap();
    let refused = Err(ShareError::AccessDenied);
    let made = share.create_file(MayAdd::TEST, &path("out\\new"), DosAttributes::default());
    assert_eq!(made.map(drop), refused);
    let stat = rustix::fs::stat(outside.path().join("f")).unwrap();
    let key = FileKey { device: stat.st_dev, inode: stat.st_ino };
    assert_eq!(share.remove(MayRemove::TEST, &path("out\\f"), key, false), refused);
    let own = share.locate(&path("g")).unwrap().found.unwrap().key;
    let (from, to) = (path("g"), path("out\\g"));
    assert_eq!(share.rename(MayRemove::TEST, &from, &to, own, None), refused);
    let names: Vec<_> = std::fs::read_dir(outside.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(dir.path().join("g").exists());
}

#[test]
fn a_missing_directory_is_distinguished_from_a_missing_file() {
    let (dir, share) = share();
    std::fs::write(dir.path().join("file"), "x").unwrap();
    let error = |text: &str| share.locate(&path(text)).map(|located| located.found.is_some());
    assert_eq!(error("none"), Ok(false));
    assert_eq!(error("none\\file"), Err(ShareError::PathNotFound));
    assert_eq!(error("file\\below"), Err(ShareError::PathNotFound));
}

#[test]
fn a_device_is_not_served() {
    let (dir, share) = share();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.path().join("pipe"),
        rustix::fs::FileType::Fifo,
        Mode::RUSR,
        0,
    )
    .unwrap();
    assert_eq!(share.locate(&path("pipe")).unwrap_err(), ShareError::SpecialFile);
    assert_eq!(names(&share, "", "*"), [".", ".."]);
}

#[test]
fn a_listing_resumes_where_it_stopped() {
    let (dir, share) = share();
    for index in 0..300 {
        std::fs::write(dir.path().join(format!("f{index:03}")), "").unwrap();
    }
    assert_eq!(names(&share, "", "*").len(), 302);
    assert_eq!(names(&share, "", "f1?0").len(), 10);
    assert_eq!(names(&share, "", "F007"), ["f007"]);
    let root = share.locate(&SharePath::root()).unwrap().found.unwrap();
    let entry = share.open_found(&root, OpenMode::default()).unwrap();
    let mut cursor = Enumeration::start(&entry, Pattern::all()).unwrap();
    let next = |cursor: &mut Enumeration, left: usize| {
        let mut looks = Looks { left, reach: Reach::Everywhere };
        cursor.next(&share, &entry, &SharePath::root(), &mut looks).unwrap()
    };
    assert_eq!(next(&mut cursor, 0), Next::Paused);
    let Next::Found(first) = next(&mut cursor, 1) else {
        panic!("the directory itself comes first")
    };
    cursor.put_back(first.clone());
    assert_eq!(next(&mut cursor, 0), Next::Found(first));
}

#[test]
fn a_rename_replaces_only_when_told_to() {
    let (dir, share) = share();
    let entry = share.create_file(MayAdd::TEST, &path("new"), DosAttributes::default()).unwrap();
    std::fs::write(dir.path().join("old"), "old").unwrap();
    let old = share.locate(&path("old")).unwrap().found.unwrap().key;
    let replace = |key| Some(Replace::of(key, MayRemove::TEST));
    let rename =
        |replace| share.rename(MayRemove::TEST, &path("new"), &path("old"), entry.key(), replace);
    assert_eq!(rename(None), Err(ShareError::Exists));
    assert_eq!(rename(replace(share.root_key())), Err(ShareError::Exists), "another one's name");
    assert_eq!(rename(replace(old)), Ok(()));
    assert_eq!(names(&share, "", "*"), [".", "..", "old"]);
    let wrong = share.remove(MayRemove::TEST, &path("old"), FileKey { device: 0, inode: 0 }, false);
    assert_eq!(wrong, Err(ShareError::NotFound), "another inode's name is left alone");
}

#[test]
fn basic_information_is_kept() {
    let (_dir, share) = share();
    let entry = share.create_file(MayAdd::TEST, &path("f"), DosAttributes::default()).unwrap();
    let change = BasicChange {
        creation: Some(130_000_000_000_000_000),
        access: Some(131_000_000_000_000_000),
        write: Some(132_000_000_000_000_000),
        change: None,
        keeps_write: None,
        attributes: Some(DosAttributes::READONLY),
    };
    entry.set_basic(MaySet::TEST, change).unwrap();
    let metadata = entry.metadata().unwrap();
    assert_eq!(metadata.creation, 130_000_000_000_000_000);
    assert_eq!(metadata.access, 131_000_000_000_000_000);
    assert_eq!(metadata.write, 132_000_000_000_000_000);
    assert_eq!(metadata.attributes, DosAttributes::READONLY);
}

#[test]
fn sizes_and_reservations_follow_requests() {
    let (_dir, share) = share();
    let entry = share.create_file(MayAdd::TEST, &path("f"), DosAttributes::default()).unwrap();
    entry.set_allocation(1 << 20).unwrap();
    let reserved = entry.metadata().unwrap();
    assert_eq!(reserved.size, 0);
    assert!(reserved.allocation >= 1 << 20);
    entry.set_size(4096).unwrap();
    assert_eq!(entry.metadata().unwrap().size, 4096);
    entry.set_allocation(100).unwrap();
    assert_eq!(entry.metadata().unwrap().size, 100);
}

#[test]
fn a_read_only_share_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), "x").unwrap();
    let config = ShareConfig { read_only: true, ..ShareConfig::new("ro", dir.path()) };
    let share = Share::open(&config).unwrap();
    let found = share.locate(&path("f")).unwrap().found.unwrap();
    let write =
        share.open_found(&found, OpenMode { read: true, write: Some(Writing::by(MayWrite::TEST)) });
    assert_eq!(write.unwrap_err(), ShareError::ConfigReadOnly);
    assert_eq!(
        share.remove(MayRemove::TEST, &path("f"), found.key, false),
        Err(ShareError::ConfigReadOnly)
    );
}

#[test]
fn cached_reads_are_answered_inline_and_others_would_block() {
    let (_dir, share) = share();
    let entry = share.create_file(MayAdd::TEST, &path("f"), DosAttributes::default()).unwrap();
    entry.write_at(&[7; 8192], 0).unwrap();
    let mut out = Vec::new();
    assert_eq!(entry.try_read_at(&mut out, 4096, 4096), Ok(4096));
    assert_eq!(out, [7; 4096]);
    if entry.inline_io() != InlineIo::Everything {
        assert_eq!(entry.try_write_at(&out, 0), Err(ShareError::WouldBlock));
        assert_eq!(entry.try_read_at(&mut out, 4096, 8000), Err(ShareError::WouldBlock));
        assert_eq!(out.len(), 4096, "nothing is appended");
    }
    assert_eq!(entry.read_at(&mut out, 4096, 8000), Ok(192));
    assert_eq!(out, [7; 4288]);
}

#[test]
fn only_names_looked_up_before_are_at_hand() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let share = Share::open(&ShareConfig::new("data", dir.path())).unwrap();
    let created = share.create_file(MayAdd::TEST, &path("f"), DosAttributes::default());
    let inline = created.unwrap().inline_io();
    // tmpfs never waits, so the kernel is not asked.
    assert_eq!(share.has_at_hand(&path("f")), inline == InlineIo::Cached);
    assert!(!share.has_at_hand(&path("F")), "found by reading the directory");
    assert!(!share.has_at_hand(&path("missing")));
}

#[test]
fn names_no_share_may_have_are_refused() {
    for name in ["", "IPC$", "ipc$", "a/b", "a\\b", "x:y"] {
        let opened = Share::open(&ShareConfig::new(name, "/"));
        assert!(matches!(opened, Err(ShareOpenError::ConfigName(_))), "{name}");
    }
}

#[test]
fn a_name_is_synced_once_with_all_directories_above() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let share = Share::open(&ShareConfig::new("data", dir.path())).unwrap();
    assert_eq!(share.class(), DurabilityClass::Storage, "this test needs a disk");
    let synced = |entry: &Entry| {
        let before = share.directories_synced();
        share.persist_name(entry).unwrap();
        share.directories_synced() - before
    };
    let none = DosAttributes::default();
    let outer = share.create_directory(MayAdd::TEST, &path("a"), none).unwrap();
    share.create_directory(MayAdd::TEST, &path("a\\b"), none).unwrap();
    let file = share.create_file(MayAdd::TEST, &path("a\\b\\f"), none).unwrap();
    assert_eq!(synced(&file), 3, "b, a and the top");
    assert_eq!(synced(&file), 0);
    let other = share.create_file(MayAdd::TEST, &path("a\\b\\g"), none).unwrap();
    assert_eq!((synced(&outer), synced(&other)), (0, 1));
    share.rename(MayRemove::TEST, &path("a\\b\\f"), &path("a\\f"), file.key(), None).unwrap();
    assert_eq!(synced(&file), 1, "where it went");
    share.remove(MayRemove::TEST, &path("a\\b\\g"), other.key(), false).unwrap();
    assert_eq!(synced(&other), 0, "it has no name");
    let third = share.create_file(MayAdd::TEST, &path("a\\b\\h"), none).unwrap();
    assert_eq!(synced(&third), 1, "where it came from, changed three times");
    // A symbolic link leads to the file, over a directory that is on no path.
    let linked = share.create_file(MayAdd::TEST, &path("a\\b\\linked"), none).unwrap();
    symlink("a/b/linked", dir.path().join("link")).unwrap();
    let found = share.locate(&path("link")).unwrap().found.unwrap();
    let by_link = share
        .open_found(&found, OpenMode { read: true, write: Some(Writing::by(MayWrite::TEST)) })
        .unwrap();
    assert_eq!((synced(&by_link), synced(&linked)), (1, 0));
    let turned = share.create_file(MayAdd::TEST, &path("a\\turned"), none).unwrap();
    assert_eq!(synced(&turned), 1);
    share.turn_into_link(MaySet::TEST, &turned, &path("a\\turned"), "x").unwrap();
    assert!(synced(&turned) > 0, "the link's");
    // A local user moved the file out of the directory, and then out of the share.
    let moved = share.create_file(MayAdd::TEST, &path("a\\moved"), none).unwrap();
    std::fs::rename(dir.path().join("a/moved"), dir.path().join("a/b/moved")).unwrap();
    assert_eq!(synced(&moved), 1, "a is above it still");
    let elsewhere = tempfile::tempdir_in("/var/tmp").unwrap();
    share.create_file(MayAdd::TEST, &path("a\\more"), none).unwrap();
    std::fs::rename(dir.path().join("a/b/moved"), elsewhere.path().join("moved")).unwrap();
    assert!(synced(&moved) > 0, "nothing is known of what is above it now");
    assert_eq!(synced(&moved), 0);
}
