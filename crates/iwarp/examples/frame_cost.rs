//! Measures the cost of writing and reading one 4 KiB frame, and of its CRC alone.
//!
//! `cargo run --release -p landfast-iwarp --example frame_cost`

#![allow(clippy::print_stdout)]

use std::convert::Infallible;
use std::hint::black_box;
use std::time::Instant;

use iwarp::mpa::{Profile, ProfileFlags, crc32c};
use iwarp::{Agreement, Received, Role, Stag, Stream};

/// Frames per measurement, so that a measurement takes tens of milliseconds.
const ROUNDS: u32 = 100_000;
/// Measurements, of which the fastest counts: other load slowed the rest.
const REPEATS: u32 = 5;

fn main() {
    println!(
        "{:>8} {:>6} {:>12} {:>12} {:>12}",
        "payload", "crc", "emit ns", "parse ns", "crc alone"
    );
    for payload in [64_usize, 4096, 61_440] {
        for crc in [true, false] {
            let (emit, parse) = frame_cost(payload, crc);
            let bytes = vec![0x5a; payload + 16];
            let alone = nanoseconds(|| {
                black_box(crc32c(black_box(&bytes)));
            });
            println!("{payload:>8} {crc:>6} {emit:>12.1} {parse:>12.1} {alone:>12.1}");
        }
    }
}

fn streams(crc: bool) -> [Stream; 2] {
    let profile = Profile::new(ProfileFlags::LARGE_FPDU, 0x1_0000, &[]).ok();
    let agreement = Agreement {
        crc,
        ours: profile,
        theirs: profile,
        ..Agreement::plain(Role::Initiator, 32, 32)
    };
    let other = Agreement { role: Role::Responder, ..agreement };
    [Stream::new(&agreement, 1460), Stream::new(&other, 1460)]
}

/// Nanoseconds to emit one frame, the copy of its payload included, and to parse it.
fn frame_cost(payload: usize, crc: bool) -> (f64, f64) {
    let [mut sender, mut receiver] = streams(crc);
    let source = vec![0x5a; payload];
    let mut out = vec![0; sender.frame_size_max()];
    let remaining = u32::try_from(payload).expect("payloads above are small");
    let mut size = 0;
    let emit = nanoseconds(|| {
        let framed = sender.frame_write(&mut out, Stag(7), 0x1000, remaining, |room| {
            room.copy_from_slice(black_box(&source));
            Ok::<(), Infallible>(())
        });
        size = framed.expect("the buffer has room").size;
    });
    let parse = nanoseconds(|| match receiver.receive(black_box(&out[..size])) {
        Ok(Received::Frame { consumed, .. }) => assert_eq!(consumed, size),
        other => panic!("{other:?}"),
    });
    (emit, parse)
}

fn nanoseconds(mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..REPEATS {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            work();
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS));
    }
    best
}
