//! Clients whose machine or network is gone: they end without a last word, and keep nothing.

#[path = "../../../rdma/tests/support/network.rs"]
mod network;

use std::time::{Duration, Instant};

use network::alone;
use server::Status;
use smb::create::{CreateRequestContext, DurableRequestV2, OplockLevel, ShareAccess};
use smb::{Command, Guid, LockElement, LockFlags, LockRequest, NtStatus};

use crate::support::{Fixture, Wire, read};

fn start() -> Fixture {
    Fixture::start_with(|config| config.limits.silence_max = Some(Duration::from_secs(2)))
}

fn until(fixture: &Fixture, reached: impl Fn(&Status) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = fixture.running.status();
        if reached(&status) {
            return;
        }
        assert!(Instant::now() < deadline, "left over: {status:?}");
        std::thread::yield_now();
    }
}

/// A file that nobody else may open, with a lock in it.
fn hold(wire: &mut Wire) {
    let opened = wire.open("held", |request| request.share_access = ShareAccess::empty());
    assert_eq!(opened.status, NtStatus::SUCCESS);
    let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    let locks = vec![LockElement { offset: 0, length: 10, flags }];
    let request = LockRequest { lock_sequence: 0, file_id: opened.id, locks };
    let (header, _) = wire.ask(Command::LOCK, |out| request.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
}

#[test]
fn what_a_vanished_client_had_open_is_free_and_what_is_durable_waits() {
    alone(
        "vanished::what_a_vanished_client_had_open_is_free_and_what_is_durable_waits",
        |network| {
            let fixture = start();
            let mut vanishes = fixture.client(1);
            hold(&mut vanishes);
            let durable =
                DurableRequestV2 { timeout_ms: 0, persistent: false, create_guid: Guid([5; 16]) };
            let opened = vanishes.open("durable", |request| {
                request.oplock_level = OplockLevel::BATCH;
                request.contexts.push(CreateRequestContext::DurableV2(durable));
            });
            assert_eq!(opened.status, NtStatus::SUCCESS);
            let mut stranger = fixture.dial();
            stranger.negotiate(2);
            let mut other = fixture.client(3);
            assert_eq!(other.open("held", |_| {}).status, NtStatus::SHARING_VIOLATION);
            network.cut();
            until(&fixture, |status| status.connections == 0);
            until(&fixture, |status| (status.sessions, status.opens, status.orphans) == (0, 0, 1));
            network.mend();
            let mut next = fixture.client(4);
            assert_eq!(next.open("held", |_| {}).status, NtStatus::SUCCESS);
        },
    );
}

#[test]
fn a_client_that_vanishes_in_the_middle_of_an_answer_is_noticed() {
    alone("vanished::a_client_that_vanishes_in_the_middle_of_an_answer_is_noticed", |network| {
        let fixture = start();
        std::fs::write(fixture.dir.path().join("long"), vec![7; 8 << 20]).unwrap();
        let mut wire = fixture.client(1);
        let id = wire.open("long", |_| {}).id;
        hold(&mut wire);
        // Credits for the answers; then more of them than sockets hold, none of which is read.
        for _ in 0..16 {
            wire.read(id, 1);
        }
        for _ in 0..16 {
            let mut pdu = wire.pdu(Command::READ, |out| read(id, 0, 1 << 20).emit(out));
            pdu[6..8].copy_from_slice(&16_u16.to_le_bytes());
            wire.next_id += 15;
            wire.sign(&mut pdu);
            wire.send_frame(&pdu);
        }
        network.cut();
        until(&fixture, |status| (status.connections, status.opens) == (0, 0));
    });
}

/// Shorter than the time after which a peer that reads nothing is dropped for that.
const PATIENCE: Duration = Duration::from_secs(40);
