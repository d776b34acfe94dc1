//! A capture written again with one frame of MPA to a frame of the capture, and what moved how.
//!
//! tshark 4.0 reassembles messages of SMB Direct only where each of their fragments has a frame of
//! the capture to itself, and nothing else comes between them (docs/interop.md). A peer's TCP, and
//! the network, put several into one, and a message without data, which grants credits, may come at
//! any time. The server's own captures (`--pcap`) hold whole streams in order, so they can be cut
//! anew, with messages without data moved behind the fragments they came between.
//!
//! ```text
//!  Ethernet 14 | IPv4 20 or IPv6 40 | TCP 20 | 16 key, 4, private data            the first two
//!                                            | u16 length | DDP, payload | pad | CRC    the others
//! ```
//!
//! Spec: RFC 5044 §4 (MPA), §7.1 (its start); RFC 5041 §4 (DDP headers); RFC 5040 §4.3 (opcodes).

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use crate::failure::Failure;

/// Payload in bytes by connection, by who sent it and by which operation.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Moved {
    by: Vec<BTreeMap<(Side, u8), u64>>,
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Side {
    /// Who dialled.
    Client,
    /// Who was dialled.
    Server,
}

impl Moved {
    /// What `side` sent in frames of this opcode, over connections that moved anything one-sided.
    pub(crate) fn bytes(&self, side: Side, opcode: u8) -> u64 {
        let is_one_sided = |(_, opcode): &(Side, u8)| [WRITE, READ_RESPONSE].contains(opcode);
        let moving = self.by.iter().filter(|by| by.keys().any(is_one_sided));
        moving.filter_map(|by| by.get(&(side, opcode))).sum()
    }
}

/// RDMA Write.
pub(crate) const WRITE: u8 = 0;
/// RDMA Read Response.
pub(crate) const READ_RESPONSE: u8 = 2;
/// Send.
pub(crate) const SEND: u8 = 3;

/// Cuts the capture `from` anew into `to`.
pub(crate) fn one_a_frame(from: &Path, to: &Path) -> Result<Moved, Failure> {
    let capture = fs::read(from).map_err(Failure::io("reading", from))?;
    let (written, moved) =
        cut(&capture).map_err(|why| Failure::new(format!("{}: {why}", from.display())))?;
    fs::write(to, written).map_err(Failure::io("writing", to))?;
    Ok(moved)
}

/// One direction of a connection.
#[derive(Debug)]
struct Direction {
    side: Side,
    connection: usize,
    /// Sequence number of the next frame.
    sequence: u32,
    held: Vec<u8>,
    started: bool,
    /// Its first message, which is not one of data, has passed.
    negotiated: bool,
    /// More fragments of a message are to come.
    amidst: bool,
    /// What waits for them.
    behind: Vec<Vec<u8>>,
}

fn cut(capture: &[u8]) -> Result<(Vec<u8>, Moved), &'static str> {
    let (head, mut rest) = capture.split_at_checked(FILE_HEADER).ok_or("no capture")?;
    if head[..4] != MAGIC {
        return Err("not a capture of the server's own");
    }
    let mut written = head.to_vec();
    let mut moved = Moved::default();
    let mut directions: HashMap<Vec<u8>, Direction> = HashMap::new();
    while !rest.is_empty() {
        let (record, after) =
            rest.split_at_checked(RECORD).ok_or("it ends in a packet's header")?;
        let len = usize::try_from(number(&record[8..12])).map_err(|_| "a packet is too long")?;
        let (packet, after) = after.split_at_checked(len).ok_or("it ends in a packet")?;
        rest = after;
        let tcp = if packet.get(12..14) == Some(&IPV6) { 54 } else { 34 };
        let payload = packet.get(tcp + 20..).ok_or("a packet is too short")?;
        let (headers, flags) = (&packet[..tcp + 20], packet[tcp + 13]);
        let key = [&packet[26..tcp], &packet[tcp..tcp + 4]].concat();
        if flags & SYN != 0 {
            let side = if flags & ACK == 0 { Side::Client } else { Side::Server };
            if side == Side::Client {
                moved.by.push(BTreeMap::new());
            }
            let connection = moved.by.len().checked_sub(1).ok_or("an answer to nobody")?;
            let sequence = number(&packet[tcp + 4..tcp + 8]).wrapping_add(1);
            directions.insert(key.clone(), Direction::new(side, connection, sequence));
        }
        if payload.is_empty() {
            put(&mut written, record, packet);
            continue;
        }
        let direction = directions.get_mut(&key).ok_or("a stream has no beginning")?;
        direction.held.extend_from_slice(payload);
        while let Some(unit) = direction.next_unit(&mut moved) {
            for unit in direction.in_order(unit) {
                let packet = direction.packet(headers, tcp, &unit)?;
                put(&mut written, record, &packet);
            }
        }
    }
    Ok((written, moved))
}

