//! Round trips and bandwidth over links.

use std::thread;
use std::time::{Duration, Instant};

use log::Lsn;
use serde::Serialize;

use super::disk::rate;
use super::samples::Percentiles;
use crate::message::Message;
use crate::names::Epoch;
use crate::wire::{Link, LinkError};

/// Links that are used at once at most.
pub const STREAMS_MAX: usize = 8;

/// What was measured over links to a member.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkRates {
    /// From a small message to the answer.
    pub round_trip: Percentiles,
    /// Bytes of payload in a second, to the member, over so many links at once.
    pub streams: Vec<StreamRate>,
}

/// Bandwidth over some links at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StreamRate {
    /// How many.
    pub streams: usize,
    /// Bytes of payload in a second, over all.
    pub bytes_per_second: f64,
}

impl LinkRates {
    /// The greatest bandwidth.
    pub fn bytes_per_second(&self) -> f64 {
        self.streams.iter().map(|it| it.bytes_per_second).fold(0.0, f64::max)
    }
}

/// The other end of a measurement: takes what comes, and answers what asks, until the link ends.
///
/// # Errors
///
/// The link has not ended by the other end's word.
pub fn answer(link: Link) -> Result<(), LinkError> {
    let (mut sender, mut receiver) = link.split();
    let mut out = vec![0; PIECE];
    loop {
        let (message, len) = match receiver.receive() {
            Ok(received) => received,
            Err(LinkError::PeerClosed) => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut left = usize::try_from(len).unwrap_or(usize::MAX);
        while left > 0 {
            let count = left.min(PIECE);
            receiver.payload(&mut out[..count])?;
            left -= count;
        }
        if matches!(message, Message::Copied { .. }) {
            sender.send(&message, &[])?;
        }
    }
}

/// Measures over links that `open` makes, of which the other ends [`answer`]: round trips, then the bandwidth of each
/// number of links in `streams`, each for `time`.
///
/// # Errors
///
/// A link cannot be made, or ends.
pub fn measure_links(
    mut open: impl FnMut() -> Result<Link, LinkError>,
    streams: &[usize],
    time: Duration,
) -> Result<LinkRates, LinkError> {
    let round_trip = round_trips(open()?, time)?;
    let mut rates = Vec::new();
    for count in streams.iter().map(|count| (*count).clamp(1, STREAMS_MAX)) {
        let links = (0..count).map(|_| open()).collect::<Result<Vec<_>, _>>()?;
        let began = Instant::now();
        let sends: Vec<_> =
            links.into_iter().map(|link| thread::spawn(move || stream(link, time))).collect();
        let mut sent = 0;
        for send in sends {
            sent += send.join().unwrap_or(Err(LinkError::Closed))?;
        }
        rates.push(StreamRate { streams: count, bytes_per_second: rate(sent, began) });
    }
    Ok(LinkRates { round_trip, streams: rates })
}

fn round_trips(link: Link, time: Duration) -> Result<Percentiles, LinkError> {
    let (mut sender, mut receiver) = link.split();
    let (began, mut times) = (Instant::now(), Vec::new());
    while times.len() < ROUND_TRIPS && began.elapsed() < time {
        let one = Instant::now();
        sender.send(&Message::Copied { count: 0 }, &[])?;
        receiver.receive()?;
        times.push(one.elapsed());
    }
    // In this order the other end is told that nothing more comes.
    drop((sender, receiver));
    Ok(Percentiles::of(times))
}

/// Sends for `time`, and waits until all has arrived: how many bytes.
fn stream(link: Link, time: Duration) -> Result<u64, LinkError> {
    let (mut sender, mut receiver) = link.split();
    let (payload, epoch) = (vec![7; PIECE], Epoch::default());
    let (began, mut from) = (Instant::now(), Lsn(0));
    while began.elapsed() < time {
        let to = from.plus(PIECE as u64);
        let records = Message::Records { epoch, from, to, committed: Lsn(0) };
        sender.send(&records, &[&payload])?;
        from = to;
    }
    sender.send(&Message::Copied { count: 0 }, &[])?;
    receiver.receive()?;
    drop((sender, receiver));
    Ok(from.0)
}

/// Bytes of a payload.
const PIECE: usize = 1 << 20;
/// Round trips that are measured.
const ROUND_TRIPS: usize = 2000;
