//! SMB over TCP: one task per connection, one read buffer, one write per batch of answers.
//!
//! ```text
//!          +---------------- select ----------------+
//!          v                                        |
//!  readable: read once, handle every whole frame, answers go into one buffer, behind what was queued before; write it
//!  outbox:   take everything queued, write it
//!  deadline: not authenticated in time: close
//!  end of bytes: wait for the answers under way, write them: close
//! ```
//!
//! A request that can be answered now costs one read and one write on one task: no hop, no lock
//! another connection can hold, no copy of the data beyond the kernel's. While a peer does not
//! take its answers nothing more is read from it; it is dropped when it takes nothing at all, or too little
//! of what others wait for ([`super::patience`]). A peer that has closed its sending side alone may still read: what it
//! has sent whole is carried out and answered, unless that waits for other clients. The outbox needs no bound of its own: every
//! frame in it is counted as one that breaks a lease ([`Link::tell`]), or answers a request that took a credit, and room
//! if it asked for bytes.
//!
//! Spec: MS-SMB2 §2.1 (direct TCP).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{self, Duration};

use smb::framing;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::{JoinSet, yield_now};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::admission::Admission;
use super::end::End;
use super::input::Input;
use super::output::Output;
use super::patience::Patience;
use super::queue::{Outgoing, Queue};
use super::served::Served;
use super::spare_room::SpareRoom;
use super::write_buffer;
use crate::connections::{Link, Parcel};
use crate::dispatch::Connection;
use crate::limits::{CLOSED_PATIENCE, GATHERED_MAX, UNAUTHENTICATED_FRAME_MAX};
use crate::service::Core;
use crate::state::reads::Rest;
use crate::state::{Resource, Room};

/// Accepts connections until told to stop, then waits for them to end.
pub(crate) async fn serve(core: Arc<Core>, listener: TcpListener, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = told(&mut stop) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let evicted = Arc::new(Notify::new());
                if let Some(admission) = Admission::ask(&core, Arc::clone(&evicted) as _) {
                    let place = (admission, evicted);
                    let peer = Peer::new(&core, stream, peer, place, stop.clone());
                    connections.spawn(peer.run());
                }
            }
            Err(error) => {
                // Out of handles, most likely: give those that close a chance.
                warn!(%error, "cannot accept connections; raise the limit of open files");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let all_gone = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(core.connections.limits.shutdown_grace, all_gone).await.is_err() {
        warn!("some connections did not end in time");
    }
}

