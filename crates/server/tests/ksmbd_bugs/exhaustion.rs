//! Exhaustion before login: what a peer can make the server keep without proving who it is.

use std::io::Write;

use smb::{Command, Empty, NtStatus};

use crate::peer::{USER, left_nothing, receive, start, start_with, until};
use crate::support::Wire;
use crate::support::logon::{first_token, session_setup};

fn begin(wire: &mut Wire) -> NtStatus {
    let (user, password) = USER;
    let token = first_token(user, password);
    wire.session = 0;
    wire.ask(Command::SESSION_SETUP, |out| session_setup(&token).emit(out)).0.status
}

/// CVE-2023-32247: each SESSION_SETUP that leads nowhere leaves a session behind.
#[test]
fn half_sessions_of_a_connection_are_bounded_and_are_no_sessions() {
    let fixture = start();
    let mut wires: Vec<_> = (0..20).map(|_| fixture.dial()).collect();
    for wire in &mut wires {
        wire.negotiate(1);
        let statuses: Vec<_> = (0..50).map(|_| begin(wire)).collect();
        let begun = statuses.iter().filter(|&&one| one == NtStatus::MORE_PROCESSING_REQUIRED);
        assert_eq!(begun.count(), 4);
        let refused = statuses.iter().filter(|&&one| one == NtStatus::INSUFFICIENT_RESOURCES);
        assert_eq!(refused.count(), 46);
    }
    let status = fixture.running.status();
    assert_eq!((status.sessions, status.unauthenticated), (0, 20));
    drop(wires);
    left_nothing(&fixture);
}

/// CVE-2026-23228, CVE-2026-31711: a place among the connections is lost with each that fails.
#[test]
fn connections_that_fail_give_their_places_back() {
    let fixture = start_with(|config| config.limits.connections_max = 16);
    for round in 0..96 {
        let mut wire = fixture.dial();
        match round % 6 {
            0 => {}
            1 => wire.stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap(),
            2 => wire.stream.write_all(&[0, 0, 0, 64, 0xfe, b'S', b'M']).unwrap(),
            3 => drop(wire.negotiate(1)),
            4 => {
                wire.negotiate(1);
                begin(&mut wire);
            }
            _ => {
                wire.negotiate(1);
                wire.start(Command::NEGOTIATE, |out| Empty.emit(out));
                assert!(wire.is_closed());
            }
        }
        drop(wire);
        // Sixteen at a time: those before have gone, or there is no place for the next.
        if round % 12 == 11 {
            until(&fixture, |status| status.connections == 0);
        }
    }
    assert_eq!(fixture.running.status().connections_refused, 0);
    left_nothing(&fixture);
}

/// CVE-2025-38501: connections of one address that say nothing keep all others out.
#[test]
fn connections_that_say_nothing_keep_nobody_out() {
    let fixture = start_with(|config| config.limits.unauthenticated_max = 8);
    let silent: Vec<_> = (0..100).map(|_| fixture.dial()).collect();
    for _ in 0..20 {
        fixture.client(1);
    }
    assert!(fixture.running.status().unauthenticated <= 8);
    drop(silent);
    left_nothing(&fixture);
}

/// CVE-2023-38431, CVE-2023-32251: memory for what a stranger announces, answers without end.
#[test]
fn a_stranger_is_given_few_credits_and_small_frames() {
    let fixture = start();
    let mut wire = fixture.dial();
    wire.negotiate(1);
    let mut granted = 0;
    for _ in 0..40 {
        let id = wire.next_id;
        let mut pdu = wire.pdu(Command::ECHO, |out| Empty.emit(out));
        pdu[14..16].copy_from_slice(&u16::MAX.to_le_bytes());
        wire.send_frame(&pdu);
        let (header, _) = wire.answer_to(id);
        assert_eq!(header.status, NtStatus::SUCCESS);
        granted += u32::from(header.credits);
    }
    assert!(granted <= 512 + 40, "{granted} credits");
    // A frame of 16 MiB is hung up on before any of it has come.
    wire.stream.write_all(&[0, 0xff, 0xff, 0xff]).unwrap();
    assert!(receive(&mut wire).is_none());
    left_nothing(&fixture);
}
