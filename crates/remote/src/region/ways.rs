//! How a server may be reached: the providers of this end, and what each of them dials.

use std::sync::Arc;

use rdma::{Provider, ProviderChoice};

use super::control::{Invitation, Listener};
use super::settings::RegionSettings;

/// The providers that a region may use.
#[derive(Clone, Debug)]
pub struct Ways {
    /// What the settings name.
    provider: Arc<dyn Provider>,
    /// What comes first where the server is on this host.
    same_host: Option<Arc<dyn Provider>>,
}

impl Ways {
    /// The ways that the settings allow.
    pub fn of(settings: &RegionSettings) -> Self {
        if let Some(shared) = &settings.shared {
            let provider = Arc::clone(shared.provider());
            let reaches_names = shared.choice() == ProviderChoice::Shm;
            let same_host = reaches_names.then(|| Arc::clone(&provider));
            return Self { provider, same_host };
        }
        let is_allowed = settings.same_host && settings.provider == ProviderChoice::Soft;
        let same_host = is_allowed.then(|| ProviderChoice::Shm.provider());
        Self { provider: settings.provider.provider(), same_host }
    }

    /// What to dial by what, the best first. A name that this host does not have is refused at once, so
    /// that trying it costs a client of another host nothing.
    pub(super) fn to<'a>(
        &'a self,
        invitation: &'a Invitation,
    ) -> Vec<(&'a Arc<dyn Provider>, &'a Listener)> {
        let same_host = self.same_host.iter().zip(&invitation.same_host);
        let network = invitation.listeners.iter().map(|listener| (&self.provider, listener));
        same_host.chain(network).collect()
    }
}
