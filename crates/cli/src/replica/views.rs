//! The views that a running member shows: each has a socket of its own for NBD, or files and loop devices.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use block::BlockDevice;
use fuse::Mounted;
use nbd::{Address, Export, Exports, Handle, Server};
use replica::runtime::Member;
use replica::view::Point;
use serde_json::{Value, json};
use tokio::runtime;

/// See the module.
#[derive(Debug)]
pub(super) struct Shown {
    directory: PathBuf,
    /// Where the servers of the views run.
    runtime: runtime::Handle,
    views: Mutex<Views>,
}

#[derive(Debug, Default)]
struct Views {
    made: u64,
    open: BTreeMap<u64, Way>,
}

/// How a view is reached.
#[derive(Debug)]
enum Way {
    Nbd { _handle: Handle, socket: PathBuf },
    Files(Box<Mounted>),
}

impl Shown {
    pub(super) fn new(directory: &Path, runtime: runtime::Handle) -> Self {
        Self { directory: directory.to_owned(), runtime, views: Mutex::default() }
    }

    /// Makes a view and shows it.
    pub(super) fn mount(
        &self,
        member: &Member,
        names: &[String],
        point: &str,
        room: u64,
        (fuse, loops): (Option<PathBuf>, bool),
    ) -> Result<Value, String> {
        let point: Point =
            point.parse().map_err(|error: replica::view::NoPoint| error.to_string())?;
        let view = member.view(&point, room).map_err(|error| error.to_string())?;
        let devices: Vec<(String, Arc<dyn BlockDevice>)> = names
            .iter()
            .cloned()
            .zip(view.volumes().iter().map(|overlay| Arc::clone(overlay) as Arc<dyn BlockDevice>))
            .collect();
        let at = view.at();
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        views.made += 1;
        let number = views.made;
        let (way, shown) = match fuse {
            Some(directory) => {
                let mounted = Mounted::new(devices, &directory, fuse::Options { loops })
                    .map_err(|error| error.to_string())?;
                let files: Vec<String> =
                    mounted.paths().iter().map(|path| path.display().to_string()).collect();
                let loops: Vec<String> =
                    mounted.loops().map(|path| path.display().to_string()).collect();
                (Way::Files(Box::new(mounted)), json!({"files": files, "loops": loops}))
            }
            None => {
                let socket = self.directory.join(format!("view-{number}.sock"));
                let handle = self.serve(devices, &socket)?;
                let path = socket.display().to_string();
                (Way::Nbd { _handle: handle, socket }, json!({"socket": path}))
            }
        };
        views.open.insert(number, way);
        let mut answer = json!({"view": number, "lsn": at.0});
        if let (Some(answer), Some(shown)) = (answer.as_object_mut(), shown.as_object()) {
            answer.extend(shown.clone());
        }
        Ok(answer)
    }

    fn serve(
        &self,
        devices: Vec<(String, Arc<dyn BlockDevice>)>,
        socket: &Path,
    ) -> Result<Handle, String> {
        // A member that was killed left its sockets.
        let _ = std::fs::remove_file(socket);
        let exports = devices
            .into_iter()
            .map(|(name, device)| Export::new(&name, "a view of a replicated volume", device))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| error.to_string())?;
        let exports = Exports::new(exports).map_err(|error| error.to_string())?;
        let server = Server::new(exports, None).map_err(|error| error.to_string())?;
        let _entered = self.runtime.enter();
        server.listen(&[Address::Unix(socket.to_owned())]).map_err(|error| error.to_string())
    }

    /// Ends a view.
    pub(super) fn unmount(&self, number: u64) -> Result<Value, String> {
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        let way = views.open.remove(&number).ok_or_else(|| format!("there is no view {number}"))?;
        match way {
            Way::Nbd { _handle, socket } => {
                drop(_handle);
                let _ = std::fs::remove_file(socket);
            }
            Way::Files(mut mounted) => match mounted.try_end() {
                Ok(true) => {}
                ended => {
                    views.open.insert(number, Way::Files(mounted));
                    return Err(match ended {
                        Err(error) => format!("the files of view {number} stay: {error}"),
                        Ok(_) => format!(
                            "a file of view {number} is in use: unmount what is mounted on its loop device"
                        ),
                    });
                }
            },
        }
        Ok(Value::Null)
    }

    /// The numbers of the views.
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner).open.keys().copied().collect()
    }
}
