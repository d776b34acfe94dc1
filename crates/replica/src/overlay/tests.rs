use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use block::{BlockDevice, BlockError, Extent, FileDevice, Geometry, State, Survives, Zeroing};

use super::{Ended, GRANULE, Overlay};
use crate::testing::{self, Chance, bytes, file};

const SIZE: u64 = (3 << 20) + 512;
const MANY: u64 = 1 << 30;

impl Chance {
    /// A range of whole blocks in a device of `size` bytes.
    fn range(&mut self, size: u64) -> (u64, u64) {
        let from = self.below(size / 512);
        let most = match self.below(8) {
            0 => size / 512,
            1..4 => 64,
            _ => 9,
        };
        let len = 1 + self.below(most.min(size / 512 - from));
        (from * 512, len * 512)
    }
}

fn overlay(base: &Arc<FileDevice>, bytes_max: u64) -> Overlay {
    Overlay::new(Arc::<FileDevice>::clone(base), tempfile::tempfile().unwrap(), bytes_max)
}

#[test]
fn an_overlay_is_what_was_written_over_what_the_base_was() {
    for seed in 0..20 {
        let mut chance = Chance(seed);
        let base = file(SIZE);
        for _ in 0..20 {
            let (at, len) = chance.range(SIZE);
            base.write(at, &vec![chance.byte(); testing::len(len)], Survives::Placed).unwrap();
        }
        let mut model = bytes(&*base);
        let shown = overlay(&base, MANY);
        for step in 0..200 {
            let (at, len) = chance.range(model.len() as u64);
            let range = testing::len(at)..testing::len(at + len);
            let fill = chance.byte();
            match chance.below(8) {
                0 | 1 => {
                    shown.write(at, &vec![fill; testing::len(len)], Survives::Placed).unwrap();
                    model[range.clone()].fill(fill);
                }
                2 => {
                    shown.load(at, &vec![fill; testing::len(len)]).unwrap();
                    model[range.clone()].fill(fill);
                }
                3 => {
                    shown.write_zeroes(at, len, Zeroing::KeepSpace, Survives::Placed).unwrap();
                    model[range.clone()].fill(0);
                }
                4 if model.len() < 4 << 20 => {
                    let size = shown.resize(model.len() as u64 + 512).unwrap();
                    model.resize(testing::len(size), 0);
                }
                _ => {
                    shown.preserve(at, len).unwrap();
                    let in_base = base.geometry().size;
                    if at + len <= in_base {
                        base.write(at, &vec![fill; testing::len(len)], Survives::Placed).unwrap();
                    } else {
                        base.resize(at + len).unwrap();
                    }
                }
            }
            let mut found = vec![1; range.len()];
            shown.read(at, &mut found).unwrap();
            assert!(found == model[range], "seed {seed}, step {step}");
        }
        assert!(bytes(&shown) == model, "seed {seed}");
        states_are_true(&shown, &model);
    }
}

fn states_are_true(shown: &Overlay, model: &[u8]) {
    let mut at = 0;
    while at < model.len() as u64 {
        let Extent { len, state } = shown.status(at, model.len() as u64 - at).unwrap();
        let there = &model[testing::len(at)..testing::len(at + len)];
        assert!(state == State::Data || there.iter().all(|byte| *byte == 0), "{at}");
        at += len;
    }
    assert_eq!(at, model.len() as u64);
}

#[test]
fn holes_of_the_base_are_kept_without_bytes() {
    let base = file(8 << 20);
    base.write(4 << 20, &[7; 8192], Survives::Durable).unwrap();
    let shown = overlay(&base, 8192);
    shown.preserve(0, 8 << 20).unwrap();
    assert_eq!(shown.held(), 8192);
    base.write(0, &vec![9; 8 << 20], Survives::Placed).unwrap();
    let found = bytes(&shown);
    assert!(found.iter().enumerate().all(|(at, byte)| {
        *byte == if (4 << 20..(4 << 20) + 8192).contains(&at) { 7 } else { 0 }
    }));
}

