//! `serve --check`: what a start would refuse, it refuses, by the same words, and changes nothing.
#![cfg(test)]

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

use rustix::process::geteuid;
use support::configs::{GROUP, USER, config, secret};
use support::skipped::skip;
use support::{Served, program, said};

struct Site(tempfile::TempDir);

impl Site {
    fn new() -> Self {
        let site = Self(tempfile::tempdir_in("/dev/shm").unwrap());
        for name in ["share", "other", "directory"] {
            fs::create_dir(site.0.path().join(name)).unwrap();
        }
        fs::write(site.path("garbage"), [7; 4096]).unwrap();
        site
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// The names below the site, with their lengths.
    fn found(&self) -> Vec<(String, u64)> {
        let mut found = Vec::new();
        let mut left = vec![self.0.path().to_owned()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
                let metadata = entry.metadata().unwrap();
                found.push((entry.path().display().to_string(), metadata.len()));
                if metadata.is_dir() {
                    left.push(entry.path());
                }
            }
        }
        found.sort();
        found
    }

    /// The error lines of a check and of a start, which both fail.
    fn refused(&self, more: &[&str]) -> [String; 2] {
        [&["--check"][..], &[]].map(|check| {
            let mut words = vec!["serve", "--user", "alice:secret", "--emulate-persistence"];
            words.extend(["--listen", "127.0.0.1:0", "--rdma-listen", "127.0.0.1:0"]);
            words.extend(check.iter().chain(more));
            let before = self.found();
            let output = program(&words).output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{words:?}: {}", said(&output));
            if !check.is_empty() {
                assert_eq!(self.found(), before, "{words:?}");
            }
            let said = said(&output);
            let line = said.lines().find(|line| line.starts_with("landfast: ")).unwrap_or(&said);
            // A failure inside a directory that was to be made for a moment names that, too.
            line.split(" at path ").next().unwrap().to_owned()
        })
    }

    fn refuses_alike(&self, more: &[&str], part: &str) {
        let [checked, started] = self.refused(more);
        assert_eq!(checked, started, "{more:?}");
        assert!(checked.contains(part), "{part}: {checked}");
    }
}

#[test]
fn a_check_refuses_logs_of_opens_that_a_start_would_refuse() {
    let site = Site::new();
    let config = site.path("landfast.toml");
    let share = |name: &str, log: &str| {
        let path = site.path(name);
        format!("[[share]]\nname = {name:?}\npath = {path:?}\npersistent_opens = {log:?}\n")
    };
    fs::write(site.path("short"), "LFOP").unwrap();
    std::os::unix::fs::symlink("garbage", site.path("link")).unwrap();
    fs::create_dir(site.path("beside.new")).unwrap();
    for log in
        ["nowhere/opens", "directory", "garbage", "short", "link", "opens.new", "slash/", "beside"]
    {
        fs::write(&config, share("share", &site.path(log))).unwrap();
        site.refuses_alike(&["--config", &config], "cannot keep persistent opens in");
    }
    let [one, same] = ["opens", "directory/../opens"].map(|log| site.path(log));
    fs::write(&config, share("share", &one) + &share("other", &same)).unwrap();
    site.refuses_alike(&["--config", &config], "another share, keeps its opens there");
}

#[test]
fn a_check_refuses_a_control_socket_and_a_capture_that_a_start_would_refuse() {
    let site = Site::new();
    let (share, long) = (site.path("share"), site.path(&"n".repeat(100)));
    let open_to_all = Permissions::from_mode(0o777);
    fs::set_permissions(site.path("garbage"), open_to_all).unwrap();
    let names = ["nowhere/socket", "garbage", "directory", "slash/", "garbage/below"];
    for path in names.map(|name| site.path(name)) {
        site.refuses_alike(&[&share, "--control", &path], "cannot open the control socket");
    }
    let checked = &site.refused(&[&share, "--control", &long])[0];
    assert!(checked.contains("cannot open the control socket"), "{checked}");
    std::os::unix::fs::symlink("nowhere/capture", site.path("lost")).unwrap();
    let names = ["nowhere/capture", "garbage", "directory", "slash/", "lost"];
    for path in names.map(|name| site.path(name)) {
        site.refuses_alike(&[&share, "--control", "off", "--pcap", &path], &path);
    }
    let words = [&*share, "--control", "off", "--rdma-provider", "verbs", "--pcap", "/dev/null"];
    site.refuses_alike(&words, "byte stream");
}

