//! Blocks that the medium loses: their sectors say so, and a write heals them.

use std::collections::BTreeSet;
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
