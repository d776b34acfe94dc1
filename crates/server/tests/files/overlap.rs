//! Shares that lie in one another are one tree: what is open through one is in the way of the others, and keeps up with
//! what they do.

use server::ShareConfig;
use smb::create::{AccessMask, CreateOptions};
use smb::info::RenameFlags;
use smb::{FileId, NtStatus};

use crate::support::{Fixture, Wire};

/// A server whose share `data` has the directory `p`, which is the share `inner`.
fn start() -> Fixture {
    Fixture::start_with(|config| {
        let inner = config.shares[0].path.join("p");
        std::fs::create_dir_all(inner.join("d")).unwrap();
        config.shares.push(ShareConfig::new("inner", inner));
    })
}

fn client(fixture: &Fixture, number: u8, share: &str) -> Wire {
    let mut wire = fixture.client(number);
    assert_eq!(wire.enter(share), NtStatus::SUCCESS);
    wire
}

fn directory(wire: &mut Wire, name: &str) -> FileId {
    let opened = wire.open(name, |request| request.options = CreateOptions::DIRECTORY_FILE);
    assert_eq!(opened.status, NtStatus::SUCCESS);
    opened.id
}

#[test]
fn a_directory_keeps_its_name_while_anything_below_it_is_open_through_whatever_share() {
    let fixture = start();
    let (mut deep, mut high) = (client(&fixture, 1, "inner"), client(&fixture, 2, "data"));
    let file = deep.open("d\\f", |_| {}).id;
    let above = directory(&mut high, "p\\d");
    assert_eq!(high.rename(above, "p\\e", RenameFlags::empty()), NtStatus::ACCESS_DENIED);
    high.close(above);
    deep.close(file);
    high.open("p\\d\\f", |_| {});
    let below = directory(&mut deep, "d");
    assert_eq!(deep.rename(below, "e", RenameFlags::empty()), NtStatus::ACCESS_DENIED);
}

#[test]
fn what_is_renamed_through_one_share_goes_with_its_last_open_through_another() {
    let fixture = start();
    let (mut deep, mut high) = (client(&fixture, 1, "inner"), client(&fixture, 2, "data"));
    let goes = |request: &mut smb::create::CreateRequest<'_>| {
        request.options |= CreateOptions::DELETE_ON_CLOSE;
        request.desired_access |= AccessMask::DELETE;
    };
    let doomed = deep.open("f", goes).id;
    let id = high.open("p\\f", |_| {}).id;
    assert_eq!(high.rename(id, "p\\g", RenameFlags::empty()), NtStatus::SUCCESS);
    // It would have no name in the share it is open through.
    assert_eq!(high.rename(id, "g", RenameFlags::empty()), NtStatus::ACCESS_DENIED);
    high.close(id);
    assert_eq!(deep.close(doomed), NtStatus::SUCCESS);
    assert!(!fixture.dir.path().join("p/g").exists());
}

#[test]
fn the_top_of_a_share_and_what_is_above_keep_their_names() {
    let fixture = Fixture::start_with(|config| {
        let inner = config.shares[0].path.join("p/q");
        std::fs::create_dir_all(&inner).unwrap();
        config.shares.push(ShareConfig::new("inner", inner));
    });
    let mut high = client(&fixture, 1, "data");
    for name in ["p\\q", "p"] {
        let id = directory(&mut high, name);
        assert_eq!(
            high.rename(id, "other", RenameFlags::empty()),
            NtStatus::ACCESS_DENIED,
            "{name}"
        );
        high.close(id);
    }
    assert!(fixture.dir.path().join("p/q").is_dir());
}
