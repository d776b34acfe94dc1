//! A proxy between two ends of TCP whose connections a test cuts, or lets carry nothing any more.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// Carries until it is dropped with the test's process.
pub(crate) struct Proxy {
    address: SocketAddr,
    ways: Arc<Mutex<Vec<Arc<Way>>>>,
}

/// One connection.
#[derive(Default)]
struct Way {
    ends: Mutex<Vec<TcpStream>>,
    is_over: AtomicBool,
    is_held: Mutex<bool>,
    goes_on: Condvar,
}

impl Proxy {
    /// Leads to an address.
    pub(crate) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ways: Arc<Mutex<Vec<Arc<Way>>>> = Arc::default();
        let made = Arc::clone(&ways);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(target) else { continue };
                for end in [&near, &far] {
                    end.set_nodelay(true).unwrap();
                }
                let way = Arc::new(Way::default());
                way.ends.lock().unwrap().extend([&near, &far].map(|it| it.try_clone().unwrap()));
                made.lock().unwrap().push(Arc::clone(&way));
                let (back, forth) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let other = Arc::clone(&way);
                thread::spawn(move || way.carry(near, far));
                thread::spawn(move || other.carry(forth, back));
            }
        });
        Self { address, ways }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn living(&self) -> Vec<Arc<Way>> {
        let mut ways = self.ways.lock().unwrap();
        ways.retain(|way| !way.is_over.load(Ordering::SeqCst));
        ways.clone()
    }

    /// Connections that carry.
    pub(crate) fn count(&self) -> usize {
        self.living().iter().filter(|way| !*way.is_held.lock().unwrap()).count()
    }

    /// Ends the connection of this place among those that are there.
    pub(crate) fn cut(&self, place: usize) {
        if let Some(way) = self.living().get(place) {
            way.end();
        }
    }

    /// It carries nothing any more, in either direction, and nobody is told.
    pub(crate) fn hold(&self, place: usize) {
        if let Some(way) = self.living().get(place) {
            *way.is_held.lock().unwrap() = true;
        }
    }
}

impl Way {
    fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        for end in &*self.ends.lock().unwrap() {
            let _ = end.shutdown(Shutdown::Both);
        }
        *self.is_held.lock().unwrap() = false;
        self.goes_on.notify_all();
    }

    fn carry(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let held = self.is_held.lock().unwrap();
            drop(self.goes_on.wait_while(held, |is_held| *is_held).unwrap());
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        // An end that goes while nothing is carried is not heard by the other one either.
        let held = self.is_held.lock().unwrap();
        drop(self.goes_on.wait_while(held, |is_held| *is_held).unwrap());
        self.end();
    }
}
