//! Push connections with invalid start-ups, or whose start-up never ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::{ConnectOptions, Path, RegionSettings, blocking};

use crate::fixture::{Fixture, pushing};
use crate::peer::{Honest, LEN, PATIENCE};

/// Whether the server has closed the connection by now.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.read(&mut [0; 64]) {
        Ok(len) => len == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// Connects `count` times and sends `opening` each time.
fn connect(address: SocketAddr, count: usize, opening: &[u8]) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        // The server may have closed a connection already.
        let _ = stream.write_all(opening);
        stream
    };
    (0..count).map(open).collect()
}

/// Waits until the server has closed at least `count` of them.
fn until_closed(held: &[TcpStream], count: usize) {
    let deadline = Instant::now() + PATIENCE;
    while held.iter().filter(|stream| is_closed(stream)).count() < count {
        assert!(Instant::now() < deadline, "{count} connections are closed in the end");
        std::thread::yield_now();
    }
}

/// Sets a flag when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A new client gets into push mode, over SMB until then.
fn comes_to_push(fixture: &Fixture) {
    fixture.file(LEN);
    let client = fixture.client();
    let mut region = client.map("region", &pushing(), 0..LEN, RegionSettings::default()).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        region.write_commit(0, &[1; 64]).unwrap();
        if matches!(region.path(), Path::Push { .. }) {
            return;
        }
        assert!(Instant::now() < deadline, "{:?}", region.path());
        std::thread::yield_now();
    }
}

#[test]
fn a_connection_with_an_invalid_start_up_is_closed() {
    let fixture = Fixture::start("/dev/shm", |_| {});
    let mut honest = Honest::at_work(&fixture);
    let address = fixture.running.rdma_address().unwrap();
    let endless = [0xff; 64 * 1024];
    let openings: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x00\x00\x00\x40\xfeSMB\x40\x00\x00\x00\x00\x00\x00\x00\x00\x00",
        // A reply instead of a request; an unknown revision; more private data than allowed.
        b"MPA ID Rep Frame\x40\x01\x00\x00",
        b"MPA ID Req Frame\x40\x7f\x00\x00",
        b"MPA ID Req Frame\x40\x01\xff\xff",
    ];
    for opening in openings.into_iter().chain([&endless[..]]) {
        let held = connect(address, 1, opening);
        until_closed(&held, 1);
        honest.still_works();
    }
    assert_eq!(fixture.running.status().push_connections, 1);
}

// The oldest make room: a client that dials during a flood is admitted before any has timed out.
#[test]
fn a_client_is_pushed_during_a_flood_of_half_open_start_ups() {
    let fixture = Fixture::start("/dev/shm", |_| {});
    let mut honest = Honest::at_work(&fixture);
    let address = fixture.running.rdma_address().unwrap();
    let max = usize::try_from(rdma::EngineConfig::default().handshakes_max).unwrap();
    let held = connect(address, max + 100, b"MPA ID Req");
    until_closed(&held, 100);
    honest.still_works();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Takes every place again that a timeout frees.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                drop(connect(address, max, b"MPA ID Req"));
            }
        });
        // Ends the flood also if this test has failed.
        let _over = Over(&is_over);
        comes_to_push(&fixture);
    });
    honest.still_works();
}

#[test]
fn connections_that_never_authenticate_are_bounded_and_time_out() {
    let fixture = Fixture::start("/dev/shm", |config| {
        config.limits.unauthenticated_max = 16;
        config.limits.authentication_timeout = Duration::from_secs(1);
    });
    let mut honest = Honest::at_work(&fixture);
    let held = connect(fixture.running.tcp_address(), 40, b"\x00\x00\xff\xff\xfeSMB\x40\x00");
    until_closed(&held, 24);
    assert!(fixture.running.status().unauthenticated <= 16);
    honest.still_works();
    until_closed(&held, 40);
    let client = blocking::Client::connect(&fixture.url(), &ConnectOptions::default()).unwrap();
    client.echo().unwrap();
    honest.still_works();
}
