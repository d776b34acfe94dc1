//! The control side of a region: lines to the process that hosts, and back.

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use pmem::DurabilityClass;
use rdma::{PeerOperations, Rkey};
use remote::host::PushConnection;
use remote::{
    Control, FallbackReason, Invitation, Listener, Mapping, Messages, Piece, Promise, Recall,
};
use thiserror::Error;

use crate::{Failure, host};

/// The process that hosts. It ends with the value, whose end closes its input.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    pipe: Mutex<Pipe>,
    _child: Child,
}

#[derive(Debug)]
struct Pipe {
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Server {
    pub(crate) fn start() -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(host::SERVE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let requests = child.stdin.take().ok_or("no input")?;
        let mut answers = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut address = String::new();
        answers.read_line(&mut address)?;
        let pipe = Mutex::new(Pipe { requests, answers });
        Ok(Self { address: address.trim().parse()?, pipe, _child: child })
    }

    fn ask(&self, request: &str) -> Result<String, LineError> {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(pipe.requests, "{request}")?;
        let mut answer = String::new();
        pipe.answers.read_line(&mut answer)?;
        Ok(answer)
    }
}

/// The messages of this control side.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lines {}

/// A request failed.
#[derive(Debug, Error)]
pub(crate) enum LineError {
    /// The other process is gone.
    #[error(transparent)]
    Lost(#[from] std::io::Error),
    /// Its answer makes no sense.
    #[error("the answer makes no sense")]
    Answer,
    /// This program measures push mode alone.
    #[error("there are no such messages")]
    NoMessages,
}

impl Messages for Lines {
    type Error = LineError;
    type Refusal = Infallible;
    type Status = Infallible;

    const NAME: &'static str = "lines";
    const PLAIN: &'static str = "no messages";
    const COMMIT: &'static str = "no message";

    fn reason(_: &LineError) -> FallbackReason<Self> {
        FallbackReason::ControlLost
    }
}

/// The control side of one region.
#[derive(Debug)]
pub(crate) struct LineControl(pub(crate) Arc<Server>);

impl Control<Lines> for LineControl {
    fn invite(&mut self) -> Result<Invitation, FallbackReason<Lines>> {
        let token = self.0.ask("invite").map_err(|error| Lines::reason(&error))?;
        let pairs = token.trim().as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let token: Option<Vec<u8>> = pairs.map(byte).collect();
        Ok(Invitation {
            listeners: vec![Listener {
                address: self.0.address,
                private_data: token.ok_or(FallbackReason::ControlLost)?,
            }],
            same_host: None,
            class: DurabilityClass::Volatile,
            is_emulated: true,
        })
    }

    fn promise(&self) -> Option<Promise> {
        Some(Promise { class: DurabilityClass::Volatile, is_emulated: true })
    }

    fn connection(&self, reply: &[u8]) -> Option<u64> {
        reply.try_into().ok().map(|bytes| PushConnection::from_bytes(bytes).0)
    }

    fn map(&mut self, connection: u64, _: &Arc<Recall>) -> Result<Mapping, LineError> {
        let answer = self.0.ask(&format!("map {connection}"))?;
        let mut numbers = answer.split_whitespace().map(str::parse::<u64>);
        let mut next = || numbers.next().and_then(Result::ok).ok_or(LineError::Answer);
        let (rkey, remote_addr, operations) = (next()?, next()?, next()?);
        let rkey = Rkey(u32::try_from(rkey).map_err(|_| LineError::Answer)?);
        let operations = u8::try_from(operations).map_err(|_| LineError::Answer)?;
        let operations = PeerOperations::from_bits_truncate(operations);
        Ok(Mapping { operations, pieces: vec![Piece { rkey, remote_addr, len: host::LEN }] })
    }

    fn unmap(&mut self) -> Result<(), LineError> {
        Ok(())
    }

    fn may_replay(&mut self) -> bool {
        false
    }

    fn write_again(&mut self, _: u64, _: &[u8]) -> Result<bool, LineError> {
        Ok(false)
    }

    fn settle(&mut self) {}

    fn read(&mut self, _: u64, _: &mut [u8]) -> Result<(), LineError> {
        Err(LineError::NoMessages)
    }

    fn write(&mut self, _: u64, _: &[u8]) -> Result<(), LineError> {
        Err(LineError::NoMessages)
    }

    fn commit(&mut self, _: Range<u64>) -> Result<(), LineError> {
        Err(LineError::NoMessages)
    }

    fn flush(&mut self) -> Result<(), LineError> {
        Err(LineError::NoMessages)
    }

    /// The region is memory of the other process, which ends with it.
    fn close(&mut self) -> Result<(), LineError> {
        Ok(())
    }
}
