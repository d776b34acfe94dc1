//! Connections, logons, sessions and tree connects, as many as there may be.

use std::net::TcpStream;

use smb::{Command, NtStatus};

use crate::support::Wire;
use crate::support::logon::{first_token, session_setup};
use crate::{Attack, Siege};

/// More strangers than may wait: the oldest makes room.
pub(crate) fn strangers(siege: &Siege) -> Attack {
    let held: Vec<_> = (0..1_099).map(|_| TcpStream::connect(siege.address).unwrap()).collect();
    // Connections are there before the server takes them: once the last one is answered, it has taken all.
    let held = (held, siege.dial(7));
    let reached = settled(siege, |status| status.unauthenticated);
    Attack {
        at: "Limits::unauthenticated_max",
        limit: siege.fitted().1,
        reached,
        held: Box::new(held),
    }
}

/// More connections of guests than there may be: the oldest makes room.
pub(crate) fn guests(siege: &Siege) -> Attack {
    let held: Vec<_> = (0..1_060).map(|_| siege.guest(7)).collect();
    let reached = settled(siege, |status| status.connections);
    Attack {
        at: "Limits::guest_connections_max",
        limit: siege.fitted().1,
        reached,
        held: Box::new(held),
    }
}

/// The count once nothing more changes it: connections that made room have ended.
fn settled(siege: &Siege, count: impl Fn(&server::Status) -> usize) -> usize {
    let mut last = usize::MAX;
    count(&siege.watch("connections that make room end", |status| {
        let is_same = count(status) == last && status.connections <= 1_024;
        last = count(status);
        is_same
    }))
}

/// Logons that begin and do not go on, on a connection.
pub(crate) fn logons(siege: &Siege) -> Attack {
    let mut counts = Vec::new();
    let held: Vec<_> = (0..200)
        .map(|_| {
            let mut wire = siege.dial(3);
            let begun = (0..6).filter(|_| begin_logon(&mut wire)).count();
            counts.push(begun);
            wire
        })
        .collect();
    let most = counts.iter().max().copied().unwrap_or(0);
    Attack { at: "AUTHENTICATIONS_MAX", limit: 4, reached: most, held: Box::new(held) }
}

fn begin_logon(wire: &mut Wire) -> bool {
    let token = first_token("user", "secret");
    let request = session_setup(&token);
    wire.session = 0;
    let (header, _) = wire.ask(Command::SESSION_SETUP, |out| request.emit(out));
    header.status == NtStatus::MORE_PROCESSING_REQUIRED
}

/// Sessions of one connection.
pub(crate) fn sessions(siege: &Siege) -> Attack {
    let mut wire = siege.dial(3);
    let mut reached = 0;
    while wire.try_log_on_as("user", "secret") == NtStatus::SUCCESS {
        reached += 1;
        (wire.session, wire.keys) = (0, None);
    }
    Attack { at: "SESSIONS_PER_CONNECTION_MAX", limit: 64, reached, held: Box::new(wire) }
}

/// Shares that a guest enters, one many times.
pub(crate) fn trees_of_a_guest(siege: &Siege) -> Attack {
    let mut wire = siege.guest(3);
    let reached = 1 + trees(&mut wire, "guests");
    Attack { at: "TREES_PER_GUEST_MAX", limit: 64, reached, held: Box::new(wire) }
}

/// The same of a user.
pub(crate) fn trees_of_a_user(siege: &Siege) -> Attack {
    let mut wire = siege.user(3);
    let reached = 1 + trees(&mut wire, "data");
    Attack { at: "TREES_PER_SESSION_MAX", limit: 1_024, reached, held: Box::new(wire) }
}

fn trees(wire: &mut Wire, share: &str) -> usize {
    let mut count = 0;
    while wire.enter(share) == NtStatus::SUCCESS {
        count += 1;
    }
    count
}

/// Names that are longer and longer.
pub(crate) fn long_names(siege: &Siege) -> Attack {
    let mut held = Vec::new();
    let mut reached = 0;
    for chars in [64, 255, 256, 257, 10_000] {
        let mut wire = siege.dial(3);
        if wire.log_on_unproven(&"n".repeat(chars)) == NtStatus::SUCCESS {
            reached = reached.max(chars);
        }
        held.push(wire);
    }
    Attack { at: "USER_NAME_MAX", limit: 256, reached, held: Box::new(held) }
}
