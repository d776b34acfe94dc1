//! Credit bookkeeping: message ids and what they are charged.

use smb::{AsyncId, Command, Empty, LockFlags, NtStatus, Route};

use crate::peer::{left_nothing, lock, receive, serves, start, start_with};
use crate::support::compound::{compound, headers, related};
use crate::support::{Wire, create, read, write};

/// Sends a request with this charge, asking for so many credits.
fn charged(
    wire: &mut Wire,
    charge: u16,
    asked: u16,
    command: Command,
    body: impl FnOnce(&mut Vec<u8>),
) {
    let mut pdu = wire.pdu(command, body);
    pdu[6..8].copy_from_slice(&charge.to_le_bytes());
    pdu[14..16].copy_from_slice(&asked.to_le_bytes());
    wire.sign(&mut pdu);
    wire.send_frame(&pdu);
}

/// CVE-2024-50285 and its kin: a charge of nothing, of more than there is, or beyond the last id.
#[test]
fn a_charge_of_zero_counts_as_one_and_one_too_large_ends_the_connection() {
    let fixture = start();
    let mut wire = fixture.client(1);
    for _ in 0..600 {
        let id = wire.next_id;
        charged(&mut wire, 0, 0, Command::ECHO, |out| Empty.emit(out));
        let (header, _) = wire.answer_to(id);
        assert_eq!((header.status, header.credits), (NtStatus::SUCCESS, 1));
    }
    charged(&mut wire, u16::MAX, 1, Command::ECHO, |out| Empty.emit(out));
    assert!(receive(&mut wire).is_none());
    for id in [u64::MAX, u64::MAX - 1, 1 << 63, u64::from(u32::MAX)] {
        let mut wire = fixture.client(1);
        wire.next_id = id - 1;
        let mut pdu = wire.pdu(Command::ECHO, |out| Empty.emit(out));
        pdu[24..32].copy_from_slice(&id.to_le_bytes());
        pdu[6..8].copy_from_slice(&2u16.to_le_bytes());
        wire.sign(&mut pdu);
        wire.send_frame(&pdu);
        assert!(receive(&mut wire).is_none(), "id {id:#x}");
    }
    left_nothing(&fixture);
}

/// A request that is not paid for is not carried out: the size is checked, not the frame's.
#[test]
fn what_is_read_and_written_is_paid_for() {
    let fixture = start();
    let mut wire = fixture.client(1);
    let id = wire.open("f", |_| {}).id;
    let message = wire.next_id;
    charged(&mut wire, 1, 64, Command::WRITE, |out| write(id, 0, &[7; 65_537]).emit(out));
    assert_eq!(wire.answer_to(message).0.status, NtStatus::INVALID_PARAMETER);
    let message = wire.next_id;
    charged(&mut wire, 1, 64, Command::READ, |out| read(id, 0, 65_537).emit(out));
    assert_eq!(wire.answer_to(message).0.status, NtStatus::INVALID_PARAMETER);
    let message = wire.next_id;
    charged(&mut wire, 2, 64, Command::WRITE, |out| write(id, 0, &[7; 65_537]).emit(out));
    assert_eq!(wire.answer_to(message).0.status, NtStatus::SUCCESS);
    serves(&fixture);
}

/// The ids of a charge are all used up, and none of them twice, in any order.
#[test]
fn an_id_inside_an_earlier_charge_ends_the_connection() {
    let fixture = start();
    for behind in 0..3 {
        let mut wire = fixture.client(1);
        let first = wire.next_id;
        charged(&mut wire, 3, 64, Command::ECHO, |out| Empty.emit(out));
        assert_eq!(wire.answer_to(first).0.status, NtStatus::SUCCESS);
        wire.next_id = first + behind;
        wire.start(Command::ECHO, |out| Empty.emit(out));
        assert!(receive(&mut wire).is_none());
    }
    // And twice in one compound.
    let mut wire = fixture.client(1);
    let one = wire.pdu(Command::ECHO, |out| Empty.emit(out));
    wire.next_id -= 1;
    let two = wire.pdu(Command::ECHO, |out| Empty.emit(out));
    let frame = compound(&wire, vec![one, two]);
    wire.send_frame(&frame);
    assert!(receive(&mut wire).is_none());
    left_nothing(&fixture);
}

/// CVE-2023-52441 and its kin: however much is asked for, no more is held than the limit.
#[test]
fn a_client_never_holds_more_credits_than_the_limit() {
    let fixture = start_with(|config| config.limits.credits_max = 600);
    let mut wire = fixture.client(1);
    // The ids that were used and those that can be used are what has been granted.
    let mut high = None;
    for _ in 0..50 {
        let id = wire.next_id;
        charged(&mut wire, 1, u16::MAX, Command::ECHO, |out| Empty.emit(out));
        let (header, _) = wire.answer_to(id);
        let granted = u64::from(header.credits);
        let held = high.map_or(granted, |held| held - 1 + granted);
        assert!(held <= 600, "{held} held");
        high = Some(held);
    }
    wire.next_id += 600;
    wire.start(Command::ECHO, |out| Empty.emit(out));
    assert!(receive(&mut wire).is_none(), "one more than there are");
    left_nothing(&fixture);
}

/// CVE-2024-50285: requests that fail, wait, are cancelled or come in compounds keep their credits.
#[test]
fn credits_come_back_from_whatever_became_of_a_request() {
    let fixture = start_with(|config| config.limits.credits_max = 64);
    let mut holder = fixture.client(2);
    let held = holder.open("f", |_| {}).id;
    holder.ask(Command::LOCK, |out| lock(held, 0, LockFlags::EXCLUSIVE).emit(out));
    let mut wire = fixture.client(1);
    let id = wire.open("f", |_| {}).id;
    // Each round would cost five credits if one were lost in each of its ways.
    for _ in 0..200 {
        let failing = wire.next_id;
        charged(&mut wire, 1, 1, Command::READ, |out| read(smb::FileId::RELATED, 0, 1).emit(out));
        assert!(wire.answer_to(failing).0.status.is_error());

        let waiting = wire.next_id;
        charged(&mut wire, 1, 1, Command::LOCK, |out| lock(id, 0, LockFlags::SHARED).emit(out));
        let (interim, _) = wire.receive();
        assert_eq!((interim.status, interim.credits), (NtStatus::PENDING, 1));
        wire.cancel(waiting, interim.route);
        let (header, _) = wire.answer_to(waiting);
        assert_eq!((header.status, header.credits), (NtStatus::CANCELLED, 0));

        // What is not there to be cancelled costs nothing either.
        wire.cancel(waiting, Route::Async(AsyncId(7)));

        let mut pdus = vec![wire.pdu(Command::CREATE, |out| create("none\\f", |_| {}).emit(out))];
        pdus.push(related(&mut wire, Command::READ, |out| {
            read(smb::FileId::RELATED, 0, 1).emit(out);
        }));
        pdus.iter_mut().for_each(|pdu| pdu[14..16].copy_from_slice(&1u16.to_le_bytes()));
        let frame = compound(&wire, pdus);
        wire.send_frame(&frame);
        let answers = headers(&receive(&mut wire).unwrap());
        assert_eq!(answers.iter().map(|header| header.credits).sum::<u16>(), 2);
    }
    drop((wire, holder));
    left_nothing(&fixture);
}
