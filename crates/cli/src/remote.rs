//! Opens a session for a URL of the command line.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::ops::Range;

use client::blocking::Client;
use client::{ConnectOptions, OpenOptions, Region, RegionSettings, SmbUrl};
use smb::push::{Durability, PushRequest, PushResponse, Rights};

use crate::failure::Failure;

/// Parses a URL; the password of the user whom it names may come from the environment instead.
pub(crate) fn url(text: &str) -> Result<SmbUrl, Failure> {
    let url: SmbUrl = text.parse().map_err(client::ClientError::from)?;
    Ok(url.with_password_of_environment())
}

/// Connects to the share of `url`. A URL without a user connects as a guest, who has no key to sign
/// with.
pub(crate) fn connect(url: &SmbUrl) -> Result<Client, Failure> {
    Client::connect(url, &ConnectOptions::for_user_of(url))
        .map_err(Failure::remote(CONNECTING, url))
}

/// [`connect`] on the caller's runtime, as a client that understands modes and owners.
pub(crate) async fn connect_async(url: &SmbUrl) -> Result<client::Client, Failure> {
    let options = ConnectOptions { posix: true, ..ConnectOptions::for_user_of(url) };
    client::Client::connect(url, &options).await.map_err(Failure::remote(CONNECTING, url))
}

/// Opens the file of `url` with a lease, and maps a range of it for reading, writing and commits.
pub(crate) fn map(
    url: &SmbUrl,
    range: Range<u64>,
    settings: RegionSettings,
) -> Result<Region, Failure> {
    let mapped = connect(url)?.map(&url.path, &pushed(), range, settings);
    mapped.map_err(Failure::remote("cannot map", url))
}

/// The address of the RDMA listener of the server of `url`, which an open for push announces: its own, or one of an
/// interface that it announces, as for push mode.
pub(crate) async fn rdma_address(url: &SmbUrl) -> Result<SocketAddr, Failure> {
    let client = client::Client::connect(url, &ConnectOptions::for_user_of(url)).await;
    let client = client.map_err(Failure::remote(CONNECTING, url))?;
    let file = client.open(&url.path, &pushed()).await;
    let file = file.map_err(Failure::remote("cannot open", url))?;
    let grant = match file.push() {
        Some(PushResponse::Granted(grant)) => grant,
        Some(PushResponse::Refused(why)) => return Err(Failure::NotPush(why.reason.to_string())),
        None => return Err(Failure::NotPush("the server does not know push mode".into())),
    };
    if grant.addresses.is_empty() {
        return Err(Failure::NotPush("the server has no RDMA listener".into()));
    }
    let first = file.rdma_addresses().await.first().copied();
    first.ok_or_else(|| {
        Failure::NotPush("the server names no address of its own for SMB Direct".into())
    })
}

/// Asks for every right of push mode, and accepts emulated persistence: the report says so.
fn pushed() -> OpenOptions {
    OpenOptions::read_write().with_push(PushRequest {
        rights: Rights::READ
            | Rights::WRITE
            | Rights::FLUSH
            | Rights::ATOMIC_WRITE
            | Rights::VERIFY,
        durability: Durability::ANY,
        accept_emulated: true,
        regions_max: 1,
    })
}

/// The address of the server of `url`.
pub(crate) fn address(url: &SmbUrl) -> Result<SocketAddr, Failure> {
    let mut found = (url.host.as_str(), url.port)
        .to_socket_addrs()
        .map_err(Failure::system("cannot resolve the server's name"))?;
    found.next().ok_or_else(|| Failure::ConfigValue {
        what: "host",
        value: url.host.clone(),
        why: "the name has no address",
    })
}

const CONNECTING: &str = "cannot enter";
