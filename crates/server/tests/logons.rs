//! Passwords that are guessed, over real sockets from several addresses.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

mod support;

use smb::NtStatus;
use support::{Fixture, Wire};
use tokio::net::TcpSocket;

fn log_on(fixture: &Fixture, from: &str, user: &str, password: &str) -> NtStatus {
    let server = fixture.running.tcp_address();
    let stream = fixture.runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        socket.connect(server).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    let mut wire = Wire::over(stream);
    wire.negotiate(1);
    wire.try_log_on_as(user, password)
}

#[test]
fn who_guesses_is_told_to_wait_and_keeps_nobody_else_out() {
    let fixture = Fixture::start();
    for user in ["user", "nobody"] {
        for _ in 0..10 {
            assert_eq!(log_on(&fixture, "127.0.0.2", user, "wrong"), NtStatus::LOGON_FAILURE);
        }
        // Whether there is such a user does not show.
        assert_eq!(log_on(&fixture, "127.0.0.2", user, "wrong"), NtStatus::ACCOUNT_LOCKED_OUT);
    }
    // The eleventh is not looked at: being right does not help it, and tells it nothing.
    assert_eq!(log_on(&fixture, "127.0.0.2", "user", "secret"), NtStatus::ACCOUNT_LOCKED_OUT);
    assert_eq!(log_on(&fixture, "127.0.0.3", "user", "secret"), NtStatus::SUCCESS);
    assert_eq!(fixture.running.status().logons_failed, 23);
}

#[test]
fn a_user_hunted_from_everywhere_still_logs_on_from_anywhere() {
    let fixture = Fixture::start();
    for last in 2..12 {
        for _ in 0..10 {
            assert!(log_on(&fixture, &format!("127.0.0.{last}"), "user", "wrong").is_error());
        }
    }
    assert_eq!(log_on(&fixture, "127.0.1.1", "user", "wrong"), NtStatus::LOGON_FAILURE);
    assert_eq!(log_on(&fixture, "127.0.1.1", "user", "secret"), NtStatus::SUCCESS);
}