#[test]
fn a_write_beyond_the_bound_is_refused_and_a_trim_makes_room() {
    let base = file(1 << 20);
    let shown = overlay(&base, 4 * GRANULE);
    shown.write(0, &[1; 4 * 4096], Survives::Placed).unwrap();
    assert_eq!(shown.write(65536, &[1; 512], Survives::Placed), Err(BlockError::MediaFull));
    shown.write(512, &[2; 4096], Survives::Placed).unwrap();
    shown.trim(4096, 4096, Survives::Placed).unwrap();
    shown.write(65536, &[1; 512], Survives::Placed).unwrap();
    assert_eq!((shown.held(), shown.ended()), (4 * GRANULE, None));
}

#[test]
fn an_overlay_that_cannot_keep_the_base_ends_and_says_so() {
    let base = file(1 << 20);
    base.write(0, &[5; 1 << 20], Survives::Placed).unwrap();
    let shown = overlay(&base, 2 * GRANULE);
    shown.preserve(0, 8192).unwrap();
    let outgrown = Ended::ConfigOutgrown { bytes_max: 2 * GRANULE };
    assert_eq!(shown.preserve(8192, 512), Err(outgrown));
    assert_eq!(shown.preserve(0, 512), Err(outgrown));
    assert_eq!(shown.read(0, &mut [0; 512]), Err(BlockError::MediaNotKept));
    assert_eq!(shown.write(0, &[0; 512], Survives::Placed), Err(BlockError::MediaNotKept));
    assert_eq!(shown.flush(), Err(BlockError::MediaNotKept));
    assert_eq!(shown.ended(), Some(outgrown));
    let loaded = overlay(&base, GRANULE);
    assert_eq!(loaded.load(0, &[1; 8192]), Err(BlockError::MediaNotKept));
    assert_eq!(loaded.ended(), Some(Ended::ConfigOutgrown { bytes_max: GRANULE }));
}

#[test]
fn ranges_that_no_device_has_are_refused_or_have_nothing_to_keep() {
    let base = file(1 << 20);
    let shown = overlay(&base, MANY);
    for (offset, len) in [(u64::MAX, 1), (u64::MAX - 511, 512), (1 << 20, u64::MAX), (0, 0)] {
        assert_eq!(shown.preserve(offset, len), Ok(()));
    }
    assert_eq!(shown.resize(u64::MAX), Err(BlockError::ConfigFixedSize));
    assert_eq!(shown.resize(512), Err(BlockError::ConfigFixedSize));
    shown.load(u64::MAX - 511, &[0; 512]).unwrap_err();
    shown.load_zeroes(512, u64::MAX - 511).unwrap_err();
    assert_eq!(shown.ended(), None);
}

#[test]
fn a_store_that_fails_ends_the_overlay_and_not_the_base() {
    let base = file(1 << 20);
    base.write(0, &[5; 8192], Survives::Placed).unwrap();
    let named = tempfile::NamedTempFile::new().unwrap();
    let store = std::fs::File::open(named.path()).unwrap();
    let shown = Overlay::new(Arc::<FileDevice>::clone(&base), store, MANY);
    assert!(matches!(shown.preserve(0, 512), Err(Ended::MediaStore(_))));
    assert_eq!(shown.read(4096, &mut [0; 512]), Err(BlockError::MediaNotKept));
}

/// A base of which a part cannot be read.
#[derive(Debug)]
struct Damaged(Arc<FileDevice>, Mutex<std::ops::Range<u64>>);

impl BlockDevice for Damaged {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError> {
        let bad = self.1.lock().unwrap().clone();
        if offset < bad.end && offset + out.len() as u64 > bad.start {
            return Err(BlockError::MediaIo(5));
        }
        self.0.read(offset, out)
    }
    fn write(&self, offset: u64, bytes: &[u8], survives: Survives) -> Result<(), BlockError> {
        self.0.write(offset, bytes, survives)
    }
    fn flush(&self) -> Result<(), BlockError> {
        self.0.flush()
    }
    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        zeroing: Zeroing,
        survives: Survives,
    ) -> Result<(), BlockError> {
        self.0.write_zeroes(offset, len, zeroing, survives)
    }
    fn status(&self, offset: u64, len: u64) -> Result<Extent, BlockError> {
        self.0.status(offset, len)
    }
    fn resize(&self, size: u64) -> Result<u64, BlockError> {
        self.0.resize(size)
    }
}

