//! Compounds: several requests in one frame, and the answers of one.

use smb::{Command, Header, HeaderFlags, Route, SessionId, TreeId};

use super::Wire;

/// A PDU that goes on with what the one before it named.
pub(crate) fn related(
    wire: &mut Wire,
    command: Command,
    body: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    let mut pdu = wire.pdu(command, body);
    with_header(&mut pdu, |header| {
        header.flags |= HeaderFlags::RELATED;
        header.session_id = SessionId(u64::MAX);
        header.route = Route::Sync { process_id: 0, tree_id: TreeId::RELATED };
    });
    pdu
}

/// Changes the header of a PDU, which is not signed yet.
pub(crate) fn with_header(pdu: &mut Vec<u8>, change: impl FnOnce(&mut Header)) {
    let mut header = Header::parse(pdu).unwrap();
    change(&mut header);
    let mut changed = Vec::new();
    header.emit(&mut changed);
    pdu.splice(..Header::LEN, changed);
}

/// Links and signs PDUs.
pub(crate) fn compound(wire: &Wire, pdus: Vec<Vec<u8>>) -> Vec<u8> {
    let (mut frame, last) = (Vec::new(), pdus.len() - 1);
    for (index, mut pdu) in pdus.into_iter().enumerate() {
        if index < last {
            pdu.resize(pdu.len().next_multiple_of(8), 0);
            let next = u32::try_from(pdu.len()).unwrap();
            pdu[NEXT_COMMAND..NEXT_COMMAND + 4].copy_from_slice(&next.to_le_bytes());
        }
        wire.sign(&mut pdu);
        frame.extend_from_slice(&pdu);
    }
    frame
}

/// The headers of all PDUs of a frame.
pub(crate) fn headers(frame: &[u8]) -> Vec<Header> {
    smb::compound::walk(frame).map(|pdu| pdu.unwrap().1).collect()
}

// MS-SMB2 §2.2.1.
const NEXT_COMMAND: usize = 20;
