//! Remote persistent memory as a file service.

fn main() {}
