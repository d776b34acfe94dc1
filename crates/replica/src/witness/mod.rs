//! The witness: one record for each group that says who is the source and who is in sync, outside of the members.
//!
//! A source asks the witness before it begins an epoch and before the set in sync changes ([`crate::core::Action::Propose`]).
//! The witness takes a seat that may follow the one it has ([`may_follow`]), and makes it durable; of two that want to
//! follow the same seat it takes one. So an epoch has one source, and whoever was not in sync cannot become the source,
//! however late, doubled or lost messages and answers are. No clock has a part in that.
//!
//! ```text
//!   seat        the record, its text, what may follow what
//!   file        a file: for members on one machine, and for tests
//!   etcd        a key of etcd, and beside it who is alive
//!   alive       what a member says of itself while it lives
//!   promoter    decides who promotes itself when a source is gone
//!   units       starts and stops what runs on the volumes
//!   automatic   a promoter at work: threads around it, etcd and the units
//! ```
//!
//! A source that cannot reach its witness goes on as long as its set in sync does not have to change.
//! See docs/replica-witness.md.

mod alive;
pub mod automatic;
mod error;
pub mod etcd;
mod file;
pub mod promoter;
mod seat;
pub mod units;

pub use self::alive::{ALIVE_LEN_MAX, Alive, Sight};
pub use self::error::{Asked, Attempt, FileStep, Outcome, WitnessError};
pub use self::file::FileWitness;
pub use self::seat::{Rule, SEAT_LEN_MAX, Seat, SeatError, may_follow, may_follow_by_force};

/// Keeps the record of one group. Calls may wait for a network or a disk, for a bounded time.
pub trait Witness: Send + Sync + std::fmt::Debug {
    /// The seat that is recorded.
    ///
    /// # Errors
    ///
    /// The witness cannot be asked, or what it holds is no seat of this group.
    fn load(&self) -> Result<Option<Seat>, WitnessError>;

    /// Records `wanted` if it follows what is recorded under `rule`; says whether it is recorded now.
    ///
    /// # Durability
    ///
    /// On `Ok(true)` the seat is durable at the witness.
    ///
    /// # Errors
    ///
    /// As [`Witness::load`]. Whether `wanted` is recorded, or will be, is not known then. The caller has to ask for the same seat
    /// again until the answer is `Ok`, and may ask for no other one before that.
    fn record(&self, rule: Rule, wanted: &Seat) -> Result<bool, WitnessError>;

    /// [`Witness::record`] under [`Rule::InSync`]: what a member may want by itself.
    ///
    /// # Errors
    ///
    /// As [`Witness::record`].
    fn propose(&self, wanted: &Seat) -> Result<bool, WitnessError> {
        self.record(Rule::InSync, wanted)
    }
}

/// No witness: an operator sees to it that there is one source. Agrees to everything and remembers nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWitness;

impl Witness for NoWitness {
    fn load(&self) -> Result<Option<Seat>, WitnessError> {
        Ok(None)
    }

    fn record(&self, _: Rule, _: &Seat) -> Result<bool, WitnessError> {
        Ok(true)
    }
}
