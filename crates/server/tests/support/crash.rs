//! A server that writes its persistent opens down. A crash is a copy of what is on disk at that moment.

use server::ServerConfig;
use tempfile::TempDir;

use super::Fixture;

/// The server, and where it writes.
pub(crate) struct Writing {
    pub(crate) fixture: Fixture,
    pub(crate) log: TempDir,
}

impl Writing {
    pub(crate) fn start() -> Self {
        let log = tempfile::tempdir().unwrap();
        let opens = log.path().join(OPENS);
        let fixture = Fixture::start_with(|config| config.shares[0].persistent_opens = Some(opens));
        Self { fixture, log }
    }

    /// The server died, and another one serves what it left.
    pub(crate) fn crash(&self) -> Self {
        self.crash_into(|_| {})
    }

    /// The same, and the other one is configured otherwise.
    pub(crate) fn crash_into(&self, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let log = tempfile::tempdir().unwrap();
        let opens = log.path().join(OPENS);
        std::fs::copy(self.log.path().join(OPENS), &opens).unwrap();
        let fixture = self.fixture.another(|config| {
            config.shares[0].persistent_opens = Some(opens);
            change(config);
        });
        Self { fixture, log }
    }
}

const OPENS: &str = "opens";
