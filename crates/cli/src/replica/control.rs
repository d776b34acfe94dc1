//! The control socket of a running member: a unix socket in its directory, for its user alone. One line of JSON asks, one
//! answers.
//!
//! ```text
//!  {"landfast":1,"do":"status"}\n    ->   {"ok":{...}}\n   or   {"error":"..."}\n
//! ```

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ReplicaFailure;

/// A request.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Request {
    pub(super) landfast: u32,
    #[serde(flatten)]
    pub(super) wish: Asked,
}

/// What is asked.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(super) enum Asked {
    Status,
    Events { since: u64 },
    Promote { force: bool },
    Demote,
    Reverse { to: u8 },
    Suspend { member: u8 },
    Resume { member: u8 },
    Sync { member: u8 },
    GoOnWithout { member: u8 },
    SetMode { member: u8, mode: super::group::EntryMode },
    Verify { volume: Option<String> },
    Mark { name: String },
    Points,
    Mount { point: String, room: u64, fuse: Option<PathBuf>, loops: bool },
    Unmount { view: u64 },
}

/// An answer.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Answer {
    Ok(Value),
    Error(String),
}

/// The socket of a member, removed when this is dropped.
#[derive(Debug)]
pub(super) struct Control {
    path: PathBuf,
}

impl Control {
    /// Listens, and has `answer` answer each request on a thread of its own.
    pub(super) fn listen(
        path: &Path,
        answer: impl Fn(Asked) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Result<Self, ReplicaFailure> {
        let failed = |source| ReplicaFailure::File { path: path.to_owned(), source };
        // The log of the member is locked: whoever left the socket there is gone.
        match fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed(error));
            }
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let (answer, busy) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
        let accept = move || {
            for stream in listener.incoming().flatten() {
                if busy.fetch_add(1, Ordering::SeqCst) >= ASKING_MAX {
                    busy.fetch_sub(1, Ordering::SeqCst);
                    continue;
                }
                let (answer, busy) = (Arc::clone(&answer), Arc::clone(&busy));
                thread::spawn(move || {
                    if let Err(error) = serve(&stream, &*answer) {
                        tracing::debug!(%error, "a control connection failed");
                    }
                    busy.fetch_sub(1, Ordering::SeqCst);
                });
            }
        };
        thread::Builder::new().name("control".to_owned()).spawn(accept).map_err(failed)?;
        Ok(Self { path: path.to_owned() })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn serve(
    stream: &UnixStream,
    answer: &(impl Fn(Asked) -> Result<Value, String> + ?Sized),
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(ASK_LIMIT))?;
    stream.set_write_timeout(Some(ASK_LIMIT))?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_MAX)).read_line(&mut line)?;
    let answered = match serde_json::from_str::<Request>(&line) {
        Ok(request) if request.landfast == VERSION => answer(request.wish),
        Ok(request) => Err(format!("version {} is not known here", request.landfast)),
        Err(error) => Err(format!("the request makes no sense: {error}")),
    };
    let answered = match answered {
        Ok(value) => Answer::Ok(value),
        Err(why) => Answer::Error(why),
    };
    let mut text = serde_json::to_string(&answered)?;
    text.push('\n');
    let mut out = stream;
    out.write_all(text.as_bytes())
}

/// Asks the member whose socket is at `path`.
pub(super) fn ask(path: &Path, wish: Asked) -> Result<Value, ReplicaFailure> {
    let wrong = |why: String| ReplicaFailure::Control { path: path.to_owned(), why };
    let mut stream = UnixStream::connect(path).map_err(|error| wrong(error.to_string()))?;
    let request = Request { landfast: VERSION, wish };
    let mut text = serde_json::to_string(&request).map_err(|error| wrong(error.to_string()))?;
    text.push('\n');
    stream.write_all(text.as_bytes()).map_err(|error| wrong(error.to_string()))?;
    let mut line = String::new();
    let read = BufReader::new(&stream).read_line(&mut line);
    read.map_err(|error| wrong(error.to_string()))?;
    match serde_json::from_str(&line) {
        Ok(Answer::Ok(value)) => Ok(value),
        Ok(Answer::Error(why)) => Err(ReplicaFailure::Refused(why)),
        Err(_) => Err(wrong("it ended before it had answered".to_owned())),
    }
}

const VERSION: u32 = 1;
/// Bytes of a request at most.
const LINE_MAX: u64 = 64 << 10;
/// How long a request may take to come, and an answer to go.
const ASK_LIMIT: Duration = Duration::from_secs(10);
/// Requests at once.
const ASKING_MAX: usize = 16;
