//! Both ends of MPA's start-up, against a peer that sends anything at any time.

use std::time::{Duration, Instant};

use iwarp::mpa::{
    Attempt, HashId, Initiator, MpaError, Profile, ProfileFlags, Responder, StartConfig,
};
use iwarp::{Agreement, Stream};

use crate::Input;

enum Operation<'a> {
    Receive(&'a [u8]),
    Accept(&'a [u8]),
    Reject(&'a [u8]),
    Wait(Duration),
    Close,
}

impl<'a> Operation<'a> {
    fn read(input: &mut Input<'a>) -> Self {
        match input.byte() % 8 {
            0 => Self::Accept(input.chunk()),
            1 => Self::Reject(input.chunk()),
            2 => Self::Wait(Duration::from_millis(u64::from(input.u16()))),
            3 => Self::Close,
            _ => Self::Receive(input.chunk()),
        }
    }
}

/// One byte for the role, the form and the profile, then operations.
pub(crate) fn handshake(data: &[u8]) {
    let mut input = Input::new(data);
    let choice = input.byte();
    let profile = (choice & 0x10 != 0).then(|| {
        let flags = ProfileFlags::all();
        Profile::new(flags, 65_536, &[HashId::CRC32C]).expect("one hash id is within the limit")
    });
    let depth = if choice & 0x20 == 0 { 32 } else { 0 };
    let crc = choice & 0x40 == 0;
    let config = StartConfig { crc, ird: depth, ord: depth, profile, ..StartConfig::default() };
    match choice % 4 {
        0 => initiator(&mut input, config, Attempt::CLIENT_SERVER),
        1 => initiator(&mut input, config, Attempt::PEER_TO_PEER),
        2 => initiator(&mut input, config, Attempt::UNENHANCED),
        _ => responder(&mut input, config),
    }
}

fn initiator(input: &mut Input<'_>, config: StartConfig, attempt: Attempt) {
    let mut now = Instant::now();
    let machine = Initiator::new(config, attempt, b"ulp", now);
    let mut machine = machine.expect("a small private data field fits");
    assert!(machine.poll_transmit().is_some());
    while !input.is_empty() {
        match Operation::read(input) {
            Operation::Receive(bytes) | Operation::Accept(bytes) | Operation::Reject(bytes) => {
                assert!(machine.handle_bytes(bytes) <= bytes.len());
            }
            Operation::Wait(time) => {
                now += time;
                machine.handle_timeout(now);
            }
            Operation::Close => machine.handle_close(),
        }
        let _ = (machine.private_data(), machine.peer_depths());
        drop(machine.poll_transmit());
        assert_eq!(machine.poll_timeout().is_some(), machine.outcome().is_none());
        if let Some(Ok(agreement)) = machine.outcome() {
            check(&agreement, config);
        }
    }
}

fn responder(input: &mut Input<'_>, config: StartConfig) {
    let mut now = Instant::now();
    let mut machine = Responder::new(config, now).expect("the default is in range");
    let mut replies = 0;
    while !input.is_empty() {
        match Operation::read(input) {
            Operation::Receive(bytes) => assert!(machine.handle_bytes(bytes) <= bytes.len()),
            Operation::Accept(ulp) => {
                if let Ok(agreement) = machine.accept(ulp) {
                    check(&agreement, config);
                }
            }
            Operation::Reject(ulp) => drop(machine.reject(ulp)),
            Operation::Wait(time) => {
                now += time;
                machine.handle_timeout(now);
            }
            Operation::Close => machine.handle_close(),
        }
        replies += usize::from(machine.poll_transmit().is_some());
        assert!(replies <= 1, "one request, one reply");
        assert!(machine.request().is_none() || machine.outcome().is_none());
        if let Some(Err(MpaError::ConfigDepth(_))) = machine.outcome() {
            panic!("the configuration was checked before");
        }
    }
}

fn check(agreement: &Agreement, config: StartConfig) {
    assert!(agreement.ord <= config.ord, "never more than we wanted");
    assert!(agreement.ird <= config.ird.max(1), "never more than we take");
    let stream = Stream::new(agreement, 1460);
    assert!(stream.frame_size_max() <= 65_536 + 4 * 128 + 4);
}
