//! An outgoing connection until it is established: TCP, then MPA, in one form of start-up after
//! another.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use iwarp::mpa::{Attempt, Dial, HashId, Initiator, MpaError, ProfileFlags, StartConfig};
use iwarp::{Agreement, Profile};
use rustix::io::Errno;

use super::socket::{ByteStream as _, Network, Socket, Transfer};
use crate::interface::{ConnectFailure, QpConfig, WireHook};

/// See the module. [`Dial`] decides the order of the attempts.
#[derive(Debug)]
pub(super) struct Dialing {
    route: Route,
    private_data: Vec<u8>,
    order: Dial,
    machine: Initiator,
    pub(super) socket: Socket,
    pub(super) number: u64,
    connected: bool,
    pub(super) deadline: Instant,
}

/// The address, and the wanted properties of the connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) network: Network,
    pub(super) addr: SocketAddr,
    pub(super) start: StartConfig,
    /// See [`crate::EngineConfig::silence_max`].
    pub(super) silence_max: Option<Duration>,
}

/// The state of an attempt.
#[derive(Debug)]
pub(super) enum Dialled {
    /// The attempt goes on; epoll is to report readability instead of writability if `connected` is
    /// new.
    Pending { just_connected: bool },
    /// Both ends agree. `early` are bytes behind the answer.
    Agreed { agreement: Agreement, early: Vec<u8> },
    /// This attempt failed, and another form of start-up is worth trying.
    Again(Attempt),
    /// The dial has failed for good.
    Failed(ConnectFailure),
}

impl Dialing {
    /// Begins the first attempt.
    pub(super) fn begin(
        route: Route,
        private_data: &[u8],
        number: u64,
        now: Instant,
    ) -> Result<Self, ConnectFailure> {
        let order = Dial::new();
        let attempt = order.attempt().ok_or(ConnectFailure::PeerClosed)?;
        let (machine, socket, deadline) = Self::attempt(route, private_data, attempt, now)?;
        let (private_data, connected) = (private_data.to_vec(), false);
        Ok(Self { route, private_data, order, machine, socket, number, connected, deadline })
    }

    fn attempt(
        Route { network, addr, start, silence_max }: Route,
        private_data: &[u8],
        attempt: Attempt,
        now: Instant,
    ) -> Result<(Initiator, Socket, Instant), ConnectFailure> {
        let machine = Initiator::new(start, attempt, private_data, now)
            .map_err(|_| ConnectFailure::PeerHandshake)?;
        let socket = network.dial(addr, silence_max).map_err(host_io)?;
        Ok((machine, socket, now + start.timeout))
    }

    /// Begins another attempt on a new TCP connection.
    pub(super) fn again(
        &mut self,
        attempt: Attempt,
        number: u64,
        now: Instant,
    ) -> Result<(), ConnectFailure> {
        let (machine, socket, deadline) =
            Self::attempt(self.route, &self.private_data, attempt, now)?;
        (self.machine, self.socket, self.deadline) = (machine, socket, deadline);
        (self.number, self.connected) = (number, false);
        Ok(())
    }

    /// The private data of the peer, whatever its answer was.
    pub(super) fn peer_private_data(&self) -> Vec<u8> {
        self.machine.private_data().to_vec()
    }

    /// Continues the attempt when its socket is ready.
    pub(super) fn advance(&mut self, hook: Option<&dyn WireHook>) -> Dialled {
        if !self.connected {
            return match self.socket.error() {
                Ok(()) => {
                    self.connected = true;
                    if let (Some(hook), Some((local, peer))) = (hook, self.socket.addresses()) {
                        hook.opened(self.number, local, peer, true);
                    }
                    self.transmit(hook);
                    Dialled::Pending { just_connected: true }
                }
                Err(errno) => Dialled::Failed(host_io(errno)),
            };
        }
        let mut bytes = [0; ANSWER_MAX];
        let mut early = Vec::new();
        match self.socket.receive_shown(&mut bytes, hook, self.number) {
            Transfer::Bytes(len) => {
                let bytes = bytes.get(..len).unwrap_or_default();
                let taken = self.machine.handle_bytes(bytes);
                early.extend_from_slice(bytes.get(taken..).unwrap_or_default());
            }
            Transfer::Blocked => {}
            Transfer::Closed | Transfer::Lost(_) | Transfer::Garbled => self.machine.handle_close(),
        }
        match self.machine.outcome() {
            None => Dialled::Pending { just_connected: false },
            Some(Ok(agreement)) => Dialled::Agreed { agreement, early },
            Some(Err(error)) => self.failed(&error, hook),
        }
    }

    /// The failure, if the time is over.
    pub(super) fn expire(&self, now: Instant) -> Option<ConnectFailure> {
        (now >= self.deadline).then_some(ConnectFailure::PeerSilent)
    }

    fn failed(&mut self, error: &MpaError, hook: Option<&dyn WireHook>) -> Dialled {
        // The state machine may have a last message to send.
        self.transmit(hook);
        match self.order.after(error) {
            Some(attempt) => Dialled::Again(attempt),
            None => Dialled::Failed(match error {
                MpaError::PeerRejected => ConnectFailure::PeerRejected,
                MpaError::PeerClosed => ConnectFailure::PeerClosed,
                MpaError::PeerTimeout => ConnectFailure::PeerSilent,
                _ => ConnectFailure::PeerHandshake,
            }),
        }
    }

    fn transmit(&mut self, hook: Option<&dyn WireHook>) {
        // A fresh connection takes far more than one frame at once; if the connection is lost
        // already, the next receive reports that.
        if let Some(bytes) = self.machine.poll_transmit()
            && let Transfer::Bytes(len) = self.socket.send(&bytes, false)
            && let Some(hook) = hook
        {
            hook.sent(self.number, bytes.get(..len).unwrap_or_default());
        }
    }
}

/// Our wishes for a connection, in the terms of `iwarp`.
pub(super) fn start_config(network: Network, config: &QpConfig, timeout: Duration) -> StartConfig {
    let flags = ProfileFlags::FLUSH
        | ProfileFlags::VERIFY
        | ProfileFlags::ATOMIC_WRITE
        | ProfileFlags::LARGE_FPDU;
    let fpdu_max = u32::from(config.fpdu_max);
    let profile = Profile::new(flags, fpdu_max, &[HashId::CRC32C]).ok();
    StartConfig {
        crc: config.crc && network.needs_crc(),
        ird: u16::from(config.ird),
        ord: u16::from(config.ord),
        profile: profile.filter(|_| config.announce),
        timeout,
    }
}

fn host_io(errno: Errno) -> ConnectFailure {
    ConnectFailure::HostIo { errno: errno.raw_os_error() }
}

/// Upper bound of a reply frame.
const ANSWER_MAX: usize = 1024;
