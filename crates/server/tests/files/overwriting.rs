//! CREATEs that overwrite, and fail.

use smb::NtStatus;
use smb::create::{
    AccessMask, CreateDisposition, CreateRequest, CreateRequestContext, ShareAccess,
};
use smb::info::FullEa;

use crate::support::Fixture;

fn attributes(name: &str, value: &[u8]) -> &'static [u8] {
    let mut list = Vec::new();
    let attribute = FullEa { flags: 0, name: name.as_bytes(), value };
    FullEa::emit_list(&[attribute], &mut list);
    list.leak()
}

#[test]
fn a_create_that_overwrites_and_fails_changes_nothing() {
    let fixture = Fixture::start_in("/var/tmp".as_ref(), |_| {});
    let mut wire = fixture.client(1);
    let mut make = |name: &str, bytes: &[u8]| {
        let made = wire.open(name, |_| {});
        assert_eq!(wire.write(made.id, bytes), NtStatus::SUCCESS);
        assert_eq!(wire.close(made.id), NtStatus::SUCCESS);
    };
    make("f", b"precious");
    make("f:s", b"stream");
    let (bad, long) = (attributes("a*b", b"v"), attributes("LONG", &[7; 60_000]));
    let causes = [
        CreateRequestContext::ExtendedAttributes(bad),
        CreateRequestContext::ExtendedAttributes(long),
        CreateRequestContext::AllocationSize(1 << 50),
    ];
    for cause in causes {
        for disposition in [CreateDisposition::OVERWRITE_IF, CreateDisposition::SUPERSEDE] {
            let asked = wire.start_open("f", |open| {
                open.disposition = disposition;
                open.contexts.push(cause.clone());
            });
            let (header, _) = wire.answer_to(asked);
            assert!(!header.status.is_success(), "{cause:?}");
            assert_eq!(std::fs::read(fixture.dir.path().join("f")).unwrap(), b"precious");
        }
    }
    let stream = wire.open("f:s", |open| {
        open.disposition = CreateDisposition::OVERWRITE;
        open.contexts.push(CreateRequestContext::AllocationSize(1 << 50));
    });
    assert_eq!(stream.status, NtStatus::DISK_FULL);
    let stream = wire.open("f:s", |open| open.disposition = CreateDisposition::OPEN);
    assert_eq!(wire.read(stream.id, 10), (NtStatus::SUCCESS, b"stream".to_vec()));
}

#[test]
fn an_open_that_has_overwritten_counts_as_a_reader_if_it_only_reads() {
    let fixture = Fixture::start();
    let (mut one, mut two) = (fixture.client(1), fixture.client(2));
    let to_read = |disposition| {
        move |open: &mut CreateRequest<'_>| {
            open.desired_access = AccessMask::FILE_GENERIC_READ;
            open.share_access = ShareAccess::READ;
            open.disposition = disposition;
        }
    };
    for _made_then_overwritten in 0..2 {
        let overwrites = one.open("f", to_read(CreateDisposition::OVERWRITE_IF));
        assert_eq!(overwrites.status, NtStatus::SUCCESS);
        let reads = two.open("f", to_read(CreateDisposition::OPEN));
        assert_eq!(reads.status, NtStatus::SUCCESS);
        let again = one.open("f", to_read(CreateDisposition::OVERWRITE_IF));
        assert_eq!(again.status, NtStatus::SHARING_VIOLATION, "the reader shares no writing");
        assert_eq!(two.close(reads.id), NtStatus::SUCCESS);
        assert_eq!(one.close(overwrites.id), NtStatus::SUCCESS);
    }
}
