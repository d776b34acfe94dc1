//! Control messages between clients and the daemons that hold pieces, over TCP. docs/store.md has the tables.
//!
//! ```text
//!   greeting  daemon  "LFST" | version 2 | size 2 | nonce 16 | incarnation 8
//!             client  "LFST" | version 2 | size 2 | nonce 16
//!   request   length 4 | sequence 8 | operation 2 | zero 6 | claims 40 | body | proof 32
//!   answer    length 4 | sequence 8 | kind 2 | status 2 | zero 4 | detail 8 | body | proof 32
//! ```
//!
//! All integers are little-endian; the length counts what follows it. The proof is HMAC-SHA256 under the MAC of the
//! token whose claims the request shows, over a label, both nonces and the frame before the proof: a message proves its
//! sender, and none can be used again, on this connection (the sequence) or another one (the nonces).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::ids::{ClientId, RegionId};
use crate::token::{Claims, MAC_LEN, Rights, Token};

/// What a client asks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Request {
    /// A token for one RDMA connection.
    Invite,
    /// A piece on an RDMA connection of this control connection.
    Map {
        /// The RDMA connection.
        connection: u64,
        /// The region.
        region: RegionId,
        /// The piece.
        piece: u32,
        /// What is meant to be done; no more than the token allows.
        rights: Rights,
        /// The epoch of the record by which the client goes.
        epoch: u64,
        /// The client's number of this mapping of the region: what is given back together has the same.
        group: u64,
    },
    /// A sign of life; the answer has the daemon's lease, and which regions are to be mapped again.
    Ping,
    /// A piece is made.
    Create {
        /// The region.
        region: RegionId,
        /// The piece.
        piece: u32,
        /// A piece that is there, of an earlier time, is replaced.
        replace: bool,
        /// Length in bytes.
        len: u64,
        /// The region's epoch.
        epoch: u64,
        /// The generation of the region's tokens.
        generation: u64,
    },
    /// All pieces of a region are removed.
    Remove {
        /// The region.
        region: RegionId,
    },
    /// Mappings of earlier epochs and tokens of earlier generations end; the answer comes when none is left.
    Epoch {
        /// The region.
        region: RegionId,
        /// The least epoch.
        epoch: u64,
        /// The least generation.
        generation: u64,
    },
    /// Adds to a counter of the region and wakes those who wait for it.
    Notify {
        /// The region.
        region: RegionId,
        /// The counter.
        channel: u32,
        /// What to add.
        add: u64,
    },
    /// Waits until a counter is above `seen`.
    Wait {
        /// The region.
        region: RegionId,
        /// The counter.
        channel: u32,
        /// How long at most, in milliseconds.
        patience_ms: u32,
        /// The count that the client knows.
        seen: u64,
    },
    /// Gives mappings of a region back.
    Unmap {
        /// The region.
        region: RegionId,
        /// Those of this number, as [`Request::Map`] has it.
        group: u64,
    },
    /// Ends a dead client's connections, and refuses its tokens from now on.
    Fence {
        /// The client.
        client: ClientId,
    },
}

/// What a daemon answers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// It is done.
    Done,
    /// A token for one RDMA connection.
    Invited {
        /// The token.
        token: [u8; 32],
        /// Where to dial.
        address: SocketAddr,
    },
    /// A piece, by its name on the RDMA connection.
    Mapped {
        /// The name.
        rkey: u32,
        /// The durability class, as `DurabilityClass` is numbered in push mode: 1 volatile, 2 storage, 3 pmem.
        class: u32,
        /// The address of the first byte.
        base: u64,
        /// Length in bytes.
        len: u64,
        /// Which operations are answered beyond writes and reads, as `rdma::PeerOperations`.
        offers: u32,
        /// 1: persistence is emulated.
        emulated: u32,
        /// How often the daemon's directory may have lost bytes that were not durable.
        losses: u64,
    },
    /// The daemon lives.
    Pong {
        /// How long its lease lasts from the moment of the request, in milliseconds; 0: it has none.
        lease_ms: u32,
        /// Regions whose epoch has passed, with the new one.
        passed: Vec<(RegionId, u64)>,
    },
    /// A counter.
    Count {
        /// Its value.
        count: u64,
    },
    /// The daemon refuses.
    Refused {
        /// Why.
        status: Status,
        /// For [`Status::EPOCH`] the epoch in force; else 0.
        detail: u64,
    },
}

