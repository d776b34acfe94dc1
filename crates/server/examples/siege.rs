//! Hostile clients drive a server to the limits of its ledger (docs/limits.md), one line after the other, while an
//! honest client works beside them. `cargo xtask siege` starts it and judges what it prints.
//!
//! ```text
//! siege ADDRESS SHARE GUEST_SHARE USER:PASSWORD PID SECONDS
//! begin honest_us=P99 rss_kib=N
//! line NAME reached=WHAT honest_us=P99 slowest_us=N rounds=N rss_kib=N
//! ```
//!
//! The honest client makes, writes and closes a file in each of its rounds. A round that takes longer than the
//! client's patience, or is refused, ends the program with an error: that is what starving means here.
#![expect(clippy::unwrap_used, reason = "what goes wrong ends the program, and is its result")]
#![allow(clippy::print_stdout, reason = "that is how it reports")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use smb::create::{AccessMask, CreateDisposition, CreateOptions, CreateRequest};
use smb::fsctl::{FileLevelTrim, FileRange};
use smb::info::FileInfoClass;
use smb::{
    Command, ControlCode, Empty, FileId, LockElement, LockFlags, LockRequest, Name, NtStatus,
    QueryDirectoryFlags, QueryDirectoryRequest,
};
use support::compound::{compound, with_header};
use support::{Wire, control, read, write};

struct Siege {
    address: SocketAddr,
    share: String,
    guest_share: String,
    user: String,
    password: String,
    pid: u32,
    seconds: f64,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, share, guest_share, credentials, pid, seconds] = &args[..] else {
        panic!("siege ADDRESS SHARE GUEST_SHARE USER:PASSWORD PID SECONDS")
    };
    let (user, password) = credentials.split_once(':').unwrap();
    let siege = Siege {
        address: address.parse().unwrap(),
        share: share.clone(),
        guest_share: guest_share.clone(),
        user: user.to_owned(),
        password: password.to_owned(),
        pid: pid.parse().unwrap(),
        seconds: seconds.parse().unwrap(),
    };
    siege.prepare();
    let (before, ..) = siege.honest();
    println!("begin honest_us={before} rss_kib={}", siege.resident_kib());
    siege.line("answers_unread", Siege::answers_unread);
    siege.line("compounds_of_large_reads", Siege::compounds);
    siege.line("heads_of_long_requests", Siege::heads);
    siege.line("scans", Siege::scans);
    siege.line("calls_on_pipes", Siege::calls);
    siege.line("ranges_against_locks", Siege::ranges);
    siege.line("files_open", Siege::opens);
}

impl Siege {
    fn dial(&self, number: u8) -> Wire {
        let mut wire = Wire::dial(self.address);
        // A machine with other work beside it is slow, and no client of ours may give up for that.
        wire.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        wire.negotiate(number);
        wire
    }

    fn as_user(&self, number: u8) -> Wire {
        let mut wire = self.dial(number);
        wire.log_on_as(&self.user, &self.password);
        assert_eq!(wire.enter(&self.share), NtStatus::SUCCESS);
        wire
    }

    fn guest(&self, number: u8) -> Wire {
        let mut wire = self.dial(number);
        wire.log_on_as("mallory", "whatever");
        assert_eq!(wire.enter(&self.guest_share), NtStatus::SUCCESS);
        wire
    }

    /// A file longer than any READ, and a folder with many names.
    fn prepare(&self) {
        let mut wire = self.as_user(1);
        let id = wire.open("long", |_| {}).id;
        let last = (64 << 20) - 1;
        let put = wire.ask(Command::WRITE, |out| write(id, last, &[1]).emit(out)).0.status;
        assert_eq!(put, NtStatus::SUCCESS);
        wire.close(id);
        let folder = wire.open("names", |request| {
            request.options = CreateOptions::DIRECTORY_FILE;
        });
        wire.close(folder.id);
        for number in 0..NAMES {
            let id = wire.open(&format!("names\\{number:0>100}"), |_| {}).id;
            wire.close(id);
        }
    }

    /// P99, the slowest and the number of an honest client's rounds, logons of its own included.
    fn honest(&self) -> (u64, u64, usize) {
        let begin = Instant::now();
        let mut took = Vec::new();
        let mut wire = self.as_user(200);
        while begin.elapsed().as_secs_f64() < self.seconds || took.len() < ROUNDS_MIN {
            let round = Instant::now();
            if took.len() % 50 == 49 {
                wire = self.as_user(200);
            }
            let id = wire.open("honest", |_| {}).id;
            assert_eq!(
                wire.write(id, &[7; 4096]),
                NtStatus::SUCCESS,
                "an honest client is refused"
            );
            assert_eq!(wire.close(id), NtStatus::SUCCESS);
            took.push(u64::try_from(round.elapsed().as_micros()).unwrap());
        }
        took.sort_unstable();
        (took[took.len() * 99 / 100], took[took.len() - 1], took.len())
    }

    fn line(&self, name: &str, attack: fn(&Self) -> (String, Vec<Wire>)) {
        let (reached, held) = attack(self);
        let (p99, slowest, rounds) = self.honest();
        let resident = self.resident_kib();
        println!(
            "line {name} reached={reached} honest_us={p99} slowest_us={slowest} rounds={rounds} rss_kib={resident}"
        );
        drop(held);
    }

