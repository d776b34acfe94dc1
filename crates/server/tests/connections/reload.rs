//! Users and shares that change while the server serves: who lost a right has nothing left of it.

use std::fs;
use std::net::Shutdown;

use tree::Admission;

use server::users::UsersFile;
use server::{Reloaded, ShareConfig, Users};
use smb::create::{
    AccessMask, CreateDisposition, CreateRequestContext, CreateResponseContext, Lease, LeaseKey,
    LeaseState, LeaseVersion, OplockLevel,
};
use smb::crypto::Cipher;
use smb::push::{Durability, PushRequest, PushResponse, Refusal, Rights};
use smb::{FileId, NtStatus};

use crate::support::{Fixture, Wire};

fn only_other() -> Users {
    Users::with_passwords([("other", "hidden")])
}

fn both() -> Users {
    Users::with_passwords([("user", "secret"), ("other", "hidden")])
}

impl Fixture {
    fn data(&self) -> ShareConfig {
        ShareConfig::new("data", self.dir.path())
    }

    fn reload(&self, users: Users, shares: Vec<ShareConfig>) -> Reloaded {
        self.runtime.block_on(self.running.reload(users, shares)).unwrap()
    }

    fn content(&self, name: &str) -> Vec<u8> {
        fs::read(self.dir.path().join(name)).unwrap()
    }

    /// A client of `other`, who stays.
    fn other(&self) -> Wire {
        let mut wire = self.dial();
        wire.negotiate(2);
        wire.log_on_as("other", "hidden");
        assert_eq!(wire.enter("data"), NtStatus::SUCCESS);
        wire
    }
}

fn written(wire: &mut Wire, name: &str) -> FileId {
    let id = wire.open(name, |_| {}).id;
    assert_eq!(wire.write(id, b"before"), NtStatus::SUCCESS);
    id
}

#[test]
fn a_removed_account_s_session_writes_nothing_more() {
    let fixture = Fixture::start();
    let (mut gone, mut stays) = (fixture.client(1), fixture.other());
    let (id, kept) = (written(&mut gone, "f"), written(&mut stays, "g"));
    let reloaded = fixture.reload(only_other(), vec![fixture.data()]);
    assert_eq!(reloaded, Reloaded { sessions_ended: 1, ..Reloaded::default() });
    assert_eq!(gone.write(id, b"after!"), NtStatus::USER_SESSION_DELETED);
    assert_eq!(gone.open("f", |_| {}).status, NtStatus::USER_SESSION_DELETED);
    assert_eq!(fixture.content("f"), b"before");
    assert_eq!(stays.write(kept, b"after!"), NtStatus::SUCCESS);
    assert_eq!((fixture.running.status().sessions, fixture.running.status().opens), (1, 1));
    gone.session = 0;
    assert_eq!(gone.try_log_on_as("user", "secret"), NtStatus::LOGON_FAILURE);
}

#[test]
fn an_account_taken_out_of_the_users_file_loses_its_session() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    UsersFile::change(&path, "user", Some("secret")).unwrap();
    UsersFile::change(&path, "other", Some("hidden")).unwrap();
    let fixture = Fixture::start_with(|config| config.users = Users::in_file(&path, []).unwrap());
    let (mut gone, mut stays) = (fixture.client(1), fixture.other());
    let (id, kept) = (written(&mut gone, "f"), written(&mut stays, "g"));
    UsersFile::change(&path, "user", None).unwrap();
    while fixture.running.status().sessions > 1 {
        std::thread::yield_now();
    }
    assert_eq!(gone.write(id, b"after!"), NtStatus::USER_SESSION_DELETED);
    assert_eq!(fixture.content("f"), b"before");
    assert_eq!(stays.write(kept, b"after!"), NtStatus::SUCCESS);
}

#[test]
fn who_may_only_read_from_now_on_writes_nothing_more() {
    let fixture = Fixture::start();
    let (mut reader, mut stays) = (fixture.client(1), fixture.other());
    let (id, kept) = (written(&mut reader, "f"), written(&mut stays, "g"));
    let share = ShareConfig {
        users: Some(vec!["Other".to_owned()]),
        readers: Some(vec!["USER".to_owned()]),
        ..fixture.data()
    };
    assert_eq!(fixture.reload(both(), vec![share]).sessions_ended, 1);
    assert_eq!(reader.write(id, b"after!"), NtStatus::USER_SESSION_DELETED);
    assert_eq!(stays.write(kept, b"after!"), NtStatus::SUCCESS);
    let mut again = fixture.client(1);
    assert_eq!(again.open("f", |_| {}).status, NtStatus::ACCESS_DENIED);
    let id = again.open("f", only_reads).id;
    assert_eq!(again.read(id, 100).1, b"before");
}

