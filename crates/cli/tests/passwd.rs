//! Passwords are asked for twice and not shown; a users file is changed by one program at a time, in
//! place.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

mod support;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use support::skipped::skip;
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

/// Everything that the terminal has shown until now.
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
fn a_signal_restores_the_echo_of_the_terminal() {
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

/// Starts a change of the account `user`: sets its password, or removes it.
fn change(file: &Path, user: &str, removed: bool) -> Child {
    let mut arguments = vec!["passwd", file.to_str().unwrap(), user];
    if removed {
        arguments.push("--remove");
    }
    let mut command = program(&arguments);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A removal reads no input, and may have ended.
    let _ = child.stdin.take().unwrap().write_all(b"secret\n");
    child
}

fn changed(child: Child) {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn a_users_file_changed_by_root_keeps_its_owner_and_mode() {
    if !rustix::process::geteuid().is_root() {
        skip("only root gives files away");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users");
    changed(change(&file, "alice", false));
    chown(&file, Some(1234), Some(2345)).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o400)).unwrap();
    for (user, removed) in [("bob", false), ("alice", true)] {
        changed(change(&file, user, removed));
        let found = file.metadata().unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (1234, 2345, 0o400));
    }
}

#[test]
fn changes_of_a_users_file_at_the_same_time_are_all_kept() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users");
    for round in 0..100 {
        // The first two changes make the file.
        let added = change(&file, &format!("new-{round}"), false);
        let other = match round {
            0 => change(&file, "old-0", false),
            _ => change(&file, &format!("old-{}", round - 1), true),
        };
        changed(added);
        changed(other);
        if round > 0 {
            changed(change(&file, &format!("old-{round}"), false));
        }
        let text = std::fs::read_to_string(&file).unwrap();
        for kept in 0..=round {
            assert!(text.contains(&format!("new-{kept}:nt:")), "round {round}, account {kept}");
        }
        let old = text.lines().filter(|line| line.starts_with("old-")).count();
        assert_eq!(old, 1, "a removed account is back in round {round}");
    }
}

#[test]
fn a_users_file_named_by_a_link_is_changed_and_the_link_stays() {
    let directory = tempfile::tempdir().unwrap();
    let (file, link) = (directory.path().join("users"), directory.path().join("link"));
    changed(change(&file, "alice", false));
    symlink("users", &link).unwrap();
    changed(change(&link, "bob", false));
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert!(std::fs::read_to_string(&file).unwrap().contains("bob:nt:"));
    // A link without a target is not replaced either.
    std::fs::remove_file(&file).unwrap();
    let output = change(&link, "bob", false).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(link.symlink_metadata().unwrap().is_symlink() && !file.exists());
}

#[test]
fn comments_of_a_users_file_stay_when_it_is_changed() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users");
    changed(change(&file, "alice", false));
    let text = format!("{}# the printer\n\n", std::fs::read_to_string(&file).unwrap());
    std::fs::write(&file, &text).unwrap();
    changed(change(&file, "bob", false));
    assert!(std::fs::read_to_string(&file).unwrap().starts_with(&text));
    changed(change(&file, "BOB", true));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn a_name_that_cannot_log_on_gets_no_password() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users");
    for name in ["x@y", "dom\\bob", "a:b", ""] {
        let output = change(&file, name, false).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert!(!file.exists());
    }
}

#[test]
fn completions_whose_reader_has_gone_end_without_a_panic() {
    let mut command = program(&["completions", "bash"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(141), "{}", said(&output));
    assert!(output.stderr.is_empty(), "{}", said(&output));
}
