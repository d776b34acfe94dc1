//! The client that has the lease, and pushes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use client::blocking::Client;
use client::{OpenOptions, Path, Region, RegionError, RegionSettings};
use smb::create::CreateDisposition;
use smb::push::{Durability, PushRequest, Rights};

use crate::history::{Commit, History};
use crate::plan::{BLOCK, BLOCKS, Contest, MARGIN, POINTER, REGION_LEN, Random, content, wide};

/// See the module.
pub(crate) struct Holder<'a> {
    contest: &'a Contest,
    random: Random,
    history: &'a Mutex<History>,
    // Closed before the client that it needs.
    region: Region,
    _client: Client,
    /// Commits that are submitted and not finished.
    commits: VecDeque<Commit>,
}

impl<'a> Holder<'a> {
    pub(crate) fn map(
        contest: &'a Contest,
        random: Random,
        history: &'a Mutex<History>,
    ) -> Result<Self, String> {
        let push = PushRequest {
            rights: Rights::READ | Rights::WRITE | Rights::FLUSH | Rights::ATOMIC_WRITE,
            durability: Durability::STORAGE,
            accept_emulated: false,
            regions_max: 1,
        };
        let options = OpenOptions {
            disposition: CreateDisposition::OPEN,
            ..OpenOptions::read_write().with_push(push)
        };
        let settings = RegionSettings {
            unconfirmed_bytes: 64 * 1024,
            outstanding_max: OUTSTANDING + 2,
            same_host: false,
            ..RegionSettings::default()
        };
        let (client, region) = contest.repeat("map", || {
            let client = Client::connect(&contest.url, &contest.options())?;
            let range = MARGIN..MARGIN + REGION_LEN;
            let region = client.map(&contest.url.path, &options, range, settings.clone())?;
            Ok((client, region))
        })?;
        println!("the holder goes by {}", region.path());
        if contest.is_kind && !matches!(region.path(), Path::Push { .. }) {
            return Err(format!("nothing is wrong, and a file is not pushed: {}", region.path()));
        }
        let commits = VecDeque::new();
        Ok(Self { contest, random, history, region, _client: client, commits })
    }

    /// Works until the rival has the file.
    pub(crate) fn work(&mut self) {
        let history = self.history;
        loop {
            let mut known = lock(history);
            if known.is_taken {
                return;
            }
            let done = self.step(&mut known);
            if done.is_err() {
                known.fails();
            }
            drop(known);
            if done.is_err() {
                // What it can still ask for it asks for at the end.
                return;
            }
            if self.random.one_in(8) {
                std::thread::sleep(self.random.time(22));
            } else {
                std::thread::sleep(self.random.time(10));
            }
        }
    }

    fn step(&mut self, known: &mut History) -> Result<(), RegionError> {
        while self.region.outstanding() >= OUTSTANDING {
            self.finish(known)?;
        }
        let first = usize::try_from(self.random.below(wide(BLOCKS))).unwrap_or(0);
        let blocks = first..BLOCKS.min(first + 1 + usize::from(self.random.one_in(2)) * 3);
        let done = match self.random.below(16) {
            0..5 => self.write(known, blocks),
            5..8 => {
                let number = known.writes(first..first + 1);
                let bytes = content(number, first);
                self.submit_commit(known, first..first + 1, Some(&bytes))
            }
            8..10 => self.publish(known, first),
            10..12 => self.submit_commit(known, blocks, None),
            12..14 if self.region.outstanding() > 0 => self.finish(known),
            _ => self.read(known, first),
        };
        if let Err(error) = &done {
            self.note(known, error);
        }
        done
    }

    fn write(
        &mut self,
        known: &mut History,
        blocks: std::ops::Range<usize>,
    ) -> Result<(), RegionError> {
        let number = known.writes(blocks.clone());
        let bytes: Vec<u8> = blocks.clone().flat_map(|block| content(number, block)).collect();
        self.region.write(wide(blocks.start * BLOCK), &bytes)
    }

    fn submit_commit(
        &mut self,
        known: &mut History,
        blocks: std::ops::Range<usize>,
        with: Option<&[u8]>,
    ) -> Result<(), RegionError> {
        let (offset, len) = (wide(blocks.start * BLOCK), wide(blocks.len() * BLOCK));
        let commit = known.commits(blocks);
        match with {
            Some(bytes) => self.region.submit_write_commit(offset, bytes)?,
            None => self.region.submit_commit(offset, len)?,
        };
        self.commits.push_back(commit);
        Ok(())
    }

    fn publish(&mut self, known: &mut History, block: usize) -> Result<(), RegionError> {
        let number = known.writes(block..block + 1);
        self.submit_commit(known, block..block + 1, Some(&content(number, block)))?;
        known.publishes(block);
        self.region.atomic_write(POINTER, number)?;
        if self.random.one_in(2) {
            self.submit_commit(known, BLOCKS..BLOCKS + 1, None)?;
        }
        Ok(())
    }

    fn read(&mut self, known: &mut History, block: usize) -> Result<(), RegionError> {
        let mut seen = [0; BLOCK];
        self.region.read(wide(block * BLOCK), &mut seen)?;
        known.read(block, &seen);
        Ok(())
    }

    fn finish(&mut self, known: &mut History) -> Result<(), RegionError> {
        let commit = self.commits.pop_front();
        self.region.finish(&mut [])?;
        if let Some(commit) = commit {
            known.committed(&commit);
        }
        Ok(())
    }

    fn note(&self, known: &mut History, error: &RegionError) {
        known.done.push(format!("{error}; by {}", self.region.path()));
        match error {
            RegionError::Broken => {}
            RegionError::Server(_) => known.is_uncertain = true,
            other => known.faults.push(format!("the holder is refused: {other}")),
        }
        if self.contest.is_kind {
            known.faults.push(format!("nothing is wrong, and the holder fails: {error}"));
        }
    }

    /// Asks for what is still to be answered once the rival has the file, and writes nothing.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        let history = self.history;
        while !lock(history).is_taken {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        std::thread::sleep(self.random.time(22));
        let mut known = lock(history);
        while self.region.outstanding() > 0 {
            let _ = self.finish(&mut known);
        }
        let commit = known.commits(0..BLOCKS + 1);
        match self.region.commit(0, REGION_LEN) {
            Ok(()) => known.committed(&commit),
            Err(RegionError::Broken) => known.broke(self.region.lost()),
            Err(_) => {}
        }
        Ok(())
    }
}

fn lock(history: &Mutex<History>) -> MutexGuard<'_, History> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Commits that are under way at once.
const OUTSTANDING: usize = 8;