    fn answers_unread(&self) -> (String, Vec<Wire>) {
        let asked = 3;
        let held: Vec<_> = (1..=24)
            .map(|number| {
                let mut wire = self.guest(number);
                let id = wire.open("long", to_read).id;
                save_credits(&mut wire, asked * CHARGE);
                (0..asked).for_each(|_| {
                    let pdu = paid_read(&mut wire, id);
                    wire.send_frame(&pdu);
                });
                wire
            })
            .collect();
        (format!("{}x{asked}x8MiB", held.len()), held)
    }

    fn compounds(&self) -> (String, Vec<Wire>) {
        let held: Vec<_> = (1..=8)
            .map(|number| {
                let mut wire = self.as_user(number);
                let id = wire.open("long", to_read).id;
                save_credits(&mut wire, 31 * CHARGE);
                let pdus = (0..31).map(|_| paid_read(&mut wire, id)).collect();
                let frame = compound(&wire, pdus);
                wire.send_frame(&frame);
                wire
            })
            .collect();
        (format!("{}x31x8MiB", held.len()), held)
    }

    fn heads(&self) -> (String, Vec<Wire>) {
        let held: Vec<_> = (1..=32)
            .map(|number| {
                let mut wire = self.guest(number);
                wire.stream.write_all(&LARGEST.to_be_bytes()).unwrap();
                wire.stream.write_all(&[0; 64]).unwrap();
                wire
            })
            .collect();
        (format!("{}x8MiB", held.len()), held)
    }

    fn scans(&self) -> (String, Vec<Wire>) {
        let held: Vec<_> = (1..=2)
            .map(|number| {
                let mut wire = self.guest(number);
                save_credits(&mut wire, 450);
                let ids: Vec<_> = (0..100).map(|_| wire.open("names", to_list).id).collect();
                for id in ids.iter().cycle().take(400) {
                    let request = list(*id, &"*?".repeat(126));
                    wire.start(Command::QUERY_DIRECTORY, |out| request.emit(out));
                }
                wire
            })
            .collect();
        (format!("{}x400x{NAMES}names", held.len()), held)
    }

    fn calls(&self) -> (String, Vec<Wire>) {
        let cancel = [5, 0, 18, 3, 0x10, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0];
        let pdus = cancel.repeat(4_000);
        let held: Vec<_> = (1..=2)
            .map(|number| {
                let mut wire = self.as_user(number);
                assert_eq!(wire.enter("IPC$"), NtStatus::SUCCESS);
                for _ in 0..20 {
                    let id = wire.open("srvsvc", |_| {}).id;
                    wire.start(Command::WRITE, |out| write(id, 0, &pdus).emit(out));
                    save_credits(&mut wire, 31);
                }
                wire
            })
            .collect();
        (format!("{}x20x4000pdus", held.len()), held)
    }

    fn ranges(&self) -> (String, Vec<Wire>) {
        let (mut locker, mut wire) = (self.as_user(1), self.as_user(2));
        let theirs = locker.open("locked", |_| {}).id;
        let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
        for first in (0..16_384_u64).step_by(64) {
            let lock = |at: u64| LockElement { offset: (1 << 40) + 2 * at, length: 1, flags };
            let locks = (first..first + 64).map(lock).collect();
            let request = LockRequest { lock_sequence: 0, file_id: theirs, locks };
            let status = locker.ask(Command::LOCK, |out| request.emit(out)).0.status;
            assert_eq!(status, NtStatus::SUCCESS);
        }
        let id = wire.open("locked", |_| {}).id;
        let mut input = Vec::new();
        let ranges = vec![FileRange { offset: 0, length: 1 }; 4_000];
        FileLevelTrim { key: 0, ranges }.emit(&mut input);
        for _ in 0..4 {
            let request = control(id, ControlCode::FILE_LEVEL_TRIM, &input);
            wire.start(Command::IOCTL, |out| request.emit(out));
        }
        ("4x4000x16384".to_owned(), vec![locker, wire])
    }

    fn opens(&self) -> (String, Vec<Wire>) {
        let mut wire = self.guest(1);
        let mut count = 0;
        while count < 2_000 && wire.open("long", to_read).status == NtStatus::SUCCESS {
            count += 1;
        }
        (format!("{count}opens"), vec![wire])
    }

    fn resident_kib(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
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

fn list(file_id: FileId, pattern: &str) -> QueryDirectoryRequest {
    let (flags, pattern) = (QueryDirectoryFlags::RESTART_SCANS, Name::new(pattern).unwrap());
    let class = FileInfoClass::NAMES;
    QueryDirectoryRequest {
        class,
        flags,
        file_index: 0,
        file_id,
        pattern,
        output_length_max: 60_000,
    }
}

fn paid_read(wire: &mut Wire, id: FileId) -> Vec<u8> {
    let mut pdu = wire.pdu(Command::READ, |out| read(id, 0, LARGEST).emit(out));
    with_header(&mut pdu, |header| header.credit_charge = CHARGE);
    wire.next_id += u64::from(CHARGE) - 1;
    pdu
}

/// Asks until it has so many credits more.
fn save_credits(wire: &mut Wire, count: u16) {
    for _ in 0..=count / 31 {
        wire.ask(Command::ECHO, |out| Empty.emit(out));
    }
}

/// The largest READ, and what it costs.
const LARGEST: u32 = 8 << 20;
const CHARGE: u16 = 128;
const NAMES: usize = 1_000;
const ROUNDS_MIN: usize = 100;
/// How long an honest client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(60);
