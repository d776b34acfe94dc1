//! etcd as processes.

use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use etcd_client::{Client, ConnectOptions};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Processes of etcd that form one cluster. They end with this.
pub(crate) struct Servers {
    directory: TempDir,
    nodes: Vec<Node>,
    scheme: &'static str,
    more: Vec<String>,
}

struct Node {
    client: u16,
    peer: u16,
    process: Option<Child>,
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Servers {
    /// So many, which have a leader.
    pub(crate) fn start(count: usize) -> Self {
        Self::start_with(count, "http", &[])
    }

    /// With more options.
    pub(crate) fn start_with(count: usize, scheme: &'static str, more: &[String]) -> Self {
        for _ in 0..STARTS {
            let directory = tempfile::tempdir().unwrap();
            // Held until all are known, so that all differ.
            let listeners: Vec<_> =
                (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
            let ports: Vec<u16> =
                listeners.iter().map(|it| it.local_addr().unwrap().port()).collect();
            drop(listeners);
            let nodes = ports.chunks(2).map(|ports| Node {
                client: ports[0],
                peer: ports[1],
                process: None,
            });
            let mut servers =
                Self { directory, nodes: nodes.collect(), scheme, more: more.to_vec() };
            for index in 0..count {
                servers.restart(index);
            }
            if servers.is_up() {
                return servers;
            }
        }
        panic!("etcd does not start");
    }

    pub(crate) fn endpoint(&self, index: usize) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.nodes[index].client)
    }

    pub(crate) fn endpoints(&self) -> Vec<String> {
        (0..self.nodes.len()).map(|index| self.endpoint(index)).collect()
    }

    pub(crate) fn port(&self, index: usize) -> u16 {
        self.nodes[index].client
    }

    fn log(&self, index: usize) -> PathBuf {
        self.directory.path().join(format!("log{index}"))
    }

    pub(crate) fn restart(&mut self, index: usize) {
        let (client, peer) = (self.endpoint(index), self.nodes[index].peer);
        let cluster: Vec<_> = self
            .nodes
            .iter()
            .enumerate()
            .map(|(index, node)| format!("n{index}=http://127.0.0.1:{}", node.peer))
            .collect();
        let log = File::options().create(true).append(true).open(self.log(index)).unwrap();
        let process = Command::new("etcd")
            .args(["--name", &format!("n{index}")])
            .arg("--data-dir")
            .arg(self.directory.path().join(format!("data{index}")))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &format!("http://127.0.0.1:{peer}")])
            .args(["--initial-advertise-peer-urls", &format!("http://127.0.0.1:{peer}")])
            .args(["--initial-cluster", &cluster.join(","), "--initial-cluster-state", "new"])
            .args(["--heartbeat-interval", "100", "--election-timeout", "600"])
            .args(&self.more)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        let process = process.unwrap_or_else(|error| {
            panic!(
                "etcd cannot be started: {error}. Install Debian's etcd-server: cargo xtask deps"
            )
        });
        self.nodes[index].process = Some(process);
    }

    // Each says that it is healthy, over TLS or not: what is asked of it is only that it listens and has a leader.
    fn is_up(&mut self) -> bool {
        let began = Instant::now();
        while began.elapsed() < STARTS_WITHIN {
            for node in &mut self.nodes {
                if node.process.as_mut().unwrap().try_wait().unwrap().is_some() {
                    return false;
                }
            }
            let serves = |index| {
                let log = std::fs::read_to_string(self.log(index)).unwrap_or_default();
                log.contains("ready to serve client requests")
            };
            if (0..self.nodes.len()).all(serves) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    fn pid(&self, index: usize) -> Pid {
        Pid::from_child(self.nodes[index].process.as_ref().unwrap())
    }

    pub(crate) fn kill(&mut self, index: usize) {
        let mut process = self.nodes[index].process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Holds a process, as a machine does that hangs.
    pub(crate) fn stop(&self, index: usize) {
        kill_process(self.pid(index), Signal::STOP).unwrap();
    }

    pub(crate) fn go_on(&self, index: usize) {
        kill_process(self.pid(index), Signal::CONT).unwrap();
    }

    /// Which one leads.
    pub(crate) fn leader(&self) -> usize {
        let began = Instant::now();
        while began.elapsed() < STARTS_WITHIN {
            for index in (0..self.nodes.len()).filter(|index| self.nodes[*index].process.is_some())
            {
                let mut raw = Raw::new(vec![self.endpoint(index)], None);
                let status = raw.call(async |client| client.status().await);
                if let Ok(status) = status
                    && status.leader() != 0
                    && status.header().is_some_and(|it| it.member_id() == status.leader())
                {
                    return index;
                }
            }
        }
        panic!("etcd has no leader");
    }

    pub(crate) fn raw(&self) -> Raw {
        Raw::new(self.endpoints(), None)
    }
}

/// A client of etcd beside the witness.
pub(crate) struct Raw {
    runtime: tokio::runtime::Runtime,
    client: Option<Client>,
    endpoints: Vec<String>,
    options: ConnectOptions,
}

impl Raw {
    pub(crate) fn new(endpoints: Vec<String>, options: Option<ConnectOptions>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let limit = Duration::from_secs(10);
        let options = options.unwrap_or_default().with_timeout(limit).with_connect_timeout(limit);
        Self { runtime, client: None, endpoints, options }
    }

    pub(crate) fn call<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut Client) -> Result<T, etcd_client::Error>,
    ) -> Result<T, etcd_client::Error> {
        let (client, endpoints, options) = (&mut self.client, &self.endpoints, &self.options);
        self.runtime.block_on(async {
            if client.is_none() {
                *client = Some(Client::connect(endpoints, Some(options.clone())).await?);
            }
            call(client.as_mut().unwrap()).await
        })
    }

    pub(crate) fn put(&mut self, key: &str, value: impl Into<Vec<u8>>) {
        self.call(async |client| client.put(key, value, None).await).unwrap();
    }

    pub(crate) fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        let found = self.call(async |client| client.get(key, None).await).unwrap();
        found.kvs().first().map(|kv| kv.value().to_owned())
    }
}

/// Ports that others have taken meanwhile are a reason to start again.
const STARTS: usize = 5;
const STARTS_WITHIN: Duration = Duration::from_secs(60);
