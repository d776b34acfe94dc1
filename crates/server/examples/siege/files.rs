//! Open files and pipes, and calls on those.

use smb::{Command, NtStatus};

use crate::pressure::Pressure;
use crate::support::{Wire, write};
use crate::{Attack, Siege, to_read};

/// WRITEs of more and more PDUs; then many of them all the time.
pub(crate) fn calls(siege: &Siege) -> Attack {
    let mut wire = on_pipes(siege, 1);
    let mut reached = 0;
    for count in [31, 32, 33, 4_000] {
        if put(&mut wire, count) == NtStatus::SUCCESS {
            reached = count;
        }
    }
    let attacks = [2, 3].map(|number| {
        let mut wire = on_pipes(siege, number);
        move || {
            put(&mut wire, 32);
            put(&mut wire, 4_000);
        }
    });
    let held = Box::new((Pressure::of(attacks), wire));
    Attack { at: "smb/src/rpc/association/mod.rs:PDUS_PER_WRITE_MAX", limit: 32, reached, held }
}

// Cancels of calls that there are not, on a pipe of its own.
fn put(wire: &mut Wire, count: usize) -> NtStatus {
    const CANCEL: [u8; 16] = [5, 0, 18, 3, 0x10, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0];
    let id = wire.open("srvsvc", |_| {}).id;
    let pdus = CANCEL.repeat(count);
    let (header, _) = wire.ask(Command::WRITE, |out| write(id, 0, &pdus).emit(out));
    wire.close(id);
    header.status
}

fn on_pipes(siege: &Siege, number: u8) -> Wire {
    let mut wire = siege.user(number);
    assert_eq!(wire.enter("IPC$"), NtStatus::SUCCESS);
    wire
}

/// Pipes of one session.
pub(crate) fn pipes(siege: &Siege) -> Attack {
    let mut wire = on_pipes(siege, 1);
    let reached = (0..100).filter(|_| !wire.open("srvsvc", |_| {}).status.is_error()).count();
    Attack { at: "PIPES_PER_SESSION_MAX", limit: 64, reached, held: Box::new(wire) }
}

/// Files that guests have open, over several connections.
pub(crate) fn of_guests(siege: &Siege) -> Attack {
    let mut held: Vec<_> = (1..=3).map(|number| siege.guest(number)).collect();
    let mut reached = 0;
    for wire in &mut held {
        while reached < 20_000 && wire.open("long", to_read).status == NtStatus::SUCCESS {
            reached += 1;
        }
    }
    let (limit, _) = siege.fitted();
    Attack { at: "Limits::guest_opens_max", limit, reached, held: Box::new(held) }
}
