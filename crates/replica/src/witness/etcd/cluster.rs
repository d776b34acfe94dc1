//! Calls to etcd: one endpoint at a time, each with a time limit, the next one where one does not answer.

use std::io::{BufRead as _, BufReader, Read as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, BodyReader, Error};

use super::answer::{Answer, encoded};
use super::options::{EtcdOptions, EtcdTls, OptionError};
use crate::witness::WitnessError;
use crate::witness::error::{Asked, Attempt, Outcome};

/// The endpoints of etcd.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) options: EtcdOptions,
    /// How long one endpoint is waited for.
    limit: Duration,
    /// The endpoint that is asked first.
    at: usize,
    agent: Agent,
    /// Of the user.
    token: Option<String>,
    /// Nobody waits for an answer any more.
    has_ended: Arc<AtomicBool>,
}

/// What a call came to.
#[derive(Debug)]
pub(super) enum Reply<T> {
    Done(T),
    /// What was named is not there (any more).
    NotFound,
}

/// Answers that come as they happen.
pub(super) struct Stream(BufReader<BodyReader<'static>>);

impl Cluster {
    pub(super) fn new(
        options: EtcdOptions,
        limit: Duration,
        has_ended: Arc<AtomicBool>,
    ) -> Result<Self, OptionError> {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            // Of the environment: etcd is asked directly.
            .proxy(None)
            .timeout_global(Some(limit));
        if let Some(tls) = &options.tls {
            config = config.tls_config(tls_config(tls)?);
        }
        let agent = config.build().new_agent();
        Ok(Self { options, limit, at: 0, agent, token: None, has_ended })
    }

    /// The answer of the first endpoint that gives one. What is asked may have taken effect more than once, or though no answer
    /// came.
    pub(super) fn call(
        &mut self,
        asked: Asked,
        path: &str,
        body: &Value,
    ) -> Result<Reply<Answer>, WitnessError> {
        let limit = self.limit;
        self.attempts(asked, |cluster| {
            let response = cluster.post(path, body, limit)?;
            let (status, mut body) = response;
            let bytes = body
                .with_config()
                .limit(ANSWER_MAX)
                .read_to_vec()
                .map_err(|error| failed(error, limit))?;
            // A stream of one answer is a line of it.
            let answer = Answer::parse_line(&bytes).or_else(|| Answer::parse(&bytes));
            answer.ok_or(Outcome::Garbled { status })
        })
    }

    /// A call that has to find something.
    pub(super) fn call_known(
        &mut self,
        asked: Asked,
        path: &str,
        body: &Value,
    ) -> Result<Answer, WitnessError> {
        match self.call(asked, path, body)? {
            Reply::Done(answer) => Ok(answer),
            Reply::NotFound => {
                let said = "etcd does not know what it was asked for".to_owned();
                let outcome = Outcome::Answered { code: NOT_FOUND, said };
                Err(WitnessError::Refused { asked, refusal: self.attempt(outcome) })
            }
        }
    }

    /// Begins a stream that lasts for this time at most.
    pub(super) fn stream(
        &mut self,
        asked: Asked,
        path: &str,
        body: &Value,
        lasts: Duration,
    ) -> Result<Stream, WitnessError> {
        let begun = self.attempts(asked, |cluster| {
            let (status, body) = cluster.post(path, body, lasts)?;
            let reader = body.into_with_config().limit(u64::MAX).reader();
            let mut stream = Stream(BufReader::new(reader));
            // The first line says that it has begun.
            let answer = stream.next().ok_or(Outcome::Garbled { status })?;
            match answer.error() {
                Some((code, said)) => Err(Outcome::Answered { code, said }),
                None => Ok((answer, stream)),
            }
        });
        match begun? {
            Reply::Done((_, stream)) => Ok(stream),
            Reply::NotFound => {
                let outcome = Outcome::Garbled { status: 404 };
                Err(WitnessError::Unreachable { asked, tried: vec![self.attempt(outcome)] })
            }
        }
    }

    /// The error of an answer that is not sound.
    pub(super) fn garbled(&self, asked: Asked) -> WitnessError {
        let attempt = self.attempt(Outcome::Garbled { status: 200 });
        WitnessError::Unreachable { asked, tried: vec![attempt] }
    }

    fn attempt(&self, outcome: Outcome) -> Attempt {
        Attempt { endpoint: self.options.endpoints[self.at].clone(), outcome }
    }

    fn attempts<T: Checked>(
        &mut self,
        asked: Asked,
        mut ask: impl FnMut(&mut Self) -> Result<T, Outcome>,
    ) -> Result<Reply<T>, WitnessError> {
        let mut tried = Vec::new();
        for _ in 0..self.options.endpoints.len().max(ATTEMPTS_MIN) {
            let outcome = match ask(self).and_then(Checked::checked) {
                Ok(answer) => return Ok(Reply::Done(answer)),
                Err(Outcome::Answered { code: NOT_FOUND, .. }) => return Ok(Reply::NotFound),
                Err(outcome) => outcome,
            };
            let attempt = self.attempt(outcome);
            tracing::debug!("etcd did not {asked}: {attempt}");
            let is_quick = !matches!(attempt.outcome, Outcome::Silent(_));
            tried.push(attempt);
            // Another endpoint is asked next; a token may be old.
            self.token = None;
            self.at = (self.at + 1) % self.options.endpoints.len();
            if self.has_ended.load(Ordering::Relaxed) {
                break;
            }
            if is_quick {
                std::thread::sleep(PAUSE);
            }
        }
        // Rights that were changed meanwhile make a token old: also what is refused was asked again, with a new one.
        if let Some(at) = tried.iter().rposition(|attempt| attempt.outcome.is_refusal()) {
            return Err(WitnessError::Refused { asked, refusal: tried.swap_remove(at) });
        }
        Err(WitnessError::Unreachable { asked, tried })
    }

    fn post(&mut self, path: &str, body: &Value, limit: Duration) -> Result<(u16, Body), Outcome> {
        if self.token.is_none()
            && let Some((name, password)) = &self.options.user
        {
            let who = json!({"name": name, "password": password});
            let (status, mut body) = self.send("/v3/auth/authenticate", &who, self.limit)?;
            let bytes = body.with_config().limit(ANSWER_MAX).read_to_vec();
            let bytes = bytes.map_err(|error| failed(error, self.limit))?;
            let answer = Answer::parse(&bytes).ok_or(Outcome::Garbled { status })?.checked()?;
            self.token = Some(answer.text("token").ok_or(Outcome::Garbled { status })?.to_owned());
        }
        self.send(path, body, limit)
    }

    fn send(&self, path: &str, body: &Value, limit: Duration) -> Result<(u16, Body), Outcome> {
        let url = format!("{}{path}", self.options.endpoints[self.at].trim_end_matches('/'));
        let mut request = self
            .agent
            .post(url)
            .header("Content-Type", "application/json")
            // An endpoint that has no leader says so at once.
            .header("Grpc-Metadata-hasleader", "true");
        if let Some(token) = &self.token {
            request = request.header("Authorization", token);
        }
        let request = request.config().timeout_global(Some(limit)).build();
        let response = request.send(body.to_string()).map_err(|error| failed(error, limit))?;
        Ok((response.status().as_u16(), response.into_body()))
    }
}

impl Stream {
    /// The next answer; `None` when there is none any more, or what came is none.
    pub(super) fn next(&mut self) -> Option<Answer> {
        let mut line = Vec::new();
        let read = (&mut self.0).take(ANSWER_MAX).read_until(b'\n', &mut line);
        read.ok().filter(|len| *len > 0)?;
        Answer::parse_line(&line)
    }
}

/// What may be an error of etcd.
trait Checked: Sized {
    fn checked(self) -> Result<Self, Outcome>;
}

impl Checked for Answer {
    fn checked(self) -> Result<Self, Outcome> {
        match self.error() {
            Some((code, said)) => Err(Outcome::Answered { code, said }),
            None => Ok(self),
        }
    }
}

impl Checked for (Answer, Stream) {
    fn checked(self) -> Result<Self, Outcome> {
        Ok((self.0.checked()?, self.1))
    }
}

fn failed(error: Error, limit: Duration) -> Outcome {
    match error {
        Error::Timeout(_) => Outcome::Silent(limit),
        error => Outcome::Failed(Box::new(error)),
    }
}

fn tls_config(tls: &EtcdTls) -> Result<TlsConfig, OptionError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let roots = certificates("the certificate of the authority", &tls.authority)?;
    let identity = tls.identity.as_ref().map(|(certificate, key)| {
        let chain = certificates("the certificate of this member", certificate)?;
        Ok(ClientCert::new_with_certs(&chain, private_key(key)?))
    });
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .client_cert(identity.transpose()?)
        .unversioned_rustls_crypto_provider(provider)
        .build())
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<Certificate<'static>>, OptionError> {
    let mut found = Vec::new();
    for item in parse_pem(pem) {
        let item = item.map_err(|_| OptionError::Pem { what, is_missing: false })?;
        if let PemItem::Certificate(certificate) = item {
            found.push(certificate);
        }
    }
    if found.is_empty() { Err(OptionError::Pem { what, is_missing: true }) } else { Ok(found) }
}

fn private_key(pem: &[u8]) -> Result<PrivateKey<'static>, OptionError> {
    let what = "the key of this member";
    for item in parse_pem(pem) {
        let item = item.map_err(|_| OptionError::Pem { what, is_missing: false })?;
        if let PemItem::PrivateKey(key) = item {
            return Ok(key);
        }
    }
    Err(OptionError::Pem { what, is_missing: true })
}

/// The body that names one key.
pub(super) fn key(key: &str) -> Value {
    json!({"key": encoded(key)})
}

/// The body that names all keys with a prefix, which ends with `/`.
pub(super) fn below(prefix: &str) -> Value {
    let end = prefix.strip_suffix('/').map(|start| format!("{start}0")).unwrap_or_default();
    json!({"key": encoded(prefix), "range_end": encoded(end)})
}

/// Attempts at least: one endpoint alone is asked again.
const ATTEMPTS_MIN: usize = 3;
/// Between attempts, where an endpoint refuses.
const PAUSE: Duration = Duration::from_millis(200);
/// Bytes of an answer at most: etcd's own bound of a request is 1.5 MiB, and base64 makes it longer.
const ANSWER_MAX: u64 = 4 << 20;
/// gRPC's number.
const NOT_FOUND: i64 = 5;
