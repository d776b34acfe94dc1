//! A control connection from the client's side. Calls block.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use basics::Environment;
use thiserror::Error;

use crate::token::Token;
use crate::wire::{
    Answer, FRAME_MAX, GREETING_LEN, NONCE_LEN, Nonces, Request, Status, parse_greeting, reply,
};

/// See the module.
#[derive(Debug)]
pub(crate) struct Control {
    stream: TcpStream,
    nonces: Nonces,
    sequence: u64,
    incarnation: u64,
}

impl Control {
    /// Connects and exchanges greetings.
    pub(crate) fn connect(
        address: SocketAddr,
        environment: &Environment,
        patience: Duration,
    ) -> Result<Self, CallError> {
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let mut greeting = [0; GREETING_LEN];
        stream.read_exact(&mut greeting)?;
        let (daemon, incarnation) = parse_greeting(&greeting).ok_or(CallError::PeerGarbled)?;
        let mut client = [0; NONCE_LEN];
        environment.random.fill(&mut client).map_err(io::Error::other)?;
        stream.write_all(&reply(&client))?;
        Ok(Self { stream, nonces: Nonces { daemon, client }, sequence: 0, incarnation })
    }

    /// The daemon's incarnation when it greeted.
    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Asks, and waits for the answer for `patience` at most. After an error other than a refusal the connection is of
    /// no more use.
    pub(crate) fn call(
        &mut self,
        request: &Request,
        token: &Token,
        patience: Duration,
    ) -> Result<Answer, CallError> {
        let sequence = self.sequence;
        self.sequence += 1;
        self.stream.set_read_timeout(Some(patience))?;
        self.stream.write_all(&request.seal(sequence, token, &self.nonces))?;
        let mut len = [0; 4];
        self.stream.read_exact(&mut len)?;
        let len = usize::try_from(u32::from_le_bytes(len)).unwrap_or(usize::MAX);
        if len > FRAME_MAX {
            return Err(CallError::PeerGarbled);
        }
        let mut frame = vec![0; len];
        self.stream.read_exact(&mut frame)?;
        match Answer::open(&frame, sequence, token, &self.nonces) {
            Some(Answer::Refused { status, detail }) => Err(CallError::Refused { status, detail }),
            Some(answer) => Ok(answer),
            None => Err(CallError::PeerGarbled),
        }
    }

    /// A call whose answer says no more than that it is done.
    pub(crate) fn order(
        &mut self,
        request: &Request,
        token: &Token,
        patience: Duration,
    ) -> Result<(), CallError> {
        match self.call(request, token, patience)? {
            Answer::Done => Ok(()),
            _ => Err(CallError::PeerGarbled),
        }
    }
}

/// Why a call failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CallError {
    /// The daemon cannot be reached, or does not answer.
    #[error("no answer: {0}")]
    Io(#[from] io::Error),
    /// The daemon answers what is no answer.
    #[error("it answers what is no answer of a store's daemon")]
    PeerGarbled,
    /// The daemon refuses.
    #[error("{status}")]
    Refused {
        /// Why.
        status: Status,
        /// See [`Answer::Refused`].
        detail: u64,
    },
}

impl CallError {
    /// Why the daemon refuses, if it does.
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// How long a daemon may take for an answer.
pub(crate) const CALL_PATIENCE: Duration = Duration::from_secs(3);
