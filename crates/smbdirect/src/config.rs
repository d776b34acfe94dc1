//! The limits of one side, checked so that the side advertises only what its buffers can hold.
//!
//! `MaxFragmentedSize` is a promise that the side can receive a message of this size. A receiver
//! that may hold every fragment in a receive buffer of its own keeps the promise only if its buffers
//! can hold the whole message while half of the buffers are granted as credits. Linux once advertised
//! 1 MiB over 255 buffers of 1364 bytes and could stall; Linux now advertises half of the buffers' sum,
//! and so does this crate. The crate also believes a peer's size only as far as that rule allows.
//!
//! Spec: MS-SMBD §3.1.1.1 (the abstract data model's limits), §3.1.5.6 and §3.1.5.7 (the floors).

use thiserror::Error;

/// The limits one side offers. All sizes are in bytes and include the 24 bytes of header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Config {
    /// Send credits to request from the peer: the messages that this side wants in flight at once.
    pub send_credit_target: u16,
    /// Most receive buffers that this side ever posts on the connection.
    pub receive_credit_max: u16,
    /// Largest single RDMA Send of this side.
    pub send_size_max: u32,
    /// Size of each receive buffer before the peer's preference is known.
    pub receive_size_max: u32,
    /// Largest SMB2 message that this side reassembles from fragments.
    pub fragmented_receive_size_max: u32,
    /// Largest single server-driven RDMA read or write.
    pub read_write_size_max: u32,
}

impl Config {
    /// Confirms that the promises made by these limits can be kept.
    ///
    /// # Errors
    /// The first limit that is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.send_credit_target < SEND_CREDITS_FLOOR {
            return Err(ConfigError::ConfigSendCredits(self.send_credit_target));
        }
        if self.receive_credit_max < RECEIVE_CREDITS_FLOOR {
            return Err(ConfigError::ConfigReceiveCredits(self.receive_credit_max));
        }
        for size in [self.send_size_max, self.receive_size_max] {
            if !(MESSAGE_SIZE_FLOOR..=MESSAGE_SIZE_MAX).contains(&size) {
                return Err(ConfigError::ConfigMessageSize(size));
            }
        }
        let fragmented = self.fragmented_receive_size_max;
        if !(FRAGMENTED_SIZE_FLOOR..=FRAGMENTED_SIZE_MAX).contains(&fragmented) {
            return Err(ConfigError::ConfigFragmentedSize(fragmented));
        }
        let held = buffers_hold(self.receive_credit_max, self.receive_size_max);
        if held < u64::from(fragmented) {
            return Err(ConfigError::ConfigBuffers { advertised: fragmented, held });
        }
        if self.read_write_size_max == 0 {
            return Err(ConfigError::ConfigReadWriteSize);
        }
        Ok(())
    }
}

impl Default for Config {
    /// 255 credits each way, messages of 8 KiB, and the fragmented size that those buffers can hold.
    fn default() -> Self {
        Self {
            send_credit_target: 255,
            receive_credit_max: 255,
            send_size_max: 8192,
            receive_size_max: 8192,
            fragmented_receive_size_max: 255 * 8192 / 2,
            read_write_size_max: 8 << 20,
        }
    }
}

/// The largest fragmented size that `credits` buffers of `size` bytes honestly support.
pub(crate) fn honest_fragmented_size(credits: u16, size: u32) -> u32 {
    let held = u32::try_from(buffers_hold(credits, size)).unwrap_or(u32::MAX);
    // MS-SMBD §3.1.5.6: 131,072 is the least any implementation may advertise.
    held.clamp(FRAGMENTED_SIZE_FLOOR, FRAGMENTED_SIZE_MAX)
}

fn buffers_hold(credits: u16, size: u32) -> u64 {
    u64::from(credits) * u64::from(size) / 2
}

