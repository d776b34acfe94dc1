//! A running SMB server on loopback with one share, ours or Samba's, and how to reach it.
//!
//! Every interop run takes either, so that a failure can be told from a fault of the test itself.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::failure::Failure;
use crate::landfast::Landfast;
use crate::samba::Samba;

/// Whose server an interop run talks to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum Against {
    /// The release build of this tree.
    #[default]
    Landfast,
    /// Samba's smbd: shows that the test itself is right.
    Smbd,
}

/// How a client reaches the share.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// Where SMB over TCP is served.
    pub(crate) smb: SocketAddr,
    /// Where SMB Direct and push are served, if they are.
    pub(crate) rdma: Option<SocketAddr>,
    /// The directory behind the share.
    pub(crate) directory: PathBuf,
}

impl Address {
    /// The URL of `path` in the share, password included: for our own client on loopback only.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("smb://{USER}:{PASSWORD}@{}/{SHARE}/{path}", self.smb)
    }

    /// The share as smbclient names it; the port is given apart.
    pub(crate) fn unc(&self) -> String {
        format!("//{}/{SHARE}", self.smb.ip())
    }

    /// Writes the file in which smbclient reads user and password.
    pub(crate) fn write_credentials(&self, dir: &Path) -> Result<PathBuf, Failure> {
        let path = dir.join("credentials");
        let text = format!("username = {USER}\npassword = {PASSWORD}\n");
        fs::write(&path, text).map_err(Failure::io("writing", &path))?;
        Ok(path)
    }
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub(crate) enum Peer {
    /// Ours.
    Landfast(Landfast),
    /// Samba's.
    Smbd(Samba),
}

impl Peer {
    /// Serves `directory` and waits until the server answers.
    pub(crate) fn start(against: Against, directory: &Path) -> Result<Self, Failure> {
        Ok(match against {
            Against::Landfast => Self::Landfast(Landfast::start(directory, &[])?),
            Against::Smbd => Self::Smbd(Samba::start(directory)?),
        })
    }

    /// The same, which guests may read as share [`GUESTS`]. It does not insist on signing: clients that
    /// keep to the specification would not be its guests.
    pub(crate) fn start_for_guests(against: Against, directory: &Path) -> Result<Self, Failure> {
        let Against::Landfast = against else { return Self::start(against, directory) };
        let guests = for_guests(directory);
        let mut extra = vec!["--signing", "when-asked"];
        extra.extend(guests.iter().map(String::as_str));
        Ok(Self::Landfast(Landfast::start(directory, &extra)?))
    }

    /// How to reach it.
    pub(crate) fn address(&self) -> &Address {
        match self {
            Self::Landfast(server) => &server.address,
            Self::Smbd(server) => &server.address,
        }
    }

    /// Fails if the server has gone, naming its log: a client that was merely refused is no proof
    /// that the server lives.
    pub(crate) fn still_runs(&mut self) -> Result<(), Failure> {
        let (running, log) = match self {
            Self::Landfast(server) => (&mut server.running, &server.log),
            Self::Smbd(server) => (&mut server.running, &server.log),
        };
        let Some(status) = running.ended() else { return Ok(()) };
        Err(Failure::new(format!("the server ended by itself with {status}"))
            .remedy(format!("read {}", log.display())))
    }
}

/// What has our server serve a directory to guests too, who may read it, as share [`GUESTS`].
pub(crate) fn for_guests(directory: &Path) -> [String; 4] {
    let share = format!("{GUESTS}={}", directory.display());
    ["--share".to_owned(), share, "--guests".to_owned(), format!("{GUESTS}=read")]
}

/// A loopback port nobody listens on at this moment. It is none that the system draws for connections,
/// and none that this process was given before: whoever asked may take some seconds to listen there,
/// and take it again later.
pub(crate) fn free_port() -> Result<u16, Failure> {
    static DRAWN: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(PORTS_OF_A_PROCESS);
    for _ in PORTS {
        let drawn = first.wrapping_add(DRAWN.fetch_add(1, Ordering::Relaxed)) % PORTS_LEN;
        let port = PORTS.start + u16::try_from(drawn).expect("below PORTS_LEN");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Failure::new(format!("no port of {PORTS:?} is free on loopback")))
}

/// Waits until something accepts connections on `address`; `alive` may end the wait early.
pub(crate) fn wait_for_port(
    address: SocketAddr,
    mut alive: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let deadline = Instant::now() + START_LIMIT;
    while TcpStream::connect_timeout(&address, START_LIMIT).is_err() {
        alive()?;
        if Instant::now() > deadline {
            let seconds = START_LIMIT.as_secs();
            return Err(Failure::new(format!("nothing listens on {address} after {seconds} s")));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The account of every run: these servers listen on loopback for the length of a test.
pub(crate) const USER: &str = "interop";
/// Its password.
pub(crate) const PASSWORD: &str = "Correct-Horse-7";
/// Another account, where a run asks for one.
pub(crate) const OTHER_USER: &str = "other";
/// Its password.
pub(crate) const OTHER_PASSWORD: &str = "Battery-Staple-8";
/// The share of every run.
pub(crate) const SHARE: &str = "share";
/// The share that anybody may read, where there is one.
pub(crate) const GUESTS: &str = "guests";
/// A share that requires encryption, where a run asks for one.
pub(crate) const SEALED: &str = "sealed";
/// How long a server may take until it answers.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(30);
/// Below those that Linux draws by itself (net.ipv4.ip_local_port_range begins at 32,768).
const PORTS: Range<u16> = 10_000..32_000;
const PORTS_LEN: u32 = 22_000;
/// How far apart processes begin that were started one after the other; prime to [`PORTS_LEN`].
const PORTS_OF_A_PROCESS: u32 = 257;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_out_twice_nor_one_that_connections_are_given() {
        assert_eq!(usize::try_from(PORTS_LEN), Ok(PORTS.len()));
        let ports: Vec<_> = (0..50).map(|_| free_port().unwrap()).collect();
        let mut unique = ports.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), ports.len());
        assert!(ports.iter().all(|port| PORTS.contains(port)));
    }

    #[test]
    fn a_port_where_somebody_listens_is_passed_over() {
        let next = free_port().unwrap() + 1;
        // Or somebody else does already.
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, next));
        assert_ne!(free_port().unwrap(), next);
    }
}
