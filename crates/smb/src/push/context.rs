//! The create context by which a client asks for push mode and learns what it got.
//!
//! ```text
//!  request, 24 bytes
//!  0         2      4        8            12      16            20         24
//!  +---------+------+--------+------------+-------+-------------+----------+
//!  | version | size | rights | durability | flags | regions_max | reserved |
//!  +---------+------+--------+------------+-------+-------------+----------+
//!  response, 80 bytes and addresses
//!  0         2      4         8              12           16            20            24
//!  +---------+------+---------+--------------+------------+-------------+-------------+
//!  | version | size | refusal | capabilities | durability | granularity | regions_max |
//!  +---------+------+---------+--------------+------------+-------------+-------------+
//!  24                  32       36               40       72               76      78
//!  +-------------------+--------+----------------+--------+----------------+-------+--------+
//!  | region_length_max | rights | token_lifetime | token  | recall_grace   | addr. | addr.  |
//!  | u64               |        | ms             | (32)   | ms             | count | offset |
//!  +-------------------+--------+----------------+--------+----------------+-------+--------+
//!  each address, 20 bytes: family u16 (2 IPv4, 0x17 IPv6, 1 same host), port u16, address[16]
//! ```
//!
//! Spec: docs/push-mode.md, "Create context".

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::layout::{self, put_u16, put_u32, put_u64};
use super::token::{PushToken, TOKEN_LEN};
use super::{Capabilities, Durability, Refusal, Rights};
use crate::dtyp::Guid;
use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

/// Name of the create context: a random GUID, drawn once.
pub const CREATE_CONTEXT_NAME: Guid = Guid([
    0x9a, 0x51, 0xda, 0xbc, 0xde, 0x2b, 0xd6, 0x5e, 0x30, 0x01, 0xee, 0x77, 0x5d, 0x82, 0xe4, 0x37,
]);

/// Asks for push mode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PushRequest {
    /// What the client wants to do.
    pub rights: Rights,
    /// The least class it takes.
    pub durability: Durability,
    /// Takes emulated persistence for the class it asked for.
    pub accept_emulated: bool,
    /// Regions it means to map at the same time, 0 for no idea.
    pub regions_max: u32,
}

impl PushRequest {
    /// Reads the context's data.
    ///
    /// # Errors
    /// Malformed, or another version: then answer [`PushResponse::Refused`] with VERSION.
    pub fn parse(data: &[u8]) -> Result<Self, ParseError> {
        let mut reader = layout::open(data, REQUEST_LEN)?;
        let rights = Rights::from_bits_retain(reader.u32()?);
        let durability = Durability(reader.u32()?);
        let accept_emulated = reader.u32()? & ACCEPT_EMULATED != 0;
        let regions_max = reader.u32()?;
        reader.u32()?;
        Ok(Self { rights, durability, accept_emulated, regions_max })
    }

    /// Appends the context's data.
    pub fn emit(&self, out: &mut Vec<u8>) {
        layout::begin(out, REQUEST_LEN);
        put_u32(out, self.rights.bits());
        put_u32(out, self.durability.0);
        put_u32(out, if self.accept_emulated { ACCEPT_EMULATED } else { 0 });
        put_u32(out, self.regions_max);
        put_u32(out, 0);
    }
}

/// Grants or refuses push mode. A refusal never fails the CREATE.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PushResponse {
    /// Granted.
    Granted(PushGrant),
    /// Refused.
    Refused(PushRefusal),
}

/// Why a client did not get it, and what flushes are worth to it all the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PushRefusal {
    /// The reason.
    pub reason: Refusal,
    /// What a flush promises on this file; ANY where the server does not say.
    pub durability: Durability,
    /// The class is volatile and the operator chose to answer commits all the same.
    pub is_emulated: bool,
}

impl From<Refusal> for PushRefusal {
    /// A refusal that says nothing of the file.
    fn from(reason: Refusal) -> Self {
        Self { reason, durability: Durability::ANY, is_emulated: false }
    }
}

/// What the client got.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PushGrant {
    /// What the server can do.
    pub capabilities: Capabilities,
    /// What a commit promises on this file.
    pub durability: Durability,
    /// Smallest unit the medium keeps whole when power fails, in bytes.
    pub store_granularity: u32,
    /// Regions of this open at the same time.
    pub regions_max: u32,
    /// Largest region.
    pub region_length_max: u64,
    /// Rights a region of this open can have.
    pub rights: Rights,
    /// How long the token is good for.
    pub token_lifetime_ms: u32,
    /// Binds one push connection to this session.
    pub token: PushToken,
    /// How long a recall waits before it becomes a revocation.
    pub recall_grace_ms: u32,
    /// Where the push listener is.
    pub addresses: Vec<SocketAddr>,
    /// The name under which processes of the server's host find a listener through shared memory: an
    /// IPv6 address and a port that lead nowhere in a network.
    pub same_host: Option<SocketAddrV6>,
}

