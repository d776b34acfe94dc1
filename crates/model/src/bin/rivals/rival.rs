//! The client that opens the file while another pushes into it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use client::OpenOptions;
use client::blocking::{Client, File};
use smb::NtStatus;
use smb::create::CreateDisposition;

use crate::history::History;
use crate::plan::{
    BLOCK, BLOCKS, Contest, FILE_LEN, LATEST, MARGIN, REGION_LEN, Random, content, wide,
};

/// See the module.
pub(crate) struct Rival<'a> {
    contest: &'a Contest,
    random: Random,
    // Closed before the client that it needs.
    file: Option<File>,
    client: Option<Client>,
    numbers: Vec<u64>,
}

impl<'a> Rival<'a> {
    pub(crate) fn new(contest: &'a Contest, random: Random) -> Self {
        Self { contest, random, file: None, client: None, numbers: vec![0; BLOCKS] }
    }

    /// The write that each block holds for certain.
    pub(crate) fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// Writes all blocks, before anybody else has the file.
    pub(crate) fn claim(&mut self, written: &mut u64) -> Result<(), String> {
        *written += 1;
        self.numbers.fill(*written);
        self.write_all()?;
        self.close();
        Ok(())
    }

    /// Opens the file, looks at what is there, and writes all blocks.
    pub(crate) fn take(&mut self, history: &Mutex<History>) -> Result<(), String> {
        std::thread::sleep(self.random.time(18));
        let opened = self.open();
        let lock = || history.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = lock();
        let taken = opened.and_then(|()| {
            if known.is_uncertain {
                std::thread::sleep(LATEST);
            }
            self.read_all()
        });
        // The holder ends whatever became of this.
        known.is_taken = true;
        let file = taken?;
        self.check_margins(&file)?;
        known.taken(region_of(&file));
        let number = known.number();
        self.numbers.fill(number);
        self.write_all()
    }

    /// Looks, when all that was under way has come, whether the file holds what this client wrote.
    pub(crate) fn look_again(&mut self) -> Result<(), String> {
        std::thread::sleep(LATEST / 3);
        let file = self.read_all()?;
        self.check_margins(&file)?;
        let blocks = region_of(&file).chunks_exact(BLOCK).zip(&self.numbers).enumerate();
        for (index, (bytes, number)) in blocks {
            if bytes != content(*number, index) {
                let first = bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
                return Err(format!(
                    "block {index} was written by the rival, and begins with {first:#x} later: write {number} expected"
                ));
            }
        }
        if region_of(&file)[BLOCKS * BLOCK..].iter().any(|byte| *byte != 0) {
            return Err(
                "the pointer was cleared by the rival, and names something later".to_owned()
            );
        }
        self.close();
        Ok(())
    }

    fn check_margins(&self, file: &[u8]) -> Result<(), String> {
        let len = wide(file.len());
        if len != FILE_LEN {
            return Err(format!("the file has {len} bytes"));
        }
        let (front, back) = (0..at(MARGIN), at(MARGIN + REGION_LEN)..file.len());
        let is_clean = |range: std::ops::Range<usize>| file[range].iter().all(|byte| *byte == 0);
        match is_clean(front) && is_clean(back) {
            true => Ok(()),
            false => Err("bytes beside the region have changed".to_owned()),
        }
    }

    fn open(&mut self) -> Result<(), String> {
        let options =
            OpenOptions { disposition: CreateDisposition::OPEN, ..OpenOptions::read_write() };
        self.close();
        let contest = self.contest;
        let (client, file) = contest.repeat("open", || {
            let client = Client::connect(&contest.url, &contest.options())?;
            let file = client.open(&contest.url.path, &options)?;
            Ok((client, file))
        })?;
        (self.client, self.file) = (Some(client), Some(file));
        Ok(())
    }

    fn close(&mut self) {
        if let Some(file) = self.file.take() {
            let _ = file.close();
        }
        self.client = None;
    }

    fn read_all(&mut self) -> Result<Vec<u8>, String> {
        self.with_file("read", |file| {
            let mut bytes = vec![0; at(FILE_LEN)];
            let mut filled = 0;
            while filled < bytes.len() {
                match file.read_at(wide(filled), &mut bytes[filled..])? {
                    0 => break,
                    taken => filled += taken,
                }
            }
            bytes.truncate(filled);
            Ok(bytes)
        })
    }

    // A flush that fails may have lost the bytes, and a server that died has: both are done again.
    fn write_all(&mut self) -> Result<(), String> {
        let numbers = self.numbers.iter().enumerate();
        let mut bytes: Vec<u8> = numbers.flat_map(|(at, number)| content(*number, at)).collect();
        bytes.resize(at(REGION_LEN), 0);
        let mut refusals = 0;
        self.with_file("write", |file| {
            file.write_at(MARGIN, &bytes)?;
            let flushed = file.flush();
            if flushed.as_ref().is_err_and(|error| error.status() == Some(NtStatus::DATA_ERROR)) {
                refusals += 1;
            }
            // A file whose flush has failed once is flushed no more while its server lives.
            if refusals == REFUSALS { Ok(false) } else { flushed.map(|()| true) }
        })?
        .then_some(())
        .ok_or_else(|| POISONED.to_owned())
    }

    fn with_file<T>(
        &mut self,
        what: &str,
        mut work: impl FnMut(&File) -> Result<T, client::ClientError>,
    ) -> Result<T, String> {
        let mut last = String::new();
        for _ in 0..crate::plan::ATTEMPTS {
            if self.file.is_none() {
                self.open()?;
            }
            let Some(file) = &self.file else { continue };
            match work(file) {
                Ok(done) => return Ok(done),
                Err(error) if self.contest.is_kind => return Err(format!("{what}: {error}")),
                Err(error) => last = error.to_string(),
            }
            self.close();
            std::thread::sleep(Duration::from_secs(1));
        }
        Err(format!("{what} does not succeed: {last}"))
    }
}

/// What a round says that cannot go on because the disk has failed a flush.
pub(crate) const POISONED: &str = "the file is flushed no more";
/// So many flushes in a row that fail are no chance.
const REFUSALS: u32 = 3;

fn region_of(file: &[u8]) -> &[u8] {
    &file[at(MARGIN)..at(MARGIN + REGION_LEN)]
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}
