//! The handshake: from the greeting to the choice of an export.
//!
//! ```text
//!   greeting --> client flags --> option, reply, option, reply ... --> GO or EXPORT_NAME --> transmission
//!                                   |
//!                                   +-- STARTTLS --> TLS --> options again, with nothing kept of before
//! ```
//!
//! Where TLS is required a client that has not started it gets no answer but that.
//!
//! Spec: NBD protocol, "Handshake", "TLS", "Option types".

use std::sync::Arc;

use super::error::PeerError;
use super::limits::{OPTIONS_MAX, PAYLOAD_MAX};
use super::meta::{ALLOCATION, ALLOCATION_ID, Query};
use super::option::{ClientOption, IHAVEOPT, OptionKind, ReplyKind, Wanted, reply};
use super::output::Output;
use crate::{Export, Exports};

/// The handshake of one connection.
#[derive(Debug)]
pub struct Handshake {
    exports: Arc<Exports>,
    tls: TlsPolicy,
    state: State,
    options: u32,
    has_structured_replies: bool,
    /// The export for which the client has chosen the context of allocation.
    allocation_of: Option<Vec<u8>>,
}

/// Whether TLS is to be had, and has to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TlsPolicy {
    /// There is none.
    Off,
    /// Nothing is told or given to a client without it.
    Required,
    /// It has been started.
    Running,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Flags,
    Options { no_zeroes: bool },
}

/// What the bytes that were handled have led to.
#[derive(Clone, Debug)]
pub enum Event {
    /// Nothing yet: more bytes are needed.
    NeedsMore,
    /// An option was answered.
    Answered,
    /// The answer is to be sent, and TLS to be started: [`Handshake::after_tls`] goes on.
    StartTls,
    /// The answer is to be sent, and the transmission begins.
    Transmit(Agreed),
    /// The client takes its leave.
    Aborted,
}

/// What client and server have agreed on.
#[derive(Clone, Debug)]
pub struct Agreed {
    /// The device.
    pub export: Export,
    /// Whether reads are answered in chunks.
    pub has_structured_replies: bool,
    /// Whether the client may ask for states.
    pub has_allocation: bool,
}

impl Handshake {
    /// The greeting of a server goes into `output`.
    pub fn new(exports: Arc<Exports>, tls: TlsPolicy, output: &mut Output) -> Self {
        output.put_u64(NBDMAGIC);
        output.put_u64(IHAVEOPT);
        output.put_u16(FIXED_NEWSTYLE | NO_ZEROES);
        let state = State::Flags;
        let (options, has_structured_replies, allocation_of) = (0, false, None);
        Self { exports, tls, state, options, has_structured_replies, allocation_of }
    }

    /// The handshake after TLS has been started: nothing that was agreed before counts.
    pub fn after_tls(self) -> Self {
        let (has_structured_replies, allocation_of) = (false, None);
        Self { tls: TlsPolicy::Running, has_structured_replies, allocation_of, ..self }
    }

    /// Handles the message that `bytes` begin with, if it has arrived whole; says how many bytes it had.
    ///
    /// # Errors
    ///
    /// The connection is to be ended.
    pub fn handle(
        &mut self,
        bytes: &[u8],
        output: &mut Output,
    ) -> Result<(usize, Event), PeerError> {
        match self.state {
            State::Flags => self.flags(bytes),
            State::Options { no_zeroes } => match ClientOption::parse(bytes)? {
                None => Ok((0, Event::NeedsMore)),
                Some((option, len)) => {
                    self.options += 1;
                    if self.options > OPTIONS_MAX {
                        return Err(PeerError::PeerTooManyOptions);
                    }
                    let event = self.option(option, no_zeroes, output)?;
                    if matches!(event, Event::StartTls) && bytes.len() > len {
                        return Err(PeerError::PeerClearBytes);
                    }
                    Ok((len, event))
                }
            },
        }
    }

