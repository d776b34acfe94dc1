//! What a CREATE makes while others look for the same name.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use smb::create::{
    CreateDisposition, CreateOptions, CreateRequest, CreateRequestContext, CreateResponseContext,
    Lease, LeaseKey, LeaseState, LeaseVersion, OplockLevel,
};
use smb::info::{FileAttributes, FileInfoClass, FullEa, RenameFlags};
use smb::negotiate::NegotiateContext;
use smb::{Command, FileId, FlushRequest, NtStatus};

use crate::support::{Fixture, Wire, new_name};

// As many as one CREATE may take to be entered, and more.
const ROUNDS: usize = 400;

fn on_disk() -> Fixture {
    Fixture::start_in(Path::new("/var/tmp"), |_| {})
}

// Many small attributes, then one that is larger than what ext4 has for them.
fn too_many_attributes() -> &'static [u8] {
    attributes(40, Some(&[1; 50_000]))
}

// Many small ones: what is made is a while without its open.
fn attributes(small: usize, large: Option<&[u8]>) -> &'static [u8] {
    let names: Vec<_> = (0..small).map(|number| format!("E{number}")).collect();
    let mut list: Vec<_> = names
        .iter()
        .map(|name| FullEa { flags: 0, name: name.as_bytes(), value: &[1; 20] })
        .collect();
    list.extend(large.map(|value| FullEa { flags: 0, name: b"LARGE", value }));
    let mut bytes = Vec::new();
    FullEa::emit_list(&list, &mut bytes);
    bytes.leak()
}

fn exclusively(open: &mut CreateRequest<'_>) {
    open.disposition = CreateDisposition::CREATE;
}

fn flush(wire: &mut Wire, file_id: FileId) -> NtStatus {
    wire.ask(Command::FLUSH, |out| FlushRequest { file_id }.emit(out)).0.status
}

#[test]
fn a_create_that_fails_leaves_what_others_have_flushed() {
    let fixture = on_disk();
    let (mut maker, mut other) = (fixture.client(1), fixture.client(2));
    let attributes = too_many_attributes();
    let mut flushed = 0;
    for round in 0..ROUNDS {
        let name = format!("f{round}");
        let id = maker.start_open(&name, |open| {
            open.contexts.push(CreateRequestContext::ExtendedAttributes(attributes));
        });
        for _ in 0..4 {
            let found = other.open(&name, |open| open.disposition = CreateDisposition::OPEN);
            if found.status == NtStatus::SUCCESS {
                assert_eq!(other.write(found.id, b"committed"), NtStatus::SUCCESS);
                assert_eq!(flush(&mut other, found.id), NtStatus::SUCCESS);
                assert_eq!(other.close(found.id), NtStatus::SUCCESS);
                flushed += 1;
                let _ = maker.finish_open(id);
                let left = std::fs::read(fixture.dir.path().join(&name));
                assert_eq!(left.ok().as_deref(), Some(&b"committed"[..]), "{name}, of {flushed}");
                break;
            }
        }
    }
}

#[test]
fn a_new_file_is_cached_by_nobody_whom_its_maker_did_not_find() {
    let fixture = on_disk();
    let (mut maker, mut other) = (fixture.client(1), fixture.client(2));
    let mut both = 0;
    for round in 0..ROUNDS {
        let name = format!("f{round}");
        let id = maker.start_open(&name, exclusively);
        let found = other.open(&name, |open| {
            open.disposition = CreateDisposition::OPEN;
            open.oplock_level = OplockLevel::LEASE;
            open.contexts.push(CreateRequestContext::Lease(Lease {
                key: LeaseKey([u8::try_from(round % 251).unwrap() + 1; 16]),
                state: LeaseState::READ | LeaseState::HANDLE | LeaseState::WRITE,
                break_in_progress: false,
                version: LeaseVersion::V1,
            }));
        });
        let made = maker.finish_open(id);
        assert_eq!(made.status, NtStatus::SUCCESS);
        if found.status == NtStatus::SUCCESS {
            both += 1;
            let response = found.response();
            let granted = response.contexts.iter().find_map(|context| match context {
                CreateResponseContext::Lease(lease) => Some(lease.state),
                _ => None,
            });
            let writes = granted.is_some_and(|granted| granted.contains(LeaseState::WRITE));
            assert!(!writes, "{name}, one of {both} that both have open");
            assert_eq!(other.close(found.id), NtStatus::SUCCESS);
        }
        assert_eq!(maker.close(made.id), NtStatus::SUCCESS);
    }
}

