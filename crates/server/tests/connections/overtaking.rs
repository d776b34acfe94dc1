//! What must not overtake what: a break the answer that granted what it takes, an open the removal
//! of the file before it, the end of a connection the answer that another one waits for.

use std::sync::atomic::{AtomicBool, Ordering};

use smb::create::{
    AccessMask, CreateAction, CreateDisposition, CreateOptions, CreateRequest,
    CreateRequestContext, DurableRequestV2, OplockLevel, ShareAccess,
};
use smb::info::RenameFlags;
use smb::{
    BreakNotification, Command, Guid, HeaderFlags, LockElement, LockFlags, LockRequest, NtStatus,
};

use crate::support::compound::with_header;
use crate::support::{Fixture, Opened, Wire, create};

#[test]
fn a_break_does_not_overtake_the_answer_that_granted_the_oplock() {
    let fixture = Fixture::start();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = fixture.client(2);
            while !is_over.load(Ordering::Relaxed) {
                let opened = other.open("f", |_| {});
                assert_eq!(opened.status, NtStatus::SUCCESS);
                other.close(opened.id);
            }
        });
        let mut wire = fixture.client(1);
        for _ in 0..ROUNDS {
            let opened = wire.open("f", |request| request.oplock_level = OplockLevel::BATCH);
            let is_early = wire.unsolicited.iter().any(|(_, pdu)| {
                let parsed = BreakNotification::parse(pdu);
                matches!(parsed, Ok(BreakNotification::Oplock(one)) if one.file_id == opened.id)
            });
            wire.unsolicited.clear();
            if is_early || wire.close(opened.id) != NtStatus::SUCCESS {
                is_over.store(true, Ordering::Relaxed);
                panic!("a break of an oplock nobody has heard of");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_file_that_goes_with_its_last_open_is_gone_when_the_name_is_opened_again() {
    let fixture = Fixture::start();
    let alone = |request: &mut CreateRequest<'_>| {
        request.share_access = ShareAccess::empty();
        request.oplock_level = OplockLevel::BATCH;
        request.options |= CreateOptions::DELETE_ON_CLOSE;
    };
    let mut wire = fixture.client(1);
    assert_eq!(wire.open("f", alone).status, NtStatus::SUCCESS);
    for _ in 0..ROUNDS {
        // The server may learn of the end before, while or after it is asked for the name.
        drop(wire);
        wire = fixture.client(1);
        let opened = wire.open("f", alone);
        assert_eq!(opened.status, NtStatus::SUCCESS);
        assert_eq!(opened.response().action, CreateAction::CREATED);
    }
}

#[test]
fn a_create_that_may_make_its_file_is_never_told_that_there_is_none() {
    let fixture = Fixture::start();
    let (is_over, file) = (AtomicBool::new(false), fixture.dir.path().join("f"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                std::fs::write(&file, b"").unwrap();
                let _ = std::fs::remove_file(&file);
            }
        });
        let mut wire = fixture.client(1);
        let statuses: Vec<_> = (0..20 * ROUNDS)
            .map(|_| {
                let opened = wire.open("f", |request| {
                    request.options |= CreateOptions::DELETE_ON_CLOSE;
                });
                if opened.status == NtStatus::SUCCESS {
                    wire.close(opened.id);
                }
                opened.status
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        // Who loses the name again and again is refused in the end, in words that are true.
        let is_true =
            |status: &NtStatus| [NtStatus::SUCCESS, NtStatus::SHARING_VIOLATION].contains(status);
        assert!(statuses.iter().all(is_true), "{statuses:?}");
    });
}

