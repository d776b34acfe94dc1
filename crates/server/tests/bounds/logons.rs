//! Passwords that are guessed, over real sockets from several addresses.

use smb::NtStatus;
use tokio::net::TcpSocket;

use crate::support::{Fixture, Wire};

fn dial(fixture: &Fixture, from: &str) -> Wire {
    let server = fixture.running.tcp_address();
    let stream = fixture.runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        socket.connect(server).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    let mut wire = Wire::over(stream);
    wire.negotiate(1);
    wire
}

fn log_on(fixture: &Fixture, from: &str, user: &str, password: &str) -> NtStatus {
    dial(fixture, from).try_log_on_as(user, password)
}

#[test]
fn who_guesses_is_answered_later_alike_whatever_is_right_and_keeps_nobody_else_out() {
    let fixture = Fixture::start();
    for user in ["user", "nobody"] {
        for _ in 0..10 {
            let mut wire = dial(&fixture, "127.0.0.2");
            assert_eq!(wire.try_password(user, "wrong").1, Some(NtStatus::LOGON_FAILURE));
        }
    }
    let mut started = Vec::new();
    // The third connection ends before it is answered.
    for (user, password) in
        [("user", "wrong"), ("nobody", "x"), ("user", "secret"), ("user", "secret")]
    {
        let mut wire = dial(&fixture, "127.0.0.2");
        let (id, status) = wire.try_password(user, password);
        assert_eq!(status, None, "{user} {password}");
        // What may be right is no session before its time.
        assert_eq!(wire.enter("data"), NtStatus::USER_SESSION_DELETED);
        started.push((wire, id));
    }
    drop(started.remove(2));
    assert_eq!(log_on(&fixture, "127.0.0.3", "user", "secret"), NtStatus::SUCCESS);
    let statuses = started.iter_mut().map(|(wire, id)| wire.answer_to(*id).0.status);
    let (wrong, right) = (NtStatus::LOGON_FAILURE, NtStatus::SUCCESS);
    assert_eq!(statuses.collect::<Vec<_>>(), [wrong, wrong, right]);
    // Who knew it is no guesser any more.
    let mut wire = dial(&fixture, "127.0.0.2");
    assert_eq!(wire.try_password("user", "wrong").1, Some(NtStatus::LOGON_FAILURE));
    drop((wire, started));
    while fixture.running.status().sessions > 0 {
        std::thread::yield_now();
    }
    assert_eq!(fixture.running.status().logons_failed, 23);
}

#[test]
fn of_guesses_side_by_side_no_more_wait_than_clients_have_patience_for() {
    let fixture = Fixture::start();
    let mut wires = Vec::new();
    let answers: Vec<_> = (0..40)
        .map(|_| {
            let mut wire = dial(&fixture, "127.0.0.2");
            let (_, status) = wire.try_password("user", "wrong");
            wires.push(wire);
            status
        })
        .collect();
    assert_eq!(answers[..10], [Some(NtStatus::LOGON_FAILURE); 10]);
    assert_eq!(answers[10..18], [None; 8]);
    // Neither the right one is looked at.
    assert!(answers[18..].contains(&Some(NtStatus::ACCOUNT_LOCKED_OUT)), "{answers:?}");
    assert_eq!(log_on(&fixture, "127.0.0.3", "user", "secret"), NtStatus::SUCCESS);
}

#[test]
fn a_user_hunted_from_everywhere_still_logs_on_from_anywhere() {
    let fixture = Fixture::start();
    for last in 2..12 {
        for _ in 0..10 {
            // Later ones are held back, and nobody waits for them.
            let (_, status) =
                dial(&fixture, &format!("127.0.0.{last}")).try_password("user", "wrong");
            assert!(status.is_none_or(NtStatus::is_error));
        }
    }
    assert_eq!(log_on(&fixture, "127.0.1.1", "user", "wrong"), NtStatus::LOGON_FAILURE);
    assert_eq!(log_on(&fixture, "127.0.1.1", "user", "secret"), NtStatus::SUCCESS);
}
