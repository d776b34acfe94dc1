//! A volume as a file of a share: our client, smbclient, the lock, and the settings that are refused.
#![cfg(test)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use client::blocking::Client;
use client::{ConnectOptions, OpenOptions, RegionSettings};
use rustix::process::Signal;
use smb::NtStatus;
use smb::push::{Durability, PushRequest, Rights};
use support::skipped::skip;
use support::{Served, program, said, signal, until};

/// A directory with a share and a volume, in memory that counts as persistent.
struct Site {
    directory: tempfile::TempDir,
}

impl Site {
    fn new(mode: &str) -> Self {
        let site = Self { directory: tempfile::tempdir_in("/dev/shm").unwrap() };
        fs::create_dir(site.share()).unwrap();
        let volume = site.volume();
        let words = ["volume", "create", volume.to_str().unwrap(), "--size", "20M", "--mode", mode];
        let made = program(&[&words[..], &["--emulate-persistence"]].concat()).output().unwrap();
        assert!(made.status.success(), "{}", said(&made));
        site
    }

    fn share(&self) -> PathBuf {
        self.directory.path().join("share")
    }

    fn volume(&self) -> PathBuf {
        self.directory.path().join("disk0")
    }

    fn command(&self, volumes: &[&str], more: &[&str]) -> Command {
        let share = format!("data={}", self.share().display());
        let mut words = vec!["serve", "--share", &share, "--user", "alice:secret"];
        words.extend(["--listen", "127.0.0.1:0", "--rdma-listen", "127.0.0.1:0"]);
        words.extend(["--control", "off", "--emulate-persistence"]);
        volumes.iter().for_each(|volume| words.extend(["--volume", volume]));
        words.extend(more);
        program(&words)
    }

    fn serve(&self) -> Served {
        let volume = format!("data=disk={}", self.volume().display());
        Served::start(self.command(&[&volume], &[]))
    }

    fn refused(&self, volumes: &[&str], more: &[&str]) -> String {
        let output = self.command(volumes, more).output().unwrap();
        assert!(!output.status.success());
        said(&output)
    }
}

fn client(server: &Served) -> Client {
    let url = format!("smb://alice:secret@{}/data", server.smb()).parse().unwrap();
    Client::connect(&url, &ConnectOptions::default()).unwrap()
}

fn smbclient(server: &Served, commands: &str) -> Output {
    let (_, port) = server.smb().rsplit_once(':').unwrap();
    let mut command = Command::new("smbclient");
    command.args(["//127.0.0.1/data", "-U", "alice%secret", "-p", port, "-c", commands]);
    command.output().unwrap()
}

#[test]
fn a_volume_that_changes_while_it_is_copied_is_an_error() {
    let site = Site::new("file");
    let server = site.serve();
    let url = format!("smb://alice:secret@{}/data/disk", server.smb());
    let copy = site.directory.path().join("copy");
    let get = || program(&["get", &url, copy.to_str().unwrap()]).output().unwrap();
    let client = client(&server);
    let file = client.open("disk", &OpenOptions::read_write()).unwrap();
    file.write_at(0, &[1]).unwrap();
    let ended = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Acquire) {
                file.write_at(19 << 20, &[2; 512]).unwrap();
            }
        });
        let output = get();
        ended.store(true, Ordering::Release);
        output
    });
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("changed while it was copied"), "{}", said(&output));
    assert!(!copy.exists());
    let output = get();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn a_volume_is_a_file_of_fixed_length_that_other_programs_can_use_afterwards() {
    for mode in ["block", "file"] {
        let site = Site::new(mode);
        let server = site.serve();
        let client = client(&server);
        let listed = client.list("").unwrap();
        let entry = listed.iter().find(|entry| entry.name.to_string() == "disk").unwrap();
        let file = client.open("disk", &OpenOptions::read_write()).unwrap();
        let len = file.stat().unwrap().len;
        assert_eq!(entry.end_of_file, len);
        assert!(len > 16 << 20 && len.is_multiple_of(4096), "{len}");
        // Not by sectors: the first and the last are written in part.
        let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
        file.write_at(1_000_001, &bytes).unwrap();
        file.flush().unwrap();
        let mut out = vec![1; 300_002];
        assert_eq!(file.read_at(1_000_000, &mut out).unwrap(), out.len());
        assert_eq!((out[0], &out[1..300_001], out[300_001]), (0, &bytes[..], 0));
        let status =
            |result: Result<(), client::ClientError>| result.unwrap_err().status().unwrap();
        assert_eq!(status(file.write_at(len - 1, b"xy")), NtStatus::DISK_FULL);
        assert_eq!(status(file.set_len(4096)), NtStatus::NOT_SUPPORTED);
        file.close().unwrap();
        assert_eq!(status(client.delete("disk")), NtStatus::CANNOT_DELETE);
        assert_eq!(status(client.rename("disk", "other", false)), NtStatus::CANNOT_DELETE);
        // Push mode is refused, and the region works by messages.
        let push = PushRequest {
            rights: Rights::READ | Rights::WRITE | Rights::FLUSH,
            durability: Durability::ANY,
            accept_emulated: true,
            regions_max: 1,
        };
        let options = OpenOptions::read_write().with_push(push);
        let mut region =
            client.map("disk", &options, 0..65_536, RegionSettings::default()).unwrap();
        assert!(!matches!(region.path(), client::Path::Push { .. }), "{:?}", region.path());
        region.write(5, b"by message").unwrap();
        region.commit(5, 10).unwrap();
        drop((region, client));
        // While it is served nobody else has it.
        let volume = site.volume();
        let check = ["volume", "check", volume.to_str().unwrap()];
        if mode == "block" {
            let output = program(&check).output().unwrap();
            assert!(
                !output.status.success() && said(&output).contains("in use"),
                "{}",
                said(&output)
            );
        }
        signal(&server.child, Signal::KILL);
        drop(server);
        if mode == "block" {
            let output = program(&check).output().unwrap();
            assert!(output.status.success(), "{}", said(&output));
        } else {
            assert_eq!(fs::read(&volume).unwrap()[5..15], *b"by message");
        }
        let server = site.serve();
        let file = self::client(&server).open("disk", &OpenOptions::read()).unwrap();
        let mut out = [0; 10];
        assert_eq!(file.read_at(5, &mut out).unwrap(), 10);
        assert_eq!(out, *b"by message");
    }
}

