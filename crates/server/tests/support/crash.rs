//! A server that writes its persistent opens down. A crash is a copy of what is on disk at that moment.

use std::path::Path;

use server::ServerConfig;
use tempfile::TempDir;

use super::Fixture;

/// The server, and where it writes.
pub(crate) struct Writing {
    pub(crate) fixture: Fixture,
    pub(crate) log: TempDir,
}

impl Writing {
    pub(crate) fn start() -> Self {
        Self::start_in(&std::env::temp_dir())
    }

    /// What it serves is on a disk.
    pub(crate) fn start_on_disk() -> Self {
        Self::start_in(Path::new("/var/tmp"))
    }

    /// What it serves is in a directory made there.
    pub(crate) fn start_in(directory: &Path) -> Self {
        Self::start_with(directory, |_| {})
    }

    /// The same, and the server is configured otherwise.
    pub(crate) fn start_with(directory: &Path, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let log = tempfile::tempdir().unwrap();
        let opens = log.path().join(OPENS);
        let fixture = Fixture::start_in(directory, |config| {
            config.shares[0].persistent_opens = Some(opens);
            change(config);
        });
        Self { fixture, log }
    }

    /// The server died, and another one serves what it left.
    pub(crate) fn crash(&self) -> Self {
        self.crash_into(|_| {})
    }

    /// The same, and the other one is configured otherwise.
    pub(crate) fn crash_into(&self, change: impl FnOnce(&mut ServerConfig)) -> Self {
        self.after(<[u8]>::to_vec, change)
    }

    /// The machine was started anew, with all that the server wrote, durable or not.
    pub(crate) fn reboot(&self) -> Self {
        self.after(of_another_boot, |_| {})
    }

    /// A server of before boots were noted has written the log, and died.
    pub(crate) fn crash_of_an_older_server(&self) -> Self {
        self.after(of_no_boot, |_| {})
    }

    fn after(
        &self,
        left: impl FnOnce(&[u8]) -> Vec<u8>,
        change: impl FnOnce(&mut ServerConfig),
    ) -> Self {
        let log = tempfile::tempdir().unwrap();
        let opens = log.path().join(OPENS);
        let bytes = std::fs::read(self.log.path().join(OPENS)).unwrap();
        std::fs::write(&opens, left(&bytes)).unwrap();
        let fixture = self.fixture.another(|config| {
            config.shares[0].persistent_opens = Some(opens);
            change(config);
        });
        Self { fixture, log }
    }
}

// The records of a log: a length of 4 bytes, a sum of 8, a kind, a body.
fn records(log: &[u8]) -> Vec<&[u8]> {
    let mut rest = &log[MAGIC..];
    let mut records = Vec::new();
    while let Some(len) = rest.first_chunk() {
        let (record, behind) = rest.split_at(12 + u32::from_le_bytes(*len) as usize);
        records.push(record);
        rest = behind;
    }
    records
}

/// The log as a boot before this one has left it.
pub(crate) fn of_another_boot(log: &[u8]) -> Vec<u8> {
    let mut changed = log[..MAGIC].to_vec();
    for record in records(log) {
        let mut record = record.to_vec();
        if record[12] == BOOT {
            record[13] ^= 0xff;
            let step =
                |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
            let sum = record[12..].iter().fold(0xcbf2_9ce4_8422_2325, step);
            record[4..12].copy_from_slice(&sum.to_le_bytes());
        }
        changed.extend(record);
    }
    assert_ne!(changed, log, "the log says which boot it is of");
    changed
}

fn of_no_boot(log: &[u8]) -> Vec<u8> {
    let others = records(log).into_iter().filter(|record| record[12] != BOOT);
    others.fold(log[..MAGIC].to_vec(), |log, record| [&log, record].concat())
}

const OPENS: &str = "opens";
const MAGIC: usize = 8;
const BOOT: u8 = 5;