#[test]
fn a_capture_in_a_share_is_refused_and_leaves_no_file_there() {
    let site = Site::new();
    std::os::unix::fs::symlink("share/led", site.path("link")).unwrap();
    let share = site.path("share");
    for capture in ["share/capture", "link"].map(|name| site.path(name)) {
        let words = [&*share, "--control", "off", "--pcap", &capture];
        site.refuses_alike(&words, "lies in the share");
        assert_eq!(fs::read_dir(&share).unwrap().count(), 0, "{capture}");
    }
}

#[test]
fn a_capture_into_a_pipe_needs_a_reader_and_ends_with_its_server() {
    let site = Site::new();
    let (share, pipe) = (site.path("share"), site.path("pipe"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &*pipe, 0o600.into()).unwrap();
    let mut words = vec!["serve", "--user", "alice:secret", "--emulate-persistence", "--control"];
    words.extend(["off", "--listen", "127.0.0.1:0", "--rdma-listen", "127.0.0.1:0"]);
    words.extend([&*share, "--pcap", &pipe]);
    let output = program(&words).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("nobody reads the pipe"), "{}", said(&output));
    let checked = program(&[&words[..], &["--check"]].concat()).output().unwrap();
    assert!(checked.status.success(), "{}", said(&checked));
    assert!(said(&checked).contains("begins only where somebody reads it"), "{}", said(&checked));
    let nonblocking = rustix::fs::OFlags::NONBLOCK;
    let _reader = rustix::fs::open(&*pipe, nonblocking, rustix::fs::Mode::empty()).unwrap();
    let served = Served::start(program(&words));
    assert!(served.line.contains("smb="), "{}", served.line);
    served.end();
}

#[test]
fn a_check_refuses_the_verbs_without_libraries_or_an_adapter_as_a_start_does() {
    let site = Site::new();
    let share = site.path("share");
    let words = ["--control", "off", "--rdma-provider", "verbs", &share];
    if Path::new("/sys/class/infiniband").is_dir() {
        skip("this machine may have an adapter");
        return;
    }
    site.refuses_alike(&words, "");
}

#[test]
fn a_check_refuses_names_and_damage_of_volumes_that_a_start_would_refuse() {
    let site = Site::new();
    for name in ["one", "two"] {
        let words = ["volume", "create", &site.path(name), "--size", "64M", "--mode", "block"];
        let made = program(&[&words[..], &["--emulate-persistence"]].concat()).output().unwrap();
        assert!(made.status.success(), "{}", said(&made));
    }
    fs::write(site.path("share/taken"), "bytes").unwrap();
    let (share, other) =
        (format!("data={}", site.path("share")), format!("bare={}", site.path("")));
    let named = |name: &str, file: &str| format!("data={name}={}", site.path(file));
    let refuses = |words: &[&str], part: &str| {
        site.refuses_alike(&[&["--control", "off", "--share", &share][..], words].concat(), part);
    };
    refuses(&["--volume", &named("d", "one"), "--volume", &named("D", "two")], "\"D\"");
    refuses(&["--volume", &named("taken", "one")], "taken");
    refuses(&["--volume", &named("a/b", "one")], "a/b");
    refuses(&["--volume", &named("d", "one"), "--share", &other], "lies in the share");
    fs::OpenOptions::new().write(true).open(site.path("two")).unwrap().set_len(32 << 20).unwrap();
    refuses(&["--volume", &named("d", "two")], "cannot share the volume");
}

