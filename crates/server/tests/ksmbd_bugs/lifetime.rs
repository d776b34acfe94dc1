//! Lifetime: what one connection ends while others use it.
//!
//! Each race runs [`ROUNDS`] times, with the threads let go at once. Whatever wins, every request
//! is answered or its connection ends, nothing panics, and nothing is left.

use std::net::Shutdown;
use std::sync::Barrier;

use smb::create::{CreateRequest, CreateRequestContext, OplockLevel, ShareAccess};
use smb::info::FileInfoClass;
use smb::{
    BreakNotification, Command, Empty, FileId, HeaderFlags, LeaseBreakAck, LockFlags, NtStatus,
};

use crate::peer::{Burst, close, joined, lease, left_nothing, lock, receive, serves, start, until};
use crate::support::compound::{compound, headers, related};
use crate::support::{Fixture, Wire, create, read, set, write};

const ROUNDS: u8 = 12;
const CHANNELS: u8 = 3;

/// Everything that can be done to a file, and files opened meanwhile.
fn everything(wire: &mut Wire, channel: u8, id: FileId) -> Burst {
    let mut burst = Burst::default();
    for turn in 0..3 {
        let name = format!("f{channel}.{turn}");
        let leased = |request: &mut CreateRequest<'_>| {
            request.oplock_level = OplockLevel::LEASE;
            request.contexts.push(CreateRequestContext::Lease(lease(10 * channel + turn)));
        };
        burst.add(wire, Command::CREATE, |out| create(&name, leased).emit(out));
        burst.add(wire, Command::WRITE, |out| write(id, 0, &[turn; 9000]).emit(out));
        let at = u64::from(channel);
        burst.add(wire, Command::LOCK, |out| lock(id, at, LockFlags::EXCLUSIVE).emit(out));
        burst.add(wire, Command::READ, |out| read(id, 0, 9000).emit(out));
        let length = 4096_u64.to_le_bytes();
        burst.add(wire, Command::SET_INFO, |out| {
            set(id, FileInfoClass::END_OF_FILE, &length).emit(out)
        });
        burst.add(wire, Command::LOCK, |out| lock(id, at, LockFlags::UNLOCK).emit(out));
        // On the file that somebody else has open too: a lease or share mode left behind would stay.
        burst.add(wire, Command::CREATE, |out| create("shared", leased).emit(out));
    }
    burst
}

/// Opens the file that all are about.
fn opened(wire: &mut Wire) -> FileId {
    let opened = wire.open("shared", |_| {});
    assert_eq!(opened.status, NtStatus::SUCCESS);
    opened.id
}

/// Waits until nobody of the last round is left, who might share the files or lease them: a session is gone before what it
/// had open is closed.
fn settle(fixture: &Fixture) {
    until(fixture, |status| (status.sessions, status.opens, status.files) == (0, 0, 0));
}

/// A session of several channels with one file open, all at work while `end` is done to it.
fn race(fixture: &Fixture, end: impl Fn(&mut Wire, FileId) + Sync) {
    for _ in 0..ROUNDS {
        settle(fixture);
        let mut first = fixture.client(1);
        let id = opened(&mut first);
        // Somebody else keeps the file's node alive: what is left on it would stay.
        let mut witness = fixture.client(2);
        let seen = opened(&mut witness);
        let mut others: Vec<_> = (0..CHANNELS).map(|_| joined(fixture, &first)).collect();
        let together = Barrier::new(others.len() + 1);
        std::thread::scope(|scope| {
            for (channel, wire) in (0..).zip(&mut others) {
                let together = &together;
                scope.spawn(move || {
                    let burst = everything(wire, channel, id);
                    together.wait();
                    burst.run(wire);
                });
            }
            together.wait();
            end(&mut first, id);
        });
        drop((first, others));
        until(fixture, |status| (status.sessions, status.opens) == (1, 1));
        // No lock, no lease and no share mode is left of them; what is still being closed is waited for.
        for offset in 0..u64::from(CHANNELS) {
            let request = lock(seen, offset, LockFlags::EXCLUSIVE);
            let (header, _) = witness.ask(Command::LOCK, |out| request.emit(out));
            assert_eq!(header.status, NtStatus::SUCCESS, "a lock of nobody's at {offset}");
        }
        witness.ask(Command::CLOSE, |out| close(seen).emit(out));
        until(fixture, |status| status.files == 0);
        let exclusive = witness.open("shared", |open| open.share_access = ShareAccess::empty());
        assert_eq!(exclusive.status, NtStatus::SUCCESS);
    }
    left_nothing(fixture);
}

/// CVE-2025-37899, CVE-2023-32258: LOGOFF frees what requests of other channels still use.
#[test]
fn a_logoff_races_requests_on_every_channel() {
    race(&start(), |first, _| {
        let (header, _) = first.ask(Command::LOGOFF, |out| Empty.emit(out));
        assert_eq!(header.status, NtStatus::SUCCESS);
    });
}