/// The reason why a [`Config`] cannot be used. Every variant is the caller's fault.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A connection that asks for no credits could never send.
    #[error("{0} send credits asked for, at least {SEND_CREDITS_FLOOR} are needed")]
    ConfigSendCredits(u16),
    /// Too few receive buffers to keep one buffer in reserve and two with the peer.
    #[error("{0} receive buffers, at least {RECEIVE_CREDITS_FLOOR} are needed")]
    ConfigReceiveCredits(u16),
    /// A message size below the floor of MS-SMBD or above [`MESSAGE_SIZE_MAX`].
    #[error("message size {0} is not within {MESSAGE_SIZE_FLOOR}..={MESSAGE_SIZE_MAX}")]
    ConfigMessageSize(u32),
    /// A reassembled size below the floor of MS-SMBD or above [`FRAGMENTED_SIZE_MAX`].
    #[error("fragmented size {0} is not within {FRAGMENTED_SIZE_FLOOR}..={FRAGMENTED_SIZE_MAX}")]
    ConfigFragmentedSize(u32),
    /// The buffers cannot hold a message of the advertised size.
    #[error("fragmented size {advertised} advertised, but half the receive buffers hold {held}")]
    ConfigBuffers {
        /// The fragmented size that was to be advertised.
        advertised: u32,
        /// Half of what all receive buffers hold together.
        held: u64,
    },
    /// The largest RDMA read or write is zero, so none could ever be done.
    #[error("the read and write size is zero")]
    ConfigReadWriteSize,
}

/// Smallest message size every implementation accepts (MS-SMBD §3.1.5.6), in bytes.
pub const MESSAGE_SIZE_FLOOR: u32 = 128;
/// Largest single message sent or received, which bounds one receive buffer. Captured Linux peers use
/// 1364 bytes; 128 KiB leaves room for tests with very few, very large buffers.
pub const MESSAGE_SIZE_MAX: u32 = 128 << 10;
/// Smallest `MaxFragmentedSize` an implementation may advertise (MS-SMBD §3.1.5.6), in bytes.
pub const FRAGMENTED_SIZE_FLOOR: u32 = 131_072;
/// Largest message reassembled from fragments, which bounds the reassembly buffer of one connection.
/// SMB2 messages beyond it travel as RDMA reads and writes.
pub const FRAGMENTED_SIZE_MAX: u32 = 1 << 20;
/// Fewest receive buffers: two for the peer, so that an answer to a credit needs no answer, and one
/// in reserve, which the message that spends our last credit can grant.
pub const RECEIVE_CREDITS_FLOOR: u16 = 3;
const SEND_CREDITS_FLOOR: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_config_passes_its_own_check() {
        assert_eq!(Config::default().check(), Ok(()));
    }

    #[test]
    fn linux_defaults_support_what_linux_now_advertises() {
        // 255 buffers of 1364 bytes: Linux 6.12 and 7.2 advertise 173,910 (captured).
        assert_eq!(honest_fragmented_size(255, 1364), 173_910);
        let linux = Config {
            send_size_max: 1364,
            receive_size_max: 1364,
            fragmented_receive_size_max: 173_910,
            ..Config::default()
        };
        assert_eq!(linux.check(), Ok(()));
    }

    #[test]
    fn a_fragmented_size_the_buffers_cannot_hold_is_refused() {
        let lie = Config {
            receive_size_max: 1364,
            fragmented_receive_size_max: 1 << 20,
            ..Config::default()
        };
        let refused = ConfigError::ConfigBuffers { advertised: 1 << 20, held: 173_910 };
        assert_eq!(lie.check(), Err(refused));
    }

    #[test]
    fn each_limit_out_of_range_has_its_own_error() {
        let base = Config::default();
        let check = |config: Config| config.check().unwrap_err();
        assert_eq!(
            check(Config { send_credit_target: 0, ..base }),
            ConfigError::ConfigSendCredits(0)
        );
        assert_eq!(
            check(Config { receive_credit_max: 2, ..base }),
            ConfigError::ConfigReceiveCredits(2)
        );
        assert_eq!(
            check(Config { send_size_max: 127, ..base }),
            ConfigError::ConfigMessageSize(127)
        );
        assert_eq!(
            check(Config { receive_size_max: MESSAGE_SIZE_MAX + 1, ..base }),
            ConfigError::ConfigMessageSize(MESSAGE_SIZE_MAX + 1)
        );
        assert_eq!(
            check(Config { fragmented_receive_size_max: 131_071, ..base }),
            ConfigError::ConfigFragmentedSize(131_071)
        );
        assert_eq!(
            check(Config { read_write_size_max: 0, ..base }),
            ConfigError::ConfigReadWriteSize
        );
    }
}
