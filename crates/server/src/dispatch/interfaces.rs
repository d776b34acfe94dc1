//! The server's addresses, for clients that look for more channels or for RDMA.
//!
//! An address that leads to both listeners is told twice, once without RDMA and once with it:
//! clients use one entry for one kind of channel.
//!
//! Spec: MS-SMB2 §2.2.32.5, §3.3.5.15.11.

use std::net::{IpAddr, SocketAddr};

use smb::NtStatus;
use smb::fsctl::{INTERFACES_MAX, InterfaceCapability, NetworkInterface};

use super::call::Call;
use crate::config::Announced;
use crate::host::{self, HostAddress};

/// One entry for each address and listener a client can reach us at. The kernel is asked on a thread: a host may have hundreds
/// of interfaces.
pub(super) async fn query(call: &Call) -> Result<Vec<u8>, NtStatus> {
    if !call.link.agreed.get().is_some_and(|agreed| agreed.is_smb3()) {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    let core = &call.core;
    let rdma = core.push.rdma_address();
    let mut list = if core.identity.announced.is_empty() {
        let tcp = core.identity.tcp_address.unwrap_or(call.link.local);
        let known = call.waiting(|_| host::addresses()).await?;
        discovered(tcp, rdma, call.link.local.ip(), &known)
    } else {
        told(&core.identity.announced, rdma.is_some())
    };
    list.truncate(INTERFACES_MAX);
    let mut output = Vec::new();
    NetworkInterface::emit_list(&list, &mut output);
    Ok(output)
}

/// What the operator says, instead of what this machine knows of itself.
fn told(announced: &[Announced], has_rdma: bool) -> Vec<NetworkInterface> {
    let mut list = Vec::new();
    for (index, one) in (1..).zip(announced) {
        let mut capability = InterfaceCapability::empty();
        capability.set(InterfaceCapability::RSS, one.rss);
        let entry = NetworkInterface {
            index,
            capability,
            link_speed: host::SPEED_UNKNOWN,
            address: one.address,
        };
        list.push(entry);
        if one.rdma && has_rdma {
            list.push(with_rdma(entry));
        }
    }
    list
}

fn discovered(
    tcp: SocketAddr,
    rdma: Option<SocketAddr>,
    here: IpAddr,
    host: &[HostAddress],
) -> Vec<NetworkInterface> {
    let rdma_list = rdma.map(|rdma| leading_to(rdma, here, host)).unwrap_or_default();
    leading_to(tcp, here, host).into_iter().chain(rdma_list.into_iter().map(with_rdma)).collect()
}

/// The addresses that lead to a listener. One that listens on all of them is not reached from
/// elsewhere through loopback, nor through addresses that mean something on one wire only.
fn leading_to(listener: SocketAddr, here: IpAddr, host: &[HostAddress]) -> Vec<NetworkInterface> {
    let wanted = listener.ip();
    let is_meant = |one: &&HostAddress| match wanted {
        _ if !wanted.is_unspecified() => one.address == wanted,
        // An IPv6 listener takes IPv4 too; the other way round it does not.
        IpAddr::V4(_) => one.address.is_ipv4() && one.leads_here_from_elsewhere(),
        IpAddr::V6(_) => one.leads_here_from_elsewhere(),
    };
    let found: Vec<_> = host.iter().filter(is_meant).map(entry).collect();
    if !found.is_empty() {
        return found;
    }
    // No interface has it (somebody translates addresses): what the client used is right.
    let address = if wanted.is_unspecified() { here } else { wanted };
    let capability = InterfaceCapability::empty();
    vec![NetworkInterface { index: 1, capability, link_speed: host::SPEED_UNKNOWN, address }]
}

fn entry(one: &HostAddress) -> NetworkInterface {
    let mut capability = InterfaceCapability::empty();
    capability.set(InterfaceCapability::RSS, one.has_queues);
    NetworkInterface { index: one.index, capability, link_speed: one.speed, address: one.address }
}

fn with_rdma(entry: NetworkInterface) -> NetworkInterface {
    NetworkInterface { capability: entry.capability | InterfaceCapability::RDMA, ..entry }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Vec<HostAddress> {
        let one = |index, address: &str, has_queues| HostAddress {
            index,
            address: address.parse().unwrap(),
            speed: 1_000_000_000,
            has_queues,
        };
        vec![
            one(1, "127.0.0.1", false),
            one(2, "192.0.2.7", true),
            one(2, "fe80::1", true),
            one(3, "2001:db8::7", false),
            one(4, "169.254.3.4", false),
        ]
    }

    fn addresses(list: &[NetworkInterface]) -> Vec<(String, u32)> {
        list.iter().map(|one| (one.address.to_string(), one.capability.bits())).collect()
    }

    fn ask(tcp: &str, rdma: Option<&str>) -> Vec<(String, u32)> {
        let rdma = rdma.map(|rdma| rdma.parse().unwrap());
        let here = "192.0.2.7".parse().unwrap();
        addresses(&discovered(tcp.parse().unwrap(), rdma, here, &host()))
    }

    #[test]
    fn a_listener_on_all_addresses_is_reached_by_those_that_lead_here() {
        assert_eq!(ask("0.0.0.0:445", None), [("192.0.2.7".into(), 1)]);
        let both = [("192.0.2.7".into(), 1), ("2001:db8::7".into(), 0)];
        assert_eq!(ask("[::]:445", None), both);
    }

    #[test]
    fn a_listener_on_one_address_is_reached_there_only() {
        assert_eq!(ask("127.0.0.1:445", None), [("127.0.0.1".into(), 0)]);
        assert_eq!(ask("198.51.100.1:445", None), [("198.51.100.1".into(), 0)]);
    }

    #[test]
    fn an_address_that_leads_to_both_listeners_is_told_for_each() {
        let both = [("192.0.2.7".into(), 1), ("192.0.2.7".into(), 3)];
        assert_eq!(ask("192.0.2.7:445", Some("0.0.0.0:5445")), both);
    }

    #[test]
    fn what_the_operator_says_replaces_what_is_found() {
        let announced: Vec<Announced> =
            ["10.0.2.2,rss,rdma", "10.0.2.4"].map(|text| text.parse().unwrap()).into();
        let list = addresses(&told(&announced, true));
        let wanted = [("10.0.2.2".into(), 1), ("10.0.2.2".into(), 3), ("10.0.2.4".into(), 0)];
        assert_eq!(list, wanted);
        assert_eq!(told(&announced, false).len(), 2, "nobody listens for RDMA");
    }
}
