//! Why a witness did not answer.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use super::etcd::OptionError;
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
         where both are right, remove what is there and promote a member by force"
    )]
    Foreign {
        /// The file or key.
        place: String,
        /// What is wrong with it.
        #[source]
        cause: SeatError,
    },
    /// No endpoint of etcd answered.
    #[error(
        "etcd cannot {asked}: {}. Check that most of its members run and that this machine reaches them",
        listed(tried)
    )]
    Unreachable {
        /// What was asked.
        asked: Asked,
        /// Each endpoint that was asked, and what came of it.
        tried: Vec<Attempt>,
    },
    /// An endpoint of etcd refused, and others would as well.
    #[error(
        "etcd refuses to {asked}: {refusal}. Check the user, the password, the certificates and the rights on the group's keys"
    )]
    Refused {
        /// What was asked.
        asked: Asked,
        /// Who refused, and why.
        refusal: Attempt,
    },
    /// Others changed the record each time that this member wanted to.
    #[error(
        "the record of the group at etcd changed {rounds} times while this member wanted to change it; try again"
    )]
    Contended {
        /// How often.
        rounds: u32,
    },
    /// The operator's options cannot be used.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// The thread that talks to etcd cannot be started.
    #[error("the thread of the witness cannot be started: {0}")]
    Thread(#[source] io::Error),
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

/// What etcd is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Asked {
    /// The group's record.
    Load,
    /// A change of the record.
    Record,
    /// A lease, its renewal, or a key under it.
    Announce,
    /// Who is alive.
    Watch,
    /// The maintenance switch.
    Maintenance,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Load => "read the record of the group",
            Self::Record => "change the record of the group",
            Self::Announce => "say that this member is alive",
            Self::Watch => "say who is alive",
            Self::Maintenance => "set the maintenance switch",
        })
    }
}

/// An endpoint that was asked.
#[derive(Debug)]
pub struct Attempt {
    /// Its address.
    pub endpoint: String,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of asking an endpoint.
#[derive(Debug)]
pub enum Outcome {
    /// No answer within this time.
    Silent(Duration),
    /// No connection, or it ended.
    Failed(Box<ureq::Error>),
    /// An error of etcd, with gRPC's number of it.
    Answered {
        /// gRPC's number: 16 is "not authenticated".
        code: i64,
        /// In etcd's words.
        said: String,
    },
    /// No answer that etcd gives.
    Garbled {
        /// Of HTTP.
        status: u16,
    },
}

impl Outcome {
    /// Whether other endpoints would refuse as well: gRPC's numbers 3, invalid argument (also a wrong password), 7, no
    /// permission, 9, failed precondition (no such user), 16, not authenticated.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::Answered { code, .. } => matches!(code, 3 | 7 | 9 | 16),
            Self::Failed(error) => matches!(**error, ureq::Error::BadUri(_)),
            Self::Silent(_) | Self::Garbled { .. } => false,
        }
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.endpoint)?;
        match &self.outcome {
            Outcome::Silent(time) => write!(f, "no answer within {} ms", time.as_millis()),
            Outcome::Failed(error) => write!(f, "{error}"),
            Outcome::Answered { said, .. } => f.write_str(said),
            Outcome::Garbled { status } => {
                write!(
                    f,
                    "no answer of etcd's (HTTP {status}): is it etcd, with its gRPC gateway on?"
                )
            }
        }
    }
}

fn listed(tried: &[Attempt]) -> String {
    let mut said: Vec<String> = tried.iter().map(ToString::to_string).collect();
    said.dedup();
    said.join("; ")
}
