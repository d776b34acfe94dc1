//! A `put` replaces a file whole or not at all, whatever stops it, and never another file than the named one.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

mod support;

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use smb::info::FileInfoClass;
use support::skipped::skip;
use support::{Fixture, Served, names, program, said, signal, status_of, until};

/// A `put` from standard input that has sent a part of its bytes.
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
fn a_put_ended_by_a_signal_leaves_only_the_old_file() {
    for (stop, status) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let fixture = Fixture::start();
        std::fs::write(fixture.remote("f"), "old").unwrap();
        let mut put = half_done(&fixture, "f");
        // The input of the command is still open.
        let input = put.stdin.take();
        signal(&put, stop);
        let output = put.wait_with_output().unwrap();
        drop(input);
        assert_eq!(status_of(&output), status, "{}", said(&output));
        assert_eq!(std::fs::read_to_string(fixture.remote("f")).unwrap(), "old");
        assert_eq!(names(fixture.share.path()), ["f"]);
    }
}

#[test]
fn a_killed_put_leaves_the_old_file_and_soon_no_part() {
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
    // The last source can be opened, and fails when it is read.
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
    // The command may have ended before it has read everything.
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
fn a_part_that_replaces_a_private_file_is_never_readable_to_others() {
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
fn empty_files_and_files_put_into_a_directory_arrive() {
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
fn a_put_onto_a_file_open_elsewhere_leaves_it_and_no_part() {
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
fn simultaneous_puts_of_one_name_all_succeed() {
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
fn a_put_under_a_non_utf8_name_replaces_no_other_file() {
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
fn a_put_over_a_set_id_file_clears_its_set_id_bits() {
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
fn a_part_of_a_killed_server_is_removed_by_the_next_put() {
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
fn a_put_into_a_directory_replaces_only_the_file_of_exactly_that_name() {
    let fixture = Fixture::start();
    std::fs::create_dir(fixture.remote("d")).unwrap();
    for (name, bytes) in [("Readme", "one"), ("readme", "another")] {
        std::fs::write(fixture.local(name), bytes).unwrap();
    }
    let put = |name: &str, to: &str| fixture.run(&["put", name, &fixture.url(to)]);
    assert!(put("Readme", "d/").status.success());
    let output = put("readme", "d/");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    for part in ["Readme", "ignores case", "at the end of the URL"] {
        assert!(said(&output).contains(part), "{part}: {}", said(&output));
    }
    assert_eq!(std::fs::read_to_string(fixture.remote("d/Readme")).unwrap(), "one");
    assert!(put("Readme", "d").status.success(), "the same name");
    // Whoever names it means what the server finds.
    assert!(put("readme", "d/README").status.success());
    assert_eq!(names(&fixture.remote("d")), ["Readme"]);
    assert_eq!(std::fs::read_to_string(fixture.remote("d/Readme")).unwrap(), "another");
}

#[test]
fn a_put_without_standard_input_replaces_nothing() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("f"), "old").unwrap();
    std::os::unix::fs::symlink("/dev/stdin", fixture.local("link")).unwrap();
    for source in ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "link"] {
        let mut put = Command::new("sh");
        put.args(["-c", "exec \"$0\" put \"$1\" \"$2\" <&-", env!("CARGO_BIN_EXE_landfast")]);
        put.arg(source).arg(fixture.url("f")).current_dir(fixture.here.path());
        let output = put.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{source}: {}", said(&output));
        assert!(said(&output).contains("cannot read"), "{source}: {}", said(&output));
        assert_eq!(std::fs::read_to_string(fixture.remote("f")).unwrap(), "old", "{source}");
    }
    // An empty input that is there is one.
    assert!(fixture.run(&["put", "/dev/null", &fixture.url("f")]).status.success());
    assert_eq!(std::fs::read_to_string(fixture.remote("f")).unwrap(), "");
}

#[test]
fn a_put_onto_a_symbolic_link_is_refused_and_leaves_the_link() {
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
    // The server finds the link in any case.
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
    // A link to a directory leads into the directory.
    assert!(fixture.run(&["put", "new", &fixture.url("directory/")]).status.success());
    assert_eq!(names(&fixture.remote("d")), ["new", "target"]);
    assert_eq!(names(fixture.share.path()), ["d", "dangling", "directory", "link"]);
}
