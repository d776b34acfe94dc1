//! What the check of the order costs a lock that nobody else holds: a lock with a rank beside `std`'s, in turn.
//!
//! `cargo run --release -p landfast-basics --example lock_order` prints the nanoseconds of one lock and unlock, the
//! median of the rounds, alone and with another lock held.

use std::hint::black_box;
use std::time::Instant;

basics::ranks! {
    /// Both.
    const ALL;
    Outer = 1, "the outer lock";
    Inner = 2, "the inner lock";
}

fn main() {
    assert_eq!(ALL.len(), 2, "two ranks");
    let (outer, inner) = (ordered::<Outer>(), ordered::<Inner>());
    let (std_outer, std_inner) = (std::sync::Mutex::new(0_u64), std::sync::Mutex::new(0_u64));
    let mut alone: [Vec<f64>; 2] = Default::default();
    let mut nested: [Vec<f64>; 2] = Default::default();
    for _ in 0..ROUNDS {
        alone[0].push(each(|| *black_box(&std_inner).lock().expect("nobody panics") += 1));
        alone[1].push(each(|| *black_box(&inner).lock() += 1));
        nested[0].push(each(|| {
            let _held = black_box(&std_outer).lock().expect("nobody panics");
            *black_box(&std_inner).lock().expect("nobody panics") += 1;
        }));
        nested[1].push(each(|| {
            let _held = black_box(&outer).lock();
            *black_box(&inner).lock() += 1;
        }));
    }
    for (name, [std, ordered]) in [("one lock", alone), ("two locks, nested", nested)] {
        println!("{name}: std {:.2} ns, with a rank {:.2} ns", median(std), median(ordered));
    }
}

fn ordered<R: basics::ordered::Rank>() -> basics::ordered::Mutex<u64, R> {
    basics::ordered::Mutex::new(0)
}

// Nanoseconds of one call.
fn each(mut call: impl FnMut()) -> f64 {
    let begin = Instant::now();
    (0..CALLS).for_each(|_| call());
    begin.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}

fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

const ROUNDS: usize = 201;
const CALLS: u32 = 100_000;
