//! QUERY_NETWORK_INTERFACE_INFO: where else the server can be reached, and whether by RDMA.
//!
//! ```text
//!  0      4       8            12  16           24       26     28                       152
//!  +------+-------+------------+---+------------+--------+------+------------------------+
//!  | next | index | capability | 0 | link speed | family | port | IPv4 (4), or           |
//!  |      |       |            |   | bit/s u64  |        |      | flow (4), IPv6 (16), 4 |
//!  +------+-------+------------+---+------------+--------+------+------------------------+
//! ```
//!
//! Spec: MS-SMB2 §2.2.32.5.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

/// One address of the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NetworkInterface {
    /// The interface, by its number there.
    pub index: u32,
    /// What it can do.
    pub capability: InterfaceCapability,
    /// Speed in bits per second.
    pub link_speed: u64,
    /// Its address.
    pub address: IpAddr,
}

impl NetworkInterface {
    /// Reads the output. Addresses of families we do not know are left out.
    ///
    /// # Errors
    /// Malformed, or more than [`INTERFACES_MAX`].
    pub fn parse_list(output: &[u8]) -> Result<Vec<Self>, ParseError> {
        let mut list = Vec::new();
        let mut rest = output;
        for seen in 1.. {
            wire::limit(Field::Addresses, seen, INTERFACES_MAX)?;
            let (offset, interface) = Self::parse_one(rest)?;
            list.extend(interface);
            if offset == 0 {
                break;
            }
            let next = usize::try_from(offset).unwrap_or(usize::MAX);
            if next < ENTRY_LEN || next >= rest.len() {
                let got = rest.len();
                return Err(ParseError::PeerOffset { field: Field::Next, offset, length: 0, got });
            }
            rest = &rest[next..];
        }
        Ok(list)
    }

    fn parse_one(bytes: &[u8]) -> Result<(u32, Option<Self>), ParseError> {
        let mut reader = Reader::new(bytes);
        let next = reader.u32()?;
        let index = reader.u32()?;
        let capability = InterfaceCapability::from_bits_retain(reader.u32()?);
        reader.u32()?;
        let link_speed = reader.u64()?;
        let family = reader.u16()?;
        reader.u16()?;
        let mut storage = Reader::new(reader.bytes(ENTRY_LEN - 28)?);
        let address = match family {
            FAMILY_IPV4 => IpAddr::V4(Ipv4Addr::from(storage.array::<4>()?)),
            FAMILY_IPV6 => {
                storage.u32()?;
                IpAddr::V6(Ipv6Addr::from(storage.array::<16>()?))
            }
            _ => return Ok((next, None)),
        };
        Ok((next, Some(Self { index, capability, link_speed, address })))
    }

    /// Appends the output.
    pub fn emit_list(list: &[Self], out: &mut Vec<u8>) {
        for (at, interface) in list.iter().enumerate() {
            let start = out.len();
            let next = if at + 1 == list.len() { 0 } else { wire::length32(ENTRY_LEN) };
            out.extend_from_slice(&next.to_le_bytes());
            out.extend_from_slice(&interface.index.to_le_bytes());
            out.extend_from_slice(&interface.capability.bits().to_le_bytes());
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(&interface.link_speed.to_le_bytes());
            match interface.address {
                IpAddr::V4(address) => {
                    out.extend_from_slice(&FAMILY_IPV4.to_le_bytes());
                    out.extend_from_slice(&[0; 2]);
                    out.extend_from_slice(&address.octets());
                }
                IpAddr::V6(address) => {
                    out.extend_from_slice(&FAMILY_IPV6.to_le_bytes());
                    out.extend_from_slice(&[0; 6]);
                    out.extend_from_slice(&address.octets());
                }
            }
            out.resize(start + ENTRY_LEN, 0);
        }
    }
}

bitflags::bitflags! {
    /// What an interface can do.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct InterfaceCapability: u32 {
        /// Receive-side scaling.
        const RSS = 0x01;
        /// RDMA.
        const RDMA = 0x02;
        const _ = !0;
    }
}

/// Addresses read from one answer.
pub const INTERFACES_MAX: usize = 256;

const ENTRY_LEN: usize = 152;
const FAMILY_IPV4: u16 = 0x02;
const FAMILY_IPV6: u16 = 0x17;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_that_runs_away_or_turns_back_is_refused() {
        let here = NetworkInterface {
            index: 1,
            capability: InterfaceCapability::RDMA,
            link_speed: 1,
            address: "2001:db8::1".parse().unwrap(),
        };
        let mut out = Vec::new();
        NetworkInterface::emit_list(&[here, here], &mut out);
        assert_eq!(NetworkInterface::parse_list(&out).unwrap(), [here, here]);
        for next in [1, 151, 304, u32::MAX] {
            wire::patch_u32(&mut out, 0, next);
            assert!(NetworkInterface::parse_list(&out).is_err(), "{next}");
        }
    }
}
