//! A whole server behind one connection, before and after logging on.
//!
//! Its share is a directory of its own, with a symbolic link that leads out of it to a file that
//! must stay as it is. Requests that would fill the disk are left out, and only those.

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use server::fuzzing::{Machine, Place};
use smb::compound::{CompoundWriter, walk};
use smb::create::CreateRequestContext;
use smb::crypto::{SigningAlgorithm, SigningKey};
use smb::info::{Allocation, EndOfFile, FileInfoClass};
use smb::push::MapRequest;
use smb::{
    Command, ControlCode, CreateRequest, CreateResponse, FileId, Header, HeaderFlags, IoctlRequest,
    MessageId, NtStatus, Protocol, Route, SessionId, SetInfoRequest, TreeId, framing,
};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::Input;
use crate::smb::commands;

/// Frames of somebody who has not logged on.
pub(crate) fn connection(data: &[u8]) {
    on_a_server(|stage, machine| {
        let mut input = Input::new(data);
        let mut out = Vec::new();
        while !input.is_empty() {
            let goes_on = machine.handle(&mut input.chunk().to_vec(), &mut out);
            stage.turn();
            out.extend(machine.late_answers());
            check_answers(&std::mem::take(&mut out));
            if !goes_on {
                break;
            }
        }
    });
}

/// Requests of a user: a byte for how many of them are in a frame and how they belong together,
/// then for each a byte for the command and a chunk for its body.
pub(crate) fn session(data: &[u8]) {
    on_a_server(|stage, machine| {
        let mut user = User::new(machine.log_on(&KEY));
        let mut input = Input::new(data);
        while !input.is_empty() {
            let Some(mut frame) = user.next_frame(&mut input) else { return };
            let mut out = Vec::new();
            let goes_on = machine.handle(&mut frame, &mut out);
            stage.turn();
            out.extend(machine.late_answers());
            user.remember(check_answers(&out));
            if !goes_on {
                return;
            }
        }
    });
}

/// What a user has and knows.
struct User {
    place: Place,
    key: SigningKey,
    next_id: u64,
    file: FileId,
}

impl User {
    fn new(place: Place) -> Self {
        let key = SigningKey::new(SigningAlgorithm::AesCmac, &KEY);
        Self { place, key, next_id: 0, file: FileId::RELATED }
    }

    /// The next frame, signed; `None` if it would fill the disk.
    fn next_frame(&mut self, input: &mut Input<'_>) -> Option<Vec<u8>> {
        let shape = input.byte();
        let mut frame = Vec::new();
        let mut writer = CompoundWriter::new(&mut frame);
        // The first one alone: it brings the credits for the others.
        let count = if self.next_id == 0 { 1 } else { 1 + shape % 4 };
        for index in 0..count {
            let (which, body) = (input.byte(), input.chunk());
            let mut header =
                Header::request(Command(u16::from(which % 19)), MessageId(self.next_id));
            self.next_id += 1;
            header.credits = 16;
            header.credit_charge = 1;
            header.flags |= HeaderFlags::SIGNED;
            if index > 0 && shape & 0x20 != 0 {
                header.flags |= HeaderFlags::RELATED;
            }
            header.session_id = SessionId(self.place.session);
            let tree = if shape & 0x40 == 0 { self.place.disk } else { self.place.pipes };
            header.route = Route::Sync { process_id: 0, tree_id: TreeId(tree) };
            let body = self.with_file(shape, body);
            if is_greedy(&header, &body) {
                return None;
            }
            writer.push(&header, |out| out.extend_from_slice(&body));
        }
        for range in writer.finish() {
            // A CANCEL and whatever else cannot be signed goes as it is.
            #[expect(clippy::disallowed_methods, reason = "plays a peer that breaks the rules")]
            let _ = self.key.sign_unguarded(&mut frame[range]);
        }
        Some(frame)
    }

    // All ones become the file that was opened last, where the shape says so.
    fn with_file(&self, shape: u8, body: &[u8]) -> Vec<u8> {
        let mut body = body.to_vec();
        if shape & 0x80 != 0
            && let Some(at) = body.windows(16).position(|window| window == [0xff; 16])
        {
            body[at..at + 8].copy_from_slice(&self.file.persistent.to_le_bytes());
            body[at + 8..at + 16].copy_from_slice(&self.file.volatile.to_le_bytes());
        }
        body
    }

