//! Requests that are not answered on the spot: single ones and compounds.
//!
//! A job is polled once where it arrived. If nothing in it had to wait (always so on tmpfs, unless
//! a lease stands in the way) its answer leaves with that of its neighbours; otherwise it moves
//! to the runtime and its answer comes through the link. Later requests never wait for it.
//!
//! An interim answer always goes through the link, and what the link holds leaves behind the answers given at
//! once. So whatever follows an interim answer goes through the link too, though the wait was over
//! before the first poll was: a client that gets the interim answer last has forgotten the request
//! and drops the connection.
//!
//! Spec: MS-SMB2 §3.3.5.2.7 (compounds).

use std::future::poll_fn;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use smb::Command;
use smb::NtStatus;
use smb::crypto::Turn;
use smb::framing;
use smb::{AsyncId, FileId, Header, HeaderFlags, Route, TreeId};
use tracing::warn;

use super::asked;
use super::call::Call;
use super::frame::{self, FrameError, Outcome, Terms};
use super::prepared::Prepared;
use super::proof::is_of_many;
use super::router::{self, begin_work};
use super::shift::Shift;
use crate::connections::{Channel, Kept, Link, Parcel, Pending};
use crate::limits::{ANSWER_UNCOUNTED_MAX, COMPOUND_ANSWER_MAX, IO_INLINE_MAX};
use crate::panics::Owed;
use crate::service::Core;
use crate::state::holder::BreaksWait;
use crate::state::reactor::Noted;
use crate::state::{Resource, Room};

/// The channel a request came over, none for those that need no session; or why it is refused.
type Admitted = Result<Option<Arc<Channel>>, NtStatus>;

/// One PDU of a job, and whether it was admitted.
#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) header: Header,
    pub(crate) range: Range<usize>,
    pub(crate) admitted: Admitted,
    pub(crate) turn: Turn,
    /// What was found out on the spot; of a compound nothing.
    pub(crate) prepared: Option<Prepared>,
}

impl Element {
    /// The channel it came over, if it was admitted and needs one.
    pub(crate) fn channel(&self) -> Option<&Arc<Channel>> {
        self.admitted.as_ref().ok()?.as_ref()
    }
}

fn paid(link: &Link, frame: &Kept, element: &Element) -> usize {
    asked::paid(link, &element.header, &frame[element.range.clone()])
}

/// One frame's worth of requests.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) core: Arc<Core>,
    pub(crate) link: Arc<Link>,
    pub(crate) frame: Arc<Kept>,
    pub(crate) elements: Vec<Element>,
    pub(crate) sealed: Option<Arc<Channel>>,
}

/// What a compound carries from one request to the next.
#[derive(Debug, Default)]
struct Chain {
    file: Option<FileId>,
    tree: Option<u32>,
    failed: Option<NtStatus>,
}

/// A job's answer.
struct Answer {
    frame: Vec<u8>,
    room: Option<Room>,
    /// What it answers: counted until it is queued.
    _answered: Arc<Kept>,
    /// It is the second one: an interim answer is on its way.
    follows_interim: bool,
    /// Breaks of what is granted in it leave behind it.
    breaks_wait: Vec<BreaksWait>,
}

impl Answer {
    /// Whether others queue what has to come before or behind it.
    fn needs_queue(&self) -> bool {
        self.follows_interim || !self.breaks_wait.is_empty()
    }

    /// Queues it behind what is queued.
    fn leave(self, link: &Link) {
        link.deliver(Parcel { frame: self.frame, room: self.room });
        drop(self.breaks_wait);
    }
}

/// An answered PDU, to be signed when its neighbours are in place.
struct Answered {
    at: usize,
    header: Header,
    channel: Option<Arc<Channel>>,
    turn: Turn,
}

