//! The whole client, call by call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::transport::Transport;
use client::{
    AsyncRegion, Client, ClientError, ConnectOptions, File, OpenOptions, Path, Protection,
    RegionSettings,
};
use smb::ControlCode;
use smb::auth::{Initiate, InitiateError, Initiator};
use smb::crypto::SessionKey;
use smb::info::SecurityInformation;
use smb::push::{Durability, PushRequest, Rights};
use tokio::time::{Instant, timeout};

use super::{Standing, wire};

/// What happened in a conversation.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Seen {
    /// The client got in.
    pub entered: bool,
    /// Calls that succeeded.
    pub succeeded: u32,
    /// Calls that failed.
    pub failed: u32,
}

/// Goes through every call with a limit each.
pub(super) async fn drive(
    standing: Standing,
    transport: Transport,
    unproven: Arc<AtomicBool>,
) -> Seen {
    let mut calls = Calls { seen: Seen::default(), unproven };
    let options = options(standing);
    let mut initiator = Fixed { said: false };
    let entering = Client::over(transport, &mut initiator, "host", "share", &options);
    let Some(client) = calls.make("connect", 6, entering).await else { return calls.seen };
    assert_ne!(standing, Standing::Stranger, "a server without the key was believed");
    calls.seen.entered = true;
    calls.make("echo", 1, client.echo()).await;
    calls.make("list", 1, client.list("directory")).await;
    calls.make("stat", 2, client.stat("file")).await;
    names(&mut calls, &client).await;
    let leased = OpenOptions::read_write().with_full_lease();
    let opening = client.open("file", &leased);
    if let Some(file) = calls.make("open", 1, opening).await {
        use_file(&mut calls, file).await;
    }
    give_up(&client).await;
    calls.make("echo", 1, client.echo()).await;
    // The last: the clock leaps while a region's thread works, and the connection may end for that.
    map(&calls, &client).await;
    calls.seen
}

async fn names(calls: &mut Calls, client: &Client) {
    calls.make("create_directory", 2, client.create_directory("made")).await;
    calls.make("rename", 3, client.rename("made", "moved", true)).await;
    calls.make("delete", 3, client.delete("moved")).await;
    let new = OpenOptions::create();
    let temporary = client.create_temporary("part", &new);
    if let Some(part) = calls.make("create_temporary", 3, temporary).await {
        calls.make("keep_as", 3, part.keep_as("whole", true)).await;
    }
}

async fn use_file(calls: &mut Calls, mut file: File) {
    let mut out = vec![0; 200 << 10];
    let pieces = 4;
    if let Some(count) = calls.make("read_at", pieces, file.read_at(0, &mut out)).await {
        assert!(count <= out.len());
    }
    calls.make("write_at", pieces, file.write_at(0, &out)).await;
    calls.make("write_through_at", 1, file.write_through_at(5, b"five")).await;
    calls.make("flush", 1, file.flush()).await;
    calls.make("file.stat", 1, file.stat()).await;
    calls.make("set_len", 1, file.set_len(9)).await;
    calls.make("security", 1, file.security(SecurityInformation::OWNER)).await;
    let sparse = file.ioctl(ControlCode::SET_SPARSE, &[1], u32::MAX);
    calls.make("ioctl", 1, sparse).await;
    let too_long = file.ioctl(ControlCode::SET_SPARSE, &vec![0; 17 << 20], 0).await;
    assert!(too_long.is_err(), "no frame holds it");
    if let Some(lease) = file.lease() {
        let before = lease.state();
        while let Some(found) = lease.try_next_break() {
            calls.make("acknowledge", 1, lease.acknowledge(found)).await;
            assert!(before.contains(lease.state()), "a break adds a right");
        }
        // Nobody promises that a break comes, so its caller has a limit of its own.
        let waited = timeout(Duration::from_secs(5), lease.next_break()).await;
        drop(waited);
    }
    calls.make("close", 1, file.close()).await;
}