#[test]
fn a_block_that_the_base_cannot_read_is_lost_alone() {
    let base = file(1 << 20);
    base.write(0, &[5; 32768], Survives::Placed).unwrap();
    let damaged = Arc::new(Damaged(Arc::clone(&base), Mutex::new(8192..8704)));
    let shown = Overlay::new(damaged, tempfile::tempfile().unwrap(), MANY);
    shown.preserve(0, 32768).unwrap();
    base.write(0, &[6; 32768], Survives::Placed).unwrap();
    assert_eq!(shown.read(8192, &mut [0; 512]), Err(BlockError::MediaLost { offset: 8192 }));
    let lost = shown.write(8192, &[0; 512], Survives::Placed);
    assert_eq!(lost, Err(BlockError::MediaLost { offset: 8192 }));
    let mut found = [0; 8192];
    for at in [0, 12288] {
        shown.read(at, &mut found).unwrap();
        assert_eq!(found, [5; 8192]);
    }
    shown.write(8192, &[9; 4096], Survives::Placed).unwrap();
    shown.read(8192, &mut found[..4096]).unwrap();
    assert_eq!(found[..4096], [9; 4096]);
}

#[test]
fn readers_never_see_a_base_that_changes_under_them() {
    let base = file(1 << 20);
    base.write(0, &[1; 1 << 20], Survives::Placed).unwrap();
    let shown = overlay(&base, MANY);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (shown, done) = (&shown, &done);
            scope.spawn(move || {
                let mut chance = Chance(seed);
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let (at, len) = chance.range(1 << 19);
                    let mut found = vec![0; testing::len(len)];
                    shown.read(at, &mut found).unwrap();
                    assert!(found.iter().all(|byte| *byte == 1), "{at}+{len}");
                }
            });
        }
        // The other half is written through the overlay and in the base at the same time.
        let (shown, written) = (&shown, &done);
        scope.spawn(move || {
            let mut chance = Chance(77);
            while !written.load(std::sync::atomic::Ordering::Relaxed) {
                let at = (1 << 19) + chance.below(1 << 10) * 512;
                shown.write(at, &[3; 512], Survives::Placed).unwrap();
                let mut found = [0; 512];
                shown.read(at, &mut found).unwrap();
                assert_eq!(found, [3; 512]);
            }
        });
        let mut chance = Chance(99);
        for _ in 0..20_000 {
            let (at, len) = chance.range(1 << 20);
            let len = len.min(16384);
            shown.preserve(at, len).unwrap();
            base.write(at, &vec![2; testing::len(len)], Survives::Placed).unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let found = bytes(&shown);
    assert!(found.iter().all(|byte| matches!(byte, 1 | 3)));
}

#[test]
fn a_reader_of_an_overlay_that_ends_meets_an_error_or_the_old_bytes() {
    for seed in 0..20 {
        let base = file(8 << 20);
        base.write(0, &vec![1; 8 << 20], Survives::Placed).unwrap();
        let shown = overlay(&base, 1 << 20);
        std::thread::scope(|scope| {
            for reader in 0..3 {
                let shown = &shown;
                scope.spawn(move || {
                    let mut chance = Chance(seed * 10 + reader);
                    loop {
                        let at = chance.below(255) * 32768;
                        let mut found = vec![0; 32768];
                        match shown.read(at, &mut found) {
                            Ok(()) => assert!(found.iter().all(|byte| *byte == 1)),
                            Err(error) => break assert_eq!(error, BlockError::MediaNotKept),
                        }
                    }
                });
            }
            for at in 0..256 {
                let _ = shown.preserve(at * 32768, 32768);
                base.write(at * 32768, &[2; 32768], Survives::Placed).unwrap();
            }
        });
        assert!(shown.ended().is_some());
    }
}
