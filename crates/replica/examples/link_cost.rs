//! What a link costs beside plain TCP (the same frames over both, in turns, on loopback), and what compression costs.
//!
//! `cargo run --release -p landfast-replica --example link_cost [ROUNDS]`

use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use replica::format::Encoding;
use replica::message::Message;
use replica::wire::codec::{self, HEAD_LEN, Head};
use replica::wire::{
    Identity, Link, LinkError, LinkOptions, Listener, Policy, Receiver, Sender, compress, dial,
    expand,
};
use replica::{Epoch, GroupId, Lsn, MemberId, MemberSet};

/// A way to send frames.
trait Sends: Send {
    fn send(&mut self, message: &Message, payload: &[u8]) -> io::Result<()>;
}

/// A way to receive them; says how long the payload was, which is in `out` then.
trait Receives: Send {
    fn receive(&mut self, out: &mut [u8]) -> io::Result<usize>;
}

impl Sends for Sender {
    fn send(&mut self, message: &Message, payload: &[u8]) -> io::Result<()> {
        Self::send(self, message, &[payload]).map_err(io::Error::other)
    }
}

impl Receives for Receiver {
    fn receive(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut received = || {
            let (_, len) = Self::receive(self)?;
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            self.payload(&mut out[..len])?;
            Ok::<_, LinkError>(len)
        };
        received().map_err(io::Error::other)
    }
}

struct Plain(TcpStream, Vec<u8>);

impl Sends for Plain {
    fn send(&mut self, message: &Message, payload: &[u8]) -> io::Result<()> {
        let Self(socket, frame) = self;
        frame.clear();
        let len = u32::try_from(payload.len()).map_err(io::Error::other)?;
        codec::encode(message, len, frame).map_err(io::Error::other)?;
        let written = socket.write_vectored(&[IoSlice::new(frame), IoSlice::new(payload)])?;
        match written.checked_sub(frame.len()) {
            Some(of_payload) => socket.write_all(&payload[of_payload..]),
            None => {
                socket.write_all(&frame[written..])?;
                socket.write_all(payload)
            }
        }
    }
}

/// Reads as a link does: as much as there is, into a buffer of the same length.
struct PlainInput(io::BufReader<TcpStream>, Vec<u8>);

impl Receives for PlainInput {
    fn receive(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Self(input, body) = self;
        let mut head = [0; HEAD_LEN];
        input.read_exact(&mut head)?;
        let head = Head::decode(&head).map_err(io::Error::other)?;
        body.resize(head.body_len(), 0);
        input.read_exact(body)?;
        head.message(body).map_err(io::Error::other)?;
        let len = usize::try_from(head.payload_len()).unwrap_or(usize::MAX);
        input.read_exact(&mut out[..len])?;
        Ok(len)
    }
}

type Half<T> = Box<T>;
type Both = (Half<dyn Sends>, Half<dyn Receives>);

fn plain() -> io::Result<(Both, Both)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;
    let both = |socket: TcpStream| -> io::Result<Both> {
        socket.set_nodelay(true)?;
        let input = io::BufReader::with_capacity(256 << 10, socket.try_clone()?);
        let output: Half<dyn Sends> = Box::new(Plain(socket, Vec::new()));
        let input: Half<dyn Receives> = Box::new(PlainInput(input, Vec::new()));
        Ok((output, input))
    };
    Ok((both(one)?, both(other)?))
}

fn linked(connections: usize) -> Result<(Both, Both), Box<dyn std::error::Error>> {
    let (links, taken) = mpsc::channel();
    let member = |me| {
        Identity::from_secret(GroupId([1; 16]), MemberId(me), MemberSet(0b11), b"a random secret.")
    };
    let on_link = move |_, link: Link| drop(links.send(link));
    let options = LinkOptions { connections, ..LinkOptions::default() };
    let listening = Listener::bind("127.0.0.1:0")?.run(member(1)?, options.clone(), on_link)?;
    let address = listening.local_addr().to_string();
    let one = dial(&[address], &member(0)?, MemberId(1), &options)?;
    let other = taken.recv()?;
    while one.closer().connections() + other.closer().connections() < 2 * connections {
        thread::sleep(Duration::from_millis(1));
    }
    let both = |link: Link| -> Both {
        let (output, input) = link.split();
        (Box::new(output), Box::new(input))
    };
    Ok((both(one), both(other)))
}

/// Bytes of payload in a second, one way.
fn stream(
    (mut output, keeps): Both,
    (keeps_too, mut input): Both,
    len: usize,
    time: Duration,
) -> io::Result<f64> {
    let payload = vec![7; len];
    let sends = thread::spawn(move || {
        let mut from = Lsn(0);
        let began = Instant::now();
        let mut sent = 0_u64;
        while began.elapsed() < time {
            let to = from.plus(payload.len() as u64);
            let epoch = Epoch::default();
            let message = Message::Records { epoch, from, to, committed: Lsn(0) };
            output.send(&message, &payload)?;
            sent += payload.len() as u64;
            from = to;
        }
        output.send(&Message::Alive, &[])?;
        drop(keeps);
        Ok::<_, io::Error>((sent, output))
    });
    let began = Instant::now();
    let mut out = vec![0; len];
    while input.receive(&mut out)? > 0 {}
    let took = began.elapsed();
    let (sent, _output) = sends.join().map_err(|_| io::Error::other("the sender panicked"))??;
    drop(keeps_too);
    Ok(sent as f64 / took.as_secs_f64())
}