fn only_reads(request: &mut smb::create::CreateRequest<'_>) {
    request.desired_access = AccessMask::FILE_GENERIC_READ;
    request.disposition = CreateDisposition::OPEN;
}

#[test]
fn whatever_a_share_takes_back_ends_the_sessions_in_it() {
    let stricter: [fn(&mut ShareConfig); 4] = [
        |share| share.read_only = true,
        |share| share.encrypt_required = true,
        |share| share.users = Some(vec!["other".to_owned()]),
        |share| share.name = "elsewhere".to_owned(),
    ];
    for (number, change) in stricter.into_iter().enumerate() {
        let fixture = Fixture::start();
        let mut wire = fixture.client(1);
        let id = written(&mut wire, "f");
        let mut share = fixture.data();
        change(&mut share);
        assert_eq!(fixture.reload(both(), vec![share]).sessions_ended, 1, "change {number}");
        assert_eq!(wire.write(id, b"after!"), NtStatus::USER_SESSION_DELETED, "change {number}");
        assert_eq!(fixture.content("f"), b"before", "change {number}");
    }
}

#[test]
fn a_guest_loses_the_session_when_its_share_takes_none() {
    let fixture = Fixture::start_with(|config| config.shares[0].guests = Admission::Full);
    let mut guest = fixture.dial();
    guest.negotiate(1);
    guest.log_on_as("nobody", "x");
    assert_eq!(guest.enter("data"), NtStatus::SUCCESS);
    let id = written(&mut guest, "f");
    assert_eq!(fixture.reload(both(), vec![fixture.data()]).sessions_ended, 1);
    assert_eq!(guest.write(id, b"after!"), NtStatus::USER_SESSION_DELETED);
    assert_eq!(fixture.content("f"), b"before");
}

#[test]
fn more_rights_end_no_session_and_count_at_once() {
    let fixture = Fixture::start_with(|config| {
        config.shares[0].readers = Some(vec!["user".to_owned()]);
        config.shares[0].users = Some(vec!["other".to_owned()]);
    });
    let mut wire = fixture.client(1);
    let more = tempfile::tempdir().unwrap();
    let shares = vec![fixture.data(), ShareConfig::new("more", more.path())];
    let reloaded = fixture.reload(both(), shares);
    assert_eq!(reloaded, Reloaded { added: vec!["more".to_owned()], ..Reloaded::default() });
    for share in ["data", "more"] {
        assert_eq!(wire.enter(share), NtStatus::SUCCESS);
        written(&mut wire, "f");
    }
    let reloaded = fixture.reload(both(), vec![fixture.data()]);
    assert_eq!(reloaded.removed, ["more"]);
    assert_eq!(fixture.client(1).enter("more"), NtStatus::BAD_NETWORK_NAME);
}

#[test]
fn another_password_counts_for_the_next_logon() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let id = written(&mut wire, "f");
    let changed = Users::with_passwords([("user", "changed")]);
    assert_eq!(fixture.reload(changed, vec![fixture.data()]).sessions_ended, 0);
    assert_eq!(wire.write(id, b"after!"), NtStatus::SUCCESS);
    let mut next = fixture.dial();
    next.negotiate(1);
    assert_eq!(next.try_log_on_as("user", "secret"), NtStatus::LOGON_FAILURE);
}

#[test]
fn a_share_that_cannot_be_exported_leaves_everything_as_it_was() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let id = written(&mut wire, "f");
    let stricter = || ShareConfig { read_only: true, encrypt_required: true, ..fixture.data() };
    for shares in [
        vec![stricter(), ShareConfig::new("no", "/nowhere/at")],
        vec![stricter(), ShareConfig::new("DATA", fixture.dir.path())],
    ] {
        let reloading = fixture.running.reload(only_other(), shares);
        fixture.runtime.block_on(reloading).unwrap_err();
    }
    assert_eq!(wire.write(id, b"after!"), NtStatus::SUCCESS);
    assert_eq!(fixture.client(1).open("f", |_| {}).status, NtStatus::SUCCESS);
}