/// Calls that their callers give up.
async fn give_up(client: &Client) {
    let second = Duration::from_secs(1);
    let _ = timeout(second, client.open("file", &OpenOptions::read())).await;
    let _ = timeout(second, client.list("directory")).await;
    if let Ok(Ok(file)) = timeout(second, client.open("file", &OpenOptions::read_write())).await {
        let mut out = vec![0; 100 << 10];
        let _ = timeout(second, file.read_at(0, &mut out)).await;
        let _ = timeout(second, file.write_at(0, &out)).await;
        let _ = timeout(second, file.close()).await;
    }
}

/// A region has a thread, which works while this clock stands: the limits of its messages are virtual, and that of
/// the whole is the limit of the run.
async fn map(calls: &Calls, client: &Client) {
    let push = PushRequest {
        rights: Rights::READ | Rights::WRITE | Rights::FLUSH,
        durability: Durability::ANY,
        accept_emulated: true,
        regions_max: 1,
    };
    let options = OpenOptions::read_write().with_push(push);
    let settings = RegionSettings { unconfirmed_bytes: 64 << 10, ..RegionSettings::default() };
    let mapped: Result<AsyncRegion, _> = client.map("file", &options, 0..64 << 10, settings).await;
    // Whether its calls succeed is not counted: the clock leaps while its thread works.
    let Ok(region) = mapped else { return };
    let _ = region.write_commit(0, vec![1; 100]).await;
    let _ = region.read(0, 100).await;
    if let Ok(path) = region.path().await {
        assert!(matches!(path, Path::Messages { .. }), "no address of the server was named");
    }
    calls.unproven.store(false, Ordering::Relaxed);
}

struct Calls {
    seen: Seen,
    unproven: Arc<AtomicBool>,
}

impl Calls {
    /// Makes a call that sends `requests` requests, one behind the other.
    async fn make<T>(
        &mut self,
        name: &str,
        requests: u32,
        call: impl Future<Output = Result<T, ClientError>>,
    ) -> Option<T> {
        self.unproven.store(false, Ordering::Relaxed);
        let start = Instant::now();
        let limit = LIMIT * requests;
        let outcome = timeout(limit, call).await;
        let Ok(outcome) = outcome else { panic!("{name} outlives {limit:?}") };
        if self.unproven.load(Ordering::Relaxed) {
            assert!(outcome.is_err(), "{name} believes what no key has proven");
        }
        assert!(start.elapsed() <= limit);
        self.count(outcome.is_ok());
        outcome.ok()
    }

    fn count(&mut self, is_ok: bool) {
        match is_ok {
            true => self.seen.succeeded += 1,
            false => self.seen.failed += 1,
        }
    }
}

fn options(standing: Standing) -> ConnectOptions {
    ConnectOptions {
        signing: match standing {
            Standing::Guest => Protection::IfRequired,
            _ => Protection::Required,
        },
        encryption: match standing {
            Standing::Sealed => Protection::Required,
            _ => Protection::IfRequired,
        },
        answer_timeout: ANSWER,
        call_timeout: CALL,
        listing_bytes_max: LISTING_BYTES_MAX,
        environment: wire::environment(),
        ..ConnectOptions::default()
    }
}

/// Authentication by a key that both have. NTLM has targets of its own.
#[derive(Debug)]
struct Fixed {
    said: bool,
}

impl Initiator for Fixed {
    fn step(&mut self, _token: Option<&[u8]>) -> Result<Initiate, InitiateError> {
        match std::mem::replace(&mut self.said, true) {
            false => Ok(Initiate::Send(b"token".to_vec())),
            true => Ok(Initiate::Done),
        }
    }

    fn session_key(&self) -> Option<SessionKey> {
        Some(SessionKey::new(&KEY))
    }
}

/// The key of the session.
pub(super) const KEY: [u8; 16] = [7; 16];
const ANSWER: Duration = Duration::from_secs(10);
const CALL: Duration = Duration::from_secs(60);
/// One request: its credits, an ECHO for them, and its answer, each of which the watch may notice late.
const LIMIT: Duration = Duration::from_secs(3 * (60 + 10));
/// Bound of a listing, in bytes.
pub const LISTING_BYTES_MAX: usize = 1 << 20;
