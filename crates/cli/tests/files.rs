//! Copies are whole or have not happened, whatever stops them.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

mod support;

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use smb::info::FileInfoClass;
use support::skipped::skip;
use support::{Fixture, Served, names, program, said, signal, status_of, until};

/// A `put` from standard input that has sent a part of it.
fn half_done(fixture: &Fixture, target: &str) -> Child {
    let mut put = fixture.program(&["put", "-", &fixture.url(target)]);
    put.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut put = put.spawn().unwrap();
    put.stdin.as_mut().unwrap().write_all(&vec![b'n'; 3 << 20]).unwrap();
    until("a part is sent", || {
        let parts = names(fixture.share.path());
        let part = parts.iter().find(|name| name.ends_with(".part"));
        part.is_some_and(|name| fixture.remote(name).metadata().is_ok_and(|of| of.len() > 1 << 20))
    });
    put
}

#[test]
fn a_put_that_a_signal_ends_leaves_the_old_file_and_no_part() {
    for (stop, status) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let fixture = Fixture::start();
        std::fs::write(fixture.remote("f"), "old").unwrap();
        let put = half_done(&fixture, "f");
        signal(&put, stop);
        // Its input is open still.
        let output = put.wait_with_output().unwrap();
        assert_eq!(status_of(&output), status, "{}", said(&output));
        assert_eq!(std::fs::read_to_string(fixture.remote("f")).unwrap(), "old");
        assert_eq!(names(fixture.share.path()), ["f"]);
    }
}

#[test]
fn a_put_that_is_killed_leaves_the_old_file_and_soon_no_part() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("f"), "old").unwrap();
    let mut put = half_done(&fixture, "f");
    put.kill().unwrap();
    put.wait().unwrap();
    until("the server removes the part", || names(fixture.share.path()) == ["f"]);
    assert_eq!(std::fs::read_to_string(fixture.remote("f")).unwrap(), "old");
}

#[test]
fn a_put_whose_source_cannot_be_read_leaves_the_old_file() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("f"), "old").unwrap();
    std::fs::create_dir(fixture.local("directory")).unwrap();
    // The last one is opened, and fails when it is read.
    for source in ["missing", "directory", "/proc/self/mem"] {
        let output = fixture.run(&["put", source, &fixture.url("f")]);
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains(source), "{}", said(&output));
        assert_eq!(std::fs::read_to_string(fixture.remote("f")).unwrap(), "old");
        assert_eq!(names(fixture.share.path()), ["f"]);
    }
}

#[test]
fn a_put_onto_a_full_disk_leaves_the_old_file_and_no_part() {
    let directory = tempfile::tempdir().unwrap();
    let script = format!(
        "mount -t tmpfs -o size=2m none {0} && echo old > {0}/f && exec \"$0\" serve {0} --user alice:secret \
         --listen 127.0.0.1:0 --rdma-listen 127.0.0.1:0 --control off",
        directory.path().display()
    );
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &script, env!("CARGO_BIN_EXE_landfast")]);
    let mut server = Served::start(command);
    if !server.line.starts_with("listening") {
        skip(format!("no mount namespace on this machine: {}", server.end()));
        return;
    }
    let url = |name: &str| format!("smb://alice:secret@{}/data/{name}", server.smb());
    let mut put = program(&["put", "-", &url("f")]);
    let mut put = put.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It may have ended before it has taken everything.
    let _ = put.stdin.take().unwrap().write_all(&vec![b'n'; 8 << 20]);
    let output = put.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("the server's disk is full"), "{}", said(&output));
    let got = program(&["get", &url("f"), "-"]).output().unwrap();
    assert_eq!((got.status.code(), &*got.stdout), (Some(0), &b"old\n"[..]));
    let listed = program(&["ls", &url("")]).output().unwrap();
    assert_eq!(String::from_utf8(listed.stdout).unwrap().lines().count(), 1, "only the file");
    server.child.kill().unwrap();
}

