//! SMB Direct against a running server: real sockets, real files.
//!
//! The client is made of the soft engine and of smbdirect's initiator, so what is tested is the
//! server's side; that both sides mean the same protocol is the business of the captured
//! conversations in smbdirect and of the independent peer in `tests/interop`.

mod client;
mod held;
pub(crate) mod peer;
mod strange;

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use basics::{Clock, Environment, ManualClock};
use server::{Limits, Running, Server, ServerConfig, ShareConfig, SigningPolicy, Users};
use smb::{Channel, Command, Empty, HeaderFlags, NtStatus};
use smbdirect::{Config, DataTransfer, NegotiateRequest, NegotiateResponse, Offer, Status};

use client::{Client, From, read, written};
use peer::{Peer, list};

struct Fixture {
    dir: tempfile::TempDir,
    running: Option<Running>,
    runtime: tokio::runtime::Runtime,
}

impl Fixture {
    fn start() -> Self {
        Self::start_with(|_| {})
    }

    fn start_with(change: impl FnOnce(&mut Limits)) -> Self {
        Self::start_configured(|config| change(&mut config.limits))
    }

    /// By a clock that the test moves.
    fn start_at(clock: &Arc<ManualClock>) -> Self {
        let clock = Clock::given(Arc::clone(clock) as _);
        Self::start_in(Environment { clock, ..Environment::host() }, |_| {})
    }

    fn start_configured(change: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::start_in(Environment::host(), change)
    }

    fn start_in(environment: Environment, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .enable_all()
            .build();
        let runtime = runtime.unwrap();
        let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        config.rdma_listen = Some("127.0.0.1:0".parse().unwrap());
        config.shares.push(ShareConfig::new("data", dir.path()));
        config.users = Users::with_passwords([("user", "secret")]);
        config.signing = SigningPolicy::WhenAsked;
        change(&mut config);
        let running = runtime.block_on(Server::start_in(environment, config)).unwrap();
        Self { dir, running: Some(running), runtime }
    }

    fn address(&self) -> SocketAddr {
        self.running.as_ref().unwrap().rdma_address().unwrap()
    }

    fn connections(&self) -> usize {
        self.running.as_ref().unwrap().status().connections
    }

    // The server's tasks stand still until the answer is dropped.
    fn take_workers(&self) -> Vec<mpsc::Sender<()>> {
        let take = |_| {
            let (release, wait) = mpsc::channel();
            let (busy, is_busy) = mpsc::channel();
            self.runtime.spawn(async move {
                busy.send(()).unwrap();
                let _ = wait.recv();
            });
            is_busy.recv().unwrap();
            release
        };
        (0..WORKERS).map(take).collect()
    }

    fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.dir.path().join(name)).unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.runtime.block_on(running.shutdown());
        }
    }
}

const WORKERS: usize = 2;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| u8::try_from(index * 7 % 251).unwrap()).collect()
}

#[test]
fn a_client_logs_on_and_moves_four_kib_each_way_by_rdma() {
    let fixture = Fixture::start();
    let mut client = Client::log_on(fixture.address());
    let file = client.open("four.bin");
    let bytes = pattern(4096);
    client.peer.memory.place(0, &bytes).unwrap();
    let source = list(&[client.peer.expose(0, 4096)]);
    let from = From::Memory { channel: Channel::RDMA_V1, len: 4096, descriptors: &source };
    let answer = client.write(file, 0, from);
    assert_eq!((written(&answer), answer.invalidated), (4096, None));
    assert_eq!(fixture.file("four.bin"), bytes);

    let target = client.peer.expose(8192, 4096);
    let answer = client.read(file, 0, 4096, (Channel::RDMA_V1, &list(&[target])));
    assert_eq!(read(&answer), (Vec::new(), 4096), "bytes go into memory, only their count here");
    let mut got = vec![0; 4096];
    client.peer.memory.read(8192, &mut got).unwrap();
    assert_eq!(got, bytes);
    assert!(client.peer.is_registered(target.token), "plain V1 leaves the token alone");
}

