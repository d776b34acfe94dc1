//! A relay that drops the first connections of each dial, like a peer that does not know their form of start-up, and
//! that damages a byte in transit.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

/// The byte that arrives changed, counted from the first byte of its sender.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Damage {
    pub(crate) of_initiator: Option<usize>,
    pub(crate) of_responder: Option<usize>,
}

/// Starts the relay; returns the address where it listens.
pub(crate) fn start(target: SocketAddr, forms: u32, damage: Damage) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || -> io::Result<()> {
        loop {
            for _ in 0..forms {
                let (mut dropped, _) = listener.accept()?;
                // The relay reads the request first, so that the connection is closed and not
                // reset.
                dropped.read_exact(&mut [0; REQUEST_LEN])?;
                dropped.shutdown(Shutdown::Both)?;
            }
            let (near, _) = listener.accept()?;
            let far = TcpStream::connect(target)?;
            near.set_nodelay(true)?;
            far.set_nodelay(true)?;
            let (from, to) = (near.try_clone()?, far.try_clone()?);
            thread::spawn(move || relay(from, to, damage.of_initiator));
            thread::spawn(move || relay(far, near, damage.of_responder));
        }
    });
    Ok(address)
}

fn relay(mut from: TcpStream, mut to: TcpStream, mut damaged: Option<usize>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(len) = from.read(&mut bytes)
        && len > 0
    {
        let piece = bytes.get_mut(..len).unwrap_or_default();
        if let Some(at) = damaged {
            match piece.get_mut(at) {
                Some(byte) => *byte ^= 0x10,
                None => damaged = Some(at - len),
            }
            damaged = damaged.filter(|left| *left < at);
        }
        if to.write_all(piece).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// The fixed part of a request, which every form has.
const REQUEST_LEN: usize = 20;