impl Job {
    /// Starts the job; appends its answer to `out` if it is there at once. The room of a long one is for
    /// whoever sends it.
    pub(crate) fn start(self, out: &mut Vec<u8>) -> Option<Room> {
        let (link, runtime) = (Arc::clone(&self.link), self.core.runtime.clone());
        let reactor = Arc::clone(&self.core.connections.reactor);
        let first = self.elements.first();
        let command = first.map_or(Command::ECHO, |element| element.header.command);
        let mut work: Pin<Box<dyn Future<Output = Option<Answer>> + Send>> = Box::pin(self.run());
        let _inside = runtime.enter();
        let mut context = Context::from_waker(Waker::noop());
        match work.as_mut().poll(&mut context) {
            Poll::Ready(Some(answer)) if answer.needs_queue() => answer.leave(&link),
            Poll::Ready(Some(answer)) => {
                out.extend_from_slice(&answer.frame);
                return answer.room.filter(|_| answer.frame.len() > ANSWER_UNCOUNTED_MAX);
            }
            Poll::Ready(None) => link.close(),
            Poll::Pending => {
                let work = Noted { work, reactor, command };
                let owed = Owed::over(&link);
                runtime.spawn(async move {
                    let _owed = owed;
                    match work.await {
                        Some(answer) => answer.leave(&link),
                        None => link.close(),
                    }
                });
            }
        }
        None
    }

    // The answer frame, or None when the connection has to go.
    async fn run(self) -> Option<Answer> {
        let Self { core, link, frame, elements, sealed } = self;
        let mut out = Vec::with_capacity(RESPONSE_ROOM);
        let start = frame::begin(&mut out, sealed.is_some());
        let mut chain = Chain::default();
        let mut answered: Vec<Answered> = Vec::with_capacity(elements.len());
        let count = elements.len();
        // Room for all of it is taken at once: whoever holds some waits for no more.
        let asked = |one: &Element| one.channel().map_or(0, |_| paid(&link, &frame, one));
        let mut left = elements.iter().map(asked).fold(0, usize::saturating_add);
        let mut follows_interim = false;
        let mut breaks_wait = Vec::new();
        // A single request is not timed.
        let mut shift = (count > 1).then(|| Shift::begin(core.now(), 0));
        for (index, element) in elements.into_iter().enumerate() {
            if let Some(shift) = shift.as_mut().filter(|_| index > 0)
                && shift.is_over(core.now(), out.len())
            {
                // Others of the thread have their turn: nothing in a long compound may have to wait.
                tokio::task::yield_now().await;
                *shift = Shift::begin(core.now(), out.len());
            }
            if let Some(last) = answered.last() {
                frame::link_pdu(&mut out, last.at);
            }
            let at = frame::begin_pdu(&mut out, &element.header);
            let asked_here = asked(&element);
            let Element { header, range, admitted, turn, prepared } = element;
            let channel = admitted.as_ref().ok().cloned().flatten();
            let (sealed, is_compound) = (sealed.is_some(), count > 1);
            let asks = Asks { here: asked_here, left };
            left = left.saturating_sub(asked_here);
            let place =
                Place { core: &core, link: &link, frame: &frame, sealed, is_compound, asks };
            let last = index + 1 == count;
            let into = (&mut out, &mut breaks_wait);
            let mut has_waited = false;
            let (outcome, terms) = {
                let answer =
                    place.answer(header, (range, admitted, prepared), last, &mut chain, into);
                let mut answer = pin!(answer);
                let noting = |context: &mut Context<'_>| {
                    let polled = answer.as_mut().poll(context);
                    has_waited |= polled.is_pending();
                    polled
                };
                poll_fn(noting).await
            };
            if has_waited && let Some(shift) = &mut shift {
                // Others had their turn.
                *shift = Shift::begin(core.now(), out.len());
            }
            follows_interim |= matches!(terms.route, Some(Route::Async(_)));
            frame::end_pdu(&mut out, at, &header, outcome, terms);
            frame::give_back_much(&mut out);
            answered.push(Answered { at, header, channel, turn });
        }
        if let Some(last) = answered.last().filter(|_| count > 1) {
            // As Windows does; where a message ends the length of the frame says.
            frame::pad_pdu(&mut out, last.at);
        }
        let protected = protect(&link, Made { out, start, answered, sealed }).await;
        match protected {
            Ok(mut out) => {
                frame::give_back(&mut out);
                let room = frame.take_answers(out.capacity());
                Some(Answer { frame: out, room, _answered: frame, follows_interim, breaks_wait })
            }
            Err(error) => {
                warn!(peer = %link.peer, %error, "connection closed: cannot send an answer");
                None
            }
        }
    }
}