#[test]
fn clients_served_by_different_threads_share_their_files() {
    let fixture = Fixture::start_configured(|config| config.rdma_threads = 3);
    let mut clients: Vec<_> = (0..5).map(|_| Client::log_on(fixture.address())).collect();
    let files: Vec<_> = clients.iter_mut().map(|client| client.open("shared.bin")).collect();
    for (round, (client, file)) in (0_u8..).zip(clients.iter_mut().zip(&files)) {
        client.peer.memory.place(0, &[round; 4096]).unwrap();
        let source = list(&[client.peer.expose(0, 4096)]);
        let from = From::Memory { channel: Channel::RDMA_V1, len: 4096, descriptors: &source };
        assert_eq!(written(&client.write(*file, u64::from(round) * 4096, from)), 4096);
    }
    for (client, file) in clients.iter_mut().zip(&files) {
        let target = list(&[client.peer.expose(8192, 5 * 4096)]);
        let answer = client.read(*file, 0, 5 * 4096, (Channel::RDMA_V1, &target));
        assert_eq!(read(&answer).1, 5 * 4096);
        for round in 0..5 {
            let mut got = [9; 4096];
            client.peer.memory.read(8192 + u64::from(round) * 4096, &mut got).unwrap();
            assert!(got.iter().all(|byte| *byte == round), "page {round}");
        }
    }
}

#[test]
fn invalidate_ends_the_first_token_with_every_answer_errors_too() {
    let fixture = Fixture::start();
    let mut client = Client::log_on(fixture.address());
    let file = client.open("invalidate.bin");
    let channel = Channel::RDMA_V1_INVALIDATE;

    let (first, second) = (client.peer.expose(0, 1000), client.peer.expose(4096, 1000));
    let descriptors = list(&[first, second]);
    let from = From::Memory { channel, len: 2000, descriptors: &descriptors };
    let answer = client.write(file, 0, from);
    assert_eq!(written(&answer), 2000);
    assert_eq!(answer.invalidated.map(|rkey| rkey.0), Some(first.token.0));
    assert!(!client.peer.is_registered(first.token));
    assert!(client.peer.is_registered(second.token), "only the first one is invalidated");

    let target = client.peer.expose(0, 4096);
    let answer = client.read(file, 0, 4096, (channel, &list(&[target])));
    assert_eq!(read(&answer).1, 2000, "up to the end of the file");
    assert_eq!(answer.invalidated.map(|rkey| rkey.0), Some(target.token.0));

    let target = client.peer.expose(0, 4096);
    let answer = client.read(file, 1 << 20, 4096, (channel, &list(&[target])));
    assert_eq!(answer.header.status, NtStatus::END_OF_FILE);
    assert_eq!(answer.invalidated.map(|rkey| rkey.0), Some(target.token.0));

    // Refused before a byte moves: too little memory named, and then no such file.
    let target = client.peer.expose(0, 100);
    let answer = client.read(file, 0, 2000, (channel, &list(&[target])));
    assert_eq!(answer.header.status, NtStatus::INVALID_PARAMETER);
    assert_eq!(answer.invalidated.map(|rkey| rkey.0), Some(target.token.0));
    let source = client.peer.expose(0, 4096);
    let descriptors = list(&[source]);
    let nowhere = smb::FileId { persistent: 1, volatile: 1 };
    let from = From::Memory { channel, len: 4096, descriptors: &descriptors };
    let answer = client.write(nowhere, 0, from);
    assert_eq!(answer.header.status, NtStatus::FILE_CLOSED);
    assert_eq!(answer.invalidated.map(|rkey| rkey.0), Some(source.token.0));
}

#[test]
fn several_descriptors_are_one_range_for_small_and_large_transfers() {
    let fixture = Fixture::start();
    let mut client = Client::log_on(fixture.address());
    let file = client.open("several.bin");
    for (round, lens) in [[1000_u32, 1, 2999], [300_000, 70_001, 229_999]].into_iter().enumerate() {
        let len: u32 = lens.iter().sum();
        let bytes = pattern(usize::try_from(len).unwrap());
        let mut descriptors = Vec::new();
        let (mut position, mut place) = (0, 0);
        for part in lens {
            let end = position + usize::try_from(part).unwrap();
            client.peer.memory.place(place, &bytes[position..end]).unwrap();
            descriptors.push(client.peer.expose(place, part));
            position = end;
            // Gaps between them, so that one long region would be found out.
            place += u64::from(part) + 4096;
        }
        let list = list(&descriptors);
        let from = From::Memory { channel: Channel::RDMA_V1, len, descriptors: &list };
        assert_eq!(written(&client.write(file, 0, from)), len, "round {round}");
        assert_eq!(fixture.file("several.bin"), bytes, "round {round}");

        client.peer.memory.place(0, &vec![0; 2 << 20]).unwrap();
        assert_eq!(read(&client.read(file, 0, len, (Channel::RDMA_V1, &list))).1, len);
        let (mut position, mut place) = (0, 0);
        for part in lens {
            let mut got = vec![0; usize::try_from(part).unwrap()];
            client.peer.memory.read(place, &mut got).unwrap();
            assert!(got == bytes[position..position + got.len()], "round {round}, {part} bytes");
            let mut gap = [1; 4096];
            place += u64::from(part);
            client.peer.memory.read(place, &mut gap).unwrap();
            assert!(gap.iter().all(|byte| *byte == 0), "nothing beside the buffers is touched");
            position += got.len();
            place += 4096;
        }
    }
}

