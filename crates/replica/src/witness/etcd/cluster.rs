//! Calls to etcd: one endpoint at a time, each with a time limit, the next one where one does not answer.

use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Error, Identity, TlsOptions};
use tokio::time::timeout;

use super::options::EtcdOptions;
use crate::witness::WitnessError;
use crate::witness::error::{Asked, Attempt, Outcome};

/// The endpoints of etcd, and a connection to the one that answers.
pub(super) struct Cluster {
    pub(super) options: EtcdOptions,
    /// How long one endpoint is waited for.
    limit: Duration,
    /// The endpoint that is asked first.
    at: usize,
    client: Option<Client>,
}

impl Cluster {
    pub(super) fn new(options: EtcdOptions, limit: Duration) -> Self {
        Self { options, limit, at: 0, client: None }
    }

    /// The answer of the first endpoint that gives one. A call may have taken effect more than once, or though no answer came.
    pub(super) async fn call<T>(
        &mut self,
        asked: Asked,
        call: impl AsyncFn(&mut Client) -> Result<T, Error>,
    ) -> Result<T, WitnessError> {
        let mut tried = Vec::new();
        let attempts = self.options.endpoints.len().max(ATTEMPTS_MIN);
        for _ in 0..attempts {
            let limit = self.limit;
            let outcome = match timeout(limit, self.ask(&call)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => Outcome::Failed(error),
                Err(_) => Outcome::Silent(limit),
            };
            let endpoint = self.options.endpoints[self.at].clone();
            let attempt = Attempt { endpoint, outcome };
            tracing::debug!("etcd did not {asked}: {attempt}");
            let is_quick = matches!(attempt.outcome, Outcome::Failed(_));
            tried.push(attempt);
            self.turn_away();
            if is_quick {
                tokio::time::sleep(PAUSE).await;
            }
        }
        // Rights that were changed meanwhile make a token old: also what is refused is asked again, with a new one.
        if let Some(at) = tried.iter().rposition(is_refusal) {
            return Err(WitnessError::Refused { asked, refusal: tried.swap_remove(at) });
        }
        Err(WitnessError::Unreachable { asked, tried })
    }

    /// Another endpoint is asked next.
    pub(super) fn turn_away(&mut self) {
        self.client = None;
        self.at = (self.at + 1) % self.options.endpoints.len();
    }

    async fn ask<T>(
        &mut self,
        call: &impl AsyncFn(&mut Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.client.is_none() {
            let endpoint = &self.options.endpoints[self.at];
            self.client = Some(Client::connect([endpoint], Some(self.connecting())).await?);
        }
        match &mut self.client {
            Some(client) => call(client).await,
            None => unreachable!("connected above"),
        }
    }

    fn connecting(&self) -> ConnectOptions {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(self.limit)
            .with_keep_alive(PING_EVERY, PING_LIMIT)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((name, password)) = &self.options.user {
            options = options.with_user(name, password);
        }
        if let Some(tls) = &self.options.tls {
            let mut wanted =
                TlsOptions::new().ca_certificate(Certificate::from_pem(&tls.authority));
            if let Some((certificate, key)) = &tls.identity {
                wanted = wanted.identity(Identity::from_pem(certificate, key));
            }
            if let Some(name) = &tls.name {
                wanted = wanted.domain_name(name);
            }
            options = options.with_tls(wanted);
        }
        options
    }
}

// What another endpoint would say as well.
fn is_refusal(attempt: &Attempt) -> bool {
    match &attempt.outcome {
        // gRPC's numbers: 3 invalid argument (also a wrong password), 7 no permission, 9 failed precondition (no such
        // user), 16 not authenticated.
        Outcome::Failed(Error::GRpcStatus(status)) => {
            matches!(i32::from(status.code()), 3 | 7 | 9 | 16)
        }
        Outcome::Failed(Error::InvalidArgs(_) | Error::InvalidUri(_)) => true,
        Outcome::Failed(_) | Outcome::Silent(_) => false,
    }
}

/// Attempts at least: one endpoint alone is asked again.
const ATTEMPTS_MIN: usize = 3;
/// Between attempts, where an endpoint refuses the connection.
const PAUSE: Duration = Duration::from_millis(200);
/// A connection that is idle, or has a watch, is probed; one that does not answer is given up.
const PING_EVERY: Duration = Duration::from_secs(2);
const PING_LIMIT: Duration = Duration::from_secs(2);
