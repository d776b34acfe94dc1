//! Why a witness did not answer.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::seat::SeatError;

/// Why a witness did not answer. What it was asked for may have happened, or happen yet.
#[derive(Debug, Error)]
pub enum WitnessError {
    /// The file of a witness cannot be used.
    #[error("the witness file {} cannot be {step}: {cause}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What was not done.
        step: FileStep,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The witness holds something else than a seat of the group. Nothing overwrites it.
    #[error(
        "what the witness holds at {place} is no record of this group: {cause}. Check the group's id and the place; \
         where it is right, remove what is there and promote a member by force"
    )]
    Foreign {
        /// The file or key.
        place: String,
        /// What is wrong with it.
        #[source]
        cause: SeatError,
    },
}

/// What is done with the file of a witness.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FileStep {
    /// It is locked.
    Lock,
    /// It is read.
    Read,
    /// It is replaced.
    Write,
    /// It is made durable.
    Sync,
}

impl fmt::Display for FileStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lock => "locked",
            Self::Read => "read",
            Self::Write => "replaced",
            Self::Sync => "made durable",
        })
    }
}
