//! A running SMB server on loopback with one share, ours or Samba's, and how to reach it.
//!
//! Every interop run takes either, so that a failure can be told from a fault of the test itself.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
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

/// A loopback port nobody listens on at this moment.
pub(crate) fn free_port() -> Result<u16, Failure> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Failure::new(format!("finding a free loopback port: {error}")))
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
/// A share that requires encryption, where a run asks for one.
pub(crate) const SEALED: &str = "sealed";
/// How long a server may take until it answers.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(30);
