//! Calls whose callers stop waiting, and servers that make them wait.

use smb::create::{CreateAction, CreateResponse, OplockLevel};
use smb::info::FileAttributes;
use smb::{CloseRequest, FileId};

use super::super::Leftover;
use super::*;

async fn next_request(server: &mut Server) -> Header {
    let pdu = server.requests.recv().await.unwrap();
    Header::parse(&pdu).unwrap()
}

fn reply(server: &Server, request: &Header, credits: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let mut header = request.response(NtStatus::SUCCESS);
    header.credits = credits;
    server.say(true, header, body);
}

#[tokio::test]
async fn a_call_that_needs_more_credits_than_the_server_grants_fails() {
    let (connection, session, mut server) = connected(PATIENCE, false);
    negotiated(&connection, &mut server).await;
    let request = Request { payload: 1 << 20, ..Request::new(Command::READ).session(&session) };
    let serving = async {
        // One credit for one: the connection never owns sixteen.
        loop {
            let echo = next_request(&mut server).await;
            assert_eq!(echo.command, Command::ECHO);
            reply(&server, &echo, 1, |out| Empty.emit(out));
        }
    };
    let call = connection.exchange(request, |out| Empty.emit(out));
    let ended = tokio::select! { ended = call => ended, () = serving => unreachable!() };
    assert_eq!(ended.unwrap_err(), ConnectionError::PeerFewCredits { charge: 16 });
    // The connection goes on.
    let pending = ask(&connection, &session).await;
    let flush = next_request(&mut server).await;
    reply(&server, &flush, 1, |out| Empty.emit(out));
    pending.await.unwrap().success().unwrap();
}

#[tokio::test]
async fn a_call_asks_for_the_credits_that_it_lacks() {
    let (connection, session, mut server) = connected(PATIENCE, false);
    negotiated(&connection, &mut server).await;
    let request = Request { payload: 1 << 20, ..Request::new(Command::READ).session(&session) };
    let serving = async {
        let echo = next_request(&mut server).await;
        assert_eq!((echo.command, echo.credits > 16), (Command::ECHO, true));
        reply(&server, &echo, 20, |out| Empty.emit(out));
        let read = next_request(&mut server).await;
        assert_eq!((read.command, read.credit_charge), (Command::READ, 16));
        reply(&server, &read, 16, |out| Empty.emit(out));
    };
    let (answer, ()) = tokio::join!(connection.exchange(request, |out| Empty.emit(out)), serving);
    answer.unwrap().success().unwrap();
}

/// Agrees on 2.1 with large requests, and leaves the client one credit.
async fn negotiated(connection: &Connection, server: &mut Server) {
    let options = ConnectOptions::default();
    let serving = async {
        let request = next_request(server).await;
        let mut header = request.response(NtStatus::SUCCESS);
        header.credits = 1;
        let mut answer = hello(Dialect::SMB_2_1);
        answer.capabilities = Capabilities::LARGE_MTU;
        server.say(false, header, |out| answer.emit(out));
    };
    let (agreed, ()) = tokio::join!(super::super::negotiate(connection, &options, "host"), serving);
    agreed.unwrap();
}

#[tokio::test]
async fn a_server_that_pends_for_ever_outlives_no_call() {
    let silence = Duration::from_millis(20);
    let patience = Patience { silence, call: Duration::from_millis(100) };
    let as_usual = |keys| SessionSecurity::new(SESSION, keys, true, false);
    let (connection, session, mut server) = connected_for(patience, as_usual);
    let request = Request::new(Command::IOCTL).session(&session);
    let pending = connection.submit(request, |out| Empty.emit(out)).await.unwrap();
    let ioctl = next_request(&mut server).await;
    let mut interim = ioctl.response(NtStatus::PENDING);
    (interim.route, interim.credits) = (Route::Async(AsyncId(1)), 4);
    server.say(false, interim, |out| ErrorResponse::NONE.emit(out));
    // Each ECHO is answered, so the server is not silent.
    let serving = async {
        loop {
            let request = next_request(&mut server).await;
            match request.command {
                Command::ECHO => reply(&server, &request, 1, |out| Empty.emit(out)),
                Command::CANCEL => assert_eq!(request.message_id, ioctl.message_id),
                other => panic!("{other}"),
            }
        }
    };
    let ended = tokio::select! { ended = pending => ended, () = serving => unreachable!() };
    assert_eq!(ended.unwrap_err(), ConnectionError::PeerLate(ioctl.message_id));
}

