//! Which mapped files have their pages in memory only when they are asked for, and the budget of memory for them.
//!
//! ```text
//!   class pmem, volatile ------------------------------> mapped whole: it is memory
//!   class storage   residency eager -------------------> the kernel's page cache
//!                   residency lazy --------------------> pages in the budget (crate flash)
//!                   automatic: longer than the budget -> pages in the budget, else the page cache
//! ```

use std::sync::{Arc, OnceLock};

use pmem::DurabilityClass;
use tracing::warn;

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
    server: Arc<flash::Budget>,
    share: OnceLock<Option<flash::Share>>,
}

impl Pages {
    pub(super) fn new(residency: Residency, own_budget: Option<u64>) -> Self {
        Self { residency, own_budget, server: flash::Budget::of_machine(), share: OnceLock::new() }
    }

    /// The same, with the budget of a server.
    pub(super) fn in_budget(&self, server: &Arc<flash::Budget>) -> Self {
        let (residency, own_budget) = (self.residency, self.own_budget);
        Self { residency, own_budget, server: Arc::clone(server), share: OnceLock::new() }
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
            let failed = |error: &_| warn!(share = name, %error, "files are mapped eagerly");
            made.inspect_err(failed).ok()
        };
        self.share.get_or_init(make).as_ref()
    }
}
