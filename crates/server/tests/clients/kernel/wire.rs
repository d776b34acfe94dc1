//! Two stacks of ours, from MPA to SMB Direct, in the place of the two kernels.
//!
//! ```text
//!   captured bytes --> Stream of the receiver --> what it means --> Stream of the sender --> the same bytes?
//!                                                       |
//!                                                       +--> smbdirect::Connection --> whole SMB2 messages
//! ```

use std::time::{Duration, Instant};

use iwarp::mpa::{Attempt, StartConfig};
use iwarp::rdmap::ReadRequestRepr;
use iwarp::stream::SendKind;
use iwarp::{Agreement, Indication, Received, Stag, Stream};
use smbdirect::{Config, Connection, NegotiateRequest, NegotiateResponse};

/// Who sent something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum From {
    /// cifs.ko, which dialled.
    Client,
    /// ksmbd.
    Server,
}

/// One TCP segment of a fixture.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) from: From,
    pub(crate) bytes: Vec<u8>,
}

/// Reads a fixture: `> hex` from the client, `< hex` from the server, `*N` for N bytes that were left out.
pub(crate) fn segments(text: &str) -> Vec<Segment> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split(' ');
            let from = match words.next() {
                Some(">") => From::Client,
                Some("<") => From::Server,
                other => panic!("a line begins with {other:?}"),
            };
            let mut bytes = Vec::new();
            for word in words {
                match word.strip_prefix('*') {
                    Some(len) => bytes.resize(bytes.len() + len.parse::<usize>().unwrap(), 0),
                    None => bytes.extend(hex(word)),
                }
            }
            Segment { from, bytes }
        })
        .collect()
}

fn hex(text: &str) -> impl Iterator<Item = u8> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    assert!(rest.is_empty(), "an odd number of digits");
    pairs.iter().map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
}

/// What one end was seen to do, above RDMAP and SMB Direct.
#[derive(Debug)]
pub(crate) enum Seen {
    /// A whole SMB2 message.
    Message(From, Vec<u8>, Option<Stag>),
    /// An RDMA Read Request of the server's.
    Asked(ReadRequestRepr),
    /// Part of the answer to it: where it lies in the answer, how long it is, whether it is the last.
    Answered(u32, usize, bool),
    /// Part of an RDMA Write of the server's.
    Written(Stag, u64, usize),
}

/// How cifs.ko dials.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dial {
    pub(crate) private_data: [u8; 8],
    /// It never reads, and yet 7.2 asks for one.
    pub(crate) ord: u16,
}

/// What the kernels want of MPA. Neither asks for a CRC; ksmbd reads eight at a time.
fn start_config(ird: u16, ord: u16) -> StartConfig {
    StartConfig { crc: false, ird, ord, profile: None, timeout: Duration::from_secs(5) }
}

/// What both kernels want of SMB Direct.
pub(crate) fn limits() -> Config {
    Config {
        send_size_max: 1364,
        receive_size_max: 1364,
        fragmented_receive_size_max: 173_910,
        ..Config::default()
    }
}

/// The start-up of MPA as captured, between two machines of ours.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) client: Agreement,
    pub(crate) server: Agreement,
    /// What cifs.ko and ksmbd said beside it.
    pub(crate) private_data: [Vec<u8>; 2],
}

pub(crate) fn start(request: &[u8], reply: &[u8], dial: Dial) -> Started {
    let now = Instant::now();
    let Dial { private_data, ord } = dial;
    let (config, attempt) = (start_config(32, ord), Attempt::CLIENT_SERVER);
    let mut initiator = iwarp::mpa::Initiator::new(config, attempt, &private_data, now).unwrap();
    assert_eq!(initiator.poll_transmit().unwrap(), request, "we would dial with the same bytes");
    let mut responder = iwarp::mpa::Responder::new(start_config(1, 8), now).unwrap();
    assert_eq!(responder.handle_bytes(request), request.len());
    let asked = responder.request().unwrap();
    assert_eq!((asked.depths, asked.crc, asked.markers), (Some((32, ord)), false, false));
    let asked = asked.private_data.to_vec();
    let server = responder.accept(&[]).unwrap();
    assert_eq!(initiator.handle_bytes(reply), reply.len());
    let client = initiator.outcome().unwrap().unwrap();
    Started { client, server, private_data: [asked, initiator.private_data().to_vec()] }
}

/// One end in full operation.
#[derive(Debug)]
struct End {
    stream: Stream,
    /// Bytes of a frame that is not whole yet.
    partial: Vec<u8>,
    smbd: Smbd,
}

#[derive(Debug)]
enum Smbd {
    Waiting(smbdirect::Acceptor),
    Asking(smbdirect::Initiator),
    Up(Box<Connection>),
}

/// Both ends.
#[derive(Debug)]
pub(crate) struct Wire {
    client: End,
    server: End,
    now: Instant,
    pub(crate) seen: Vec<Seen>,
    /// Frames that came out of us as they had gone in.
    pub(crate) frames: usize,
}

impl Wire {
    pub(crate) fn new(started: &Started) -> Self {
        let now = Instant::now();
        let mut initiator = smbdirect::Initiator::new(limits()).unwrap();
        initiator.poll_transmit(now).unwrap();
        let mut acceptor = smbdirect::Acceptor::new(limits(), now).unwrap();
        acceptor.receives_posted(RECEIVES);
        let end = |agreement: &Agreement, smbd| End {
            stream: Stream::new(agreement, 1460),
            partial: Vec::new(),
            smbd,
        };
        Self {
            client: end(&started.client, Smbd::Asking(initiator)),
            server: end(&started.server, Smbd::Waiting(acceptor)),
            now,
            seen: Vec::new(),
            frames: 0,
        }
    }