/// Makers that exclude each other by a name, which others remove: no two have made the same thing.
fn one_maker_at_a_time(options: CreateOptions) {
    let fixture = on_disk();
    let (held, stop) = (Mutex::new(HashSet::new()), AtomicBool::new(false));
    let (made, some) = (AtomicUsize::new(0), attributes(40, None));
    std::thread::scope(|scope| {
        for number in 4..7 {
            let (fixture, stop) = (&fixture, &stop);
            scope.spawn(move || {
                let mut wire = fixture.client(number);
                while !stop.load(Ordering::Relaxed) {
                    let found = wire.open("lock", |open| {
                        open.disposition = CreateDisposition::OPEN;
                        open.options = options | CreateOptions::DELETE_ON_CLOSE;
                    });
                    if found.status == NtStatus::SUCCESS {
                        let _ = wire.close(found.id);
                    }
                }
            });
        }
        let makers: Vec<_> = (0..4)
            .map(|number| {
                let (fixture, held, made) = (&fixture, &held, &made);
                scope.spawn(move || {
                    let mut wire = fixture.client(number);
                    while made.load(Ordering::Relaxed) < 4 * ROUNDS {
                        let lock = wire.open("lock", |open| {
                            open.disposition = CreateDisposition::CREATE;
                            open.options = options;
                            open.contexts.push(CreateRequestContext::ExtendedAttributes(some));
                        });
                        if lock.status != NtStatus::SUCCESS {
                            continue;
                        }
                        let (_, inode) = wire.query(lock.id, FileInfoClass::INTERNAL);
                        let is_mine = held.lock().unwrap().insert(inode.clone());
                        made.fetch_add(1, Ordering::Relaxed);
                        for _ in 0..8 {
                            let _ = wire.query(lock.id, FileInfoClass::INTERNAL);
                        }
                        if is_mine {
                            held.lock().unwrap().remove(&inode);
                        }
                        let _ = wire.close(lock.id);
                        if !is_mine {
                            return false;
                        }
                    }
                    true
                })
            })
            .collect();
        let outcomes: Vec<_> = makers.into_iter().map(|maker| maker.join().unwrap()).collect();
        stop.store(true, Ordering::Relaxed);
        let made = made.load(Ordering::Relaxed);
        assert!(outcomes.iter().all(|is_alone| *is_alone), "two made one of the first {made}");
    });
}

#[test]
fn of_two_who_make_a_directory_exclusively_one_is_told_that_it_did() {
    one_maker_at_a_time(CreateOptions::DIRECTORY_FILE);
}

#[test]
fn of_two_who_make_a_file_exclusively_one_is_told_that_it_did() {
    one_maker_at_a_time(CreateOptions::NON_DIRECTORY_FILE);
}

#[test]
fn names_that_differ_in_case_alone_are_made_once() {
    let fixture = on_disk();
    let (mut one, mut other) = (fixture.client(1), fixture.client(2));
    for stream in ["", ":s"] {
        let mut twice = 0;
        for round in 0..ROUNDS {
            let names = match stream {
                "" => (format!("Name{round}"), format!("nAME{round}")),
                _ => (format!("Name{round}:Stream"), format!("Name{round}:sTREAM")),
            };
            let ids =
                (one.start_open(&names.0, exclusively), other.start_open(&names.1, exclusively));
            let made = (one.finish_open(ids.0), other.finish_open(ids.1));
            let good = [&made.0, &made.1].map(|made| made.status == NtStatus::SUCCESS);
            assert!(good[0] || good[1], "{:?} {:?}", made.0.status, made.1.status);
            twice += usize::from(good[0] && good[1]);
            for (wire, made) in [(&mut one, made.0), (&mut other, made.1)] {
                if made.status == NtStatus::SUCCESS {
                    assert_eq!(wire.close(made.id), NtStatus::SUCCESS);
                }
            }
        }
        assert_eq!(twice, 0, "of {ROUNDS} names, {stream}");
    }
}

