//! Settings that a running server cannot change: they apply from the next start.

use super::Settings;

impl Settings {
    /// Keeps from `before` the settings that a running server cannot change, and names those that
    /// differ.
    pub(crate) fn keep_until_restart(&mut self, before: &Self) -> Vec<&'static str> {
        // The pattern lists every field, so that a new field does not compile before its kind is decided.
        let Self {
            listen,
            rdma_listen,
            rdma_provider,
            rdma_same_host,
            rdma_threads,
            announced,
            emulate_persistence,
            signing,
            recall_grace,
            guid,
            keepalive,
            control,
            metrics,
            run_as,
            flash_budget,
            // Changes of these fields apply at once.
            shares: _,
            users: _,
            users_file: _,
            kerberos: _,
            // Set by the command line, which does not change.
            config: _,
        } = self;
        let mut kept = Vec::new();
        keep(&mut kept, "listen", listen, &before.listen);
        keep(&mut kept, "rdma_listen", rdma_listen, &before.rdma_listen);
        keep(&mut kept, "rdma_provider", rdma_provider, &before.rdma_provider);
        keep(&mut kept, "rdma_same_host", rdma_same_host, &before.rdma_same_host);
        keep(&mut kept, "rdma_threads", rdma_threads, &before.rdma_threads);
        keep(&mut kept, "announce", announced, &before.announced);
        keep(&mut kept, "emulate_persistence", emulate_persistence, &before.emulate_persistence);
        keep(&mut kept, "signing", signing, &before.signing);
        keep(&mut kept, "recall_grace_ms", recall_grace, &before.recall_grace);
        keep(&mut kept, "server_guid", guid, &before.guid);
        keep(&mut kept, "keepalive_s", keepalive, &before.keepalive);
        keep(&mut kept, "control", control, &before.control);
        keep(&mut kept, "metrics", metrics, &before.metrics);
        keep(&mut kept, "run_as", run_as, &before.run_as);
        keep(&mut kept, "flash_budget", flash_budget, &before.flash_budget);
        kept
    }
}

fn keep<T: Clone + PartialEq>(
    kept: &mut Vec<&'static str>,
    name: &'static str,
    now: &mut T,
    before: &T,
) {
    if now != before {
        now.clone_from(before);
        kept.push(name);
    }
}