#[test]
fn a_put_replaces_a_file_and_keeps_its_owner_mode_and_attributes() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("f"), "old").unwrap();
    std::fs::set_permissions(fixture.remote("f"), Permissions::from_mode(0o640)).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(fixture.remote("f"), Some(1234), Some(2345)).unwrap();
    } else {
        skip("in part: only root gives files away");
    }
    let before = fixture.remote("f").metadata().unwrap();
    std::fs::write(fixture.local("new"), "new").unwrap();
    let output = fixture.run(&["put", "new", &fixture.url("f")]);
    assert!(output.status.success(), "{}", said(&output));
    let after = fixture.remote("f").metadata().unwrap();
    assert_eq!(std::fs::read_to_string(fixture.remote("f")).unwrap(), "new");
    assert_eq!(after.mode() & 0o7777, 0o640);
    assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
    assert_ne!(after.ino(), before.ino(), "it has been replaced and not emptied");
    assert_eq!(names(fixture.share.path()), ["f"]);
}

#[test]
fn what_is_to_replace_a_private_file_is_never_readable_to_others() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("f"), "old").unwrap();
    std::fs::set_permissions(fixture.remote("f"), Permissions::from_mode(0o600)).unwrap();
    std::fs::write(fixture.local("new"), "new").unwrap();
    let is_over = AtomicBool::new(false);
    let share = fixture.share.path();
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut open = 0;
            while !is_over.load(Ordering::Relaxed) {
                let entries = std::fs::read_dir(share).unwrap().flatten();
                let parts = entries.filter(|entry| entry.path().extension().is_some());
                let modes = parts.filter_map(|part| Some(part.metadata().ok()?.mode()));
                open += modes.filter(|mode| mode & 0o077 != 0).count();
            }
            open
        });
        for _ in 0..40 {
            let output = fixture.run(&["put", "new", &fixture.url("f")]);
            assert!(output.status.success(), "{}", said(&output));
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(watch.join().unwrap(), 0);
    });
}

#[test]
fn a_put_of_nothing_and_one_into_a_directory_arrive() {
    let fixture = Fixture::start();
    std::fs::write(fixture.local("notes"), "").unwrap();
    std::fs::create_dir(fixture.remote("below")).unwrap();
    for target in ["", "below", "below/", "else"] {
        let output = fixture.run(&["put", "notes", &fixture.url(target)]);
        assert!(output.status.success(), "{target}: {}", said(&output));
    }
    assert_eq!(names(fixture.share.path()), ["below", "else", "notes"]);
    assert_eq!(names(&fixture.remote("below")), ["notes"]);
}

#[test]
fn a_put_onto_a_file_marked_read_only_is_refused_with_the_reason() {
    let fixture = Fixture::start();
    std::fs::write(fixture.local("new"), "new").unwrap();
    std::fs::write(fixture.remote("f"), "old").unwrap();
    let held = fixture.client().open("f", &client::OpenOptions::read_write()).unwrap();
    let mut basic = vec![0; 40];
    basic[32] = 1;
    let marking = held.inner().set_info(FileInfoClass::BASIC, &basic);
    fixture.runtime.block_on(marking).unwrap();
    held.close().unwrap();
    let output = fixture.run(&["put", "new", &fixture.url("f")]);
    assert!(said(&output).contains("/data/f: it is marked read-only"), "{}", said(&output));
    assert_eq!(std::fs::read_to_string(fixture.remote("f")).unwrap(), "old");
    assert_eq!(names(fixture.share.path()), ["f"]);
}

#[test]
fn a_put_onto_a_file_that_others_have_open_leaves_it_and_no_part() {
    let fixture = Fixture::start();
    std::fs::write(fixture.local("new"), "new").unwrap();
    std::fs::write(fixture.remote("f"), "old").unwrap();
    let held = fixture.client().open("f", &client::OpenOptions::read()).unwrap();
    let output = fixture.run(&["put", "new", &fixture.url("f")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("cannot replace"), "{}", said(&output));
    assert_eq!(std::fs::read_to_string(fixture.remote("f")).unwrap(), "old");
    assert_eq!(names(fixture.share.path()), ["f"]);
    held.close().unwrap();
}

#[test]
fn puts_of_one_name_at_once_all_arrive_one_after_the_other() {
    let fixture = Fixture::start();
    std::fs::write(fixture.local("new"), "new").unwrap();
    let put = || fixture.program(&["put", "new", &fixture.url("f")]).stderr(Stdio::piped()).spawn();
    let puts: Vec<Child> = (0..8).map(|_| put().unwrap()).collect();
    for put in puts {
        let output = put.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }
    assert_eq!(names(fixture.share.path()), ["f"]);
}

#[test]
fn a_get_of_a_file_that_is_cut_meanwhile_fails() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("f"), vec![b'n'; 8 << 20]).unwrap();
    let mut get = fixture.program(&["get", &fixture.url("f"), "-"]);
    let mut get = get.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It waits for its reader.
    let mut begin = [0; 4096];
    get.stdout.as_mut().unwrap().read_exact(&mut begin).unwrap();
    std::fs::File::options().write(true).open(fixture.remote("f")).unwrap().set_len(4).unwrap();
    let output = get.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("changed while it was copied"), "{}", said(&output));
}

