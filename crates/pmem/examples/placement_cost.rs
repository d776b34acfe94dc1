//! Measures the cost of placement, reading and persisting on this machine.
//!
//! `cargo run --release -p landfast-pmem --example placement_cost`
//!
//! Prints the median and the 99th percentile of batches, in nanoseconds per operation. The
//! `emulated` rows execute the instructions of persistent memory, on tmpfs.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use pmem::{AtomicOp, Medium, MediumError, OpenOptions, anonymous, map_file};

fn main() -> Result<(), Box<dyn Error>> {
    let plain = OpenOptions::default();
    let emulated = OpenOptions { emulate_persistence: true };
    let volatile = map_file(&sized(tempfile::tempfile_in("/dev/shm")?)?, LEN, plain)?;
    let pmem_like = map_file(&sized(tempfile::tempfile_in("/dev/shm")?)?, LEN, emulated)?;
    let storage = map_file(&sized(tempfile::tempfile()?)?, LEN, plain)?;
    let memory = anonymous(LEN)?;
    for medium in [&volatile, &pmem_like, &memory] {
        medium.prepare(0, LEN)?;
    }
    println!("{:<34} {:>10} {:>10}", "ns per operation", "p50", "p99");
    for (name, medium) in [("anonymous", &memory), ("tmpfs", &volatile), ("emulated", &pmem_like)] {
        memory_rows(name, medium.as_ref())?;
    }
    persist_rows(pmem_like.as_ref())?;
    storage_rows(storage.as_ref())?;
    opening_rows()
}

fn memory_rows(name: &str, medium: &dyn Medium) -> Result<(), MediumError> {
    for size in [64, 255, 256, 1408, 4096, 65_536] {
        let mut buffer = vec![0x5a; size];
        let mut walk = Walk::new(size);
        row(&format!("{name}: try_place {size}"), BATCH, || {
            medium.try_place(walk.next_offset(), black_box(&buffer))
        })?;
        row(&format!("{name}: try_read {size}"), BATCH, || {
            medium.try_read(walk.next_offset(), black_box(&mut buffer))
        })?;
    }
    let mut walk = Walk::new(64);
    row(&format!("{name}: try_atomic"), BATCH, || {
        medium.try_atomic(walk.next_offset(), AtomicOp::FetchAdd { add: 1, mask: 0 }).map(drop)
    })
}

fn persist_rows(medium: &dyn Medium) -> Result<(), MediumError> {
    let page = [0x5a; 4096];
    let mut walk = Walk::new(4096);
    row("emulated: try_persist, idle", BATCH, || medium.try_persist(0, 4096))?;
    row("emulated: place 4096 and persist", BATCH, || {
        let offset = walk.next_offset();
        medium.try_place(offset, black_box(&page))?;
        medium.try_persist(offset, 4096)
    })
}

fn storage_rows(medium: &dyn Medium) -> Result<(), MediumError> {
    let mut page = [0x5a; 4096];
    let mut walk = Walk::new(4096);
    row("storage: place 4096", 10, || medium.place(walk.next_offset(), &page))?;
    row("storage: try_read 4096, cached", 10, || {
        medium.read(0, &mut page)?;
        medium.try_read(0, &mut page)
    })?;
    row("storage: place 4096 and persist", 1, || {
        let offset = walk.next_offset();
        medium.place(offset, &page)?;
        medium.persist(offset, 4096)
    })
}

fn opening_rows() -> Result<(), Box<dyn Error>> {
    for shift in [20, 30, 40] {
        let file = tempfile::tempfile_in("/dev/shm")?;
        file.set_len(1 << shift)?;
        row(&format!("map_file and close, 2^{shift} bytes"), 1, || {
            map_file(&file, 1 << shift, OpenOptions::default()).map(drop)
        })?;
    }
    Ok(())
}

/// Times `operation` in batches and prints one line.
fn row<E>(name: &str, batch: u32, mut operation: impl FnMut() -> Result<(), E>) -> Result<(), E> {
    let mut times = Vec::new();
    for _ in 0..SAMPLES {
        let start = Instant::now();
        for _ in 0..batch {
            operation()?;
        }
        times.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(batch));
    }
    times.sort_by(f64::total_cmp);
    let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!("{name:<34} {p50:>10.1} {p99:>10.1}");
    Ok(())
}

/// Offsets that walk through the medium, one operation after the other.
struct Walk {
    step: u64,
    offset: u64,
}

impl Walk {
    fn new(size: usize) -> Self {
        let step = size.next_multiple_of(64);
        Self { step: u64::try_from(step).unwrap_or(LEN), offset: 0 }
    }

    fn next_offset(&mut self) -> u64 {
        self.offset =
            if self.offset + 2 * self.step > WALKED { 0 } else { self.offset + self.step };
        self.offset
    }
}

fn sized(file: std::fs::File) -> std::io::Result<std::fs::File> {
    file.set_len(LEN)?;
    Ok(file)
}

const LEN: u64 = 64 << 20;
/// Bytes that a [`Walk`] cycles through: more than the second-level cache, less than the third.
const WALKED: u64 = 8 << 20;
const BATCH: u32 = 100;
const SAMPLES: usize = 500;
