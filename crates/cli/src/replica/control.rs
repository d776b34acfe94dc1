//! The control socket of a running member: a unix socket in its directory, for its user alone. One line of JSON asks, one
//! answers.
//!
//! ```text
//!  {"landfast":1,"do":"status"}\n    ->   {"ok":{...}}\n   or   {"error":"..."}\n
//! ```

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
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
    Events {
        since: u64,
    },
    Promote {
        #[serde(default)]
        was_in_sync: bool,
        force: bool,
    },
    Demote,
    Reverse {
        to: u8,
    },
    Suspend {
        member: u8,
    },
    Resume {
        member: u8,
    },
    Sync {
        member: u8,
    },
    GoOnWithout {
        member: u8,
    },
    SetMode {
        member: u8,
        mode: super::group::EntryMode,
    },
    Verify {
        volume: Option<String>,
    },
    Resize {
        volume: String,
        size: u64,
    },
    Mark {
        name: String,
    },
    Points,
    Mount {
        point: String,
        room: u64,
        fuse: Option<PathBuf>,
        loops: bool,
    },
    Unmount {
        view: u64,
    },
    Apply {
        file: Box<super::group::GroupFile>,
        dry_run: bool,
        #[serde(default)]
        others_have_it: bool,
        /// The differences that are meant, by their names; all of the file where there is none. What an operator has made of a
        /// mode meanwhile is taken back where the mode is meant.
        #[serde(default)]
        keys: Vec<String>,
    },
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
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(failed(error));
            }
            _ => {}
        }
        let listener = bind_private(path).map_err(failed)?;
        let (answer, places) = (Arc::new(answer), Arc::new(Places::default()));
        let accept = move || {
            loop {
                let stream = match listener.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        // Out of descriptors or memory: a pause gives requests time to end.
                        tracing::warn!(%error, "no request is taken");
                        thread::sleep(ACCEPT_PAUSE);
                        continue;
                    }
                };
                let Some(place) = Place::take(&places, |places| &places.asking, ASKING_MAX) else {
                    continue;
                };
                let (answer, places) = (Arc::clone(&answer), Arc::clone(&places));
                let asked = move || {
                    let _place = place;
                    if let Err(error) = serve(&stream, &places, &*answer) {
                        tracing::debug!(%error, "a control connection failed");
                    }
                };
                // Without a thread the request ends here: whoever asks is told that nobody answers.
                if let Err(error) = thread::Builder::new().spawn(asked) {
                    tracing::warn!(%error, "no thread for a request");
                }
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

/// Binds a socket that only the own user may connect to, from its first moment on.
fn bind_private(path: &Path) -> std::io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // Nobody can connect before listen, so nobody connects before the mode is set.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// The requests that are answered at present.
#[derive(Debug, Default)]
struct Places {
    asking: AtomicUsize,
    /// Those among them that may wait for long.
    waiting: AtomicUsize,
}

/// One of them, until dropped: also by a panic.
struct Place {
    places: Arc<Places>,
    of: fn(&Places) -> &AtomicUsize,
}

impl Place {
    fn take(places: &Arc<Places>, of: fn(&Places) -> &AtomicUsize, most: usize) -> Option<Self> {
        let place = Self { places: Arc::clone(places), of };
        (of(places).fetch_add(1, Ordering::SeqCst) < most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        (self.of)(&self.places).fetch_sub(1, Ordering::SeqCst);
    }
}

impl Asked {
    /// How long whoever asks waits for the answer: a member that was stopped never gives one. What writes of other members can
    /// hold up has no limit.
    fn limit(&self) -> Option<Duration> {
        match self {
            Self::Promote { .. } | Self::Demote | Self::Reverse { .. } | Self::Apply { .. } => {
                Some(ROLE_LIMIT)
            }
            wish if wish.may_wait() => None,
            _ => Some(ANSWER_LIMIT),
        }
    }

