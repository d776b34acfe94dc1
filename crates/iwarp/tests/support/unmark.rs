//! A receiver of markers, with which the tests check the sender; the crate itself only sends markers.

/// Takes markers out of a stream, checking each of them and the CRC that covers them.
#[derive(Debug, Default)]
pub(crate) struct Unmarker {
    position: usize,
}

impl Unmarker {
    /// Turns whole frames with markers into the same frames without.
    pub(crate) fn strip(&mut self, bytes: &[u8], crc: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (size, ulpdu) = self.frame(rest, crc);
            out.extend(if crc { super::frame(&ulpdu) } else { without_crc(&ulpdu) });
            self.position += size;
            rest = &rest[size..];
        }
        out
    }

    /// One frame: its size on the wire and its ULPDU.
    fn frame(&self, bytes: &[u8], crc: bool) -> (usize, Vec<u8>) {
        let mut content = Vec::new();
        let mut size = usize::MAX;
        let mut start = None;
        let mut at = 0;
        while content.len() < size {
            if (self.position + at).is_multiple_of(512) {
                let back = start.map_or(0, |start| u16::try_from(at - start).unwrap());
                assert_eq!(bytes[at..at + 4], [[0, 0], back.to_be_bytes()].concat());
                at += 4;
            }
            start = start.or(Some(at));
            content.extend_from_slice(&bytes[at..at + 4]);
            at += 4;
            if content.len() == 4 {
                let len = usize::from(u16::from_be_bytes([content[0], content[1]]));
                size = (2 + len).next_multiple_of(4) + 4;
            }
        }
        let field = u32::from_le_bytes(bytes[at - 4..at].try_into().unwrap());
        assert_eq!(field, if crc { iwarp::mpa::crc32c(&bytes[..at - 4]) } else { 0 });
        let len = usize::from(u16::from_be_bytes([content[0], content[1]]));
        (at, content[2..2 + len].to_vec())
    }
}

fn without_crc(ulpdu: &[u8]) -> Vec<u8> {
    let mut bytes = super::frame(ulpdu);
    let end = bytes.len() - 4;
    bytes[end..].fill(0);
    bytes
}
