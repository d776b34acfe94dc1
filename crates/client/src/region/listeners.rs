//! Chooses among the addresses of a grant: a client dials none but the server's own.
//!
//! ```text
//!   the session is signed, and not sealed?  no --> no push
//!   the address of the SMB connection, or one that the user allows ............ dialled
//!   one of the interfaces that the server announces, no special one ........... dialled
//!   any other ................................................................. not dialled
//! ```
//!
//! Otherwise a server could have its clients dial whatever is in their reach. What they send is a proof of the
//! server's token, good for the one address that they dial, of which the server chooses no byte.
//!
//! Spec: docs/push-mode.md, "Security rules"; MS-SMB2 §2.2.32.5.

use std::net::{IpAddr, SocketAddr};

use remote::Listener;
use smb::push::{PushAddress, PushConnect, PushGrant};

use super::smb2::FallbackReason;
use crate::tree::Tree;

/// The listeners of a grant that this client may dial.
#[derive(Debug)]
pub(super) struct Listeners {
    pub(super) network: Vec<Listener>,
    pub(super) same_host: Option<Listener>,
}

/// Chooses the listeners of a grant, in its order.
pub(super) async fn of(tree: &Tree, grant: &PushGrant) -> Result<Listeners, FallbackReason> {
    if tree.is_encrypted() {
        return Err(FallbackReason::ConfigEncrypted);
    }
    if !tree.is_protected() {
        return Err(FallbackReason::ConfigUnsigned);
    }
    let network = allowed(tree, grant).await;
    let show = |address, place| {
        let mut private_data = Vec::with_capacity(PushConnect::LEN);
        PushConnect { proof: grant.token.proof(place) }.emit(&mut private_data);
        Listener { address, private_data }
    };
    let network = network.into_iter();
    let network = network.map(|address| show(address, PushAddress::Network(address))).collect();
    let same_host = grant.same_host.map(|name| show(name.into(), PushAddress::SameHost(name)));
    let listeners = Listeners { network, same_host };
    if listeners.network.is_empty() && !grant.addresses.is_empty() && listeners.same_host.is_none()
    {
        return Err(FallbackReason::PeerAddresses);
    }
    Ok(listeners)
}

/// The addresses of a grant that this client may dial, in its order.
pub(crate) async fn allowed(tree: &Tree, grant: &PushGrant) -> Vec<SocketAddr> {
    let own = tree.connection().server_addresses();
    let is_own = |address: &SocketAddr| own.contains(&address.ip().to_canonical());
    let announced = match grant.addresses.iter().all(is_own) {
        true => Vec::new(),
        // A server that does not answer announces none.
        false => tree.announced().await.unwrap_or_default(),
    };
    let is_allowed = |address: &SocketAddr| {
        let ip = address.ip().to_canonical();
        is_own(address) || (announced.contains(&ip) && !is_special(ip))
    };
    grant.addresses.iter().copied().filter(is_allowed).collect()
}

/// Whether an address means something else on each machine, so that no announcement makes it the server's.
fn is_special(ip: IpAddr) -> bool {
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    is_link_local || ip.is_loopback() || ip.is_unspecified() || ip.is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_each_machine_has_for_itself_is_nobodys_by_announcement() {
        for special in [
            "127.0.0.1",
            "127.1.2.3",
            "::1",
            "0.0.0.0",
            "::",
            "169.254.1.1",
            "fe80::1",
            "255.255.255.255",
            "224.0.0.1",
            "ff02::1",
        ] {
            assert!(is_special(special.parse().unwrap()), "{special}");
        }
        for other in ["192.0.2.1", "10.0.0.1", "2001:db8::1", "fd00::1"] {
            assert!(!is_special(other.parse().unwrap()), "{other}");
        }
    }
}
