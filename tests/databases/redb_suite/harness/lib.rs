//! Our storage for redb's own tests, by the name in `LANDFAST_REDB_STORAGE`:
//!
//! ```text
//!   file           redb's own backend, the control
//!   logged         a logged file: the test's file is the base, its log a file in memory beside it
//!   logged-remote  the same with the log at a server of this process, by push mode
//!   memory         a mapped file of emulated persistence
//!   region         a region of a server of this process, by push mode
//! ```
//! The files of the storage lie in `LANDFAST_REDB_DIR`, named after the test's file: whoever opens that again, under
//! whatever name, in whatever process, finds them. A database in memory begins with the bytes that the test's file has.
//! Every write goes there too, and nothing is read from there: tests that look at the bytes or the length of a file, or
//! damage it while nobody has the database open, do what they would do. A logged file has its bytes in its log until it
//! is closed; [`copy`] takes that along. After a crash (a test drops the storage) the storage is as the crash left it.
//!
//! A storage has one owner. All that have a file open in this process share one, as a program of several handles has to.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::UNIX_EPOCH;

use client::{ConnectOptions, RegionSettings, SmbUrl, blocking};
use landfast_redb_hook::Storage;
use logged::{LocalBase, Logged, Members, Place};
use pmem::LocalMemory;
use redb::StorageBackend;
use redb_backend::{LoggedBackend, MemoryBackend};
use server::{Running, Server, ServerConfig, ShareConfig, Users};
use smb::push::{Durability, PushRequest, Rights};

/// What [`landfast_redb_hook::open`] calls.
#[unsafe(no_mangle)]
fn landfast_redb_open(file: &File) -> io::Result<Option<Box<dyn Storage>>> {
    let kind = kind();
    if kind == "file" {
        return Ok(None);
    }
    let place = Files { directory: directory()?, name: name_of(file)? };
    let mut open = open_now();
    let there = open.get(&place.name).and_then(|(storage, _)| storage.upgrade());
    let storage = match there {
        Some(storage) => storage,
        None => {
            let storage: Arc<dyn Storage> = place.open(&kind, file)?.into();
            open.insert(place.name.clone(), (Arc::downgrade(&storage), 0));
            storage
        }
    };
    open.entry(place.name.clone()).and_modify(|(_, handles)| *handles += 1);
    Ok(Some(Box::new(Handle { storage, name: place.name, is_closed: AtomicBool::new(false) })))
}

/// Copies a test's file, also while its database is open: for a logged file with what is in the log alone.
///
/// # Errors
///
/// What the operating system says.
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    let copied = std::fs::copy(&from, &to)?;
    if kind().starts_with("logged") {
        let files = |path: &Path| {
            Ok::<_, io::Error>(Files { directory: directory()?, name: name_of(&File::open(path)?)? })
        };
        let (from, to) = (files(from.as_ref())?, files(to.as_ref())?);
        for end in ["side", "log"].into_iter().filter(|end| from.path(end).exists()) {
            std::fs::copy(from.path(end), to.path(end))?;
        }
    }
    Ok(copied)
}

fn kind() -> String {
    std::env::var("LANDFAST_REDB_STORAGE").unwrap_or_else(|_| "file".to_owned())
}

fn directory() -> io::Result<PathBuf> {
    let directory = std::env::var_os("LANDFAST_REDB_DIR").map(PathBuf::from);
    directory.ok_or_else(|| io::Error::other("no LANDFAST_REDB_DIR"))
}

/// What is open in this process, by name, with the number of handles that are not closed.
type Open = HashMap<String, (Weak<dyn Storage>, usize)>;

fn open_now() -> MutexGuard<'static, Open> {
    static OPEN: OnceLock<Mutex<Open>> = OnceLock::new();
    OPEN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// One of those that have a storage open; the last that closes it closes the storage.
#[derive(Debug)]
struct Handle {
    storage: Arc<dyn Storage>,
    name: String,
    is_closed: AtomicBool,
}

impl Handle {
    /// Whether this was the last handle.
    fn leave(&self, open: &mut Open) -> bool {
        if self.is_closed.swap(true, Ordering::Relaxed) {
            return false;
        }
        let handles = open.get_mut(&self.name).map(|(_, handles)| {
            *handles -= 1;
            *handles
        });
        handles == Some(0)
    }
}

impl Storage for Handle {
    fn len(&self) -> io::Result<u64> {
        self.storage.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.storage.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.storage.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.storage.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.storage.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        let mut open = open_now();
        if !self.leave(&mut open) {
            return Ok(());
        }
        open.remove(&self.name);
        self.storage.close()
    }
}

/// Without a close: what the storage has is what a crash leaves.
impl Drop for Handle {
    fn drop(&mut self) {
        let mut open = open_now();
        if self.leave(&mut open) {
            open.remove(&self.name);
        }
    }
}

/// Where the storage of one file of a test is.
struct Files {
    directory: PathBuf,
    name: String,
}

impl Files {
    fn path(&self, end: &str) -> PathBuf {
        self.directory.join(format!("{}.{end}", self.name))
    }

    fn url(&self, end: &str) -> io::Result<SmbUrl> {
        let url = format!("{}/{}.{end}", serve(&self.directory)?, self.name);
        url.parse().map_err(io::Error::other)
    }