#[test]
fn a_check_beside_the_server_that_runs_is_content_and_takes_nothing_from_it() {
    let site = Site::new();
    let (config, log, share) = (site.path("landfast.toml"), site.path("opens"), site.path("share"));
    let text =
        format!("[[share]]\nname = \"data\"\npath = {share:?}\npersistent_opens = {log:?}\n");
    fs::write(&config, text).unwrap();
    let (control, capture) = (site.path("socket"), site.path("capture"));
    let mut words =
        vec!["serve", "--config", &config, "--user", "alice:secret", "--pcap", &capture];
    words.extend([
        "--control",
        &control,
        "--listen",
        "127.0.0.1:0",
        "--rdma-listen",
        "127.0.0.1:0",
    ]);
    words.push("--emulate-persistence");
    let server = Served::start(program(&words));
    let before = site.found();
    let output = program(&[&words[..], &["--check"]].concat()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(site.found(), before);
    drop(server);
    // What an earlier server has left stands in nobody's way either.
    let output = program(&[&words[..], &["--check"]].concat()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    drop(Served::start(program(&words)));
}

#[test]
fn a_check_prints_the_shares_and_binds_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (file, share) = (directory.path().join("landfast.toml"), directory.path().join("share"));
    fs::create_dir(&share).unwrap();
    let path = file.to_str().unwrap();
    let opens = directory.path().join("opens");
    let log = format!("persistent_opens = \"{}\"\nreaders = [\"alice\"]\n", opens.display());
    let (exported, accounts) = (config(&share, &[], ""), config(&share, &["alice"], ""));
    secret(&file, &(exported.clone() + &log + &accounts[exported.len()..]));
    // The server that would be started.
    let words = ["--listen", "127.0.0.1:0", "--rdma-listen", "127.0.0.1:0", "--control", "off"];
    let server = Served::start(program(&[&["serve", "--config", path], &words[..]].concat()));
    let check = |arguments: &[&str]| {
        let more = ["--check", "--listen", server.smb(), "--control", "off"];
        program(&[&["serve"], &more[..], arguments].concat()).output().unwrap()
    };
    let output = check(&["--config", path]);
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let line = format!("share data: {}, class ", share.display());
    for part in [&*line, ", readers alice", "persistent opens", server.smb()] {
        assert!(text.contains(part), "{part}: {text}");
    }
    drop(server);
    fs::remove_file(&opens).unwrap();
    let check = |arguments: &[&str]| {
        program(&[&["serve", "--check"], arguments].concat()).output().unwrap()
    };
    assert!(check(&["--config", path]).status.success());
    assert!(!opens.exists(), "nothing is made");
    secret(&file, "[[share]\n");
    for (arguments, part) in [
        (vec!["--config", path], "config file"),
        (vec!["/nowhere", "--user", "alice:secret"], "cannot export /nowhere"),
        (vec![share.to_str().unwrap()], "nobody could log on"),
    ] {
        let output = check(&arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(said(&output).contains(part), "{part}: {}", said(&output));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_check_with_run_as_reads_as_that_user() {
    if !geteuid().is_root() {
        skip("only root can serve as another user");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let (share, file) = (directory.path().join("share"), directory.path().join("landfast.toml"));
    fs::create_dir(&share).unwrap();
    fs::set_permissions(&share, Permissions::from_mode(0o700)).unwrap();
    let users = directory.path().join("users");
    let more = format!("run_as = \"{USER}:{GROUP}\"\nusers_file = \"{}\"", users.display());
    secret(&file, &config(&share, &["alice"], &more));
    secret(&users, "");
    let check =
        || program(&["serve", "--check", "--config", file.to_str().unwrap()]).output().unwrap();
    // Only root may read the file.
    let output = check();
    assert_eq!(output.status.code(), Some(1));
    for part in ["cannot read", "as the user of run_as", "landfast.toml"] {
        assert!(said(&output).contains(part), "{part}: {}", said(&output));
    }
    chown(&file, Some(0), Some(GROUP)).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    let output = check();
    for part in ["cannot read the users", "as the user of run_as"] {
        assert!(said(&output).contains(part), "{part}: {}", said(&output));
    }
    chown(&users, Some(USER), Some(GROUP)).unwrap();
    let output = check();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("must be able to enter and read"), "{}", said(&output));
    chown(&share, Some(USER), Some(GROUP)).unwrap();
    let output = check();
    assert!(output.status.success() && !said(&output).contains("as root"), "{}", said(&output));
}
