//! A relay that drops the first connections of each dial, as an end would that does not know their form of start-up.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Starts it; returns where it listens.
pub(crate) fn start(target: SocketAddr, forms: u32) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || -> io::Result<()> {
        loop {
            for _ in 0..forms {
                let (mut dropped, _) = listener.accept()?;
                // Its request is read first, so that it is closed and not reset.
                dropped.read_exact(&mut [0; REQUEST_LEN])?;
                dropped.shutdown(Shutdown::Both)?;
            }
            let (near, _) = listener.accept()?;
            let far = TcpStream::connect(target)?;
            near.set_nodelay(true)?;
            far.set_nodelay(true)?;
            let (from, to) = (near.try_clone()?, far.try_clone()?);
            thread::spawn(move || relay(from, to));
            thread::spawn(move || relay(far, near));
        }
    });
    Ok(address)
}

fn relay(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// The fixed part of a request, which every form has.
const REQUEST_LEN: usize = 20;
