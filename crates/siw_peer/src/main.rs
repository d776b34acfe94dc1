//! Checks provider `soft` against a verbs program over the kernel's siw; the other half is
//! `tests/guest/siw_peer.c`.
//!
//! ```text
//!  initiator                                   responder
//!    MPA request, private data: SCENARIO --->
//!    Send ADVERT {memory, secret} --------->
//!              <----------------------------     Send ADVERT
//!    Send GO ------------------------------>     where the responder is to act first
//!              whatever the scenario says
//! ```
//!
//! | scenario | what happens |
//! |---|---|
//! | `hello` | nothing more |
//! | `sound` | the initiator, then the responder: Send, RDMA Write, RDMA Read in each of [`SIZES`] |
//! | `i-…`, `r-…` | initiator or responder does what must not be done ([`Misdeed`]), the other sends a Terminate |
//! | `i-crc`, `r-crc` | a byte of the first frame of initiator or responder arrives changed |
//! | `die-asked`, `die-replied`, `die-idle` | the verbs program is killed behind the request, behind the reply, after a conversation |
//! | `die-g-…`, `die-h-…` | … in the middle of a `send`, `write` or `read` of its own (g) or of ours (h) |
//! | `enough` | the answering end exits |
//!
//! `siw_peer answer ADDR:PORT [nocrc]` prints `listening` and answers one connection after the other; `siw_peer ask
//! ADDR:PORT SCENARIO [COUNT] [nocrc] [forms=N]` dials. With `forms` each connection is dropped N times first, as a
//! peer would that does not know our first N forms of start-up. Each prints a line per check, `ok NAME` or `FAIL
//! NAME: evidence`: that connections ended as required, and that nothing of them is left in the engine.

mod dropper;
mod expected;
mod host;
mod session;

use std::net::SocketAddr;
use std::time::Duration;

use rdma::{ConnectionId, DisconnectReason, Event, QpConfig, QpId};

use dropper::Damage;
use expected::{Ended, passes, verdict};
use host::{Asks, Failure, Host, PATIENCE};
use session::{Session, Stop};

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["answer", address, rest @ ..] => answer(address.parse()?, &Manner::of(rest)?),
        ["ask", address, scenario, rest @ ..] => {
            ask(address.parse()?, scenario, &Manner::of(rest)?)
        }
        _ => Err("siw_peer answer ADDR:PORT [nocrc] | \
                  ask ADDR:PORT SCENARIO [COUNT] [nocrc] [forms=N]"
            .into()),
    }
}

/// How to connect.
#[derive(Debug)]
struct Manner {
    crc: bool,
    /// Forms of start-up that are dropped before they get anywhere.
    forms: u32,
    count: u32,
}

impl Manner {
    fn of(words: &[&str]) -> Result<Self, Failure> {
        let mut manner = Self { crc: true, forms: 0, count: 1 };
        for word in words {
            match word.split_once('=') {
                Some(("forms", forms)) => manner.forms = forms.parse()?,
                _ if *word == "nocrc" => manner.crc = false,
                _ => manner.count = word.parse().map_err(|_| format!("unknown: {word}"))?,
            }
        }
        Ok(manner)
    }

    /// The verbs program gets its private data without an announcement of ours before them.
    fn qp_config(&self) -> QpConfig {
        QpConfig { crc: self.crc, announce: false, ..QpConfig::default() }
    }
}

fn answer(address: SocketAddr, manner: &Manner) -> Result<(), Failure> {
    let mut host = Host::open()?;
    println!("listening {}", host.engine.listen(address)?);
    let mut greeted = 0;
    loop {
        let asked = host.wait_for(LONG, |event| match event {
            Event::ConnectRequest { id, private_data, .. } => Some((*id, private_data.clone())),
            _ => None,
        });
        let (id, name) = asked.ok_or("nobody asks any more")?;
        let name = String::from_utf8(name)?;
        let ended = match name.as_str() {
            "die-asked" => withdrawn(&mut host, id),
            _ => {
                let qp = host.engine.accept(id, manner.qp_config(), &[])?;
                run(&mut host, qp, &name, Asks::Peer)
            }
        };
        let verdict = verdict(&name, Asks::Peer, &ended);
        if name == "hello" && verdict.is_ok() {
            greeted += 1;
        } else {
            report(&format!("siw asks: {name}"), verdict, passes(&name, Asks::Peer));
        }
        if name == "enough" {
            eprintln!("{greeted} said no more than hello");
            return Ok(());
        }
    }
}

/// The peer dies before we answer its request.
fn withdrawn(host: &mut Host, asked: ConnectionId) -> Ended {
    let gone = host.wait_for(PATIENCE, |event| {
        matches!(event, Event::ConnectRequestGone { id } if *id == asked).then_some(())
    });
    let fault = gone.is_none().then(|| "the request stayed".to_owned());
    Ended { fault, ..Ended::default() }
}

