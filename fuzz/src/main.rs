//! One libFuzzer program for every target; the environment variable `FUZZ_TARGET` says which.
//!
//! One program instead of one for each target: linking thirty of them costs more than a short run.
//! `fuzz/run` starts it.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static BODY: LazyLock<bodies::Body> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    bodies::find(&name).unwrap_or_else(|| {
        let names: Vec<_> = bodies::TARGETS.iter().map(|(name, _)| *name).collect();
        panic!("FUZZ_TARGET is {name:?}, not one of {names:?}")
    })
});

fuzz_target!(|data: &[u8]| BODY(data));