#[test]
fn a_get_of_a_file_that_is_written_to_meanwhile_fails() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("f"), vec![b'n'; 8 << 20]).unwrap();
    let mut get = fixture.program(&["get", &fixture.url("f"), "-"]);
    let mut get = get.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut begin = [0; 4096];
    get.stdout.as_mut().unwrap().read_exact(&mut begin).unwrap();
    // The same length, elsewhere.
    let file = std::fs::File::options().write(true).open(fixture.remote("f")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"other", 0).unwrap();
    let output = get.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}

#[test]
fn a_get_that_fails_leaves_the_old_local_file_and_no_part() {
    let fixture = Fixture::start();
    std::fs::write(fixture.local("f"), "old").unwrap();
    std::fs::create_dir(fixture.remote("directory")).unwrap();
    for missing in ["missing", "directory", "a/b"] {
        let output = fixture.run(&["get", &fixture.url(missing), "f"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains(&format!("/data/{missing}: ")), "{}", said(&output));
        assert!(!said(&output).contains("secret"), "{}", said(&output));
    }
    assert_eq!(std::fs::read_to_string(fixture.local("f")).unwrap(), "old");
    assert_eq!(names(fixture.here.path()), ["f"]);
}

#[test]
fn a_get_that_a_signal_ends_leaves_the_old_local_file_and_no_part() {
    let fixture = Fixture::start();
    let file = std::fs::File::create(fixture.remote("f")).unwrap();
    // Sparse, and longer than can be read at once.
    file.set_len(4 << 30).unwrap();
    std::fs::write(fixture.local("f"), "old").unwrap();
    let mut get = fixture.program(&["get", &fixture.url("f")]);
    let get = get.stderr(Stdio::piped()).spawn().unwrap();
    until("a part is there", || names(fixture.here.path()).len() == 2);
    signal(&get, Signal::INT);
    let output = get.wait_with_output().unwrap();
    assert_eq!(status_of(&output), 130, "{}", said(&output));
    assert_eq!(names(fixture.here.path()), ["f"]);
    assert_eq!(std::fs::read_to_string(fixture.local("f")).unwrap(), "old");
}

#[test]
fn a_get_keeps_the_mode_of_the_file_it_replaces_and_follows_its_link() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("f"), "new").unwrap();
    std::fs::write(fixture.local("real"), "old").unwrap();
    std::fs::set_permissions(fixture.local("real"), Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink("real", fixture.local("link")).unwrap();
    let output = fixture.run(&["get", &fixture.url("f"), "link"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(std::fs::read_to_string(fixture.local("real")).unwrap(), "new");
    assert_eq!(fixture.local("real").metadata().unwrap().mode() & 0o7777, 0o600);
    assert!(fixture.local("link").is_symlink());
    // A directory takes it under its own name.
    std::fs::create_dir(fixture.local("into")).unwrap();
    assert!(fixture.run(&["get", &fixture.url("f"), "into"]).status.success());
    assert_eq!(std::fs::read_to_string(fixture.local("into/f")).unwrap(), "new");
}

#[test]
fn a_get_onto_a_full_device_fails() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("f"), "new").unwrap();
    let output = fixture.run(&["get", &fixture.url("f"), "/dev/full"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("/dev/full: No space left"), "{}", said(&output));
}

#[test]
fn a_reader_that_has_gone_ends_a_command_without_a_word() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("f"), vec![b'n'; 1 << 20]).unwrap();
    let (file, share, made) = (fixture.url("f"), fixture.url(""), fixture.url("made"));
    for arguments in [
        vec!["get", &file, "-"],
        vec!["ls", &share],
        vec!["stat", &file],
        vec!["bench-files", &made, "--count", "1"],
        vec!["demo", "--skip-bench", "--kills", "0"],
        vec!["floor"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = fixture.program(&arguments).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(141), "{arguments:?}");
        assert_eq!(said(&output), "", "{arguments:?}");
    }
}