/// Why a daemon refuses. Unknown values survive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Status(pub u16);

impl Status {
    /// The token was not signed with this store's key, or does not allow what was asked.
    pub const DENIED: Self = Self(1);
    /// The token's time is over.
    pub const EXPIRED: Self = Self(2);
    /// The daemon has no such piece.
    pub const NO_PIECE: Self = Self(3);
    /// The client goes by a record of an earlier epoch.
    pub const EPOCH: Self = Self(4);
    /// No room for the piece.
    pub const NO_SPACE: Self = Self(5);
    /// A bound of the daemon is reached.
    pub const LIMIT: Self = Self(6);
    /// The piece is there already.
    pub const EXISTS: Self = Self(7);
    /// The daemon's file system or RDMA engine failed.
    pub const HOST: Self = Self(8);
    /// The message is none.
    pub const MALFORMED: Self = Self(9);
    /// The client was declared dead.
    pub const FENCED: Self = Self(10);
    /// The tokens of this generation were revoked.
    pub const REVOKED: Self = Self(11);
    /// The wait is over and nothing happened.
    pub const TIMEOUT: Self = Self(12);
    /// The daemon has lost its own lease and serves nothing until it has a new one.
    pub const NO_LEASE: Self = Self(13);
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match *self {
            Self::DENIED => "the token is not of this store, or does not allow this",
            Self::EXPIRED => "the token has expired",
            Self::NO_PIECE => "it has no such piece",
            Self::EPOCH => "the region has changed: its record has to be read again",
            Self::NO_SPACE => "it has no room for the piece",
            Self::LIMIT => "a bound is reached",
            Self::EXISTS => "the piece is there already",
            Self::HOST => "its file system or RDMA engine failed",
            Self::MALFORMED => "it does not understand the message",
            Self::FENCED => "this client was declared dead",
            Self::REVOKED => "the token was revoked",
            Self::TIMEOUT => "nothing happened in time",
            Self::NO_LEASE => "it has lost its lease",
            Self(other) => return write!(f, "status {other:#x}"),
        })
    }
}

/// Both nonces of a control connection.
#[derive(Clone, Copy, Debug)]
pub struct Nonces {
    /// The daemon's.
    pub daemon: [u8; NONCE_LEN],
    /// The client's.
    pub client: [u8; NONCE_LEN],
}

/// The daemon's greeting.
pub fn greet(nonce: &[u8; NONCE_LEN], incarnation: u64) -> [u8; GREETING_LEN] {
    let mut out = [0; GREETING_LEN];
    out[..8].copy_from_slice(&head(GREETING_LEN));
    out[8..24].copy_from_slice(nonce);
    out[24..].copy_from_slice(&incarnation.to_le_bytes());
    out
}

/// Reads a daemon's greeting: its nonce and incarnation.
pub fn parse_greeting(bytes: &[u8; GREETING_LEN]) -> Option<([u8; NONCE_LEN], u64)> {
    let mut reader = Reader(bytes);
    (reader.array()? == head(GREETING_LEN)).then_some(())?;
    Some((reader.array()?, reader.u64()?))
}

/// The client's reply to a greeting.
pub fn reply(nonce: &[u8; NONCE_LEN]) -> [u8; REPLY_LEN] {
    let mut out = [0; REPLY_LEN];
    out[..8].copy_from_slice(&head(REPLY_LEN));
    out[8..].copy_from_slice(nonce);
    out
}

/// Reads a client's reply: its nonce.
pub fn parse_reply(bytes: &[u8; REPLY_LEN]) -> Option<[u8; NONCE_LEN]> {
    let mut reader = Reader(bytes);
    (reader.array()? == head(REPLY_LEN)).then_some(())?;
    reader.array()
}

