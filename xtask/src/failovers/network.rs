//! The network between the members: as root a network namespace for each, joined by a bridge in one more; else loopback.
//!
//! ```text
//!   namespace of member 0             namespace of the bridge              namespace of member 1
//!     eth0 10.77.0.1  ------------  port0 --- bridge --- port1  ------------  eth0 10.77.0.2
//!   unplug: port0 down            silence: a neighbour's address that nobody has, so one way only
//! ```
//!
//! The namespaces have no names: each belongs to a process that sleeps in it and ends with this one. However a run ends,
//! nothing of them is left.

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::failure::Failure;
use crate::peer::free_port;
use crate::process::{Running, Step};
use crate::workspace;

/// See the module.
#[derive(Debug)]
pub(super) struct Network {
    ports: Vec<u16>,
    namespaces: Option<Namespaces>,
    /// What cannot be done here, and why.
    pub(super) lacking: Vec<String>,
}

#[derive(Debug)]
struct Namespaces {
    bridge: Namespace,
    members: Vec<Namespace>,
    can_delay: bool,
}

impl Network {
    /// A network of so many members; `directory` gets the output of its processes.
    pub(super) fn new(members: usize, directory: &Path) -> Result<Self, Failure> {
        let mut network = Self { ports: Vec::new(), namespaces: None, lacking: Vec::new() };
        let why = if workspace::is_root() {
            match Namespaces::new(members, directory) {
                Ok(namespaces) => {
                    if !namespaces.can_delay {
                        let why = "delays between members: this kernel has no netem";
                        network.lacking.push(why.to_owned());
                    }
                    network.namespaces = Some(namespaces);
                    network.ports = vec![PORT; members];
                    return Ok(network);
                }
                Err(failure) => failure.to_string(),
            }
        } else {
            "this is not root".to_owned()
        };
        network.lacking.push(format!("cuts between members: no network namespaces: {why}"));
        network.ports = (0..members).map(|_| free_port()).collect::<Result<_, _>>()?;
        Ok(network)
    }

    /// Where the others reach a member.
    pub(super) fn address(&self, member: usize) -> String {
        let port = self.ports[member];
        match &self.namespaces {
            Some(_) => format!("{}:{port}", ip(member)),
            None => format!("127.0.0.1:{port}"),
        }
    }

    /// A program that runs where a member is.
    pub(super) fn step(&self, member: usize, program: &Path) -> Step {
        match &self.namespaces {
            Some(namespaces) => namespaces.members[member].step(program),
            None => Step::new(program),
        }
    }

    /// An address that all members reach, where nobody of them is.
    pub(super) fn common_address(&self) -> String {
        if self.namespaces.is_some() { BRIDGE.to_owned() } else { "127.0.0.1".to_owned() }
    }

    /// A program that runs there.
    pub(super) fn common_step(&self, program: &Path) -> Step {
        match &self.namespaces {
            Some(namespaces) => namespaces.bridge.step(program),
            None => Step::new(program),
        }
    }

    /// Whether members can be cut off.
    pub(super) const fn can_cut(&self) -> bool {
        self.namespaces.is_some()
    }

    /// Whether what they send can be delayed.
    pub(super) fn can_delay(&self) -> bool {
        self.namespaces.as_ref().is_some_and(|it| it.can_delay)
    }

    /// Nothing reaches the member, and nothing leaves it.
    pub(super) fn unplug(&self, member: usize) -> Result<(), Failure> {
        self.bridge(&["link", "set", &port(member), "down"])
    }

    /// The end of [`Self::unplug`].
    pub(super) fn plug(&self, member: usize) -> Result<(), Failure> {
        self.bridge(&["link", "set", &port(member), "up"])
    }

    /// What one member sends to another is lost.
    pub(super) fn silence(&self, from: usize, to: usize) -> Result<(), Failure> {
        self.neighbour(from, to, NOBODY)
    }

    /// The end of [`Self::silence`].
    pub(super) fn hear(&self, from: usize, to: usize) -> Result<(), Failure> {
        self.neighbour(from, to, &hardware(to))
    }

    /// What a member sends takes so many milliseconds more; none for 0.
    pub(super) fn delay(&self, member: usize, ms: u32) -> Result<(), Failure> {
        let Some(namespaces) = &self.namespaces else { return Ok(()) };
        let time = format!("{ms}ms");
        let words: &[&str] = match ms {
            0 => &["qdisc", "del", "dev", "eth0", "root"],
            _ => &["qdisc", "replace", "dev", "eth0", "root", "netem", "delay", &time],
        };
        namespaces.members[member].step(Path::new("tc")).args(words).quiet().output().map(drop)
    }