#[tokio::test]
async fn a_file_whose_open_was_given_up_is_closed() {
    for answer_comes_first in [false, true] {
        let (connection, session, mut server) = connected(PATIENCE, false);
        let request = Request::new(Command::CREATE).session(&session);
        let pending = connection.submit(request, |out| Empty.emit(out)).await.unwrap();
        let pending = pending.leaving(Leftover::File { tree: TreeId(5), encrypt: false });
        let create = next_request(&mut server).await;
        let file_id = FileId { persistent: 1, volatile: 2 };
        let answer = |server: &Server| reply(server, &create, 2, |out| opened(file_id).emit(out));
        if answer_comes_first {
            answer(&server);
            while !connection.shared.lock_open().is_empty() {
                tokio::task::yield_now().await;
            }
            drop(pending);
        } else {
            drop(pending);
            assert_eq!(next_request(&mut server).await.command, Command::CANCEL);
            answer(&server);
        }
        let pdu = server.requests.recv().await.unwrap();
        let header = Header::parse(&pdu).unwrap();
        assert_eq!((header.command, header.tree_id()), (Command::CLOSE, Some(TreeId(5))));
        assert_eq!(CloseRequest::parse(&pdu).unwrap().file_id, file_id);
    }
}

#[tokio::test]
async fn a_file_whose_open_was_answered_too_late_is_closed() {
    let silence = Duration::from_millis(20);
    let patience = Patience { silence, call: Duration::from_millis(100) };
    let as_usual = |keys| SessionSecurity::new(SESSION, keys, true, false);
    let (connection, session, mut server) = connected_for(patience, as_usual);
    let request = Request::new(Command::CREATE).session(&session);
    let pending = connection.submit(request, |out| Empty.emit(out)).await.unwrap();
    let pending = pending.leaving(Leftover::File { tree: TreeId(5), encrypt: false });
    let create = next_request(&mut server).await;
    let mut interim = create.response(NtStatus::PENDING);
    (interim.route, interim.credits) = (Route::Async(AsyncId(1)), 4);
    server.say(false, interim, |out| ErrorResponse::NONE.emit(out));
    let answers_echoes = async {
        loop {
            let request = next_request(&mut server).await;
            if request.command == Command::ECHO {
                reply(&server, &request, 1, |out| Empty.emit(out));
            }
        }
    };
    let ended = tokio::select! { ended = pending => ended, () = answers_echoes => unreachable!() };
    assert_eq!(ended.unwrap_err(), ConnectionError::PeerLate(create.message_id));
    let file_id = FileId { persistent: 1, volatile: 2 };
    let mut late = create.response(NtStatus::SUCCESS);
    (late.route, late.credits) = (Route::Async(AsyncId(1)), 1);
    server.say(true, late, |out| opened(file_id).emit(out));
    loop {
        let pdu = server.requests.recv().await.expect("the client closes the file");
        let request = Header::parse(&pdu).unwrap();
        match request.command {
            Command::ECHO => reply(&server, &request, 1, |out| Empty.emit(out)),
            Command::CANCEL => {}
            _ => {
                assert_eq!(request.command, Command::CLOSE);
                assert_eq!(CloseRequest::parse(&pdu).unwrap().file_id, file_id);
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_file_that_is_dropped_without_a_credit_is_closed_later() {
    let (connection, session, mut server) = connected(PATIENCE, false);
    let pending = ask(&connection, &session).await;
    let file_id = FileId { persistent: 1, volatile: 2 };
    connection.close_file(SESSION, TreeId(5), false, file_id);
    let flush = next_request(&mut server).await;
    reply(&server, &flush, 1, |out| Empty.emit(out));
    pending.await.unwrap().success().unwrap();
    assert_eq!(next_request(&mut server).await.command, Command::CLOSE);
}

fn opened(file_id: FileId) -> CreateResponse<'static> {
    CreateResponse {
        oplock_level: OplockLevel::NONE,
        reparse_point: false,
        action: CreateAction::OPENED,
        creation_time: FileTime(0),
        last_access_time: FileTime(0),
        last_write_time: FileTime(0),
        change_time: FileTime(0),
        allocation_size: 0,
        end_of_file: 0,
        attributes: FileAttributes::NORMAL,
        file_id,
        contexts: Vec::new(),
    }
}
