//! A way from the server that takes what nobody misses: breaks, which are not signed, and answers that came late.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{ConnectOptions, OpenOptions, RegionError, SmbUrl, blocking};
use smb::framing;
use smb::{Command, Header, MessageId, Route};

use super::fixture::{Fixture, bytes_at, pushing, settings};

/// Carries connections; once it is told to, it keeps breaks and answers to waits to itself.
struct Way {
    address: SocketAddr,
    is_deaf: Arc<AtomicBool>,
}

impl Way {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let is_deaf = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_deaf);
        std::thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let far = TcpStream::connect(server).unwrap();
                let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let told = Arc::clone(&told);
                std::thread::spawn(move || answers(far_too, near_too, &told));
                std::thread::spawn(move || std::io::copy(&mut &near, &mut &far));
            }
        });
        Self { address, is_deaf }
    }
}

// Until one of the two ends.
fn answers(mut from: TcpStream, mut to: TcpStream, is_deaf: &AtomicBool) {
    loop {
        let mut prefix = [0; framing::PREFIX_LEN];
        if from.read_exact(&mut prefix).is_err() {
            return;
        }
        let len = framing::frame_len(prefix, framing::FRAME_LEN_MAX).unwrap();
        let mut frame = vec![0; len];
        if from.read_exact(&mut frame).is_err() {
            return;
        }
        if is_deaf.load(Ordering::SeqCst) && is_missed_by_nobody(&frame) {
            continue;
        }
        if to.write_all(&[&prefix[..], &frame].concat()).is_err() {
            return;
        }
    }
}

fn is_missed_by_nobody(frame: &[u8]) -> bool {
    let header = Header::parse(frame).unwrap();
    let is_break = header.message_id == MessageId(u64::MAX);
    let is_late = matches!(header.route, Route::Async(_)) && header.status.is_success();
    is_break || (header.command == Command::IOCTL && is_late)
}

#[test]
fn a_region_revoked_for_another_client_is_not_replayed_though_its_client_hears_nothing() {
    let fixture = Fixture::start("/dev/shm", |config| {
        config.push.grace = Duration::from_millis(100);
        config.limits.break_timeout = Duration::from_millis(500);
    });
    let path = fixture.file(8192);
    let way = Way::to(fixture.running.tcp_address());
    let url: SmbUrl = format!("smb://user:secret@{}/share", way.address).parse().unwrap();
    let holder = blocking::Client::connect(&url, &ConnectOptions::default()).unwrap();
    let mut region = holder.map("region", &pushing(), 0..8192, settings()).unwrap();
    region.write_commit(0, b"committed").unwrap();
    region.write(0, b"the holder's older bytes").unwrap();
    // The answer to this read shows that the bytes are in the file.
    region.read(0, &mut [0; 8]).unwrap();
    way.is_deaf.store(true, Ordering::SeqCst);
    let other = fixture.client();
    let file = other.open("region", &OpenOptions::read_write()).unwrap();
    file.write_at(0, b"the other's newer bytes!").unwrap();
    file.flush().unwrap();
    file.close().unwrap();
    let committed = region.commit(0, 24);
    assert!(matches!(committed, Err(RegionError::Broken)), "{committed:?}");
    assert_eq!(bytes_at(&path, 0, 24), b"the other's newer bytes!");
    assert_eq!(region.lost().len(), 1);
    assert_eq!(region.lost()[0], 0..24);
}
