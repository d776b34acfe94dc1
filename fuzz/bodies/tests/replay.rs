//! Every kept input of every fuzz target, as an ordinary test.

#![cfg(test)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

// What is instrumented calls the engine, which asks for a target.
#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|_data: &[u8]| {});

fn corpus() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().map(|folder| folder.join("corpus")).find(|corpus| corpus.is_dir()).unwrap()
}

fn inputs(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(corpus().join(target)).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn every_kept_input_passes() {
    for (target, body) in bodies::TARGETS {
        for (path, input) in inputs(target) {
            let outcome = std::panic::catch_unwind(|| body(&input));
            assert!(outcome.is_ok(), "{target} fails on {}", path.display());
        }
    }
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let targets: BTreeSet<_> = bodies::TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let folders = fs::read_dir(corpus()).unwrap();
    let folders: BTreeSet<_> =
        folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(targets, folders);
    for target in &targets {
        assert!(!inputs(target).is_empty(), "{target} has no inputs");
    }
}

#[test]
fn the_corpora_stay_small_enough_to_be_kept_in_the_repository() {
    const SIZE_MAX: usize = 3 << 20;
    let size: usize = bodies::TARGETS
        .iter()
        .flat_map(|(target, _)| inputs(target))
        .map(|(_, input)| input.len())
        .sum();
    assert!(size <= SIZE_MAX, "{size} bytes: run fuzz/run --minimise");
}
