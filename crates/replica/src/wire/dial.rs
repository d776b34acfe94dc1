//! Connections that this member makes.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Instant;

use super::error::LinkError;
use super::greeting::{Answer, Claim, OfSeveral};
use super::handshake;
use super::identity::Identity;
use super::link::{OneReceiver, OneSender, halves};
use super::options::{ADDRESSES_MAX, CONNECT_LIMIT, HANDSHAKE_LIMIT, LinkOptions};
use super::socket::Socket;
use crate::names::MemberId;

/// Makes a connection, which is all of its link or one of several, to `member`, at the first of `addresses` (`host:port`) where it
/// proves that it is there.
///
/// # Errors
///
/// Why the last address did not lead to the member.
pub(super) fn dial_one_of<A: AsRef<str>>(
    addresses: &[A],
    identity: &Identity,
    member: MemberId,
    options: &LinkOptions,
    of: Option<OfSeveral>,
) -> Result<(OneSender, OneReceiver), LinkError> {
    if !identity.has(member) || member == identity.me {
        return Err(LinkError::ConfigMember(member, identity.members));
    }
    let (mut last, mut tried) = (LinkError::ConfigNoAddress(member), 0);
    for name in addresses.iter().map(AsRef::as_ref) {
        let found = match name.to_socket_addrs() {
            Ok(found) => found,
            Err(source) => {
                last = LinkError::ConfigName { address: name.to_owned(), source };
                continue;
            }
        };
        let is_reachable = |address: &SocketAddr| {
            options.local.is_none_or(|local| local.is_ipv4() == address.is_ipv4())
        };
        for address in found.filter(is_reachable).take(ADDRESSES_MAX - tried) {
            tried += 1;
            match dial_one(address, identity, member, options, of) {
                Ok(connection) => return Ok(connection),
                Err(source) => {
                    tracing::debug!(%member, %address, error = %source, "no link");
                    let (address, source) = (address.to_string(), Box::new(source));
                    last = LinkError::Dial { member, address, source };
                }
            }
        }
    }
    Err(last)
}

fn dial_one(
    address: SocketAddr,
    identity: &Identity,
    member: MemberId,
    options: &LinkOptions,
    of: Option<OfSeveral>,
) -> Result<(OneSender, OneReceiver), LinkError> {
    let socket = Socket::connect(address, options.local, CONNECT_LIMIT)
        .map_err(|source| LinkError::Connect { address: address.to_string(), source })?;
    let (socket, until) = (Arc::new(socket), Instant::now() + HANDSHAKE_LIMIT);
    let secured = handshake::as_dialer(&socket, identity, until)?;
    let key = secured.key;
    let (mut sender, mut receiver) = halves(&socket, secured, options);
    let claim = Claim { group: identity.group, me: identity.me, to: member, of };
    // An end that does not take the key says so before it goes: what it says is more than that it went.
    let sent = sender.send_bytes(claim.encode()?);
    receiver.limit(Some(until));
    let head = match (receiver.receive_frame(), sent) {
        (Ok(head), _) => head,
        (Err(LinkError::Closed), Err(error)) | (Err(error), _) => return Err(error),
    };
    Answer::decode(head, receiver.body())?.check(identity, member, key)?;
    receiver.limit(None);
    socket.limit(None).map_err(LinkError::Io)?;
    Ok((sender, receiver))
}
