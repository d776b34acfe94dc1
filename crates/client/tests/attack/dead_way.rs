//! A way to the server that dies without a word: the server holds the old session until it notices.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use client::blocking::FailoverClient;
use client::{ConnectOptions, OpenOptions, SmbUrl};

use super::fixture::Fixture;

/// Carries connections until it is told that those of now are dead: it then carries nothing, and closes nothing.
struct Way {
    address: SocketAddr,
    /// Connections made so far, and how many of them are dead.
    made: Arc<AtomicUsize>,
    dead: Arc<AtomicUsize>,
}

impl Way {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (made, dead) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, died) = (Arc::clone(&made), Arc::clone(&dead));
        std::thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
                let far = TcpStream::connect(server).unwrap();
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let died = Arc::clone(&died);
                    std::thread::spawn(move || carry(from, to, number, &died));
                }
            }
        });
        Self { address, made, dead }
    }

    fn die(&self) {
        self.dead.store(self.made.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

// A dead connection keeps both sockets: neither end learns anything.
fn carry(mut from: TcpStream, mut to: TcpStream, number: usize, died: &AtomicUsize) {
    let mut bytes = vec![0; 65_536];
    loop {
        let Ok(count @ 1..) = from.read(&mut bytes) else { return };
        if number <= died.load(Ordering::SeqCst) {
            std::mem::forget((from, to));
            return;
        }
        if to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

#[test]
fn a_handle_whose_old_session_the_server_still_holds_comes_back() {
    let log = tempfile::tempdir().unwrap();
    let fixture = Fixture::start("/var/tmp", |config| {
        config.shares[0].persistent_opens = Some(log.path().join("opens"));
    });
    fixture.file(8192);
    let way = Way::to(fixture.running.tcp_address());
    let url: SmbUrl = format!("smb://user:secret@{}/share", way.address).parse().unwrap();
    let options = ConnectOptions { answer_timeout: Duration::from_secs(2), ..Default::default() };
    let client = FailoverClient::connect(&url, &options, Duration::from_secs(60)).unwrap();
    let file = client.open("region", &OpenOptions::read_write()).unwrap();
    file.write_at(0, b"before").unwrap();
    way.die();
    file.write_at(8, b"behind").unwrap();
    assert_eq!(file.sessions_lost(), 1);
    let mut bytes = [0; 14];
    file.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"before\0\0behind");
}
