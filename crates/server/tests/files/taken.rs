//! Names that one client takes from a file while others open it, or while the taking fails.

use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

use smb::create::{CreateDisposition, CreateOptions, ShareAccess};
use smb::info::{FileInfoClass, RenameFlags};
use smb::{Command, FileId, NtStatus};
use tempfile::TempDir;

use crate::support::mounts::{has_own_mounts, mount};
use crate::support::{Fixture, Wire, new_name, set};

const REPLACE: RenameFlags = RenameFlags::REPLACE_IF_EXISTS;
/// Opens of the name that is fought for. Before the victim was held, five of six of them lost their name.
const ROUNDS: usize = 300;

fn on_disk() -> Fixture {
    Fixture::start_in(std::path::Path::new("/var/tmp"), |_| {})
}

fn link(wire: &mut Wire, id: FileId, to: &str, flags: RenameFlags) -> NtStatus {
    wire.set(id, FileInfoClass::LINK, &new_name(to, flags))
}

fn make(wire: &mut Wire, name: &str, bytes: &[u8]) {
    let made = wire.open(name, |open| open.disposition = CreateDisposition::CREATE);
    assert_eq!(made.status, NtStatus::SUCCESS, "{name}");
    assert_eq!(wire.write(made.id, bytes), NtStatus::SUCCESS);
    assert_eq!(wire.close(made.id), NtStatus::SUCCESS);
}

/// One client takes `name` again and again by `take`; another one opens it, excluding everybody, writes to it,
/// and looks whether `on_disk` has by that name what was written.
fn fight(
    fixture: &Fixture,
    name: &str,
    take: impl Fn(&mut Wire) + Send + Sync,
    on_disk: impl Fn() -> Option<Vec<u8>>,
) {
    let stop = AtomicBool::new(false);
    let (mut opens, mut lost) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut wire = fixture.client(1);
            while !stop.load(Ordering::Relaxed) {
                take(&mut wire);
            }
        });
        let mut wire = fixture.client(2);
        for round in 0..ROUNDS {
            let opened = wire.open(name, |open| {
                open.share_access = ShareAccess::empty();
                if round % 2 == 0 {
                    open.disposition = CreateDisposition::OPEN;
                }
            });
            if opened.status != NtStatus::SUCCESS {
                continue;
            }
            opens += 1;
            let written = round.to_le_bytes();
            assert_eq!(wire.write(opened.id, &written), NtStatus::SUCCESS);
            lost += usize::from(on_disk().is_none_or(|found| found != written));
            assert_eq!(wire.close(opened.id), NtStatus::SUCCESS);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(opens > 0);
    assert_eq!(lost, 0, "of {opens} files that were open lost their name");
}

fn bytes_of(fixture: &Fixture, name: &str) -> Option<Vec<u8>> {
    std::fs::read(fixture.dir.path().join(name)).ok()
}

// By another file, which is a new one or the one of the last time.
fn source(wire: &mut Wire, name: &str, take: impl FnOnce(&mut Wire, FileId)) {
    let source = wire.open(name, |_| {});
    if source.status == NtStatus::SUCCESS {
        take(wire, source.id);
        let _ = wire.close(source.id);
    }
}

#[test]
fn a_file_that_is_open_exclusively_keeps_its_name_while_others_rename_over_it() {
    let fixture = on_disk();
    let take = |wire: &mut Wire| {
        source(wire, "source", |wire, id| {
            let _ = wire.rename(id, "victim", REPLACE);
        });
    };
    fight(&fixture, "victim", take, || bytes_of(&fixture, "victim"));
}

#[test]
fn a_file_that_is_open_exclusively_keeps_its_name_while_others_link_over_it() {
    let fixture = on_disk();
    let take = |wire: &mut Wire| {
        source(wire, "source", |wire, id| {
            let _ = link(wire, id, "victim", REPLACE);
        });
        source(wire, "source", |wire, id| {
            let _ = wire.rename(id, "aside", REPLACE);
        });
    };
    fight(&fixture, "victim", take, || bytes_of(&fixture, "victim"));
}

#[test]
fn a_stream_that_is_open_exclusively_keeps_its_name_while_others_rename_over_it() {
    let fixture = on_disk();
    let mut wire = fixture.client(3);
    make(&mut wire, "f", b"has streams");
    make(&mut wire, "f:first", b"there is a home");
    let homes = fixture.dir.path().join(".landfast-streams");
    let home = std::fs::read_dir(homes).unwrap().next().unwrap().unwrap().path();
    let take = |wire: &mut Wire| {
        source(wire, "f:source", |wire, id| {
            let _ = wire.rename(id, ":victim", REPLACE);
        });
    };
    fight(&fixture, "f:victim", take, || std::fs::read(home.join(":victim")).ok());
}

