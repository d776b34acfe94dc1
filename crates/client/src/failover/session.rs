//! The session of now, and the one after it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use basics::Environment;
use smb::Guid;
use tokio::sync::Mutex;
use tracing::{debug, info};

use crate::client::{Client, is_elsewhere};
use crate::error::ClientError;
use crate::options::ConnectOptions;
use crate::url::SmbUrl;

/// A session on a share that comes back; see the module above. Cheap to clone.
#[derive(Clone, Debug)]
pub struct FailoverClient {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    url: SmbUrl,
    pub(super) options: ConnectOptions,
    patience: Duration,
    present: Mutex<Session>,
}

/// One of the sessions that follow each other.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// Counts them.
    pub(crate) number: u64,
    pub(crate) client: Client,
}

impl FailoverClient {
    /// Connects to the first server of `url` that serves the share. From then on a call waits up to `patience` for the
    /// share to be served again. A server that takes connections and does not answer costs 3 s of that an attempt, or
    /// `connect_timeout` if that is less, and on an established connection `answer_timeout`.
    ///
    /// Handles come back with the next call, not before: where no call is made for longer than the server keeps a handle without
    /// a client (60 s by default) after the connection was lost, the handle is lost, and so is what a region has not committed.
    ///
    /// # Errors
    /// As [`Client::connect`]; the client does not wait for a server to appear.
    pub async fn connect(
        url: &SmbUrl,
        options: &ConnectOptions,
        patience: Duration,
    ) -> Result<Self, ClientError> {
        let mut options = options.clone();
        if options.client_guid.is_none() {
            options.client_guid = Some(random_guid(&options)?);
        }
        let servers = u32::try_from(1 + url.others.len()).unwrap_or(u32::MAX);
        options.connect_timeout = options.connect_timeout.min(ATTEMPT.saturating_mul(servers));
        let client = Client::connect(url, &options).await?;
        let present = Mutex::new(Session { number: 0, client });
        Ok(Self { shared: Arc::new(Shared { url: url.clone(), options, patience, present }) })
    }

    /// The session of now, for calls that are made again by the caller where they fail.
    pub async fn client(&self) -> Client {
        self.session().await.client
    }

    pub(crate) async fn session(&self) -> Session {
        self.shared.present.lock().await.clone()
    }

    pub(crate) fn environment(&self) -> &Environment {
        &self.shared.options.environment
    }

    /// A session after the one of this number, which is lost.
    ///
    /// # Errors
    /// No server served the share until the deadline; or a server refused for another reason.
    pub(crate) async fn session_after(
        &self,
        number: u64,
        deadline: Instant,
    ) -> Result<Session, ClientError> {
        let mut present = self.shared.present.lock().await;
        if present.number != number {
            return Ok(present.clone());
        }
        let Shared { url, options, .. } = &*self.shared;
        // The server may not have noticed that the connection is dead, for minutes: it would refuse the handles until then.
        let lost = present.client.tree().session().id();
        let options = &ConnectOptions { previous_session: Some(lost), ..options.clone() };
        let mut pause = Pause::default();
        let client = loop {
            match Client::connect(url, options).await {
                Ok(client) => break client,
                Err(error) if is_elsewhere(&error) && self.now() < deadline => {
                    debug!(%url, %error, "no server serves the share yet");
                    pause.wait().await;
                }
                Err(error) => return Err(error),
            }
        };
        info!(%url, session = number + 1, "the share is served again");
        *present = Session { number: number + 1, client };
        Ok(present.clone())
    }

    pub(crate) fn deadline(&self) -> Instant {
        let now = self.now();
        now.checked_add(self.shared.patience).unwrap_or(now)
    }

    pub(crate) fn now(&self) -> Instant {
        self.shared.options.environment.clock.now()
    }

    pub(crate) fn draw_guid(&self) -> Result<Guid, ClientError> {
        random_guid(&self.shared.options)
    }
}

/// The pause between attempts, which grows.
#[derive(Debug)]
pub(crate) struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(PAUSE_MIN)
    }
}

impl Pause {
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(PAUSE_MAX);
    }
}

fn random_guid(options: &ConnectOptions) -> Result<Guid, ClientError> {
    let mut guid = [0; 16];
    options.environment.random.fill(&mut guid).map_err(|_| ClientError::HostRandom)?;
    Ok(Guid(guid))
}

/// How long one server may take to let the client in.
const ATTEMPT: Duration = Duration::from_secs(3);
/// The first pause: a server that was restarted is there soon.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest pause: a promotion takes seconds, and the client is to notice it soon.
const PAUSE_MAX: Duration = Duration::from_millis(250);
