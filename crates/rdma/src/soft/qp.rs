//! One queue pair: its queues, and the connection they belong to while there is one.
//!
//! ```text
//!   connect                            reply        end
//!   -------> Dialing ----------------------> Up --------> Draining --------> (gone)
//!   accept      |                            ^     |  while a worker has    ^
//!   -------------------------------------------+   |  one of its batches    |
//!               | no way of dialling works         +------------------------+
//!               +---------------------------------------------------------> (gone)
//! ```

use super::batch::{After, Batch};
use super::context::Context;
use super::deferral::Deferral;
use super::dial::Dialing;
use super::fault::Fault;
use super::link::Link;
use super::receive_queue::{ReceiveQueue, deliver};
use super::requester::Requester;
use super::responder::Responder;
use super::scope::{Scope, Step};
use crate::interface::{DisconnectReason, Event, QpConfig, QpId};
use basics::Key;

/// See the module.
#[derive(Debug)]
pub(super) struct Qp {
    pub(super) key: Key,
    pub(super) receives: ReceiveQueue,
    pub(super) requester: Requester,
    pub(super) responder: Responder,
    pub(super) deferral: Deferral,
    pub(super) phase: Phase,
    /// Listed for transmission in the next round.
    pub(super) dirty: bool,
}

/// The state of the connection.
#[derive(Debug)]
pub(super) enum Phase {
    /// The connection is being dialled.
    Dialing(Box<Dialing>),
    /// The connection is established.
    Up(Box<Link>),
    /// The connection is over, but a worker still has a batch.
    Draining(DisconnectReason),
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// For a fault found here, which the peer is to be told.
    Fault(Fault),
    /// For another reason.
    Reason(DisconnectReason),
}

impl From<Fault> for End {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<DisconnectReason> for End {
    fn from(reason: DisconnectReason) -> Self {
        Self::Reason(reason)
    }
}

impl Qp {
    pub(super) fn new(key: Key, config: QpConfig, phase: Phase) -> Self {
        Self {
            key,
            receives: ReceiveQueue::new(config.recv_depth),
            requester: Requester::new(config.send_depth),
            responder: Responder::new(config.ird),
            deferral: Deferral::new(key),
            phase,
            dirty: false,
        }
    }

    pub(super) fn id(&self) -> QpId {
        QpId { index: self.key.index, generation: self.key.generation }
    }

    pub(super) fn link(&mut self) -> Option<&mut Link> {
        match &mut self.phase {
            Phase::Up(link) => Some(link),
            Phase::Dialing(_) | Phase::Draining(_) => None,
        }
    }

    /// The halves and the state they work on, if the connection is established.
    pub(super) fn halves<'a>(&'a mut self, context: &'a mut Context) -> Option<Halves<'a>> {
        let id = self.id();
        let Phase::Up(link) = &mut self.phase else { return None };
        let scope = Scope {
            id,
            stream: &mut link.stream,
            transmit: &mut link.transmit,
            deferral: &mut self.deferral,
            regions: &mut context.regions,
            fetches: &mut context.fetches,
            events: &mut context.events,
            stats: &mut context.stats,
            round: context.round,
        };
        let (receives, requester) = (&mut self.receives, &mut self.requester);
        Some(Halves { scope, receives, requester, responder: &mut self.responder })
    }

    /// Frames what can be framed, hands bytes to TCP, and reports completions. `true`: call again,
    /// there is more than the share of one round.
    pub(super) fn transmit(&mut self, context: &mut Context) -> Result<bool, End> {
        let Some(mut halves) = self.halves(context) else { return Ok(false) };
        let more = halves.frame()?;
        let Phase::Up(link) = &mut self.phase else { return Ok(false) };
        if !link.transmit.is_empty() {
            let was_blocked = link.blocked;
            link.send(context)?;
            if link.blocked != was_blocked {
                link.watch(context, self.key);
            }
        }
        let blocked = link.blocked;
        let sent = link.transmit.head_position();
        self.requester.complete(self.id(), sent, &mut context.events);
        Ok(more && !blocked)
    }

    /// Gives a worker the collected batch, unless the worker still has another.
    pub(super) fn submit(&mut self, context: &mut Context) -> Result<(), End> {
        let Some(batch) = self.deferral.take_to_submit() else { return Ok(()) };
        for operation in &batch.operations {
            if let Some(target) = &operation.target {
                context.regions.work_begins(target.tag);
            }
        }
        context.stats.deferred_batches += 1;
        let count = u64::try_from(batch.operations.len()).expect("a batch is bounded");
        context.stats.deferred_operations += count;
        context.workers.submit(batch).map_err(|batch| {
            // No thread could be started: the batch can never be carried out.
            release(&batch, context);
            self.deferral.returned(batch);
            End::Fault(Fault::Medium(pmem::MediumError::MediaIo(NO_THREAD)))
        })
    }

    /// Applies the results of a batch that came back.
    pub(super) fn batch_returned(
        &mut self,
        batch: Box<Batch>,
        context: &mut Context,
    ) -> Result<(), End> {
        release(&batch, context);
        context.stats.persists += batch.persists;
        let outcome = match self.halves(context) {
            Some(mut halves) => halves.apply(&batch),
            None => Ok(()),
        };
        self.deferral.returned(batch);
        outcome?;
        let full = self.deferral.is_full();
        let key = self.key;
        if let Some(link) = self.link()
            && link.parked
            && !full
        {
            link.parked = false;
            link.watch(context, key);
        }
        Ok(())
    }
}

/// The parts of an established queue pair, each borrowed separately.
#[derive(Debug)]
pub(super) struct Halves<'a> {
    pub(super) scope: Scope<'a>,
    pub(super) receives: &'a mut ReceiveQueue,
    pub(super) requester: &'a mut Requester,
    pub(super) responder: &'a mut Responder,
}

impl Halves<'_> {
    /// Frames messages of both halves in turn while there is a message and room for it. `true`:
    /// there is more, once TCP has taken these.
    fn frame(&mut self) -> Result<bool, Fault> {
        loop {
            let answers = self.responder.advance(&mut self.scope)?;
            let requests = self.requester.advance(&mut self.scope)?;
            if answers != Step::Progress && requests != Step::Progress {
                return Ok(answers == Step::Full || requests == Step::Full);
            }
        }
    }

    /// Does what follows the operations of a batch that succeeded.
    fn apply(&mut self, batch: &Batch) -> Result<(), End> {
        for operation in batch.operations.iter().take(batch.succeeded) {
            match operation.after {
                After::Nothing => {}
                After::Answer(request) => {
                    self.responder.answer_ready(request, operation.result);
                }
                After::Received(_) | After::ReceivedAndInvalidates(_) => {
                    deliver(&mut self.scope, operation.after)?;
                }
                After::ReadPlaced(read) => self.requester.placed(read),
                After::FetchedForResponse(read) => {
                    self.responder.fetched(read, batch.fetched(operation));
                }
                After::FetchedForRequest(entry) => {
                    self.requester.fetched(entry, batch.fetched(operation));
                }
            }
        }
        match batch.failure {
            None => Ok(()),
            Some(failure) => Err(End::Fault(batch.fault(failure))),
        }
    }
}

/// Ends the use of the regions by the operations of a batch.
fn release(batch: &Batch, context: &mut Context) {
    for operation in &batch.operations {
        if let Some(target) = &operation.target
            && let Some((qp, rkey)) = context.regions.work_ends(target.tag)
        {
            context.events.push(Event::Deregistered { qp, rkey });
        }
    }
}

/// EAGAIN of thread creation.
const NO_THREAD: i32 = 11;
