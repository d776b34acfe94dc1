//! Three etcd processes where all members reach them.

use std::path::Path;
use std::thread;
use std::time::Duration;

use super::network::Network;
use crate::failure::Failure;
use crate::peer::free_port;
use crate::process::{Running, Step, tail};

/// A cluster of etcd.
#[derive(Debug)]
pub(super) struct Etcd {
    _running: Vec<Running>,
    endpoints: Vec<String>,
}

impl Etcd {
    /// Starts a cluster and waits until it answers.
    pub(super) fn start(network: &Network, directory: &Path) -> Result<Self, Failure> {
        let address = network.common_address();
        let mut ports = Vec::new();
        for _ in 0..COUNT {
            ports.push((free_port()?, free_port()?));
        }
        let cluster: Vec<String> = (0..)
            .zip(&ports)
            .map(|(number, (_, peers))| format!("etcd{number}=http://{address}:{peers}"))
            .collect();
        let cluster = cluster.join(",");
        let mut running = Vec::new();
        for (number, (clients, peers)) in ports.iter().enumerate() {
            let (clients, peers) =
                (format!("http://{address}:{clients}"), format!("http://{address}:{peers}"));
            let step = network.common_step(Path::new("etcd"));
            let step = step.args(["--name", &format!("etcd{number}"), "--data-dir"]);
            let step = step.arg(directory.join(format!("etcd{number}")));
            let step = step.args(["--listen-client-urls", &clients]);
            let step = step.args(["--advertise-client-urls", &clients]);
            let step = step.args(["--listen-peer-urls", &peers]);
            let step = step.args(["--initial-advertise-peer-urls", &peers]);
            let step = step.args(["--initial-cluster", &cluster, "--log-level", "warn"]);
            let step = step.args(["--heartbeat-interval", "100", "--election-timeout", "1000"]);
            running.push(step.quiet().serve(&directory.join(format!("etcd{number}.log")), false)?);
        }
        let endpoints: Vec<String> =
            ports.iter().map(|(clients, _)| format!("http://{address}:{clients}")).collect();
        let etcd = Self { _running: running, endpoints };
        etcd.answers(network)?;
        Ok(etcd)
    }

    /// A table for the file of a group.
    pub(super) fn table(&self) -> String {
        let endpoints: Vec<String> = self.endpoints.iter().map(|it| format!("{it:?}")).collect();
        format!(
            "[etcd]\nendpoints = [{}]\nlease_s = {LEASE_S}\nautomatic = true\npatience_ms = {PATIENCE_MS}\n",
            endpoints.join(", ")
        )
    }

    fn answers(&self, network: &Network) -> Result<(), Failure> {
        let mut said = String::new();
        for _ in 0..START_TRIES {
            let step: Step = network.common_step(Path::new("curl")).args(["-s", "-m", "1"]);
            let finished = step.arg(format!("{}/health", self.endpoints[0])).quiet().finish()?;
            if finished.stdout.contains("\"true\"") {
                return Ok(());
            }
            said = finished.stdout;
            thread::sleep(Duration::from_millis(50));
        }
        Err(Failure::new(format!("etcd does not answer{}", tail(&said)))
            .remedy("apt-get install etcd-server curl"))
    }
}

const COUNT: usize = 3;
const LEASE_S: u64 = 2;
const PATIENCE_MS: u64 = 500;
const START_TRIES: u32 = 200;
