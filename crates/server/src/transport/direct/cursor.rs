//! Walks a transfer over the peer's buffers in pieces that fit one work request each.

use std::slice;

use rdma::Rkey;
use smb::NtStatus;
use smbdirect::{Descriptors, RemotePiece};

/// The position of a transfer in the peer's memory.
#[derive(Debug)]
pub(super) struct Cursor {
    pieces: Pieces,
    index: usize,
    within: u32,
}

/// The peer memory of a transfer, which is almost always in one piece.
#[derive(Debug)]
enum Pieces {
    One(RemotePiece),
    Several(Vec<RemotePiece>),
}

impl Pieces {
    fn of(mut pieces: impl Iterator<Item = RemotePiece>) -> Self {
        match (pieces.next(), pieces.next()) {
            (Some(one), None) => Self::One(one),
            (first, second) => {
                Self::Several(first.into_iter().chain(second).chain(pieces).collect())
            }
        }
    }

    fn all(&self) -> &[RemotePiece] {
        match self {
            Self::One(piece) => slice::from_ref(piece),
            Self::Several(pieces) => pieces,
        }
    }
}

/// The chunk of one work request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Chunk {
    /// Where the chunk lies in the transfer, in bytes.
    pub(super) position: usize,
    /// The peer's region.
    pub(super) rkey: Rkey,
    /// Address in the region.
    pub(super) remote_addr: u64,
    /// Length in bytes, never zero.
    pub(super) len: u32,
}

impl Cursor {
    /// Begins a transfer of `len` bytes over the descriptors of a request.
    ///
    /// MS-SMB2 §3.3.5.12 and §3.3.5.13: descriptors that cannot be parsed or cover too little make
    /// the request invalid; the connection goes on.
    pub(super) fn new(descriptors: &[u8], len: u64) -> Result<Self, NtStatus> {
        let descriptors =
            Descriptors::parse(descriptors).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        let pieces = descriptors.pieces(0, len).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        Ok(Self { pieces: Pieces::of(pieces), index: 0, within: 0 })
    }

    /// Bytes of memory beside the cursor itself.
    pub(super) fn held(&self) -> usize {
        match &self.pieces {
            Pieces::One(_) => 0,
            Pieces::Several(pieces) => pieces.capacity() * size_of::<RemotePiece>(),
        }
    }

    /// Whether the whole transfer was walked.
    pub(super) fn is_done(&self) -> bool {
        self.index == self.pieces.all().len()
    }

    /// The next chunk, of at most `len_max` bytes. It stays the next until [`Cursor::advance`].
    pub(super) fn next_chunk(&self, len_max: u32) -> Option<Chunk> {
        let piece = self.pieces.all().get(self.index)?;
        let position = piece.position + u64::from(self.within);
        Some(Chunk {
            position: usize::try_from(position).expect("a transfer fits in memory"),
            rkey: Rkey(piece.token.0),
            remote_addr: piece.offset + u64::from(self.within),
            len: (piece.length - self.within).min(len_max),
        })
    }

    /// Notes that the next `len` bytes, of one chunk, are in flight.
    pub(super) fn advance(&mut self, len: u32) {
        self.within += len;
        if self.pieces.all().get(self.index).is_some_and(|piece| self.within >= piece.length) {
            self.index += 1;
            self.within = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use smbdirect::{BufferDescriptor, Token};

    use super::*;

    fn list(descriptors: &[(u64, u32, u32)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &(offset, token, length) in descriptors {
            let mut out = [0; 16];
            BufferDescriptor { offset, token: Token(token), length }.emit(&mut out);
            bytes.extend_from_slice(&out);
        }
        bytes
    }

    #[test]
    fn a_transfer_is_cut_at_descriptors_and_at_the_largest_piece() {
        let bytes = list(&[(100, 1, 10), (200, 2, 25)]);
        let mut cursor = Cursor::new(&bytes, 30).unwrap();
        let mut seen = Vec::new();
        while let Some(chunk) = cursor.next_chunk(8) {
            seen.push((chunk.position, chunk.rkey.0, chunk.remote_addr, chunk.len));
            cursor.advance(chunk.len);
        }
        assert!(cursor.is_done());
        assert_eq!(
            seen,
            [(0, 1, 100, 8), (8, 1, 108, 2), (10, 2, 200, 8), (18, 2, 208, 8), (26, 2, 216, 4)]
        );
    }

    #[test]
    fn one_piece_and_several_pieces_are_walked_alike() {
        for count in [1, 2, 3, 9_u32] {
            let each: Vec<_> = (0..count).map(|n| (u64::from(n), n, 1)).collect();
            let mut cursor = Cursor::new(&list(&each), u64::from(count)).unwrap();
            for n in 0..count {
                assert!(!cursor.is_done());
                assert_eq!(cursor.next_chunk(8).unwrap().rkey.0, n);
                cursor.advance(1);
            }
            assert!(cursor.is_done() && cursor.next_chunk(8).is_none());
        }
    }

    #[test]
    fn short_or_truncated_descriptors_are_invalid() {
        let bytes = list(&[(0, 1, 10)]);
        assert_eq!(Cursor::new(&bytes, 11).unwrap_err(), NtStatus::INVALID_PARAMETER);
        assert_eq!(Cursor::new(&bytes[..15], 1).unwrap_err(), NtStatus::INVALID_PARAMETER);
        assert_eq!(Cursor::new(&[], 0).unwrap_err(), NtStatus::INVALID_PARAMETER);
        assert!(Cursor::new(&bytes, 0).unwrap().is_done());
    }
}
