//! Socket addresses as C has them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Room for any address.
pub(super) fn to_storage(address: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: an address of no family at all is all zeros.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let place = &raw mut storage;
    match address {
        SocketAddr::V4(address) => {
            let inner = libc::sockaddr_in {
                sin_family: family(libc::AF_INET),
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: a sockaddr_storage has room and alignment for every kind of address.
            unsafe { place.cast::<libc::sockaddr_in>().write(inner) };
        }
        SocketAddr::V6(address) => {
            let inner = libc::sockaddr_in6 {
                sin6_family: family(libc::AF_INET6),
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: as above.
            unsafe { place.cast::<libc::sockaddr_in6>().write(inner) };
        }
    }
    storage
}

/// Reads an address; anything but IP is the unspecified address.
pub(super) fn from_storage(storage: &libc::sockaddr_storage) -> SocketAddr {
    let place = &raw const *storage;
    if storage.ss_family == family(libc::AF_INET) {
        // SAFETY: its family says that it is one.
        let inner = unsafe { place.cast::<libc::sockaddr_in>().read() };
        let ip = Ipv4Addr::from(u32::from_be(inner.sin_addr.s_addr));
        return SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(inner.sin_port)));
    }
    if storage.ss_family == family(libc::AF_INET6) {
        // SAFETY: as above.
        let inner = unsafe { place.cast::<libc::sockaddr_in6>().read() };
        let ip = Ipv6Addr::from(inner.sin6_addr.s6_addr);
        let port = u16::from_be(inner.sin6_port);
        return SocketAddr::V6(SocketAddrV6::new(ip, port, 0, inner.sin6_scope_id));
    }
    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)
}

fn family(number: i32) -> libc::sa_family_t {
    libc::sa_family_t::try_from(number).expect("families are small numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_to_c_and_back() {
        for text in ["10.0.2.15:5445", "[fe80::1%3]:445", "[::1]:1", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(from_storage(&to_storage(address)), address);
        }
    }
}
