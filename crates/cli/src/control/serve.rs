//! The server's end of the control socket.

use std::fs::Permissions;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use server::Observer;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use super::place::{Place, customary_directory, make};
use super::{Ask, ROWS_MAX, Request, Response, VERSION};
use crate::failure::Failure;

/// A control socket, removed when dropped. A client that asks before the socket is
/// [served](Self::serve) waits.
#[derive(Debug)]
pub(crate) struct Control {
    path: PathBuf,
    /// Device and inode: a socket that another server has put in its place meanwhile is not
    /// removed.
    identity: (u64, u64),
    listener: Option<UnixListener>,
    serving: Option<JoinHandle<()>>,
}

impl Control {
    /// Opens the socket of the server on `port`. A failure in the customary place only costs
    /// `landfast status`; a failure at a path that was asked for is an error.
    pub(crate) fn open(place: &Place, port: u16) -> Result<Option<Self>, Failure> {
        let path = match place {
            Place::Nowhere => return Ok(None),
            Place::At(path) => path.clone(),
            Place::Customary => customary_directory().join(format!("{port}.sock")),
        };
        let failed = match Self::listen(&path, place) {
            Ok(control) => {
                info!(path = %path.display(), "control socket");
                return Ok(Some(control));
            }
            Err(error) => Failure::local("cannot open the control socket", &path)(error),
        };
        match place {
            Place::Customary => {
                warn!("{failed}: landfast status will not find this server; see --control");
                Ok(None)
            }
            _ => Err(failed),
        }
    }

    /// Looks whether the socket that was asked for could be opened, and makes and asks nothing: a server that runs may
    /// have it.
    pub(crate) fn look(place: &Place) -> Result<(), Failure> {
        match place {
            Place::At(path) => {
                check(path).map_err(Failure::local("cannot open the control socket", path))
            }
            Place::Customary | Place::Nowhere => Ok(()),
        }
    }

    fn listen(path: &Path, place: &Place) -> io::Result<Self> {
        let parent = directory_of(path);
        if *place == Place::Customary {
            make(parent)?;
        }
        check_kind(path)?;
        let taken = || io::Error::new(io::ErrorKind::AddrInUse, "a server answers there");
        match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => return Err(taken()),
            // The socket of a killed server.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        // Bound in a private directory, and moved when its mode is set: at no moment can another
        // user open it.
        let private = tempfile::Builder::new().prefix(".landfast").tempdir_in(parent)?;
        let bound = private.path().join("s");
        let listener = UnixListener::bind(&bound)?;
        std::fs::set_permissions(&bound, Permissions::from_mode(0o600))?;
        std::fs::rename(&bound, path)?;
        let metadata = std::fs::symlink_metadata(path)?;
        let identity = (metadata.dev(), metadata.ino());
        Ok(Self { path: path.into(), identity, listener: Some(listener), serving: None })
    }

    /// Answers from now on the requests about a server.
    pub(crate) fn serve(&mut self, observer: Observer) {
        let listener = self.listener.take();
        self.serving = listener.map(|listener| tokio::spawn(serve(listener, observer)));
    }
}

fn directory_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or_else(|| Path::new("."))
}

// Connecting to a file is refused like connecting to a socket that a killed server has left.
fn check_kind(path: &Path) -> io::Result<bool> {
    // Components of a path have no slash at their end.
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => Ok(true),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is no socket")),
        Err(_) => Ok(false),
    }
}

/// What of [`Control::listen`] can be known beforehand.
fn check(path: &Path) -> io::Result<()> {
    if check_kind(path)? {
        accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?;
    }
    tree::journal::takes_file(path)?;
    // A socket's path is short, and it is bound in a directory beside it.
    let bound = directory_of(path).join(".landfast012345").join("s");
    [path, &bound].into_iter().try_for_each(|path| SocketAddr::from_pathname(path).map(drop))
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            warn!(path = %self.path.display(), %error, "the control socket stays");
        }
    }
}