    fn flags(&mut self, bytes: &[u8]) -> Result<(usize, Event), PeerError> {
        let Some((flags, _)) = bytes.split_first_chunk::<4>() else {
            return Ok((0, Event::NeedsMore));
        };
        let flags = u32::from_be_bytes(*flags);
        if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
            return Err(PeerError::PeerFlags { flags });
        }
        self.state = State::Options { no_zeroes: flags & u32::from(NO_ZEROES) != 0 };
        Ok((4, Event::Answered))
    }

    fn option(
        &mut self,
        option: ClientOption<'_>,
        no_zeroes: bool,
        output: &mut Output,
    ) -> Result<Event, PeerError> {
        let (kind, data) = (option.kind, option.data);
        let needs_tls = self.tls == TlsPolicy::Required
            && !matches!(kind, OptionKind::STARTTLS | OptionKind::ABORT);
        if needs_tls && kind != OptionKind::EXPORT_NAME {
            return Ok(refuse(output, kind, ReplyKind::ERR_TLS_REQD));
        }
        match kind {
            OptionKind::EXPORT_NAME if needs_tls => Err(PeerError::PeerNoExport),
            OptionKind::EXPORT_NAME => self.export_name(data, no_zeroes, output),
            OptionKind::ABORT => {
                reply(output, kind, ReplyKind::ACK, &[]);
                Ok(Event::Aborted)
            }
            OptionKind::STARTTLS => Ok(self.start_tls(data, output)),
            OptionKind::LIST => Ok(self.list(data, output)),
            OptionKind::INFO | OptionKind::GO => Ok(self.go(kind, data, output)),
            OptionKind::STRUCTURED_REPLY if data.is_empty() => {
                self.has_structured_replies = true;
                Ok(acknowledge(output, kind))
            }
            OptionKind::STRUCTURED_REPLY => Ok(refuse(output, kind, ReplyKind::ERR_INVALID)),
            OptionKind::LIST_META_CONTEXT | OptionKind::SET_META_CONTEXT => {
                Ok(self.contexts(kind, data, output))
            }
            _ => Ok(refuse(output, kind, ReplyKind::ERR_UNSUP)),
        }
    }

    /// The old way of choosing an export, which has no answer but yes.
    fn export_name(
        &self,
        name: &[u8],
        no_zeroes: bool,
        output: &mut Output,
    ) -> Result<Event, PeerError> {
        let export = self.exports.find(name).ok_or(PeerError::PeerNoExport)?;
        output.put_u64(export.device().geometry().size);
        output.put_u16(self.transmission_flags(export));
        if !no_zeroes {
            output.put(&[0; 124]);
        }
        Ok(Event::Transmit(self.agree(export)))
    }

    fn start_tls(&self, data: &[u8], output: &mut Output) -> Event {
        let kind = OptionKind::STARTTLS;
        match self.tls {
            TlsPolicy::Required if data.is_empty() => {
                reply(output, kind, ReplyKind::ACK, &[]);
                Event::StartTls
            }
            TlsPolicy::Required | TlsPolicy::Running => {
                refuse(output, kind, ReplyKind::ERR_INVALID)
            }
            TlsPolicy::Off => refuse(output, kind, ReplyKind::ERR_UNSUP),
        }
    }

    fn list(&self, data: &[u8], output: &mut Output) -> Event {
        let kind = OptionKind::LIST;
        if !data.is_empty() {
            return refuse(output, kind, ReplyKind::ERR_INVALID);
        }
        for export in self.exports.iter() {
            let (name, description) = (export.name().as_bytes(), export.description().as_bytes());
            let len = u32::try_from(name.len()).expect("4096 at most").to_be_bytes();
            reply(output, kind, ReplyKind::SERVER, &[&len, name, description]);
        }
        acknowledge(output, kind)
    }

    fn go(&self, kind: OptionKind, data: &[u8], output: &mut Output) -> Event {
        let Some(wanted) = Wanted::parse(data) else {
            return refuse(output, kind, ReplyKind::ERR_INVALID);
        };
        let Some(export) = self.exports.find(wanted.name) else {
            return refuse(output, kind, ReplyKind::ERR_UNKNOWN);
        };
        let info = |output: &mut Output, number: u16, parts: [&[u8]; 3]| {
            let [a, b, c] = parts;
            reply(output, kind, ReplyKind::INFO, &[&number.to_be_bytes(), a, b, c]);
        };
        let size = export.device().geometry().size.to_be_bytes();
        info(output, INFO_EXPORT, [&size, &self.transmission_flags(export).to_be_bytes(), &[]]);
        if wanted.asks_for(INFO_NAME) {
            info(output, INFO_NAME, [export.name().as_bytes(), &[], &[]]);
        }
        if wanted.asks_for(INFO_DESCRIPTION) && !export.description().is_empty() {
            info(output, INFO_DESCRIPTION, [export.description().as_bytes(), &[], &[]]);
        }
        if wanted.asks_for(INFO_BLOCK_SIZE) {
            // Smaller requests are taken too, and cost a read before a write: a client is told what costs nothing.
            let least = export.block().to_be_bytes();
            let preferred = export.block().max(4096).to_be_bytes();
            info(output, INFO_BLOCK_SIZE, [&least, &preferred, &PAYLOAD_MAX.to_be_bytes()]);
        }
        reply(output, kind, ReplyKind::ACK, &[]);
        if kind == OptionKind::GO { Event::Transmit(self.agree(export)) } else { Event::Answered }
    }

    fn contexts(&mut self, kind: OptionKind, data: &[u8], output: &mut Output) -> Event {
        let is_choice = kind == OptionKind::SET_META_CONTEXT;
        if is_choice {
            // "Replaces all previously-set contexts, including when this command fails".
            self.allocation_of = None;
        }
        let Some(query) = Query::parse(data).filter(|_| self.has_structured_replies) else {
            return refuse(output, kind, ReplyKind::ERR_INVALID);
        };
        if self.exports.find(query.name).is_none() {
            return refuse(output, kind, ReplyKind::ERR_UNKNOWN);
        }
        let is_listed = !is_choice && (query.is_for_all || query.names_namespace);
        if query.names_allocation || is_listed {
            let id = if is_choice { ALLOCATION_ID } else { 0 }.to_be_bytes();
            reply(output, kind, ReplyKind::META_CONTEXT, &[&id, ALLOCATION]);
            if is_choice {
                self.allocation_of = Some(query.name.to_vec());
            }
        }
        acknowledge(output, kind)
    }

    fn transmission_flags(&self, export: &Export) -> u16 {
        let geometry = export.device().geometry();
        let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN;
        flags |= if geometry.is_read_only { READ_ONLY } else { SEND_TRIM | SEND_WRITE_ZEROES };
        if self.has_structured_replies { flags | SEND_DF } else { flags }
    }

    fn agree(&self, export: &Export) -> Agreed {
        // The contexts count for the export they were chosen for; an empty name and the first one's name are the same.
        let chosen = self.allocation_of.as_ref().and_then(|name| self.exports.find(name));
        let has_allocation = chosen.is_some_and(|chosen| chosen.name() == export.name());
        let has_structured_replies = self.has_structured_replies;
        Agreed { export: export.clone(), has_structured_replies, has_allocation }
    }
}

fn acknowledge(output: &mut Output, option: OptionKind) -> Event {
    reply(output, option, ReplyKind::ACK, &[]);
    Event::Answered
}

fn refuse(output: &mut Output, option: OptionKind, why: ReplyKind) -> Event {
    reply(output, option, why, &[]);
    Event::Answered
}

const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
// Handshake flags of the server; those of the client have the same numbers.
const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;
// Transmission flags.
const HAS_FLAGS: u16 = 1;
const READ_ONLY: u16 = 1 << 1;
const SEND_FLUSH: u16 = 1 << 2;
const SEND_FUA: u16 = 1 << 3;
const SEND_TRIM: u16 = 1 << 5;
const SEND_WRITE_ZEROES: u16 = 1 << 6;
const SEND_DF: u16 = 1 << 7;
const CAN_MULTI_CONN: u16 = 1 << 8;
// Information about an export.
const INFO_EXPORT: u16 = 0;
const INFO_NAME: u16 = 1;
const INFO_DESCRIPTION: u16 = 2;
const INFO_BLOCK_SIZE: u16 = 3;