impl Direction {
    fn new(side: Side, connection: usize, sequence: u32) -> Self {
        let (held, behind) = (Vec::new(), Vec::new());
        let (started, negotiated, amidst) = (false, false, false);
        Self { side, connection, sequence, held, started, negotiated, amidst, behind }
    }

    /// Takes the next whole unit: the start of MPA, then frames.
    fn next_unit(&mut self, moved: &mut Moved) -> Option<Vec<u8>> {
        let short = |at: usize| {
            Some(usize::from(u16::from_be_bytes([*self.held.get(at)?, *self.held.get(at + 1)?])))
        };
        let len =
            if self.started { (2 + short(0)?).next_multiple_of(4) + 4 } else { 20 + short(18)? };
        if self.held.len() < len {
            return None;
        }
        let rest = self.held.split_off(len);
        let unit = std::mem::replace(&mut self.held, rest);
        if std::mem::replace(&mut self.started, true) {
            let (tagged, opcode) = (unit[2] & TAGGED != 0, unit[3] & 0x0f);
            let header = if tagged { 14 } else { 18 };
            let ulpdu = u64::from(u16::from_be_bytes([unit[0], unit[1]]));
            *moved.by[self.connection].entry((self.side, opcode)).or_default() +=
                ulpdu.saturating_sub(header);
        }
        Some(unit)
    }

    /// What can be written now that `unit` has come.
    fn in_order(&mut self, unit: Vec<u8>) -> Vec<Vec<u8>> {
        // MS-SMBD §2.2.3 behind 2 bytes of MPA and 18 of DDP: remaining at 8, data length at 16.
        let message = unit.get(20..40).filter(|_| SENDS.contains(&(unit[3] & 0x0f)));
        let Some(message) = message.filter(|_| unit[2] & TAGGED == 0) else { return vec![unit] };
        if !std::mem::replace(&mut self.negotiated, true) {
            return vec![unit];
        }
        let (remaining, data) = (&message[8..12], &message[16..20]);
        if data == [0; 4] && self.amidst {
            self.behind.push(unit);
            return Vec::new();
        }
        if data == [0; 4] {
            return vec![unit];
        }
        self.amidst = remaining != [0; 4];
        if self.amidst {
            return vec![unit];
        }
        std::iter::once(unit).chain(self.behind.drain(..)).collect()
    }

    /// The unit behind headers that fit it.
    fn packet(&mut self, headers: &[u8], tcp: usize, unit: &[u8]) -> Result<Vec<u8>, &'static str> {
        let mut packet = headers.to_vec();
        packet[tcp + 4..tcp + 8].copy_from_slice(&self.sequence.to_be_bytes());
        let len = u16::try_from(40 + unit.len()).map_err(|_| "a frame is too long")?;
        self.sequence = self.sequence.wrapping_add(u32::from(len) - 40);
        // IPv4 counts its own header, IPv6 does not.
        let (at, len) = if tcp == 34 { (16, len) } else { (18, len - 20) };
        packet[at..at + 2].copy_from_slice(&len.to_be_bytes());
        packet.extend_from_slice(unit);
        Ok(packet)
    }
}

