//! A way to etcd that can be cut.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Passes connections on to a port.
pub(crate) struct Proxy {
    port: u16,
    mode: Arc<AtomicU8>,
}

/// What passes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Mode {
    Open,
    /// Nothing passes either way, until it is open again: then what waited does.
    Held,
    /// What clients say passes; what they are answered waits.
    AnswersHeld,
    Ended,
}

impl Proxy {
    pub(crate) fn new(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mode = Arc::new(AtomicU8::new(Mode::Open as u8));
        let held = Arc::clone(&mode);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if held.load(Ordering::SeqCst) == Mode::Ended as u8 {
                    return;
                }
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", to)))
                else {
                    continue;
                };
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let (mode, other) = (Arc::clone(&held), Arc::clone(&held));
                std::thread::spawn(move || {
                    pass(client, server, &mode, &[Mode::Open, Mode::AnswersHeld])
                });
                std::thread::spawn(move || pass(back.0, back.1, &other, &[Mode::Open]));
            }
        });
        Self { port, mode }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set(Mode::Ended);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

// Bytes that were read wait here while the mode does not let them pass, also when their sender is gone by then.
fn pass(mut from: TcpStream, mut to: TcpStream, mode: &AtomicU8, passes: &[Mode]) {
    from.set_read_timeout(Some(TURN)).unwrap();
    let mut bytes = vec![0; 64 << 10];
    loop {
        let len = match from.read(&mut bytes) {
            Ok(len) => len,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if mode.load(Ordering::SeqCst) == Mode::Ended as u8 {
                    return;
                }
                continue;
            }
            Err(_) => 0,
        };
        while !passes.iter().any(|it| *it as u8 == mode.load(Ordering::SeqCst)) {
            if mode.load(Ordering::SeqCst) == Mode::Ended as u8 {
                return;
            }
            std::thread::sleep(TURN);
        }
        if len == 0 || to.write_all(&bytes[..len]).is_err() {
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
    }
}

const TURN: Duration = Duration::from_millis(5);