#[test]
fn many_transfers_under_way_at_once_are_all_right() {
    let fixture = Fixture::start();
    let mut client = Client::log_on(fixture.address());
    let file = client.open("many.bin");
    let bytes = pattern(24 * 40_000);
    client.peer.memory.place(0, &bytes).unwrap();
    let mut lists = Vec::new();
    for index in 0..24_u64 {
        lists.push(list(&[client.peer.expose(index * 40_000, 40_000)]));
    }
    for (index, descriptors) in (0_u64..).zip(&lists) {
        let from = From::Memory { channel: Channel::RDMA_V1, len: 40_000, descriptors };
        let request = Client::write_request(file, index * 40_000, from);
        client.send(Command::WRITE, |out| request.emit(out));
    }
    for _ in 0..24 {
        assert_eq!(written(&client.next()), 40_000);
    }
    assert!(fixture.file("many.bin") == bytes);
}

#[test]
fn messages_without_a_channel_travel_in_fragments() {
    let fixture = Fixture::start();
    // Fragments as small as Linux makes them.
    let config = Config {
        send_size_max: 1364,
        receive_size_max: 1364,
        fragmented_receive_size_max: 173_910,
        ..Config::default()
    };
    let mut client = Client::log_on_with(fixture.address(), config);
    let file = client.open("inline.bin");
    let bytes = pattern(100_000);
    assert_eq!(written(&client.write(file, 0, From::Message(&bytes))), 100_000);
    let answer = client.read(file, 0, 100_000, (Channel::NONE, &[]));
    assert!(read(&answer) == (bytes, 0));
}

#[test]
fn a_compound_whose_signatures_wait_for_a_thread_is_answered_between_those_around_it() {
    const MANY: usize = 200;
    let fixture = Fixture::start();
    let mut client = Client::log_on(fixture.address());
    client.charge = 1;
    for _ in 0..2 {
        // So many credits.
        assert_eq!(
            client.call(Command::ECHO, |out| Empty.emit(out)).header.status,
            NtStatus::SUCCESS
        );
    }
    for _ in 0..20 {
        let before = client.send(Command::ECHO, |out| Empty.emit(out));
        let first = client.send_signed_echoes(MANY);
        let after = client.send(Command::ECHO, |out| Empty.emit(out));
        let mut answers = Vec::new();
        while answers.len() < MANY + 2 {
            let mut answer = client.next();
            let pdus: Vec<_> = smb::compound::walk(&answer.pdu).collect::<Result<_, _>>().unwrap();
            for (range, header) in pdus {
                assert_eq!(header.status, NtStatus::SUCCESS);
                let is_signed = header.message_id != before && header.message_id != after;
                assert_eq!(header.flags.contains(HeaderFlags::SIGNED), is_signed);
                if is_signed {
                    let keys = client.keys.as_ref().unwrap();
                    keys.signing.verify(&mut answer.pdu[range]).unwrap();
                }
                answers.push(header.message_id.0);
            }
        }
        answers.sort_unstable();
        let (from, to) = (before.0, after.0);
        assert_eq!((from + 1, first.0 + MANY as u64), (first.0, to));
        assert!(answers.into_iter().eq(from..=to), "each is answered once");
    }
}