/// CVE-2022-47939, CVE-2023-32254: TREE_DISCONNECT frees the tree under requests that use it.
#[test]
fn a_tree_disconnect_races_requests_on_every_channel() {
    race(&start(), |first, _| {
        let (header, _) = first.ask(Command::TREE_DISCONNECT, |out| Empty.emit(out));
        assert_eq!(header.status, NtStatus::SUCCESS);
    });
}

/// CVE-2023-32256, CVE-2025-21945: CLOSE frees the file under a LOCK and a READ of it.
#[test]
fn a_close_races_requests_on_every_channel() {
    race(&start(), |first, id| {
        let (header, _) = first.ask(Command::CLOSE, |out| close(id).emit(out));
        assert_eq!(header.status, NtStatus::SUCCESS);
    });
}

/// CVE-2026-23226: the end of a connection frees a channel while another one looks it up.
#[test]
fn the_end_of_a_connection_races_requests_on_the_other_channels() {
    race(&start(), |first, _| first.stream.shutdown(Shutdown::Both).unwrap());
}

/// CVE-2024-53186: the last connection ends with requests under way.
#[test]
fn all_connections_end_under_requests() {
    let fixture = start();
    for _ in 0..ROUNDS {
        settle(&fixture);
        let mut first = fixture.client(1);
        let id = opened(&mut first);
        let mut wires: Vec<_> = (0..CHANNELS).map(|_| joined(&fixture, &first)).collect();
        wires.push(first);
        let together = Barrier::new(wires.len());
        std::thread::scope(|scope| {
            for (channel, mut wire) in (0..).zip(wires) {
                let together = &together;
                scope.spawn(move || {
                    let burst = everything(&mut wire, channel, id);
                    together.wait();
                    burst.send(&mut wire);
                });
            }
        });
    }
    left_nothing(&fixture);
}

/// CVE-2023-32256: one handle closed by several channels is freed once.
#[test]
fn a_handle_closed_on_every_channel_is_closed_once() {
    let fixture = start();
    let first = fixture.client(1);
    let mut wires: Vec<_> = (0..CHANNELS).map(|_| joined(&fixture, &first)).collect();
    wires.push(first);
    for _ in 0..ROUNDS {
        let id = opened(&mut wires[0]);
        let together = Barrier::new(wires.len());
        let closed: usize = std::thread::scope(|scope| {
            let mut all = Vec::new();
            for wire in &mut wires {
                let together = &together;
                all.push(scope.spawn(move || {
                    let mut burst = Burst::default();
                    burst.add(wire, Command::READ, |out| read(id, 0, 1).emit(out));
                    burst.add(wire, Command::CLOSE, |out| close(id).emit(out));
                    together.wait();
                    burst.run(wire)[1] == Some(NtStatus::SUCCESS)
                }));
            }
            all.into_iter().map(|one| usize::from(one.join().unwrap())).sum()
        });
        assert_eq!(closed, 1);
        assert_eq!(fixture.running.status().opens, 0);
    }
    drop(wires);
    left_nothing(&fixture);
}

/// CVE-2026-23428: a compound goes on in a tree, or a session, that its first request has ended.
#[test]
fn a_compound_finds_nothing_of_what_its_first_request_ended() {
    let fixture = start();
    for ends in [Command::TREE_DISCONNECT, Command::LOGOFF] {
        let mut wire = fixture.client(1);
        let id = wire.open("f", |_| {}).id;
        let end = wire.pdu(ends, |out| Empty.emit(out));
        let request = create("made", |_| {});
        let pdus = vec![
            end,
            related(&mut wire, Command::CREATE, |out| request.emit(out)),
            related(&mut wire, Command::WRITE, |out| write(id, 0, b"late").emit(out)),
            related(&mut wire, Command::TREE_DISCONNECT, |out| Empty.emit(out)),
        ];
        let frame = compound(&wire, pdus);
        wire.send_frame(&frame);
        let answers = headers(&receive(&mut wire).unwrap());
        assert_eq!(answers.len(), 4);
        assert_eq!(answers[0].status, NtStatus::SUCCESS);
        assert!(answers[1..].iter().all(|header| header.status.is_error()), "{answers:?}");
        assert!(!fixture.dir.path().join("made").exists());
        assert_eq!(std::fs::read(fixture.dir.path().join("f")).unwrap(), b"");
    }
    left_nothing(&fixture);
}

/// CVE-2023-32250, CVE-2023-32257: SESSION_SETUP races LOGOFF of the session it is for.
#[test]
fn a_bind_races_the_logoff_of_its_session() {
    let fixture = start();
    for _ in 0..ROUNDS {
        let mut first = fixture.client(1);
        let keys = first.keys.take();
        let mut named = fixture.dial();
        (named.session, named.tree, named.keys) = (first.session, first.tree, keys);
        let mut others: Vec<_> = (0..CHANNELS).map(|_| fixture.dial()).collect();
        others.iter_mut().for_each(|wire| drop(wire.negotiate(1)));
        let together = Barrier::new(others.len() + 1);
        std::thread::scope(|scope| {
            for wire in &mut others {
                let (together, named) = (&together, &named);
                scope.spawn(move || {
                    together.wait();
                    let status = wire.join(named, crate::peer::USER);
                    let may = [NtStatus::SUCCESS, NtStatus::USER_SESSION_DELETED];
                    assert!(may.contains(&status), "{status:?}");
                    // Whatever it was told, there is no session to work in soon.
                    let mut burst = Burst::default();
                    burst.add(wire, Command::CREATE, |out| create("f", |_| {}).emit(out));
                    burst.run(wire);
                });
            }
            first.keys = None;
            let mut logoff = first.pdu(Command::LOGOFF, |out| Empty.emit(out));
            named.sign(&mut logoff);
            together.wait();
            first.send_frame(&logoff);
            assert_eq!(first.receive().0.status, NtStatus::SUCCESS);
        });
        settle(&fixture);
    }
    left_nothing(&fixture);
}

