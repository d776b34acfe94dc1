//! Invented packets: the Ethernet, IP and TCP headers that a capture needs around a stream.
//!
//! ```text
//!   0          14                34 / 54         54 / 74
//!   +----------+-----------------+---------------+-----------
//!   | Ethernet | IPv4 or IPv6    | TCP           | payload
//!   +----------+-----------------+---------------+-----------
//! ```
//!
//! Spec: RFC 791 §3.1, RFC 8200 §3, RFC 9293 §3.1, RFC 1071 (checksum). Big-endian.

use std::net::{IpAddr, SocketAddr};

/// One direction's next packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketRepr {
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) sequence: u32,
    pub(super) acknowledgement: u32,
    pub(super) flags: u8,
}

pub(super) const FIN: u8 = 0x01;
pub(super) const SYN: u8 = 0x02;
pub(super) const PSH: u8 = 0x08;
pub(super) const ACK: u8 = 0x10;

/// Payload that fits an IPv4 packet of 65,535 bytes.
pub(super) const PAYLOAD_MAX: usize = 65_535 - IPV4_LEN - TCP_LEN;

impl PacketRepr {
    /// Puts the packet into `out` in place of what was there. `payload` is at most
    /// [`PAYLOAD_MAX`] bytes.
    pub(super) fn emit(&self, payload: &[u8], out: &mut Vec<u8>) {
        out.clear();
        // Locally administered addresses, 02-..-01 for the side that listens on the lower port.
        let lower = self.source.port() < self.destination.port();
        let (near, far) = if lower { (1, 2) } else { (2, 1) };
        out.extend_from_slice(&[2, 0, 0, 0, 0, far, 2, 0, 0, 0, 0, near]);
        let segment_len = u16::try_from(TCP_LEN + payload.len()).expect("PAYLOAD_MAX fits 16 bits");
        let pseudo = match (self.source.ip().to_canonical(), self.destination.ip().to_canonical()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                out.extend_from_slice(&0x0800_u16.to_be_bytes());
                let start = out.len();
                let total = segment_len + 20;
                out.extend_from_slice(&[0x45, 0]);
                out.extend_from_slice(&total.to_be_bytes());
                out.extend_from_slice(&[0, 0, 0x40, 0, 64, TCP, 0, 0]);
                out.extend_from_slice(&from.octets());
                out.extend_from_slice(&to.octets());
                let checksum = fold(sum(0, &out[start..]));
                out[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
                sum(sum(0, &from.octets()), &to.octets())
            }
            (from, to) => {
                let (from, to) = (octets_v6(from), octets_v6(to));
                out.extend_from_slice(&0x86dd_u16.to_be_bytes());
                out.extend_from_slice(&[0x60, 0, 0, 0]);
                out.extend_from_slice(&segment_len.to_be_bytes());
                out.extend_from_slice(&[TCP, 64]);
                out.extend_from_slice(&from);
                out.extend_from_slice(&to);
                sum(sum(0, &from), &to)
            }
        };
        let start = out.len();
        out.extend_from_slice(&self.source.port().to_be_bytes());
        out.extend_from_slice(&self.destination.port().to_be_bytes());
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(&self.acknowledgement.to_be_bytes());
        out.extend_from_slice(&[0x50, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
        out.extend_from_slice(payload);
        let pseudo = pseudo + u64::from(TCP) + u64::from(segment_len);
        let checksum = fold(sum(pseudo, &out[start..]));
        out[start + 16..start + 18].copy_from_slice(&checksum.to_be_bytes());
    }
}

fn octets_v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// RFC 1071: adds 16-bit words; an odd last byte is the high half of one.
fn sum(start: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(2).fold(start, |sum, word| {
        let low = word.get(1).copied().unwrap_or(0);
        sum + u64::from(u16::from_be_bytes([word[0], low]))
    })
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("folded to 16 bits above")
}

const IPV4_LEN: usize = 20;
const TCP_LEN: usize = 20;
const TCP: u8 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    // The example header of RFC 1071's usual worked case (also in RFC 791 terms): 4500 0073 0000
    // 4000 4011 b861 c0a8 0001 c0a8 00c7.
    #[test]
    fn the_checksum_of_a_known_header_is_its_known_checksum() {
        let header = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0,
            0xc7,
        ];
        assert_eq!(fold(sum(0, &header)), 0xb861);
    }

    #[test]
    fn the_receiver_of_a_packet_verifies_its_checksums() {
        for (from, to) in [("10.0.0.1:99", "10.0.0.2:5445"), ("[::1]:99", "[::1]:5445")] {
            let (source, destination) = (from.parse().unwrap(), to.parse().unwrap());
            let repr =
                PacketRepr { source, destination, sequence: 7, acknowledgement: 9, flags: ACK };
            let mut out = Vec::new();
            repr.emit(b"odd", &mut out);
            let v4 = source.is_ipv4();
            let tcp = if v4 { 34 } else { 54 };
            let addresses = if v4 { &out[26..34] } else { &out[22..54] };
            let pseudo = sum(u64::from(TCP) + 23, addresses);
            assert_eq!(fold(sum(pseudo, &out[tcp..])), 0);
            assert_eq!(&out[tcp + 20..], b"odd");
        }
    }
}