#[test]
fn what_cifs_ko_says_is_understood_and_answered_as_its_own_server_would() {
    let fixture = Fixture::start();
    // Captured over siw: private data of 7.2, 6.12, and a kernel that sends none; then the
    // negotiation requests of new and of old kernels.
    let modern = ([0_u8, 0, 0, 0x20, 0, 0, 0, 1], 173_910_u32, 0);
    let old = ([0x20, 0, 0, 0, 1, 0, 0, 0], 1 << 20, 8);
    for (private_data, fragmented_size_max, echoed) in [modern, old] {
        let mut peer = Peer::try_dial(fixture.address(), &private_data).unwrap();
        assert_eq!(peer.welcome.len(), echoed);
        let offer = Offer {
            credits_requested: 255,
            preferred_send_size: 1364,
            receive_size_max: 1364,
            fragmented_size_max,
        };
        let mut out = [0; NegotiateRequest::LEN];
        NegotiateRequest { offer }.emit(&mut out);
        peer.post(&out);
        let answer = NegotiateResponse::parse(&peer.next_raw()).unwrap();
        let NegotiateResponse::Accepted { offer, credits_granted, read_write_size_max } = answer
        else {
            panic!("refused")
        };
        assert_eq!((offer.preferred_send_size, offer.receive_size_max), (1364, 1364));
        assert_eq!(offer.fragmented_size_max, 173_910, "half of what 255 buffers hold");
        assert!(credits_granted >= 10, "enough to log on with");
        assert_eq!(read_write_size_max, 8 << 20);
    }
}

#[test]
fn a_strange_version_is_answered_and_every_other_fault_is_not() {
    let fixture = Fixture::start();
    let mut peer = Peer::dial(fixture.address());
    let mut request = [0; NegotiateRequest::LEN];
    let offer = Offer {
        credits_requested: 10,
        preferred_send_size: 1364,
        receive_size_max: 1364,
        fragmented_size_max: 131_072,
    };
    NegotiateRequest { offer }.emit(&mut request);
    let mut version = request;
    version[0..4].copy_from_slice(&[0, 2, 0, 2]);
    peer.post(&version);
    let refused = NegotiateResponse::parse(&peer.next_raw()).unwrap();
    assert_eq!(refused, NegotiateResponse::Refused(Status::NOT_SUPPORTED));
    peer.wait_for_end();

    let mut no_credits = request;
    no_credits[6..8].fill(0);
    let mut tiny = request;
    tiny[12..16].copy_from_slice(&127_u32.to_le_bytes());
    for bad in [&request[..19], &no_credits, &tiny] {
        let mut peer = Peer::dial(fixture.address());
        peer.post(bad);
        peer.wait_for_end();
        assert!(peer.raw.is_empty(), "no answer");
    }
}

#[test]
fn broken_data_transfers_end_their_own_connection_and_no_other() {
    let fixture = Fixture::start();
    let mut bystander = Client::log_on(fixture.address());
    let file = bystander.open("bystander.bin");
    let header = |change: &dyn Fn(&mut DataTransfer), payload: u32| {
        let mut header = DataTransfer {
            credits_requested: 10,
            credits_granted: 10,
            response_requested: false,
            remaining: 0,
        };
        change(&mut header);
        let mut out = [0; DataTransfer::PAYLOAD_OFFSET];
        let len = header.emit(payload, &mut out);
        let mut out = out[..len].to_vec();
        out.resize(len + usize::try_from(payload).unwrap(), 0);
        out
    };
    let whole = header(&|_| {}, 64);
    let mut misaligned = whole.clone();
    misaligned[12] = 25;
    let mut beyond = whole.clone();
    beyond[16] = 65;
    let faults = [
        ("cut off", whole[..10].to_vec()),
        ("asks for no credits", header(&|header| header.credits_requested = 0, 64)),
        ("off by one", misaligned),
        ("longer than the message", beyond),
        ("longer than agreed", header(&|header| header.remaining = u32::MAX, 64)),
        ("64 zeros are not SMB", whole),
    ];
    for (what, bytes) in faults {
        let mut peer = Peer::connect(fixture.address(), Config::default());
        peer.post(&bytes);
        peer.wait_for_end();
        assert_eq!(written(&bystander.write(file, 0, From::Message(b"still here"))), 10, "{what}");
    }
}

#[test]
fn connections_that_never_log_on_make_room_for_newcomers() {
    let fixture = Fixture::start_with(|limits| limits.unauthenticated_max = 4);
    let mut held: Vec<_> = (0..20).map(|_| Peer::dial(fixture.address())).collect();
    // Neither has any timed out by now, nor is there a place that one of them does not give up.
    let mut client = Client::log_on(fixture.address());
    let file = client.open("served.bin");
    assert_eq!(written(&client.write(file, 0, From::Message(b"here"))), 4);
    for silent in &mut held[..17] {
        silent.wait_for_end();
    }
    assert_eq!(fixture.running.as_ref().unwrap().status().unauthenticated, 3);
    assert_eq!(written(&client.write(file, 0, From::Message(b"here"))), 4, "it has logged on");
}