async fn serve(listener: UnixListener, observer: Observer) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // Further clients wait in the listener's queue when all places are taken.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "control socket");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let observer = observer.clone();
        tokio::spawn(async move {
            let _place = place;
            match tokio::time::timeout(PATIENCE, answer(stream, observer)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => debug!(%error, "control connection"),
                Err(_) => debug!("a control connection was too slow"),
            }
        });
    }
}

async fn answer(stream: UnixStream, observer: Observer) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = Vec::new();
    BufReader::new(reader).take(REQUEST_MAX).read_until(b'\n', &mut line).await?;
    // Copying tables and formatting them takes long: it must not occupy the threads that serve
    // clients.
    let response = tokio::task::spawn_blocking(move || text(&respond(&line, &observer)))
        .await
        .map_err(io::Error::other)?;
    writer.write_all(&response).await?;
    writer.shutdown().await
}

fn respond(line: &[u8], observer: &Observer) -> Response {
    let refused = |why: String| Response { landfast: VERSION, status: None, error: Some(why) };
    let request: Request = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(error) => return refused(format!("not a request: {error}")),
    };
    if request.landfast != VERSION {
        return refused(format!("version {} is not known, {VERSION} is", request.landfast));
    }
    match request.ask {
        Ask::Status => match observer.report(request.rows_max.min(ROWS_MAX)) {
            Some(report) => Response { landfast: VERSION, status: Some(report), error: None },
            None => refused("the server stops".to_owned()),
        },
    }
}

fn text(response: &Response) -> Vec<u8> {
    let mut text = serde_json::to_vec(response).expect("strings and numbers are JSON");
    text.push(b'\n');
    text
}

/// Longest request: a version, a word and a number.
const REQUEST_MAX: u64 = 4_096;
/// Connections at once.
const CONNECTIONS_MAX: usize = 4;
/// The time from accepting a connection to its end.
const PATIENCE: Duration = Duration::from_secs(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream as Stream;

    use server::{Running, Server, ServerConfig};

    use super::*;

    async fn server() -> Running {
        Server::start(ServerConfig::new("127.0.0.1:0".parse().unwrap())).await.unwrap()
    }

    async fn say(path: &Path, line: &'static [u8]) -> String {
        let path = path.to_owned();
        let asked = tokio::task::spawn_blocking(move || {
            let mut stream = Stream::connect(path).unwrap();
            stream.write_all(line).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        });
        asked.await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_status_is_answered_and_anything_else_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.sock");
        let running = server().await;
        let place = Place::At(path.clone());
        let mut control = Control::open(&place, 0).unwrap().unwrap();
        control.serve(running.observer());
        let mode = std::fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "nobody else may open it");

        let answer = say(&path, b"{\"landfast\":1,\"ask\":\"status\"}\n").await;
        let answer: Response = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer.status.unwrap().sessions.total, 0);
        for (line, why) in [
            (&b"{\"landfast\":2,\"ask\":\"status\"}\n"[..], "version 2 is not known"),
            (b"{\"landfast\":1,\"ask\":\"password\"}\n", "not a request"),
            (b"\xff\xff\n", "not a request"),
            (b"", "not a request"),
            (&[b'x'; 4_096], "not a request"),
        ] {
            let answer: Response = serde_json::from_str(&say(&path, line).await).unwrap();
            let error = answer.error.unwrap();
            assert!(error.contains(why) && answer.status.is_none(), "{error}");
        }
        drop(control);
        assert!(!path.exists());
        let left = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(left, 0, "no directory of the binding stays");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn only_a_control_socket_that_does_not_answer_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let place = Place::At(path);
        let first = Control::open(&place, 0).unwrap().unwrap();
        let error = Control::open(&place, 0).unwrap_err();
        assert!(error.to_string().contains("a server answers there"), "{error}");
        assert!(Control::open(&Place::Nowhere, 0).unwrap().is_none());
        // A file of a user is never replaced by a socket.
        let file = directory.path().join("notes");
        std::fs::write(&file, "kept").unwrap();
        Control::open(&Place::At(file.clone()), 0).unwrap_err();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
        drop(first);
    }
}