    fn remember(&mut self, opened: Option<FileId>) {
        self.file = opened.unwrap_or(self.file);
    }
}

// Whether a request would reserve more than it brings.
fn is_greedy(header: &Header, body: &[u8]) -> bool {
    let mut pdu = Vec::new();
    header.emit(&mut pdu);
    pdu.extend_from_slice(body);
    let bytes =
        match header.command {
            Command::CREATE => CreateRequest::parse(&pdu).ok().and_then(|request| {
                request.contexts.iter().find_map(|context| match context {
                    CreateRequestContext::AllocationSize(size) => Some(*size),
                    _ => None,
                })
            }),
            Command::SET_INFO => SetInfoRequest::parse(&pdu).ok().and_then(|request| {
                match FileInfoClass(request.class) {
                    FileInfoClass::ALLOCATION => {
                        Allocation::parse(request.buffer).ok().map(|info| info.allocation_size)
                    }
                    FileInfoClass::END_OF_FILE => {
                        EndOfFile::parse(request.buffer).ok().map(|info| info.end_of_file)
                    }
                    _ => None,
                }
            }),
            Command::IOCTL => IoctlRequest::parse(&pdu).ok().and_then(|request| {
                let maps = request.code == ControlCode::MAP_REMOTE_REGION;
                let map = MapRequest::parse(request.input).ok().filter(|_| maps);
                map.map(|map| map.length)
            }),
            _ => None,
        };
    bytes.is_some_and(|bytes| bytes > 1 << 20)
}

// Every answer is one a client can read. Returns the file that was opened last.
fn check_answers(mut answers: &[u8]) -> Option<FileId> {
    let mut opened = None;
    while let Some((prefix, rest)) = answers.split_first_chunk::<4>() {
        let len = framing::frame_len(*prefix, framing::FRAME_LEN_MAX).expect("our own length");
        let (frame, rest) = rest.split_at(len);
        answers = rest;
        assert_eq!(Protocol::of(frame), Ok(Protocol::Smb2), "nobody negotiated more");
        let mut steps = walk(frame);
        while let Some(step) = steps.next() {
            let (range, header) = step.expect("we write what we walk");
            assert!(header.flags.contains(HeaderFlags::RESPONSE));
            let pdu = steps.pdu(range);
            commands::any(&header, pdu);
            if header.command == Command::CREATE && header.status == NtStatus::SUCCESS {
                opened = CreateResponse::parse(pdu).ok().map(|response| response.file_id);
            }
        }
    }
    assert!(answers.is_empty(), "whole frames");
    opened
}

/// Where servers are set up, one after the other.
struct Stage {
    runtime: Runtime,
    directory: TempDir,
}

impl Stage {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        // In memory, so that everything is answered on this thread.
        let parent = if Path::new(MEMORY).is_dir() { MEMORY.into() } else { std::env::temp_dir() };
        Self { runtime, directory: tempfile::tempdir_in(parent).expect("a directory") }
    }

    /// Lets the tasks of the server run until they wait.
    fn turn(&self) {
        self.runtime.block_on(async {
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
        });
    }

    fn prepare(&self) {
        let root = self.directory.path();
        fs::write(root.join("outside"), OUTSIDE).expect("room");
        let share = root.join("share");
        // Whatever a run made, however it named it.
        let _ = fs::remove_dir_all(&share);
        fs::create_dir_all(share.join("directory")).expect("room");
        fs::write(share.join("file"), [7; 100]).expect("room");
        std::os::unix::fs::symlink("../outside", share.join("out")).expect("room");
    }
}

fn on_a_server(run: impl FnOnce(&Stage, &mut Machine)) {
    STAGE.with_borrow(|stage| {
        stage.prepare();
        let share = stage.directory.path().join("share");
        let mut machine = Machine::new(&share, stage.runtime.handle().clone());
        run(stage, &mut machine);
        machine.end(|| stage.turn());
        let outside = fs::read(stage.directory.path().join("outside")).expect("it is there");
        assert_eq!(outside, OUTSIDE, "nothing outside the share changed");
    });
}

thread_local! {
    static STAGE: RefCell<Stage> = RefCell::new(Stage::new());
}

const KEY: [u8; 16] = [7; 16];
const MEMORY: &str = "/dev/shm";
const OUTSIDE: &[u8] = b"not to be touched";
