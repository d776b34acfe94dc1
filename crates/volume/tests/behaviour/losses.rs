//! Blocks that the medium loses: their sectors say so, and a write heals them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use block::{BlockDevice, BlockError, Survives, Zeroing};
use pmem::{Medium, MediumError};
use volume::{Access, Fault, Volume, check};

use crate::fixture::{SMALL, made};
use crate::hooked::Hooked;

const EIO: i32 = 5;

/// Blocks of 512 bytes of a medium that cannot be read, and whether a write brings them back.
#[derive(Debug, Default)]
struct Lost {
    blocks: BTreeSet<u64>,
    for_good: bool,
}

fn losing(inner: &Arc<dyn Medium>, lost: &Arc<Mutex<Lost>>) -> Arc<dyn Medium> {
    let mut medium = Hooked::new(Arc::clone(inner));
    let (read, place) = (Arc::clone(lost), Arc::clone(lost));
    medium.on_read = Box::new(move |inner, offset, out| {
        match out.len() == 512 && read.lock().unwrap().blocks.contains(&offset) {
            true => Err(MediumError::MediaIo(EIO)),
            false => inner.read(offset, out),
        }
    });
    medium.on_place = Box::new(move |inner, offset, bytes| {
        let mut lost = place.lock().unwrap();
        if bytes.len() == 512 && lost.blocks.contains(&offset) {
            if lost.for_good {
                return Err(MediumError::MediaIo(EIO));
            }
            lost.blocks.remove(&offset);
        }
        inner.place(offset, bytes)
    });
    Arc::new(medium)
}

/// Where the block of sector 0 lies.
fn block_of_sector_0(medium: &Arc<dyn Medium>) -> u64 {
    let facts = Volume::open(Arc::clone(medium), Access::ReadOnly).unwrap().arena_facts();
    let mut entry = [0; 4];
    medium.read(facts[0].map, &mut entry).unwrap();
    facts[0].start + 4096 + u64::from(u32::from_le_bytes(entry) & 0x3fff_ffff) * 512
}

fn volume_with_a_lost_sector() -> (Arc<dyn Medium>, Arc<Mutex<Lost>>, Volume) {
    let memory = made(64 << 10, SMALL);
    let lost = Arc::new(Mutex::new(Lost::default()));
    let volume = Volume::open(losing(&memory, &lost), Access::ReadWrite).unwrap();
    volume.write(0, &[1; 1024], Survives::Durable).unwrap();
    lost.lock().unwrap().blocks.insert(block_of_sector_0(&memory));
    (memory, lost, volume)
}

#[test]
fn a_sector_that_the_medium_lost_fails_and_a_write_heals_it() {
    let (memory, lost, volume) = volume_with_a_lost_sector();
    let failed = Err(BlockError::MediaLost { offset: 0 });
    assert_eq!(volume.read(0, &mut [0; 512]), failed);
    let mut next = [0; 512];
    volume.read(512, &mut next).unwrap();
    assert_eq!(next, [1; 512]);
    // The mark outlives the loss, and the process.
    lost.lock().unwrap().blocks.clear();
    let reopened = Volume::open(Arc::clone(&memory), Access::ReadWrite).unwrap();
    assert_eq!(reopened.read(0, &mut [0; 512]), failed);
    assert_eq!(check(&memory).unwrap().lost, 1);
    reopened.write(0, &[2; 512], Survives::Durable).unwrap();
    reopened.read(0, &mut next).unwrap();
    assert_eq!(next, [2; 512]);
    let report = check(&memory).unwrap();
    assert!(report.is_whole() && report.lost == 0, "{report:?}");
}

#[test]
fn a_medium_that_cannot_be_read_now_has_lost_nothing() {
    const ENOMEM: i32 = 12;
    let memory = made(64 << 10, SMALL);
    let fails = Arc::new(AtomicBool::new(false));
    let (mut medium, read) = (Hooked::new(Arc::clone(&memory)), Arc::clone(&fails));
    medium.on_read =
        Box::new(move |inner, offset, out| match out.len() == 512 && read.load(Ordering::SeqCst) {
            true => Err(MediumError::MediaIo(ENOMEM)),
            false => inner.read(offset, out),
        });
    let volume = Volume::open(Arc::new(medium), Access::ReadWrite).unwrap();
    volume.write(0, &[1; 512], Survives::Durable).unwrap();
    fails.store(true, Ordering::SeqCst);
    let mut bytes = [0; 512];
    assert_eq!(volume.read(0, &mut bytes), Err(BlockError::MediaIo(ENOMEM)));
    fails.store(false, Ordering::SeqCst);
    volume.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [1; 512]);
    assert_eq!(check(&memory).unwrap().lost, 0);
}

