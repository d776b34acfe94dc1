//! One pipe's conversation: bind, then calls and their answers.
//!
//! ```text
//!             bind accepted                request, last fragment
//!  Unbound ----------------> Bound -------------------------------> response or fault
//!                              ^  alter_context adds to what is bound     |
//!                              '------------------------------------------'
//! ```
//!
//! Spec: C706 §9.3, MS-RPCE §3.3.

use std::collections::VecDeque;

use thiserror::Error;

use super::host::Host;
use super::lsarpc::Policies;
use super::pdu::{self, Bind, Fault, Interface, Preamble, Request};
use super::{srvsvc, wkssvc};
use crate::ParseError;

/// One pipe's conversation.
#[derive(Debug)]
pub struct Association {
    pipe: Interface,
    /// Bytes of a fragment that is not whole yet.
    inbox: Vec<u8>,
    /// Fragments to be read, the front one from `read` on.
    outbox: VecDeque<Vec<u8>>,
    outbox_len: usize,
    read: usize,
    bound: Vec<(u16, Interface)>,
    call: Option<Call>,
    fragment_max: u16,
    policies: Policies,
}

/// A call whose last fragment is not there yet.
#[derive(Debug)]
struct Call {
    id: u32,
    context_id: u16,
    opnum: u16,
    stub: Vec<u8>,
}

/// What a peer wrote is no conversation: the pipe is of no more use.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum AssociationError {
    /// Bytes that are no PDU.
    #[error(transparent)]
    Peer(#[from] ParseError),
    /// A PDU that has no place here.
    #[error("peer sent an RPC PDU of type {0} where none belongs")]
    PeerOrder(u8),
    /// Answers that are not fetched, or a fragment that never ends.
    #[error("peer keeps {0} bytes waiting in a pipe")]
    PeerTooMuch(usize),
    /// The peer wrote more than `PDUS_PER_WRITE_MAX` PDUs at once; no client needs that many.
    #[error("peer wrote more than {PDUS_PER_WRITE_MAX} PDUs at once")]
    PeerTooMany,
}

impl Association {
    /// A conversation on the pipe of `interface`.
    pub fn new(interface: Interface) -> Self {
        Self {
            pipe: interface,
            inbox: Vec::new(),
            outbox: VecDeque::new(),
            outbox_len: 0,
            read: 0,
            bound: Vec::new(),
            call: None,
            fragment_max: pdu::FRAGMENT_FLOOR,
            policies: Policies::default(),
        }
    }

    /// Takes bytes written to the pipe and answers what is whole.
    ///
    /// # Errors
    /// The conversation is over; close the pipe.
    pub fn write(&mut self, bytes: &[u8], host: &Host) -> Result<(), AssociationError> {
        if self.inbox.len() + bytes.len() > WAITING_MAX {
            return Err(AssociationError::PeerTooMuch(self.inbox.len() + bytes.len()));
        }
        // Read where they lie; what is left is moved to the front once.
        let mut inbox = std::mem::take(&mut self.inbox);
        inbox.extend_from_slice(bytes);
        let (mut start, mut count) = (0, 0);
        while let Some(preamble) = Preamble::parse(&inbox[start..])? {
            let Some(fragment) = inbox.get(start..start + preamble.len) else { break };
            count += 1;
            if count > PDUS_PER_WRITE_MAX {
                return Err(AssociationError::PeerTooMany);
            }
            self.check_waiting(inbox.len() - start)?;
            start += preamble.len;
            self.take(preamble, &fragment[pdu::PREAMBLE_LEN..], host)?;
        }
        self.inbox = inbox.split_off(start);
        Ok(())
    }

    // Each answer counts before the next call is carried out: a short call may have a long one.
    fn check_waiting(&self, unanswered: usize) -> Result<(), AssociationError> {
        let waiting = unanswered + self.outbox_len;
        if waiting > WAITING_MAX { Err(AssociationError::PeerTooMuch(waiting)) } else { Ok(()) }
    }

    fn push(&mut self, fragment: Vec<u8>) {
        self.outbox_len += fragment.len();
        self.outbox.push_back(fragment);
    }

    /// Takes up to `len` bytes of the oldest answer out of the pipe. `true`: the answer goes on.
    /// `None`: there is no answer.
    pub fn read(&mut self, len: usize) -> Option<(Vec<u8>, bool)> {
        let front = self.outbox.front()?;
        let end = front.len().min(self.read.saturating_add(len));
        let piece = front[self.read..end].to_vec();
        self.read = end;
        let goes_on = end < front.len();
        if !goes_on {
            self.outbox_len -= front.len();
            self.outbox.pop_front();
            self.read = 0;
        }
        Some((piece, goes_on))
    }