#[test]
fn errors_name_what_they_are_about_and_what_to_do() {
    let fixture = Fixture::start();
    let address = fixture.running.tcp_address();
    let at = |who: &str, path: &str| format!("smb://{who}@{address}/{path}");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (url, parts) in [
        (
            at("alice:secret", "data/missing"),
            ["/data/missing: there is no such file", "landfast ls"],
        ),
        (at("alice:secret", "other/f"), ["/other/f: the server has no share", "--share NAME=PATH"]),
        (at("alice:wrong", "data/f"), ["name or password is wrong", "LANDFAST_PASSWORD"]),
        (at("alice:secret", "data/a%2"), ["percent-encoded", "%25"]),
        (format!("smb://alice:secret@{closed}/data/f"), ["nothing listens there", "4450"]),
        ("smb://alice:secret@no.such.host.invalid/data/f".into(), ["no address", "spelled right"]),
        ("//server/data/f".into(), ["smb://", "HOST:PORT/SHARE/PATH"]),
    ] {
        for command in ["ls", "get", "rm", "stat"] {
            if command == "ls" && url.ends_with("/missing") {
                continue;
            }
            let output = fixture.run(&[command, &url]);
            assert_eq!(output.status.code(), Some(1), "{command} {url}");
            for part in parts {
                assert!(said(&output).contains(part), "{command} {url}: {}", said(&output));
            }
            assert!(!said(&output).contains("secret"), "{}", said(&output));
        }
    }
}

#[test]
fn a_rm_says_success_only_when_the_name_has_gone() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("f"), "kept").unwrap();
    let held = fixture.client().open("f", &client::OpenOptions::read()).unwrap();
    let output = fixture.run(&["rm", &fixture.url("f")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("when the last of them closes it"), "{}", said(&output));
    held.close().unwrap();
    assert_eq!(names(fixture.share.path()), [""; 0]);
    std::fs::write(fixture.remote("f"), "kept").unwrap();
    assert!(fixture.run(&["rm", &fixture.url("f")]).status.success());
    assert_eq!(names(fixture.share.path()), [""; 0]);
    let output = fixture.run(&["rm", &fixture.url("f")]);
    assert!(said(&output).contains("there is no such file"), "{}", said(&output));
}

