//! Files and regions of a client that come back at another server of their share, after SIGKILL of the first.
#![cfg(test)]

mod support;

use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use client::blocking::{Client, FailoverClient};
use client::{ClientError, ConnectOptions, OpenOptions, Path as Way, RegionSettings, SmbUrl};
use smb::Guid;
use smb::create::ShareAccess;
use smb::push::{Durability, PushRequest, Rights};
use support::{Served, program, until};

/// Two servers that serve one directory after each other.
struct Pair {
    directory: tempfile::TempDir,
    first: u16,
    second: u16,
}

impl Pair {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().join("share");
        std::fs::create_dir(&top).unwrap();
        let config = directory.path().join("landfast.toml");
        let opens = directory.path().join("opens");
        let text = format!(
            "emulate_persistence = true\ncontrol = \"off\"\nrdma_listen = \"127.0.0.1:0\"\n\
             server_guid = \"0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0\"\n\
             [[share]]\nname = \"data\"\npath = {top:?}\npersistent_opens = {opens:?}\n\
             [[user]]\nname = \"alice\"\npassword = \"secret\"\n"
        );
        std::fs::write(&config, text).unwrap();
        std::fs::set_permissions(&config, Permissions::from_mode(0o600)).unwrap();
        Self { directory, first: free_port(), second: free_port() }
    }

    fn serve(&self, port: u16) -> Served {
        let config = self.directory.path().join("landfast.toml");
        let listen = format!("127.0.0.1:{port}");
        Served::start(program(&[
            "serve",
            "--config",
            config.to_str().unwrap(),
            "--listen",
            &listen,
        ]))
    }

    fn url(&self) -> SmbUrl {
        let Self { first, second, .. } = self;
        format!("smb://alice:secret@127.0.0.1:{first},127.0.0.1:{second}/data").parse().unwrap()
    }

    fn on_disk(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.directory.path().join("share").join(name)).unwrap()
    }

    fn file(&self, name: &str, len: u64) {
        let path = self.directory.path().join("share").join(Path::new(name));
        std::fs::File::create(path).unwrap().set_len(len).unwrap();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn alone() -> OpenOptions {
    OpenOptions { share: ShareAccess::empty(), ..OpenOptions::read_write() }
}

fn pushed() -> OpenOptions {
    alone().with_push(PushRequest {
        rights: Rights::READ | Rights::WRITE | Rights::FLUSH,
        durability: Durability::ANY,
        accept_emulated: true,
        regions_max: 1,
    })
}

#[test]
fn a_file_comes_back_at_the_server_that_serves_its_share_next() {
    let pair = Pair::new();
    let mut server = pair.serve(pair.first);
    let client =
        FailoverClient::connect(&pair.url(), &ConnectOptions::default(), PATIENCE).unwrap();
    let file = client.open("f", &alone()).unwrap();
    file.write_at(0, b"before").unwrap();
    for (lost, (port, bytes)) in
        [(pair.second, b"after "), (pair.first, b"again ")].into_iter().enumerate()
    {
        assert_eq!(file.sessions_lost(), lost as u64);
        drop(server);
        server = pair.serve(port);
        file.write_at(6 * (1 + lost as u64), bytes).unwrap();
        let mut out = [0; 6];
        assert_eq!(file.read_at(0, &mut out).unwrap(), 6);
        assert_eq!(out, *b"before");
        // Nobody else has got the file meanwhile.
        let other = Client::connect(&pair.url(), &ConnectOptions::default()).unwrap();
        assert_eq!(other.inner().negotiated().server_guid, SERVER, "to clients it is one server");
        other.open("f", &OpenOptions::read()).unwrap_err();
    }
    drop(server);
    let _server = pair.serve(pair.second);
    file.set_len(17).unwrap();
    assert_eq!(file.stat().unwrap().len, 17);
    file.close().unwrap();
    let other = Client::connect(&pair.url(), &ConnectOptions::default()).unwrap();
    other.open("f", &OpenOptions::read()).unwrap().close().unwrap();
    assert_eq!(pair.on_disk("f"), *b"beforeafter again");
}

#[test]
fn a_region_comes_back_with_what_it_had_not_committed() {
    let pair = Pair::new();
    pair.file("r", 65_536);
    let server = pair.serve(pair.first);
    let client =
        FailoverClient::connect(&pair.url(), &ConnectOptions::default(), PATIENCE).unwrap();
    let mut region = client.map("r", &pushed(), 0..65_536, RegionSettings::default()).unwrap();
    assert!(matches!(region.path(), Way::Push { .. }), "{:?}", region.path());
    region.write(0, b"committed").unwrap();
    region.commit(0, 9).unwrap();
    region.write(100, b"placed, not committed").unwrap();
    drop(server);
    let second = pair.serve(pair.second);
    region.write(200, b"written while the server was away").unwrap();
    region.commit(0, 65_536).unwrap();
    let mut out = [0; 33];
    region.read(200, &mut out).unwrap();
    assert_eq!(out, *b"written while the server was away");
    // By push mode again, sooner or later.
    until("the region is mapped again", || {
        region.write(300, b"by push").unwrap();
        region.commit(300, 7).unwrap();
        matches!(region.path(), Way::Push { .. })
    });
    region.write(400, b"last").unwrap();
    region.commit(400, 4).unwrap();
    drop(second);
    let _third = pair.serve(pair.first);
    region.commit(0, 65_536).unwrap();
    let bytes = pair.on_disk("r");
    assert_eq!(bytes[..9], *b"committed");
    assert_eq!(bytes[100..121], *b"placed, not committed");
    assert_eq!(bytes[200..233], *b"written while the server was away");
    assert_eq!(bytes[300..307], *b"by push");
    assert_eq!(bytes[400..404], *b"last");
}

#[test]
fn a_client_whose_share_nobody_serves_any_more_says_so_when_its_patience_is_over() {
    let pair = Pair::new();
    let server = pair.serve(pair.first);
    let options = ConnectOptions::default();
    let client = FailoverClient::connect(&pair.url(), &options, Duration::ZERO).unwrap();
    let file = client.open("f", &alone()).unwrap();
    drop(server);
    assert!(matches!(file.write_at(0, b"x"), Err(ClientError::Connection(_))));
}

#[test]
fn a_file_whose_servers_were_away_for_too_long_is_closed_once_they_are_back() {
    let pair = Pair::new();
    let server = pair.serve(pair.first);
    let (options, patience) = (ConnectOptions::default(), Duration::from_secs(3));
    let client = FailoverClient::connect(&pair.url(), &options, patience).unwrap();
    let file = client.open("f", &alone()).unwrap();
    drop(server);
    file.write_at(0, b"x").unwrap_err();
    let _server = pair.serve(pair.first);
    file.close().unwrap();
    let other = Client::connect(&pair.url(), &options).unwrap();
    other.open("f", &OpenOptions::read()).unwrap();
}

#[test]
fn a_share_without_a_log_of_opens_gives_no_file_that_comes_back() {
    let share = tempfile::tempdir().unwrap();
    let server = Served::start(program(&[
        "serve",
        share.path().to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--rdma-listen",
        "127.0.0.1:0",
        "--control",
        "off",
        "--user",
        "alice:secret",
    ]));
    let url = format!("smb://alice:secret@{}/data", server.smb()).parse().unwrap();
    let client = FailoverClient::connect(&url, &ConnectOptions::default(), PATIENCE).unwrap();
    assert!(matches!(client.open("f", &alone()), Err(ClientError::PeerNotPersistent)));
}

/// As the settings of both servers have it.
const SERVER: Guid = Guid(0x0f1e_2d3c_4b5a_6978_8796_a5b4_c3d2_e1f0_u128.to_be_bytes());
const PATIENCE: Duration = Duration::from_secs(30);

/// Passes frames on to a server, and ends the first connection on which a CREATE was sent once the server has answered it.
fn lose_answer_of_first_create(listener: TcpListener, server: u16) {
    let frame = |stream: &mut TcpStream| -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; 4];
        stream.read_exact(&mut bytes)?;
        let len = u32::from_be_bytes([0, bytes[1], bytes[2], bytes[3]]);
        bytes.resize(4 + usize::try_from(len).unwrap(), 0);
        stream.read_exact(&mut bytes[4..])?;
        Ok(bytes)
    };
    let mut has_lost = false;
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) =
                (client.unwrap(), TcpStream::connect(("127.0.0.1", server)).unwrap());
            if has_lost {
                let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                std::thread::spawn(move || std::io::copy(&mut client, &mut server));
                continue;
            }
            // One request after the other, each with its answer.
            while let Ok(request) = frame(&mut client) {
                server.write_all(&request).unwrap();
                let answer = frame(&mut server).unwrap();
                has_lost = request.get(4 + 12..4 + 14) == Some(&CREATE);
                if has_lost {
                    break;
                }
                client.write_all(&answer).unwrap();
            }
        }
    });
}

#[test]
fn a_file_is_opened_by_the_copy_of_a_request_whose_answer_was_lost() {
    let pair = Pair::new();
    let _server = pair.serve(pair.second);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let way = listener.local_addr().unwrap().port();
    lose_answer_of_first_create(listener, pair.second);
    let url: SmbUrl = format!("smb://alice:secret@127.0.0.1:{way}/data").parse().unwrap();
    let options = ConnectOptions::default();
    let client = FailoverClient::connect(&url, &options, Duration::from_secs(30)).unwrap();
    let file = client.open("f", &alone()).unwrap();
    file.write_at(0, b"once").unwrap();
    file.close().unwrap();
    // The request that was carried out first has left no handle that keeps others out.
    let other = Client::connect(&pair.url(), &options).unwrap();
    other.open("f", &alone()).unwrap();
    assert_eq!(pair.on_disk("f"), b"once");
}

/// The command of a CREATE in its header.
const CREATE: [u8; 2] = [5, 0];
