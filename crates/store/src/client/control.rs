//! A control connection from the client's side. Calls block.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

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
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(patience))?;
        let mut client = [0; NONCE_LEN];
        environment.random.fill(&mut client).map_err(io::Error::other)?;
        let nonces = Nonces { daemon: [0; NONCE_LEN], client };
        let mut control = Self { stream, nonces, sequence: 0, incarnation: 0 };
        let mut greeting = [0; GREETING_LEN];
        control.read_until(Instant::now() + patience, &mut greeting)?;
        let (daemon, incarnation) = parse_greeting(&greeting).ok_or(CallError::PeerGarbled)?;
        control.stream.write_all(&reply(&client))?;
        (control.nonces.daemon, control.incarnation) = (daemon, incarnation);
        Ok(control)
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
        let deadline = Instant::now() + patience;
        self.stream.write_all(&request.seal(sequence, token, &self.nonces))?;
        let mut len = [0; 4];
        self.read_until(deadline, &mut len)?;
        let len = usize::try_from(u32::from_le_bytes(len)).unwrap_or(usize::MAX);
        if len > FRAME_MAX {
            return Err(CallError::PeerGarbled);
        }
        let mut frame = vec![0; len];
        self.read_until(deadline, &mut frame)?;
        match Answer::open(&frame, sequence, token, &self.nonces) {
            Some(Answer::Refused { status, detail }) => Err(CallError::Refused { status, detail }),
            Some(answer) => Ok(answer),
            None => Err(CallError::PeerGarbled),
        }
    }

    /// Reads all of `out` before the deadline: a daemon that answers byte by byte has no more time than one that says nothing.
    fn read_until(&mut self, deadline: Instant, mut out: &mut [u8]) -> io::Result<()> {
        while !out.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(out) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) => out = &mut out[got..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_daemon_that_greets_byte_by_byte_has_no_more_time_than_a_silent_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let daemon = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // One byte less than a greeting, over and over, until the client has gone.
            let mut sent = 0;
            while stream.write_all(&[b'L'; 1]).is_ok() {
                sent += 1;
                if sent >= GREETING_LEN - 1 {
                    let _ = stream.read(&mut [0]);
                    return;
                }
                std::thread::yield_now();
            }
        });
        let environment = Environment::host();
        let refused = Control::connect(address, &environment, Duration::from_millis(50));
        assert!(matches!(refused, Err(CallError::Io(_))), "{refused:?}");
        daemon.join().unwrap();
    }
}