#[test]
fn what_is_made_with_a_mode_is_never_more_open_than_that() {
    let fixture = on_disk();
    let mut wire = fixture.dial();
    wire.negotiate_with(1, vec![NegotiateContext::Posix(NegotiateContext::POSIX_VERSION)]);
    wire.log_on();
    wire.enter("data");
    let stop = AtomicBool::new(false);
    let place = fixture.dir.path();
    std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for name in ["file", "directory"] {
                    let mode =
                        std::fs::symlink_metadata(place.join(name)).map_or(0, |of| of.mode());
                    if mode & 0o077 != 0 {
                        return Some(format!("{name} {mode:o}"));
                    }
                }
            }
            None
        });
        for _ in 0..ROUNDS {
            for (name, options, mode) in [
                ("file", CreateOptions::NON_DIRECTORY_FILE, 0o600),
                ("directory", CreateOptions::DIRECTORY_FILE, 0o700),
            ] {
                let made = wire.open(name, |open| {
                    open.disposition = CreateDisposition::CREATE;
                    open.options = options | CreateOptions::DELETE_ON_CLOSE;
                    open.contexts.push(CreateRequestContext::Posix { mode });
                });
                assert_eq!(made.status, NtStatus::SUCCESS);
                assert_eq!(wire.close(made.id), NtStatus::SUCCESS);
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(looker.join().unwrap(), None);
    });
}

#[test]
fn a_stream_of_a_new_read_only_file_may_be_written_by_its_maker() {
    let fixture = on_disk();
    let mut wire = fixture.client(1);
    let made = wire.open("f:s", |open| open.attributes = FileAttributes::READONLY);
    assert_eq!(made.status, NtStatus::SUCCESS);
    assert_eq!(wire.write(made.id, b"stream"), NtStatus::SUCCESS);
    assert_eq!(wire.close(made.id), NtStatus::SUCCESS);
    assert_eq!(wire.open("f:s", |_| {}).status, NtStatus::ACCESS_DENIED);
    assert_eq!(wire.open("f", |_| {}).status, NtStatus::ACCESS_DENIED);
}

#[test]
fn a_create_of_a_stream_that_fails_makes_neither_the_stream_nor_its_file() {
    let fixture = on_disk();
    let mut wire = fixture.client(1);
    let make = |wire: &mut Wire| {
        let too_much = CreateRequestContext::AllocationSize(1 << 60);
        wire.open("f:s", |open| open.contexts.push(too_much)).status
    };
    assert!(make(&mut wire).is_error());
    assert!(!fixture.dir.path().join("f").exists());
    let file = wire.open("f", |_| {});
    assert!(make(&mut wire).is_error());
    let opened = wire.open("f:s", |open| open.disposition = CreateDisposition::OPEN);
    assert_eq!(opened.status, NtStatus::OBJECT_NAME_NOT_FOUND);
    assert_eq!(wire.close(file.id), NtStatus::SUCCESS);
}

// One client gives a new file's name in another case to a file that is there, by `give`.
fn one_of_two_spellings(give: impl Fn(&mut Wire, FileId, &str) -> NtStatus) {
    let fixture = on_disk();
    let (mut maker, mut giver) = (fixture.client(1), fixture.client(2));
    let source = giver.open("source", exclusively);
    assert_eq!(source.status, NtStatus::SUCCESS);
    for round in 0..ROUNDS {
        let id = maker.start_open(&format!("Name{round}"), exclusively);
        let given = give(&mut giver, source.id, &format!("nAME{round}"));
        let made = maker.finish_open(id);
        let good = [given, made.status].map(|status| status == NtStatus::SUCCESS);
        assert_eq!(good, [good[0], !good[0]], "{given:?} {:?}, round {round}", made.status);
        if made.status == NtStatus::SUCCESS {
            assert_eq!(maker.close(made.id), NtStatus::SUCCESS);
        }
    }
}

#[test]
fn a_name_that_a_rename_gives_is_not_made_in_another_case() {
    one_of_two_spellings(|wire, id, name| wire.rename(id, name, RenameFlags::empty()));
}

#[test]
fn a_name_that_a_link_gives_is_not_made_in_another_case() {
    one_of_two_spellings(|wire, id, name| {
        wire.set(id, FileInfoClass::LINK, &new_name(name, RenameFlags::empty()))
    });
}
