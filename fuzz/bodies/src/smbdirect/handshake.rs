//! Both ends of the negotiation, against a peer that sends anything at any time.

use std::time::{Duration, Instant};

use smbdirect::{Acceptor, CloseReason, Config, Initiator};

use crate::Input;

enum Operation<'a> {
    Transmit,
    Receive(&'a [u8]),
    Post(u16),
    Wait(Duration),
}

impl<'a> Operation<'a> {
    fn read(input: &mut Input<'a>) -> Self {
        match input.byte() % 4 {
            0 => Self::Transmit,
            1 => Self::Receive(input.chunk()),
            2 => Self::Post(input.u16()),
            _ => Self::Wait(Duration::from_millis(u64::from(input.u32()))),
        }
    }
}

/// The first byte chooses the role.
pub(crate) fn handshake(data: &[u8]) {
    let mut input = Input::new(data);
    if input.byte() & 1 == 0 { initiator(&mut input) } else { acceptor(&mut input) }
}

fn initiator(input: &mut Input<'_>) {
    let mut now = Instant::now();
    let config = Config::default();
    let mut machine = Initiator::new(config).expect("the default is honest");
    while !input.is_empty() {
        match Operation::read(input) {
            Operation::Transmit => drop(machine.poll_transmit(now)),
            Operation::Receive(message) => {
                let reason = machine.handle_receive(now, message).err();
                let outcome = machine.outcome().expect("a message always decides");
                assert_eq!(outcome.err(), reason);
            }
            Operation::Post(_) => {}
            Operation::Wait(time) => {
                now += time;
                machine.handle_timeout(now);
            }
        }
        if let Some(Ok(agreement)) = machine.outcome() {
            assert!((128..=config.receive_size_max).contains(&agreement.receive_size_max));
            assert!((128..=config.send_size_max).contains(&agreement.send_size_max));
            assert!(agreement.fragmented_send_size_max >= 131_072);
            assert!(agreement.read_write_size_max <= config.read_write_size_max);
        }
    }
}

fn acceptor(input: &mut Input<'_>) {
    let mut now = Instant::now();
    let config = Config::default();
    let mut machine = Acceptor::new(config, now).expect("the default is honest");
    let mut posted = 0_u16;
    let mut answered = false;
    while !input.is_empty() {
        match Operation::read(input) {
            Operation::Transmit => {
                let response = machine.poll_transmit();
                assert!(!(answered && response.is_some()), "one request, one response");
                answered |= response.is_some();
                if let Some(smbdirect::NegotiateResponse::Accepted { credits_granted, .. }) =
                    response
                {
                    assert!((1..=posted).contains(&credits_granted));
                }
            }
            Operation::Receive(message) => {
                if machine.handle_receive(now, message).is_err() {
                    assert!(matches!(machine.outcome(), Some(Err(_))));
                }
            }
            Operation::Post(count) => {
                posted = posted.saturating_add(count);
                machine.receives_posted(count);
            }
            Operation::Wait(time) => {
                now += time;
                machine.handle_timeout(now);
            }
        }
        if let Some(Err(CloseReason::PeerRefused(_))) = machine.outcome() {
            panic!("nobody refuses an acceptor");
        }
    }
}
