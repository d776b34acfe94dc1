//! `landfast replica` as a process.
#![cfg(test)]

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;
use support::{signal, until};

fn landfast(directory: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfast"));
    command.arg("replica").args(words).current_dir(directory).output().unwrap()
}

#[test]
fn a_volume_in_memory_that_a_power_failure_erases_is_refused_though_its_log_is_on_a_disk() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let volume = memory.path().join("data");
    let member = format!("alpha=127.0.0.1:0,{}", disk.path().join("alpha").display());
    let create =
        ["create", "db.toml", "--volume", "data=1M", "--log-size", "4M", "--member", &member];
    assert!(landfast(disk.path(), &create).status.success());
    let file = disk.path().join("db.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}volumes = [{:?}]\n", volume.display().to_string())).unwrap();
    assert!(landfast(disk.path(), &["prepare", "db.toml", "alpha"]).status.success());
    let refused = landfast(disk.path(), &["serve", "db.toml", "alpha"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success());
    assert!(
        said.contains(&volume.display().to_string()) && said.contains("power failure"),
        "{said}"
    );
}

/// A member as a process, killed when dropped.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Starts `landfast replica` and reads its output up to the first line that has `mark`.
    fn until(directory: &Path, words: &[&str], mark: &str) -> (Self, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfast"));
        command.arg("replica").args(words).current_dir(directory);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        // Both streams into one, as the lines looked for come on either.
        let stderr = child.stderr.take().unwrap();
        let (lines, found) = std::sync::mpsc::channel();
        for stream in [Box::new(stdout) as Box<dyn std::io::Read + Send>, Box::new(stderr)] {
            let lines = lines.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let _ = lines.send(line);
                }
            });
        }
        drop(lines);
        let running = Self(child);
        let line = found.iter().find(|line| line.contains(mark)).expect("the line comes");
        (running, line)
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn create(directory: &Path, addresses: [&str; 2]) {
    let member =
        |name: &str, address| format!("{name}={address},{}", directory.join(name).display());
    let (alpha, beta) = (member("alpha", addresses[0]), member("beta", addresses[1]));
    let words = ["create", "db.toml", "--volume", "data=1M", "--log-size", "4M"];
    let words = words.into_iter().chain(["--member", &alpha, "--member", &beta]);
    let created = landfast(directory, &words.collect::<Vec<_>>());
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
}

