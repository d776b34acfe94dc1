//! How long it takes to map files of 1 GiB, 100 GiB and 1 TiB lazily, beside a 1 GiB file that is populated eagerly.
//!
//! `cargo run --release -p landfast-flash --example registration -- [FOLDER]`. The files are sparse and take no room; a
//! file system may bound their length.

use std::time::Instant;

use flash::{Pool, map_file};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "/var/tmp".to_owned());
    let pool = Pool::new(64 << 20)?;
    let share = pool.share(64 << 20)?;
    for gib in [1, 100, 1024, 1, 100, 1024] {
        let mut times: Vec<u128> = Vec::new();
        for _ in 0..ROUNDS {
            let file = tempfile::tempfile_in(&folder)?;
            file.set_len(gib << 30)?;
            let start = Instant::now();
            let medium = map_file(&file, gib << 30, &share)?;
            times.push(start.elapsed().as_nanos());
            drop(medium);
        }
        times.sort_unstable();
        println!(
            "lazy  {gib:>5} GiB: median {} us, worst {} us of {ROUNDS}",
            times[times.len() / 2] / 1000,
            times[times.len() - 1] / 1000
        );
    }
    // The control arm: 64 MiB of a sparse file, every page made present before the first access.
    let file = tempfile::tempfile_in(&folder)?;
    file.set_len(64 << 20)?;
    let start = Instant::now();
    let mut page = [0; 4096];
    for number in 0..(64 << 20) / 4096 {
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut page, number * 4096)?;
    }
    println!("eager    64 MiB: {} us, every page read once", start.elapsed().as_micros());
    Ok(())
}

const ROUNDS: usize = 201;
