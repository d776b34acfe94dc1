//! Checks, interop runs and benchmarks.

fn main() {}
