//! An established connection, against a peer that sends anything and a caller that does as well.
//!
//! What leaves must parse, must add up to the messages that were queued, and must obey the credit
//! rules as the peer sees them. Memory must stay within what was agreed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use smbdirect::{
    Acceptor, Blame, Config, Connection, DataTransfer, NegotiateRequest, Offer, Token,
};

use crate::Input;

enum Operation<'a> {
    /// Queue a message.
    Send {
        len: u16,
        token: Option<Token>,
    },
    /// The peer sends these bytes.
    Raw(&'a [u8]),
    /// The peer sends a message whose header is well formed.
    Message {
        granted: u16,
        asks: bool,
        remaining: u32,
        payload: &'a [u8],
    },
    Post(u16),
    Transmit,
    Wait(Duration),
}

impl<'a> Operation<'a> {
    fn read(input: &mut Input<'a>) -> Self {
        match input.byte() % 8 {
            0 => Self::Send { len: input.u16(), token: None },
            1 => Self::Send { len: input.u16(), token: Some(Token(input.u32())) },
            2 => Self::Raw(input.chunk()),
            3 | 4 => Self::Message {
                granted: input.u16(),
                asks: input.byte() & 1 != 0,
                remaining: input.u32(),
                payload: input.chunk(),
            },
            5 => Self::Post(u16::from(input.byte())),
            6 => Self::Transmit,
            _ => Self::Wait(Duration::from_millis(u64::from(input.u32()))),
        }
    }
}

/// The connection and what its peer and its caller know of it.
struct Run {
    connection: Connection,
    now: Instant,
    buffers: u16,
    peer_credits: u64,
    our_credits: u64,
    queued: VecDeque<(usize, Option<Token>)>,
    cut: usize,
    out: Vec<u8>,
}

/// Two bytes for the peer's sizes, then operations.
pub(crate) fn connection(data: &[u8]) {
    let mut input = Input::new(data);
    let Some(mut run) = Run::begin(input.u16()) else { return };
    while !input.is_empty() {
        run.apply(Operation::read(&mut input));
        if let Some(reason) = run.connection.closed() {
            assert!(run.connection.poll_transmit(&mut run.out).is_none());
            assert_eq!(run.connection.handle_receive(run.now, &[]), Err(reason));
            return;
        }
        assert_eq!(u64::from(run.connection.receive_credits()), run.peer_credits);
        let held = run.our_credits.min(u64::from(u16::MAX));
        assert_eq!(u64::from(run.connection.send_credits()), held);
        run.our_credits = held;
        assert_eq!(run.connection.queued(), run.queued.len());
    }
}

impl Run {
    fn begin(size: u16) -> Option<Self> {
        let now = Instant::now();
        let mut acceptor = Acceptor::new(Config::default(), now).expect("the default is honest");
        acceptor.receives_posted(BUFFERS);
        let offer = Offer {
            credits_requested: 255,
            preferred_send_size: u32::from(size),
            receive_size_max: u32::from(size).max(128),
            fragmented_size_max: 131_072,
        };
        let mut request = [0; NegotiateRequest::LEN];
        NegotiateRequest { offer }.emit(&mut request);
        acceptor.handle_receive(now, &request).ok()?;
        acceptor.poll_transmit()?;
        let connection = Connection::new(acceptor.outcome()?.ok()?, now);
        let peer_credits = u64::from(connection.receive_credits());
        Some(Self {
            connection,
            now,
            buffers: BUFFERS,
            peer_credits,
            our_credits: 0,
            queued: VecDeque::new(),
            cut: 0,
            out: vec![0; 8192],
        })
    }

    fn apply(&mut self, operation: Operation<'_>) {
        match operation {
            Operation::Send { len, token } => {
                let len = usize::from(len);
                if self.connection.send(vec![0x5a; len], token).is_ok() {
                    self.queued.push_back((len, token));
                }
            }
            Operation::Raw(bytes) => self.receive(bytes),
            Operation::Message { granted, asks, remaining, payload } => {
                let header = DataTransfer {
                    credits_requested: 255,
                    credits_granted: granted,
                    response_requested: asks,
                    remaining,
                };
                let len = u32::try_from(payload.len()).expect("no longer than the input");
                let mut head = [0; DataTransfer::PAYLOAD_OFFSET];
                let head_len = header.emit(len, &mut head);
                self.receive(&[&head[..head_len], payload].concat());
            }
            Operation::Post(count) => {
                // A real caller cannot post more buffers than it has.
                let count = count.min(BUFFERS - self.buffers);
                self.buffers += count;
                self.connection.receives_posted(count);
            }
            Operation::Transmit => self.transmit(),
            Operation::Wait(time) => {
                self.now += time;
                if let Err(reason) = self.connection.handle_timeout(self.now) {
                    let withheld = reason.blame() == Blame::Local;
                    assert_eq!(withheld, self.peer_credits == 0);
                }
            }
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        // A queue pair without a receive buffer never delivers.
        let Some(buffers) = self.buffers.checked_sub(1) else { return };
        self.buffers = buffers;
        if let Ok(message) = self.connection.handle_receive(self.now, bytes) {
            assert!(message.is_none_or(|message| message.len() <= 1_044_480));
            self.peer_credits =
                self.peer_credits.checked_sub(1).expect("no message without a credit");
            let (header, _) = DataTransfer::parse(bytes).expect("it was accepted");
            self.our_credits += u64::from(header.credits_granted);
        }
    }

    fn transmit(&mut self) {
        let Some(transmit) = self.connection.poll_transmit(&mut self.out) else { return };
        let message = &self.out[..transmit.len];
        let (header, payload) = DataTransfer::parse(message).expect("we send what we accept");
        let granted = u64::from(header.credits_granted);
        assert!(self.our_credits > 1 || (self.our_credits == 1 && granted > 0));
        self.our_credits -= 1;
        self.peer_credits += granted;
        assert!(self.peer_credits <= u64::from(self.buffers), "only posted buffers are granted");
        if payload.is_empty() {
            assert_eq!((transmit.finished, transmit.invalidate), (None, None));
            return;
        }
        let &(len, token) = self.queued.front().expect("payload comes from the queue");
        self.cut += payload.len();
        assert_eq!(u32::try_from(len - self.cut), Ok(header.remaining));
        if header.remaining == 0 {
            assert_eq!(transmit.finished.map(|message| message.len()), Some(len));
            assert_eq!(transmit.invalidate, token);
            self.cut = 0;
            self.queued.pop_front();
        } else {
            assert_eq!((transmit.finished, transmit.invalidate), (None, None));
        }
    }
}

const BUFFERS: u16 = 64;
