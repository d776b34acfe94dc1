//! What etcd answers: JSON of its gRPC gateway, in which 64-bit numbers are strings and bytes are base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// An answer of etcd, or a line of a stream of answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer(Value);

/// A key and what it holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pair {
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision that changed it last.
    pub revision: i64,
}

/// A key that has changed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change {
    /// It holds this.
    Put(Pair),
    /// It is gone.
    Gone(Vec<u8>),
}

impl Answer {
    /// An answer, if the bytes are one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        value.is_object().then_some(Self(value))
    }

    /// A line of a stream: what it has as result, or all of it, if that is an error.
    pub fn parse_line(bytes: &[u8]) -> Option<Self> {
        let Self(mut line) = Self::parse(bytes)?;
        match line.get_mut("result") {
            Some(result) if result.is_object() => Some(Self(result.take())),
            _ => line.get("error").is_some().then_some(Self(line)),
        }
    }

    /// The error that it is: gRPC's number, and etcd's words.
    pub fn error(&self) -> Option<(i64, String)> {
        let error = self.0.get("error")?;
        // Of a stream it is an object, of a call a text beside its number.
        let (code, said) = match error {
            Value::String(said) => (self.0.get("code"), Some(said.as_str())),
            error => (error.get("grpc_code"), error.get("message").and_then(Value::as_str)),
        };
        let said: String = said.unwrap_or_default().chars().take(SAID_MAX).collect();
        Some((code.and_then(Value::as_i64).unwrap_or(UNKNOWN), said))
    }

    /// A number; 0 where it is not there, as etcd leaves that out.
    pub fn number(&self, name: &str) -> i64 {
        number(self.0.get(name))
    }

    /// A text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// Whether something is so; etcd leaves out what is not.
    pub fn is(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    /// The revision of etcd at which it was given.
    pub fn revision(&self) -> i64 {
        number(self.0.get("header").and_then(|header| header.get("revision")))
    }

    /// The pairs that were found, if all of them are sound.
    pub fn pairs(&self) -> Option<Vec<Pair>> {
        let Some(pairs) = self.0.get("kvs") else { return Some(Vec::new()) };
        pairs.as_array()?.iter().map(pair).collect()
    }

    /// The changes that a watch saw, if all of them are sound.
    pub fn changes(&self) -> Option<Vec<Change>> {
        let Some(events) = self.0.get("events") else { return Some(Vec::new()) };
        let change = |event: &Value| {
            let pair = pair(event.get("kv")?)?;
            match event.get("type").and_then(Value::as_str) {
                None | Some("PUT") => Some(Change::Put(pair)),
                Some("DELETE") => Some(Change::Gone(pair.key)),
                Some(_) => None,
            }
        };
        events.as_array()?.iter().map(change).collect()
    }
}

fn pair(value: &Value) -> Option<Pair> {
    let bytes = |name| match value.get(name) {
        // An empty one is left out.
        None => Some(Vec::new()),
        Some(text) => STANDARD.decode(text.as_str()?).ok(),
    };
    let revision = number(value.get("mod_revision"));
    Some(Pair { key: bytes("key")?, value: bytes("value")?, revision })
}

fn number(value: Option<&Value>) -> i64 {
    match value {
        Some(Value::String(text)) => text.parse().unwrap_or(0),
        Some(value) => value.as_i64().unwrap_or(0),
        None => 0,
    }
}

/// Bytes as etcd wants them.
pub(super) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// gRPC's number of an error without one.
const UNKNOWN: i64 = 2;
/// Of an error's text, so much is kept.
const SAID_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    // Answers of etcd 3.4.23.
    const RANGE: &str = r#"{"header":{"cluster_id":"14841639068965178418","member_id":"10276657743932975437","revision":"3","raft_term":"2"},"kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"3","version":"2","value":"YmFy"}],"count":"1"}"#;
    const EVENT: &str = r#"{"result":{"header":{"revision":"4"},"events":[{"kv":{"key":"Zm9v","mod_revision":"4","value":"YmFy"}},{"type":"DELETE","kv":{"key":"YmFy","mod_revision":"4"}}]}}"#;
    const REFUSED: &str = r#"{"error":"etcdserver: permission denied","message":"etcdserver: permission denied","code":7}"#;
    const NO_LEADER: &str = r#"{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader","http_status":"Service Unavailable"}}"#;

    #[test]
    fn answers_are_read_as_etcd_writes_them() {
        let found = Answer::parse(RANGE.as_bytes()).unwrap();
        let foo = Pair { key: b"foo".to_vec(), value: b"bar".to_vec(), revision: 3 };
        assert_eq!((found.revision(), found.pairs()), (3, Some(vec![foo.clone()])));
        let event = Answer::parse_line(EVENT.as_bytes()).unwrap();
        let foo = Pair { revision: 4, ..foo };
        let changes = vec![Change::Put(foo), Change::Gone(b"bar".to_vec())];
        assert_eq!(event.changes(), Some(changes));
        let refused = Answer::parse(REFUSED.as_bytes()).unwrap().error();
        assert_eq!(refused, Some((7, "etcdserver: permission denied".to_owned())));
        let no_leader = Answer::parse_line(NO_LEADER.as_bytes()).unwrap().error();
        assert_eq!(no_leader, Some((14, "etcdserver: no leader".to_owned())));
    }

    #[test]
    fn what_is_no_answer_is_none() {
        for bytes in ["", "[]", "7", "<html>", "{\"kvs\":[", "{}{}"] {
            assert_eq!(Answer::parse(bytes.as_bytes()), None, "{bytes}");
        }
        for line in ["{}", r#"{"result":7}"#, r#"{"other":{}}"#] {
            assert_eq!(Answer::parse_line(line.as_bytes()), None, "{line}");
        }
        for unsound in [r#"{"kvs":7}"#, r#"{"kvs":[{"key":"?"}]}"#, r#"{"kvs":[{"value":7}]}"#] {
            assert_eq!(Answer::parse(unsound.as_bytes()).unwrap().pairs(), None, "{unsound}");
        }
        let odd = r#"{"events":[{"kv":{},"type":"ELSE"}]}"#;
        assert_eq!(Answer::parse(odd.as_bytes()).unwrap().changes(), None);
        let deep = "[".repeat(100_000);
        assert_eq!(Answer::parse(deep.as_bytes()), None);
    }
}