fn head(len: usize) -> [u8; 8] {
    let mut out = *b"LFST\0\0\0\0";
    out[4..6].copy_from_slice(&VERSION.to_le_bytes());
    out[6..].copy_from_slice(&u16::try_from(len).expect("a greeting is short").to_le_bytes());
    out
}

impl Request {
    /// The request as a frame that `token` proves.
    pub fn seal(&self, sequence: u64, token: &Token, nonces: &Nonces) -> Vec<u8> {
        let (operation, body) = self.emit();
        let mut frame = Vec::with_capacity(REQUEST_HEAD + body.len() + MAC_LEN);
        frame.extend(sequence.to_le_bytes());
        frame.extend(operation.to_le_bytes());
        frame.extend([0; 6]);
        frame.extend(token.claims().emit());
        frame.extend(body);
        let proof = token.prove(&[ASKS, &nonces.daemon, &nonces.client, &frame]);
        frame.extend(proof);
        framed(frame)
    }

    /// The operation and the body.
    pub fn emit(&self) -> (u16, Vec<u8>) {
        let mut out = Vec::new();
        let operation = match *self {
            Self::Invite => 1,
            Self::Map { connection, region, piece, rights, epoch, group } => {
                out.extend(connection.to_le_bytes());
                out.extend(region.0.to_le_bytes());
                out.extend(piece.to_le_bytes());
                out.extend(rights.bits().to_le_bytes());
                out.extend(epoch.to_le_bytes());
                out.extend(group.to_le_bytes());
                2
            }
            Self::Ping => 3,
            Self::Create { region, piece, replace, len, epoch, generation } => {
                out.extend(region.0.to_le_bytes());
                out.extend(piece.to_le_bytes());
                out.extend(u32::from(replace).to_le_bytes());
                [len, epoch, generation].iter().for_each(|one| out.extend(one.to_le_bytes()));
                4
            }
            Self::Remove { region } => {
                out.extend(region.0.to_le_bytes());
                5
            }
            Self::Epoch { region, epoch, generation } => {
                [region.0, epoch, generation].iter().for_each(|one| out.extend(one.to_le_bytes()));
                6
            }
            Self::Notify { region, channel, add } => {
                out.extend(region.0.to_le_bytes());
                out.extend(channel.to_le_bytes());
                out.extend([0; 4]);
                out.extend(add.to_le_bytes());
                7
            }
            Self::Wait { region, channel, patience_ms, seen } => {
                out.extend(region.0.to_le_bytes());
                out.extend(channel.to_le_bytes());
                out.extend(patience_ms.to_le_bytes());
                out.extend(seen.to_le_bytes());
                8
            }
            Self::Unmap { region, group } => {
                out.extend(region.0.to_le_bytes());
                out.extend(group.to_le_bytes());
                9
            }
            Self::Fence { client } => {
                out.extend(client.0.to_le_bytes());
                10
            }
        };
        (operation, out)
    }

    /// Reads an operation and its body; `None`: it is none, or has bytes too few or too many.
    pub fn parse(operation: u16, body: &[u8]) -> Option<Self> {
        let mut r = Reader(body);
        let region = |r: &mut Reader<'_>| r.u64().map(RegionId);
        let request = match operation {
            1 => Self::Invite,
            2 => Self::Map {
                connection: r.u64()?,
                region: region(&mut r)?,
                piece: r.u32()?,
                rights: Rights::from_bits(r.u32()?)?,
                epoch: r.u64()?,
                group: r.u64()?,
            },
            3 => Self::Ping,
            4 => Self::Create {
                region: region(&mut r)?,
                piece: r.u32()?,
                replace: match r.u32()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                },
                len: r.u64()?,
                epoch: r.u64()?,
                generation: r.u64()?,
            },
            5 => Self::Remove { region: region(&mut r)? },
            6 => Self::Epoch { region: region(&mut r)?, epoch: r.u64()?, generation: r.u64()? },
            7 => {
                let (region, channel) = (region(&mut r)?, r.u32()?);
                (r.u32()? == 0).then_some(())?;
                Self::Notify { region, channel, add: r.u64()? }
            }
            8 => Self::Wait {
                region: region(&mut r)?,
                channel: r.u32()?,
                patience_ms: r.u32()?,
                seen: r.u64()?,
            },
            9 => Self::Unmap { region: region(&mut r)?, group: r.u64()? },
            10 => Self::Fence { client: ClientId(r.u64()?) },
            _ => return None,
        };
        r.0.is_empty().then_some(request)
    }
}

