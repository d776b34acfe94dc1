//! Damage of the structure is named with its place, stops changes where it has to, and is repaired.

use std::sync::Arc;

use block::{BlockDevice, BlockError, Survives};
use pmem::Medium;
use volume::{Access, Fault, Report, Volume, VolumeError, check, repair};

use crate::fixture::{SMALL, made, open};

const LEN: u64 = 64 << 10;

/// A volume whose sectors 0 to 9 hold their numbers.
fn filled() -> Arc<dyn Medium> {
    let medium = made(LEN, SMALL);
    let volume = open(&medium);
    for sector in 0..10_u8 {
        volume.write(u64::from(sector) * 512, &[sector + 1; 512], Survives::Durable).unwrap();
    }
    medium
}

fn map_and_flog(medium: &Arc<dyn Medium>) -> (u64, u64) {
    let facts = open(medium).arena_facts();
    (facts[0].map, facts[0].flog)
}

fn put_word(medium: &Arc<dyn Medium>, at: u64, word: u32) {
    medium.place(at, &word.to_le_bytes()).unwrap();
}

fn sectors_are_there(medium: &Arc<dyn Medium>, but: &[u64]) {
    let volume = open(medium);
    for sector in (0..10).filter(|sector| !but.contains(sector)) {
        let mut bytes = [0; 512];
        volume.read(sector * 512, &mut bytes).unwrap();
        assert_eq!(bytes, [u8::try_from(sector + 1).unwrap(); 512], "sector {sector}");
    }
}

fn repaired(medium: &Arc<dyn Medium>) -> Report {
    let report = repair(medium).unwrap();
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(open(medium).damage(), []);
    report
}

#[test]
fn either_info_block_serves_for_both_and_a_repair_writes_the_other() {
    let (first, copy) = (4096, LEN - 4096);
    for (broken, fault) in [(first, Fault::InfoBlock), (copy, Fault::InfoCopy)] {
        // A flipped byte, and a block that is gone altogether.
        for bytes in [vec![0xff; 1], vec![0; 4096]] {
            let medium = filled();
            medium.place(broken, &bytes).unwrap();
            sectors_are_there(&medium, &[]);
            let found = open(&medium).damage();
            assert!(found.len() == 1 && found[0].fault == fault && found[0].offset == broken);
            repaired(&medium);
            sectors_are_there(&medium, &[]);
        }
    }
}

#[test]
fn a_volume_without_any_info_block_is_none() {
    let medium = filled();
    for at in [4096, LEN - 4096] {
        medium.place(at, &[0; 4096]).unwrap();
    }
    let refused = Volume::open(Arc::clone(&medium), Access::ReadOnly).unwrap_err();
    assert_eq!(refused, VolumeError::PeerForeign);
    assert_eq!(repair(&medium), Err(VolumeError::PeerForeign));
}

#[test]
fn a_damaged_flog_entry_makes_the_arena_read_only_and_is_named() {
    let (_, flog) = map_and_flog(&filled());
    let lane = flog + 64;
    // The sequence of both halves, padding that is used, a block beyond the end, another lane's block.
    let cases = [
        (vec![(lane + 12, 2), (lane + 28, 2)], Fault::FlogSequence { lane: 1 }),
        (vec![(lane + 48, 1)], Fault::FlogPadding { lane: 1 }),
        (vec![(lane + 4, 100_000), (lane + 20, 100_000)], Fault::FlogBeyondEnd { lane: 1 }),
    ];
    for (words, fault) in cases {
        let medium = filled();
        words.iter().for_each(|(at, word)| put_word(&medium, *at, *word));
        let volume = open(&medium);
        let found = volume.damage();
        assert!(found.len() == 1 && found[0].fault == fault, "{found:?}");
        assert_eq!(found[0].offset, lane);
        let refused = volume.write(512, &[1; 512], Survives::Durable);
        assert_eq!(refused, Err(BlockError::MediaDamaged { offset: 512 }));
        sectors_are_there(&medium, &[]);
        repaired(&medium);
        sectors_are_there(&medium, &[]);
    }
}