fn ask(address: SocketAddr, name: &str, manner: &Manner) -> Result<(), Failure> {
    let mut host = Host::open()?;
    let damage = damage(name);
    let dialled = match (manner.forms, damage) {
        (0, Damage { of_initiator: None, of_responder: None }) => address,
        (forms, damage) => dropper::start(address, forms, damage)?,
    };
    let mut result = Ok(());
    for number in 0..manner.count {
        let qp = host.engine.connect(dialled, manner.qp_config(), name.as_bytes())?;
        let ended = dial(&mut host, qp, name);
        result = verdict(name, Asks::We, &ended);
        if let Err(evidence) = &mut result {
            evidence.insert_str(0, &format!("connection {number}: "));
            break;
        }
    }
    let forms = ["", ", peer to peer", ", MPA revision 1"];
    let form = forms.get(usize::try_from(manner.forms)?).ok_or("there are three forms")?;
    let crc = if manner.crc { "" } else { ", no CRC" };
    let many = if manner.count > 1 { format!(" {} times", manner.count) } else { String::new() };
    let failed = result.is_err();
    let shown = format!("siw answers: {name}{many}{form}{crc}");
    report(&shown, result, passes(name, Asks::We));
    if failed { Err("not as it should be".into()) } else { Ok(()) }
}

/// The byte that is to arrive changed, in the payload of the first frame: in front of it are the
/// start-up frame, with 20 bytes and depths and private data, and a header of 20.
fn damage(name: &str) -> Damage {
    match name {
        "i-crc" => Damage { of_initiator: Some(20 + 4 + name.len() + 20 + 8), of_responder: None },
        "r-crc" => Damage { of_initiator: None, of_responder: Some(20 + 4 + 20 + 8) },
        _ => Damage::default(),
    }
}

fn dial(host: &mut Host, qp: QpId, name: &str) -> Ended {
    let connected = host.wait_for(PATIENCE, |event| match event {
        Event::Established { qp: established, .. } if *established == qp => Some(Ok(())),
        Event::ConnectFailed { qp: failed, reason, .. } if *failed == qp => Some(Err(*reason)),
        _ => None,
    });
    match connected {
        Some(Ok(())) => run(host, qp, name, Asks::We),
        Some(Err(reason)) => Ended { not_connected: Some(reason), ..Ended::default() },
        None => Ended { fault: Some("no connection".to_owned()), ..Ended::default() },
    }
}

/// Runs one connection to its end.
fn run(host: &mut Host, qp: QpId, name: &str, asks: Asks) -> Ended {
    let mut ended = Ended::default();
    let mut session = match Session::new(host, qp) {
        Ok(session) => session,
        // A peer that is killed after its reply may be gone before any memory is registered for it.
        Err(failure) => {
            let is_gone = name == "die-replied";
            let reason = is_gone.then(|| disconnect(host, qp, false)).flatten();
            let fault = reason.is_none().then(|| failure.to_string());
            return Ended { reason, fault, ..ended };
        }
    };
    let stop = session.play(name, asks);
    // siw does not end the connection after a misdeed that it lets pass.
    let leaves = asks == Asks::We || passes(name, asks);
    ended.unfinished = session.unfinished();
    let reason = match stop {
        Err(Stop::Ended(reason)) => Some(reason),
        Err(Stop::Fault(fault)) => {
            ended.fault = Some(fault);
            None
        }
        Ok(()) => None,
    };
    let leaves = leaves || ended.fault.is_some();
    ended.reason = reason.or_else(|| disconnect(host, qp, leaves));
    host.events.retain(|event| !matches!(event, Event::Completion(done) if done.qp == qp));
    ended
}

/// The initiator says farewell, the responder waits for that.
fn disconnect(host: &mut Host, qp: QpId, leaves: bool) -> Option<DisconnectReason> {
    if leaves {
        host.engine.disconnect(qp);
    }
    host.wait_for(PATIENCE, |event| match event {
        Event::Disconnected { qp: ended, reason } if *ended == qp => Some(*reason),
        _ => None,
    })
}

/// Prints the outcome of a check; an outcome in `passes` is a known fault of siw.
fn report(name: &str, result: Result<(), String>, passes: bool) {
    match result {
        Ok(()) if passes => eprintln!("gap {name}: siw does not ask who may read"),
        Ok(()) => eprintln!("ok {name}"),
        Err(evidence) => eprintln!("FAIL {name}: {evidence}"),
    }
}

/// How long the next connection may take.
const LONG: Duration = Duration::from_secs(600);
