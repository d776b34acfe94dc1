//! One connection of either kind, for a thread that waits for its answers: the transports of the library,
//! and over SMB Direct memory that is lent to the server for the data of a READ or WRITE.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};

use client::ConnectionError;
use client::transport::direct::{DirectConfig, Slots};
use client::transport::{InFrame, OutFrame, Transport, connect, direct};
use rdma::{
    DisconnectReason, Engine, EngineConfig, EngineError, PollPolicy, Provider, SoftProvider,
    WcStatus,
};
use tokio::runtime::Runtime;

use crate::random::Random;

/// The transport to the server.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    Tcp(SocketAddr),
    Direct(SocketAddr, DirectConfig),
}

impl Way {
    /// SMB Direct with the message sizes of other clients.
    pub(crate) fn direct(address: SocketAddr, random: &mut Random) -> Self {
        let default = smbdirect::Config::default();
        let limits = random.pick(&[
            // Few large messages; more credits would only cost memory.
            smbdirect::Config {
                receive_credit_max: 32,
                fragmented_receive_size_max: smbdirect::FRAGMENTED_SIZE_FLOOR,
                ..default
            },
            // The sizes of Linux: 48 messages for the longest answer here.
            smbdirect::Config {
                send_size_max: 1364,
                receive_size_max: 1364,
                fragmented_receive_size_max: 173_910,
                ..default
            },
        ]);
        Self::Direct(
            address,
            DirectConfig { limits, pool_len: POOL_LEN, ..DirectConfig::default() },
        )
    }
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum Lost {
    /// The connection ended, or never began.
    Connection,
    /// The server was silent for [`patience`], or sent a frame that cannot be parsed.
    Fault(String),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Link {
    runtime: Arc<Runtime>,
    transport: Transport,
}

impl Link {
    pub(crate) fn dial(runtime: &Arc<Runtime>, way: &Way) -> Result<Self, Lost> {
        let dialled = async {
            match way {
                Way::Tcp(address) => connect(*address).await,
                Way::Direct(address, config) => {
                    direct::connect(&Sleeper, *address, config.clone()).await
                }
            }
        };
        let dialled = runtime.block_on(async { tokio::time::timeout(patience(), dialled).await });
        let transport = dialled.map_err(|_| silent())?.map_err(lost)?;
        Ok(Self { runtime: Arc::clone(runtime), transport })
    }

    pub(crate) fn send(&self, pdu: &[u8]) -> Result<(), Lost> {
        let frame = OutFrame::new(pdu.len(), |out| out.extend_from_slice(pdu));
        self.transport.sender.send(frame).map_err(lost)
    }

    /// Waits until a frame comes over one of several connections, or one of them ends. Returns
    /// which.
    pub(crate) fn next_of<'a>(
        links: impl Iterator<Item = &'a mut Self>,
        deadline: Instant,
    ) -> Result<(usize, Result<InFrame, Lost>), Lost> {
        let mut links: Vec<_> = links.collect();
        let runtime = Arc::clone(&links.first().ok_or(Lost::Connection)?.runtime);
        let next = poll_fn(|cx| {
            let ready = links.iter_mut().enumerate().find_map(|(at, link)| {
                match link.transport.receiver.poll_receive(cx, FRAME_MAX) {
                    Poll::Ready(received) => Some((at, received.map_err(lost))),
                    Poll::Pending => None,
                }
            });
            ready.map_or(Poll::Pending, Poll::Ready)
        });
        let next = async { tokio::time::timeout_at(deadline.into(), next).await };
        runtime.block_on(next).map_err(|_| silent())
    }

    /// Memory that the server can reach, if the connection has any.
    pub(crate) fn lend(&self, len: u32) -> Option<Slots> {
        self.transport.pool.as_ref()?.try_take(len)
    }

    /// Cuts the connection without notice to the server.
    pub(crate) fn cut(self) {
        drop(self.transport);
        // A task ends the TCP connection.
        self.runtime.block_on(tokio::task::yield_now());
    }
}

/// There are many clients and few cores: the engine of each sleeps while it is idle.
#[derive(Debug)]
struct Sleeper;

impl Provider for Sleeper {
    fn name(&self) -> &'static str {
        SoftProvider.name()
    }

    fn open_engine(&self, config: EngineConfig) -> Result<Box<dyn Engine>, EngineError> {
        SoftProvider.open_engine(EngineConfig { polling: PollPolicy::Block, ..config })
    }
}

fn silent() -> Lost {
    Lost::Fault(format!("no answer for {} s", patience().as_secs()))
}

// Connections end by design; an error that the server or this client caused is a fault.
fn lost(error: ConnectionError) -> Lost {
    use ConnectionError as E;
    match error {
        E::HostIo(_)
        | E::PeerClosed
        | E::Closed
        | E::RdmaDial(_)
        | E::RdmaWork(WcStatus::Flushed)
        | E::RdmaLost(
            DisconnectReason::Local
            | DisconnectReason::PeerClosed
            | DisconnectReason::HostIo { .. },
        ) => Lost::Connection,
        error => Lost::Fault(error.to_string()),
    }
}

/// How long an answer may take.
pub(crate) fn patience() -> Duration {
    PATIENCE.get().copied().unwrap_or(AT_ONCE)
}

/// Connections may be half open from here on: a break may reach nobody, and the server then waits its 35 s.
pub(crate) fn wait_for_breaks() {
    PATIENCE.get_or_init(|| UNTOLD);
}

static PATIENCE: OnceLock<Duration> = OnceLock::new();
/// Shorter than the 35 s that the holder of a lease has to answer a break: all clients here answer
/// at once.
const AT_ONCE: Duration = Duration::from_secs(30);
/// Longer than that.
const UNTOLD: Duration = Duration::from_secs(45);
/// Longer than any answer here.
const FRAME_MAX: usize = 1 << 20;
/// One request at a time borrows this memory: the longest one needs all of it.
const POOL_LEN: u32 = crate::ask::LENGTH_MAX;
