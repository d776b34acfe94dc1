//! A client that lost its connection logs on anew and names the session it had: once that is
//! answered, what it asked for before has happened or never will, and nothing it had is in its way.

use std::net::Shutdown;

use smb::create::{
    CreateAction, CreateDisposition, CreateOptions, CreateRequest, CreateRequestContext,
    DurableReconnectV2, DurableRequestV2, Lease, LeaseKey, LeaseState, LeaseVersion, OplockLevel,
    ShareAccess,
};
use smb::info::{FileInfoClass, RenameFlags};
use smb::{Command, FileId, Guid, LockElement, LockFlags, LockRequest, NtStatus};

use crate::support::{Fixture, Opened, Wire, create, new_name, set, write};

/// Starts a request that changes `f`, which is open, or `victim`. Its message id.
type Ask = fn(&mut Wire, FileId) -> u64;

fn give_name(wire: &mut Wire, id: FileId, class: FileInfoClass, name: &str) -> u64 {
    let buffer = new_name(name, RenameFlags::REPLACE_IF_EXISTS);
    wire.start(Command::SET_INFO, |out| set(id, class, &buffer).emit(out))
}

const ASKS: [(&str, &str, Ask); 4] = [
    ("a rename", "f", |wire, id| give_name(wire, id, FileInfoClass::RENAME, "g")),
    ("a rename over a file", "victim", |wire, id| {
        give_name(wire, id, FileInfoClass::RENAME, "victim")
    }),
    ("a link over a file", "victim", |wire, id| give_name(wire, id, FileInfoClass::LINK, "victim")),
    ("a CREATE that empties", "victim", |wire, _| {
        wire.start_open("victim", |request| request.disposition = CreateDisposition::OVERWRITE)
    }),
];

/// How an open is asked for that waits for its client.
const DURABLE: DurableRequestV2 =
    DurableRequestV2 { timeout_ms: 0, persistent: false, create_guid: Guid([5; 16]) };

fn lease(key: u8, state: LeaseState) -> CreateRequestContext<'static> {
    CreateRequestContext::Lease(Lease {
        key: LeaseKey([key; 16]),
        state,
        break_in_progress: false,
        version: LeaseVersion::V2 { parent: None, epoch: 0 },
    })
}

/// Opens with a lease that has to be given back before others go on.
fn open_leased(wire: &mut Wire, name: &str, key: u8) -> Opened {
    wire.open(name, |request| {
        let all = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
        request.oplock_level = OplockLevel::LEASE;
        request.contexts.push(lease(key, all));
    })
}

/// A request waits for somebody's lease, its client comes back meanwhile, then the lease goes.
fn goes_unheard(what: &str, held: &str, ask: Ask, is_durable: bool, comes_back: ComesBack) {
    let fixture = Fixture::start();
    let path = |name: &str| fixture.dir.path().join(name);
    for name in ["f", "victim"] {
        std::fs::write(path(name), name).unwrap();
    }
    let (mut lost, mut holder) = (fixture.client(1), fixture.client(2));
    let opened = lost.open("f", |request| {
        if is_durable {
            request.oplock_level = OplockLevel::LEASE;
            request.contexts.push(lease(7, LeaseState::READ | LeaseState::HANDLE));
            request.contexts.push(CreateRequestContext::DurableV2(DURABLE));
        }
    });
    let held = open_leased(&mut holder, held, 9).id;
    let asked = ask(&mut lost, opened.id);
    holder.notification();
    let again = comes_back(&fixture, &mut lost, opened.id);
    assert_eq!(holder.close(held), NtStatus::SUCCESS);
    // Its old connection still stands, and says what came of it.
    let status = lost.answer_to(asked).0.status;
    assert!(status.is_error(), "{what}: {status:?}");
    let content = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    assert_eq!((&*content("f"), &*content("victim")), ("f", "victim"), "{what}");
    assert!(!path("g").exists(), "{what}");
    drop(again);
}

type ComesBack = fn(&Fixture, &mut Wire, FileId) -> Wire;

#[test]
fn what_a_replaced_session_waits_for_does_not_happen() {
    for (what, held, ask) in ASKS {
        goes_unheard(what, held, ask, false, |fixture, lost, _| fixture.again(1, lost));
    }
}

#[test]
fn what_waits_does_not_happen_to_a_durable_open_that_has_been_taken_back() {
    for (what, held, ask) in ASKS {
        goes_unheard(what, held, ask, true, |fixture, lost, id| {
            let mut again = fixture.again(1, lost);
            let back = DurableReconnectV2 {
                file_id: id,
                create_guid: DURABLE.create_guid,
                persistent: false,
            };
            let back = again.open("f", |request| {
                request.oplock_level = OplockLevel::LEASE;
                request.contexts.push(lease(7, LeaseState::READ | LeaseState::HANDLE));
                request.contexts.push(CreateRequestContext::DurableReconnectV2(back));
            });
            assert_eq!(back.status, NtStatus::SUCCESS);
            again
        });
    }
}

