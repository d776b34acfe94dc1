//! An eviction storm: threads read and place at random in a sparse file far larger than the budget, and the memory of this
//! process is looked at all the time.
//!
//! `cargo run --release -p landfast-flash --example storm -- [SECONDS [BUDGET_MIB [FILE_MIB [FOLDER]]]]` prints a line each
//! second and ends with an error once more than the budget and 5 % is resident. An hour: `storm -- 3600`.

mod run;

use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (seconds, budget, file) = (number(10)?, number(256)?, number(16 << 10)?);
    let folder = arguments.next().unwrap_or_else(|| "/var/tmp".to_owned());
    let storm = run::Storm {
        folder: folder.into(),
        budget: budget << 20,
        len: file << 20,
        // Every tenth access places, in the first 512 MiB: the disk of the machine stays free.
        placed_len: (file << 20).min(512 << 20),
        threads: 4,
    };
    let worst = storm.run(Duration::from_secs(seconds), |report| println!("{report}"))?;
    println!("worst: {worst}");
    if worst.resident > storm.budget + storm.budget / 20 {
        return Err("more than the budget and 5 % was resident".into());
    }
    Ok(())
}