#[test]
fn a_share_of_another_directory_stays_and_is_named() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let id = written(&mut wire, "f");
    let elsewhere = tempfile::tempdir().unwrap();
    let shares = vec![ShareConfig::new("data", elsewhere.path())];
    let unchanged = vec!["data".to_owned()];
    let expected = Reloaded { unchanged, ..Reloaded::default() };
    assert_eq!(fixture.reload(both(), shares), expected);
    assert_eq!(wire.write(id, b"after!"), NtStatus::SUCCESS);
}

#[test]
fn a_durable_open_of_a_removed_account_is_closed() {
    let fixture = Fixture::start();
    let (mut gone, mut stays) = (fixture.client(1), fixture.other());
    let opened = gone.open("f", |request| {
        request.oplock_level = OplockLevel::BATCH;
        request.share_access = smb::create::ShareAccess::empty();
        request.contexts.push(CreateRequestContext::Durable);
    });
    assert_eq!(opened.status, NtStatus::SUCCESS);
    gone.stream.shutdown(Shutdown::Both).unwrap();
    while fixture.running.status().orphans == 0 {
        std::thread::yield_now();
    }
    fixture.reload(only_other(), vec![fixture.data()]);
    while fixture.running.status().orphans > 0 {
        std::thread::yield_now();
    }
    assert_eq!(stays.open("f", |_| {}).status, NtStatus::SUCCESS);
}

#[test]
fn a_durable_open_does_not_outlive_the_session_of_a_removed_account() {
    let fixture = Fixture::start();
    let (mut gone, mut stays) = (fixture.client(1), fixture.other());
    gone.open("f", |request| {
        request.oplock_level = OplockLevel::BATCH;
        request.share_access = smb::create::ShareAccess::empty();
        request.contexts.push(CreateRequestContext::Durable);
    });
    fixture.reload(only_other(), vec![fixture.data()]);
    assert_eq!(fixture.running.status().orphans, 0);
    assert_eq!(stays.open("f", |_| {}).status, NtStatus::SUCCESS);
}

fn encrypted(fixture: &Fixture, encrypt_required: bool) -> Vec<ShareConfig> {
    vec![ShareConfig { encrypt_required, ..fixture.data() }]
}

/// What comes of the wish for push mode.
fn push(wire: &mut Wire) -> PushResponse {
    let opened = wire.open("f", |request| {
        request.oplock_level = OplockLevel::LEASE;
        let version = LeaseVersion::V2 { parent: None, epoch: 0 };
        let state = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
        let lease = Lease { key: LeaseKey([3; 16]), state, break_in_progress: false, version };
        request.contexts.push(CreateRequestContext::Lease(lease));
        request.contexts.push(CreateRequestContext::Push(PushRequest {
            rights: Rights::READ | Rights::WRITE,
            durability: Durability::ANY,
            accept_emulated: true,
            regions_max: 1,
        }));
    });
    assert_eq!(opened.status, NtStatus::SUCCESS);
    let found = opened.response().contexts.iter().find_map(|context| match context {
        CreateResponseContext::Push(push) => Some(push.clone()),
        _ => None,
    });
    assert_eq!(wire.close(opened.id), NtStatus::SUCCESS);
    found.unwrap()
}

#[test]
fn a_tree_that_was_entered_encrypted_gets_no_push_while_encryption_is_off() {
    let fixture = Fixture::start_with(|config| {
        config.rdma_listen = Some("127.0.0.1:0".parse().unwrap());
        config.shares[0].encrypt_required = true;
    });
    let mut wire = fixture.dial();
    wire.cipher = Some(Cipher::Aes128Gcm);
    wire.negotiate(1);
    wire.log_on();
    assert_eq!(wire.enter("data"), NtStatus::SUCCESS);
    let is_refused = |answer| matches!(answer, PushResponse::Refused(why) if why.reason == Refusal::ENCRYPTION_REQUIRED);
    assert!(is_refused(push(&mut wire)));
    assert_eq!(fixture.reload(both(), encrypted(&fixture, false)).sessions_ended, 0);
    assert!(is_refused(push(&mut wire)), "it would outlive the next change");
    wire.in_clear = true;
    assert_eq!(wire.open("f", |_| {}).status, NtStatus::ACCESS_DENIED);
    wire.in_clear = false;
    assert_eq!(fixture.reload(both(), encrypted(&fixture, true)).sessions_ended, 0);
    written(&mut wire, "g");
    fixture.reload(both(), encrypted(&fixture, false));
    let mut clear = fixture.client(1);
    assert!(matches!(push(&mut clear), PushResponse::Granted(_)));
    assert_eq!(fixture.reload(both(), encrypted(&fixture, true)).sessions_ended, 1);
}
