//! What every layer needs and no domain owns.
//!
//! Start at [`Environment`]: what a program reads of the world beside its inputs. It is a value that
//! is passed down, never a global, so that two servers of one process can live in two environments.
//!
//! | read | in production | under a test's control |
//! |---|---|---|
//! | [`Clock::now`] | the kernel's monotonic clock | [`ManualClock`] |
//! | [`Clock::time_of_day`] | the kernel's wall clock | [`ManualClock`] |
//! | [`Random::fill`] | the kernel's generator | [`SeededRandom`] |
//!
//! [`until`] and [`found`] wait for a state that others change. [`Table`] keeps entries under keys that can go stale
//! but never mean another entry. [`ordered`] has locks that check in which order a thread takes them. [`create_anew`] makes a file for a secret, [`place_of_file`] says where one would be made.
//! [`planted!`] makes the faults that tests plant.
//!
//! Code that has an environment reads neither clocks nor random numbers elsewhere: `cargo xtask tidy`
//! looks for such reads. Tasks, timers and blocking work are
//! tokio's: the simulator (`crates/sim`) schedules them below the programs, call by call of the system.

#![forbid(unsafe_code)]

mod clock;
mod environment;
mod event;
mod manual_clock;
mod new_file;
pub mod ordered;
mod planted;
mod private_file;
mod random;
mod seeded_random;
mod table;

pub use clock::{Clock, TimeSource};
pub use environment::Environment;
pub use event::{found, until};
/// Why the kernel has no random numbers.
pub use getrandom::Error as RandomError;
pub use manual_clock::ManualClock;
pub use new_file::place_of_file;
pub use private_file::create_anew;
pub use random::{Random, RandomSource};
pub use seeded_random::SeededRandom;
pub use table::{Full, Key, Table};