impl PushResponse {
    /// Reads the context's data.
    ///
    /// # Errors
    /// Malformed, or another version: then push mode was not granted.
    pub fn parse(data: &[u8]) -> Result<Self, ParseError> {
        let mut reader = layout::open(data, RESPONSE_LEN)?;
        let reason = Refusal(reader.u32()?);
        let capabilities = Capabilities::from_bits_retain(reader.u32()?);
        let durability = Durability(reader.u32()?);
        if reason != Refusal::NONE {
            let is_emulated = capabilities.contains(Capabilities::EMULATED_PERSISTENCE);
            return Ok(Self::Refused(PushRefusal { reason, durability, is_emulated }));
        }
        let store_granularity = reader.u32()?;
        let regions_max = reader.u32()?;
        let region_length_max = reader.u64()?;
        let rights = Rights::from_bits_retain(reader.u32()?);
        let token_lifetime_ms = reader.u32()?;
        let token = PushToken::new(reader.array::<TOKEN_LEN>()?);
        let recall_grace_ms = reader.u32()?;
        let count = layout::count(Field::Addresses, u32::from(reader.u16()?), ADDRESSES_MAX)?;
        let list = layout::entries(data, reader.u16()?, count, ADDRESS_LEN, ADDRESS_LEN)?;
        let (mut addresses, mut same_host) = (Vec::new(), None);
        for bytes in list {
            match parse_address(bytes)? {
                Some(PushAddress::Network(address)) => addresses.push(address),
                Some(PushAddress::SameHost(name)) => same_host = same_host.or(Some(name)),
                // An address family of the future is skipped, not an error.
                None => {}
            }
        }
        Ok(Self::Granted(PushGrant {
            capabilities,
            durability,
            store_granularity,
            regions_max,
            region_length_max,
            rights,
            token_lifetime_ms,
            token,
            recall_grace_ms,
            addresses,
            same_host,
        }))
    }

    /// Appends the context's data. Addresses beyond [`ADDRESSES_MAX`] are left out.
    pub fn emit(&self, out: &mut Vec<u8>) {
        layout::begin(out, RESPONSE_LEN);
        match self {
            Self::Refused(refused) => {
                let mut capabilities = Capabilities::empty();
                capabilities.set(Capabilities::EMULATED_PERSISTENCE, refused.is_emulated);
                put_u32(out, refused.reason.0);
                put_u32(out, capabilities.bits());
                put_u32(out, refused.durability.0);
                out.resize(out.len() + usize::from(RESPONSE_LEN) - 16, 0);
            }
            Self::Granted(grant) => grant.emit(out),
        }
    }
}

impl PushGrant {
    /// The entries of the list. The listener of the same host is the first, and the last ones beyond
    /// [`ADDRESSES_MAX`] are left out.
    pub fn places(&self) -> Vec<PushAddress> {
        let same_host = self.same_host.map(PushAddress::SameHost);
        let network = self.addresses.iter().copied().map(PushAddress::Network);
        same_host.into_iter().chain(network).take(ADDRESSES_MAX).collect()
    }

    fn emit(&self, out: &mut Vec<u8>) {
        put_u32(out, Refusal::NONE.0);
        put_u32(out, self.capabilities.bits());
        put_u32(out, self.durability.0);
        put_u32(out, self.store_granularity);
        put_u32(out, self.regions_max);
        put_u64(out, self.region_length_max);
        put_u32(out, self.rights.bits());
        put_u32(out, self.token_lifetime_ms);
        out.extend_from_slice(self.token.expose());
        put_u32(out, self.recall_grace_ms);
        let addresses = self.places();
        put_u16(out, wire::length16(addresses.len()));
        put_u16(out, RESPONSE_LEN);
        for address in addresses {
            address.emit(out);
        }
    }
}

/// Where a push listener is: an entry of the list of a grant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PushAddress {
    /// In a network.
    Network(SocketAddr),
    /// The name of a listener on the server's host.
    SameHost(SocketAddrV6),
}

fn parse_address(bytes: &[u8]) -> Result<Option<PushAddress>, ParseError> {
    let mut reader = Reader::new(bytes);
    let (family, port) = (reader.u16()?, reader.u16()?);
    let address: [u8; 16] = reader.array()?;
    let ip = match (family, address) {
        (FAMILY_IPV4, [a, b, c, d, ..]) => IpAddr::from(Ipv4Addr::new(a, b, c, d)),
        (FAMILY_IPV6, address) => IpAddr::from(Ipv6Addr::from(address)),
        (FAMILY_SAME_HOST, address) => {
            let name = SocketAddrV6::new(Ipv6Addr::from(address), port, 0, 0);
            return Ok(Some(PushAddress::SameHost(name)));
        }
        _ => return Ok(None),
    };
    Ok(Some(PushAddress::Network(SocketAddr::new(ip, port))))
}

impl PushAddress {
    /// Bytes on the wire.
    pub(super) const LEN: usize = ADDRESS_LEN;

    /// Appends the entry.
    pub(super) fn emit(self, out: &mut Vec<u8>) {
        let mut bytes = [0; 16];
        let (family, port) = match self {
            Self::SameHost(name) => {
                bytes = name.ip().octets();
                (FAMILY_SAME_HOST, name.port())
            }
            Self::Network(SocketAddr::V4(address)) => {
                bytes[..4].copy_from_slice(&address.ip().octets());
                (FAMILY_IPV4, address.port())
            }
            Self::Network(SocketAddr::V6(address)) => {
                bytes = address.ip().octets();
                (FAMILY_IPV6, address.port())
            }
        };
        put_u16(out, family);
        put_u16(out, port);
        out.extend_from_slice(&bytes);
    }
}

/// Addresses of one response.
pub const ADDRESSES_MAX: usize = 16;

const REQUEST_LEN: u16 = 24;
const RESPONSE_LEN: u16 = 80;
const ADDRESS_LEN: usize = 20;
const ACCEPT_EMULATED: u32 = 1;
// As in SOCKADDR_STORAGE of MS-SMB2 §2.2.32.5.1.
const FAMILY_IPV4: u16 = 2;
const FAMILY_IPV6: u16 = 0x17;
// Of ours: AF_UNIX, which no Windows listener has.
const FAMILY_SAME_HOST: u16 = 1;
