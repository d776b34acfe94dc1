//! The SMB3 POSIX extensions, byte by byte on real sockets.

mod becoming;
mod client;
mod links;
mod modes;
mod names;

use smb::info::{FsInfoClass, FsPosix, InfoType, SecurityInformation};
use smb::negotiate::{NegotiateContext, NegotiateResponse};
use smb::{Guid, NtStatus};

use crate::support::Fixture;
use client::{NO_MODE, client, open, open_as, query};
use modes::chmod;

#[test]
fn the_extensions_are_for_those_who_name_their_version() {
    let fixture = Fixture::start();
    let other = NegotiateContext::Posix(Guid([1; 16]));
    let mut wire = fixture.dial();
    let (_, pdu) = wire.negotiate_with(1, vec![other]);
    let contexts = NegotiateResponse::parse(&pdu).unwrap().contexts;
    assert!(!contexts.iter().any(|context| matches!(context, NegotiateContext::Posix(_))));
    wire.log_on();
    wire.enter("data");
    // The context of CREATE alone makes nobody a POSIX client.
    let opened = open_as(&mut wire, "f", 0o600, |_| {});
    assert!(opened.response().contexts.is_empty());
    let none = SecurityInformation::empty();
    for (kind, class) in [(InfoType::FILE, 100), (InfoType::FILE_SYSTEM, FsInfoClass::POSIX.0)] {
        let refused = query(&mut wire, opened.id, kind, class, none);
        assert_eq!(refused, Err(NtStatus::INVALID_INFO_CLASS));
    }
    assert_eq!(chmod(&mut wire, opened.id, 0o600), NtStatus::NOT_SUPPORTED);
    assert_eq!(open_as(&mut wire, "a:b/c", NO_MODE, |_| {}).status, NtStatus::OBJECT_NAME_INVALID);
}

#[test]
fn the_file_system_is_as_large_as_the_kernel_says() {
    let fixture = Fixture::start();
    let mut wire = client(&fixture, 1);
    let root = open(&mut wire, "").id;
    let none = SecurityInformation::empty();
    let bytes = query(&mut wire, root, InfoType::FILE_SYSTEM, FsInfoClass::POSIX.0, none).unwrap();
    let said = FsPosix::parse(&bytes).unwrap();
    let real = rustix::fs::statvfs(fixture.dir.path()).unwrap();
    assert_eq!(u64::from(said.block_size), real.f_frsize);
    assert_eq!((said.total_blocks, said.total_file_nodes), (real.f_blocks, real.f_files));
    assert!(said.user_available_blocks <= said.available_blocks);
}
