//! `landfast get`: copies a file of a share to this machine, whole or not at all.
//!
//! ```text
//!  read --> DIRECTORY/.landfast-XXXX --> fsync --> renamed to its name --> the directory's fsync
//! ```
//!
//! Until the rename the local file stays unchanged. The new file gets its mode, and if it is a symbolic link, the
//! target of the link is replaced. A pipe or device is written directly, and then the bytes written before a
//! failure stay.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::{FileStat, OpenOptions, SmbUrl};
use rustix::fs::{Gid, Uid, fchown};
use tempfile::TempPath;

use super::{
    CHUNK, check_directory, check_spelling, is_pipe, last_name, off_thread, progress, wide,
};
use crate::args::Get;
use crate::failure::Failure;
use crate::interrupt::{self, Stops};
use crate::output;
use crate::remote;

/// Copies a remote file to a local one, and returns when it is durable.
pub(crate) fn run(options: &Get) -> Result<(), Failure> {
    let url = remote::url(&options.url)?;
    interrupt::run(async |stops| get(stops, &url, options.local.as_deref()).await)
}

async fn get(stops: &mut Stops, url: &SmbUrl, local: Option<&Path>) -> Result<(), Failure> {
    let failed = || Failure::remote("cannot read", url);
    let client = stops.or(remote::connect_async(url)).await?;
    stops.or(check_spelling("not read:", &client, url)).await?;
    let opening = async { client.open(&url.path, &OpenOptions::read()).await.map_err(failed()) };
    let file = stops.or(opening).await?;
    check_directory(url, Some(file.opened_as()))?;
    let target = stops.or(Target::open(local, &last_name(&url.path))).await?;
    let reading = async {
        let before = file.stat().await.map_err(failed())?;
        let (mut buffer, mut at) = (vec![0; CHUNK], 0);
        while at < before.len {
            let left = usize::try_from(before.len - at).unwrap_or(usize::MAX).min(CHUNK);
            let taken = file.read_at(at, &mut buffer[..left]).await.map_err(failed())?;
            if taken == 0 {
                break;
            }
            buffer = target.write(buffer, taken).await?;
            at += wide(taken);
            progress(at, before.len);
        }
        let after = file.stat().await.map_err(failed())?;
        if at != before.len || has_changed(&before, &after) {
            return Err(Failure::Changed(url.to_string()));
        }
        target.persist_bytes().await
    };
    stops.or(reading).await?;
    stops.or(async { file.close().await.map_err(failed()) }).await?;
    target.finish()
}

fn has_changed(before: &FileStat, after: &FileStat) -> bool {
    let facts = |stat: &FileStat| (stat.len, stat.last_write_time, stat.change_time);
    facts(before) != facts(after)
}

/// The destination of the bytes.
struct Target {
    path: PathBuf,
    out: Out,
}

enum Out {
    /// Removed when dropped.
    Beside {
        file: Arc<File>,
        part: TempPath,
    },
    /// A device or a pipe.
    There(Arc<File>),
    Stdout,
}

impl Target {
    /// `name`: the name of the file if `local` gives none.
    async fn open(local: Option<&Path>, name: &Path) -> Result<Self, Failure> {
        if local.is_some_and(is_pipe) {
            return Ok(Self { path: "-".into(), out: Out::Stdout });
        }
        let mut path = local.unwrap_or(name).to_path_buf();
        if local.is_some() && path.is_dir() {
            path.push(name);
        }
        output::check_path("cannot write", &path)?;
        let failed = || Failure::local("cannot write", &path);
        let there = match fs::metadata(&path) {
            Ok(there) => Some(there),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed()(error)),
        };
        if there.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(failed()(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        if there.as_ref().is_some_and(|there| !there.is_file()) {
            // A pipe waits for a reader.
            let there = path.clone();
            let opened = off_thread(move || File::options().write(true).open(there)).await?;
            let file = opened.map_err(failed())?;
            return Ok(Self { path, out: Out::There(Arc::new(file)) });
        }
        if there.is_some() {
            // A user who may not write to the file may not replace it.
            drop(File::options().write(true).open(&path).map_err(failed())?);
        }
        let link = fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink());
        let path = if link { fs::canonicalize(&path).map_err(failed())? } else { path };
        let mut builder = tempfile::Builder::new();
        // A new file gets the mode of the umask; a file with a mode to keep is private until it has that mode.
        let mode = if there.is_some() { 0o600 } else { 0o666 };
        builder.prefix(".landfast-");
        let failed = || Failure::local("cannot write", &path);
        // The file is made here, because the error of the library would name the part and not the
        // file.
        let make = |path: &Path| File::options().write(true).create_new(true).mode(mode).open(path);
        let made = builder.make_in(parent(&path), make);
        let beside = |source| Failure::LocalBeside { path: path.clone(), source };
        let (file, part) = made.map_err(beside)?.into_parts();
        if let Some(there) = there {
            // Only root can change the owner; for other users the owner stays.
            let _ =
                fchown(&file, Some(Uid::from_raw(there.uid())), Some(Gid::from_raw(there.gid())));
            // Without the set-ID bits: the new bytes do not get the rights of the old ones.
            let mode = Permissions::from_mode(there.mode() & 0o1777);
            file.set_permissions(mode).map_err(failed())?;
        }
        Ok(Self { path, out: Out::Beside { file: Arc::new(file), part } })
    }

    async fn write(&self, buffer: Vec<u8>, len: usize) -> Result<Vec<u8>, Failure> {
        let file = match &self.out {
            Out::Beside { file, .. } | Out::There(file) => Some(Arc::clone(file)),
            Out::Stdout => None,
        };
        let work = move || {
            let written = match file {
                Some(file) => (&*file).write_all(&buffer[..len]),
                None => io::stdout().write_all(&buffer[..len]),
            };
            (buffer, written)
        };
        let (buffer, written) = off_thread(work).await?;
        written.map_err(|error| self.failed(error)).map(|()| buffer)
    }

    fn failed(&self, error: io::Error) -> Failure {
        match self.out {
            Out::Stdout => Failure::Output(error),
            _ => Failure::local("cannot write", &self.path)(error),
        }
    }

    async fn persist_bytes(&self) -> Result<(), Failure> {
        let Out::Beside { file, .. } = &self.out else {
            return io::stdout().flush().map_err(|error| self.failed(error));
        };
        let file = Arc::clone(file);
        let synced = off_thread(move || file.sync_all()).await?;
        synced.map_err(Failure::local("cannot write", &self.path))
    }

    fn finish(self) -> Result<(), Failure> {
        let Self { path, out } = self;
        let Out::Beside { part, .. } = out else { return Ok(()) };
        let failed = || Failure::local("cannot write", &path);
        part.persist(&path).map_err(|error| failed()(error.error))?;
        let directory = File::open(parent(&path)).map_err(failed())?;
        directory.sync_all().map_err(failed())
    }
}

fn parent(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or_else(|| Path::new("."))
}