#[test]
fn zeroes_that_are_not_durable_are_not_durable_for_a_second_request_either() {
    let memory = made(64 << 10, SMALL);
    let (mut medium, (begun, has_begun)) = (Hooked::new(Arc::clone(&memory)), channel());
    let (ends, ended) = channel::<()>();
    let gate = Mutex::new(Some((begun, ended)));
    // The persist of a map entry: it fails, and others come meanwhile.
    medium.on_persist = Box::new(move |inner, offset, len| {
        let gate = if len == 4 { gate.lock().unwrap().take() } else { None };
        let Some((begun, ended)) = gate else { return inner.persist(offset, len) };
        begun.send(()).unwrap();
        ended.recv().unwrap();
        Err(MediumError::MediaIo(EIO))
    });
    let volume = Volume::open(Arc::new(medium), Access::ReadWrite).unwrap();
    let zero = || volume.write_zeroes(0, 512, Zeroing::MayFree, Survives::Durable);
    std::thread::scope(|scope| {
        let first = scope.spawn(zero);
        has_begun.recv().unwrap();
        let second = scope.spawn(zero);
        // The second waits for the first, which has the lock of the entry, or is refused behind it: both end alike.
        std::thread::yield_now();
        ends.send(()).unwrap();
        assert!(first.join().unwrap().is_err());
        assert!(second.join().unwrap().is_err());
    });
}

#[test]
fn zeroes_heal_a_lost_sector_too() {
    let (memory, _lost, volume) = volume_with_a_lost_sector();
    volume.read(0, &mut [0; 512]).unwrap_err();
    volume.write_zeroes(0, 512, Zeroing::MayFree, Survives::Durable).unwrap();
    let mut bytes = [1; 512];
    volume.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 512]);
    assert!(check(&memory).unwrap().is_whole());
}

#[test]
fn a_block_that_never_heals_carries_no_write_again() {
    let (memory, lost, volume) = volume_with_a_lost_sector();
    lost.lock().unwrap().for_good = true;
    volume.read(0, &mut [0; 512]).unwrap_err();
    for round in 0..50 {
        volume.write(0, &[round; 512], Survives::Durable).unwrap();
        let mut bytes = [1; 512];
        volume.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [round; 512]);
    }
    assert_eq!(volume.arena_facts()[0].lanes_lost, 1);
    drop(volume);
    let reopened = Volume::open(losing(&memory, &lost), Access::ReadWrite).unwrap();
    assert_eq!(reopened.arena_facts()[0].lanes_lost, 1, "the flog keeps the mark");
}

#[test]
fn a_volume_without_a_block_that_holds_bytes_takes_no_changes() {
    let memory = made(64 << 10, SMALL);
    let lost = Arc::new(Mutex::new(Lost::default()));
    let volume = Volume::open(losing(&memory, &lost), Access::ReadWrite).unwrap();
    let facts = volume.arena_facts();
    let first = facts[0].start + 4096 + u64::from(facts[0].sectors) * 512;
    let mut state = lost.lock().unwrap();
    state.blocks.extend((0..4).map(|lane| first + lane * 512));
    state.for_good = true;
    drop(state);
    let refused = volume.write(0, &[1; 512], Survives::Durable);
    assert_eq!(refused, Err(BlockError::MediaDamaged { offset: 0 }));
    assert_eq!(volume.damage()[0].fault, Fault::LanesLost);
}

#[test]
fn a_medium_that_fails_in_the_middle_of_a_write_stops_all_changes() {
    let memory = made(64 << 10, SMALL);
    let mut medium = Hooked::new(memory);
    // The persist of the flog half.
    medium.on_persist = Box::new(|inner, offset, len| match len {
        16 => Err(MediumError::Poisoned),
        _ => inner.persist(offset, len),
    });
    let volume = Volume::open(Arc::new(medium), Access::ReadWrite).unwrap();
    let failed = volume.write(0, &[1; 512], Survives::Durable);
    assert_eq!(failed, Err(BlockError::MediaPoisoned));
    let refused = volume.write(512, &[1; 512], Survives::Durable);
    assert_eq!(refused, Err(BlockError::MediaDamaged { offset: 512 }));
    assert_eq!(volume.flush(), Err(BlockError::MediaPoisoned));
}