// The server stops, or is gone, which is the same.
async fn told(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// One connection.
#[derive(Debug)]
struct Peer {
    stream: TcpStream,
    address: SocketAddr,
    served: Served,
    queue: UnboundedReceiver<Outgoing>,
    input: Input,
    out: Output,
    /// By when it has to have logged on.
    deadline: Instant,
    /// Set once the peer has closed its sending side: for so long others are waited for.
    patient_until: Option<Instant>,
    /// Rung when the connection has to make room for a newcomer.
    evicted: Arc<Notify>,
    stop: watch::Receiver<bool>,
}

impl Peer {
    fn new(
        core: &Arc<Core>,
        stream: TcpStream,
        address: SocketAddr,
        (admission, evicted): (Admission, Arc<Notify>),
        stop: watch::Receiver<bool>,
    ) -> Self {
        let (outbox, queue) = Queue::new();
        let local = stream.local_addr().unwrap_or(address);
        let link = Link::new(Arc::clone(&core.connections), address, local, Box::new(outbox), None);
        // Answers leave at once; a refusal costs latency only.
        let _ = stream.set_nodelay(true);
        if let Err(error) = rdma::watch_peer(&stream, core.connections.limits.silence_max) {
            warn!(peer = %address, %error, "whether this client vanishes is not watched");
        }
        let deadline = core.now() + core.connections.limits.authentication_timeout;
        let link = Arc::new(link);
        let (input, out) = (Input::new(SpareRoom::of(&link)), Output::new(SpareRoom::of(&link)));
        Self {
            deadline: deadline.into(),
            stream,
            address,
            served: Served::new(Connection::streaming(Arc::clone(core), link), admission),
            queue,
            input,
            out,
            patient_until: None,
            evicted,
            stop,
        }
    }

    async fn run(mut self) {
        debug!(peer = %self.address, "connected");
        match self.converse().await {
            Ok(()) => debug!(peer = %self.address, "disconnected"),
            Err(end) => info!(peer = %self.address, reason = %end, "connection ended"),
        }
        let Self { served, queue, out, input, .. } = self;
        // What has not left or come is nobody's any more: its room is free while files are closed.
        drop((queue, out, input));
        served.end().await;
    }

    async fn converse(&mut self) -> Result<(), End> {
        let deadline = self.deadline;
        // One timer for all pauses: it is set again only when it has fired, not for each request.
        let pause = tokio::time::sleep(write_buffer::IDLE);
        tokio::pin!(pause);
        let mut was_busy = true;
        // Of a long frame on its way: how long it is waited for.
        let mut slow: Option<Patience> = None;
        loop {
            self.make_room().await?;
            tokio::select! {
                biased;
                read = self.input.read(&mut self.stream) => {
                    let got = read?;
                    if got == 0 {
                        return self.finish().await;
                    }
                    was_busy = true;
                    // Where something always comes, no timer fires.
                    self.check_stranger()?;
                    let heard = self.served.core().connections.reactor.begin();
                    self.served.link().hear(heard);
                    let mut begun = Some(heard);
                    let connections = &self.served.core().connections.counters.connections;
                    self.out.turn.look(connections.load(Ordering::Relaxed));
                    if self.out.turn.charge_bytes(got) {
                        yield_now().await;
                        begun = None;
                    }
                    self.handle_input(begun).await?;
                }
                Some(outgoing) = self.queue.recv() => {
                    was_busy = true;
                    self.take_queue(outgoing).await?;
                }
                () = tokio::time::sleep_until(deadline), if self.served.is_stranger() => {
                    return Err(End::PeerSlowToAuthenticate);
                }
                () = self.evicted.notified(), if self.served.is_evictable() => {
                    return Err(End::Evicted);
                }
                () = &mut pause, if self.has_something() => {
                    match self.input.under_way() {
                        None => slow = None,
                        Some((received, wanted)) => {
                            let now = self.now();
                            let slow = slow.get_or_insert_with(|| Patience::starting(now, received));
                            if slow.is_over(now, received, || wanted) {
                                return Err(End::PeerDoesNotSend);
                            }
                        }
                    }
                    let was_busy = std::mem::take(&mut was_busy);
                    self.out.look(was_busy);
                    self.input.look(was_busy);
                    pause.as_mut().reset(self.now() + write_buffer::IDLE);
                }
                () = told(&mut self.stop) => return Err(End::ServerStops),
            }
        }
    }

    fn now(&self) -> Instant {
        self.served.core().now().into()
    }

    /// Whoever has not logged on in time is ended, whatever it sends or takes.
    fn check_stranger(&self) -> Result<(), End> {
        match self.served.is_stranger() && self.now() >= self.deadline {
            true => Err(End::PeerSlowToAuthenticate),
            false => Ok(()),
        }
    }

    /// Whether there is something to look after when nothing comes.
    fn has_something(&self) -> bool {
        self.out.is_large() || self.input.is_large() || self.input.under_way().is_some()
    }

    /// Waits, while that takes nothing more from the peer, until there is room for what it sends next.
    async fn make_room(&mut self) -> Result<(), End> {
        self.make_request_room().await?;
        let Some(len) = self.input.wanted() else { return Ok(()) };
        let link = Arc::clone(&self.served.connection.link);
        let room = match link.holder() {
            None => None,
            Some(holder) => {
                let whose = (&link.account, &holder);
                match Room::try_take(whose, Resource::Requests, len) {
                    None => Some(
                        self.wait_for_others(Room::take(whose, Resource::Requests, len)).await?,
                    ),
                    room => room,
                }
            }
        };
        self.input.begin_large(room);
        Ok(())
    }

    // The same for one whose length is not known.
    async fn make_request_room(&mut self) -> Result<(), End> {
        if !self.served.connection.link.is_crowded() {
            return Ok(());
        }
        let link = Arc::clone(&self.served.connection.link);
        self.wait_for_others(link.request_room()).await
    }

    /// Nothing more comes: waits for the answers to what has come, but for those that wait for other clients, and sends them.
    async fn finish(&mut self) -> Result<(), End> {
        self.note_closed();
        // With the room of a long request whose rest will not come.
        self.input = Input::new(SpareRoom::default());
        let account = Arc::clone(&self.served.link().account);
        // Each request gives its room back once its answer is queued.
        for what in [Resource::Requests, Resource::Releases] {
            drop(self.wait_for_others(account.take(what, usize::MAX)).await?);
        }
        while let Ok(Outgoing::Frame(parcel)) = self.queue.try_recv() {
            self.gather(parcel).await?;
        }
        self.write().await
    }

    // The peer has closed its sending side.
    fn note_closed(&mut self) {
        let until = self.now() + CLOSED_PATIENCE;
        self.patient_until.get_or_insert(until);
    }

    /// Waits for what others have to end, with little patience once the peer has closed its sending side.
    async fn wait_for_others<T>(&mut self, event: impl Future<Output = T>) -> Result<T, End> {
        self.wait(event, true).await
    }

    /// Waits for a computation.
    async fn wait_for_work<T>(&mut self, event: impl Future<Output = T>) -> Result<T, End> {
        self.wait(event, false).await
    }

    // Waits for something; answers leave meanwhile. Nothing is read, so the end of the peer is looked for.
    async fn wait<T>(
        &mut self,
        event: impl Future<Output = T>,
        is_bounded: bool,
    ) -> Result<T, End> {
        tokio::pin!(event);
        loop {
            // Not for bytes, which are left in the socket: it has neither urgent data nor errors before it ends.
            let ends = match self.patient_until {
                None => Interest::PRIORITY | Interest::ERROR,
                Some(_) => Interest::ERROR,
            };
            let until = self.patient_until.filter(|_| is_bounded);
            let look_at = until.unwrap_or_else(|| self.now());
            tokio::select! {
                biased;
                happened = &mut event => return Ok(happened),
                ended = self.stream.ready(ends) => {
                    let ended = ended?;
                    if ended.is_error() {
                        return Err(End::PeerGone);
                    }
                    if ended.is_read_closed() {
                        self.note_closed();
                    }
                }
                Some(outgoing) = self.queue.recv() => self.take_queue(outgoing).await?,
                () = tokio::time::sleep_until(look_at), if until.is_some() => {
                    return Err(End::PeerClosed);
                }
                () = self.evicted.notified(), if self.served.is_evictable() => {
                    return Err(End::Evicted);
                }
                () = told(&mut self.stop) => return Err(End::ServerStops),
            }
        }
    }

    /// Handles what has come. `begun`: the turn of the first request began then.
    async fn handle_input(&mut self, begun: Option<time::Instant>) -> Result<(), End> {
        let limit = if self.served.is_stranger() {
            UNAUTHENTICATED_FRAME_MAX
        } else {
            let io_size = self.served.core().connections.limits.io_size_max;
            usize::try_from(io_size)
                .unwrap_or(usize::MAX)
                .saturating_add(framing::FRAME_OVERHEAD_MAX)
        };
        // Where the turn of the request before ended, unless something was waited for since.
        let mut ended = begun;
        loop {
            if self.served.connection.link.is_crowded() {
                ended = None;
                self.write().await?;
                self.make_request_room().await?;
            }
            if !self.queue.is_empty() {
                // An answer does not leave before a break that was told before it was made.
                self.gather_queued().await?;
                ended = None;
            }
            let Some(frame) = self.input.next_frame(limit)? else { break };
            let mut begun = ended.unwrap_or_else(|| self.served.core().connections.reactor.begin());
            let mut before = self.out.len();
            let mut handled = self.served.connection.handle(frame, self.out.bytes());
            if let Ok(Some(unproven)) = handled {
                self.write().await?;
                let proven = self.wait_for_work(unproven.prove()).await??;
                if !self.queue.is_empty() {
                    self.gather_queued().await?;
                }
                begun = self.served.core().connections.reactor.begin();
                before = self.out.len();
                let proven = self.served.connection.handle_proven(proven, self.out.bytes());
                handled = proven.map(|()| None);
            }
            let reactor = &self.served.core().connections.reactor;
            ended = Some(reactor.note(begun, self.served.connection.last_command()));
            handled?;
            let answered = self.out.len() - before;
            self.out.settle();
            let rest = self.served.connection.take_rest();
            let following = rest.as_ref().map_or(0, Rest::left);
            self.out.keep(self.served.connection.take_room(), following);
            if let Some(rest) = rest {
                let reactor = &self.served.core().connections.reactor;
                self.out.finish(&self.stream, rest, reactor).await?;
                ended = None;
            }
            if self.out.len() > GATHERED_MAX {
                self.write().await?;
                ended = None;
            }
            if self.out.turn.end_request(answered) {
                self.end_turn().await?;
                ended = None;
            }
        }
        self.served.look();
        // What finished meanwhile travels with it.
        self.gather_queued().await?;
        self.write().await
    }

    async fn gather_queued(&mut self) -> Result<(), End> {
        while let Ok(outgoing) = self.queue.try_recv() {
            match outgoing {
                Outgoing::Frame(parcel) => self.gather(parcel).await?,
                Outgoing::Close => return Err(End::Closed),
            }
        }
        Ok(())
    }

    async fn gather(&mut self, parcel: Parcel) -> Result<(), End> {
        let Parcel { frame, room } = parcel;
        if self.out.len() + frame.len() > GATHERED_MAX {
            self.write().await?;
        }
        if self.out.turn.end_request(frame.len()) {
            self.end_turn().await?;
        }
        // A large answer is not copied.
        if frame.len() > GATHERED_MAX {
            self.out.replace(frame);
        } else {
            self.out.bytes().extend_from_slice(&frame);
        }
        self.out.keep(room, 0);
        Ok(())
    }

    /// Others of the thread have their turn, for which no answer waits.
    async fn end_turn(&mut self) -> Result<(), End> {
        self.write().await?;
        yield_now().await;
        Ok(())
    }

    async fn take_queue(&mut self, first: Outgoing) -> Result<(), End> {
        let mut next = Some(first);
        while let Some(outgoing) = next {
            match outgoing {
                Outgoing::Frame(parcel) => self.gather(parcel).await?,
                Outgoing::Close => {
                    self.write().await?;
                    return Err(End::Closed);
                }
            }
            next = self.queue.try_recv().ok();
        }
        // By an answer that was held back.
        self.served.look();
        self.write().await
    }

    async fn write(&mut self) -> Result<(), End> {
        // Almost always the kernel takes it all at once, and no timer is needed.
        if self.out.send(&self.stream).await? {
            return Ok(());
        }
        let link = Arc::clone(self.served.link());
        let mut patience = Patience::starting(self.now(), self.out.taken(&self.stream)?);
        loop {
            let is_writable = tokio::select! {
                biased;
                () = link.cut_off() => return Err(End::PeerDoesNotRead),
                writable = self.stream.writable() => {
                    writable?;
                    true
                }
                () = self.evicted.notified(), if self.served.is_evictable() => {
                    return Err(End::Evicted);
                }
                () = tokio::time::sleep_until(patience.look_at()) => false,
            };
            if is_writable && self.out.send(&self.stream).await? {
                return Ok(());
            }
            self.check_stranger()?;
            // Those that stand behind in the queue count, too.
            let wanted = || link.wanted_answers();
            if patience.is_over(self.now(), self.out.taken(&self.stream)?, wanted) {
                return Err(End::PeerDoesNotRead);
            }
        }
    }
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{Read as _, Write as _};
    use std::pin::pin;
    use std::task::Poll;

    use smb::compound;
    use smb::negotiate::{Capabilities, Dialect, NegotiateRequest, SecurityMode};
    use smb::{Command, Empty, Guid, Header, MessageId};

    use super::super::turn::tests::run;
    use super::*;
    use crate::push::tests::rig::{Rig, hasty_clock};

    /// NEGOTIATE, and so many of the shortest requests.
    fn requests(count: u64) -> Vec<u8> {
        let mut out = Vec::new();
        for id in 0..=count {
            let command = if id == 0 { Command::NEGOTIATE } else { Command::ECHO };
            let mut header = Header::request(command, MessageId(id));
            header.credits = 512;
            let mut pdu = Vec::new();
            header.emit(&mut pdu);
            if id == 0 {
                let request = NegotiateRequest {
                    security_mode: SecurityMode::SIGNING_ENABLED,
                    capabilities: Capabilities::empty(),
                    client_guid: Guid([1; 16]),
                    dialects: vec![Dialect::SMB_2_1],
                    contexts: Vec::new(),
                };
                request.emit(&mut pdu);
            } else {
                Empty.emit(&mut pdu);
            }
            out.extend(framing::prefix(pdu.len()).unwrap());
            out.extend(pdu);
        }
        out
    }

    /// How many answers have come.
    fn answers(bytes: &[u8]) -> usize {
        let mut rest = bytes;
        let mut count = 0;
        while let Some(prefix) = rest.first_chunk() {
            let len = framing::frame_len(*prefix, framing::FRAME_LEN_MAX).unwrap();
            let frame = &rest[framing::PREFIX_LEN..][..len];
            assert_eq!(compound::walk(frame).count(), 1);
            rest = &rest[framing::PREFIX_LEN + len..];
            count += 1;
        }
        count
    }

    /// The server's end of a connection, and the client's.
    fn connected(rig: &Rig, stop: watch::Receiver<bool>) -> (Peer, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, address) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let stream = TcpStream::from_std(stream).unwrap();
        let evicted = Arc::new(Notify::new());
        let admission = Admission::ask(&rig.core, Arc::clone(&evicted) as _).unwrap();
        (Peer::new(&rig.core, stream, address, (admission, evicted), stop), client)
    }

    #[tokio::test]
    async fn a_peer_that_sends_nothing_more_is_waited_for_a_bounded_time() {
        let rig = Rig::new();
        let (_stop, stopped) = watch::channel(false);
        for is_under_way in [true, false] {
            let (mut peer, client) = connected(&rig, stopped.clone());
            let account = Arc::clone(&peer.served.link().account);
            let request = is_under_way.then(|| account.try_take(Resource::Requests, 1).unwrap());
            client.shutdown(std::net::Shutdown::Write).unwrap();
            let before = peer.now();
            peer.note_closed();
            assert!(peer.patient_until.unwrap() >= before + CLOSED_PATIENCE);
            peer.patient_until = Some(before);
            let ended = peer.converse().await;
            assert_eq!(matches!(ended, Err(End::PeerClosed)), is_under_way, "{ended:?}");
            assert_eq!(ended.is_ok(), !is_under_way);
            drop(request);
        }
    }

    #[tokio::test]
    async fn a_long_request_that_the_peer_does_not_finish_is_not_waited_for() {
        let rig = Rig::new();
        let (_stop, stopped) = watch::channel(false);
        let (mut peer, mut client) = connected(&rig, stopped);
        client.write_all(&framing::prefix(UNAUTHENTICATED_FRAME_MAX).unwrap()).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        while peer.input.wanted().is_none() {
            assert!(peer.input.read(&mut peer.stream).await.unwrap() > 0);
            assert!(peer.input.next_frame(UNAUTHENTICATED_FRAME_MAX).unwrap().is_none());
        }
        let whose = (&peer.served.link().account, &rig.session().account);
        let room = Room::try_take(whose, Resource::Requests, UNAUTHENTICATED_FRAME_MAX);
        assert!(room.is_some());
        peer.input.begin_large(room);
        peer.patient_until = Some(peer.now());
        peer.converse().await.unwrap();
    }

    #[test]
    fn answers_to_many_short_requests_leave_before_others_have_their_turn() {
        run(async {
            let rig = Rig::new();
            let (_stop, stopped) = watch::channel(false);
            let (peer, mut client) = connected(&rig, stopped);
            client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            // All of them are there before the server looks.
            client.write_all(&requests(400)).unwrap();
            let mut peer = pin!(peer.run());
            let (mut came, mut after_turns) = (Vec::new(), Vec::new());
            poll_fn(|context| {
                assert!(peer.as_mut().poll(context).is_pending());
                let _ = client.read_to_end(&mut came);
                after_turns.push(answers(&came));
                if after_turns.ends_with(&[401]) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            let first = after_turns.iter().find(|count| **count > 0).unwrap();
            assert!(*first > 100, "{after_turns:?}");
        });
    }

    #[test]
    fn no_answer_leaves_before_a_break_that_was_told_before_it_was_made() {
        run(async {
            let rig = Rig::new();
            let (_stop, stopped) = watch::channel(false);
            let (peer, mut client) = connected(&rig, stopped);
            client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            client.write_all(&requests(2)).unwrap();
            // What a break is to the connection: a frame that nobody has asked for.
            let mut told = framing::prefix(4).unwrap().to_vec();
            told.extend([1, 2, 3, 4]);
            peer.served.link().deliver(told.clone());
            let mut peer = pin!(peer.run());
            let mut came = Vec::new();
            poll_fn(|context| {
                assert!(peer.as_mut().poll(context).is_pending());
                let _ = client.read_to_end(&mut came);
                if came.len() > told.len() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            assert!(came.starts_with(&told), "{came:?}");
        });
    }

    #[tokio::test]
    async fn a_stranger_that_sends_without_a_pause_is_ended_in_time() {
        let rig = Rig::new();
        let (_stop, stopped) = watch::channel(false);
        let (mut peer, mut client) = connected(&rig, stopped);
        // All of it is there whenever the server looks.
        client.write_all(&requests(400)).unwrap();
        peer.deadline = peer.now();
        let ended = peer.converse().await;
        assert!(matches!(ended, Err(End::PeerSlowToAuthenticate)), "{ended:?}");
        // Nor by taking its answers slowly.
        peer.out.bytes().resize(64 << 20, 0);
        let ended = peer.write().await;
        assert!(matches!(ended, Err(End::PeerSlowToAuthenticate)), "{ended:?}");
    }

    #[tokio::test]
    async fn a_peer_that_takes_no_answer_is_dropped() {
        let rig = Rig::at(hasty_clock());
        let (_stop, stopped) = watch::channel(false);
        let (mut peer, _client) = connected(&rig, stopped);
        peer.deadline += Duration::from_secs(1 << 30);
        // More than both sockets hold.
        peer.out.bytes().resize(64 << 20, 0);
        let hang = Duration::from_secs(60);
        let written = tokio::time::timeout(hang, peer.write()).await.expect("it is not waited for");
        assert!(matches!(written, Err(End::PeerDoesNotRead)), "{written:?}");
    }
}
