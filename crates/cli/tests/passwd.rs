//! Passwords are asked for twice and not shown; a pipe gives one line.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

mod support;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use support::{program, said, signal, status_of, until};

/// A terminal: the person's end and the program's.
fn terminal() -> (File, OwnedFd) {
    let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&person).unwrap();
    unlockpt(&person).unwrap();
    let name = ptsname(&person, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY;
    (File::from(person), rustix::fs::open(&name, flags, Mode::empty()).unwrap())
}

fn passwd(file: &Path, terminal: &OwnedFd) -> Child {
    let mut command = program(&["passwd", file.to_str().unwrap(), "alice"]);
    command.stdin(Stdio::from(terminal.try_clone().unwrap())).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    until("what is typed is hidden", || {
        !tcgetattr(terminal).unwrap().local_modes.contains(LocalModes::ECHO)
    });
    child
}

/// All that the terminal shows until now.
fn shown(mut person: File) -> String {
    rustix::io::ioctl_fionbio(&person, true).unwrap();
    let mut shown = Vec::new();
    let _ = person.read_to_end(&mut shown);
    String::from_utf8_lossy(&shown).into_owned()
}

#[test]
fn a_password_typed_twice_is_set_and_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users");
    let (mut person, program_end) = terminal();
    let child = passwd(&file, &program_end);
    person.write_all(b"secret\nsecret\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("Password of alice"));
    assert!(std::fs::read_to_string(&file).unwrap().contains("alice:nt:"));
    let echoes = tcgetattr(&program_end).unwrap().local_modes.contains(LocalModes::ECHO);
    assert!(echoes, "the terminal shows again what is typed");
    assert!(!shown(person).contains("secret"));
}

#[test]
fn two_passwords_that_differ_set_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users");
    let (mut person, program_end) = terminal();
    let child = passwd(&file, &program_end);
    person.write_all(b"secret\nsecrte\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("not the same"), "{}", said(&output));
    assert!(!file.exists());
}

#[test]
fn a_signal_gives_the_terminal_back_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let (_person, program_end) = terminal();
    let child = passwd(&directory.path().join("users"), &program_end);
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(status_of(&output), 130);
    assert!(tcgetattr(&program_end).unwrap().local_modes.contains(LocalModes::ECHO));
}

#[test]
fn a_pipe_gives_the_password_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users");
    let mut command = program(&["passwd", file.to_str().unwrap(), "alice"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"secret\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", said(&output));
    assert!(file.exists());
}
