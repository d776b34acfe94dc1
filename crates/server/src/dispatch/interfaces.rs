//! The server's addresses, for clients that look for more channels or for RDMA.
//!
//! ```text
//!  0      4         8            12         16            24                        152
//!  +------+---------+------------+----------+-------------+-------------------------+
//!  | next | ifindex | capability | reserved | speed bit/s | address: family u16,    |
//!  |      |         | 1 RSS 2 RDMA          | u64         | port u16 (be), address  |
//!  +------+---------+------------+----------+-------------+-------------------------+
//! ```
//!
//! Spec: MS-SMB2 §2.2.32.5, §3.3.5.15.11.

use std::net::{IpAddr, SocketAddr};

use smb::NtStatus;

use super::call::Call;

/// One entry per address a client can reach us at: where it reached us, and the RDMA listener.
pub(super) fn query(call: &Call) -> Result<Vec<u8>, NtStatus> {
    if !call.link.agreed.get().is_some_and(|agreed| agreed.is_smb3()) {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    let mut output = Vec::new();
    let rdma = call.link.core.push.rdma_address();
    let here = call.link.local;
    let entries = [Some((here, 0)), rdma.map(|address| (reachable(address, here), RDMA_CAPABLE))];
    let mut last = None;
    for (index, (address, capability)) in (1_u32..).zip(entries.into_iter().flatten()) {
        last = Some(output.len());
        emit(&mut output, index, address.ip(), capability);
    }
    if let Some(last) = last {
        output[last..last + 4].fill(0);
    }
    Ok(output)
}

// A listener on all addresses is reached at the one the client already uses.
fn reachable(address: SocketAddr, here: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() { SocketAddr::new(here.ip(), address.port()) } else { address }
}

fn emit(output: &mut Vec<u8>, index: u32, address: IpAddr, capability: u32) {
    let start = output.len();
    output.extend_from_slice(&ENTRY_LEN.to_le_bytes());
    output.extend_from_slice(&index.to_le_bytes());
    output.extend_from_slice(&capability.to_le_bytes());
    output.extend_from_slice(&[0; 4]);
    output.extend_from_slice(&SPEED.to_le_bytes());
    match address {
        IpAddr::V4(address) => {
            output.extend_from_slice(&2_u16.to_le_bytes());
            output.extend_from_slice(&[0; 2]);
            output.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            output.extend_from_slice(&0x17_u16.to_le_bytes());
            output.extend_from_slice(&[0; 6]);
            output.extend_from_slice(&address.octets());
        }
    }
    output.resize(start + ENTRY_LEN as usize, 0);
}

const ENTRY_LEN: u32 = 152;
const RDMA_CAPABLE: u32 = 2;
// What a client sees of the link is not ours to know; 10 Gbit/s keeps it from preferring others.
const SPEED: u64 = 10_000_000_000;
