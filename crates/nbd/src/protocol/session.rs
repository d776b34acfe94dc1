//! The transmission phase: requests of one client to one export.
//!
//! [`Session::next`] takes a request off the bytes that have arrived, [`Session::carry_out`] does what it asks and
//! appends the reply. The two are apart so that a server may give requests that wait for a disk to other threads:
//! replies may be sent in any order.
//!
//! Spec: NBD protocol, "Transmission", "Request types", "Error values".

use std::ops::Range;

use block::{BlockError, State, Survives, Zeroing};

use super::error::PeerError;
use super::handshake::Agreed;
use super::limits::{EXTENTS_MAX, PAYLOAD_MAX};
use super::output::Output;
use super::reply::{self, EINVAL};
use super::request::{Command, DF, FUA, NO_HOLE, REQ_ONE, Request};

/// A client's use of an export. All methods may be called by many threads at once.
#[derive(Debug)]
pub struct Session {
    agreed: Agreed,
}

/// What the bytes that have arrived begin with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// A message that has not arrived whole: it has so many bytes at least.
    NeedsMore(usize),
    /// A request, and where in the bytes its data lie. The next message begins at the end of the range.
    Request(Request, Range<usize>),
    /// The client takes its leave.
    Disconnected,
}

/// Why a request is not carried out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Refusal {
    /// The client may not ask for this, or not so.
    Invalid(&'static str),
    /// The device refuses.
    Device(BlockError),
}

impl From<BlockError> for Refusal {
    fn from(error: BlockError) -> Self {
        Self::Device(error)
    }
}

impl Session {
    /// The transmission that a handshake has led to.
    pub fn new(agreed: Agreed) -> Self {
        Self { agreed }
    }

    /// Whether a request may wait for a disk.
    pub fn may_wait(&self) -> bool {
        self.agreed.export.device().geometry().may_wait
    }

    /// The message that `bytes` begin with.
    ///
    /// # Errors
    ///
    /// The connection is to be ended.
    pub fn next(&self, bytes: &[u8]) -> Result<Step, PeerError> {
        let Some(request) = Request::parse(bytes)? else {
            return Ok(Step::NeedsMore(Request::LEN));
        };
        let end = Request::LEN + request.data_len();
        Ok(match (request.command, bytes.len() < end) {
            (Command::DISCONNECT, _) => Step::Disconnected,
            (_, true) => Step::NeedsMore(end),
            (_, false) => Step::Request(request, Request::LEN..end),
        })
    }

    /// Does what a request asks for, and appends the reply. `data` are the bytes of a write.
    pub fn carry_out(&self, request: &Request, data: &[u8], output: &mut Output) {
        let start = output.len();
        let done = match request.command {
            Command::READ => self.read(request, output),
            Command::BLOCK_STATUS => self.status(request, output),
            _ => self.change(request, data).map(|()| reply::simple(output, request.cookie, 0)),
        };
        if let Err(refusal) = done {
            output.truncate(start);
            self.refuse(request, refusal, output);
        }
    }

    fn refuse(&self, request: &Request, refusal: Refusal, output: &mut Output) {
        let error = match refusal {
            Refusal::Invalid(_) => EINVAL,
            Refusal::Device(error) => reply::code(error),
        };
        let is_structured = self.agreed.has_structured_replies
            && matches!(request.command, Command::READ | Command::BLOCK_STATUS);
        match (is_structured, refusal) {
            (false, _) => reply::simple(output, request.cookie, error),
            (true, Refusal::Invalid(words)) => reply::failure(output, request.cookie, error, words),
            (true, Refusal::Device(device)) => {
                reply::failure(output, request.cookie, error, &device.to_string());
            }
        }
    }

    fn read(&self, request: &Request, output: &mut Output) -> Result<(), Refusal> {
        let is_structured = self.agreed.has_structured_replies;
        let known = if is_structured { FUA | DF } else { FUA };
        if !request.has_only(known) {
            return Err(Refusal::Invalid("a read has no such flag"));
        }
        if request.len > PAYLOAD_MAX {
            return Err(Refusal::Invalid("a read of more bytes than the server announced"));
        }
        // Before any memory is taken for the bytes.
        self.check_read(request)?;
        match (is_structured, request.len) {
            (false, _) => reply::simple(output, request.cookie, 0),
            (true, 0) => {
                reply::nothing(output, request.cookie);
                return Ok(());
            }
            (true, len) => reply::data(output, request.cookie, request.offset, len),
        }
        let space = output.space(usize::try_from(request.len).expect("PAYLOAD_MAX at most"));
        Ok(self.agreed.export.device().read(request.offset, space)?)
    }

    fn status(&self, request: &Request, output: &mut Output) -> Result<(), Refusal> {
        if !self.agreed.has_allocation || !request.has_only(FUA | REQ_ONE) || request.len == 0 {
            return Err(Refusal::Invalid("no such question was agreed on"));
        }
        self.check_read(request)?;
        let device = self.agreed.export.device();
        let most = if request.has(REQ_ONE) { 1 } else { EXTENTS_MAX };
        let (mut at, mut left) = (request.offset, u64::from(request.len));
        let mut extents: Vec<(u32, State)> = Vec::new();
        // A device tells part by part, and two parts in a row may be alike: the bound is on both.
        for _ in 0..2 * EXTENTS_MAX {
            if left == 0 {
                break;
            }
            let extent = device.status(at, left)?;
            let len = u32::try_from(extent.len.min(left)).expect("no more than the request");
            let is_full = extents.len() == most;
            match extents.last_mut() {
                Some((before, state)) if *state == extent.state => *before += len,
                _ if is_full => break,
                _ => extents.push((len, extent.state)),
            }
            (at, left) = (at + u64::from(len), left - u64::from(len));
        }
        reply::states(output, request.cookie, &extents);
        Ok(())
    }

    fn change(&self, request: &Request, data: &[u8]) -> Result<(), Refusal> {
        let device = self.agreed.export.device();
        let (offset, len) = (request.offset, u64::from(request.len));
        let survives = if request.has(FUA) { Survives::Durable } else { Survives::Placed };
        let known = match request.command {
            Command::WRITE | Command::TRIM | Command::FLUSH => FUA,
            Command::WRITE_ZEROES => FUA | NO_HOLE,
            _ => return Err(Refusal::Invalid("no such command")),
        };
        if !request.has_only(known) {
            return Err(Refusal::Invalid("the command has no such flag"));
        }
        match request.command {
            Command::FLUSH if offset != 0 || len != 0 => {
                return Err(Refusal::Invalid("a flush has no range"));
            }
            Command::FLUSH => device.flush()?,
            _ => {
                device.geometry().check_change(offset, len)?;
                match request.command {
                    Command::WRITE => device.write(offset, data, survives)?,
                    Command::TRIM => device.trim(offset, len, survives)?,
                    _ => {
                        let is_kept = request.has(NO_HOLE);
                        let zeroing = if is_kept { Zeroing::KeepSpace } else { Zeroing::MayFree };
                        device.write_zeroes(offset, len, zeroing, survives)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn check_read(&self, request: &Request) -> Result<(), Refusal> {
        let geometry = self.agreed.export.device().geometry();
        Ok(geometry.check_read(request.offset, u64::from(request.len))?)
    }
}