    /// Carries one segment over.
    pub(crate) fn carry(&mut self, segment: &Segment) {
        let receiver = self.receiver(segment.from);
        receiver.partial.extend_from_slice(&segment.bytes);
        let bytes = std::mem::take(&mut receiver.partial);
        let mut taken = 0;
        loop {
            let (sender, receiver) = match segment.from {
                From::Client => (&mut self.client, &mut self.server),
                From::Server => (&mut self.server, &mut self.client),
            };
            let rest = &bytes[taken..];
            let received = receiver.stream.receive(rest).unwrap();
            let Received::Frame { consumed, indication } = received else { break };
            let frame = &rest[..consumed];
            taken += consumed;
            // The kernels fill what segments there are; here it is the captured frame that says how long.
            sender.stream.set_emss(frame.len().max(EMSS_MIN));
            assert_eq!(frame_again(&mut sender.stream, &indication), frame, "{indication:?}");
            self.frames += 1;
            self.understand(segment.from, &indication);
        }
        self.receiver(segment.from).partial = bytes[taken..].to_vec();
    }

    /// Whether all that was asked was answered and no frame is cut.
    pub(crate) fn is_at_rest(&self) -> bool {
        let (client, server) = (&self.client, &self.server);
        server.stream.outstanding() == 0
            && client.stream.unanswered() == 0
            && client.partial.is_empty()
            && server.partial.is_empty()
    }

    fn receiver(&mut self, from: From) -> &mut End {
        match from {
            From::Client => &mut self.server,
            From::Server => &mut self.client,
        }
    }

    fn understand(&mut self, from: From, indication: &Indication<'_>) {
        let seen = match indication {
            Indication::Send(send) => {
                assert!(send.last && send.offset == 0, "each fits one frame");
                let now = self.now;
                let Some(message) = self.receiver(from).smbd.take(now, send.payload) else {
                    return;
                };
                Seen::Message(from, message, send.invalidate)
            }
            Indication::ReadRequest(request) => Seen::Asked(*request),
            Indication::ReadResponse(segment) => {
                Seen::Answered(segment.offset, segment.payload.len(), segment.last)
            }
            Indication::Write(segment) => {
                Seen::Written(segment.stag, segment.tagged_offset, segment.payload.len())
            }
            other => panic!("neither kernel does {other:?}"),
        };
        self.seen.push(seen);
    }
}

impl Smbd {
    /// Takes one message in; hands out the SMB2 message it completes.
    fn take(&mut self, now: Instant, message: &[u8]) -> Option<Vec<u8>> {
        let agreement = match self {
            Self::Waiting(acceptor) => {
                let mut ours = [0; NegotiateRequest::LEN];
                let mut initiator = smbdirect::Initiator::new(limits()).unwrap();
                initiator.poll_transmit(now).unwrap().emit(&mut ours);
                assert_eq!(ours, message, "we would ask for the same");
                acceptor.handle_receive(now, message).unwrap();
                assert!(matches!(
                    acceptor.poll_transmit(),
                    Some(NegotiateResponse::Accepted { .. })
                ));
                acceptor.outcome().unwrap().unwrap()
            }
            Self::Asking(initiator) => initiator.handle_receive(now, message).unwrap(),
            Self::Up(connection) => {
                let whole = connection.handle_receive(now, message).unwrap().map(<[u8]>::to_vec);
                connection.receives_posted(1);
                // What we would grant meanwhile leaves, or the kernel's next message would come without a credit.
                while connection.poll_transmit(&mut [0; 1364]).is_some() {}
                return whole;
            }
        };
        assert_eq!((agreement.send_size_max, agreement.receive_size_max), (1364, 1364));
        assert_eq!(agreement.fragmented_send_size_max, 173_910);
        let mut connection = Connection::new(agreement, now);
        if matches!(self, Self::Asking(_)) {
            connection.receives_posted(RECEIVES);
        }
        while connection.poll_transmit(&mut [0; 1364]).is_some() {}
        *self = Self::Up(Box::new(connection));
        None
    }
}

/// Frames what `indication` says was framed.
fn frame_again(stream: &mut Stream, indication: &Indication<'_>) -> Vec<u8> {
    let mut out = vec![0; 1 << 17];
    let fill = |from: &[u8]| {
        let from = from.to_vec();
        move |room: &mut [u8]| {
            room.copy_from_slice(&from[..room.len()]);
            Ok::<(), std::convert::Infallible>(())
        }
    };
    let len = |payload: &[u8]| u32::try_from(payload.len()).unwrap();
    let size = match indication {
        Indication::Send(send) => {
            let kind = SendKind { solicited: send.solicited, invalidate: send.invalidate };
            stream.frame_send(&mut out, kind, len(send.payload), fill(send.payload)).unwrap().size
        }
        Indication::ReadRequest(request) => stream.frame_read_request(&mut out, request).unwrap(),
        Indication::ReadResponse(segment) => {
            let framed = stream.frame_read_response(&mut out, fill(segment.payload)).unwrap();
            assert_eq!(framed.last, segment.last);
            framed.size
        }
        Indication::Write(segment) => {
            assert!(segment.last, "ksmbd writes 16 KiB at a time here");
            let (stag, at, payload) = (segment.stag, segment.tagged_offset, segment.payload);
            stream.frame_write(&mut out, stag, at, len(payload), fill(payload)).unwrap().size
        }
        other => panic!("neither kernel does {other:?}"),
    };
    out.truncate(size);
    out
}

/// Receives the kernels post.
const RECEIVES: u16 = 255;
/// Longest of the kernels' messages that are no RDMA payload.
const EMSS_MIN: usize = 1460;
