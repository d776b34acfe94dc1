//! A daemon as a process: this test program, started once more.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use basics::Environment;
use rdma::PollPolicy;
use store::meta::Meta;
use store::{ServerOptions, Store, StoreKey, StoreOptions, StoreServer};

/// Metadata, daemons and their directories; everything ends with the value.
pub(crate) struct Cluster {
    directory: tempfile::TempDir,
    daemons: Vec<Option<Daemon>>,
}

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Cluster {
    /// Starts `count` daemons.
    pub(crate) fn start(count: usize) -> Self {
        // Of memory, so that tests cost no disk time; each daemon's pieces are files that survive it.
        let shm = Path::new("/dev/shm");
        let directory = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
        let mut cluster = Self { directory: directory.unwrap(), daemons: Vec::new() };
        for index in 0..count {
            cluster.daemons.push(None);
            cluster.restart(index);
        }
        cluster
    }

    pub(crate) fn name(index: usize) -> String {
        format!("s{index}")
    }

    /// Starts a daemon, anew or for the first time.
    pub(crate) fn restart(&mut self, index: usize) {
        let directory = self.directory.path().join(Self::name(index));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "daemon::a_daemon_serves_until_its_input_ends", "--nocapture"])
            .env(META, self.meta_path())
            .env(DIRECTORY, directory)
            .env(NAME, Self::name(index))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_ready = lines.by_ref().any(|line| line.unwrap().contains(READY));
        assert!(is_ready, "the daemon serves");
        // What else it says is read, so that it is not stopped by a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        self.daemons[index] = Some(Daemon(child));
    }

    /// kill -9.
    pub(crate) fn kill(&mut self, index: usize) {
        drop(self.daemons[index].take());
    }

    /// Stops a daemon in the middle of whatever it does, or lets it go on.
    pub(crate) fn pause(&self, index: usize, pauses: bool) {
        let signal = if pauses { "-STOP" } else { "-CONT" };
        let pid = self.daemons[index].as_ref().unwrap().0.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    fn meta_path(&self) -> PathBuf {
        self.directory.path().join("meta")
    }

    pub(crate) fn meta(&self) -> Arc<dyn Meta> {
        store::meta::open(self.meta_path().to_str().unwrap()).unwrap()
    }

    pub(crate) fn key(&self) -> StoreKey {
        key(&self.meta_path())
    }

    /// A client with the key.
    pub(crate) fn store(&self) -> Store {
        self.store_with(|_| {})
    }

    /// A client with the key and other options.
    pub(crate) fn store_with(&self, change: impl FnOnce(&mut StoreOptions)) -> Store {
        let mut options = StoreOptions::new(self.meta(), Some(self.key()));
        options.polling = PollPolicy::Block;
        change(&mut options);
        Store::open(options).unwrap()
    }

    /// A client without the key.
    pub(crate) fn stranger(&self) -> Store {
        self.store_with(|options| options.key = None)
    }
}

fn key(meta: &Path) -> StoreKey {
    std::fs::create_dir_all(meta).unwrap();
    StoreKey::read_or_make(&meta.join("key"), &Environment::host()).unwrap()
}

/// Under the test runner there is nothing to do; started by [`Cluster::restart`] it is a daemon.
#[test]
fn a_daemon_serves_until_its_input_ends() {
    let Ok(meta) = std::env::var(META) else { return };
    let meta_path = PathBuf::from(&meta);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let directory = PathBuf::from(std::env::var(DIRECTORY).unwrap());
    let name = std::env::var(NAME).unwrap();
    let meta = store::meta::open(&meta).unwrap();
    let options = ServerOptions {
        capacity: Some(256 << 20),
        polling: PollPolicy::Block,
        emulate_persistence: true,
        keeps: std::env::var(KEEPS).is_ok(),
        lease: Duration::from_millis(500),
        ..ServerOptions::new(&name, directory, meta, key(&meta_path))
    };
    let server = StoreServer::start(options, runtime.handle()).unwrap();
    println!("{READY} {}", server.control_address());
    // The test that started this process has ended when its end of the pipe is closed.
    let _ = std::io::stdin().lines().count();
    drop(server);
}

const META: &str = "STORE_TEST_META";
const DIRECTORY: &str = "STORE_TEST_DIRECTORY";
const NAME: &str = "STORE_TEST_NAME";
const KEEPS: &str = "STORE_TEST_KEEPS";
const READY: &str = "store daemon at";