#[test]
fn a_topology_is_measured_between_two_processes_and_written_as_json_and_a_page() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // The answering end says which port it got: the file then names that.
    create(disk.path(), ["127.0.0.1:0", "127.0.0.1:0"]);
    let (_answering, line) =
        Running::until(disk.path(), &["test-topology", "db.toml", "beta", "--answer"], "answers");
    let address = line.split_whitespace().find(|word| word.starts_with("127.0.0.1:")).unwrap();
    let address = address.trim_end_matches(',');
    let file = disk.path().join("db.toml");
    let text = fs::read_to_string(&file).unwrap();
    let (before, beta) = text.split_at(text.rfind("127.0.0.1:0").unwrap());
    fs::write(&file, format!("{before}{}", beta.replacen("127.0.0.1:0", address, 1))).unwrap();
    let measured = landfast(disk.path(), &["test-topology", "db.toml", "alpha", "--seconds", "1"]);
    let said = String::from_utf8_lossy(&measured.stdout);
    assert!(measured.status.success(), "{}", String::from_utf8_lossy(&measured.stderr));
    assert!(said.contains("round trip: p50") && said.contains("log_size recommended"), "{said}");
    let json = fs::read(disk.path().join("db-alpha-beta.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["destination"], "beta");
    assert_eq!(json["link"]["streams"].as_array().unwrap().len(), 3);
    let page = fs::read_to_string(disk.path().join("db-alpha-beta.html")).unwrap();
    assert!(page.starts_with("<!doctype html>"));
}

#[test]
fn a_measurement_that_nobody_answers_says_what_to_start() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // Port 1 of loopback: nobody listens there.
    create(disk.path(), ["127.0.0.1:0", "127.0.0.1:1"]);
    let refused = landfast(disk.path(), &["test-topology", "db.toml", "alpha", "--seconds", "1"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("--answer"), "{said}");
}

#[test]
fn a_member_tells_its_figures_over_http() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    create(disk.path(), ["127.0.0.1:0", "127.0.0.1:1"]);
    assert!(landfast(disk.path(), &["prepare", "db.toml", "alpha"]).status.success());
    let words = ["serve", "db.toml", "alpha", "--metrics", "127.0.0.1:0"];
    let (_member, line) = Running::until(disk.path(), &words, "metrics=");
    let address = line.split_whitespace().find_map(|word| word.strip_prefix("metrics=")).unwrap();
    let ask = |request: &str| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let found = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(found.starts_with("HTTP/1.1 200"), "{found}");
    for line in [
        "landfast_replica_is_source{group=\"db\"} 0.0",
        "landfast_replica_lsn{group=\"db\",at=\"durable\"} ",
    ] {
        assert!(found.contains(line), "{line} in {found}");
    }
    assert!(ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(ask("PUT /metrics HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 405"));
    assert!(ask("nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
}

#[test]
fn a_volume_is_made_longer_by_a_command_and_its_member_remembers_that() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    create(disk.path(), ["127.0.0.1:0", "127.0.0.1:1"]);
    assert!(landfast(disk.path(), &["prepare", "db.toml", "alpha"]).status.success());
    let said = |words: &[&str]| {
        let done = landfast(disk.path(), words);
        let text = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8(text).unwrap())
    };
    let serve = ["serve", "db.toml", "alpha"];
    {
        let (_member, _) = Running::until(disk.path(), &serve, "member alpha at");
        let (is_done, text) = said(&["resize", "db.toml", "data", "2M"]);
        assert!(!is_done && text.contains("not the source"), "{text}");
        let (is_done, text) = said(&["promote", "db.toml", "--force"]);
        assert!(is_done, "{text}");
        let (is_done, text) = said(&["resize", "db.toml", "data", "2M"]);
        assert!(is_done && text.contains("2097152"), "{text}");
        let (is_done, text) = said(&["resize", "db.toml", "data", "1M"]);
        assert!(!is_done && text.contains("only grows"), "{text}");
        let (is_done, text) = said(&["resize", "db.toml", "other", "4M"]);
        assert!(!is_done && text.contains("other"), "{text}");
    }
    let (_member, _) = Running::until(disk.path(), &serve, "member alpha at");
    let (_, text) = said(&["status", "db.toml", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status["volumes"][0]["bytes"], 2_097_152, "{text}");
}

#[test]
fn an_exported_group_is_made_again_with_every_key_of_its_file() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    create(disk.path(), ["127.0.0.1:0", "127.0.0.1:1"]);
    let file = disk.path().join("db.toml");
    let text = fs::read_to_string(&file).unwrap();
    // Keys that `create` has no options for.
    let changed = text.replace("window = \"16M\"", "window = \"32M\"");
    let changed = changed.replace("retention_s = 0", "retention_s = 60");
    assert_ne!(changed, text);
    fs::write(&file, changed).unwrap();
    let script = landfast(disk.path(), &["export", "db.toml"]);
    assert!(script.status.success());
    let script = String::from_utf8(script.stdout).unwrap();
    let before = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let cat = script.lines().take_while(|line| !line.starts_with('#'));
    let cat = cat.collect::<Vec<_>>().join("\n");
    let made = Command::new("sh").arg("-c").arg(cat).current_dir(disk.path()).status().unwrap();
    assert!(made.success());
    assert_eq!(fs::read_to_string(&file).unwrap().trim_end(), before.trim_end());
    assert!(script.ends_with("prepare db.toml alpha\nlandfast replica prepare db.toml beta\n"));
}

#[test]
fn members_added_at_once_are_all_there() {
    let directory = tempfile::tempdir().unwrap();
    let real = directory.path().join("real");
    fs::create_dir(&real).unwrap();
    create(&real, ["127.0.0.1:1", "127.0.0.1:2"]);
    let (file, link) = (real.join("db.toml"), directory.path().join("db.toml"));
    fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
    symlink("real/db.toml", &link).unwrap();
    let add = |number: u8| {
        let member = format!("m{number}=127.0.0.1:{},/nowhere/{number}", 100 + u16::from(number));
        landfast(directory.path(), &["add", "db.toml", &member])
    };
    std::thread::scope(|scope| {
        let adding: Vec<_> = (0..6).map(|number| scope.spawn(move || add(number))).collect();
        for one in adding {
            let output = one.join().unwrap();
            assert!(output.status.success(), "{}", stderr(&output));
        }
    });
    let text = fs::read_to_string(&file).unwrap();
    for number in 0..6 {
        assert!(text.contains(&format!("\"m{number}\"")), "{number}: {text}");
        assert!(text.contains(&format!("number = {}\n", number + 2)), "{number}: {text}");
    }
    assert!(link.is_symlink());
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    let output = landfast(directory.path(), &["remove", "db.toml", "m3"]);
    assert!(output.status.success() && link.is_symlink(), "{}", stderr(&output));
    assert!(!fs::read_to_string(&file).unwrap().contains("\"m3\""));
}

#[test]
fn a_group_that_is_refused_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    create(directory.path(), ["127.0.0.1:1", "127.0.0.1:2"]);
    let file = directory.path().join("db.toml");
    fs::remove_file(&file).unwrap();
    let again = ["create", "db.toml", "--volume", "data=1M"];
    let members = ["--member", "a=127.0.0.1:1,/nowhere/a"];
    let output = landfast(directory.path(), &[&again[..], &members].concat());
    assert!(!output.status.success(), "its secret is there");
    assert!(!file.exists(), "{}", stderr(&output));
}

