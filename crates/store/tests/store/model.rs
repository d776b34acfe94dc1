//! Many operations of clients against a model of the bytes, while servers are killed, come back, and are filled again.
//!
//! `LANDFAST_STORE_OPERATIONS` makes the run longer and `LANDFAST_STORE_SEED` another one (docs/testing.md).

use store::meta::record::{Class, CopyState};
use store::{Allocation, Outcome, Region, Rights, Store, StoreError};

use crate::daemon::Cluster;

const BOTH: Rights = Rights::READ.union(Rights::WRITE);
const LEN: usize = 200_000;
const WORDS: usize = 8;

struct Run {
    cluster: Cluster,
    store: Store,
    region: Region,
    reader: Region,
    random: u64,
    bytes: Vec<u8>,
    words: [u64; WORDS],
    /// The server that is down.
    down: Option<usize>,
    kills: u32,
}

#[test]
fn no_acknowledged_operation_is_lost_while_servers_are_killed() {
    let number = |name, default| {
        std::env::var(name).map_or(default, |text: String| text.parse::<u64>().unwrap())
    };
    let operations = number("LANDFAST_STORE_OPERATIONS", 1500);
    let mut run = Run::start(number("LANDFAST_STORE_SEED", 1));
    let every = (operations / 3).clamp(1, 4000);
    for operation in 1..=operations {
        run.operate();
        if operation % every == every / 2 {
            run.kill();
        }
        if operation % every == every - 1 {
            run.revive();
        }
    }
    run.revive();
    run.compare_all();
    eprintln!("{operations} operations, {} kills, nothing lost", run.kills);
}

impl Run {
    fn start(seed: u64) -> Self {
        let cluster = Cluster::start(3);
        let store = cluster.store();
        let wanted = Allocation {
            unit: 8192,
            copies: 2,
            width: 3,
            ..Allocation::new(u64::try_from(LEN).unwrap(), Class::Volatile)
        };
        store.create("model", &wanted).unwrap();
        let region = store.map("model", BOTH).unwrap();
        let reader = cluster.store().map("model", Rights::READ).unwrap();
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let (bytes, words) = (vec![0; LEN], [0; WORDS]);
        Self { cluster, store, region, reader, random, bytes, words, down: None, kills: 0 }
    }

    fn next(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % u64::try_from(below).unwrap()).unwrap()
    }

    fn operate(&mut self) {
        match self.next(10) {
            0..4 => {
                let (at, bytes) = self.range();
                self.region.write(wide(at), &bytes).unwrap();
                self.bytes[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            4 => {
                // Two writes that do not meet, in flight together.
                let (at, bytes) = self.range();
                let half = bytes.len() / 2;
                let (one, two) = bytes.split_at(half);
                let first = self.region.submit_write(wide(at), one, false).unwrap();
                let second = self.region.submit_write(wide(at + half), two, true).unwrap();
                let mut left = vec![first, second];
                while !left.is_empty() {
                    let done = self.region.next_completion(PATIENCE).unwrap();
                    assert_eq!(done.outcome.unwrap(), Outcome::Done);
                    left.retain(|ticket| *ticket != done.ticket);
                }
                self.bytes[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            5 => {
                let (word, add) = (self.next(WORDS), wide(self.next(1000)));
                match self.region.fetch_add(wide(word * 8), add) {
                    Ok(before) => {
                        assert_eq!(before, self.words[word]);
                        self.words[word] += add;
                    }
                    // The copy whose answer counts was lost: the word says whether the addition was made.
                    Err(StoreError::InDoubt(_)) => {
                        let mut found = [0; 8];
                        self.region.read(wide(word * 8), &mut found).unwrap();
                        let found = u64::from_le_bytes(found);
                        let before = self.words[word];
                        assert!(found == before || found == before + add, "{before} {add} {found}");
                        self.words[word] = found;
                    }
                    Err(error) => panic!("{error}"),
                }
                self.bytes[word * 8..word * 8 + 8].copy_from_slice(&self.words[word].to_le_bytes());
            }
            6 => self.compare(true),
            _ => self.compare(false),
        }
    }

    /// A range behind the words, and bytes for it.
    fn range(&mut self) -> (usize, Vec<u8>) {
        let len = 1 + self.next(20_000);
        let at = WORDS * 8 + self.next(LEN - WORDS * 8 - len);
        let seed = self.next(251);
        (at, (0..len).map(|byte| u8::try_from((byte * 7 + seed) % 251).unwrap()).collect())
    }

    fn compare(&mut self, by_other: bool) {
        let (at, mut out) = self.range();
        let region = if by_other { &self.reader } else { &self.region };
        region.read(wide(at), &mut out).unwrap();
        assert!(out == self.bytes[at..at + out.len()], "{} bytes at {at}", out.len());
    }

    fn compare_all(&self) {
        let mut out = vec![0; LEN];
        // Several times: reads take turns among the copies.
        for _ in 0..4 {
            self.reader.read(0, &mut out).unwrap();
            assert!(out == self.bytes);
        }
    }

    /// kill -9 of one server, if every piece has two copies.
    fn kill(&mut self) {
        let record = self.store.info("model").unwrap();
        let is_whole = record.pieces.iter().all(|piece| {
            piece.copies.iter().filter(|copy| copy.state == CopyState::InSync).count() == 2
        });
        if is_whole && self.down.is_none() {
            let down = self.next(3);
            self.cluster.kill(down);
            self.down = Some(down);
            self.kills += 1;
        }
    }

    /// The server comes back, and its copies are filled while the other client goes on.
    fn revive(&mut self) {
        let Some(down) = self.down.take() else { return };
        self.cluster.restart(down);
        let (store, region) = (&self.store, &self.region);
        let at = WORDS * 8;
        let byte = self.bytes[at].wrapping_add(1);
        std::thread::scope(|scope| {
            let other = self.cluster.store();
            let filling = scope.spawn(move || other.rebuild("model").unwrap());
            while !filling.is_finished() {
                region.write(wide(at), &[byte]).unwrap();
            }
            let done = filling.join().unwrap();
            assert_eq!(done.missing, 0);
        });
        self.bytes[at] = byte;
        let record = store.info("model").unwrap();
        assert!(record.pieces.iter().all(|piece| piece.copies.len() == 2), "{record:?}");
        self.compare_all();
    }
}

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap()
}
