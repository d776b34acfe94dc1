//! Hostile clients drive a server to the limits of its ledger (docs/limits.md), one line after the other, while an
//! honest client works beside them. `cargo xtask siege` starts it and judges what it prints.
//!
//! ```text
//! siege ADDRESS RDMA_ADDRESS PID CONTROL SECONDS
//! begin honest_us=P99 rss_kib=N
//! line NAME at=CONSTANT reached=N limit=N honest_us=P99 slowest_us=N rounds=N rss_kib=N long_turns=COMMAND:COUNT:US,..
//! gone NAME rss_kib=N
//! ```
//!
//! The server has share "data" for "user" with password "secret" and "other" with password "hidden", and "guests", which
//! guests may read. Who attacks is a guest or "user"; the honest client is "other". It makes, writes and closes a
//! file in each of its rounds. A round that takes longer than the client's patience, or is refused, ends the
//! program with an error: that is what starving means here. So does a limit that was not reached, and one that was passed.
#![expect(clippy::unwrap_used, reason = "what goes wrong ends the program, and is its result")]
#![allow(clippy::print_stdout, reason = "that is how it reports")]

#[path = "../../tests/clients/smb_direct/client.rs"]
#[expect(dead_code, reason = "the siege uses its part")]
mod client;
mod connections;
mod files;
mod honest;
mod locks;
#[path = "../../tests/clients/smb_direct/peer.rs"]
#[expect(dead_code, reason = "the siege uses its part")]
mod peer;
mod pressure;
mod rdma_lines;
mod requests;
mod server_side;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::path::PathBuf;

use smb::create::{AccessMask, CreateDisposition, CreateOptions, CreateRequest};
use smb::{Command, Empty, NtStatus};
use support::Wire;

/// A server under siege, and who besieges it.
struct Siege {
    address: SocketAddr,
    rdma_address: SocketAddr,
    pid: u32,
    control: PathBuf,
    seconds: f64,
}

/// What the attack of a line came to.
struct Attack {
    /// The constant, or the field of `Limits`, that bounds it.
    at: &'static str,
    /// Its value, as the ledger says.
    limit: usize,
    /// How much of it is held, or was when there was no more.
    reached: usize,
    /// What holds it until it is dropped.
    held: Box<dyn std::any::Any>,
}

/// A line's attack.
type Line = fn(&Siege) -> Attack;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, rdma_address, pid, control, seconds] = &args[..] else {
        panic!("siege ADDRESS RDMA_ADDRESS PID CONTROL SECONDS")
    };
    let siege = Siege {
        address: address.parse().unwrap(),
        rdma_address: rdma_address.parse().unwrap(),
        pid: pid.parse().unwrap(),
        control: control.into(),
        seconds: seconds.parse().unwrap(),
    };
    siege.prepare();
    siege.run();
}

impl Siege {
    fn run(&self) {
        let only = std::env::var("SIEGE_LINE").ok();
        let before = self.honest();
        println!("begin honest_us={} rss_kib={}", before.p99, self.resident_kib());
        for (name, attack) in LINES {
            if only.as_ref().is_some_and(|only| !name.contains(only)) {
                continue;
            }
            let turns = self.long_turns();
            let Attack { at, limit, reached, held } = attack(self);
            assert_eq!(reached, limit, "{name}: {at} is not where the siege came to");
            let served = self.honest();
            println!(
                "line {name} at={at} reached={reached} limit={limit} {served} rss_kib={} long_turns={}",
                self.resident_kib(),
                self.long_turns().since(&turns)
            );
            drop(held);
            self.wait_for_end(name);
            println!("gone {name} rss_kib={}", self.resident_kib());
        }
    }

    fn dial(&self, number: u8) -> Wire {
        let mut wire = Wire::dial(self.address);
        // A machine with other work beside it is slow, and no client of ours may give up for that.
        wire.stream.set_read_timeout(Some(honest::PATIENCE)).unwrap();
        wire.negotiate(number);
        wire
    }

    fn log_on(&self, number: u8, (name, password): (&str, &str)) -> Wire {
        let mut wire = self.dial(number);
        wire.log_on_as(name, password);
        assert_eq!(wire.enter("data"), NtStatus::SUCCESS);
        wire
    }

    fn user(&self, number: u8) -> Wire {
        self.log_on(number, ("user", "secret"))
    }

    fn guest(&self, number: u8) -> Wire {
        let mut wire = self.dial(number);
        wire.log_on_as("mallory", "whatever");
        assert_eq!(wire.enter("guests"), NtStatus::SUCCESS);
        wire
    }
}

fn to_read(request: &mut CreateRequest<'_>) {
    request.desired_access = AccessMask::FILE_GENERIC_READ;
    request.disposition = CreateDisposition::OPEN;
}

fn to_list(request: &mut CreateRequest<'_>) {
    to_read(request);
    request.options = CreateOptions::DIRECTORY_FILE;
}

/// Asks until it has so many credits more.
fn save_credits(wire: &mut Wire, count: u16) {
    for _ in 0..=count / 31 {
        wire.ask(Command::ECHO, |out| Empty.emit(out));
    }
}

/// Each line with its attack, in the order of the ledger.
const LINES: [(&str, Line); 21] = [
    ("strangers", connections::strangers),
    ("guests", connections::guests),
    ("logons_under_way", connections::logons),
    ("sessions", connections::sessions),
    ("trees_of_a_guest", connections::trees_of_a_guest),
    ("trees_of_a_user", connections::trees_of_a_user),
    ("long_names", connections::long_names),
    ("answers_unread", requests::answers_unread),
    ("compounds_of_large_reads", requests::compounds),
    ("heads_of_long_requests", requests::heads),
    ("scans", requests::scans),
    ("calls_on_pipes", files::calls),
    ("pipes", files::pipes),
    ("ranges_against_locks", locks::ranges),
    ("locks_of_a_user", locks::of_a_user),
    ("locks_that_wait", locks::waiting),
    ("files_of_guests", files::of_guests),
    ("receives", rdma_lines::receives),
    ("staging", rdma_lines::staging),
    ("push_connections", rdma_lines::connections),
    ("push_regions", rdma_lines::regions),
];
