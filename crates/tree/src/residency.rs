//! Which mapped files have their pages in memory only when they are asked for, and the budget of memory for them.
//!
//! ```text
//!   class pmem, volatile ------------------------------> mapped whole: it is memory
//!   class storage   residency eager -------------------> the kernel's page cache
//!                   residency lazy --------------------> pages in the budget (crate flash)
//!                   automatic: longer than the budget -> pages in the budget, else the page cache
//! ```
//!
//! A share may have a budget of its own, one for each file, and a faster directory for pages that have left the memory.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use pmem::DurabilityClass;
use tracing::warn;

use crate::config::{ShareConfig, ShareOpenError};

/// See the module.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Residency {
    /// Lazy for files that are longer than the budget.
    #[default]
    Automatic,
    /// The page cache of the kernel has the pages.
    Eager,
    /// The budget has the pages, those that are in use.
    Lazy,
}

/// What a share knows of the budget.
#[derive(Debug)]
pub(super) struct Pages {
    residency: Residency,
    own_budget: Option<u64>,
    region_budget: Option<u64>,
    tier: Option<Arc<flash::Tier>>,
    server: Arc<flash::Budget>,
    share: OnceLock<Option<flash::Share>>,
}

impl Pages {
    /// What `config` says.
    ///
    /// # Errors
    ///
    /// The tier cannot be opened.
    pub(super) fn new(config: &ShareConfig) -> Result<Self, ShareOpenError> {
        let open = |(bytes, directory): &(u64, PathBuf)| {
            let failed = |source| ShareOpenError::ConfigTier { path: directory.clone(), source };
            flash::Tier::open(directory, *bytes).map_err(failed)
        };
        Ok(Self {
            residency: config.residency,
            own_budget: config.flash_budget,
            region_budget: config.flash_region_budget,
            tier: config.flash_tier.as_ref().map(open).transpose()?,
            server: flash::Budget::of_machine(),
            share: OnceLock::new(),
        })
    }

    /// The same, with the budget of a server.
    pub(super) fn in_budget(&self, server: &Arc<flash::Budget>) -> Self {
        Self {
            residency: self.residency,
            own_budget: self.own_budget,
            region_budget: self.region_budget,
            tier: self.tier.clone(),
            server: Arc::clone(server),
            share: OnceLock::new(),
        }
    }

    /// The memory for the pages of a file, if it is mapped lazily, in the share of this name.
    pub(super) fn of(&self, name: &str, class: DurabilityClass, len: u64) -> Option<&flash::Share> {
        let is_lazy = match self.residency {
            Residency::Eager => false,
            Residency::Lazy => true,
            Residency::Automatic => len > self.budget(),
        };
        let is_lazy = is_lazy && class == DurabilityClass::Storage;
        if is_lazy { self.share(name) } else { None }
    }

    fn budget(&self) -> u64 {
        self.own_budget.unwrap_or(u64::MAX).min(self.server.bytes())
    }

    fn share(&self, name: &str) -> Option<&flash::Share> {
        let make = || {
            let made = self.server.pool().and_then(|pool| pool.share(self.budget()));
            let made = made.and_then(|share| match self.region_budget {
                Some(budget) => share.with_region_budget(budget),
                None => Ok(share),
            });
            let made = made.map(|share| match &self.tier {
                Some(tier) => share.with_tier(Arc::clone(tier)),
                None => share,
            });
            let failed = |error: &_| warn!(share = name, %error, "files are mapped eagerly");
            made.inspect_err(failed).ok()
        };
        self.share.get_or_init(make).as_ref()
    }
}