// Signs and seals an answer: a long one, or one of many requests, where it keeps nobody waiting.
async fn protect(link: &Arc<Link>, made: Made) -> Result<Vec<u8>, FrameError> {
    let signed = made.answered.iter().find_map(|one| one.channel.clone());
    let is_long = made.out.len() > IO_INLINE_MAX || is_of_many(made.answered.iter());
    let protector = made.sealed.clone().or(signed).filter(|_| is_long);
    match protector {
        None => made.protect(),
        Some(channel) => {
            let (whose, what) = (&channel.session.account, "the signature or seal of an answer");
            let protected = link.compute(whose, what, || made.protect()).await;
            protected.unwrap_or(Err(FrameError::Panicked))
        }
    }
}

/// An answer whose PDUs are in place, before it is signed and sealed.
struct Made {
    out: Vec<u8>,
    start: usize,
    answered: Vec<Answered>,
    sealed: Option<Arc<Channel>>,
}

impl Made {
    // A core takes about a millisecond for a MiB.
    fn protect(self) -> Result<Vec<u8>, FrameError> {
        let Self { mut out, start, answered, sealed } = self;
        let ends: Vec<usize> =
            answered.iter().skip(1).map(|next| next.at).chain([out.len()]).collect();
        for (one, end) in answered.into_iter().zip(ends) {
            let Some(channel) = one.channel else { continue };
            let pdu = &mut out[one.at..end];
            frame::sign(pdu, one.turn, &one.header, &channel, sealed.is_some());
        }
        frame::end(&mut out, start, sealed.as_deref())?;
        Ok(out)
    }
}

/// Where the requests of a job stand.
struct Place<'a> {
    core: &'a Arc<Core>,
    link: &'a Arc<Link>,
    frame: &'a Arc<Kept>,
    sealed: bool,
    is_compound: bool,
    asks: Asks,
}

/// Bytes of answers that a request asks for and pays for, and those that it and what follows it ask for.
#[derive(Clone, Copy)]
struct Asks {
    here: usize,
    left: usize,
}

impl Place<'_> {
    async fn answer(
        &self,
        mut header: Header,
        (range, admitted, prepared): (Range<usize>, Admitted, Option<Prepared>),
        is_last: bool,
        chain: &mut Chain,
        (out, breaks_wait): (&mut Vec<u8>, &mut Vec<BreaksWait>),
    ) -> (Outcome, Terms) {
        let is_related = header.flags.contains(HeaderFlags::RELATED);
        if !is_related {
            *chain = Chain::default();
        } else if let (Some(tree), Route::Sync { process_id, .. }) = (chain.tree, header.route) {
            header.route = Route::Sync { process_id, tree_id: TreeId(tree) };
        }
        let mut terms =
            Terms { credits: 0, session_id: header.session_id, route: Some(header.route) };
        // MS-SMB2 §3.3.5.2.7.2: what is related to a failed CREATE fails the same way.
        let inherited = chain.failed.filter(|_| is_related && chain.file.is_none());
        let pending = self.link.add_pending(header.message_id.0, header.session_id.0);
        let outcome = match (inherited, admitted) {
            // Also of a request without a session: what is related to it is INVALID_PARAMETER.
            (_, Err(status)) | (Some(status), Ok(_)) => Err(status),
            _ if self.exceeds(out) => Err(NtStatus::INSUFFICIENT_RESOURCES),
            (None, Ok(None)) => router::without_session(&header, &self.frame[range], out),
            (None, Ok(Some(channel))) => {
                let mut call = Call {
                    core: Arc::clone(self.core),
                    link: Arc::clone(self.link),
                    header,
                    channel,
                    sealed: self.sealed,
                    frame: Arc::clone(self.frame),
                    range,
                    chain_file: chain.file,
                    chain_tree: None,
                    pending: Arc::clone(&pending),
                    // As Windows does; of what else waits only the last.
                    may_pend: is_last || header.command == Command::CREATE,
                    under_way: None,
                    prepared,
                    breaks_wait: None,
                };
                // Noted as pending before: who ends the session finds it.
                self.frame.set_made(out.capacity().saturating_sub(RESPONSE_ROOM));
                let room = self.take_room(&call.channel, &pending, self.needed(out.len())).await;
                let outcome = match room.and_then(|()| begin_work(&header, &call.channel)) {
                    Ok(_working) => router::dispatch(&mut call, out).await,
                    Err(status) => Err(status),
                };
                if is_last && out.len() > ANSWER_UNCOUNTED_MAX {
                    // What waited for other clients has none. If it is given up now the room of what waits does.
                    let _ = self.take_room(&call.channel, &pending, out.len()).await;
                }
                breaks_wait.extend(call.breaks_wait.take());
                chain.file = call.chain_file;
                chain.tree = call.chain_tree.or_else(|| header.tree_id().map(|tree| tree.0));
                if let Some(tree) = call.chain_tree {
                    terms.route = Some(Route::Sync { process_id: 0, tree_id: TreeId(tree) });
                }
                outcome
            }
        };
        self.link.remove_pending(header.message_id.0);
        if header.command == Command::CREATE || outcome.is_err() {
            let stopped = outcome.ok().filter(|status| *status == NtStatus::STOPPED_ON_SYMLINK);
            chain.failed = outcome.err().or(stopped);
        }
        match pending.async_id.load(Ordering::Acquire) {
            0 => terms.credits = self.link.window().grant(header.credits),
            id => terms.route = Some(Route::Async(AsyncId(id))),
        }
        (outcome, terms)
    }
}

