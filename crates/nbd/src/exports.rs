//! What a server offers: devices with names.

use std::fmt;
use std::sync::Arc;

use block::{AnyAlignment, BlockDevice};

/// A device with a name. All connections to it share it, so what one of them has flushed all others see flushed.
#[derive(Clone)]
pub struct Export {
    name: String,
    description: String,
    device: Arc<AnyAlignment<Arc<dyn BlockDevice>>>,
    block: u32,
}

impl Export {
    /// A device under a name.
    ///
    /// # Errors
    ///
    /// [`ExportError::ConfigName`].
    pub fn new(
        name: &str,
        description: &str,
        device: Arc<dyn BlockDevice>,
    ) -> Result<Self, ExportError> {
        let is_name = |text: &str| text.len() <= NAME_MAX && !text.contains('\0');
        if !is_name(name) || !is_name(description) {
            return Err(ExportError::ConfigName { len: name.len().max(description.len()) });
        }
        let block = device.geometry().block;
        let device = Arc::new(AnyAlignment::new(device));
        Ok(Self { name: name.to_owned(), description: description.to_owned(), device, block })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A sentence about it, for people.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The device, whose requests may begin and end at any byte.
    pub fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    /// Bytes of the device's own blocks: requests of whole blocks cost no read before a write.
    pub fn block(&self) -> u32 {
        self.block
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The exports of a server. The first is the one that a client gets who names none.
#[derive(Clone, Debug, Default)]
pub struct Exports {
    list: Vec<Export>,
}

impl Exports {
    /// These exports.
    ///
    /// # Errors
    ///
    /// [`ExportError::ConfigTwice`], [`ExportError::ConfigTooMany`].
    pub fn new(list: Vec<Export>) -> Result<Self, ExportError> {
        if list.len() > EXPORTS_MAX {
            return Err(ExportError::ConfigTooMany { most: EXPORTS_MAX });
        }
        let is_twice = |(at, export): (usize, &Export)| {
            list[..at].iter().any(|other| other.name == export.name)
        };
        if list.iter().enumerate().any(is_twice) {
            return Err(ExportError::ConfigTwice);
        }
        Ok(Self { list })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Export> {
        self.list.iter()
    }

    /// The export of a name; the first one where the name is empty.
    pub fn find(&self, name: &[u8]) -> Option<&Export> {
        let named = self.list.iter().find(|export| export.name.as_bytes() == name);
        if name.is_empty() { named.or_else(|| self.list.first()) } else { named }
    }
}

/// Why a device cannot be offered.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ExportError {
    /// The name, or the description, cannot be sent.
    #[error("names have {NAME_MAX} bytes at most, and none is zero; this one has {len}")]
    ConfigName {
        /// Bytes of the longer of the two.
        len: usize,
    },
    /// Two devices have one name.
    #[error("two devices have the same name")]
    ConfigTwice,
    /// More devices than a list may name.
    #[error("a server offers {most} devices at most")]
    ConfigTooMany {
        /// The most there can be.
        most: usize,
    },
}

/// Bytes of a name: what the protocol allows for a string.
const NAME_MAX: usize = 4096;
/// Exports of a server: a list of them stays below 8 MiB.
const EXPORTS_MAX: usize = 1024;
