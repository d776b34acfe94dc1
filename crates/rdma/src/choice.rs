//! Chooses a provider by its name on a command line.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use crate::interface::Provider;
use crate::soft::{ShmProvider, SoftProvider};
use crate::verbs::VerbsProvider;

/// One of the providers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ProviderChoice {
    /// [`SoftProvider`], which needs nothing of the machine.
    #[default]
    Soft,
    /// [`ShmProvider`], for a client and a server on one host.
    Shm,
    /// [`VerbsProvider`], which needs an adapter and rdma-core.
    Verbs,
}

impl ProviderChoice {
    /// The provider.
    pub fn provider(self) -> Arc<dyn Provider> {
        match self {
            Self::Soft => Arc::new(SoftProvider),
            Self::Shm => Arc::new(ShmProvider),
            Self::Verbs => Arc::new(VerbsProvider),
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Soft => "soft",
            Self::Shm => "shm",
            Self::Verbs => "verbs",
        }
    }
}

impl fmt::Display for ProviderChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No provider has this name.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("there is no RDMA provider {0:?}: choose soft, shm or verbs")]
pub struct UnknownProvider(pub String);

impl FromStr for ProviderChoice {
    type Err = UnknownProvider;

    fn from_str(text: &str) -> Result<Self, UnknownProvider> {
        match text {
            "soft" => Ok(Self::Soft),
            "shm" => Ok(Self::Shm),
            "verbs" => Ok(Self::Verbs),
            other => Err(UnknownProvider(other.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_chosen_by_its_own_name() {
        for choice in [ProviderChoice::Soft, ProviderChoice::Shm, ProviderChoice::Verbs] {
            assert_eq!(choice.name().parse(), Ok(choice));
            assert_eq!(choice.provider().name(), choice.name());
        }
        let unknown = "unix".parse::<ProviderChoice>().unwrap_err();
        let expected = "there is no RDMA provider \"unix\": choose soft, shm or verbs";
        assert_eq!(unknown.to_string(), expected);
    }
}
