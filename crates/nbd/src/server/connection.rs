//! One connection, from its greeting to its end.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::input::Input;
use super::memory::{Grant, Memory, SHORT_MAX};
use super::patience::Patience;
use super::requests::{Ending, HANDSHAKE_LIMIT, held};
use super::shared::{Offer, Shared};
use super::wire::Wire;
use super::workers;
use crate::protocol::{Agreed, Event, Handshake, Output, Session, Step, TlsPolicy};

/// Serves a connection until the client leaves, breaks the protocol, or the server ends.
pub(super) fn serve(shared: &Shared, wire: &Arc<Wire>) -> Result<(), Ending> {
    let Shared { offer, memory, .. } = shared;
    let (mut input, mut patience) = (Input::default(), Patience::new());
    let Some(agreed) = shake_hands(offer, wire, &mut input, &mut patience)? else { return Ok(()) };
    wire.choose()?;
    tracing::debug!(export = agreed.export.name(), "transmission");
    let session = Session::new(agreed);
    if session.may_wait() {
        return workers::transmit(&session, (wire, memory), &mut input);
    }
    transmit(&session, (wire, memory), &mut input, &mut patience)
}

/// Negotiates; `None` if the client leaves before it has chosen an export.
fn shake_hands(
    offer: &Offer,
    wire: &Wire,
    input: &mut Input,
    patience: &mut Patience,
) -> Result<Option<Agreed>, Ending> {
    let until = Instant::now() + HANDSHAKE_LIMIT;
    let mut output = Output::new();
    let policy = if offer.tls.is_some() { TlsPolicy::Required } else { TlsPolicy::Off };
    let mut handshake = Handshake::new(Arc::clone(&offer.exports), policy, &mut output);
    loop {
        // Whatever its client asks, and however slowly it reads.
        if Instant::now() >= until {
            return Err(Ending::PeerSlow);
        }
        let (len, event) = handshake.handle(input.unread(), &mut output)?;
        input.consume(len);
        if !output.is_empty() && (!matches!(event, Event::Answered) || output.len() > BATCH) {
            wire.send(output.as_bytes())?;
            output.clear();
        }
        match event {
            Event::Answered => {}
            Event::Transmit(agreed) => return Ok(Some(agreed)),
            Event::Aborted => return Ok(None),
            Event::StartTls => {
                let Some(config) = &offer.tls else { return Ok(None) };
                wire.start_tls(config)?;
                handshake = handshake.after_tls();
            }
            Event::NeedsMore => match wire.receive(input, 0, patience, Some(until)) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(Ending::PeerSlow);
                }
                Err(error) => return Err(error.into()),
            },
        }
    }
}

/// Carries requests out on this thread: all that have arrived, then one send.
fn transmit(
    session: &Session,
    (wire, memory): (&Arc<Wire>, &Arc<Memory>),
    input: &mut Input,
    patience: &mut Patience,
) -> Result<(), Ending> {
    let mut output = Output::new();
    // Of the request that is received, or whose reply has not left.
    let mut grant: Option<Grant> = None;
    loop {
        let step = session.next(input.unread())?;
        match step {
            Step::Request(request, data) => {
                let end = data.end;
                if grant.is_none() && held(&request) > SHORT_MAX {
                    // Whoever waits holds nothing that others wait for.
                    send(wire, &mut output)?;
                    grant = memory.take(wire, held(&request));
                }
                let working = wire.work();
                session.carry_out(&request, &input.unread()[data], &mut output);
                drop(working);
                input.consume(end);
                if output.len() >= BATCH || grant.is_some() {
                    send(wire, &mut output)?;
                    grant = None;
                }
            }
            Step::NeedsMore(_) | Step::Disconnected => {
                send(wire, &mut output)?;
                let Step::NeedsMore(wanted) = step else { return Ok(()) };
                if grant.is_none() && input.unread().len() >= SHORT_MAX {
                    grant = memory.take(wire, wanted);
                }
                if wire.receive(input, wanted, patience, None)? == 0 {
                    return Ok(());
                }
            }
        }
    }
}

fn send(wire: &Wire, output: &mut Output) -> Result<(), Ending> {
    if !output.is_empty() {
        wire.send(output.as_bytes())?;
        output.clear();
    }
    Ok(())
}

/// Bytes of replies that are sent before more requests are carried out.
const BATCH: usize = 256 << 10;