#[test]
fn a_file_that_is_open_exclusively_keeps_its_name_while_others_remove_it() {
    let fixture = on_disk();
    let take = |wire: &mut Wire| {
        let opened = wire.open("victim", |open| open.options = CreateOptions::DELETE_ON_CLOSE);
        if opened.status == NtStatus::SUCCESS {
            let _ = wire.close(opened.id);
        }
    };
    fight(&fixture, "victim", take, || bytes_of(&fixture, "victim"));
}

#[test]
fn a_directory_in_which_a_file_is_open_is_not_renamed() {
    let fixture = on_disk();
    std::fs::create_dir(fixture.dir.path().join("d")).unwrap();
    let take = |wire: &mut Wire| {
        for (from, to) in [("d", "e"), ("e", "d")] {
            let moved = wire.open(from, |open| {
                open.disposition = CreateDisposition::OPEN;
                open.options = CreateOptions::DIRECTORY_FILE;
            });
            if moved.status == NtStatus::SUCCESS {
                let _ = wire.rename(moved.id, to, RenameFlags::empty());
                let _ = wire.close(moved.id);
            }
        }
    };
    fight(&fixture, "d\\f", take, || bytes_of(&fixture, "d/f"));
}

#[test]
fn a_link_that_fails_leaves_the_file_it_was_to_replace() {
    if !has_own_mounts("taken::a_link_that_fails_leaves_the_file_it_was_to_replace") {
        return;
    }
    let top = TempDir::new_in("/var/tmp").unwrap();
    mount(&["-t", "tmpfs", "none"], &top.path().join("below"));
    let path = top.path().to_owned();
    let fixture = Fixture::start_with(|config| config.shares[0].path = path);
    let mut wire = fixture.client(1);
    make(&mut wire, "victim", b"precious");
    let source = wire.open("below\\source", |_| {});
    assert_eq!(link(&mut wire, source.id, "victim", REPLACE), NtStatus::NOT_SAME_DEVICE);
    assert_eq!(std::fs::read(top.path().join("victim")).unwrap(), b"precious");
}

