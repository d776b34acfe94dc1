//! Crashes of a disk that does not write sectors whole: a sector on its way holds anything afterwards.
//!
//! A member whose source fills the sector that a commit ends in loses nothing acknowledged there.

use std::collections::BTreeMap;

use pmem::crash::{Event, Log, Recorder, Replay};

use super::crash_images::look;
use super::order::GEOMETRY;
use super::run::{Numbers, Run};
use crate::planted::Planted;

/// Sectors that are on their way after each event: those written since the last flush that has ended began.
fn on_their_way(tape: &Log) -> Vec<Vec<usize>> {
    let mut written: BTreeMap<usize, usize> = BTreeMap::new();
    let mut begun: BTreeMap<usize, usize> = BTreeMap::new();
    let mut after = vec![Vec::new()];
    for (at, event) in tape.events.iter().enumerate() {
        match event {
            Event::Write { offset, bytes } => {
                let sectors = offset / SECTOR..(offset + bytes.len()).div_ceil(SECTOR);
                written.extend(sectors.map(|sector| (sector, at)));
            }
            Event::FlushBegun { run } => {
                begun.insert(*run, at);
            }
            Event::FlushEnded { run } => {
                let begun = begun[run];
                written.retain(|_, written| *written > begun);
            }
            other => panic!("no event of a disk: {other:?}"),
        }
        after.push(written.keys().copied().collect());
    }
    after
}

/// The states that were opened, or the first that broke a promise.
fn crash_everywhere(seed: u64, fills: bool) -> Result<u64, String> {
    let len = usize::try_from(GEOMETRY.total()).unwrap();
    let (mut run, created) = Run::create(Recorder::storage(len), seed, fills);
    for _ in 0..40 {
        run.step_of_a_source();
    }
    let (tape, acks) = run.end();
    let on_their_way = on_their_way(&tape);
    let mut numbers = Numbers(seed | 1);
    let (mut replay, mut image, mut seen) = (Replay::new(&tape), Vec::new(), 0);
    while replay.step() {
        let point = replay.point();
        let at = point.at();
        if at < created {
            continue;
        }
        let claim = &acks.up_to(at).last().expect("one is noted when the ring is made").1;
        for sector in &on_their_way[at] {
            for sample in 0..4 {
                point.sample(sample + seed * 4, &mut image);
                let garbage = [0, 0xff, 0x5a][numbers.index(3)];
                image[sector * SECTOR..][..SECTOR].fill(garbage);
                look(Recorder::after_crash(&tape, image.clone()), claim)
                    .map_err(|error| format!("event {at}, sector {sector}: {error}"))?;
                seen += 1;
            }
        }
    }
    Ok(seen)
}

#[test]
fn a_sector_that_a_crash_destroys_holds_nothing_acknowledged() {
    let mut seen = 0;
    for seed in 1..=4 {
        seen += crash_everywhere(seed, true).unwrap_or_else(|bad| panic!("seed {seed}: {bad}"));
    }
    println!("{seen} crash states of a disk that destroys sectors");
    assert!(seen > 4_000, "{seen} states");
}

#[test]
fn a_commit_that_ends_within_a_sector_is_destroyed_with_it() {
    assert!((1..=4).any(|seed| crash_everywhere(seed, false).is_err()));
}

#[test]
fn a_destroyed_page_of_a_dirty_map_that_counts_is_found() {
    let found = Planted::TakesTornPages
        .during(|| (1..=4).any(|seed| crash_everywhere(seed, true).is_err()));
    assert!(found);
}

const SECTOR: usize = 512;
