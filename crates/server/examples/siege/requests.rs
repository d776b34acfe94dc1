//! Requests that cost much: what they and their answers hold, and how long they keep threads.

use std::io::Write as _;

use smb::create::CreateOptions;
use smb::info::FileInfoClass;
use smb::{Command, FileId, Name, NtStatus, QueryDirectoryFlags, QueryDirectoryRequest};

use crate::support::compound::{compound, with_header};
use crate::support::{Wire, read, write};
use crate::{Attack, Siege, save_credits, to_list, to_read};

impl Siege {
    /// A file longer than any READ, and a folder with many names.
    pub(crate) fn prepare(&self) {
        let mut wire = self.user(1);
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
}

/// Answers that nobody reads.
pub(crate) fn answers_unread(siege: &Siege) -> Attack {
    let asked = 3;
    let held: Vec<_> = (1..=24)
        .map(|number| {
            let mut wire = siege.guest(number);
            let id = wire.open("long", to_read).id;
            save_credits(&mut wire, asked * CHARGE);
            (0..asked).for_each(|_| {
                let pdu = paid_read(&mut wire, id);
                wire.send_frame(&pdu);
            });
            wire
        })
        .collect();
    let reached = siege.watch("answers", |status| status.answer_bytes >= OF_GUESTS).answer_bytes;
    Attack { at: "ANSWERS_OF_GUESTS_MAX", limit: OF_GUESTS, reached, held: Box::new(held) }
}

/// Compounds of READs that ask for far more than one answer may have.
pub(crate) fn compounds(siege: &Siege) -> Attack {
    let held: Vec<_> = (1..=32)
        .map(|number| {
            let mut wire = siege.user(number);
            let id = wire.open("long", to_read).id;
            save_credits(&mut wire, 31 * CHARGE);
            let pdus = (0..31).map(|_| paid_read(&mut wire, id)).collect();
            let frame = compound(&wire, pdus);
            wire.send_frame(&frame);
            wire
        })
        .collect();
    let reached = siege.watch("answers", |status| status.answer_bytes >= OF_USER).answer_bytes;
    Attack { at: "ANSWERS_PER_USER_MAX", limit: OF_USER, reached, held: Box::new(held) }
}

/// Heads of requests that are long, and nothing behind them.
pub(crate) fn heads(siege: &Siege) -> Attack {
    let held: Vec<_> = (1..=32)
        .map(|number| {
            let mut wire = siege.guest(number);
            wire.stream.write_all(&LARGEST.to_be_bytes()).unwrap();
            wire.stream.write_all(&[0; 64]).unwrap();
            wire
        })
        .collect();
    let reached = siege.watch("heads", |status| status.request_bytes >= OF_GUESTS).request_bytes;
    Attack { at: "REQUESTS_OF_GUESTS_MAX", limit: OF_GUESTS, reached, held: Box::new(held) }
}

/// Searches of a long list for what is not in it.
pub(crate) fn scans(siege: &Siege) -> Attack {
    let held: Vec<_> = (1..=2)
        .map(|number| {
            let mut wire = siege.guest(number);
            save_credits(&mut wire, 450);
            let ids: Vec<_> = (0..100).map(|_| wire.open("names", to_list).id).collect();
            for id in ids.iter().cycle().take(400) {
                let request = list(*id, &"*?".repeat(126));
                wire.start(Command::QUERY_DIRECTORY, |out| request.emit(out));
            }
            wire
        })
        .collect();
    let reached = siege.watch("scans", |status| status.jobs >= SCANS_OF_GUESTS).jobs;
    Attack { at: "SCANS_OF_GUESTS_MAX", limit: SCANS_OF_GUESTS, reached, held: Box::new(held) }
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
    wire.sign(&mut pdu);
    pdu
}

/// The largest READ, and what it costs.
const LARGEST: u32 = 8 << 20;
const CHARGE: u16 = 128;
const OF_GUESTS: usize = 64 << 20;
const OF_USER: usize = 128 << 20;
const SCANS_OF_GUESTS: usize = 2;
const NAMES: usize = 1_000;
