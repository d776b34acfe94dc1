//! What stands around and between messages: framing, the header, compounds, transforms, SMB1.

use smb::compound::{COMPOUND_PDUS_MAX, CompoundWriter, walk};
use smb::{Command, Header, Protocol, TransformHeader, framing, smb1};

use super::{commands, stable_bytes};

/// Whatever may stand at the beginning of a connection.
pub(crate) fn beginning(data: &[u8]) {
    if let Some((prefix, frame)) = data.split_first_chunk::<4>() {
        if let Ok(len) = framing::frame_len(*prefix, framing::FRAME_LEN_MAX) {
            assert_eq!(framing::prefix(len), Some(*prefix));
        }
        let _ = Protocol::of(frame);
    }
    let _ = Protocol::of(data);
    let _ = smb1::Smb1Negotiate::parse(data);
    stable_bytes!(Header, data);
    if let Ok((transform, ciphertext)) = TransformHeader::parse(data) {
        let mut again = Vec::new();
        transform.emit(&mut again);
        again.extend_from_slice(ciphertext);
        assert_eq!(TransformHeader::parse(&again), Ok((transform, ciphertext)));
    }
}

/// A frame of several PDUs: walked, each taken for what it says it is, and put together again.
pub(crate) fn compound(frame: &[u8]) {
    let mut steps = walk(frame);
    let mut end = 0;
    let mut pdus = Vec::new();
    while let Some(step) = steps.next() {
        let Ok((range, header)) = step else {
            assert!(steps.next().is_none(), "after an error the walk is over");
            return;
        };
        assert!(range.start == end && range.end <= frame.len() && range.len() >= Header::LEN);
        end = range.end;
        let pdu = steps.pdu(range);
        commands::any(&header, pdu);
        pdus.push((header, pdu));
    }
    assert!(end == frame.len() && (1..=COMPOUND_PDUS_MAX).contains(&pdus.len()));
    let mut again = Vec::new();
    let mut writer = CompoundWriter::new(&mut again);
    for (header, pdu) in &pdus {
        writer.push(header, |out| out.extend_from_slice(&pdu[Header::LEN..]));
    }
    let ranges = writer.finish();
    let seen: Vec<_> = walk(&again).map(|step| step.expect("we write what we walk")).collect();
    assert_eq!(seen.len(), pdus.len());
    for (((range, header), written), (was, pdu)) in seen.into_iter().zip(ranges).zip(&pdus) {
        assert_eq!(range, written);
        assert!(again[range][Header::LEN..].starts_with(&pdu[Header::LEN..]));
        assert_eq!((header.command, header.message_id), (was.command, was.message_id));
    }
}

/// One PDU of any command, taken for a request and for a response.
pub(crate) fn pdu(data: &[u8]) {
    let Ok(header) = Header::parse(data) else { return };
    if !matches!(header.command, Command::CREATE | Command::NEGOTIATE) {
        commands::any(&header, data);
    }
}