/// CVE-2026-43376, CVE-2026-43378, CVE-2025-37776: a lease is broken while its holder ends.
#[test]
fn a_lease_break_races_the_end_of_its_holder() {
    let fixture = start();
    let ends: [fn(&mut Wire, FileId); 4] = [
        |wire, id| drop(wire.ask(Command::CLOSE, |out| close(id).emit(out))),
        |wire, _| drop(wire.ask(Command::LOGOFF, |out| Empty.emit(out))),
        |wire, _| drop(wire.ask(Command::TREE_DISCONNECT, |out| Empty.emit(out))),
        |wire, _| wire.stream.shutdown(Shutdown::Both).unwrap(),
    ];
    for end in ends {
        for _ in 0..ROUNDS {
            settle(&fixture);
            let mut holder = fixture.client(1);
            let opened = holder.open("leased", |request| {
                request.oplock_level = OplockLevel::LEASE;
                request.contexts.push(CreateRequestContext::Lease(lease(1)));
            });
            let mut others: Vec<_> = (0..CHANNELS).map(|n| fixture.client(2 + n)).collect();
            let together = Barrier::new(others.len() + 1);
            std::thread::scope(|scope| {
                for wire in &mut others {
                    let together = &together;
                    scope.spawn(move || {
                        together.wait();
                        // Served before the holder's time to answer is over, or this times out.
                        let id = wire.open("leased", |_| {}).id;
                        wire.ask(Command::WRITE, |out| write(id, 0, b"x").emit(out));
                    });
                }
                together.wait();
                end(&mut holder, opened.id);
            });
        }
    }
    left_nothing(&fixture);
}

/// CVE-2025-37777: an acknowledgement comes for a lease that is being given up.
#[test]
fn an_acknowledgement_races_the_close_of_its_handle() {
    let fixture = start();
    for _ in 0..ROUNDS {
        settle(&fixture);
        let mut holder = fixture.client(1);
        let opened = holder.open("leased", |request| {
            request.oplock_level = OplockLevel::LEASE;
            request.contexts.push(CreateRequestContext::Lease(lease(1)));
        });
        let mut second = joined(&fixture, &holder);
        let mut other = fixture.client(2);
        let waiting = other.start_open("leased", |_| {});
        let (_, pdu) = holder.notification();
        let Ok(BreakNotification::Lease(notice)) = BreakNotification::parse(&pdu) else {
            panic!("a lease is broken as a lease")
        };
        let ack = LeaseBreakAck { lease_key: notice.lease_key, state: notice.new };
        let together = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                together.wait();
                second.ask(Command::CLOSE, |out| close(opened.id).emit(out))
            });
            together.wait();
            holder.ask(Command::OPLOCK_BREAK, |out| ack.emit(out));
        });
        assert_eq!(other.finish_open(waiting).status, NtStatus::SUCCESS);
    }
    left_nothing(&fixture);
}

/// CVE-2025-37899 with a request that waits: a LOCK under way when its session ends.
#[test]
fn a_lock_that_waits_ends_with_its_session_and_takes_nothing() {
    let fixture = start();
    let mut witness = fixture.client(2);
    let seen = witness.open("f", |_| {}).id;
    for ends in [Command::LOGOFF, Command::TREE_DISCONNECT] {
        witness.ask(Command::LOCK, |out| lock(seen, 0, LockFlags::EXCLUSIVE).emit(out));
        let mut first = fixture.client(1);
        let mut second = joined(&fixture, &first);
        let id = first.open("f", |_| {}).id;
        let waiting = first.start(Command::LOCK, |out| lock(id, 0, LockFlags::EXCLUSIVE).emit(out));
        assert_eq!(first.receive().0.status, NtStatus::PENDING);
        let (header, _) = second.ask(ends, |out| Empty.emit(out));
        assert_eq!(header.status, NtStatus::SUCCESS);
        witness.ask(Command::LOCK, |out| lock(seen, 0, LockFlags::UNLOCK).emit(out));
        let (header, _) = first.answer_to(waiting);
        assert!(header.status.is_error() && !header.flags.contains(HeaderFlags::RELATED));
        let alone = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
        let (header, _) = witness.ask(Command::LOCK, |out| lock(seen, 0, alone).emit(out));
        assert_eq!(header.status, NtStatus::SUCCESS);
        witness.ask(Command::LOCK, |out| lock(seen, 0, LockFlags::UNLOCK).emit(out));
    }
    serves(&fixture);
}
