//! Lifetime of durable opens: they come back, are given up and are asked for again, all at once.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use smb::create::{
    CreateRequest, CreateRequestContext, DurableReconnectV2, DurableRequestV2, OplockLevel,
};
use smb::{Command, FileId, Guid, Header, HeaderFlags, LockFlags, NtStatus};

use crate::peer::{close, left_nothing, lock, start, until};
use crate::support::{Opened, Wire, create, read};

const GUID: Guid = Guid([5; 16]);
const ROUNDS: u32 = 12;

fn asks(timeout_ms: u32) -> impl Fn(&mut CreateRequest<'_>) {
    move |request| {
        let asked = DurableRequestV2 { timeout_ms, persistent: false, create_guid: GUID };
        request.oplock_level = OplockLevel::BATCH;
        request.contexts.push(CreateRequestContext::DurableV2(asked));
    }
}

fn take_back(wire: &mut Wire, id: FileId) -> Opened {
    let back = DurableReconnectV2 { file_id: id, create_guid: GUID, persistent: false };
    wire.open("f", |request| {
        request.contexts.push(CreateRequestContext::DurableReconnectV2(back));
    })
}

/// CVE-2025-22037 and its kin: of many who take one open back, one gets it, with its lock.
#[test]
fn a_durable_open_that_many_take_back_goes_to_one() {
    let fixture = start();
    // Those who do not get it are kept waiting for two seconds: not often.
    for _ in 0..2 {
        let mut first = fixture.client(1);
        let opened = first.open("f", asks(0));
        let alone = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
        first.ask(Command::LOCK, |out| lock(opened.id, 0, alone).emit(out));
        let mut wires: Vec<_> = (0..4).map(|_| fixture.client(1)).collect();
        let together = Barrier::new(wires.len() + 1);
        let mut winners = std::thread::scope(|scope| {
            let (together, id) = (&together, opened.id);
            let ask = |wire| {
                scope.spawn(move || {
                    together.wait();
                    let back = take_back(wire, id);
                    (back.status == NtStatus::SUCCESS).then_some(back.id)
                })
            };
            let all: Vec<_> = wires.iter_mut().map(ask).collect();
            together.wait();
            drop(first);
            let all = all.into_iter().map(|one| one.join().unwrap());
            all.enumerate().filter_map(|(index, id)| Some((index, id?))).collect::<Vec<_>>()
        });
        assert_eq!(winners.len(), 1);
        let (winner, id) = winners.remove(0);
        let wire = &mut wires[winner];
        let (header, _) = wire.ask(Command::LOCK, |out| lock(id, 0, LockFlags::UNLOCK).emit(out));
        assert_eq!(header.status, NtStatus::SUCCESS, "its lock came with it");
        wire.ask(Command::CLOSE, |out| close(id).emit(out));
        assert_eq!(fixture.running.status().opens, 0);
    }
    left_nothing(&fixture);
}

/// CVE-2026-31718: the time of a durable open with locks is over, while its client comes back.
#[test]
fn a_durable_open_with_locks_races_the_end_of_its_time() {
    let fixture = start();
    for round in 0..ROUNDS {
        // Beside the last round's open this one would not be durable.
        until(&fixture, |status| status.opens == 0);
        let mut first = fixture.client(1);
        let opened = first.open("f", asks(1 + round % 3));
        let alone = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
        first.ask(Command::LOCK, |out| lock(opened.id, 0, alone).emit(out));
        let mut again = fixture.client(1);
        drop(first);
        // A little later each time: the end of its time is met from both sides.
        let later = Instant::now() + Duration::from_micros(u64::from(300 * round));
        while Instant::now() < later {
            std::thread::yield_now();
        }
        let back = take_back(&mut again, opened.id);
        match back.status {
            NtStatus::SUCCESS => {
                again.ask(Command::CLOSE, |out| close(back.id).emit(out));
            }
            NtStatus::OBJECT_NAME_NOT_FOUND => {}
            status => panic!("{status:?}"),
        }
        until(&fixture, |status| (status.opens, status.orphans, status.leases) == (0, 0, 0));
        let id = again.open("f", |_| {}).id;
        let (header, _) = again.ask(Command::LOCK, |out| lock(id, 0, alone).emit(out));
        assert_eq!(header.status, NtStatus::SUCCESS);
    }
    left_nothing(&fixture);
}

/// CVE-2026-23427: a CREATE that comes again takes an open that another connection works with.
#[test]
fn a_create_that_comes_again_elsewhere_does_not_take_an_open_in_use() {
    let fixture = start();
    let mut first = fixture.client(1);
    let opened = first.open("f", asks(0));
    for _ in 0..ROUNDS {
        let mut thief = fixture.client(1);
        let message = thief.next_id;
        let mut pdu = thief.pdu(Command::CREATE, |out| create("f", asks(0)).emit(out));
        let mut header = Header::parse(&pdu).unwrap();
        header.flags |= HeaderFlags::REPLAY;
        let mut flagged = Vec::new();
        header.emit(&mut flagged);
        pdu.splice(..Header::LEN, flagged);
        thief.sign(&mut pdu);
        thief.send_frame(&pdu);
        assert_eq!(thief.finish_open(message).status, NtStatus::FILE_NOT_AVAILABLE);
    }
    until(&fixture, |status| status.connections == 1);
    let (header, _) = first.ask(Command::READ, |out| read(opened.id, 0, 1).emit(out));
    assert_eq!(header.status, NtStatus::END_OF_FILE, "it is still there, and empty");
    first.ask(Command::CLOSE, |out| close(opened.id).emit(out));
    drop(first);
    left_nothing(&fixture);
}
