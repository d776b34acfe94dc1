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
//! whatever name, in whatever process, finds them. A database in memory begins with the bytes that the test's file has,
//! and goes back there when it is closed, so that tests that look at the bytes of a closed database, or damage them, do
//! what they would do. After a crash (a test forgets the database) the storage is as the crash left it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
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
    let kind = std::env::var("LANDFAST_REDB_STORAGE").unwrap_or_else(|_| "file".to_owned());
    let directory = std::env::var_os("LANDFAST_REDB_DIR").map(PathBuf::from);
    let directory = || directory.clone().ok_or_else(|| io::Error::other("no LANDFAST_REDB_DIR"));
    if kind == "file" {
        return Ok(None);
    }
    let place = Files { directory: directory()?, name: name_of(file)? };
    let is_read_only = rustix::fs::fcntl_getfl(file)?.bits() & 3 == 0;
    match kind.as_str() {
        "logged" | "logged-remote" => place.logged(file, is_read_only, kind == "logged-remote"),
        "memory" => place.in_memory(file, is_read_only, |place| {
            let path = place.path("memory");
            let memory = File::options().read(true).write(true).open(path)?;
            let emulated = pmem::OpenOptions { emulate_persistence: true };
            let medium = pmem::map_file(&memory, MEMORY, emulated).map_err(io::Error::other)?;
            LocalMemory::new(medium, 0..MEMORY).map_err(io::Error::other)
        }),
        "region" => place.in_memory(file, is_read_only, |place| {
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

    fn logged(
        &self,
        file: &File,
        is_read_only: bool,
        is_remote: bool,
    ) -> io::Result<Option<Box<dyn Storage>>> {
        let side = LocalBase::open(&self.path("side"))?;
        // A file that was closed is whole without its log, and any number of readers may have it.
        let mut state = [1; 4];
        let is_whole = logged::Base::read(&side, 12, &mut state)? < 4 || state == [0; 4];
        if is_read_only && is_whole {
            return Ok(None);
        }
        let log =
            if is_remote { Place::Share(self.url("log")?) } else { Place::Local(self.path("log")) };
        let members = Members {
            places: vec![log],
            len: LOG,
            emulate_persistence: true,
            given_up: logged::MemberSet::default(),
        };
        let base = Arc::new(LocalBase(reopened(file)?));
        let opened = Logged::open(base, Arc::new(side), &members, &logged::Options::default());
        let file = opened.map_err(io::Error::other)?;
        Ok(Some(Box::new(Ours { backend: LoggedBackend::new(file), back: None })))
    }

    fn in_memory<M: pmem::Memory + Send + 'static>(
        &self,
        file: &File,
        is_read_only: bool,
        map: impl FnOnce(&Self) -> io::Result<M>,
    ) -> io::Result<Option<Box<dyn Storage>>>
    where
        M::Error: std::error::Error + Send + Sync + 'static,
    {
        let path = self.path("memory");
        let is_left = path.exists();
        if is_read_only && !is_left {
            return Ok(None);
        }
        if !is_left {
            File::create(&path)?.set_len(MEMORY)?;
        }
        let backend = MemoryBackend::open(map(self)?)?;
        let file = reopened(file)?;
        if !is_left {
            copy(
                file.metadata()?.len(),
                |at, piece| file.read_exact_at(piece, at),
                |at, piece| {
                    backend.set_len(at + piece.len() as u64)?;
                    backend.write(at, piece)
                },
            )?;
        }
        Ok(Some(Box::new(Ours { backend, back: Some((file, path)) })))
    }
}

/// A storage of ours; one in memory also has the file to which a close takes it, and where the memory is.
#[derive(Debug)]
struct Ours<B> {
    backend: B,
    back: Option<(File, PathBuf)>,
}

impl<B: StorageBackend> Storage for Ours<B> {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.backend.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.backend.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.backend.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.backend.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        if let Some((file, path)) = &self.back {
            let len = self.backend.len()?;
            file.set_len(len)?;
            copy(
                len,
                |at, piece| self.backend.read(at, piece),
                |at, piece| file.write_all_at(piece, at),
            )?;
            std::fs::remove_file(path)?;
        }
        self.backend.close()
    }
}

fn copy(
    len: u64,
    read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
    write: impl Fn(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let (mut at, mut piece) = (0, vec![0; 1 << 20]);
    while at < len {
        let count = (len - at).min(piece.len() as u64) as usize;
        read(at, &mut piece[..count])?;
        write(at, &piece[..count])?;
        at += count as u64;
    }
    Ok(())
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
fn serve(directory: &std::path::Path) -> io::Result<&'static str> {
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
const MEMORY: u64 = 64 << 20;
