//! A `put` whose connection is cut after any of its requests: the file is the old one or the new one, and nothing
//! else is left in the share, except after one request, after which the part stays until the next put of that
//! name.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

mod support;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use support::{Fixture, names, said, until};

/// A relay between one client and the server that cuts the connection after the frame of this number: the server
/// gets that frame, and the client gets no answer.
struct Cutter {
    address: SocketAddr,
    cutting: std::thread::JoinHandle<bool>,
}

impl Cutter {
    fn behind(frames: usize, server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let cutting = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut served = TcpStream::connect(server).unwrap();
            let (mut answers, mut back) =
                (served.try_clone().unwrap(), client.try_clone().unwrap());
            let answering = std::thread::spawn(move || {
                let _ = io::copy(&mut answers, &mut back);
                let _ = back.shutdown(Shutdown::Both);
            });
            let was_cut = (1..).find_map(|number| match frame(&mut client) {
                Ok(_) if number > frames => Some(true),
                Ok(frame) if number == frames => {
                    // No further answer reaches the client.
                    let _ = client.shutdown(Shutdown::Both);
                    served.write_all(&frame).unwrap();
                    Some(true)
                }
                Ok(frame) => served.write_all(&frame).err().map(|_| false),
                Err(_) => Some(false),
            });
            let _ = served.shutdown(Shutdown::Both);
            answering.join().unwrap();
            was_cut.unwrap()
        });
        Self { address, cutting }
    }
}

fn frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix)?;
    let len = u32::from_be_bytes(prefix) as usize;
    let mut frame = prefix.to_vec();
    frame.resize(4 + len, 0);
    stream.read_exact(&mut frame[4..])?;
    Ok(frame)
}

fn put_is_whole_or_nothing(old: Option<&str>) {
    // The frames after which a part stays, with the state of the file.
    let mut leave_a_part = Vec::new();
    for frames in 1.. {
        let fixture = Fixture::start();
        if let Some(old) = old {
            std::fs::write(fixture.remote("f"), old).unwrap();
        }
        std::fs::write(fixture.local("new"), "new").unwrap();
        let cutter = Cutter::behind(frames, fixture.running.tcp_address());
        let url = format!("smb://alice:secret@{}/data/f", cutter.address);
        let output = fixture.run(&["put", "new", &url]);
        let was_cut = cutter.cutting.join().unwrap();
        until("the server has closed what was open", || {
            let status = fixture.running.status();
            status.connections == 0 && status.files == 0
        });
        let there = std::fs::read_to_string(fixture.remote("f")).ok();
        if !was_cut {
            assert!(output.status.success(), "{}", said(&output));
            assert_eq!(there.as_deref(), Some("new"));
            assert!(frames > 10 && leave_a_part.len() <= 1, "{leave_a_part:?} of {frames}");
            return;
        }
        assert!(there.as_deref() == old || there.as_deref() == Some("new"), "{frames}: {there:?}");
        let mut left = names(fixture.share.path());
        left.retain(|name| name != "f");
        if let [part] = &*left {
            assert_eq!(there.as_deref(), old, "{frames}: {part} has become the file");
            assert_eq!(std::fs::read_to_string(fixture.remote(part)).unwrap(), "new");
            let again = fixture.run(&["put", "new", &fixture.url("f")]);
            assert!(again.status.success(), "{}", said(&again));
            assert_eq!(names(fixture.share.path()), ["f"], "the next put of that name removes it");
            leave_a_part.push(frames);
        } else {
            assert_eq!(left, [""; 0], "{frames}");
        }
    }
}

#[test]
fn a_put_cut_after_any_frame_leaves_the_old_or_new_file() {
    put_is_whole_or_nothing(Some("old"));
}

#[test]
fn a_cut_put_of_a_new_file_leaves_it_or_nothing() {
    put_is_whole_or_nothing(None);
}