/// A request as it came, whose proof nobody has looked at.
#[derive(Clone, Copy, Debug)]
pub struct Sealed<'f> {
    /// Grows by one with each request of a connection.
    pub sequence: u64,
    /// What the client claims to be allowed.
    pub claims: Claims,
    operation: u16,
    body: &'f [u8],
    signed: &'f [u8],
    proof: &'f [u8],
}

impl<'f> Sealed<'f> {
    /// Reads a frame without its length.
    pub fn parse(frame: &'f [u8]) -> Option<Self> {
        let (signed, proof) = frame.split_at_checked(frame.len().checked_sub(MAC_LEN)?)?;
        let mut reader = Reader(signed);
        let (sequence, operation) = (reader.u64()?, reader.u16()?);
        (reader.array()? == [0; 6]).then_some(())?;
        let claims = Claims::parse(reader.take(Claims::LEN)?)?;
        Some(Self { sequence, claims, operation, body: reader.0, signed, proof })
    }

    /// The request, if the holder of `token` sent it. `token` is what the daemon's key makes of the claims.
    pub fn open(&self, token: &Token, nonces: &Nonces) -> Option<Request> {
        let parts: [&[u8]; 4] = [ASKS, &nonces.daemon, &nonces.client, self.signed];
        token.is_proven(&parts, self.proof).then_some(())?;
        Request::parse(self.operation, self.body)
    }
}

impl Answer {
    /// The answer as a frame; without a token, to a client that proved nothing, the proof is zeros.
    pub fn seal(&self, sequence: u64, token: Option<&Token>, nonces: &Nonces) -> Vec<u8> {
        let (kind, status, detail, body) = self.emit();
        let mut frame = Vec::with_capacity(ANSWER_HEAD + body.len() + MAC_LEN);
        frame.extend(sequence.to_le_bytes());
        frame.extend(kind.to_le_bytes());
        frame.extend(status.0.to_le_bytes());
        frame.extend([0; 4]);
        frame.extend(detail.to_le_bytes());
        frame.extend(body);
        let proof = token.map_or([0; MAC_LEN], |token| {
            token.prove(&[ANSWERS, &nonces.daemon, &nonces.client, &frame])
        });
        frame.extend(proof);
        framed(frame)
    }

    /// Reads a frame without its length that answers request `sequence`. What is not proven is taken only where it
    /// refuses: then the daemon does not know the token.
    pub fn open(frame: &[u8], sequence: u64, token: &Token, nonces: &Nonces) -> Option<Self> {
        let (signed, proof) = frame.split_at_checked(frame.len().checked_sub(MAC_LEN)?)?;
        let mut reader = Reader(signed);
        (reader.u64()? == sequence).then_some(())?;
        let (kind, status) = (reader.u16()?, Status(reader.u16()?));
        (reader.array()? == [0; 4]).then_some(())?;
        let detail = reader.u64()?;
        let answer = Self::parse(kind, status, detail, reader.0)?;
        let is_proven = token.is_proven(&[ANSWERS, &nonces.daemon, &nonces.client, signed], proof);
        let is_refusal = matches!(&answer, Self::Refused { .. });
        match (is_proven, is_refusal) {
            (true, _) => Some(answer),
            (false, true) => Some(Self::Refused { status: Status::DENIED, detail: 0 }),
            (false, false) => None,
        }
    }

