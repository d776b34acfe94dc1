//! A `get` replaces a local file whole or not at all, whatever stops it; a slash at the end of a URL means a directory.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

mod support;

use std::fs::Permissions;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use support::skipped::skip;
use support::{Fixture, names, said, signal, status_of, until};

#[test]
fn a_get_of_a_file_that_is_truncated_meanwhile_fails() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("f"), vec![b'n'; 8 << 20]).unwrap();
    let mut get = fixture.program(&["get", &fixture.url("f"), "-"]);
    let mut get = get.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The command waits for the reader of its output.
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
    // The same length, with other bytes.
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
fn a_get_ended_by_a_signal_leaves_only_the_old_file() {
    let fixture = Fixture::start();
    let file = std::fs::File::create(fixture.remote("f")).unwrap();
    // Sparse, and too long to be read at once.
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
fn a_get_into_a_pipe_that_nobody_reads_is_ended_by_a_signal() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("f"), "new").unwrap();
    let made = Command::new("mkfifo").arg(fixture.local("pipe")).status().unwrap();
    assert!(made.success());
    let get = fixture.program(&["get", &fixture.url("f"), "pipe"]).stderr(Stdio::piped()).spawn();
    let get = get.unwrap();
    // Of open(2) that waits nothing else is seen from outside; where the kernel does not say where threads wait, the signal
    // may come before.
    let tasks = format!("/proc/{}/task", get.id());
    let place = |task: std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("wchan")).unwrap_or_default()
    };
    until("it waits for a reader", || {
        let tasks = std::fs::read_dir(&tasks).into_iter().flatten().flatten();
        let places: Vec<String> = tasks.map(place).collect();
        let is_hidden = places.iter().all(|place| matches!(&**place, "" | "0"));
        places.iter().any(|place| place == "wait_for_partner") || (is_hidden && places.len() > 2)
    });
    signal(&get, Signal::INT);
    let output = get.wait_with_output().unwrap();
    assert_eq!(status_of(&output), 130, "{}", said(&output));
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
    // In a directory the file gets its own name.
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
fn a_url_that_ends_in_a_slash_names_only_a_directory() {
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
fn a_get_over_a_set_id_file_clears_its_set_id_bits() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("f"), "new").unwrap();
    std::fs::write(fixture.local("f"), "old").unwrap();
    std::fs::set_permissions(fixture.local("f"), Permissions::from_mode(0o4755)).unwrap();
    let output = fixture.run(&["get", &fixture.url("f")]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fixture.local("f").metadata().unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn a_get_onto_a_mounted_file_reports_the_mount() {
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
fn a_get_into_an_unwritable_directory_names_the_directory_as_cause() {
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
fn a_get_beyond_the_limit_of_a_file_leaves_no_part() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("large"), vec![1; 1 << 20]).unwrap();
    std::fs::write(fixture.local("large"), "old").unwrap();
    let mut get = Command::new("sh");
    get.args(["-c", "ulimit -f 100; exec \"$0\" get \"$1\" large", env!("CARGO_BIN_EXE_landfast")]);
    let output = get.arg(fixture.url("large")).current_dir(fixture.here.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("File too large"), "{}", said(&output));
    assert_eq!(std::fs::read_to_string(fixture.local("large")).unwrap(), "old");
    assert_eq!(names(fixture.here.path()), ["large"]);
}
