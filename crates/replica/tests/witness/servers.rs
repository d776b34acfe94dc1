//! etcd as processes, and etcdctl, which is not ours.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
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
                let status =
                    Raw::new(vec![self.endpoint(index)]).run(&["endpoint", "status", "-w", "json"]);
                let Ok(status) = status else { continue };
                let status: serde_json::Value = serde_json::from_str(&status).unwrap();
                let status = &status[0]["Status"];
                if status["leader"].as_u64() != Some(0)
                    && status["leader"] == status["header"]["member_id"]
                {
                    return index;
                }
            }
        }
        panic!("etcd has no leader");
    }

    pub(crate) fn raw(&self) -> Raw {
        Raw::new(self.endpoints())
    }
}

/// etcdctl.
pub(crate) struct Raw {
    endpoints: String,
    user: Option<String>,
}

impl Raw {
    pub(crate) fn new(endpoints: Vec<String>) -> Self {
        Self { endpoints: endpoints.join(","), user: None }
    }

    /// With a name and a password.
    pub(crate) fn by(self, user: &str) -> Self {
        Self { user: Some(user.to_owned()), ..self }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("etcdctl");
        command.args(["--endpoints", &self.endpoints, "--command-timeout", "10s"]);
        command.env("ETCDCTL_API", "3").args(arguments).stdout(Stdio::piped());
        if let Some(user) = &self.user {
            command.args(["--user", user]);
        }
        command
    }

    /// What it prints, or what is wrong.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.command(arguments).output().unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    pub(crate) fn put(&self, key: &str, value: impl AsRef<[u8]>) {
        // Nothing on its standard input is no value for it.
        if value.as_ref().is_empty() {
            self.run(&["put", key, ""]).unwrap();
            return;
        }
        let mut command = self.command(&["put", key]);
        let mut process = command.stdin(Stdio::piped()).spawn().unwrap();
        process.stdin.take().unwrap().write_all(value.as_ref()).unwrap();
        assert!(process.wait().unwrap().success());
    }

    /// The value of a key, and its revision.
    pub(crate) fn get(&self, key: &str) -> (Vec<u8>, i64) {
        let found = self.run(&["get", key, "-w", "json"]).unwrap();
        let found: serde_json::Value = serde_json::from_str(&found).unwrap();
        let pair = &found["kvs"][0];
        (decoded(&pair["value"]), pair["mod_revision"].as_i64().unwrap())
    }

    /// Each value that a key has had.
    pub(crate) fn history(&self, key: &str) -> Vec<Vec<u8>> {
        let (_, last) = self.get(key);
        let mut process =
            self.command(&["watch", key, "--rev", "1", "-w", "json"]).spawn().unwrap();
        let mut values = Vec::new();
        'lines: for line in BufReader::new(process.stdout.take().unwrap()).lines() {
            let line: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            for event in line["Events"].as_array().into_iter().flatten() {
                values.push(decoded(&event["kv"]["value"]));
                if event["kv"]["mod_revision"].as_i64() == Some(last) {
                    break 'lines;
                }
            }
        }
        process.kill().unwrap();
        process.wait().unwrap();
        values
    }
}

fn decoded(value: &serde_json::Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap_or_default()).unwrap()
}

/// Ports that others have taken meanwhile are a reason to start again.
const STARTS: usize = 5;
const STARTS_WITHIN: Duration = Duration::from_secs(60);
