//! How a logged file is opened.

use log::MasterKey;

/// When the base gets the bytes of a commit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Apply {
    /// When half of the log is full, or the file is closed: writes of the same bytes are merged in memory. For a file
    /// that nobody else reads.
    #[default]
    Late,
    /// With each commit, unflushed, so that other processes of this machine read them.
    AtCommit,
}

/// How a logged file is opened.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// When the base gets the bytes.
    pub apply: Apply,
    /// Makes a new log although the file's last commits may be in one that is not there any more: they are lost.
    pub give_up_log: bool,
    /// Seals the records of the log.
    pub key: Option<MasterKey>,
}
