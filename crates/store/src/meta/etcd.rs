//! Metadata in etcd, asked by its JSON gateway.
//!
//! ```text
//!   /landfast/store/NAME/KEY     versions are etcd's mod_revision
//! ```
//!
//! The client of etcd in `replica::witness` is not used here: its errors, its refusals and its attempts are those of a
//! witness, which is asked for one record in seconds, and its crate lies above this one. What both share is the form of
//! a request, which is short.

use std::sync::Mutex;
use std::sync::PoisonError;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use ureq::Agent;

use super::interface::{Change, ENDPOINT_PATIENCE, Entry, Meta, MetaError};

/// See the module.
#[derive(Debug)]
pub struct EtcdMeta {
    prefix: String,
    endpoints: Vec<String>,
    /// The endpoint that answered last.
    at: Mutex<usize>,
    agent: Agent,
}

impl EtcdMeta {
    /// The store `name` at these endpoints. Etcd need not be there yet.
    pub fn new(endpoints: Vec<String>, name: &str) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_global(Some(ENDPOINT_PATIENCE))
            .build()
            .new_agent();
        Self { prefix: format!("/landfast/store/{name}/"), endpoints, at: Mutex::new(0), agent }
    }

    fn key(&self, key: &str) -> String {
        STANDARD.encode(format!("{}{key}", self.prefix))
    }

    /// Asks the endpoint that answered last, then the others, each once.
    fn ask(&self, path: &str, body: &Value) -> Result<Value, MetaError> {
        let begin = *self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let mut last = None;
        for attempt in 0..self.endpoints.len() {
            let at = (begin + attempt) % self.endpoints.len();
            match self.ask_one(&self.endpoints[at], path, body) {
                Ok(answer) => {
                    *self.at.lock().unwrap_or_else(PoisonError::into_inner) = at;
                    return Ok(answer);
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("there is an endpoint at least"))
    }

    fn ask_one(&self, endpoint: &str, path: &str, body: &Value) -> Result<Value, MetaError> {
        let endpoint = endpoint.to_owned();
        let silent =
            |source| MetaError::PeerSilent { endpoint: endpoint.clone(), source: Box::new(source) };
        let request = self.agent.post(format!("{endpoint}{path}"));
        let request = request.header("Content-Type", "application/json");
        let request = request.header("Grpc-Metadata-hasleader", "true");
        let mut response = request.send(body.to_string()).map_err(silent)?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(MetaError::PeerRefused { endpoint, status });
        }
        let body = response.body_mut().with_config().limit(ANSWER_MAX).read_to_vec();
        let body = body.map_err(silent)?;
        serde_json::from_slice(&body).map_err(|_| MetaError::PeerGarbled { endpoint })
    }

    fn range(&self, body: &Value) -> Result<Vec<(String, Entry)>, MetaError> {
        let answer = self.ask("/v3/kv/range", body)?;
        let garbled = || MetaError::PeerGarbled { endpoint: self.endpoints[0].clone() };
        let pairs = answer.get("kvs").and_then(Value::as_array).cloned().unwrap_or_default();
        let pairs = pairs.iter().map(|pair| self.pair(pair));
        pairs.collect::<Option<_>>().ok_or_else(garbled)
    }

    fn pair(&self, pair: &Value) -> Option<(String, Entry)> {
        let bytes =
            |name| STANDARD.decode(pair.get(name).and_then(Value::as_str).unwrap_or("")).ok();
        let key = String::from_utf8(bytes("key")?).ok()?;
        let key = key.strip_prefix(&self.prefix)?.to_owned();
        let version = pair.get("mod_revision")?.as_str()?.parse().ok()?;
        Some((key, Entry { value: bytes("value")?, version }))
    }
}

impl Meta for EtcdMeta {
    fn get(&self, key: &str) -> Result<Option<Entry>, MetaError> {
        let found = self.range(&json!({ "key": self.key(key) }))?;
        Ok(found.into_iter().next().map(|(_, entry)| entry))
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Entry)>, MetaError> {
        // Keys end below the next prefix: no byte of a key is 0xff.
        let mut end = format!("{}{prefix}", self.prefix).into_bytes();
        end.push(0xff);
        let body = json!({
            "key": self.key(prefix), "range_end": STANDARD.encode(end), "sort_target": "KEY",
            "sort_order": "ASCEND",
        });
        self.range(&body)
    }

    fn swap(
        &self,
        change: Change<'_>,
        only_if: &[(&str, Option<u64>)],
    ) -> Result<Option<u64>, MetaError> {
        let compare: Vec<Value> = only_if
            .iter()
            .map(|(key, version)| {
                json!({ "key": self.key(key), "target": "MOD", "result": "EQUAL",
                        "mod_revision": version.unwrap_or(0).to_string() })
            })
            .collect();
        let success = match change.value {
            Some(value) => json!([{ "request_put":
                { "key": self.key(change.key), "value": STANDARD.encode(value) } }]),
            None => json!([{ "request_delete_range": { "key": self.key(change.key) } }]),
        };
        let answer = self.ask("/v3/kv/txn", &json!({ "compare": compare, "success": success }))?;
        if !answer.get("succeeded").and_then(Value::as_bool).unwrap_or(false) {
            return Ok(None);
        }
        if change.value.is_none() {
            return Ok(Some(0));
        }
        let revision = answer.get("header").and_then(|header| header.get("revision"));
        let revision = revision.and_then(Value::as_str).and_then(|text| text.parse().ok());
        let garbled = || MetaError::PeerGarbled { endpoint: self.endpoints[0].clone() };
        revision.map(Some).ok_or_else(garbled)
    }
}

/// Bytes of an answer at most: a listing of records.
const ANSWER_MAX: u64 = 64 << 20;