fn put(written: &mut Vec<u8>, record: &[u8], packet: &[u8]) {
    let len = u32::try_from(packet.len()).expect("bounded by sixteen bits and headers");
    written.extend_from_slice(&record[..8]);
    written.extend_from_slice(&len.to_be_bytes());
    written.extend_from_slice(&len.to_be_bytes());
    written.extend_from_slice(packet);
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

const FILE_HEADER: usize = 24;
const RECORD: usize = 16;
/// Big-endian with nanoseconds, as crates/rdma/src/wrap/pcap.rs writes it.
const MAGIC: [u8; 4] = [0xa1, 0xb2, 0x3c, 0x4d];
const IPV6: [u8; 2] = [0x86, 0xdd];
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const TAGGED: u8 = 0x80;
/// Send, with Invalidate, with Solicited Event, with both.
const SENDS: [u8; 4] = [3, 4, 5, 6];

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet between ports 9 and 8 of IPv4 addresses that are all zeros.
    fn packet(capture: &mut Vec<u8>, from_client: bool, flags: u8, sequence: u32, payload: &[u8]) {
        let mut packet = vec![0; 54];
        packet[12] = 8;
        let ports: [u8; 4] = if from_client { [0, 9, 0, 8] } else { [0, 8, 0, 9] };
        packet[34..38].copy_from_slice(&ports);
        packet[38..42].copy_from_slice(&sequence.to_be_bytes());
        packet[47] = flags;
        packet.extend_from_slice(payload);
        put(capture, &[0; RECORD], &packet);
    }

    fn payloads(capture: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut found = Vec::new();
        let mut rest = &capture[FILE_HEADER..];
        while !rest.is_empty() {
            let len = number(&rest[8..12]) as usize;
            let packet = &rest[RECORD..RECORD + len];
            if len > 54 {
                assert_eq!(usize::from(u16::from_be_bytes([packet[16], packet[17]])), len - 14);
                found.push((number(&packet[38..42]), packet[54..].to_vec()));
            }
            rest = &rest[RECORD + len..];
        }
        found
    }

    #[test]
    fn frames_that_share_a_packet_or_are_split_get_packets_of_their_own() {
        let start = [&b"MPA ID Req Frame"[..], &[0, 1, 0, 2, 7, 7]].concat();
        // RFC 5041: an untagged Send of 2 bytes, a tagged Write of 3.
        let send = [&[0, 20, 0x41, 0x43][..], &[0; 16], &[1, 2, 3, 4, 5, 6], &[0; 2]].concat();
        let write = [&[0, 17, 0xc1, 0x40][..], &[0; 12], &[1, 2, 3], &[0; 1], &[9; 4]].concat();
        assert_eq!((send.len(), write.len()), (28, 24));
        let mut capture = [&MAGIC[..], &[0; 20]].concat();
        packet(&mut capture, true, SYN, 99, &[]);
        packet(&mut capture, false, SYN | ACK, 0, &[]);
        let all = [&start[..], &send, &write, &send].concat();
        packet(&mut capture, true, ACK, 100, &all[..30]);
        packet(&mut capture, true, ACK, 130, &all[30..]);
        let (written, moved) = cut(&capture).unwrap();
        let wanted = [(100, start), (122, send.clone()), (150, write), (174, send)];
        assert_eq!(payloads(&written), wanted);
        assert_eq!(moved.bytes(Side::Client, 3), 4);
        assert_eq!(moved.bytes(Side::Client, WRITE), 3);
        assert_eq!(moved.bytes(Side::Server, WRITE), 0);
    }

    #[test]
    fn a_message_without_data_goes_behind_the_fragments_it_came_between() {
        let send = |remaining: u8, data: u8| {
            let (mut message, data_len) = ([0; 20], usize::from(data));
            (message[8], message[16]) = (remaining, data);
            let ulpdu = 18 + 20 + data_len;
            let mut unit = vec![0, u8::try_from(ulpdu).unwrap(), 0x41, 0x43];
            unit.resize(20, 0);
            unit.extend_from_slice(&message);
            unit.resize((unit.len() + data_len).next_multiple_of(4) + 4, 0);
            unit
        };
        let (first, empty, last) = (send(4, 8), send(0, 0), send(0, 4));
        let mut direction = Direction::new(Side::Client, 0, 0);
        assert_eq!(direction.in_order(send(9, 0)), [send(9, 0)], "the negotiation");
        assert_eq!(direction.in_order(empty.clone()), std::slice::from_ref(&empty));
        assert_eq!(direction.in_order(first.clone()), [first]);
        assert!(direction.in_order(empty.clone()).is_empty());
        assert_eq!(direction.in_order(last.clone()), [last, empty]);
    }

    #[test]
    fn what_is_no_capture_of_the_servers_is_refused() {
        cut(&[]).unwrap_err();
        cut(&[0; 24]).unwrap_err();
        let mut capture = [&MAGIC[..], &[0; 20]].concat();
        packet(&mut capture, true, ACK, 0, &[1]);
        assert_eq!(cut(&capture).unwrap_err(), "a stream has no beginning");
        capture.pop();
        cut(&capture).unwrap_err();
    }
}