    fn bridge(&self, words: &[&str]) -> Result<(), Failure> {
        self.namespaces.as_ref().map_or(Ok(()), |namespaces| namespaces.bridge.ip(words))
    }

    fn neighbour(&self, from: usize, to: usize, hardware: &str) -> Result<(), Failure> {
        let Some(namespaces) = &self.namespaces else { return Ok(()) };
        let to = ip(to);
        let words =
            ["neigh", "replace", &to, "lladdr", hardware, "nud", "permanent", "dev", "eth0"];
        namespaces.members[from].ip(&words)
    }
}

impl Namespaces {
    fn new(members: usize, directory: &Path) -> Result<Self, Failure> {
        let bridge = Namespace::new(&directory.join("bridge.log"))?;
        bridge.ip(&["link", "add", "bridge", "type", "bridge"])?;
        bridge.ip(&["link", "set", "bridge", "up"])?;
        bridge.ip(&["link", "set", "lo", "up"])?;
        bridge.ip(&["address", "add", &format!("{BRIDGE}/24"), "dev", "bridge"])?;
        let mut all = Vec::new();
        for member in 0..members {
            let namespace = Namespace::new(&directory.join(format!("network-{member}.log")))?;
            let (port, pid) = (port(member), namespace.pid());
            let (hardware, address) = (hardware(member), format!("{}/24", ip(member)));
            let peer = ["peer", "name", "eth0", "address", &hardware, "netns", &pid];
            let mut pair = vec!["link", "add", &port, "type", "veth"];
            pair.extend(peer);
            bridge.ip(&pair)?;
            bridge.ip(&["link", "set", &port, "master", "bridge", "up"])?;
            namespace.ip(&["link", "set", "lo", "up"])?;
            namespace.ip(&["address", "add", &address, "dev", "eth0"])?;
            namespace.ip(&["link", "set", "eth0", "up"])?;
            all.push(namespace);
        }
        let probe = ["qdisc", "replace", "dev", "eth0", "root", "netem", "delay", "1ms"];
        let probed = all[0].step(Path::new("tc")).args(probe).quiet().finish()?;
        let network = Network {
            ports: Vec::new(),
            namespaces: Some(Self { bridge, members: all, can_delay: probed.status.success() }),
            lacking: Vec::new(),
        };
        if network.can_delay() {
            network.delay(0, 0)?;
        }
        // An address that is asked for would be asked for again while a member hears nothing.
        for (from, to) in (0..members).flat_map(|from| (0..members).map(move |to| (from, to))) {
            if from != to {
                network.hear(from, to)?;
            }
        }
        network.namespaces.ok_or_else(|| Failure::new("no namespaces"))
    }
}

/// A process that sleeps in a network namespace of its own.
#[derive(Debug)]
struct Namespace(Running);

impl Namespace {
    fn new(log: &Path) -> Result<Self, Failure> {
        let step = Step::new("unshare").args(["--net", "--", "sleep", "infinity"]).quiet();
        let running = step.serve(log, false)?;
        let ours = std::fs::read_link("/proc/self/ns/net").map_err(Failure::io("reading", log))?;
        let path = format!("/proc/{}/ns/net", running.id());
        for _ in 0..START_TRIES {
            if std::fs::read_link(&path).is_ok_and(|theirs| theirs != ours) {
                return Ok(Self(running));
            }
            thread::sleep(Duration::from_millis(2));
        }
        let said = std::fs::read_to_string(log).unwrap_or_default();
        Err(Failure::new(format!("`unshare --net` makes no namespace: {}", said.trim())))
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn step(&self, program: &Path) -> Step {
        let place = format!("--net=/proc/{}/ns/net", self.0.id());
        Step::new("nsenter").arg(place).arg("--").arg(program)
    }

    fn ip(&self, words: &[&str]) -> Result<(), Failure> {
        self.step(Path::new("ip")).args(words).quiet().output().map(drop)
    }
}

fn ip(member: usize) -> String {
    format!("10.77.0.{}", member + 1)
}

fn hardware(member: usize) -> String {
    format!("02:4c:46:00:00:{:02x}", member + 1)
}

fn port(member: usize) -> String {
    format!("port{member}")
}

const PORT: u16 = 7445;
const BRIDGE: &str = "10.77.0.254";
const NOBODY: &str = "02:4c:46:00:00:ff";
/// Looks for the namespace, 2 ms apart.
const START_TRIES: u32 = 1000;