    /// Kind, status, detail and body.
    pub fn emit(&self) -> (u16, Status, u64, Vec<u8>) {
        let mut out = Vec::new();
        let kind = match self {
            Self::Done => 1,
            Self::Invited { token, address } => {
                out.extend(token);
                let ip = match address.ip() {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                out.extend(ip.octets());
                out.extend(address.port().to_le_bytes());
                2
            }
            Self::Mapped { rkey, class, base, len, offers, emulated, losses } => {
                out.extend(rkey.to_le_bytes());
                out.extend(class.to_le_bytes());
                out.extend(base.to_le_bytes());
                out.extend(len.to_le_bytes());
                out.extend(offers.to_le_bytes());
                out.extend(emulated.to_le_bytes());
                out.extend(losses.to_le_bytes());
                3
            }
            Self::Pong { lease_ms, passed } => {
                out.extend(lease_ms.to_le_bytes());
                for (region, epoch) in passed {
                    out.extend(region.0.to_le_bytes());
                    out.extend(epoch.to_le_bytes());
                }
                4
            }
            Self::Count { count } => {
                out.extend(count.to_le_bytes());
                5
            }
            Self::Refused { status, detail } => return (REFUSED, *status, *detail, out),
        };
        (kind, Status(0), 0, out)
    }

    /// Reads an answer.
    pub fn parse(kind: u16, status: Status, detail: u64, body: &[u8]) -> Option<Self> {
        let mut r = Reader(body);
        let answer = match kind {
            REFUSED => {
                return body.is_empty().then_some(Self::Refused { status, detail });
            }
            1 => Self::Done,
            2 => {
                let (token, ip) = (r.array()?, Ipv6Addr::from(r.array::<16>()?));
                let address = SocketAddr::new(IpAddr::V6(ip).to_canonical(), r.u16()?);
                Self::Invited { token, address }
            }
            3 => Self::Mapped {
                rkey: r.u32()?,
                class: r.u32()?,
                base: r.u64()?,
                len: r.u64()?,
                offers: r.u32()?,
                emulated: r.u32()?,
                losses: r.u64()?,
            },
            4 => {
                let lease_ms = r.u32()?;
                let mut passed = Vec::new();
                while !r.0.is_empty() {
                    passed.push((RegionId(r.u64()?), r.u64()?));
                }
                Self::Pong { lease_ms, passed }
            }
            5 => Self::Count { count: r.u64()? },
            _ => return None,
        };
        (r.0.is_empty() && status == Status(0) && detail == 0).then_some(answer)
    }
}

fn framed(frame: Vec<u8>) -> Vec<u8> {
    let len = u32::try_from(frame.len()).expect("a frame is below FRAME_MAX");
    [&len.to_le_bytes()[..], &frame].concat()
}

/// Reads fields from the front.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// The version of the messages.
pub const VERSION: u16 = 2;
/// Length of a nonce in bytes.
pub const NONCE_LEN: usize = 16;
/// Length of a daemon's greeting in bytes.
pub const GREETING_LEN: usize = 32;
/// Length of a client's reply in bytes.
pub const REPLY_LEN: usize = 24;
/// Bytes of an answer behind its length at most.
pub const FRAME_MAX: usize = 64 << 10;
/// Bytes of a request behind its length at most: a daemon holds no more of what nobody has proven yet.
pub const REQUEST_MAX: usize = 256;
/// How long a client may say nothing: it pings many times in this time, and has ended if it does not.
pub const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long one wait for a notification lasts at most; the client waits again.
pub const WAIT_MAX: Duration = Duration::from_secs(5);
/// How long clients have to give back mappings of an earlier epoch: some pings.
pub const GRACE: Duration = Duration::from_secs(1);
/// Regions that one answer to a ping names at most; the next answer names the others.
pub const PASSED_MAX: usize = 1024;
const REQUEST_HEAD: usize = 16 + Claims::LEN;
const ANSWER_HEAD: usize = 24;
const REFUSED: u16 = 0xffff;
const ASKS: &[u8] = b"landfast store request v1";
const ANSWERS: &[u8] = b"landfast store answer v1";

#[cfg(test)]
mod tests {
    use basics::Environment;

    use super::*;
    use crate::token::StoreKey;