    fn open(&self, kind: &str, file: &File) -> io::Result<Box<dyn Storage>> {
        match kind {
            "logged" => self.logged(file, Place::Local(self.path("log"))),
            "logged-remote" => self.logged(file, Place::Share(self.url("log")?)),
            "memory" => self.in_memory(file, |place| {
                let path = place.path("memory");
                let memory = File::options().read(true).write(true).open(path)?;
                let emulated = pmem::OpenOptions { emulate_persistence: true };
                let medium = pmem::map_file(&memory, MEMORY, emulated).map_err(io::Error::other)?;
                LocalMemory::new(medium, 0..MEMORY).map_err(io::Error::other)
            }),
            "region" => self.in_memory(file, |place| {
                let url = place.url("memory")?;
                let client = blocking::Client::connect(&url, &ConnectOptions::default());
                let push = PushRequest {
                    rights: Rights::READ | Rights::WRITE | Rights::FLUSH | Rights::ATOMIC_WRITE,
                    durability: Durability::ANY,
                    accept_emulated: true,
                    regions_max: 1,
                };
                let options = client::OpenOptions::read_write().with_push(push);
                let client = client.map_err(io::Error::other)?;
                let region = client.map(&url.path, &options, 0..MEMORY, RegionSettings::default());
                region.map_err(io::Error::other)
            }),
            other => Err(io::Error::other(format!("LANDFAST_REDB_STORAGE={other} is no storage"))),
        }
    }

    fn logged(&self, file: &File, log: Place) -> io::Result<Box<dyn Storage>> {
        let side = LocalBase::open(&self.path("side"))?;
        let members = Members {
            places: vec![log],
            len: LOG,
            emulate_persistence: true,
            given_up: logged::MemberSet::default(),
        };
        let base = Arc::new(LocalBase(reopened(file)?));
        let opened = Logged::open(base, Arc::new(side), &members, &logged::Options::default());
        Ok(Box::new(Ours { backend: LoggedBackend::new(opened.map_err(io::Error::other)?), shown: None }))
    }

    fn in_memory<M: pmem::Memory + Send + 'static>(
        &self,
        file: &File,
        map: impl FnOnce(&Self) -> io::Result<M>,
    ) -> io::Result<Box<dyn Storage>>
    where
        M::Error: std::error::Error + Send + Sync + 'static,
    {
        let path = self.path("memory");
        if !path.exists() {
            File::create(&path)?.set_len(MEMORY)?;
        }
        let backend = MemoryBackend::open(map(self)?)?;
        let file = reopened(file)?;
        // They differ where nothing is left of a crash, or where the test has changed the file since.
        let (len, left) = (file.metadata()?.len(), backend.len()?);
        let (mut theirs, mut ours) = (vec![0; len as usize], vec![0; left as usize]);
        file.read_exact_at(&mut theirs, 0)?;
        backend.read(0, &mut ours)?;
        if theirs != ours {
            backend.set_len(len)?;
            backend.write(0, &theirs)?;
        }
        Ok(Box::new(Ours { backend, shown: Some((file, path)) }))
    }
}

/// A storage of ours; one in memory also has the file that shows its bytes to the test, and where the memory is.
#[derive(Debug)]
struct Ours<B> {
    backend: B,
    shown: Option<(File, PathBuf)>,
}

impl<B: StorageBackend> Storage for Ours<B> {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.backend.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.backend.set_len(len)?;
        self.shown.as_ref().map_or(Ok(()), |(file, _)| file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.backend.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.backend.write(offset, data)?;
        self.shown.as_ref().map_or(Ok(()), |(file, _)| file.write_all_at(data, offset))
    }

    fn close(&self) -> io::Result<()> {
        if let Some((_, path)) = &self.shown {
            std::fs::remove_file(path)?;
        }
        self.backend.close()
    }
}

/// Another descriptor of the same file, for reading and writing, without the locks of the first.
fn reopened(file: &File) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    File::options().read(true).write(true).open(path)
}

/// What names a file as long as the machine runs: an inode's number comes again, but not at the same moment.
fn name_of(file: &File) -> io::Result<String> {
    let found = file.metadata()?;
    let made = found.created()?.duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
    Ok(format!("{:x}-{:x}-{:x}", found.dev(), found.ino(), made.as_nanos()))
}

/// The address of the share with the storage's files, at a server of this process.
fn serve(directory: &Path) -> io::Result<&'static str> {
    static SERVER: OnceLock<(tokio::runtime::Runtime, Running, String)> = OnceLock::new();
    let started = SERVER.get_or_init(|| {
        let runtime = tokio::runtime::Runtime::new().expect("threads for the server");
        let any = || "127.0.0.1:0".parse().expect("an address");
        let mut config = ServerConfig::new(any());
        config.rdma_listen = Some(any());
        let mut share = ShareConfig::new("s", directory);
        share.emulate_persistence = true;
        config.shares.push(share);
        config.users = Users::with_passwords([("u", "p")]);
        let running = runtime.block_on(Server::start(config)).expect("a server of this process");
        let url = format!("smb://u:p@127.0.0.1:{}/s", running.tcp_address().port());
        (runtime, running, url)
    });
    Ok(&started.2)
}

/// Bytes of a log: few, so that tests fill it and have their records destaged.
const LOG: u64 = 1 << 20;
/// Bytes of the memory of a database: all of them are reserved when it is opened.
const MEMORY: u64 = 128 << 20;
