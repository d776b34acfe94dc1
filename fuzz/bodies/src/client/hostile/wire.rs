//! Frames in memory, and a clock that shows tokio's time.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Instant, SystemTime};

use basics::{Clock, Environment, Random, TimeSource};
use client::ConnectionError;
use client::transport::{FrameLimits, FrameReceiver, FrameSender, InFrame, OutFrame, Transport};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The server's ends.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) requests: UnboundedReceiver<Vec<u8>>,
    pub(super) answers: UnboundedSender<Vec<u8>>,
}

/// A connection.
pub(super) fn pair() -> (Transport, Ends) {
    let (outbound, requests) = unbounded_channel();
    let (answers, inbound) = unbounded_channel();
    let transport = Transport {
        sender: Box::new(Outbound(outbound)),
        receiver: Box::new(Inbound(inbound)),
        pool: None,
        peer: None,
        limits: FrameLimits::NONE,
    };
    (transport, Ends { requests, answers })
}

#[derive(Debug)]
struct Outbound(UnboundedSender<Vec<u8>>);

impl FrameSender for Outbound {
    fn send(&self, frame: OutFrame) -> Result<(), ConnectionError> {
        self.0.send(frame.payload().to_vec()).map_err(|_| ConnectionError::PeerClosed)
    }

    fn close(&self) {}
}

#[derive(Debug)]
struct Inbound(UnboundedReceiver<Vec<u8>>);

impl FrameReceiver for Inbound {
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        len_max: usize,
    ) -> Poll<Result<InFrame, ConnectionError>> {
        let frame = ready!(self.0.poll_recv(cx)).ok_or(ConnectionError::PeerClosed)?;
        Poll::Ready(match frame.len() <= len_max {
            true => Ok(frame.into()),
            false => Err(ConnectionError::PeerFrame { len: frame.len(), len_max }),
        })
    }
}

/// The client's environment: tokio's clock, and the host's random numbers.
pub(super) fn environment() -> Environment {
    Environment { clock: Clock::given(Arc::new(Virtual)), random: Random::host() }
}

struct Virtual;

impl TimeSource for Virtual {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn time_of_day(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }
}