#[test]
fn a_map_entry_beyond_the_end_is_named_and_becomes_an_error() {
    let medium = filled();
    let (map, _) = map_and_flog(&medium);
    put_word(&medium, map + 3 * 4, 0xc000_0000 | 70_000);
    let volume = open(&medium);
    let refused = volume.read(3 * 512, &mut [0; 512]);
    assert_eq!(refused, Err(BlockError::MediaDamaged { offset: 3 * 512 }));
    let fault = Fault::MapBeyondEnd { sector: 3, block: 70_000 };
    assert!(volume.damage()[0].fault == fault && volume.damage()[0].offset == map + 12);
    let refused = volume.write(0, &[1; 512], Survives::Durable);
    assert_eq!(refused, Err(BlockError::MediaDamaged { offset: 0 }));
    assert_eq!(repaired(&medium).lost, 1);
    sectors_are_there(&medium, &[3]);
    let volume = open(&medium);
    let lost = volume.read(3 * 512, &mut [0; 512]);
    assert_eq!(lost, Err(BlockError::MediaLost { offset: 3 * 512 }));
    volume.write(3 * 512, &[4; 512], Survives::Durable).unwrap();
    sectors_are_there(&medium, &[]);
}

#[test]
fn a_block_of_two_sectors_is_found_and_the_second_becomes_an_error() {
    let medium = filled();
    let (map, _) = map_and_flog(&medium);
    let mut entry = [0; 4];
    medium.read(map + 2 * 4, &mut entry).unwrap();
    medium.place(map + 7 * 4, &entry).unwrap();
    let report = check(&medium).unwrap();
    let twice = |damage: &volume::Damage| matches!(damage.fault, Fault::BlockTwice { .. });
    assert!(report.damage.iter().any(twice), "{report:?}");
    assert_eq!(repaired(&medium).lost, 1);
    sectors_are_there(&medium, &[7]);
}

#[test]
fn an_error_flag_stops_changes_until_a_repair() {
    let medium = filled();
    let mut block = vec![0; 4096];
    medium.read(4096, &mut block).unwrap();
    block[48] = 1;
    // The sum counts the words: one more in word 12, and so in each of the 1012 sums from there on.
    let word = |at: usize, block: &[u8]| u32::from_le_bytes(block[at..at + 4].try_into().unwrap());
    let (low, high) = (word(4088, &block), word(4092, &block));
    block[4088..4092].copy_from_slice(&low.wrapping_add(1).to_le_bytes());
    block[4092..].copy_from_slice(&high.wrapping_add(1012).to_le_bytes());
    medium.place(4096, &block).unwrap();
    let volume = open(&medium);
    assert!(volume.damage().iter().any(|damage| damage.fault == Fault::ErrorFlag), "{volume:?}");
    let refused = volume.write(0, &[1; 512], Survives::Durable);
    assert_eq!(refused, Err(BlockError::MediaDamaged { offset: 0 }));
    repaired(&medium);
    sectors_are_there(&medium, &[]);
}

#[test]
fn the_older_way_of_laying_out_the_flog_is_read_and_kept() {
    let medium = filled();
    let (_, flog) = map_and_flog(&medium);
    for lane in 0..4 {
        let mut group = [0; 64];
        medium.read(flog + lane * 64, &mut group).unwrap();
        group.copy_within(16..32, 32);
        group[16..32].fill(0);
        medium.place(flog + lane * 64, &group).unwrap();
    }
    sectors_are_there(&medium, &[]);
    let volume = open(&medium);
    assert_eq!(volume.damage(), []);
    for round in 0..20 {
        volume.write(0, &[round; 512], Survives::Durable).unwrap();
    }
    volume.write(0, &[1; 512], Survives::Durable).unwrap();
    sectors_are_there(&medium, &[]);
    let mut second = [0; 16];
    medium.read(flog + 16, &mut second).unwrap();
    assert_eq!(second, [0; 16], "the padding stays empty");
    assert!(check(&medium).unwrap().is_whole());
}
