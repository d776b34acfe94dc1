//! Serving: the output at the start, the effect of SIGHUP, and the user of the process.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

mod support;

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

use rustix::process::{Signal, geteuid};
use support::configs::{GROUP, USER, config, secret};
use support::skipped::skip;
use support::{Served, program, said, signal, until};

const LOOPBACK: [&str; 4] = ["--listen", "127.0.0.1:0", "--rdma-listen", "127.0.0.1:0"];

fn serve(more: &[&str]) -> std::process::Command {
    program(&[&["serve"], &LOOPBACK[..], &["--control", "off"], more].concat())
}

fn lists(server: &Served, user: &str, share: &str) -> bool {
    let url = format!("smb://{user}:secret@{}/{share}", server.smb());
    program(&["ls", &url]).output().unwrap().status.success()
}

#[test]
fn sighup_replaces_accounts_and_shares_unless_the_config_is_invalid() {
    let directory = tempfile::tempdir().unwrap();
    let (file, share) = (directory.path().join("landfast.toml"), directory.path().join("share"));
    std::fs::create_dir(&share).unwrap();
    secret(&file, &config(&share, &["alice"], ""));
    let server = Served::start(serve(&["--config", file.to_str().unwrap()]));
    assert!(lists(&server, "alice", "data") && !lists(&server, "bob", "data"));
    // A syntax error.
    secret(&file, "[[share]\n");
    signal(&server.child, Signal::HUP);
    until("the mistake is seen", || server.said().contains("the server goes on as it was"));
    assert!(lists(&server, "alice", "data"), "it goes on as it was");
    // Other accounts, one more share, and a setting that needs a restart.
    let more = format!("\n[[share]]\nname = \"more\"\npath = \"{}\"\n", share.display());
    secret(&file, &(config(&share, &["bob"], "rdma_threads = 2\nkeepalive_s = 9") + &more));
    signal(&server.child, Signal::HUP);
    until("bob may log on", || lists(&server, "bob", "more"));
    assert!(!lists(&server, "alice", "data"));
    // A directory that is not there: the share goes on with the one that it has.
    secret(&file, &config(&directory.path().join("nowhere"), &["bob"], ""));
    signal(&server.child, Signal::HUP);
    let refused = "the next start will refuse this config";
    until("the next start is looked at", || server.said().contains(refused));
    assert!(lists(&server, "bob", "data"));
    let said = server.end();
    for part in ["landfast.toml", "next start: rdma_threads, keepalive_s", "more"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn sighup_of_a_server_without_a_config_does_not_end_it() {
    let share = tempfile::tempdir().unwrap();
    let server = Served::start(serve(&[share.path().to_str().unwrap(), "--user", "alice:secret"]));
    for _ in 0..3 {
        signal(&server.child, Signal::HUP);
    }
    assert!(lists(&server, "alice", "data"));
}

#[test]
fn a_refused_logon_is_logged_with_the_name() {
    let share = tempfile::tempdir().unwrap();
    let server = Served::start(serve(&[share.path().to_str().unwrap(), "--user", "alice:secret"]));
    assert!(!lists(&server, "mallory%0Aroot", "data"));
    let said = server.end();
    assert!(
        said.contains("user=\"mallory\\\\nroot\"") || said.contains("mallory\\nroot"),
        "{said}"
    );
    assert!(said.contains("logon refused"), "{said}");
}

#[test]
fn each_failed_start_has_a_hint_of_its_own() {
    let share = tempfile::tempdir().unwrap();
    let path = share.path().to_str().unwrap();
    let file = share.path().join("file");
    std::fs::write(&file, "").unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let user = ["--user", "alice:secret"];
    for (line, parts) in [
        (vec!["/nowhere"], ["cannot export /nowhere", "make the directory"]),
        (vec![file.to_str().unwrap()], ["cannot export", "a share is a directory"]),
        (vec![path, "--listen", &taken], ["cannot listen on", "another with --listen"]),
        (
            vec![path, "--rdma-listen", &taken],
            ["cannot listen for RDMA", "another with --rdma-listen"],
        ),
        (vec![path, "--listen", "192.0.2.1:4450"], ["cannot listen on", "ip address"]),
        (vec![path, "--run-as", "nobody at all"], ["no user of that name", "run_as"]),
    ] {
        let arguments = ["serve", "--control", "off"].into_iter().chain(user);
        let has = |option: &str| line.contains(&option);
        let mut command: Vec<&str> = arguments.chain(line.iter().copied()).collect();
        if !has("--listen") {
            command.extend(["--listen", "127.0.0.1:0"]);
        }
        if !has("--rdma-listen") {
            command.extend(["--rdma-listen", "127.0.0.1:0"]);
        }
        let output = program(&command).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{line:?}");
        for part in parts {
            assert!(said(&output).contains(part), "{line:?}: {}", said(&output));
        }
    }
}

#[test]
fn a_start_that_fails_changes_nothing_on_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let (share, opens) = (directory.path().join("share"), directory.path().join("opens"));
    std::fs::create_dir(&share).unwrap();
    let (file, notes) = (directory.path().join("landfast.toml"), directory.path().join("notes"));
    let log = format!("persistent_opens = \"{}\"\n", opens.display());
    let (exported, accounts) = (config(&share, &[], ""), config(&share, &["alice"], ""));
    secret(&file, &(exported.clone() + &log + &accounts[exported.len()..]));
    std::fs::write(&notes, "no socket").unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let (any, off) = ("127.0.0.1:0", "off");
    for (listen, rdma, control) in
        [(&*taken, any, off), (any, &*taken, off), (any, any, notes.to_str().unwrap())]
    {
        let mut command = program(&["serve", "--config", file.to_str().unwrap()]);
        command.args(["--listen", listen, "--rdma-listen", rdma, "--control", control]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(!opens.exists(), "{}", said(&output));
    }
    let server = Served::start(serve(&["--config", file.to_str().unwrap()]));
    assert!(opens.exists(), "{}", server.end());
}

#[test]
fn contradictory_rights_are_refused_and_unknown_users_are_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    let (file, share) = (directory.path().join("landfast.toml"), directory.path().join("share"));
    std::fs::create_dir(&share).unwrap();
    let path = file.to_str().unwrap();
    let people = |text: &str, users: &[&str]| {
        let (share, users) = (config(&share, &[], ""), config(&share, users, ""));
        secret(&file, &(share.clone() + text + &users[share.len()..]));
    };
    for (text, users, part) in [
        ("users = [\"alice\"]\nreaders = [\"Alice\"]\n", &["alice"][..], "\"Alice\""),
        ("", &["alice", "ALICE"], "two accounts"),
    ] {
        people(text, users);
        let output = serve(&["--config", path]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(said(&output).contains(part), "{}", said(&output));
    }
    people("users = [\"alice\", \"alcie\"]\n", &["alice"]);
    let server = Served::start(serve(&["--config", path]));
    assert!(lists(&server, "alice", "data"));
    let said = server.end();
    assert!(said.contains("no account") && said.contains("alcie"), "{said}");
}

#[test]
fn an_empty_list_of_users_is_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let (file, share) = (directory.path().join("landfast.toml"), directory.path().join("share"));
    std::fs::create_dir(&share).unwrap();
    let path = file.to_str().unwrap();
    let people = |text: &str| {
        let (share, users) = (config(&share, &[], ""), config(&share, &["alice", "bob"], ""));
        secret(&file, &(share.clone() + text + &users[share.len()..]));
    };
    for text in ["users = []\n", "readers = []\n", "users = []\nreaders = []\n"] {
        people(text);
        let output = serve(&["--config", path, "--check"]).output().unwrap();
        assert!(output.status.success(), "{text}: {}", said(&output));
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(shown.contains("for nobody with an account"), "{text}: {shown}");
    }
    people("users = [\"bob\"]\nreaders = []\n");
    let server = Served::start(serve(&["--config", path]));
    assert!(lists(&server, "bob", "data") && !lists(&server, "alice", "data"));
    // The last name is taken off a share that is served.
    people("users = []\n");
    signal(&server.child, Signal::HUP);
    until("bob may not enter any more", || !lists(&server, "bob", "data"));
    assert!(!lists(&server, "alice", "data"));
}

#[test]
fn a_config_file_in_a_share_is_refused() {
    let share = tempfile::tempdir().unwrap();
    let file = share.path().join("landfast.toml");
    secret(&file, &config(share.path(), &["alice"], ""));
    let output = serve(&["--config", file.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("lies in the share \"data\""), "{}", said(&output));
}

#[test]
fn the_service_manager_is_notified_of_start_reload_and_stop() {
    let (directory, share) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (path, file) = (directory.path().join("notify"), directory.path().join("landfast.toml"));
    secret(&file, &config(share.path(), &["alice"], ""));
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let hears = || {
        let mut said = [0; 200];
        let len = manager.recv(&mut said).unwrap();
        String::from_utf8_lossy(&said[..len]).into_owned()
    };
    let mut command = serve(&["--config", file.to_str().unwrap()]);
    let server = Served::start({
        command.env("NOTIFY_SOCKET", &path);
        command
    });
    assert_eq!(hears(), "READY=1\nSTATUS=serving");
    assert!(server.line.starts_with("listening"));
    signal(&server.child, Signal::HUP);
    assert!(hears().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(hears(), "READY=1\nSTATUS=serving");
    // A refused reload is distinguished from an accepted one.
    secret(&file, "wrong");
    signal(&server.child, Signal::HUP);
    assert!(hears().starts_with("RELOADING=1\n"));
    let refused = hears();
    assert!(refused.starts_with("READY=1\nSTATUS=serving as before: "), "{refused}");
    signal(&server.child, Signal::TERM);
    assert_eq!(hears(), "STOPPING=1");
}

#[test]
fn the_log_warns_of_loopback_rdma_beside_public_smb() {
    let share = tempfile::tempdir().unwrap();
    let server = |rdma: &str| {
        let mut command =
            program(&["serve", share.path().to_str().unwrap(), "--user", "alice:secret"]);
        command.args(["--control", "off", "--listen", "0.0.0.0:0", "--rdma-listen", rdma]);
        Served::start(command).end()
    };
    assert!(server("127.0.0.1:0").contains("neither SMB Direct nor push mode"));
    assert!(!server("0.0.0.0:0").contains("neither SMB Direct nor push mode"));
}

#[test]
fn a_server_with_run_as_does_nothing_as_root() {
    if !geteuid().is_root() {
        skip("only root can serve as another user");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let share = directory.path().join("share");
    std::fs::create_dir(&share).unwrap();
    chown(&share, Some(USER), Some(GROUP)).unwrap();
    let private = share.join("private");
    secret(&private, "of root");
    let config_file = directory.path().join("landfast.toml");
    secret(&config_file, &config(&share, &["alice"], &format!("run_as = \"{USER}:{GROUP}\"")));
    // Read by root, then by the user itself, also on SIGHUP, as docs/install.md says.
    chown(&config_file, Some(0), Some(GROUP)).unwrap();
    std::fs::set_permissions(&config_file, Permissions::from_mode(0o640)).unwrap();
    let server = Served::start(serve(&["--config", config_file.to_str().unwrap()]));
    if server.line.is_empty() {
        panic!("{}", server.end());
    }
    for task in std::fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap() {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let line = |name: &str| {
            let found = status.lines().find_map(|line| line.strip_prefix(name));
            found.unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let (user, group) = (USER.to_string(), GROUP.to_string());
        assert!(line("Uid:").iter().all(|uid| *uid == user), "{status}");
        assert!(line("Gid:").iter().all(|gid| *gid == group), "{status}");
        assert!(line("Groups:").is_empty(), "{status}");
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(line(set), ["0000000000000000"], "{set}");
        }
        assert_eq!(line("NoNewPrivs:"), ["1"]);
    }
    let url = |name: &str| format!("smb://alice:secret@{}/data/{name}", server.smb());
    let output = program(&["get", &url("private"), "-"]).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{}", said(&output));
    let mut put = program(&["put", "-", &url("new")]);
    let mut put = put.stdin(std::process::Stdio::piped()).spawn().unwrap();
    put.stdin.take().unwrap().write_all(b"new").unwrap();
    assert!(put.wait().unwrap().success());
    let made = share.join("new").metadata().unwrap();
    assert_eq!((made.uid(), made.gid()), (USER, GROUP));
    signal(&server.child, Signal::HUP);
    assert!(lists(&server, "alice", "data"));
    let said = server.end();
    assert!(!said.contains("served as root"), "{said}");
}

#[test]
fn root_accepts_group_readable_passwords_only_for_the_service_group() {
    if !geteuid().is_root() {
        skip("what is said of files of root");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let (share, file) = (directory.path().join("share"), directory.path().join("landfast.toml"));
    std::fs::create_dir(&share).unwrap();
    secret(&file, &config(&share, &["alice"], ""));
    let user = format!("{USER}:{GROUP}");
    let run = |group, mode, more: &[&str]| {
        chown(&file, Some(0), Some(group)).unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        let line = [&["--check", "--config", file.to_str().unwrap()], more].concat();
        serve(&line).output().unwrap()
    };
    let as_user = ["--run-as", user.as_str()];
    for (group, mode, more) in [(GROUP, 0o640, &as_user[..]), (GROUP, 0o640, &[]), (0, 0o600, &[])]
    {
        let output = run(group, mode, more);
        assert!(output.status.success(), "{group} {mode:o} {more:?}: {}", said(&output));
    }
    for (group, mode, more) in [
        (GROUP, 0o644, &as_user[..]),
        (GROUP, 0o644, &[]),
        (GROUP, 0o660, &as_user),
        (0, 0o640, &as_user),
        (GROUP - 1, 0o640, &as_user),
    ] {
        let output = run(group, mode, more);
        assert!(!output.status.success(), "{group} {mode:o} {more:?}");
        assert!(said(&output).contains("others may read"), "{}", said(&output));
    }
}

#[test]
fn a_share_that_the_server_user_cannot_list_is_refused() {
    if !geteuid().is_root() {
        skip("root may list everything, and only root can serve as another user");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let share = directory.path().join("share");
    std::fs::create_dir(&share).unwrap();
    std::fs::set_permissions(&share, Permissions::from_mode(0o700)).unwrap();
    let user = format!("{USER}:{GROUP}");
    let share = share.to_str().unwrap();
    let output = serve(&[share, "--user", "alice:secret", "--run-as", &user]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    for part in ["cannot export", "must be able to enter and read"] {
        assert!(said(&output).contains(part), "{}", said(&output));
    }
}

#[test]
fn a_server_with_run_as_has_its_control_socket_in_run() {
    if !geteuid().is_root() {
        skip("/run/landfast is root's");
        return;
    }
    let share = tempfile::tempdir().unwrap();
    std::fs::set_permissions(share.path(), Permissions::from_mode(0o755)).unwrap();
    let user = format!("{USER}:{GROUP}");
    let start = |more: &[&str]| {
        let mut command =
            program(&["serve", share.path().to_str().unwrap(), "--user", "alice:secret"]);
        command.args(LOOPBACK).args(more).env_remove("XDG_RUNTIME_DIR");
        Served::start(command)
    };
    let port = |server: &Served| server.smb().rsplit_once(':').unwrap().1.to_owned();
    let _of_root = start(&[]);
    let server = start(&["--run-as", &user]);
    let socket = format!("/run/landfast/{USER}/{}.sock", port(&server));
    let found = std::fs::metadata(&socket).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o777), (USER, 0o600));
    // A search by its name finds the process.
    let called = |file: &str| std::fs::read(format!("/proc/{}/{file}", server.child.id())).unwrap();
    assert_eq!(called("comm"), b"landfast\n");
    assert!(called("cmdline").split(|byte| *byte == 0).next().unwrap().ends_with(b"landfast"));
    let output = program(&["status", "--control", &socket]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    // Status finds both, so the command has to name one.
    let output = program(&["status"]).output().unwrap();
    assert!(said(&output).contains(&socket), "{}", said(&output));
}

#[test]
fn a_server_that_runs_as_root_logs_a_warning() {
    let share = tempfile::tempdir().unwrap();
    let server = Served::start(serve(&[share.path().to_str().unwrap(), "--user", "alice:secret"]));
    let warned = server.end().contains("served as root");
    assert_eq!(warned, geteuid().is_root());
}

#[test]
fn a_write_through_a_server_of_root_clears_set_id_bits() {
    if !geteuid().is_root() {
        skip("the kernel takes them away for everybody but root");
        return;
    }
    let share = tempfile::tempdir().unwrap();
    let path = share.path().join("f");
    let set = || {
        std::fs::write(&path, "of root").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o6755)).unwrap();
    };
    let mode = || path.metadata().unwrap().mode() & 0o7777;
    let server = Served::start(serve(&[share.path().to_str().unwrap(), "--user", "alice:secret"]));
    let url = format!("smb://alice:secret@{}/{}", server.smb(), "data").parse().unwrap();
    let client =
        client::blocking::Client::connect(&url, &client::ConnectOptions::default()).unwrap();
    set();
    let file = client.open("f", &client::OpenOptions::read_write()).unwrap();
    file.write_at(0, b"of a client").unwrap();
    assert_eq!(mode(), 0o755, "a WRITE");
    set();
    file.set_len(3).unwrap();
    assert_eq!(mode(), 0o755, "another size");
    file.close().unwrap();
    set();
    client.open("f", &client::OpenOptions::create()).unwrap().close().unwrap();
    assert_eq!(mode(), 0o755, "an overwrite");
    for task in std::fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap() {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let set = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim();
        assert_eq!(u64::from_str_radix(set, 16).unwrap() & FSETID, 0, "{status}");
    }
}

#[test]
fn status_finds_a_server_that_was_started_without_a_logon() {
    if !geteuid().is_root() {
        skip("/run/landfast is root's");
        return;
    }
    let (share, logon) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Started as by a service manager, and asked by a user who has logged on.
    let mut command = program(&["serve", share.path().to_str().unwrap(), "--user", "alice:secret"]);
    command.args(LOOPBACK).env_remove("XDG_RUNTIME_DIR");
    let server = Served::start(command);
    let port = server.smb().rsplit_once(':').unwrap().1.to_owned();
    let mut status = program(&["status", "--json"]);
    let output = status.env("XDG_RUNTIME_DIR", logon.path()).output().unwrap();
    // Another server may run on this machine: then status names both.
    let found =
        output.status.success() || said(&output).contains(&format!("/run/landfast/{port}.sock"));
    assert!(found, "{}", said(&output));
}

// CAP_FSETID of capabilities(7).
const FSETID: u64 = 1 << 4;

#[test]
fn a_server_continues_without_a_reader_of_its_log() {
    let share = tempfile::tempdir().unwrap();
    let (reader, log) = std::io::pipe().unwrap();
    let mut command = serve(&["-v", share.path().to_str().unwrap(), "--user", "alice:secret"]);
    command.stderr(log);
    let mut server = Served::start_silent(command);
    drop(reader);
    for _ in 0..3 {
        let wrong = format!("smb://alice:wrong@{}/data", server.smb());
        assert!(!program(&["ls", &wrong]).output().unwrap().status.success());
    }
    assert!(lists(&server, "alice", "data"));
    assert!(server.child.try_wait().unwrap().is_none());
}

#[test]
fn a_server_does_not_wait_for_a_stalled_reader_of_its_log() {
    let share = tempfile::tempdir().unwrap();
    let (reader, log) = std::io::pipe().unwrap();
    // The pipe is soon full.
    let mut command = serve(&["-vvv", share.path().to_str().unwrap(), "--user", "alice:secret"]);
    command.stderr(log);
    let server = Served::start_silent(command);
    for _ in 0..100 {
        assert!(lists(&server, "alice", "data"));
    }
    drop(reader);
}

#[test]
fn a_server_refuses_to_start_with_an_empty_password() {
    let directory = tempfile::tempdir().unwrap();
    let share = directory.path().to_str().unwrap();
    let file = directory.path().join("landfast.toml");
    secret(&file, &config(directory.path(), &["alice"], "").replace("\"secret\"", "\"\""));
    for arguments in [vec![share, "--user", "alice:"], vec!["--config", file.to_str().unwrap()]] {
        let server = Served::start(serve(&arguments));
        assert_eq!(server.line, "", "it listens: {arguments:?}");
        let said = server.end();
        assert!(said.contains("password of user \"alice\""), "{said}");
    }
}

#[test]
fn a_reload_adds_no_share_that_contains_the_capture() {
    let directory = tempfile::tempdir().unwrap();
    let (file, share) = (directory.path().join("landfast.toml"), directory.path().join("share"));
    let more = directory.path().join("more");
    for path in [&share, &more] {
        std::fs::create_dir(path).unwrap();
    }
    secret(&file, &config(&share, &["alice"], ""));
    let capture = more.join("rdma.pcap");
    let mut command = serve(&["--config", file.to_str().unwrap()]);
    command.args(["--pcap", capture.to_str().unwrap()]);
    let server = Served::start(command);
    let added = format!("\n[[share]]\nname = \"more\"\npath = \"{}\"\n", more.display());
    secret(&file, &(config(&share, &["alice"], "") + &added));
    signal(&server.child, Signal::HUP);
    until("the reload has ended", || server.said().contains("SIGHUP"));
    assert!(!lists(&server, "alice", "more") && lists(&server, "alice", "data"));
    let said = server.end();
    assert!(said.contains("rdma.pcap") && said.contains("goes on as it was"), "{said}");
}

#[test]
fn a_file_beyond_the_limit_of_the_process_is_an_error_of_its_client() {
    let directory = tempfile::tempdir().unwrap();
    let (file, share) = (directory.path().join("landfast.toml"), directory.path().join("share"));
    std::fs::create_dir(&share).unwrap();
    secret(&file, &config(&share, &["alice"], ""));
    let long = directory.path().join("long");
    std::fs::write(&long, vec![7; 3 << 20]).unwrap();
    let mut limited = std::process::Command::new("sh");
    limited.args([
        "-c",
        "ulimit -f 100 && exec \"$@\"",
        "sh",
        env!("CARGO_BIN_EXE_landfast"),
        "serve",
    ]);
    limited.args(LOOPBACK).args(["--control", "off", "--config"]).arg(&file);
    limited.env_remove("RUST_LOG").stdin(std::process::Stdio::null());
    let server = Served::start(limited);
    let url = format!("smb://alice:secret@{}/data/long", server.smb());
    let put = program(&["put", long.to_str().unwrap(), &url]).output().unwrap();
    assert!(!put.status.success(), "{}", said(&put));
    assert!(lists(&server, "alice", "data"), "{}", said(&put));
}
