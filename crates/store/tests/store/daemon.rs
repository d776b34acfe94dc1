//! A daemon as a process: this test program, started once more.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use basics::Environment;
use rdma::PollPolicy;
use store::meta::Meta;
use store::meta::record::Class;
use store::{Allocation, Rights, ServerOptions, Store, StoreKey, StoreOptions, StoreServer};

/// Metadata, daemons and their directories; everything ends with the value.
pub(crate) struct Cluster {
    directory: tempfile::TempDir,
    daemons: Vec<Option<Daemon>>,
    /// Metadata elsewhere than in the directory.
    place: Option<String>,
    /// Daemons collect clients and fill copies.
    keeps: bool,
}

pub(crate) struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Cluster {
    /// Starts `count` daemons.
    pub(crate) fn start(count: usize) -> Self {
        Self::start_at(count, None, false)
    }

    /// Starts `count` daemons with their metadata at `place`.
    pub(crate) fn start_at(count: usize, place: Option<String>, keeps: bool) -> Self {
        // Of memory, so that tests cost no disk time; each daemon's pieces are files that survive it.
        let shm = Path::new("/dev/shm");
        let directory = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
        let mut cluster = Self { directory: directory.unwrap(), daemons: Vec::new(), place, keeps };
        for index in 0..count {
            cluster.daemons.push(None);
            cluster.restart(index);
        }
        cluster
    }

    pub(crate) fn name(index: usize) -> String {
        format!("s{index}")
    }

    /// Where everything is.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Where a daemon's pieces are.
    pub(crate) fn directory_of(&self, index: usize) -> PathBuf {
        self.directory.path().join(Self::name(index))
    }

    /// Starts a daemon, anew or for the first time.
    pub(crate) fn restart(&mut self, index: usize) {
        let directory = self.directory_of(index);
        self.daemons[index] = Some(self.process(&[
            (DIRECTORY, directory.to_str().unwrap()),
            (NAME, &Self::name(index)),
            (KEEPS, if self.keeps { "yes" } else { "" }),
        ]));
    }

    /// A client as a process, which makes a region that goes with it and writes to another one; it ends when it is killed.
    pub(crate) fn client(&self, region: &str) -> Daemon {
        self.process(&[(CLIENT, region)])
    }

    fn process(&self, variables: &[(&str, &str)]) -> Daemon {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "daemon::a_daemon_serves_until_its_input_ends", "--nocapture"])
            .env(META, self.place())
            .env(KEY, self.key_path())
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_ready = lines.by_ref().any(|line| line.unwrap().contains(READY));
        assert!(is_ready, "the process is ready");
        // What else it says is read, so that it is not stopped by a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Daemon(child)
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
        // A signal stops the threads one after the other: none serves anybody once all of them stand still.
        while pauses && !is_stopped(&pid) {
            std::thread::yield_now();
        }
    }

    fn place(&self) -> String {
        let directory = self.directory.path().join("meta");
        self.place.clone().unwrap_or_else(|| directory.to_str().unwrap().to_owned())
    }

    fn key_path(&self) -> PathBuf {
        self.directory.path().join("key")
    }

    pub(crate) fn meta(&self) -> Arc<dyn Meta> {
        store::meta::open(&self.place()).unwrap()
    }

    pub(crate) fn key(&self) -> StoreKey {
        StoreKey::read_or_make(&self.key_path(), &Environment::host()).unwrap()
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

/// Under the test runner there is nothing to do; started by a [`Cluster`] it is a daemon or a client.
#[test]
fn a_daemon_serves_until_its_input_ends() {
    let Ok(place) = std::env::var(META) else { return };
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let meta = store::meta::open(&place).unwrap();
    let key = StoreKey::read_or_make(variable(KEY).as_ref(), &Environment::host()).unwrap();
    if !variable(CLIENT).is_empty() {
        return be_a_client(meta, key, &variable(CLIENT));
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let options = ServerOptions {
        capacity: Some(256 << 20),
        polling: PollPolicy::Block,
        emulate_persistence: true,
        keeps: !variable(KEEPS).is_empty(),
        lease: Duration::from_millis(500),
        settle: Duration::from_millis(700),
        ..ServerOptions::new(&variable(NAME), variable(DIRECTORY).into(), meta, key)
    };
    let server = StoreServer::start(options, runtime.handle()).unwrap();
    println!("{READY} {}", server.control_address());
    // The test that started this process has ended when its end of the pipe is closed.
    let _ = std::io::stdin().lines().count();
    drop(server);
}

fn be_a_client(meta: Arc<dyn Meta>, key: StoreKey, name: &str) {
    let mut options = StoreOptions::new(meta, Some(key));
    options.lease = Duration::from_millis(500);
    let store = Store::open(options).unwrap();
    let own = Allocation { ephemeral: true, ..Allocation::new(8192, Class::Volatile) };
    store.create("own", &own).unwrap();
    let region = store.map(name, Rights::READ | Rights::WRITE).unwrap();
    region.write(0, &[1; 8]).unwrap();
    println!("{READY} {}", store.client());
    let _ = std::io::stdin().lines().count();
}

/// Whether all threads of a process stand still.
fn is_stopped(pid: &str) -> bool {
    let is_stopped = |task: &Path| {
        let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    };
    let mut tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    tasks.all(|task| is_stopped(&task.path()))
}

const META: &str = "STORE_TEST_META";
const DIRECTORY: &str = "STORE_TEST_DIRECTORY";
const NAME: &str = "STORE_TEST_NAME";
const KEEPS: &str = "STORE_TEST_KEEPS";
const KEY: &str = "STORE_TEST_KEY";
const CLIENT: &str = "STORE_TEST_CLIENT";
const READY: &str = "store process ready";