    fn token() -> Token {
        let claims = Claims {
            region: RegionId(7),
            client: ClientId(8),
            expires_ms: 9,
            generation: 1,
            rights: Rights::READ | Rights::WRITE,
        };
        StoreKey::draw(&Environment::host()).unwrap().issue(claims)
    }

    const NONCES: Nonces = Nonces { daemon: [1; NONCE_LEN], client: [2; NONCE_LEN] };

    fn requests() -> Vec<Request> {
        let region = RegionId(0x0102_0304_0506_0708);
        vec![
            Request::Invite,
            Request::Map {
                connection: 1,
                region,
                piece: 2,
                rights: Rights::READ,
                epoch: 3,
                group: 4,
            },
            Request::Ping,
            Request::Create { region, piece: 1, replace: true, len: 2, epoch: 3, generation: 4 },
            Request::Remove { region },
            Request::Epoch { region, epoch: 1, generation: 2 },
            Request::Notify { region, channel: 1, add: 2 },
            Request::Wait { region, channel: 1, patience_ms: 2, seen: 3 },
            Request::Unmap { region, group: 6 },
            Request::Fence { client: ClientId(5) },
        ]
    }

    #[test]
    fn a_map_request_has_the_bytes_of_the_document() {
        let region = RegionId(0x0102_0304_0506_0708);
        let (rights, epoch, group) = (Rights::WRITE, 3, 4);
        let map = Request::Map { connection: 9, region, piece: 2, rights, epoch, group };
        let (operation, body) = map.emit();
        let expected = [
            &[9, 0, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1][..],
            &[2, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0],
            &[4, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!((operation, body), (2, expected.concat()));
    }

    #[test]
    fn a_request_opens_only_for_its_token_connection_and_bytes() {
        let token = token();
        for request in requests() {
            let frame = request.seal(3, &token, &NONCES);
            let sealed = Sealed::parse(&frame[4..]).unwrap();
            assert!(frame.len() - 4 <= REQUEST_MAX, "{request:?}");
            assert_eq!((sealed.sequence, sealed.claims), (3, *token.claims()));
            assert_eq!(sealed.open(&token, &NONCES), Some(request));
            let other = Nonces { daemon: [3; NONCE_LEN], ..NONCES };
            assert_eq!(sealed.open(&token, &other), None);
            for at in 4..frame.len() {
                let mut changed = frame.clone();
                changed[at] ^= 1;
                let opened = Sealed::parse(&changed[4..]).and_then(|one| one.open(&token, &NONCES));
                assert_eq!(opened, None, "byte {at} of {request:?}");
            }
        }
    }

    #[test]
    fn an_answer_without_a_proof_can_only_refuse() {
        let token = token();
        let answers = [
            Answer::Done,
            Answer::Invited { token: [7; 32], address: "127.0.0.1:80".parse().unwrap() },
            Answer::Invited { token: [7; 32], address: "[2001:db8::1]:80".parse().unwrap() },
            Answer::Mapped {
                rkey: 1,
                class: 2,
                base: 3,
                len: 4,
                offers: 5,
                emulated: 1,
                losses: 6,
            },
            Answer::Pong { lease_ms: 5, passed: vec![(RegionId(1), 2), (RegionId(3), 4)] },
            Answer::Count { count: 5 },
        ];
        for answer in answers {
            let frame = answer.seal(5, Some(&token), &NONCES);
            assert_eq!(Answer::open(&frame[4..], 5, &token, &NONCES).as_ref(), Some(&answer));
            assert_eq!(Answer::open(&frame[4..], 6, &token, &NONCES), None);
            let unproven = answer.seal(5, None, &NONCES);
            assert_eq!(Answer::open(&unproven[4..], 5, &token, &NONCES), None);
        }
        let refused = Answer::Refused { status: Status::EXPIRED, detail: 1 };
        let unproven = refused.seal(5, None, &NONCES);
        let denied = Answer::Refused { status: Status::DENIED, detail: 0 };
        assert_eq!(Answer::open(&unproven[4..], 5, &token, &NONCES), Some(denied));
    }
}