#[test]
fn a_put_of_a_name_that_is_no_text_replaces_no_other_file() {
    let fixture = Fixture::start();
    let name = OsStr::from_bytes(b"a\xff");
    std::fs::write(fixture.here.path().join(name), "new").unwrap();
    std::fs::write(fixture.remote("a\u{fffd}"), "old").unwrap();
    let mut put = fixture.program(&["put"]);
    let output = put.arg(name).arg(fixture.url("")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("name"), "{}", said(&output));
    assert_eq!(std::fs::read_to_string(fixture.remote("a\u{fffd}")).unwrap(), "old");
    let mut put = fixture.program(&["put"]);
    let output = put.arg(name).arg(fixture.url("named")).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn a_url_that_ends_in_a_slash_means_a_directory_and_nothing_else() {
    let fixture = Fixture::start();
    std::fs::write(fixture.local("b"), "two").unwrap();
    std::fs::write(fixture.remote("keep"), "kept").unwrap();
    std::fs::create_dir(fixture.remote("folder")).unwrap();
    let refused = |args: &[&str]| {
        let output = fixture.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(said(&output).contains("directory"), "{}", said(&output));
    };
    refused(&["put", "b", &fixture.url("backup/")]);
    for command in ["rm", "stat", "get"] {
        refused(&[command, &fixture.url("keep/")]);
    }
    refused(&["put", "b", &fixture.url("keep/")]);
    assert_eq!(names(fixture.share.path()), ["folder", "keep"]);
    assert_eq!(std::fs::read_to_string(fixture.remote("keep")).unwrap(), "kept");
    let output = fixture.run(&["put", "b", &fixture.url("folder/")]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(names(&fixture.remote("folder")), ["b"]);
    assert!(fixture.run(&["stat", &fixture.url("folder/")]).status.success());
}

#[test]
fn a_put_of_a_name_with_a_backslash_replaces_no_file_below_a_directory() {
    let fixture = Fixture::start();
    std::fs::create_dir(fixture.remote("back")).unwrap();
    std::fs::write(fixture.remote("back/slash"), "precious").unwrap();
    std::fs::write(fixture.local("back\\slash"), "x").unwrap();
    let output = fixture.run(&["put", "back\\slash", &fixture.url("")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("backslash"), "{}", said(&output));
    assert_eq!(std::fs::read_to_string(fixture.remote("back/slash")).unwrap(), "precious");
}

#[test]
fn a_get_over_a_set_id_file_gives_nobody_more_rights() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("f"), "new").unwrap();
    std::fs::write(fixture.local("f"), "old").unwrap();
    std::fs::set_permissions(fixture.local("f"), Permissions::from_mode(0o4755)).unwrap();
    let output = fixture.run(&["get", &fixture.url("f")]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fixture.local("f").metadata().unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn no_verbosity_shows_what_a_password_can_be_guessed_from() {
    let fixture = Fixture::start();
    std::fs::write(fixture.local("b"), "two").unwrap();
    let output = fixture.run(&["-vvv", "put", "b", &fixture.url("b")]);
    assert!(output.status.success(), "{}", said(&output));
    // "NTLMSSP" of an AUTHENTICATE message, in hexadecimal and as it is.
    let said = said(&output).to_uppercase();
    assert!(!said.contains("4E544C4D535350000300") && !said.contains("NTLMSSP\\0\\X03"));
}

#[test]
fn a_put_over_a_set_id_file_gives_nobody_more_rights() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("f"), "old").unwrap();
    std::fs::set_permissions(fixture.remote("f"), Permissions::from_mode(0o4750)).unwrap();
    std::fs::write(fixture.local("new"), "new").unwrap();
    let output = fixture.run(&["put", "new", &fixture.url("f")]);
    let mode = fixture.remote("f").metadata().unwrap().mode() & 0o7777;
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(mode, 0o750, "its old mode without set-ID bits");
    assert_eq!(names(fixture.share.path()), ["f"]);
}

#[test]
fn a_command_started_by_nohup_outlives_its_terminal() {
    let fixture = Fixture::start();
    let url = fixture.url("f");
    let script = "trap '' HUP; exec \"$0\" put - \"$1\"";
    let mut put = Command::new("sh");
    put.args(["-c", script, env!("CARGO_BIN_EXE_landfast"), &url]);
    let mut put = put.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    put.stdin.as_mut().unwrap().write_all(&vec![b'n'; 3 << 20]).unwrap();
    until("a part is sent", || !names(fixture.share.path()).is_empty());
    signal(&put, Signal::HUP);
    drop(put.stdin.take());
    let output = put.wait_with_output().unwrap();
    assert_eq!(status_of(&output), 0, "{}", said(&output));
    assert_eq!(fixture.remote("f").metadata().unwrap().len(), 3 << 20);
}

#[test]
fn a_part_that_a_killed_server_left_goes_with_the_next_put_of_its_name() {
    let share = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = program(&["serve", share.path().to_str().unwrap()]);
        command.args(["--user", "alice:secret", "--control", "off"]);
        command.args(["--listen", "127.0.0.1:0", "--rdma-listen", "127.0.0.1:0"]);
        Served::start(command)
    };
    let put = |server: &Served, name: &str| {
        let url = format!("smb://alice:secret@{}/data/{name}", server.smb());
        let mut put = program(&["put", "-", &url]);
        put.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut server = start();
    std::fs::write(share.path().join("f"), "old").unwrap();
    let mut puts = [put(&server, "f"), put(&server, "g")];
    for put in &mut puts {
        put.stdin.as_mut().unwrap().write_all(&vec![b'n'; 3 << 20]).unwrap();
    }
    until("both have a part", || names(share.path()).len() == 3);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    for put in puts {
        assert_eq!(put.wait_with_output().unwrap().status.code(), Some(1));
    }
    assert_eq!(names(share.path()).len(), 3, "nobody was there to remove them");
    let server = start();
    // In another case it is the same name.
    let mut again = put(&server, "F");
    again.stdin.take().unwrap().write_all(b"new").unwrap();
    let output = again.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let left = names(share.path());
    assert_eq!(left.len(), 2, "{left:?}: the part of another name stays");
    assert_eq!(std::fs::read_to_string(share.path().join("f")).unwrap(), "new");
}

#[test]
fn a_put_onto_a_symbolic_link_leaves_the_link_and_says_so() {
    let fixture = Fixture::start();
    std::fs::create_dir(fixture.remote("d")).unwrap();
    std::fs::write(fixture.remote("d/target"), "old").unwrap();
    std::os::unix::fs::symlink("d/target", fixture.remote("link")).unwrap();
    std::os::unix::fs::symlink("d/nothing", fixture.remote("dangling")).unwrap();
    std::os::unix::fs::symlink("d", fixture.remote("directory")).unwrap();
    std::fs::write(fixture.local("new"), "new").unwrap();
    for link in ["link", "dangling"] {
        let output = fixture.run(&["put", "new", &fixture.url(link)]);
        assert_eq!(output.status.code(), Some(1), "{link}");
        assert!(said(&output).contains("symbolic link"), "{}", said(&output));
        assert!(fixture.remote(link).is_symlink(), "{link}");
    }
    assert_eq!(std::fs::read_to_string(fixture.remote("d/target")).unwrap(), "old");
    // By whatever case the server finds it.
    std::os::unix::fs::symlink("target", fixture.remote("d/inner")).unwrap();
    std::os::unix::fs::symlink("nothing", fixture.remote("d/nowhere")).unwrap();
    for link in ["LINK", "D/inner", "d/Inner", "D/nowhere"] {
        let output = fixture.run(&["put", "new", &fixture.url(link)]);
        assert_eq!(output.status.code(), Some(1), "{link}");
        assert!(said(&output).contains("symbolic link"), "{}", said(&output));
    }
    for link in ["d/inner", "d/nowhere"] {
        assert!(fixture.remote(link).is_symlink(), "{link}");
        std::fs::remove_file(fixture.remote(link)).unwrap();
    }
    // One to a directory leads there.
    assert!(fixture.run(&["put", "new", &fixture.url("directory/")]).status.success());
    assert_eq!(names(&fixture.remote("d")), ["new", "target"]);
    assert_eq!(names(fixture.share.path()), ["d", "dangling", "directory", "link"]);
}

#[test]
fn a_command_started_without_standard_output_fails_where_it_would_write() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("f"), "bytes").unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" >&-", env!("CARGO_BIN_EXE_landfast")]);
        command.args(arguments).current_dir(fixture.here.path()).output().unwrap()
    };
    let (file, share) = (fixture.url("f"), fixture.url(""));
    for arguments in [
        vec!["get", &file, "-"],
        vec!["ls", &share],
        vec!["stat", &file],
        vec!["completions", "bash"],
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(
            said(&output).contains("standard output: Bad file descriptor"),
            "{}",
            said(&output)
        );
    }
    // What is not written there arrives.
    assert_eq!(run(&["get", &file, "here"]).status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(fixture.local("here")).unwrap(), "bytes");
    // Nobody wants to know.
    let silent = fixture.program(&["ls", &share]).stdout(Stdio::null()).status().unwrap();
    assert!(silent.success());
}