/// Nanoseconds of a round trip of one small message: the median.
fn ping((mut output, mut input): Both, (mut back, mut there): Both) -> io::Result<f64> {
    const COUNT: usize = 20_000;
    let answers = thread::spawn(move || {
        let (placed, to, applied, start) = (Lsn(64), Lsn(64), Lsn(0), Lsn(0));
        let durable = Message::Durable { placed, to, applied, start };
        for _ in 0..COUNT {
            there.receive(&mut [])?;
            back.send(&durable, &[])?;
        }
        Ok::<_, io::Error>((back, there))
    });
    let mut took = Vec::with_capacity(COUNT);
    for _ in 0..COUNT {
        let began = Instant::now();
        output.send(&Message::Committed { epoch: Epoch::default(), to: Lsn(64) }, &[])?;
        input.receive(&mut [])?;
        took.push(began.elapsed());
    }
    let _ends = answers.join().map_err(|_| io::Error::other("the other end panicked"))??;
    took.sort();
    Ok(took[COUNT / 2].as_secs_f64() * 1e9)
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(5), |rounds| rounds.parse())?;
    let time = Duration::from_secs(1);
    println!(
        "| | link | link of {SEVERAL} connections | plain TCP | link / TCP | {SEVERAL} connections / link |\n|---|---|---|---|---|---|"
    );
    for len in [128 << 10, 4 << 10] {
        let mut rates = [const { Vec::new() }; 3];
        for _ in 0..rounds {
            let [link, several, tcp] = &mut rates;
            for (rates, connections) in [(link, 1), (several, SEVERAL)] {
                let (one, other) = linked(connections)?;
                rates.push(stream(one, other, len, time)?);
            }
            let (one, other) = plain()?;
            tcp.push(stream(one, other, len, time)?);
        }
        let [link, several, tcp] = rates.map(|rates| median(rates) / f64::from(1 << 30));
        println!(
            "| {} KiB, one way | {link:.2} GiB/s | {several:.2} GiB/s | {tcp:.2} GiB/s | {:.2} | {:.2} |",
            len >> 10,
            link / tcp,
            several / link
        );
    }
    let mut trips = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        let [link, several, tcp] = &mut trips;
        for (trips, connections) in [(link, 1), (several, SEVERAL)] {
            let (one, other) = linked(connections)?;
            trips.push(ping(one, other)?);
        }
        let (one, other) = plain()?;
        tcp.push(ping(one, other)?);
    }
    let [link, several, tcp] = trips.map(|trips| median(trips) / 1e3);
    println!(
        "| round trip, p50 | {link:.1} µs | {several:.1} µs | {tcp:.1} µs | {:.2} | {:.2} |",
        link / tcp,
        several / link
    );
    compression()
}

/// Connections of the link that has several.
const SEVERAL: usize = 2;

/// Rates of payloads of 64 KiB, in bytes that are not compressed.
fn compression() -> Result<(), Box<dyn std::error::Error>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words = ["page", "header", "of", "the", "table", "a", "row", "is", "null", "=", "42"];
    let text: String =
        (0..20_000).map(|_| words[(random() % 11) as usize].to_owned() + " ").collect();
    let noise: Vec<u8> = (0..8192).flat_map(|_| random().to_le_bytes()).collect();
    println!("\n| 64 KiB | policy | stored | compress | expand |\n|---|---|---|---|---|");
    for (name, payload) in [("text", &text.as_bytes()[..1 << 16]), ("noise", &noise[..])] {
        for policy in [Policy::Lz4, Policy::Zstd, Policy::Adaptive] {
            let (mut stored, mut out) = (Vec::new(), Vec::new());
            let rate = |count: u32, began: Instant| {
                f64::from(count) * 65_536.0 / f64::from(1 << 20) / began.elapsed().as_secs_f64()
            };
            let (count, began) = (3000, Instant::now());
            let mut encoding = Encoding::Plain;
            for _ in 0..count {
                encoding = compress(policy, payload, &mut stored);
            }
            let packs = rate(count, began);
            let of = if encoding == Encoding::Plain { payload } else { &stored[..] };
            let began = Instant::now();
            for _ in 0..count {
                expand(encoding, of, payload.len(), &mut out)?;
            }
            let unpacks = rate(count, began);
            let kept = of.len() * 100 / payload.len();
            println!("| {name} | {policy:?} | {kept} % | {packs:.0} MiB/s | {unpacks:.0} MiB/s |");
        }
    }
    Ok(())
}