impl Place<'_> {
    // Whether a compound's answers would become longer than they may be together.
    fn exceeds(&self, out: &[u8]) -> bool {
        let asked = self.asks.here;
        self.is_compound && asked > 0 && out.len().saturating_add(asked) > COMPOUND_FRAME_MAX
    }

    // Room for what is asked for from here on and for what is made already, unless the job has it. Whoever asked may give
    // up, or be gone.
    async fn take_room(
        &self,
        channel: &Channel,
        pending: &Pending,
        bytes: usize,
    ) -> Result<(), NtStatus> {
        if bytes == 0 || self.frame.has_answers() {
            return Ok(());
        }
        let whose = (&self.link.account, &channel.session.account);
        let room = match Room::try_take(whose, Resource::Answers, bytes) {
            Some(room) => room,
            None => tokio::select! {
                biased;
                room = Room::take(whose, Resource::Answers, bytes) => room,
                () = pending.cancelled() => return Err(NtStatus::CANCELLED),
                () = channel.session.ended() => return Err(NtStatus::USER_SESSION_DELETED),
            },
        };
        self.frame.set_answers(Some(room));
        Ok(())
    }

    // Bytes of answers there has to be room for before a request is carried out.
    fn needed(&self, made: usize) -> usize {
        let Asks { here, left } = self.asks;
        if here == 0 { 0 } else { made.saturating_add(left).min(COMPOUND_ANSWER_MAX) }
    }
}

/// What one request may ask for, and the heads of as many answers as there are in a compound.
const COMPOUND_FRAME_MAX: usize = COMPOUND_ANSWER_MAX + framing::FRAME_OVERHEAD_MAX;
/// Room most answers fit without growing.
const RESPONSE_ROOM: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{COMPOUND_REQUEST_COST, REQUEST_COST};

    fn size_of_work<F>(_: impl FnOnce(Job) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_request_costs_no_more_than_what_is_counted_for_it() {
        // Its future, then by far less: the elements, what is kept with the frame, its place among the pending, its
        // task, the room its answer begins with.
        let rest = size_of::<Element>() + size_of::<Kept>() + size_of::<Pending>() + RESPONSE_ROOM;
        let cost = size_of_work(Job::run) + rest + 512;
        assert!(cost <= REQUEST_COST, "{cost}");
    }

    #[test]
    fn a_request_of_a_compound_costs_no_more_than_what_is_counted_for_it() {
        let cost = size_of::<Element>() + size_of::<Answered>();
        assert!(cost <= COMPOUND_REQUEST_COST, "{cost}");
    }
}
