//! How frames travel: the seam between the connection and TCP or SMB Direct.
//!
//! ```text
//!   connection --OutFrame--> FrameSender  ~~~~>  server
//!   connection <--InFrame--- FrameReceiver <~~~~
//! ```
//!
//! Sending never waits: the credits of the protocol bound what can be queued.

pub mod direct;
mod tcp;

use std::any::Any;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

pub use smb::frame_memory::InFrame;
use smb::framing::FRAME_LEN_MAX;
pub use tcp::connect;

use crate::error::ConnectionError;

/// Both halves of an established connection.
#[derive(Debug)]
pub struct Transport {
    /// Sends our frames.
    pub sender: Box<dyn FrameSender>,
    /// Receives the frames of the server.
    pub receiver: Box<dyn FrameReceiver>,
    /// Memory that the server can reach by RDMA; none over TCP.
    pub pool: Option<Arc<direct::Pool>>,
    /// The address of the server, if the transport has one.
    pub peer: Option<IpAddr>,
    /// The longest frames.
    pub limits: FrameLimits,
}

/// The longest frames that a transport carries, in bytes, transform header included.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FrameLimits {
    /// To the server.
    pub send: usize,
    /// From the server.
    pub receive: usize,
}

impl FrameLimits {
    /// Frames as long as their prefix can say.
    pub const NONE: Self = Self { send: FRAME_LEN_MAX, receive: FRAME_LEN_MAX };
}

/// Takes frames, from any task, in the order of the calls.
pub trait FrameSender: Any + fmt::Debug + Send + Sync {
    /// Sends a frame or queues it.
    ///
    /// # Errors
    /// The connection is gone.
    fn send(&self, frame: OutFrame) -> Result<(), ConnectionError>;

    /// Ends the connection; the receiver ends too.
    fn close(&self);
}

/// Yields frames, one after the other.
pub trait FrameReceiver: fmt::Debug + Send {
    /// The next frame.
    ///
    /// # Errors
    /// The connection is gone, or the frame is longer than `len_max`.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        len_max: usize,
    ) -> Poll<Result<InFrame, ConnectionError>>;
}

/// A frame about to be sent, with room in front for what the lower layers add.
///
/// ```text
///  0            4                    56
///  +------------+--------------------+---------------------
///  | prefix     | transform header   | SMB2 message           encrypted: starts at 0
///  +------------+--------------+-----+---------------------
///               | unused       |pref.| SMB2 message           plain: starts at 52
///               +--------------+-----+---------------------
/// ```
#[derive(Debug)]
pub struct OutFrame {
    bytes: Vec<u8>,
    sealed: bool,
}

impl OutFrame {
    /// Bytes in front of the SMB2 message: TCP prefix and transform header.
    pub const HEADROOM: usize = 4 + smb::TransformHeader::LEN;

    /// An empty frame; `emit` appends the SMB2 message.
    pub fn new(capacity: usize, emit: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut bytes = Vec::with_capacity(Self::HEADROOM + capacity);
        bytes.resize(Self::HEADROOM, 0);
        emit(&mut bytes);
        Self { bytes, sealed: false }
    }

    /// The SMB2 message.
    pub fn message(&self) -> &[u8] {
        &self.bytes[Self::HEADROOM..]
    }

    /// The SMB2 message, to be signed in place.
    pub fn message_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[Self::HEADROOM..]
    }

    /// Transform header and message, to be sealed in place; from now on both are sent.
    pub fn seal_mut(&mut self) -> (&mut [u8; smb::TransformHeader::LEN], &mut [u8]) {
        self.sealed = true;
        let (head, message) = self.bytes.split_at_mut(Self::HEADROOM);
        let header = head[4..].first_chunk_mut().expect("52 bytes of headroom");
        (header, message)
    }

    /// The frame in the form of SMB Direct.
    pub fn payload(&self) -> &[u8] {
        &self.bytes[self.start()..]
    }

    /// [`OutFrame::payload`] by value; moves only what a sealed frame has in front.
    fn into_payload(mut self) -> Vec<u8> {
        let start = self.start();
        self.bytes.drain(..start);
        self.bytes
    }

    /// The frame in the form of TCP, with its prefix.
    fn into_tcp(mut self) -> (Vec<u8>, usize) {
        let (start, len) = (self.start(), self.payload().len());
        let prefix = smb::framing::prefix(len).expect("messages are cut to the negotiated sizes");
        self.bytes[start - 4..start].copy_from_slice(&prefix);
        (self.bytes, start - 4)
    }

    fn start(&self) -> usize {
        if self.sealed { 4 } else { Self::HEADROOM }
    }
}