    /// Whether the answer may wait for other members, or for writes to go on: which a request that does not can bring about.
    const fn may_wait(&self) -> bool {
        matches!(
            self,
            Self::Promote { .. }
                | Self::Demote
                | Self::Reverse { .. }
                | Self::Verify { .. }
                | Self::Resize { .. }
                | Self::Mark { .. }
                | Self::Mount { .. }
                | Self::Apply { .. }
        )
    }
}

fn serve(
    stream: &UnixStream,
    places: &Arc<Places>,
    answer: &(impl Fn(Asked) -> Result<Value, String> + ?Sized),
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(ASK_LIMIT))?;
    stream.set_write_timeout(Some(ASK_LIMIT))?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_MAX)).read_line(&mut line)?;
    let mut waiting = None;
    let mut has_room = |wish: &Asked| {
        if wish.may_wait() {
            waiting = Place::take(places, |places| &places.waiting, WAITING_MAX);
        }
        !wish.may_wait() || waiting.is_some()
    };
    let answered = match serde_json::from_str::<Request>(&line) {
        Ok(request) if request.landfast == VERSION && !has_room(&request.wish) => {
            Err(format!("{WAITING_MAX} requests wait already"))
        }
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
    let limit = wish.limit();
    ask_within(path, wish, limit)
}

fn ask_within(path: &Path, wish: Asked, limit: Option<Duration>) -> Result<Value, ReplicaFailure> {
    let wrong = |why: String| ReplicaFailure::Control { path: path.to_owned(), why };
    let mut stream = UnixStream::connect(path).map_err(|error| wrong(error.to_string()))?;
    stream.set_write_timeout(Some(ASK_LIMIT)).map_err(|error| wrong(error.to_string()))?;
    stream.set_read_timeout(limit).map_err(|error| wrong(error.to_string()))?;
    let request = Request { landfast: VERSION, wish };
    let mut text = serde_json::to_string(&request).map_err(|error| wrong(error.to_string()))?;
    text.push('\n');
    stream.write_all(text.as_bytes()).map_err(|error| wrong(error.to_string()))?;
    let mut line = String::new();
    let read = BufReader::new(&stream).read_line(&mut line);
    read.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => wrong(format!(
            "it has not answered for {} s: its process is stopped, or its disk does not answer",
            limit.unwrap_or_default().as_secs()
        )),
        _ => wrong(error.to_string()),
    })?;
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
/// How long an answer may take that waits for nobody.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);
/// How long a change of roles may take, of which the member itself tells after a minute that it is under way.
const ROLE_LIMIT: Duration = Duration::from_secs(90);
/// Requests at once.
const ASKING_MAX: usize = 32;
/// Those among them that may wait for long, so that one that does not finds room.
const WAITING_MAX: usize = 16;
/// Requests that wait to be taken.
const BACKLOG: i32 = 64;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn requests_that_wait_leave_room_for_one_that_ends_their_wait() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let (begun, is_begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let released = std::sync::Mutex::new(released);
        let control = Control::listen(&path, move |wish| match wish {
            Asked::Mark { .. } => {
                begun.send(()).unwrap();
                let _ = released.lock().unwrap().recv();
                Ok(Value::Null)
            }
            _ => Ok(Value::from("soon")),
        })
        .unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mark = || Asked::Mark { name: "m".to_owned() };
        let waiting: Vec<_> = (0..WAITING_MAX)
            .map(|_| {
                let path = path.clone();
                thread::spawn(move || ask(&path, mark()))
            })
            .collect();
        waiting.iter().for_each(|_| is_begun.recv().unwrap());
        let refused = ask(&path, mark()).unwrap_err();
        assert!(refused.to_string().contains("wait already"), "{refused}");
        assert_eq!(ask(&path, Asked::GoOnWithout { member: 1 }).unwrap(), "soon");
        drop(release);
        for asked in waiting {
            asked.join().unwrap().unwrap();
        }
        drop(control);
    }

    #[test]
    fn a_member_that_does_not_answer_is_told_from_one_that_does() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        // Whoever connects is taken by the kernel, as with a process that is stopped.
        let _listener = bind_private(&path).unwrap();
        let limit = Duration::from_millis(10);
        let error = ask_within(&path, Asked::Status, Some(limit)).unwrap_err();
        assert!(error.to_string().contains("its process is stopped"), "{error}");
        assert!(Asked::Status.limit().is_some() && Asked::Points.limit().is_some());
    }

    #[test]
    fn an_answer_that_panics_costs_no_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let _control = Control::listen(&path, |wish| match wish {
            Asked::Points => panic!("as planned"),
            _ => Ok(Value::Null),
        })
        .unwrap();
        for _ in 0..2 * ASKING_MAX {
            ask(&path, Asked::Points).unwrap_err();
        }
        // The last of them may not have ended.
        while ask(&path, Asked::Status).is_err() {}
    }
}