#[test]
fn a_create_that_waits_outlives_its_channel_and_its_copy_gets_what_came_of_it() {
    let fixture = Fixture::start();
    let mut holder = fixture.client(2);
    let held = holder.open("f", |request| request.oplock_level = OplockLevel::BATCH);
    let mut first = fixture.client(1);
    let mut second = fixture.dial();
    second.negotiate(1);
    assert_eq!(second.join(&first, ("user", "secret")), NtStatus::SUCCESS);
    let asked = DurableRequestV2 { timeout_ms: 0, persistent: false, create_guid: Guid([5; 16]) };
    let request = create("f", |request| {
        request.oplock_level = OplockLevel::BATCH;
        request.disposition = CreateDisposition::OPEN;
        request.contexts.push(CreateRequestContext::DurableV2(asked));
    });
    first.start(Command::CREATE, |out| request.emit(out));
    holder.notification();
    drop(first);
    while fixture.running.status().connections > 2 {
        std::thread::yield_now();
    }
    let waits = replay(&mut second, &request);
    assert_eq!(waits.status, NtStatus::FILE_NOT_AVAILABLE, "the first copy is under way");
    assert_eq!(holder.close(held.id), NtStatus::SUCCESS);
    let opened = loop {
        let opened = replay(&mut second, &request);
        if opened.status != NtStatus::FILE_NOT_AVAILABLE {
            break opened;
        }
    };
    assert_eq!(opened.status, NtStatus::SUCCESS);
    assert_eq!(opened.response().oplock_level, OplockLevel::BATCH);
    assert_eq!(fixture.running.status().opens, 1, "the copy opened nothing");
    assert_eq!(second.close(opened.id), NtStatus::SUCCESS);
}

#[test]
fn a_create_that_waits_ends_with_the_last_channel_of_its_session() {
    let fixture = Fixture::start();
    let mut holder = fixture.client(2);
    let held = holder.open("f", |request| request.oplock_level = OplockLevel::BATCH);
    let mut first = fixture.client(1);
    let asked = DurableRequestV2 { timeout_ms: 0, persistent: false, create_guid: Guid([5; 16]) };
    first.start_open("f", |request| {
        request.contexts.push(CreateRequestContext::DurableV2(asked));
    });
    holder.notification();
    drop(first);
    while fixture.running.status().sessions > 1 {
        std::thread::yield_now();
    }
    assert_eq!(holder.close(held.id), NtStatus::SUCCESS);
    let status = fixture.running.status();
    assert_eq!((status.opens, status.orphans), (0, 0));
}

#[test]
fn a_lock_that_waits_is_the_answer_to_its_copy_over_another_channel() {
    let fixture = Fixture::start();
    let mut holder = fixture.client(2);
    let held = holder.open("f", |_| {}).id;
    let mut first = fixture.client(1);
    let mut second = fixture.dial();
    second.negotiate(1);
    assert_eq!(second.join(&first, ("user", "secret")), NtStatus::SUCCESS);
    let id = first.open("f", |_| {}).id;
    let lock = |file_id, lock_sequence, flags| {
        let locks = vec![LockElement { offset: 0, length: 10, flags }];
        LockRequest { lock_sequence, file_id, locks }
    };
    let taken = lock(held, 0, LockFlags::EXCLUSIVE);
    assert_eq!(holder.ask(Command::LOCK, |out| taken.emit(out)).0.status, NtStatus::SUCCESS);
    let waits = lock(id, 0x11, LockFlags::EXCLUSIVE);
    let asked = first.start(Command::LOCK, |out| waits.emit(out));
    assert_eq!(first.receive().0.status, NtStatus::PENDING);
    let copied = second.start(Command::LOCK, |out| waits.emit(out));
    assert_eq!(second.receive().0.status, NtStatus::PENDING);
    let back = lock(held, 0, LockFlags::UNLOCK);
    assert_eq!(holder.ask(Command::LOCK, |out| back.emit(out)).0.status, NtStatus::SUCCESS);
    for (wire, id) in [(&mut first, asked), (&mut second, copied)] {
        let (header, _) = wire.receive();
        assert_eq!((header.message_id.0, header.status), (id, NtStatus::SUCCESS));
    }
    // It was taken once: given back once, it is free.
    let back = lock(id, 0x21, LockFlags::UNLOCK);
    assert_eq!(second.ask(Command::LOCK, |out| back.emit(out)).0.status, NtStatus::SUCCESS);
    assert_eq!(first.ask(Command::LOCK, |out| back.emit(out)).0.status, NtStatus::SUCCESS);
    let once_more = lock(id, 0x31, LockFlags::UNLOCK);
    let (header, _) = first.ask(Command::LOCK, |out| once_more.emit(out));
    assert_eq!(header.status, NtStatus::RANGE_NOT_LOCKED);
}

