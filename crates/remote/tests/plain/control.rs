//! A control side that is not SMB: requests of one byte, two numbers and some bytes over a TCP connection.
//!
//! ```text
//!   request | what 1 | offset 8 | length 8 | bytes |      answer | is it so 1 | length 8 | bytes |
//! ```
//! The server sends recalls on a second connection, one byte each.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use pmem::DurabilityClass;
use rdma::{PeerOperations, Rkey};
use remote::host::{PushConnection, Token};
use remote::{
    Control, FallbackReason, Invitation, Listener, Mapping, Messages, Piece, Promise, Recall,
};
use thiserror::Error;

/// The messages of this control side.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Plain {}

/// A request failed.
#[derive(Debug, Error)]
pub(crate) enum PlainError {
    #[error("the server refused")]
    Refused,
    #[error(transparent)]
    Lost(#[from] io::Error),
}

impl Messages for Plain {
    type Error = PlainError;
    type Refusal = Infallible;
    type Status = Infallible;

    const NAME: &'static str = "plain";
    const PLAIN: &'static str = "plain reads, writes and flushes";
    const COMMIT: &'static str = "plain commit";

    fn reason(_: &PlainError) -> FallbackReason<Self> {
        FallbackReason::ControlLost
    }
}

pub(crate) const REQUESTS: u8 = b'r';
pub(crate) const RECALLS: u8 = b'w';
pub(crate) const INVITE: u8 = 1;
pub(crate) const MAP: u8 = 2;
pub(crate) const UNMAP: u8 = 3;
pub(crate) const IS_WHOLE: u8 = 4;
pub(crate) const WRITE_AGAIN: u8 = 5;
pub(crate) const READ: u8 = 6;
pub(crate) const WRITE: u8 = 7;
pub(crate) const COMMIT: u8 = 8;

/// The control side of one region.
#[derive(Debug)]
pub(crate) struct PlainControl {
    stream: TcpStream,
    recall: Arc<Mutex<Option<Arc<Recall>>>>,
    range: Range<u64>,
}

impl PlainControl {
    pub(crate) fn connect(server: SocketAddr, range: Range<u64>) -> Self {
        let recall = Arc::new(Mutex::new(None::<Arc<Recall>>));
        let mut recalls = TcpStream::connect(server).unwrap();
        recalls.write_all(&[RECALLS]).unwrap();
        // The server knows the connection for recalls before it grants anything.
        recalls.read_exact(&mut [0]).unwrap();
        let told = Arc::clone(&recall);
        std::thread::spawn(move || {
            while recalls.read_exact(&mut [0]).is_ok() {
                told.lock().unwrap().iter().for_each(|recall| recall.ask());
            }
        });
        let mut stream = TcpStream::connect(server).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(&[REQUESTS]).unwrap();
        Self { stream, recall, range }
    }

    fn ask(&mut self, what: u8, offset: u64, len: u64, bytes: &[u8]) -> Result<Answer, PlainError> {
        let numbers = [offset.to_le_bytes(), len.to_le_bytes()].concat();
        self.stream.write_all(&[&[what][..], &numbers, bytes].concat())?;
        let (mut is_so, mut length) = ([0], [0; 8]);
        self.stream.read_exact(&mut is_so)?;
        self.stream.read_exact(&mut length)?;
        let mut bytes = vec![0; usize::try_from(u64::from_le_bytes(length)).unwrap()];
        self.stream.read_exact(&mut bytes)?;
        Ok(Answer { is_so: is_so == [1], bytes })
    }

    /// A request whose refusal is a failure.
    pub(crate) fn must(
        &mut self,
        what: u8,
        range: Range<u64>,
        bytes: &[u8],
    ) -> Result<Vec<u8>, PlainError> {
        let answer = self.ask(what, range.start, range.end - range.start, bytes)?;
        if answer.is_so { Ok(answer.bytes) } else { Err(PlainError::Refused) }
    }
}

struct Answer {
    is_so: bool,
    bytes: Vec<u8>,
}

impl Control<Plain> for PlainControl {
    fn invite(&mut self) -> Result<Invitation, FallbackReason<Plain>> {
        let answer = self.must(INVITE, 0..0, &[]).map_err(|error| Plain::reason(&error))?;
        let (token, address) = answer.split_at(Token::LEN);
        Ok(Invitation {
            listeners: vec![Listener {
                address: std::str::from_utf8(address).unwrap().parse().unwrap(),
                private_data: token.to_vec(),
            }],
            same_host: None,
            class: DurabilityClass::Pmem,
            is_emulated: false,
        })
    }

    fn promise(&self) -> Option<Promise> {
        Some(Promise { class: DurabilityClass::Pmem, is_emulated: false })
    }

    fn connection(&self, reply: &[u8]) -> Option<u64> {
        reply.try_into().ok().map(|bytes| PushConnection::from_bytes(bytes).0)
    }

    fn map(&mut self, connection: u64, recall: &Arc<Recall>) -> Result<Mapping, PlainError> {
        *self.recall.lock().unwrap() = Some(Arc::clone(recall));
        let range = self.range.clone();
        let answer = self.must(MAP, range.clone(), &connection.to_le_bytes())?;
        let (operations, rest) = answer.split_first().unwrap();
        let (rkey, remote_addr) = rest.split_first_chunk().unwrap();
        let piece = Piece {
            rkey: Rkey(u32::from_le_bytes(*rkey)),
            remote_addr: u64::from_le_bytes(remote_addr.try_into().unwrap()),
            len: range.end - range.start,
        };
        let operations = PeerOperations::from_bits_truncate(*operations);
        Ok(Mapping { operations, pieces: vec![piece] })
    }

    fn unmap(&mut self) -> Result<(), PlainError> {
        self.must(UNMAP, 0..0, &[]).map(drop)
    }

    fn may_replay(&mut self) -> bool {
        self.must(IS_WHOLE, 0..0, &[]).is_ok()
    }

    fn write_again(&mut self, file_offset: u64, bytes: &[u8]) -> Result<bool, PlainError> {
        let len = u64::try_from(bytes.len()).unwrap();
        self.ask(WRITE_AGAIN, file_offset, len, bytes).map(|answer| answer.is_so)
    }

    fn settle(&mut self) {}

    fn read(&mut self, file_offset: u64, out: &mut [u8]) -> Result<(), PlainError> {
        let end = file_offset + u64::try_from(out.len()).unwrap();
        let answer = self.must(READ, file_offset..end, &[])?;
        out.copy_from_slice(&answer);
        Ok(())
    }

    fn write(&mut self, file_offset: u64, bytes: &[u8]) -> Result<(), PlainError> {
        let end = file_offset + u64::try_from(bytes.len()).unwrap();
        self.must(WRITE, file_offset..end, bytes).map(drop)
    }

    fn commit(&mut self, range: Range<u64>) -> Result<(), PlainError> {
        self.must(COMMIT, range, &[]).map(drop)
    }

    fn flush(&mut self) -> Result<(), PlainError> {
        self.must(COMMIT, self.range.clone(), &[]).map(drop)
    }

    /// The file lies with the listener; there is nothing to let go of.
    fn close(&mut self) -> Result<(), PlainError> {
        Ok(())
    }
}