/// A client of NBD whose write waits: another request behind it is answered before it. None if the write is refused.
fn waiting_write(socket: &Path) -> Option<UnixStream> {
    let mut stream = UnixStream::connect(socket).ok()?;
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).ok()?;
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
    // Fixed newstyle, no zeroes; NBD_OPT_EXPORT_NAME.
    let option = [&b"IHAVEOPT"[..], &1_u32.to_be_bytes(), &4_u32.to_be_bytes(), b"data"].concat();
    stream.write_all(&[&3_u32.to_be_bytes()[..], &option].concat()).ok()?;
    stream.read_exact(&mut [0; 10]).ok()?;
    let request = |kind: u8, cookie: u64, len: u32| {
        let head = [&0x2560_9513_u32.to_be_bytes()[..], &[0, 0, 0, kind], &cookie.to_be_bytes()];
        [&head.concat()[..], &0_u64.to_be_bytes(), &len.to_be_bytes()].concat()
    };
    let unknown = request(99, 8, 0);
    stream.write_all(&[&request(1, 7, 4096)[..], &[7; 4096], &unknown].concat()).ok()?;
    let mut answer = [0; 16];
    stream.read_exact(&mut answer).ok()?;
    (answer[8..] == 8_u64.to_be_bytes()).then_some(stream)
}

#[test]
fn a_member_whose_writes_wait_ends_with_sigterm() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    create(disk.path(), ["127.0.0.1:0", "127.0.0.1:1"]);
    let file = disk.path().join("db.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("least_in_sync = 1", "least_in_sync = 2")).unwrap();
    assert!(landfast(disk.path(), &["prepare", "db.toml", "alpha"]).status.success());
    let words = ["serve", "db.toml", "alpha", "--unix", "sock"];
    let (mut member, _) = Running::until(disk.path(), &words, "member alpha at");
    let promoted = landfast(disk.path(), &["promote", "db.toml", "--force"]);
    assert!(promoted.status.success(), "{}", stderr(&promoted));
    let mut waiting = None;
    until("a write waits", || {
        waiting = waiting_write(&disk.path().join("sock"));
        waiting.is_some()
    });
    signal(&member.0, Signal::TERM);
    assert!(member.0.wait().unwrap().success());
    // What waited is not said to be there.
    let mut answer = [0; 16];
    if waiting.unwrap().read_exact(&mut answer).is_ok() {
        assert_ne!(answer[4..8], [0; 4], "an error");
    }
}
