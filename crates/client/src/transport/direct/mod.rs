//! Frames over SMB Direct, and registered memory for READ and WRITE.
//!
//! ```text
//!   FrameSender --queue, waker--> engine thread --RDMA Send--> server
//!   FrameReceiver <---channel---- (Driver)      <--RDMA Recv---
//!   Pool: one region, cut into slots; the server reads and writes it by RDMA
//! ```
//!
//! The engine belongs to one thread. The credits of SMB bound the queue of frames to send, and
//! [`FRAMES_MAX`] bounds the server's frames.
//!
//! Spec: MS-SMBD §3.1.5.7; MS-SMB2 §3.2.4.6, §3.2.4.7.

mod driver;
mod pool;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

pub(crate) use pool::RDMA_LEN_MIN;
pub use pool::{Pool, Slots};
use rdma::{EngineConfig, Provider, QpConfig, Waker};
use tokio::sync::{mpsc, oneshot};

use super::{FrameLimits, FrameReceiver, FrameSender, InFrame, OutFrame, Transport};
use crate::error::ConnectionError;

/// How to make an SMB Direct connection.
#[derive(Clone, Debug)]
pub struct DirectConfig {
    /// Sizes and credits of SMB Direct.
    pub limits: smbdirect::Config,
    /// The queue pair. Its depths are raised to what the credits need.
    pub qp: QpConfig,
    /// The engine of the connection, and its clock.
    pub engine: EngineConfig,
    /// Registered memory for READ and WRITE, in bytes.
    pub pool_len: u32,
}

impl Default for DirectConfig {
    fn default() -> Self {
        let limits = smbdirect::Config::default();
        let (qp, engine) = (QpConfig::default(), EngineConfig::default());
        Self { limits, qp, engine, pool_len: 16 * 1024 * 1024 }
    }
}

/// Dials `address` and negotiates.
///
/// # Errors
/// The connection could not be made; nothing of it is left.
pub async fn connect(
    provider: &dyn Provider,
    address: SocketAddr,
    config: DirectConfig,
) -> Result<Transport, ConnectionError> {
    let engine = provider.open_engine(config.engine.clone())?;
    let shared = Arc::new(Shared { commands: Mutex::default(), waker: engine.waker() });
    let (frames, receiver) = mpsc::channel(FRAMES_MAX);
    let (up, established) = oneshot::channel();
    let driver = driver::Driver::dial(engine, address, config, Arc::clone(&shared), frames, up)?;
    std::thread::Builder::new()
        .name("landfast-direct".to_owned())
        .spawn(move || driver.run())
        .map_err(ConnectionError::from)?;
    // A caller that stops waiting here drops the sender, which ends the thread.
    let sender = Sender(shared);
    let up = established.await.unwrap_or(Err(ConnectionError::Closed))?;
    let (sender, receiver) = (Box::new(sender), Box::new(Receiver(receiver)));
    let (peer, limits) = (Some(address.ip()), up.limits);
    Ok(Transport { sender, receiver, pool: Some(up.pool), peer, limits })
}

/// An established connection.
#[derive(Debug)]
struct Up {
    pool: Arc<Pool>,
    limits: FrameLimits,
}

/// State that the engine thread and the senders share.
#[derive(Debug)]
struct Shared {
    commands: Mutex<Commands>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Commands {
    frames: VecDeque<Vec<u8>>,
    ended: Option<ConnectionError>,
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Commands> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Sender(Arc<Shared>);

impl FrameSender for Sender {
    fn send(&self, frame: OutFrame) -> Result<(), ConnectionError> {
        let mut commands = self.0.lock();
        if let Some(error) = commands.ended {
            return Err(error);
        }
        commands.frames.push_back(frame.into_payload());
        drop(commands);
        self.0.waker.wake();
        Ok(())
    }

    fn close(&self) {
        self.0.lock().ended.get_or_insert(ConnectionError::Closed);
        self.0.waker.wake();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.close();
    }
}

#[derive(Debug)]
struct Receiver(mpsc::Receiver<Result<Vec<u8>, ConnectionError>>);

impl FrameReceiver for Receiver {
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        len_max: usize,
    ) -> Poll<Result<InFrame, ConnectionError>> {
        self.0.poll_recv(cx).map(|frame| {
            let frame = frame.unwrap_or(Err(ConnectionError::Closed))?;
            match frame.len() <= len_max {
                true => Ok(frame.into()),
                false => Err(ConnectionError::PeerFrame { len: frame.len(), len_max }),
            }
        })
    }
}

/// Frames that may wait for the receiving task. A server only answers open requests and breaks
/// leases; a server that sends more loses its connection.
const FRAMES_MAX: usize = 1024;

#[cfg(test)]
mod tests;
