//! How long the answer of a request may become: what its sender asks for, before anything is carried out.
//!
//! Read from the fixed part of the request alone; a request that is too short asks for nothing, and is
//! refused when its turn comes.
//!
//! Spec: MS-SMB2 §2.2.19 (READ), §2.2.31 (IOCTL), §2.2.33 (QUERY_DIRECTORY), §2.2.37 (QUERY_INFO), §2.2.21
//! (WRITE).

use smb::{Command, Header};

use crate::connections::Link;

/// Bytes that `pdu` asks for beside the fixed part of its answer. Those of a READ by RDMA count too: they are
/// in memory before they leave.
pub(crate) fn bytes(header: &Header, pdu: &[u8]) -> usize {
    let at = match header.command {
        Command::READ | Command::QUERY_INFO => LENGTH,
        Command::QUERY_DIRECTORY => LISTING_LENGTH,
        Command::IOCTL => OUTPUT_LENGTH,
        _ => return 0,
    };
    let field = pdu.get(Header::LEN + at..).and_then(|rest| rest.first_chunk());
    field.map_or(0, |bytes| usize::try_from(u32::from_le_bytes(*bytes)).unwrap_or(usize::MAX))
}

/// Bytes that a WRITE has the server fetch from its client's memory, if it pays for them.
pub(crate) fn fetched(link: &Link, header: &Header, pdu: &[u8]) -> usize {
    if header.command != Command::WRITE || link.remote_memory().is_none() {
        return 0;
    }
    let length = in_memory_of_client(pdu).filter(|length| is_paid(link, header, *length));
    length.map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX))
}

// Bytes of a WRITE that its message does not hold.
fn in_memory_of_client(pdu: &[u8]) -> Option<u32> {
    let [channel @ .., _, _, _, _] = pdu.get(Header::LEN + WRITE_CHANNEL..)?.first_chunk::<8>()?;
    let length = pdu.get(Header::LEN + WRITE_CHANNEL + 4..)?.first_chunk::<4>()?;
    (*channel != [0; 4]).then(|| u32::from_le_bytes(*length))
}

/// [`bytes`] of what `pdu` pays for: one that asks for more than its credits pay for is refused before it is carried out.
pub(crate) fn paid(link: &Link, header: &Header, pdu: &[u8]) -> usize {
    let asked = bytes(header, pdu);
    let is_paid = u32::try_from(asked).is_ok_and(|asked| is_paid(link, header, asked));
    if is_paid { asked } else { 0 }
}

/// MS-SMB2 §3.3.5.2.5: each credit pays for 64 KiB sent or received.
pub(crate) fn is_paid(link: &Link, header: &Header, bytes: u32) -> bool {
    let paid = u32::from(header.credit_charge.max(1)).saturating_mul(64 * 1024);
    let counts = link.agreed.get().is_some_and(|agreed| agreed.is_multi_credit());
    !counts || bytes <= paid
}

// Offsets in the body.
const LENGTH: usize = 4;
const LISTING_LENGTH: usize = 28;
const OUTPUT_LENGTH: usize = 44;
/// Channel, with RemainingBytes behind it.
const WRITE_CHANNEL: usize = 32;

#[cfg(test)]
mod tests {
    use smb::MessageId;

    use super::*;

    // Bodies typed from the tables of the specification: what is asked for is 0x11223344, the rest is 0xaa.
    #[test]
    fn the_length_is_found_where_the_specification_has_it() {
        let cases = [
            (Command::READ, 49, 4),
            (Command::QUERY_INFO, 41, 4),
            (Command::QUERY_DIRECTORY, 33, 28),
            (Command::IOCTL, 57, 44),
        ];
        for (command, len, at) in cases {
            let header = Header::request(command, MessageId(1));
            let mut pdu = Vec::new();
            header.emit(&mut pdu);
            pdu.resize(Header::LEN + len, 0xaa);
            pdu[Header::LEN + at..][..4].copy_from_slice(&[0x44, 0x33, 0x22, 0x11]);
            assert_eq!(bytes(&header, &pdu), 0x1122_3344, "{command:?}");
            assert_eq!(bytes(&header, &pdu[..Header::LEN + at + 3]), 0, "{command:?} cut short");
        }
        let mut pdu = vec![0; Header::LEN + 49];
        pdu[Header::LEN + 32..][..8].copy_from_slice(&[1, 0, 0, 0, 0x44, 0x33, 0x22, 0x11]);
        assert_eq!(in_memory_of_client(&pdu), Some(0x1122_3344));
        assert_eq!(in_memory_of_client(&pdu[..Header::LEN + 39]), None, "cut short");
        pdu[Header::LEN + 32] = 0;
        assert_eq!(in_memory_of_client(&pdu), None, "it is in the message");
        let header = Header::request(Command::WRITE, MessageId(1));
        assert_eq!(bytes(&header, &[0xff; 200]), 0);
    }
}