#[test]
fn copies_of_a_lock_that_waits_are_bounded() {
    let fixture = Fixture::start();
    let mut holder = fixture.client(2);
    let held = holder.open("f", |_| {}).id;
    let lock = |file_id, lock_sequence, flags| {
        let locks = vec![LockElement { offset: 0, length: 10, flags }];
        LockRequest { lock_sequence, file_id, locks }
    };
    let taken = lock(held, 0, LockFlags::EXCLUSIVE);
    assert_eq!(holder.ask(Command::LOCK, |out| taken.emit(out)).0.status, NtStatus::SUCCESS);
    let mut wire = fixture.client(1);
    let id = wire.open("f", |_| {}).id;
    let waits = lock(id, 0x11, LockFlags::EXCLUSIVE);
    for copy in 0..=LOCK_COPIES_PER_OPEN_MAX {
        let asked = wire.start(Command::LOCK, |out| waits.emit(out));
        let (header, _) = wire.receive();
        let answer = (header.message_id.0, header.status);
        assert_eq!(answer, (asked, NtStatus::PENDING), "{copy}");
    }
    let (header, _) = wire.ask(Command::LOCK, |out| waits.emit(out));
    assert_eq!(header.status, NtStatus::INSUFFICIENT_RESOURCES);
    let back = lock(held, 0, LockFlags::UNLOCK);
    assert_eq!(holder.ask(Command::LOCK, |out| back.emit(out)).0.status, NtStatus::SUCCESS);
    for _ in 0..=LOCK_COPIES_PER_OPEN_MAX {
        assert_eq!(wire.receive().0.status, NtStatus::SUCCESS);
    }
}

#[test]
fn a_lock_that_waits_ends_with_its_open_and_leaves_the_range_to_the_next() {
    let fixture = Fixture::start();
    let mut wires: Vec<_> = (1..=3).map(|number| fixture.client(number)).collect();
    let opens: Vec<_> = wires.iter_mut().map(|wire| wire.open("f", |_| {}).id).collect();
    let locks = vec![LockElement { offset: 0, length: 10, flags: LockFlags::EXCLUSIVE }];
    let mut asked = Vec::new();
    for (wire, file_id) in wires.iter_mut().zip(&opens) {
        let request = LockRequest { lock_sequence: 0, file_id: *file_id, locks: locks.clone() };
        asked.push(wire.start(Command::LOCK, |out| request.emit(out)));
        let first = wire.receive().0.status;
        let is_first = asked.len() == 1;
        assert_eq!(first, if is_first { NtStatus::SUCCESS } else { NtStatus::PENDING });
    }
    // The second, which waits, is closed; the first, which holds the range, after it.
    let close = smb::CloseRequest { query_attributes: false, file_id: opens[1] };
    let closed = wires[1].start(Command::CLOSE, |out| close.emit(out));
    let mut answers: Vec<_> = (0..2)
        .map(|_| wires[1].receive().0)
        .map(|header| (header.message_id.0, header.status))
        .collect();
    answers.sort_unstable_by_key(|answer| answer.0);
    assert_eq!(answers, [(asked[1], NtStatus::RANGE_NOT_LOCKED), (closed, NtStatus::SUCCESS)]);
    assert_eq!(wires[0].close(opens[0]), NtStatus::SUCCESS);
    let (header, _) = wires[2].receive();
    assert_eq!((header.message_id.0, header.status), (asked[2], NtStatus::SUCCESS));
}

#[test]
fn a_rename_that_comes_again_finds_it_done() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let id = wire.open("f", |request| request.desired_access |= AccessMask::DELETE).id;
    for _ in 0..2 {
        assert_eq!(wire.rename(id, "g", RenameFlags::empty()), NtStatus::SUCCESS);
    }
    assert!(fixture.dir.path().join("g").exists() && !fixture.dir.path().join("f").exists());
}

/// Sends a CREATE with the replay flag.
fn replay(wire: &mut Wire, request: &CreateRequest<'_>) -> Opened {
    let id = wire.next_id;
    let mut pdu = wire.pdu(Command::CREATE, |out| request.emit(out));
    with_header(&mut pdu, |header| header.flags |= HeaderFlags::REPLAY);
    wire.sign(&mut pdu);
    wire.send_frame(&pdu);
    wire.finish_open(id)
}

/// Enough for a race of some microseconds to be lost now and then.
const ROUNDS: usize = 100;
/// Copies of LOCK requests of one open that wait.
const LOCK_COPIES_PER_OPEN_MAX: usize = 64;
