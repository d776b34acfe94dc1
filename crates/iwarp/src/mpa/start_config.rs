//! The configuration of a start-up, and the parts that both handshake machines share.

use std::time::Duration;

use super::error::{DEPTH_MAX, PRIVATE_DATA_FIELD_MAX};
use super::start_frame::StartError;
use super::{EnhancedRepr, MpaError, Profile, StartFlags, StartKind, StartRepr};

/// The terms that this end wants for a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StartConfig {
    /// Demand CRCs. Off only by an administrator's explicit choice at both ends, on a path that
    /// is protected otherwise (RFC 5044 §4.4).
    pub crc: bool,
    /// Requests (Read, Atomic, Flush, Verify, Atomic Write together) that this end takes at a time.
    pub ird: u16,
    /// Requests that this end wants to have outstanding at a time.
    pub ord: u16,
    /// The profile to announce, which only another Landfast end understands.
    pub profile: Option<Profile>,
    /// Time limit of the whole start-up.
    pub timeout: Duration,
}

impl Default for StartConfig {
    /// CRC on, 32 requests each way like the common adapters, ten seconds like siw.
    fn default() -> Self {
        let timeout = Duration::from_secs(10);
        Self { crc: true, ird: 32, ord: 32, profile: None, timeout }
    }
}

impl StartConfig {
    pub(super) fn check(&self) -> Result<(), MpaError> {
        match [self.ird, self.ord].into_iter().find(|depth| *depth > DEPTH_MAX) {
            Some(depth) => Err(MpaError::ConfigDepth(depth)),
            None => Ok(()),
        }
    }

    pub(super) fn flags(&self, enhanced: bool) -> StartFlags {
        let mut flags = StartFlags::empty();
        flags.set(StartFlags::CRC, self.crc);
        flags.set(StartFlags::ENHANCED, enhanced);
        flags
    }
}

/// The private data field: depths if enhanced, profile if announced, then the ULP's data.
pub(super) fn private_data(
    enhanced: Option<EnhancedRepr>,
    profile: Option<Profile>,
    ulp: &[u8],
) -> Result<Vec<u8>, MpaError> {
    let mut field = enhanced.map_or_else(Vec::new, |word| word.emit().to_vec());
    let limit = PRIVATE_DATA_FIELD_MAX - field.len();
    match profile {
        Some(profile) => profile.emit(ulp, &mut field).map_err(MpaError::ConfigProfile)?,
        None if ulp.len() > limit => {
            return Err(MpaError::ConfigPrivateDataTooLong { got: ulp.len(), limit });
        }
        None => field.extend_from_slice(ulp),
    }
    Ok(field)
}

/// Collects a start-up frame and not one byte more.
#[derive(Debug, Default)]
pub(super) struct Collector {
    bytes: Vec<u8>,
}

impl Collector {
    /// Takes the bytes that the frame still needs, and returns their number and whether the frame is whole.
    pub(super) fn take(&mut self, due: StartKind, bytes: &[u8]) -> (usize, Result<bool, MpaError>) {
        let mut taken = 0;
        loop {
            match StartRepr::parse(due, &self.bytes) {
                Ok(_) => return (taken, Ok(true)),
                Err(StartError::Failed(error)) => return (taken, Err(error)),
                Err(StartError::Incomplete { missing }) => {
                    let rest = &bytes[taken..];
                    if rest.is_empty() {
                        return (taken, Ok(false));
                    }
                    let take = missing.min(rest.len());
                    self.bytes.extend_from_slice(&rest[..take]);
                    taken += take;
                }
            }
        }
    }

    /// The frame, once it is whole.
    pub(super) fn frame(&self, due: StartKind) -> Option<StartRepr<'_>> {
        StartRepr::parse(due, &self.bytes).ok()
    }
}