#[test]
fn smbclient_lists_and_gets_a_volume() {
    if Command::new("smbclient").arg("-V").output().is_err() {
        skip("smbclient is not installed");
        return;
    }
    let site = Site::new("block");
    let server = site.serve();
    let file = client(&server).open("disk", &OpenOptions::read_write()).unwrap();
    file.write_at(123_456, b"for smbclient").unwrap();
    let len = file.stat().unwrap().len;
    drop(file);
    let got = site.directory.path().join("got");
    let output = smbclient(&server, &format!("ls; get disk {}", got.display()));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains(&format!("{len} ")), "{text}");
    let bytes = fs::read(got).unwrap();
    assert_eq!((bytes.len() as u64, &bytes[123_456..123_469]), (len, &b"for smbclient"[..]));
    // It replaces a file by emptying it, which a volume refuses.
    let local = site.directory.path().join("small");
    fs::write(&local, "small").unwrap();
    for command in [format!("put {} disk", local.display()), "rm disk".to_owned()] {
        let output = smbclient(&server, &command);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains("NT_STATUS_"), "{command}: {text}");
    }
    assert_eq!(client(&server).stat("disk").unwrap().len, len);
}

#[test]
fn a_server_that_cannot_show_a_volume_says_which_and_does_not_start() {
    let site = Site::new("file");
    let volume = site.volume();
    let named = |name: &str| format!("data={name}={}", volume.display());
    fs::write(site.share().join("taken"), "bytes").unwrap();
    let said = site.refused(&[&named("taken")], &[]);
    assert!(said.contains("taken"), "{said}");
    assert!(site.refused(&["data=/nowhere/disk"], &[]).contains("/nowhere/disk"));
    assert!(site.refused(&["other=/nowhere/disk"], &[]).contains("no share of this name"));
    let twice = site.refused(&[&named("one"), &named("two")], &[]);
    assert!(twice.contains("named twice"), "{twice}");
    // Another share whose clients would reach the bare bytes.
    let bare = format!("bare={}", site.directory.path().display());
    let said = site.refused(&[&named("disk")], &["--share", &bare]);
    assert!(said.contains("lies in the share"), "{said}");
    // A server that has it; --check beside it is content.
    let first = site.serve();
    assert!(site.refused(&[&named("disk")], &[]).contains("in use"));
    let checked = site.command(&[&named("disk")], &["--check"]).output().unwrap();
    assert!(String::from_utf8_lossy(&checked.stdout).contains("volumes disk"), "{checked:?}");
    drop(first);
}

#[test]
fn a_config_that_is_read_again_keeps_its_volumes_and_takes_more() {
    let site = Site::new("file");
    let config = site.directory.path().join("landfast.toml");
    let more = site.directory.path().join("more");
    fs::create_dir(&more).unwrap();
    let second = site.directory.path().join("disk1");
    fs::File::create(&second).unwrap().set_len(1 << 20).unwrap();
    let share = |name: &str, path: &Path, volume: &Path| {
        format!(
            "[[share]]\nname = {name:?}\npath = {path:?}\n[[share.volume]]\nname = \"disk\"\npath = {volume:?}\n"
        )
    };
    let users = site.directory.path().join("users");
    let mut passwd = program(&["passwd", users.to_str().unwrap(), "alice"]);
    passwd.stdin(std::process::Stdio::piped());
    let mut child = passwd.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"secret\n").unwrap();
    assert!(child.wait().unwrap().success());
    let head = format!(
        "control = \"off\"\nemulate_persistence = true\nusers_file = {users:?}\nlisten = \"127.0.0.1:0\"\n\
         rdma_listen = \"127.0.0.1:0\"\n"
    );
    let first = share("data", &site.share(), &site.volume());
    fs::write(&config, format!("{head}{first}")).unwrap();
    let server = Served::start(program(&["serve", "--config", config.to_str().unwrap()]));
    let held = client(&server).open("disk", &OpenOptions::read_write()).unwrap();
    fs::write(&config, format!("{head}{first}{}", share("more", &more, &second))).unwrap();
    signal(&server.child, Signal::HUP);
    let url = format!("smb://alice:secret@{}/more", server.smb()).parse().unwrap();
    until("there is another share", || Client::connect(&url, &ConnectOptions::default()).is_ok());
    let client = Client::connect(&url, &ConnectOptions::default()).unwrap();
    assert_eq!(client.stat("disk").unwrap().len, 1 << 20);
    held.write_at(0, b"still here").unwrap();
}