#[test]
fn a_get_onto_a_mounted_file_says_that_it_is_one() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("f"), "new").unwrap();
    std::fs::write(fixture.local("mounted"), "old").unwrap();
    let script = "mount --bind mounted mounted || exit 77; exec \"$0\" get \"$1\" mounted";
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", script, env!("CARGO_BIN_EXE_landfast"), &fixture.url("f")]);
    let output = command.current_dir(fixture.here.path()).output().unwrap();
    if output.status.code() == Some(77) || said(&output).contains("unshare") {
        skip(format!("no mount namespace on this machine: {}", said(&output)));
        return;
    }
    assert_eq!(output.status.code(), Some(1));
    for part in ["busy", "mounted by itself", "get URL -"] {
        assert!(said(&output).contains(part), "{part}: {}", said(&output));
    }
    assert_eq!(std::fs::read_to_string(fixture.local("mounted")).unwrap(), "old");
    assert_eq!(names(fixture.here.path()), ["mounted"]);
}

#[test]
fn a_get_into_a_directory_that_takes_no_files_names_the_directory_as_the_cause() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("f"), "new").unwrap();
    let missing = fixture.run(&["get", &fixture.url("f"), "missing/f"]);
    assert!(said(&missing).contains("missing/f: No such file or directory"), "{}", said(&missing));
    assert!(!said(&missing).contains("at path"), "{}", said(&missing));
    if !rustix::process::geteuid().is_root() {
        skip("in part: only root runs a program as somebody else");
        return;
    }
    std::fs::write(fixture.local("f"), "old").unwrap();
    for (path, mode) in [(fixture.local("f"), 0o666), (fixture.local("."), 0o755)] {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let mut get = fixture.program(&["get", &fixture.url("f")]);
    std::os::unix::process::CommandExt::uid(&mut get, 65_534);
    let output = get.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    for part in ["cannot make a file beside", "must let this user make files"] {
        assert!(said(&output).contains(part), "{part}: {}", said(&output));
    }
    assert!(!said(&output).contains(".landfast-"), "{}", said(&output));
}

