//! Calls that their callers drop, or give up, while a file is on its way back.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use basics::{Clock, Environment, ManualClock};
use client::{Client, ConnectOptions, FailoverClient, OpenOptions, SmbUrl};
use smb::NtStatus;
use smb::create::ShareAccess;
use tokio::sync::Notify;

use super::fixture::Fixture;

/// Carries connections, and holds answers back while it is told to.
#[derive(Default)]
struct Way {
    streams: Mutex<Vec<TcpStream>>,
    holds: Mutex<bool>,
    released: Condvar,
    /// An answer is held back.
    came: Notify,
}

impl Way {
    fn to(server: SocketAddr) -> (Arc<Self>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, way) = (listener.local_addr().unwrap(), Arc::new(Self::default()));
        let carrier = Arc::clone(&way);
        std::thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let far = TcpStream::connect(server).unwrap();
                let copies = || [near.try_clone().unwrap(), far.try_clone().unwrap()];
                carrier.streams.lock().unwrap().extend(copies());
                let ([near_too, far_too], carrier) = (copies(), Arc::clone(&carrier));
                std::thread::spawn(move || carrier.answers(far_too, near_too));
                std::thread::spawn(move || std::io::copy(&mut &near, &mut &far));
            }
        });
        (way, address)
    }

    fn answers(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = vec![0; 65_536];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let mut holds = self.holds.lock().unwrap();
            while *holds {
                self.came.notify_one();
                holds = self.released.wait(holds).unwrap();
            }
            drop(holds);
            if to.write_all(&bytes[..count]).is_err() {
                return;
            }
        }
    }

    fn cut(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn hold(&self, holds: bool) {
        *self.holds.lock().unwrap() = holds;
        self.released.notify_all();
    }
}

/// A server with a runtime of its own, whose share keeps a log of persistent opens.
fn with_log(log: &Path) -> Fixture {
    let start = || {
        Fixture::start("/dev/shm", |config| {
            config.shares[0].persistent_opens = Some(log.join("opens"));
        })
    };
    std::thread::scope(|scope| scope.spawn(start).join().unwrap())
}

async fn is_still_kept_from_others(fixture: &Fixture) {
    let stranger = Client::connect(&fixture.url(), &ConnectOptions::default()).await.unwrap();
    let refused = stranger.open("region", &OpenOptions::read()).await.err();
    assert_eq!(refused.and_then(|error| error.status()), Some(NtStatus::SHARING_VIOLATION));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_that_is_dropped_while_its_file_comes_back_loses_no_handle() {
    let log = tempfile::tempdir().unwrap();
    let fixture = with_log(log.path());
    let (way, address) = Way::to(fixture.running.tcp_address());
    let url: SmbUrl = format!("smb://user:secret@{address}/share").parse().unwrap();
    let options = ConnectOptions::default();
    let client = FailoverClient::connect(&url, &options, Duration::from_secs(60)).await.unwrap();
    let alone = OpenOptions { share: ShareAccess::empty(), ..OpenOptions::read_write() };
    let file = client.open("region", &alone).await.unwrap();
    let other = client.open("other", &alone).await.unwrap();
    way.cut();
    other.write_at(0, b"the session is back").await.unwrap();
    way.hold(true);
    tokio::select! {
        biased;
        done = file.write_at(0, b"dropped") => panic!("{done:?}"),
        // The answer that gives the handle back is on its way.
        () = way.came.notified() => {}
    }
    way.hold(false);
    file.write_at(0, b"written").await.unwrap();
    is_still_kept_from_others(&fixture).await;
    // A runtime is not dropped by a task.
    std::thread::spawn(move || drop(fixture)).join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_answer_that_gives_a_handle_back_too_late_does_not_close_it() {
    const CALL: Duration = Duration::from_millis(500);
    let log = tempfile::tempdir().unwrap();
    let fixture = with_log(log.path());
    let (way, address) = Way::to(fixture.running.tcp_address());
    let url: SmbUrl = format!("smb://user:secret@{address}/share").parse().unwrap();
    // It stands still, so that no other call takes too long.
    let clock = Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH));
    let environment =
        Environment { clock: Clock::given(Arc::clone(&clock) as _), ..Environment::host() };
    let options = ConnectOptions {
        environment,
        call_timeout: CALL,
        answer_timeout: 2 * CALL,
        ..ConnectOptions::default()
    };
    let client = FailoverClient::connect(&url, &options, Duration::from_secs(60)).await.unwrap();
    let alone = OpenOptions { share: ShareAccess::empty(), ..OpenOptions::read_write() };
    let file = client.open("region", &alone).await.unwrap();
    let other = client.open("other", &alone).await.unwrap();
    way.cut();
    other.write_at(0, b"the session is back").await.unwrap();
    way.hold(true);
    let mut write = pin!(file.write_at(0, b"written"));
    tokio::select! {
        biased;
        done = &mut write => panic!("{done:?}"),
        // The answer that gives the handle back is on its way, for longer than a call may take.
        () = way.came.notified() => clock.advance(CALL),
    }
    let ended = tokio::select! {
        biased;
        done = &mut write => Some(done),
        // The client does not wait for it on that connection any more, and waits for the first answer on another.
        () = way.came.notified() => None,
    };
    way.hold(false);
    match ended {
        Some(done) => done.unwrap(),
        None => write.await.unwrap(),
    }
    file.write_at(0, b"again").await.unwrap();
    is_still_kept_from_others(&fixture).await;
    std::thread::spawn(move || drop(fixture)).join().unwrap();
}
