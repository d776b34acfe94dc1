//! Cost of a durable write of 4 KiB at random, on memory treated as persistent: `write_cost [SECONDS] [THREADS]`.
//!
//! Arms, interleaved: the volume (block mode), the same medium written in place (mapped mode), and each step of the
//! volume's write by itself, which says where its time goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use block::{BlockDevice, Survives};
use pmem::{AtomicOp, OpenOptions, anonymous_with};
use rustix::time::{ClockId, clock_gettime};
use volume::{Access, Format, Volume, create};

const SECTOR: usize = 4096;
const MEDIUM: u64 = 256 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).filter_map(|number| number.parse::<u64>().ok());
    let (seconds, threads) = (numbers.next().unwrap_or(3), numbers.next().unwrap_or(1));
    let memory = anonymous_with(MEDIUM, OpenOptions { emulate_persistence: true })?;
    create(&memory, Format::linux(4096, [1; 16]))?;
    let volume = Volume::open(Arc::clone(&memory), Access::ReadWrite)?;
    let raw = anonymous_with(MEDIUM, OpenOptions { emulate_persistence: true })?;
    let (bytes, sectors) = (vec![7_u8; SECTOR], volume.geometry().size / 4096);
    for sector in 0..sectors {
        volume.write(sector * 4096, &bytes, Survives::Durable)?;
        raw.place(sector * 4096, &bytes)?;
    }
    let at = |random: u64| random % sectors * 4096;
    let place = |offset: u64, bytes: &[u8]| {
        let _ = raw.place(offset, bytes).and_then(|()| raw.persist(offset, 4096));
    };
    let arms: [(&str, &(dyn Fn(u64) + Sync)); 5] = [
        ("block mode", &|random| {
            let _ = volume.write(at(random), &bytes, Survives::Durable);
        }),
        ("mapped mode", &|random| place(at(random), &bytes)),
        ("  16 bytes placed and persisted (flog)", &|random| {
            let _ = raw.place(random % 256 * 64, &bytes[..16]).and_then(|()| raw.persist(0, 16));
        }),
        ("  word replaced and persisted (map)", &|random| {
            let op = AtomicOp::CompareSwap {
                compare: 0,
                compare_mask: 0,
                swap: random,
                swap_mask: 0xffff_ffff,
            };
            let _ = raw.atomic(random % 8192 * 8, op).and_then(|_| raw.persist(0, 8));
        }),
        ("  word read (map)", &|random| {
            let mut word = [0; 8];
            let _ = raw.read(random % 8192 * 8, &mut word);
            std::hint::black_box(word);
        }),
    ];
    println!("4 KiB at random, durable, {threads} threads, {} MiB", MEDIUM >> 20);
    for (name, arm) in arms {
        let (rate, busy) = measure(arm, threads, Duration::from_secs(seconds));
        println!("{name:<42} {rate:>12.0}/s {busy:>8.0} ns of a CPU each");
    }
    Ok(())
}

/// Calls a second of all threads, and the processor time of one call in nanoseconds: on a busy machine the second
/// says what the call costs, and the first what was left for it.
fn measure(arm: &(dyn Fn(u64) + Sync), threads: u64, time: Duration) -> (f64, f64) {
    let (stop, calls, busy) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (stop, calls, busy) = (&stop, &calls, &busy);
            scope.spawn(move || {
                let (mut random, mut done) = (thread * 7 + 0x9e37_79b9_7f4a_7c15, 0);
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..64 {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        arm(random);
                    }
                    done += 64;
                }
                calls.fetch_add(done, Ordering::Relaxed);
                let spent = clock_gettime(ClockId::ThreadCPUTime);
                let nanoseconds = spent.tv_sec * 1_000_000_000 + spent.tv_nsec;
                busy.fetch_add(u64::try_from(nanoseconds).unwrap_or(0), Ordering::Relaxed);
            });
        }
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
    });
    let calls = f64::from(u32::try_from(calls.into_inner()).unwrap_or(u32::MAX));
    let busy = Duration::from_nanos(busy.into_inner()).as_secs_f64();
    (calls / began.elapsed().as_secs_f64(), busy / calls * 1e9)
}