#[test]
fn a_link_replaces_a_file_at_once_with_its_streams() {
    let fixture = on_disk();
    let mut wire = fixture.client(1);
    make(&mut wire, "victim", b"old");
    make(&mut wire, "victim:s", b"old too");
    make(&mut wire, "source", b"new");
    let inside = |name: &str| {
        let list = std::fs::read_dir(fixture.dir.path().join(name)).unwrap();
        list.flatten().map(|entry| entry.file_name()).collect::<Vec<_>>()
    };
    let source = wire.open("source", |_| {});
    let nothing = RenameFlags::empty();
    assert_eq!(link(&mut wire, source.id, "victim", nothing), NtStatus::OBJECT_NAME_COLLISION);
    assert_eq!(link(&mut wire, source.id, "Victim", REPLACE), NtStatus::SUCCESS);
    assert_eq!(std::fs::read(fixture.dir.path().join("victim")).unwrap(), b"new");
    let inode = std::fs::metadata(fixture.dir.path().join("source")).unwrap();
    assert_eq!(inode.nlink(), 2, "no other name is left");
    let homes = inside(".landfast-streams");
    for home in homes {
        let left = inside(&format!(".landfast-streams/{}", home.to_str().unwrap()));
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_link_over_the_file_itself_changes_nothing() {
    let fixture = on_disk();
    let mut wire = fixture.client(1);
    make(&mut wire, "source", b"kept");
    let source = wire.open("source", |_| {});
    assert_eq!(link(&mut wire, source.id, "other", RenameFlags::empty()), NtStatus::SUCCESS);
    for name in ["other", "source", "SOURCE"] {
        assert_eq!(link(&mut wire, source.id, name, REPLACE), NtStatus::SUCCESS, "{name}");
        let taken = link(&mut wire, source.id, name, RenameFlags::empty());
        assert_eq!(taken, NtStatus::OBJECT_NAME_COLLISION, "{name}");
    }
    let mut names: Vec<_> =
        std::fs::read_dir(fixture.dir.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    names.sort();
    assert_eq!(names, ["other", "source"]);
}

#[test]
fn a_file_renamed_over_its_other_name_has_that_name_alone() {
    let fixture = on_disk();
    let mut wire = fixture.client(1);
    make(&mut wire, "f", b"one file");
    std::fs::hard_link(fixture.dir.path().join("f"), fixture.dir.path().join("g")).unwrap();
    let id = wire.open("f", |_| {}).id;
    for other in ["g", "G"] {
        let refused = wire.rename(id, other, RenameFlags::empty());
        assert_eq!(refused, NtStatus::OBJECT_NAME_COLLISION, "{other}");
    }
    assert_eq!(wire.rename(id, "G", REPLACE), NtStatus::SUCCESS);
    assert_eq!(wire.close(id), NtStatus::SUCCESS);
    assert_eq!(bytes_of(&fixture, "f"), None);
    assert_eq!(bytes_of(&fixture, "G"), None, "no second spelling of a name");
    assert_eq!(bytes_of(&fixture, "g").unwrap(), b"one file");
}

#[test]
fn two_handles_that_rename_one_file_at_once_both_rename_it() {
    let disk = TempDir::new_in("/var/tmp").unwrap();
    let fixture = Fixture::start_with_one_thread_and(|config| {
        config.shares[0].path = disk.path().to_owned();
    });
    std::fs::write(disk.path().join("f"), "bytes").unwrap();
    let mut clients = [(1, "g"), (2, "h")].map(|(number, to)| {
        let mut wire = fixture.client(number);
        let id = wire.open("f", |_| {}).id;
        (wire, id, to)
    });
    let taken = fixture.take_thread();
    let begun = clients.each_mut().map(|(wire, id, to)| {
        let buffer = new_name(to, RenameFlags::empty());
        let request = set(*id, FileInfoClass::RENAME, &buffer);
        let begun = wire.start(Command::SET_INFO, |out| request.emit(out));
        // It waits for the thread once a later request is answered.
        assert_eq!(wire.ask(Command::ECHO, |out| smb::Empty.emit(out)).0.status, NtStatus::SUCCESS);
        begun
    });
    drop(taken);
    for ((wire, _, to), begun) in clients.iter_mut().zip(begun) {
        assert_eq!(wire.answer_to(begun).0.status, NtStatus::SUCCESS, "{to}");
    }
    let left: Vec<_> = std::fs::read_dir(disk.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1);
    for (wire, id, _) in &mut clients {
        assert_eq!(wire.set(*id, FileInfoClass::DISPOSITION, &[1]), NtStatus::SUCCESS);
        assert_eq!(wire.close(*id), NtStatus::SUCCESS);
    }
    assert!(!left[0].path().exists());
}

#[test]
fn a_name_that_is_taken_at_every_attempt_is_given_up() {
    let fixture = Fixture::start();
    // No look-up finds it, and no rename may have it.
    let taken = fixture.dir.path().join("taken");
    std::os::unix::fs::symlink("nothing", &taken).unwrap();
    let mut wire = fixture.client(1);
    let file = wire.open("f", |_| {});
    assert_eq!(wire.rename(file.id, "taken", REPLACE), NtStatus::ACCESS_DENIED);
    assert_eq!(link(&mut wire, file.id, "taken", REPLACE), NtStatus::ACCESS_DENIED);
    assert!(taken.is_symlink() && fixture.dir.path().join("f").exists());
}

#[test]
fn a_name_is_replaced_while_its_file_is_open_by_another_name() {
    let fixture = on_disk();
    let (mut holder, mut taker) = (fixture.client(1), fixture.client(2));
    let made = holder.open("a", |_| {}).id;
    assert_eq!(holder.write(made, b"old"), NtStatus::SUCCESS);
    assert_eq!(link(&mut holder, made, "b", RenameFlags::empty()), NtStatus::SUCCESS);
    assert_eq!(holder.close(made), NtStatus::SUCCESS);
    let held = holder.open("b", |_| {}).id;
    let new = taker.open("new", |_| {}).id;
    assert_eq!(taker.rename(new, "a", REPLACE), NtStatus::SUCCESS);
    assert_eq!(holder.read(held, 10), (NtStatus::SUCCESS, b"old".to_vec()));
    assert_eq!(bytes_of(&fixture, "b").as_deref(), Some(&b"old"[..]));
    let by_the_name = taker.open("other", |_| {}).id;
    assert_eq!(taker.rename(by_the_name, "b", REPLACE), NtStatus::ACCESS_DENIED);
    assert_eq!(link(&mut taker, by_the_name, "b", REPLACE), NtStatus::ACCESS_DENIED);
}
