//! The rights of users on a share, as its [`Policy`](super::policy) has them at present.

use super::Share;
use super::config::{Admission, ShareConfig};
use super::error::ShareError;
use super::policy::Fixed;

impl Share {
    /// Whether the share can continue under `config`, except for its [policy](Self::set_policy): the
    /// directory, the devices and the persistent opens are those it was opened with.
    pub fn is_of(&self, config: &ShareConfig) -> bool {
        // Devices of a read-only share are opened only for reading.
        let is_plain = config.devices.is_empty() && config.shown.is_empty();
        let modes_fit = is_plain || config.read_only == self.policy.is_read_only();
        self.fixed == Fixed::of(config) && modes_fit
    }

    /// Refuses every change.
    pub fn is_read_only(&self) -> bool {
        self.policy.is_read_only()
    }

    /// The admission of a user, whatever the case of the name.
    pub fn admits(&self, user: &str) -> Admission {
        self.policy.admits(user)
    }

    /// The admission of a guest.
    pub fn guests(&self) -> Admission {
        self.policy.guests()
    }

    /// Refuses sessions that do not encrypt.
    pub fn is_encrypt_required(&self) -> bool {
        self.policy.is_encrypt_required()
    }

    /// Every change is durable before it is answered.
    pub fn writes_through(&self) -> bool {
        self.policy.writes_through()
    }

    /// Takes over the policy of `config`. Open files stay open: the caller ends those that the
    /// policy does not allow any more.
    pub fn set_policy(&self, config: &ShareConfig) {
        self.policy.replace(config);
    }

    /// Refuses a change of a share that is read-only.
    pub(super) fn writable(&self) -> Result<(), ShareError> {
        if self.is_read_only() { Err(ShareError::ConfigReadOnly) } else { Ok(()) }
    }
}
