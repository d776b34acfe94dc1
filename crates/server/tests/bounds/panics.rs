//! A bug that panics costs the connection that met it, and leaves nothing of it behind.

use std::sync::Arc;
use std::time::{Duration, Instant};

use server::Users;
use smb::NtStatus;
use smb::auth::{Credentials, UserList, UserStore};
use smb::create::ShareAccess;

use crate::support::Fixture;

/// A list of users with a bug.
#[derive(Debug)]
struct Cursed(UserList);

impl UserStore for Cursed {
    fn lookup(&self, user: &str, domain: &str) -> Option<Credentials> {
        assert_ne!(user, "cursed", "a bug of the list's");
        self.0.lookup(user, domain)
    }
}

#[test]
fn a_connection_whose_task_panics_leaves_no_session_no_open_and_no_place() {
    let fixture = Fixture::start_with(|config| {
        let mut list = UserList::new();
        list.add_password("user", "secret");
        config.users = Users::from_store(Arc::new(Cursed(list)));
    });
    let mut wire = fixture.client(1);
    let opened = wire.open("held", |request| request.share_access = ShareAccess::empty());
    assert_eq!(opened.status, NtStatus::SUCCESS);
    let status = fixture.running.status();
    assert_eq!((status.connections, status.sessions, status.opens), (1, 1, 1));
    let pdu = wire.leg(1, "cursed", "whatever").unwrap();
    wire.send_frame(&pdu);
    assert!(wire.is_closed());
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let status = fixture.running.status();
        let held = (status.connections, status.sessions, status.opens, status.files);
        if held == (0, 0, 0, 0) {
            assert_eq!(status.panics, 1);
            break;
        }
        assert!(Instant::now() < deadline, "left over: {status:?}");
        std::thread::yield_now();
    }
    let mut next = fixture.client(2);
    assert_eq!(next.open("held", |_| {}).status, NtStatus::SUCCESS);
}
