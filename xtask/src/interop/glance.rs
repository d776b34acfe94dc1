//! What tshark makes of a capture of SMB: whether anything is malformed, and how large requests are.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read as _};
use std::path::Path;

use crate::failure::Failure;
use crate::interop::capture;

/// A capture as tshark sees it.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Seen {
    /// Frames that hold SMB2 messages it could read, and sealed ones.
    pub(crate) smb2: u64,
    /// Frames it cannot read to their end, each with what it says.
    pub(crate) malformed: Vec<String>,
    /// The most one READ asked for, in bytes.
    pub(crate) read_max: u64,
    /// The most one WRITE brought, in the message or by RDMA.
    pub(crate) write_max: u64,
}

/// Reads `capture`.
pub(crate) fn glance(capture: &Path) -> Result<Seen, Failure> {
    let fields = FIELDS.iter().flat_map(|field| ["-e", field]);
    let output = capture::tshark(capture).args(["-T", "fields"]).args(fields).output()?;
    let mut seen = Seen::default();
    output.lines().for_each(|line| seen.take(line));
    Ok(seen)
}

/// Copies a capture of QEMU's, with port 445 in the place of `port`: only there tshark takes frames
/// of more than 128 KiB for SMB, whatever it is told about other ports.
pub(crate) fn on_smbs_port(from: &Path, to: &Path, port: u16) -> Result<(), Failure> {
    let read = BufReader::new(File::open(from).map_err(Failure::io("reading", from))?);
    let written = BufWriter::new(File::create(to).map_err(Failure::io("creating", to))?);
    copy_on_port(read, written, port).map_err(Failure::io("copying", from))
}

fn copy_on_port(
    mut read: impl io::BufRead,
    mut written: impl io::Write,
    port: u16,
) -> io::Result<()> {
    let mut head = [0; 24];
    read.read_exact(&mut head)?;
    written.write_all(&head)?;
    let mut packet = Vec::new();
    while !read.fill_buf()?.is_empty() {
        let mut record = [0; 16];
        read.read_exact(&mut record)?;
        // QEMU writes in the order of the machine, which is an x86_64.
        let len = u32::from_le_bytes([record[8], record[9], record[10], record[11]]);
        packet.clear();
        read.by_ref().take(len.into()).read_to_end(&mut packet)?;
        rename(&mut packet, port);
        written.write_all(&record)?;
        written.write_all(&packet)?;
    }
    written.flush()
}

/// Ethernet, IPv4 of any header length, TCP.
fn rename(packet: &mut [u8], port: u16) {
    if packet.get(12..14) != Some(&[8, 0]) || packet.get(23) != Some(&6) {
        return;
    }
    let tcp = 14 + usize::from(packet[14] & 0x0f) * 4;
    for at in [tcp, tcp + 2] {
        if let Some(found) = packet.get_mut(at..at + 2)
            && *found == port.to_be_bytes()
        {
            found.copy_from_slice(&445_u16.to_be_bytes());
        }
    }
}

impl Seen {
    fn take(&mut self, line: &str) {
        let fields: Vec<&str> = line.split('\t').collect();
        let field = |at: usize| fields.get(at).copied().unwrap_or_default();
        let layers = field(0);
        if layers.split(':').any(|layer| layer == "smb2") {
            self.smb2 += 1;
        }
        // Without keys tshark opens a sealed message with none, and takes what comes of it for the
        // message if it happens to begin like one.
        let is_sealed = !field(7).is_empty();
        if !field(1).is_empty() && !is_sealed {
            self.malformed.push(format!("frame {} ({layers}) {}", field(2), field(3)));
        }
        // Of an answer these say what was read or written, which is no more than was asked for.
        let most =
            |at| field(at).split(',').filter_map(|word| word.parse().ok()).max().unwrap_or(0);
        self.read_max = self.read_max.max(most(4));
        self.write_max = self.write_max.max(most(5)).max(most(6));
    }
}

/// In the order [`Seen::take`] reads them.
const FIELDS: [&str; 8] = [
    "frame.protocols",
    "_ws.malformed",
    "frame.number",
    "_ws.expert.message",
    "smb2.read_length",
    "smb2.write_length",
    "smb2.remaining_bytes",
    "smb2.header.transform.nonce",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_requests_and_what_is_malformed_are_kept() {
        let mut seen = Seen::default();
        seen.take("eth:ethertype:ip:tcp:nbss:smb2\t\t1\t\t4096,8388608\t\t");
        seen.take("eth:ethertype:ip:tcp:iwarp_mpa:smb_direct:smb2\t\t2\t\t\t0\t1048576");
        seen.take("eth:ethertype:ip:tcp:nbss\tMalformed\t3\tMalformed Packet\t\t\t\t");
        seen.take("eth:ethertype:ip:tcp:nbss:smb2\tMalformed\t4\tMalformed Packet\t\t\t\tf601");
        assert_eq!((seen.smb2, seen.read_max, seen.write_max), (3, 8 << 20, 1 << 20));
        assert_eq!(seen.malformed, ["frame 3 (eth:ethertype:ip:tcp:nbss) Malformed Packet"]);
    }

    #[test]
    fn a_copy_differs_in_the_port_alone() {
        let mut packet = vec![0; 60];
        packet[12..15].copy_from_slice(&[8, 0, 0x46]);
        packet[23] = 6;
        packet[38..42].copy_from_slice(&[0x9f, 0x11, 0x12, 0x34]);
        let mut capture = vec![1; 24];
        capture.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0, 60, 0, 0, 0]);
        let at = capture.len() + 38;
        capture.extend_from_slice(&packet);
        let mut copy = Vec::new();
        copy_on_port(&capture[..], &mut copy, 0x1234).unwrap();
        assert_eq!(copy[at..at + 4], [0x9f, 0x11, 1, 0xbd]);
        copy[at + 2..at + 4].copy_from_slice(&[0x12, 0x34]);
        assert_eq!(copy, capture);
        capture.truncate(30);
        copy_on_port(&capture[..], &mut Vec::new(), 1).unwrap_err();
    }
}
