//! A server that guests may read from too, and clients that ask for much.

use std::fs::{self, File};

use tree::Admission;

use server::{ServerConfig, ShareConfig, SigningPolicy};
use smb::create::{AccessMask, CreateDisposition, CreateRequest};
use smb::{Command, Empty, NtStatus};

use super::{Fixture, Wire};

/// The largest READ, and what it costs.
pub(crate) const LARGEST: u32 = 8 << 20;
pub(crate) const CHARGE: u16 = 128;
/// What guests may hold together of requests, and of answers.
pub(crate) const OF_GUESTS: usize = 64 << 20;

/// Share "shown" is for guests too; a file in it is longer than any READ.
pub(crate) fn with_guests(config: &mut ServerConfig) {
    let path = config.shares[0].path.join("shown");
    fs::create_dir(&path).unwrap();
    File::create(path.join("long")).unwrap().set_len(64 << 20).unwrap();
    config.signing = SigningPolicy::WhenAsked;
    config
        .shares
        .push(ShareConfig { guests: Admission::Reading, ..ShareConfig::new("shown", path) });
}

pub(crate) fn guest(fixture: &Fixture, number: u8) -> Wire {
    let mut wire = fixture.dial();
    wire.negotiate(number);
    wire.log_on_as("mallory", "whatever");
    assert_eq!(wire.enter("shown"), NtStatus::SUCCESS);
    wire
}

pub(crate) fn to_read(request: &mut CreateRequest<'_>) {
    request.desired_access = AccessMask::FILE_GENERIC_READ;
    request.disposition = CreateDisposition::OPEN;
}

/// Asks until it has so many credits more.
pub(crate) fn save_credits(wire: &mut Wire, count: u16) {
    for _ in 0..=count / 31 {
        assert_eq!(wire.ask(Command::ECHO, |out| Empty.emit(out)).0.status, NtStatus::SUCCESS);
    }
}