#[test]
fn a_file_written_before_1970_is_listed_with_its_year() {
    let fixture = Fixture::start();
    let file = std::fs::File::create(fixture.remote("old")).unwrap();
    let written = std::time::SystemTime::UNIX_EPOCH - std::time::Duration::from_secs(315_619_200);
    file.set_modified(written).unwrap();
    let output = fixture.run(&["ls", &fixture.url("")]);
    let listed = String::from_utf8(output.stdout).unwrap();
    assert!(listed.contains(" 1960-01-01T00:00:00Z old"), "{listed}");
}

#[test]
fn a_percentage_on_a_terminal_is_gone_before_an_error_is_said() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let fixture = Fixture::start();
    let file = std::fs::File::create(fixture.remote("f")).unwrap();
    file.set_len(4 << 30).unwrap();
    let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&person).unwrap();
    unlockpt(&person).unwrap();
    let name = ptsname(&person, Vec::new()).unwrap();
    let terminal = std::fs::File::options().write(true).open(OsStr::from_bytes(name.as_bytes()));
    let mut person = std::fs::File::from(person);
    // The command holds the terminal, too, as long as it is there.
    let start =
        |mut get: Command| get.stdout(Stdio::piped()).stderr(terminal.unwrap()).spawn().unwrap();
    let mut get = start(fixture.program(&["get", &fixture.url("f"), "-"]));
    // More than the pipe holds: it stands still with a percentage shown.
    let mut taken = vec![0; 3 << 20];
    get.stdout.as_mut().unwrap().read_exact(&mut taken).unwrap();
    signal(&get, Signal::INT);
    get.wait().unwrap();
    let mut shown = Vec::new();
    // The end of a terminal that nobody writes to is an error.
    let _ = person.read_to_end(&mut shown);
    let shown = String::from_utf8_lossy(&shown).into_owned();
    let (before, after) = shown.split_once("landfast: stopped").unwrap();
    assert!(before.contains(" %") && before.ends_with("\r\u{1b}[K"), "{before:?} {after:?}");
}

#[test]
fn help_that_was_asked_for_goes_to_standard_output_and_names_the_password_in_a_url() {
    for command in ["ls", "get", "put", "rm", "stat", "bench", "bench-files"] {
        let output = program(&[command, "--help"]).output().unwrap();
        assert!(output.status.success(), "{command}");
        assert_eq!(said(&output), "", "{command}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("smb://USER:PASSWORD@HOST:PORT/SHARE"), "{command}: {text}");
        assert!(text.lines().all(|line| line.len() <= 100), "{command}: {text}");
    }
}

#[test]
fn man_pages_and_completions_name_every_command_and_option() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man");
    let written = program(&["man", pages.to_str().unwrap()]).output().unwrap();
    assert!(written.status.success(), "{}", said(&written));
    let help = |arguments: &[&str]| {
        let output = program(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let completions = help(&["completions", "bash"]);
    let listed = help(&["--help"]);
    let commands = listed.split_once("Commands:").unwrap().1.split_once("Options:").unwrap().0;
    let is_command = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    let mut count = 0;
    for line in commands.lines().filter(is_command) {
        let command = line.split_whitespace().next().unwrap();
        if command == "help" {
            continue;
        }
        let page = std::fs::read_to_string(pages.join(format!("landfast-{command}.1"))).unwrap();
        for line in help(&[command, "--help"]).lines().map(str::trim_start) {
            let words = line.split(|c: char| !c.is_ascii_lowercase() && c != '-');
            let is_definition = line.starts_with('-');
            for option in words.filter(|word| is_definition && word.starts_with("--")) {
                let in_page = option.replace('-', "\\-");
                assert!(page.contains(&in_page), "{command} {option}");
                assert!(completions.contains(option), "{command} {option}");
                count += 1;
            }
        }
    }
    assert!(count > 50, "{count} options were found");
}
