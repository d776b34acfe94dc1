//! Two negotiated machines joined by a wire, and captured conversations of other implementations.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use smbdirect::{
    Acceptor, CloseReason, Config, Connection, Initiator, NegotiateRequest, NegotiateResponse,
    Token,
};

/// A connection, its receive queue, and the messages that the layer above received.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) connection: Connection,
    /// Receive buffers posted and still empty.
    pub(crate) posted: u16,
    /// Receive buffers that were used and are not posted again yet.
    pub(crate) used: u16,
    pub(crate) received: Vec<Vec<u8>>,
    pub(crate) invalidated: Vec<Option<Token>>,
}

impl Endpoint {
    fn new(connection: Connection, posted: u16) -> Self {
        Self { connection, posted, used: 0, received: Vec::new(), invalidated: Vec::new() }
    }

    /// Posts up to `count` used buffers again.
    pub(crate) fn repost(&mut self, count: u16) {
        let count = count.min(self.used);
        self.used -= count;
        self.posted += count;
        self.connection.receives_posted(count);
    }

    /// Takes one message off the wire, as the queue pair would.
    pub(crate) fn deliver(&mut self, now: Instant, sent: &Sent) -> Result<(), CloseReason> {
        self.posted = self.posted.checked_sub(1).expect("a credit stands for a posted buffer");
        self.used += 1;
        let message = self.connection.handle_receive(now, &sent.bytes)?;
        if let Some(message) = message {
            self.received.push(message.to_vec());
            self.invalidated.push(sent.invalidate);
        } else {
            assert_eq!(sent.invalidate, None, "a token travels with the last fragment only");
        }
        Ok(())
    }
}

/// One RDMA Send under way.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) bytes: Vec<u8>,
    pub(crate) invalidate: Option<Token>,
}

/// Both ends and the messages under way between them. Index 0 is the initiator.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) ends: [Endpoint; 2],
    pub(crate) towards: [VecDeque<Sent>; 2],
    pub(crate) now: Instant,
    /// Number of messages that left, and of those with payload.
    pub(crate) transmitted: [usize; 2],
    scratch: Vec<u8>,
}

impl Wire {
    /// Negotiates with everything delivered at once and all receive buffers posted.
    pub(crate) fn establish(configs: [Config; 2]) -> Self {
        let now = Instant::now();
        let mut initiator = Initiator::new(configs[0]).unwrap();
        let mut acceptor = Acceptor::new(configs[1], now).unwrap();
        acceptor.receives_posted(configs[1].receive_credit_max);
        let mut request = [0; NegotiateRequest::LEN];
        initiator.poll_transmit(now).unwrap().emit(&mut request);
        acceptor.handle_receive(now, &request).unwrap();
        let mut response = [0; NegotiateResponse::LEN];
        acceptor.poll_transmit().unwrap().emit(&mut response);
        let first = initiator.handle_receive(now, &response).unwrap();
        let second = acceptor.outcome().unwrap().unwrap();
        let mut first = Endpoint::new(Connection::new(first, now), configs[0].receive_credit_max);
        first.connection.receives_posted(configs[0].receive_credit_max);
        let second = Endpoint::new(Connection::new(second, now), configs[1].receive_credit_max);
        Self {
            ends: [first, second],
            towards: [VecDeque::new(), VecDeque::new()],
            now,
            transmitted: [0; 2],
            scratch: vec![0; 1 << 17],
        }
    }

    /// Lets `side` put one message on the wire.
    pub(crate) fn transmit(&mut self, side: usize) -> bool {
        let Some(transmit) = self.ends[side].connection.poll_transmit(&mut self.scratch) else {
            return false;
        };
        let bytes = self.scratch[..transmit.len].to_vec();
        self.transmitted[usize::from(bytes.len() > 20)] += 1;
        self.towards[1 - side].push_back(Sent { bytes, invalidate: transmit.invalidate });
        true
    }

    /// Lets `side` take one message off the wire.
    pub(crate) fn deliver(&mut self, side: usize) -> bool {
        let Some(sent) = self.towards[side].pop_front() else { return false };
        self.ends[side].deliver(self.now, &sent).unwrap();
        true
    }

    /// Runs until neither end sends, with buffers posted again at once. The number of rounds is bounded:
    /// two machines that never fall silent fail here.
    pub(crate) fn settle(&mut self) {
        for _ in 0..1_000_000 {
            let mut moved = false;
            for side in [0, 1] {
                self.ends[side].repost(u16::MAX);
                moved |= self.transmit(side);
                moved |= self.deliver(side);
            }
            if !moved {
                return;
            }
        }
        panic!("the two sides do not come to rest");
    }

    /// Lets the virtual time pass; every deadline on the way fires at its time.
    pub(crate) fn advance(&mut self, delta: Duration) {
        let end = self.now + delta;
        loop {
            let due = self.ends.iter().filter_map(|end| end.connection.poll_timeout()).min();
            let Some(due) = due.filter(|due| *due <= end) else { break };
            self.now = self.now.max(due);
            for side in [0, 1] {
                self.ends[side].connection.handle_timeout(self.now).unwrap();
            }
            self.settle();
        }
        self.now = end;
    }
}

/// A message of a captured conversation.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) from_initiator: bool,
    pub(crate) bytes: Vec<u8>,
    pub(crate) invalidate: Option<Token>,
}

/// Reads a fixture: `> hex` from the initiator, `< hex [token]` from the acceptor, `#` comments.
pub(crate) fn captured(text: &str) -> Vec<Captured> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split(' ');
            let from_initiator = words.next().unwrap() == ">";
            let hex = words.next().unwrap();
            let bytes = (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                .collect();
            let invalidate = words.next().map(|t| Token(u32::from_str_radix(t, 16).unwrap()));
            Captured { from_initiator, bytes, invalidate }
        })
        .collect()
}

pub(crate) const LINUX_6_12: &str = include_str!("../fixtures/linux-6.12-plain.txt");
pub(crate) const LINUX_7_2: &str = include_str!("../fixtures/linux-7.2-plain.txt");
pub(crate) const LINUX_7_2_SIGNED_WRITE: &str =
    include_str!("../fixtures/linux-7.2-signed-write.txt");
