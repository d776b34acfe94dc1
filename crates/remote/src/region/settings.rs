//! The resources of a region, and its timeouts.

use std::ops::Range;
use std::time::Duration;

use rdma::{PollPolicy, ProviderChoice};
use thiserror::Error;

use super::engine::SharedEngine;

/// The settings of one region.
#[derive(Clone, Debug)]
pub struct RegionSettings {
    /// Bytes of writes that are kept until a commit confirms them, from
    /// [`RegionSettings::UNCONFIRMED_BYTES_MIN`] to [`RegionSettings::UNCONFIRMED_BYTES_MAX`]. A write that
    /// exceeds them commits first.
    pub unconfirmed_bytes: usize,
    /// Operations submitted and not finished, 1 to [`RegionSettings::OUTSTANDING_MAX`].
    pub outstanding_max: usize,
    /// The RDMA provider of this machine.
    pub provider: ProviderChoice,
    /// Whether [`ProviderChoice::Soft`] gives way to [`ProviderChoice::Shm`] where the server is on this host and
    /// offers it.
    pub same_host: bool,
    /// How the engine waits for answers.
    pub polling: PollPolicy,
    /// How long the server may take for an answer on the push connection before the region falls
    /// back to messages, [`RegionSettings::ANSWER_TIMEOUT_MIN`] to
    /// [`RegionSettings::ANSWER_TIMEOUT_MAX`]. Only time in which the owner polls for answers
    /// counts.
    pub answer_timeout: Duration,
    /// An engine that the region shares with others; `None`: each push connection has an engine of its own.
    /// With a shared engine, its provider and its polling apply in place of those above.
    pub shared: Option<SharedEngine>,
}

impl RegionSettings {
    /// The least room for unconfirmed writes, in bytes: one page.
    pub const UNCONFIRMED_BYTES_MIN: usize = 4096;
    /// The most room for unconfirmed writes, in bytes. It is allocated at once.
    pub const UNCONFIRMED_BYTES_MAX: usize = 1 << 30;
    /// The greatest number of outstanding operations; many times what any link holds.
    pub const OUTSTANDING_MAX: usize = 1 << 16;
    /// The shortest timeout: with a shorter one a busy machine would count as silent.
    pub const ANSWER_TIMEOUT_MIN: Duration = Duration::from_millis(10);
    /// The longest timeout: a day.
    pub const ANSWER_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

    /// Checks every setting.
    ///
    /// # Errors
    /// A setting is out of bounds.
    pub fn check(&self) -> Result<(), RegionConfigError> {
        if !(Self::UNCONFIRMED_BYTES_MIN..=Self::UNCONFIRMED_BYTES_MAX)
            .contains(&self.unconfirmed_bytes)
        {
            return Err(RegionConfigError::UnconfirmedBytes(self.unconfirmed_bytes));
        }
        if !(1..=Self::OUTSTANDING_MAX).contains(&self.outstanding_max) {
            return Err(RegionConfigError::OutstandingMax(self.outstanding_max));
        }
        let timeouts = Self::ANSWER_TIMEOUT_MIN..=Self::ANSWER_TIMEOUT_MAX;
        if !timeouts.contains(&self.answer_timeout) {
            return Err(RegionConfigError::AnswerTimeout(self.answer_timeout));
        }
        Ok(())
    }
}

impl Default for RegionSettings {
    fn default() -> Self {
        Self {
            unconfirmed_bytes: 4 << 20,
            outstanding_max: 256,
            provider: ProviderChoice::Soft,
            same_host: true,
            polling: PollPolicy::Adaptive,
            answer_timeout: Duration::from_secs(30),
            shared: None,
        }
    }
}

/// The region cannot be mapped as asked.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum RegionConfigError {
    /// [`RegionSettings::unconfirmed_bytes`] is out of bounds.
    #[error(
        "unconfirmed_bytes is {0}: choose {min} to {max}",
        min = RegionSettings::UNCONFIRMED_BYTES_MIN,
        max = RegionSettings::UNCONFIRMED_BYTES_MAX
    )]
    UnconfirmedBytes(usize),
    /// [`RegionSettings::outstanding_max`] is out of bounds.
    #[error("outstanding_max is {0}: choose 1 to {max}", max = RegionSettings::OUTSTANDING_MAX)]
    OutstandingMax(usize),
    /// [`RegionSettings::answer_timeout`] is out of bounds.
    #[error(
        "answer_timeout is {0:?}: choose {min:?} to {max:?}",
        min = RegionSettings::ANSWER_TIMEOUT_MIN,
        max = RegionSettings::ANSWER_TIMEOUT_MAX
    )]
    AnswerTimeout(Duration),
    /// The range is empty.
    #[error("nothing lies in {}..{}: a region has at least one byte", .0.start, .0.end)]
    EmptyRange(Range<u64>),
    /// The file ends before the region does. A push never extends a file.
    #[error("the file has {len} bytes and the region ends at {end}: lengthen it by set_len first")]
    FileTooShort {
        /// Length of the file when it was opened.
        len: u64,
        /// Where the region was to end.
        end: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_and_the_bounds_are_accepted() {
        RegionSettings::default().check().unwrap();
        let smallest = RegionSettings {
            unconfirmed_bytes: RegionSettings::UNCONFIRMED_BYTES_MIN,
            outstanding_max: 1,
            answer_timeout: RegionSettings::ANSWER_TIMEOUT_MIN,
            ..RegionSettings::default()
        };
        smallest.check().unwrap();
    }

    #[test]
    fn an_invalid_setting_is_refused_with_its_bounds() {
        let refused = |change: fn(&mut RegionSettings)| {
            let mut settings = RegionSettings::default();
            change(&mut settings);
            settings.check().unwrap_err().to_string()
        };
        assert_eq!(
            refused(|settings| settings.unconfirmed_bytes = 0),
            "unconfirmed_bytes is 0: choose 4096 to 1073741824"
        );
        refused(|settings| settings.unconfirmed_bytes = usize::MAX);
        assert_eq!(
            refused(|settings| settings.outstanding_max = 0),
            "outstanding_max is 0: choose 1 to 65536"
        );
        refused(|settings| settings.outstanding_max = usize::MAX);
        assert_eq!(
            refused(|settings| settings.answer_timeout = Duration::ZERO),
            "answer_timeout is 0ns: choose 10ms to 86400s"
        );
        refused(|settings| settings.answer_timeout = Duration::MAX);
    }
}