#[test]
fn a_lock_that_a_replaced_session_waits_for_is_not_taken() {
    let fixture = Fixture::start();
    let (mut lost, mut holder) = (fixture.client(1), fixture.client(2));
    let lock = |file_id, flags| LockRequest {
        lock_sequence: 0,
        file_id,
        locks: vec![LockElement { offset: 0, length: 10, flags }],
    };
    let (mine, theirs) = (lost.open("f", |_| {}).id, holder.open("f", |_| {}).id);
    let at_once = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    holder.ask(Command::LOCK, |out| lock(theirs, at_once).emit(out));
    let asked = lost.start(Command::LOCK, |out| lock(mine, LockFlags::EXCLUSIVE).emit(out));
    assert_eq!(lost.receive().0.status, NtStatus::PENDING);
    let mut again = fixture.again(1, &lost);
    assert!(lost.answer_to(asked).0.status.is_error());
    holder.ask(Command::LOCK, |out| lock(theirs, LockFlags::UNLOCK).emit(out));
    let mine = again.open("f", |_| {}).id;
    let taken = again.ask(Command::LOCK, |out| lock(mine, at_once).emit(out)).0.status;
    assert_eq!(taken, NtStatus::SUCCESS);
}

#[test]
fn nothing_a_replaced_session_had_open_is_in_the_way() {
    let fixture = Fixture::start();
    let alone = |request: &mut CreateRequest<'_>| {
        request.share_access = ShareAccess::empty();
        request.options |= CreateOptions::DELETE_ON_CLOSE;
    };
    let mut wire = fixture.client(1);
    for round in 0..ROUNDS {
        for file in 0..FILES {
            let opened = wire.open(&format!("f{file}"), alone);
            assert_eq!(opened.status, NtStatus::SUCCESS);
            assert_eq!(opened.response().action, CreateAction::CREATED, "the one before is gone");
        }
        let lost = wire;
        // Now the server may learn of the end before, and now from the logon alone.
        if round % 2 == 0 {
            lost.stream.shutdown(Shutdown::Both).unwrap();
        }
        wire = fixture.again(1, &lost);
    }
}

#[test]
fn no_break_comes_before_the_answer_to_the_logon() {
    let fixture = Fixture::start_with_one_thread();
    let mut other = fixture.client(2);
    let made = other.open("f", |_| {}).id;
    assert_eq!(other.close(made), NtStatus::SUCCESS);
    // A session that the logon replaces: it ends on the one thread, and the answer waits for that.
    let mut lost = fixture.client(3);
    assert_eq!(lost.open("of lost", |_| {}).status, NtStatus::SUCCESS);
    let taken = fixture.take_thread();
    let mut first = fixture.dial();
    first.negotiate(1);
    first.previous = lost.session;
    let (asked, answer) = first.try_password("user", "secret");
    assert_eq!(answer, None, "held back");

    let mut second = fixture.client(1);
    assert_eq!(open_leased(&mut second, "f", 9).status, NtStatus::SUCCESS);
    other.start_open("f", |request| request.disposition = CreateDisposition::OPEN);
    assert_eq!(second.notification().0.command, Command::OPLOCK_BREAK);
    drop(taken);
    assert_eq!(first.receive().0.message_id.0, asked, "the answer, and nothing before it");
}

#[test]
fn what_is_still_on_its_way_when_a_session_is_replaced_never_arrives() {
    let fixture = Fixture::start();
    let path = fixture.dir.path().join("f");
    let mut lost = fixture.client(1);
    for _ in 0..ROUNDS {
        let id = lost.open("f", |_| {}).id;
        for at in 0..WRITES {
            lost.start(Command::WRITE, |out| write(id, at, &[1; 64]).emit(out));
        }
        let overwrites = create("f", |request| {
            request.disposition = CreateDisposition::OVERWRITE_IF;
        });
        lost.start(Command::CREATE, |out| overwrites.emit(out));
        let mut wire = fixture.dial();
        wire.negotiate(1);
        wire.previous = lost.session;
        wire.log_on();
        let at_once = std::fs::read(&path).unwrap();
        // Everything that was sent has been looked at once the connection is gone.
        drop(lost);
        while fixture.running.status().connections > 1 {
            std::thread::yield_now();
        }
        assert_eq!(std::fs::read(&path).unwrap(), at_once);
        wire.enter("data");
        lost = wire;
    }
}

/// Enough for a race of some microseconds to be lost now and then.
const ROUNDS: usize = 30;
/// Opens that a session leaves behind.
const FILES: usize = 20;
/// Requests that may not have been read when the client is back.
const WRITES: u64 = 20;
