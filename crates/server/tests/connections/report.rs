//! What an observer sees of a server with clients.

use server::report::{Caching, Durability, Sealing};
use smb::create::{
    AccessMask, CreateDisposition, CreateRequestContext, Lease, LeaseKey, LeaseState, LeaseVersion,
    OplockLevel, ShareAccess,
};
use smb::{Command, Empty, NtStatus};

use crate::support::Fixture;

fn lease(key: u8) -> CreateRequestContext<'static> {
    CreateRequestContext::Lease(Lease {
        key: LeaseKey([key; 16]),
        state: LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE,
        break_in_progress: false,
        version: LeaseVersion::V2 { parent: None, epoch: 0 },
    })
}

#[test]
fn sessions_trees_opens_and_leases_are_shown_as_they_are() {
    let fixture = Fixture::start();
    let observer = fixture.running.observer();
    let mut first = fixture.client(1);
    let opened = first.open("dir.txt", |request| {
        request.oplock_level = OplockLevel::LEASE;
        request.contexts.push(lease(7));
    });
    assert_eq!(opened.status, NtStatus::SUCCESS);
    let mut second = fixture.client(2);
    second.enter("IPC$");
    let report = observer.report(10).unwrap();

    assert_eq!(report.counters, fixture.running.status());
    assert_eq!(report.sessions.total, 2);
    let session = &report.sessions.rows[0];
    assert_eq!((session.session, session.user.as_deref()), (1, Some("user")));
    assert_eq!((session.dialect.as_str(), session.signed), ("3.1.1", true));
    assert_eq!(session.sealed, Sealing::No, "this client offers no cipher");
    let client = first.stream.local_addr().unwrap().to_string();
    assert_eq!((session.channels.len(), &session.channels[0].client), (1, &client));
    assert_eq!(session.channels[0].transport, "tcp");
    let trees: Vec<_> = report.trees.rows.iter().collect();
    let trees = trees.iter().map(|tree| (tree.session, tree.share.as_str(), tree.opens));
    assert_eq!(trees.collect::<Vec<_>>(), [(1, "data", 1), (2, "data", 0), (2, "IPC$", 0)]);

    assert_eq!((report.opens.total, report.opens.rows.len()), (1, 1));
    let open = &report.opens.rows[0];
    assert_eq!((open.session, open.share.as_str()), (Some(1), "data"));
    assert_eq!((open.path.as_str(), open.uses.as_str()), ("dir.txt", "rwd"));
    assert_eq!((open.shares.as_str(), open.durable), ("rwd", None));
    assert!(AccessMask::from_bits_retain(open.access).contains(AccessMask::WRITE_DATA));
    let rwh = Caching { by: "lease".to_owned(), state: "RWH".to_owned() };
    assert_eq!(open.caching, Some(rwh));
    assert_eq!(report.leases.rows[0].key.as_deref(), Some("07".repeat(16).as_str()));

    // Another client's open takes W and waits for an answer.
    second.tree = 1;
    second.start_open("dir.txt", |request| {
        request.desired_access = AccessMask::FILE_GENERIC_READ;
        request.share_access = ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE;
        request.disposition = CreateDisposition::OPEN;
    });
    first.notification();
    let report = observer.report(10).unwrap();
    let lease = &report.leases.rows[0];
    assert_eq!((lease.path.as_str(), lease.state.as_str(), lease.opens), ("dir.txt", "RWH", 1));
    assert_eq!(lease.breaking_to.as_deref(), Some("RH"));
    assert!(lease.breaking_ms.is_some_and(|left| left > 0));
    assert_eq!(report.sessions.rows[1].channels[0].pending, 1);
}

#[test]
fn an_open_that_waits_for_its_client_is_nobodys_session_s() {
    let fixture = Fixture::start();
    let observer = fixture.running.observer();
    let mut wire = fixture.client(1);
    let opened = wire.open("kept", |request| {
        request.oplock_level = OplockLevel::BATCH;
        request.contexts.push(CreateRequestContext::Durable);
    });
    assert_eq!(opened.status, NtStatus::SUCCESS);
    let row = &observer.report(10).unwrap().opens.rows[0];
    assert_eq!((row.session, row.durable), (Some(1), Some(Durability::Durable)));
    assert_eq!(row.caching, Some(Caching { by: "oplock".into(), state: "RWH".into() }));
    drop(wire);
    let report = loop {
        let report = observer.report(10).unwrap();
        if report.counters.orphans == 1 && report.sessions.total == 0 {
            break report;
        }
        std::thread::yield_now();
    };
    let row = &report.opens.rows[0];
    assert_eq!((row.session, row.user.as_deref(), row.path.as_str()), (None, Some("user"), "kept"));
}

#[test]
fn rows_are_bounded_and_counted_and_nobody_is_kept_alive() {
    let fixture = Fixture::start();
    let observer = fixture.running.observer();
    let mut wire = fixture.client(1);
    for n in 0..5 {
        assert_eq!(wire.open(&format!("f{n}"), |_| {}).status, NtStatus::SUCCESS);
    }
    let report = observer.report(3).unwrap();
    assert_eq!((report.opens.total, report.opens.rows.len()), (5, 3));
    assert_eq!(observer.report(0).unwrap().opens.rows.len(), 0);
    let (header, _) = wire.ask(Command::TREE_DISCONNECT, |out| Empty.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
    assert_eq!(observer.report(3).unwrap().trees.total, 0);
    let Fixture { runtime, running, dir } = fixture;
    drop(wire);
    runtime.block_on(running.shutdown());
    drop(runtime);
    drop(dir);
    assert!(observer.report(3).is_none());
}
