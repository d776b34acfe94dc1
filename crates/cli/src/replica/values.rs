//! Values of keys in the file of a group, as people write them.

use rdma::ProviderChoice;
use replica::core::Mode;
use replica::wire::Policy;
use serde::{Deserialize, Serialize};

/// Bytes: a number, or text as "10G".
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Size(pub(crate) u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(from)? {
            Written::Number(number) => Ok(Self(number)),
            Written::Text(text) => {
                crate::size::size(&text).map(Self).map_err(serde::de::Error::custom)
            }
        }
    }
}

impl Serialize for Size {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.text())
    }
}

impl Size {
    pub(crate) fn text(self) -> String {
        for (shift, unit) in [(30, "G"), (20, "M"), (10, "K")] {
            if self.0 > 0 && self.0.is_multiple_of(1 << shift) {
                return format!("{}{unit}", self.0 >> shift);
            }
        }
        self.0.to_string()
    }
}

/// [`Mode`] as the file has it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EntryMode {
    #[default]
    Sync,
    SemiSync,
    Async,
}

impl From<Mode> for EntryMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Sync => Self::Sync,
            Mode::SemiSync => Self::SemiSync,
            Mode::Async => Self::Async,
        }
    }
}

/// [`Congestion`] as the file has it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Full {
    /// What the member lacks is noted by block, and copied later.
    #[default]
    Note,
    /// Writes wait.
    Block,
}

/// How payloads are packed, as the file has it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Compression {
    #[default]
    None,
    Lz4,
    Zstd,
    Adaptive,
}

/// How records go from log to log, as the file has it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Transport {
    /// By TCP with TLS.
    #[default]
    Tcp,
    /// By RDMA Write and Flush, in the clear; everything else by TCP with TLS.
    Rdma,
}

/// What carries out RDMA, as the file has it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RdmaProvider {
    #[default]
    Soft,
    /// Members of one machine.
    Shm,
    /// An adapter.
    Verbs,
}

impl From<RdmaProvider> for ProviderChoice {
    fn from(provider: RdmaProvider) -> Self {
        match provider {
            RdmaProvider::Soft => Self::Soft,
            RdmaProvider::Shm => Self::Shm,
            RdmaProvider::Verbs => Self::Verbs,
        }
    }
}

impl From<Compression> for Policy {
    fn from(compression: Compression) -> Self {
        match compression {
            Compression::None => Self::None,
            Compression::Lz4 => Self::Lz4,
            Compression::Zstd => Self::Zstd,
            Compression::Adaptive => Self::Adaptive,
        }
    }
}

impl From<EntryMode> for Mode {
    fn from(mode: EntryMode) -> Self {
        match mode {
            EntryMode::Sync => Self::Sync,
            EntryMode::SemiSync => Self::SemiSync,
            EntryMode::Async => Self::Async,
        }
    }
}