    fn take(
        &mut self,
        preamble: Preamble,
        body: &[u8],
        host: &Host,
    ) -> Result<(), AssociationError> {
        let Preamble { kind, flags, auth_len, call_id, .. } = preamble;
        match kind {
            // Sessions are authenticated below; nobody asks for more on a pipe.
            pdu::BIND if auth_len != 0 => self.push(pdu::bind_nak(call_id)),
            pdu::BIND => self.bind(pdu::BIND_ACK, call_id, body)?,
            pdu::ALTER_CONTEXT if !self.bound.is_empty() && auth_len == 0 => {
                self.bind(pdu::ALTER_CONTEXT_RESPONSE, call_id, body)?;
            }
            pdu::REQUEST if auth_len == 0 => {
                let request = Request::parse(flags, body)?;
                self.request(call_id, flags, &request, host);
            }
            pdu::CANCEL | pdu::ORPHANED => self.call = None,
            other => return Err(AssociationError::PeerOrder(other)),
        }
        Ok(())
    }

    fn bind(&mut self, answer: u8, call_id: u32, body: &[u8]) -> Result<(), AssociationError> {
        let mut bind = Bind::parse(body)?;
        for context in &mut bind.contexts {
            // Each pipe serves its own interface.
            context.interface = context.interface.filter(|interface| *interface == self.pipe);
        }
        let accepted = bind.contexts.iter().filter(|context| context.has_ndr);
        let accepted = accepted.filter_map(|context| Some((context.id, context.interface?)));
        for (id, interface) in accepted {
            self.bound.retain(|(known, _)| *known != id);
            self.bound.push((id, interface));
        }
        self.bound.truncate(BOUND_MAX);
        if answer == pdu::BIND_ACK {
            self.fragment_max = bind.fragment_max.clamp(pdu::FRAGMENT_FLOOR, FRAGMENT_MAX);
        }
        self.push(pdu::bind_ack(answer, call_id, &bind, self.fragment_max));
        Ok(())
    }

    fn request(&mut self, call_id: u32, flags: u8, request: &Request<'_>, host: &Host) {
        let Request { context_id, opnum, stub } = *request;
        if flags & pdu::FIRST != 0 {
            let stub = Vec::with_capacity(stub.len());
            self.call = Some(Call { id: call_id, context_id, opnum, stub });
        }
        let Some(call) = self.call.as_mut().filter(|call| call.id == call_id) else {
            self.push(pdu::fault(call_id, context_id, Fault::PROTOCOL));
            return;
        };
        if call.stub.len() + stub.len() > REQUEST_MAX {
            self.call = None;
            self.push(pdu::fault(call_id, context_id, Fault::PROTOCOL));
            return;
        }
        call.stub.extend_from_slice(stub);
        if flags & pdu::LAST == 0 {
            return;
        }
        let Some(call) = self.call.take() else { return };
        match self.carry_out(&call, host) {
            Ok(stub) => {
                let fragments = pdu::response(call.id, call.context_id, &stub, self.fragment_max);
                fragments.into_iter().for_each(|fragment| self.push(fragment));
            }
            Err(fault) => self.push(pdu::fault(call.id, call.context_id, fault)),
        }
    }

    fn carry_out(&mut self, call: &Call, host: &Host) -> Result<Vec<u8>, Fault> {
        let bound = self.bound.iter().find(|(id, _)| *id == call.context_id);
        let (_, interface) = bound.ok_or(Fault::NOT_BOUND)?;
        match interface {
            Interface::Srvsvc => srvsvc::call(call.opnum, &call.stub, host),
            Interface::Wkssvc => wkssvc::call(call.opnum, &call.stub, host),
            Interface::Lsarpc => self.policies.call(call.opnum, &call.stub, host),
        }
    }
}

/// Longest arguments of a call, in bytes: names and numbers, no data.
pub const REQUEST_MAX: usize = 16 * 1024;
// Bytes that may wait in a pipe when a call comes; its answer, a list of all shares at most, is beside them.
const WAITING_MAX: usize = 256 << 10;
// PDUs of one write. A call of the longest arguments comes in twelve of the shortest fragments.
const PDUS_PER_WRITE_MAX: usize = 32;
// What Windows and Samba use.
const FRAGMENT_MAX: u16 = 4280;
const BOUND_MAX: usize = 16;

#[cfg(test)]
mod tests;