#[test]
fn a_peer_that_never_grants_credits_is_dropped_and_delays_nobody() {
    let fixture = Fixture::start_with(|limits| {
        limits.authentication_timeout = Duration::from_secs(1);
    });
    let mut miser = Peer::dial(fixture.address());
    let offer = Offer {
        credits_requested: 10,
        preferred_send_size: 1364,
        receive_size_max: 1364,
        fragmented_size_max: 131_072,
    };
    let mut out = [0; NegotiateRequest::LEN];
    NegotiateRequest { offer }.emit(&mut out);
    miser.post(&out);
    miser.next_raw();
    // An SMB2 NEGOTIATE that comes without a single credit for its answer.
    let mut message = vec![0; 24];
    message[0] = 10;
    message[12] = 24;
    let mut smb = Vec::new();
    smb::Header::request(Command::NEGOTIATE, smb::MessageId(0)).emit(&mut smb);
    smb::NegotiateRequest {
        security_mode: smb::negotiate::SecurityMode::SIGNING_ENABLED,
        capabilities: smb::negotiate::Capabilities::empty(),
        client_guid: smb::Guid([3; 16]),
        dialects: vec![smb::negotiate::Dialect::SMB_3_0_2],
        contexts: Vec::new(),
    }
    .emit(&mut smb);
    message[16..20].copy_from_slice(&u32::try_from(smb.len()).unwrap().to_le_bytes());
    message.extend_from_slice(&smb);
    miser.post(&message);

    let mut other = Client::log_on(fixture.address());
    other.call(Command::ECHO, |out| Empty.emit(out));
    miser.wait_for_end();
    assert!(miser.raw.is_empty(), "nothing was sent without a credit");
    other.call(Command::ECHO, |out| Empty.emit(out));
}

#[test]
fn a_peer_that_vanishes_while_its_memory_is_read_leaves_nothing_behind() {
    let fixture = Fixture::start();
    let mut other = Client::log_on(fixture.address());
    for len in [4096, 1 << 20] {
        let mut client = Client::log_on(fixture.address());
        let file = client.open("vanish.bin");
        let source = list(&[client.peer.expose(0, len)]);
        let from = From::Memory { channel: Channel::RDMA_V1, len, descriptors: &source };
        let request = Client::write_request(file, 0, from);
        client.send(Command::WRITE, |out| request.emit(out));
        // The socket closes with its engine; the Reads are never answered.
        drop(client);
        let end = std::time::Instant::now() + peer::PATIENCE;
        while fixture.connections() > 1 {
            assert!(std::time::Instant::now() < end, "the connection did not end");
            other.call(Command::ECHO, |out| Empty.emit(out));
        }
    }
    let status = fixture.running.as_ref().unwrap().status();
    assert_eq!((status.sessions, status.opens), (1, 0));
}

#[test]
fn peers_that_come_while_others_go_leave_nothing_behind() {
    let fixture = Fixture::start();
    let address = fixture.address();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(|_| drop(Peer::dial(address))));
        }
    });
    let end = std::time::Instant::now() + peer::PATIENCE;
    while fixture.connections() > 0 {
        assert!(std::time::Instant::now() < end, "{} are still there", fixture.connections());
        std::thread::yield_now();
    }
}

#[test]
fn memory_the_peer_never_offered_ends_its_connection() {
    let fixture = Fixture::start();
    let mut client = Client::log_on(fixture.address());
    let file = client.open("foreign.bin");
    let mut foreign = client.peer.expose(0, 4096);
    foreign.token.0 ^= 0x5555_5555;
    let descriptors = list(&[foreign]);
    let from = From::Memory { channel: Channel::RDMA_V1, len: 4096, descriptors: &descriptors };
    let request = Client::write_request(file, 0, from);
    client.send(Command::WRITE, |out| request.emit(out));
    client.peer.wait_for_end();
    assert_eq!(fixture.file("foreign.bin"), b"", "nothing was written");
    let mut other = Client::log_on(fixture.address());
    other.call(Command::ECHO, |out| Empty.emit(out));
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    let fixture = Fixture::start_with(|limits| limits.connections_max = 2);
    let first = Peer::dial(fixture.address());
    let _second = Peer::dial(fixture.address());
    assert!(Peer::try_dial(fixture.address(), &[]).is_none());
    drop(first);
    let mut other = None;
    let end = std::time::Instant::now() + peer::PATIENCE;
    while other.is_none() {
        assert!(std::time::Instant::now() < end, "the place was not given back");
        other = Peer::try_dial(fixture.address(), &[]);
    }
}
