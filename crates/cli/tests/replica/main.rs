//! `landfast replica` as a process.
#![cfg(test)]

mod topology;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

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

/// Ports that are free now, each asked for while the others are held.
fn free_addresses() -> [String; 2] {
    let held = [0, 1].map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    held.map(|listener| listener.local_addr().unwrap().to_string())
}

/// A group of two members that run, alpha the source, beta in sync.
fn running_group(disk: &Path) -> [Running; 2] {
    let addresses = free_addresses();
    create(disk, [&addresses[0], &addresses[1]]);
    let members = ["alpha", "beta"].map(|name| {
        assert!(landfast(disk, &["prepare", "db.toml", name]).status.success());
        let words = ["serve", "db.toml", name];
        Running::until(disk, &words, &format!("member {name} at")).0
    });
    let (is_done, text) = said(disk, &["promote", "db.toml", "--at", "alpha", "--force"]);
    assert!(is_done, "{text}");
    until_in_sync(disk);
    members
}

fn until_in_sync(disk: &Path) {
    loop {
        let (_, text) = said(disk, &["status", "db.toml", "--at", "alpha", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&text).unwrap();
        if status["in_sync"].as_array().is_some_and(|all| all.len() == 2) {
            return;
        }
        std::thread::yield_now();
    }
}

fn said(disk: &Path, words: &[&str]) -> (bool, String) {
    let done = landfast(disk, words);
    let text = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8(text).unwrap())
}

fn change(file: &Path, changes: &[(&str, &str)]) {
    let text = fs::read_to_string(file).unwrap();
    let changed = changes.iter().fold(text.clone(), |text, (from, to)| text.replace(from, to));
    assert_ne!(changed, text);
    fs::write(file, changed).unwrap();
}

#[test]
fn a_file_that_is_applied_again_changes_members_that_run_and_names_what_it_cannot() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = disk.path();
    let _members = running_group(disk);
    let apply = |more: &[&str]| said(disk, &[&["apply", "db.toml"][..], more].concat());
    let (is_done, text) = apply(&["--at", "beta"]);
    assert!(is_done && text.contains("nothing differs"), "{text}");
    let changes = [
        ("window = \"16M\"", "window = \"32M\""),
        ("compression = \"none\"", "compression = \"lz4\""),
        ("size = \"1M\"", "size = \"2M\""),
        ("read_lease_ms = 2000", "read_lease_ms = 4000"),
    ];
    let file = disk.join("db.toml");
    change(&file, &changes);
    // A look changes nothing, and says with its status that something would be left.
    for _ in 0..2 {
        let (is_done, text) = apply(&["--at", "alpha", "--dry-run"]);
        assert!(!is_done && text.contains("window: 16M -> 32M, would be in force"), "{text}");
        assert!(text.contains("read_lease_ms: 2000 -> 4000, with the next start"), "{text}");
    }
    let (is_done, text) = apply(&["--at", "beta"]);
    assert!(!is_done && text.contains("the source makes a volume longer"), "{text}");
    let (is_done, text) = apply(&["--at", "alpha"]);
    assert!(!is_done && text.contains("window: 16M -> 32M, in force now"), "{text}");
    assert!(text.contains("volume data: size: 1M -> 2M, in force now"), "{text}");
    assert!(text.contains("not in force: read_lease_ms\n"), "{text}");
    // What is in force differs no more.
    let (is_done, text) = apply(&["--at", "alpha", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(text.split("\nlandfast").next().unwrap())
        .unwrap_or_else(|_| panic!("{text}"));
    assert!(!is_done);
    assert_eq!(answer["changes"].as_array().unwrap().len(), 1, "{text}");
    change(&file, &[("read_lease_ms = 4000", "read_lease_ms = 2000")]);
    let (is_done, text) = apply(&["--at", "alpha"]);
    assert!(is_done && text.contains("nothing differs"), "{text}");
    // The file of another group is taken in no part.
    change(&file, &[("id = \"", "id = \"0"), ("window = \"32M\"", "window = \"64M\"")]);
    let text = fs::read_to_string(&file).unwrap();
    let id = text.lines().find(|line| line.starts_with("id = ")).unwrap();
    fs::write(&file, text.replace(id, &format!("{}\"", &id[..id.len() - 2]))).unwrap();
    let (is_done, text) = apply(&["--at", "alpha"]);
    assert!(!is_done && text.contains("not changed: that is the file of another group"), "{text}");
    assert!(text.contains("window: 32M -> 64M, not changed"), "{text}");
}

#[test]
fn keys_that_are_set_are_in_the_file_and_in_force_and_others_are_refused() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = disk.path();
    let _members = running_group(disk);
    let file = disk.join("db.toml");
    change(&file, &[("window = ", "# as the line needs it\nwindow = ")]);
    let set =
        |more: &[&str]| said(disk, &[&["set", "db.toml", "--at", "alpha"][..], more].concat());
    let (is_done, text) = set(&["window=32M", "rpo_ms=500"]);
    assert!(is_done && text.contains("window: 16M -> 32M, in force now"), "{text}");
    let written = fs::read_to_string(&file).unwrap();
    assert!(written.contains("# as the line needs it\nwindow = \"32M\"\n"), "{written}");
    let (is_done, text) = set(&["beta", "mode=async"]);
    assert!(is_done && text.contains("member beta: mode: sync -> async"), "{text}");
    let (_, text) = said(disk, &["status", "db.toml", "--at", "alpha", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status["replicas"][0]["mode"], "async", "{text}");
    let written = fs::read_to_string(&file).unwrap();
    for wrong in
        [&["log_size=64M"][..], &["window=1"], &["no_such_key=1"], &["gamma", "mode=sync"], &[]]
    {
        let (is_done, text) = set(wrong);
        assert!(!is_done, "{wrong:?}: {text}");
        assert_eq!(fs::read_to_string(&file).unwrap(), written, "{wrong:?}");
    }
    // The order in which members get it matters: the source is the first that waits for all.
    let (is_done, text) = said(disk, &["set", "db.toml", "--at", "beta", "least_in_sync=2"]);
    assert!(!is_done && text.contains("the source has to have it before"), "{text}");
    let (is_done, text) = set(&["least_in_sync=2", "beta=1"]);
    assert!(!is_done, "{text}");
    let (is_done, text) = set(&["rpo_ms=", "least_in_sync=2"]);
    assert!(is_done && text.contains("rpo_ms: 500 -> none"), "{text}");
    let (is_done, text) = set(&["least_in_sync=1"]);
    assert!(!is_done && text.contains("--others-have-it"), "{text}");
    // What an operator has made of a mode stays where a file leaves the mode as it was.
    let (is_done, text) = set(&["beta", "--mode", "sync"]);
    assert!(is_done, "{text}");
    let (is_done, text) = set(&["window=64M"]);
    assert!(is_done, "{text}");
    let (_, text) = said(disk, &["status", "db.toml", "--at", "alpha", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status["replicas"][0]["mode"], "sync", "{text}");
    until_in_sync(disk);
    // Where the mode itself is meant, or the whole file, it is taken back.
    let (is_done, text) = set(&["beta", "mode=async"]);
    assert!(is_done && text.contains("member beta: mode: sync -> async, in force now"), "{text}");
    let (is_done, text) = set(&["beta", "--mode", "sync"]);
    assert!(is_done, "{text}");
    let (is_done, text) = said(disk, &["apply", "db.toml", "--at", "alpha", "--dry-run"]);
    assert!(is_done && text.contains("member beta: mode: sync -> async"), "{text}");
    let (is_done, text) = said(disk, &["apply", "db.toml", "--at", "alpha"]);
    assert!(is_done && text.contains("member beta: mode: sync -> async, in force now"), "{text}");
    let (is_done, text) = set(&["beta", "mode=sync"]);
    assert!(is_done && text.contains("member beta: mode: async -> sync, in force now"), "{text}");
    until_in_sync(disk);
    // Too few would be left.
    let (is_done, text) = said(disk, &["suspend", "db.toml", "beta", "--at", "alpha"]);
    assert!(!is_done && text.contains("still in sync"), "{text}");
    let (is_done, text) = said(disk, &["resume", "db.toml", "beta", "--at", "alpha"]);
    assert!(is_done, "{text}");
    // Of how many members a number is all of them changes with their start.
    let gamma = format!("gamma=127.0.0.1:1,{}", disk.join("gamma").display());
    let (is_done, text) = said(disk, &["add", "db.toml", &gamma]);
    assert!(is_done, "{text}");
    change(&file, &[("least_in_sync = 2", "least_in_sync = 1")]);
    let (is_done, text) = said(disk, &["apply", "db.toml", "--at", "alpha", "--others-have-it"]);
    assert!(!is_done && text.contains("in two steps"), "{text}");
}

#[test]
fn a_verification_waits_for_its_end_and_its_status_says_whether_something_differed() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = disk.path();
    let mut members = running_group(disk);
    let verify =
        |more: &[&str]| said(disk, &[&["verify", "db.toml", "--at", "alpha"][..], more].concat());
    let (is_done, text) = verify(&[]);
    assert!(is_done && text.contains("0 differed"), "{text}");
    let volume = fs::File::options().write(true).open(disk.join("beta/data.volume")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&volume, &[7; 512], 70_000).unwrap();
    let (is_done, text) = verify(&[]);
    assert!(!is_done && text.contains("1 ranges differed"), "{text}");
    until_in_sync(disk);
    let (is_done, text) = verify(&[]);
    assert!(is_done, "{text}");
    let (is_done, text) = verify(&["--no-wait"]);
    assert!(is_done && text.contains("are ordered"), "{text}");
    // A member that is away has not compared.
    drop(std::mem::replace(&mut members[1], Running(Command::new("true").spawn().unwrap())));
    let (is_done, text) = verify(&[]);
    assert!(!is_done && text.contains("beta (WaitingForDestination)"), "{text}");
}

#[test]
fn members_added_at_once_are_all_there() {
    let directory = tempfile::tempdir().unwrap();
    let real = directory.path().join("real");
    fs::create_dir(&real).unwrap();
    create(&real, ["127.0.0.1:1", "127.0.0.1:2"]);
    let (file, link) = (real.join("db.toml"), directory.path().join("db.toml"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("real/db.toml", &link).unwrap();
    let add = |number: u8| {
        let member = format!("m{number}=127.0.0.1:{},/nowhere/{number}", 100 + u16::from(number));
        landfast(directory.path(), &["add", "db.toml", &member])
    };
    std::thread::scope(|scope| {
        let adding: Vec<_> = (0..6).map(|number| scope.spawn(move || add(number))).collect();
        for one in adding {
            let output = one.join().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
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
    assert!(
        output.status.success() && link.is_symlink(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
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
    assert!(!file.exists(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn members_added_at_once_are_all_there_and_a_link_to_the_file_stays() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = disk.path();
    create(disk, ["127.0.0.1:0", "127.0.0.1:1"]);
    fs::create_dir(disk.join("real")).unwrap();
    fs::rename(disk.join("db.toml"), disk.join("real/db.toml")).unwrap();
    std::os::unix::fs::symlink("real/db.toml", disk.join("db.toml")).unwrap();
    std::thread::scope(|scope| {
        for number in 0..6 {
            scope.spawn(move || {
                let member = format!("m{number}=127.0.0.1:{},/srv/m{number}", 7000 + number);
                let (is_done, text) = said(disk, &["add", "db.toml", &member]);
                assert!(is_done, "{text}");
            });
        }
    });
    assert!(fs::symlink_metadata(disk.join("db.toml")).unwrap().is_symlink());
    let text = fs::read_to_string(disk.join("real/db.toml")).unwrap();
    let numbers = (0..8).filter(|it| text.contains(&format!("number = {it}\n"))).count();
    assert_eq!((text.matches("[[member]]").count(), numbers), (8, 8), "{text}");
    let (is_done, text) = said(disk, &["remove", "db.toml", "m3"]);
    assert!(is_done, "{text}");
    assert!(fs::symlink_metadata(disk.join("db.toml")).unwrap().is_symlink());
}

#[test]
fn a_suspended_member_stays_suspended_over_a_restart_of_the_source() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = disk.path();
    let mut members = running_group(disk);
    let (is_done, text) = said(disk, &["suspend", "db.toml", "beta", "--at", "alpha"]);
    assert!(is_done, "{text}");
    let status = || {
        let (_, text) = said(disk, &["status", "db.toml", "--at", "alpha", "--json"]);
        serde_json::from_str::<serde_json::Value>(&text).ok()
    };
    // A source that ends before it has left the member behind waits for it, as for everybody in sync.
    while status().is_none_or(|it| it["in_sync"].as_array().is_none_or(|all| all.len() != 1)) {
        std::thread::yield_now();
    }
    drop(std::mem::replace(&mut members[0], Running(Command::new("true").spawn().unwrap())));
    members[0] = Running::until(disk, &["serve", "db.toml", "alpha"], "member alpha at").0;
    loop {
        if let Some(status) = status() {
            assert!(status["role"] != "source" || status["replicas"][0]["state"] == "Suspended");
            if status["state"] == "Serving" {
                break;
            }
        }
        std::thread::yield_now();
    }
    let (is_done, text) = said(disk, &["resume", "db.toml", "beta", "--at", "alpha"]);
    assert!(is_done, "{text}");
    until_in_sync(disk);
}

/// A client of NBD that has asked for a write of 4096 bytes, and not waited for its answer.
fn a_write_under_way(socket: &Path) -> std::os::unix::net::UnixStream {
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
    // Fixed new style, no zeroes; the export by its name.
    stream.write_all(&3_u32.to_be_bytes()).unwrap();
    let name = b"data";
    let option = [&b"IHAVEOPT"[..], &1_u32.to_be_bytes(), &4_u32.to_be_bytes(), name].concat();
    stream.write_all(&option).unwrap();
    let mut export = [0; 10];
    stream.read_exact(&mut export).unwrap();
    let head = [
        &0x2560_9513_u32.to_be_bytes()[..],
        &0_u16.to_be_bytes(),
        &1_u16.to_be_bytes(),
        &7_u64.to_be_bytes(),
        &0_u64.to_be_bytes(),
        &4096_u32.to_be_bytes(),
    ]
    .concat();
    stream.write_all(&[&head[..], &[7; 4096]].concat()).unwrap();
    stream
}

#[test]
fn a_member_whose_writes_wait_ends_with_sigterm() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = disk.path();
    let addresses = free_addresses();
    create(disk, [&addresses[0], &addresses[1]]);
    change(&disk.join("db.toml"), &[("least_in_sync = 1", "least_in_sync = 2")]);
    for name in ["alpha", "beta"] {
        assert!(landfast(disk, &["prepare", "db.toml", name]).status.success());
    }
    let serve = ["serve", "db.toml", "alpha", "--unix", "alpha.nbd"];
    let (mut alpha, _) = Running::until(disk, &serve, "member alpha at");
    let (beta, _) = Running::until(disk, &["serve", "db.toml", "beta"], "member beta at");
    assert!(said(disk, &["promote", "db.toml", "--at", "alpha", "--force"]).0);
    until_in_sync(disk);
    drop(beta);
    while !said(disk, &["events", "db.toml", "--at", "alpha"]).1.contains("writes wait") {
        std::thread::yield_now();
    }
    let mut client = a_write_under_way(&disk.join("alpha.nbd"));
    let pid = alpha.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(alpha.0.wait().unwrap().success());
    // The write has no answer, or one that says that it failed.
    let mut answer = [0; 16];
    if client.read_exact(&mut answer).is_ok() {
        assert_ne!(answer[4..8], [0; 4]);
    }
}

/// Alpha, whose standard output is a file that takes nothing, or a pipe whose reader goes after the first line.
fn unheard(disk: &Path, reads: bool) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfast"));
    command.args(["replica", "serve", "db.toml", "alpha", "--unix", "alpha.nbd"]);
    command.current_dir(disk).stderr(Stdio::null());
    if !reads {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        return Running(command.stdout(full).spawn().unwrap());
    }
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.ends_with('\n'), "{line}");
    Running(child)
}

#[test]
fn a_member_whose_output_nobody_reads_is_promoted_and_goes_on_when_it_is_none_any_more() {
    for reads in [true, false] {
        let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let disk = disk.path();
        let addresses = free_addresses();
        create(disk, [&addresses[0], &addresses[1]]);
        assert!(landfast(disk, &["prepare", "db.toml", "alpha"]).status.success());
        let mut alpha = unheard(disk, reads);
        while !said(disk, &["status", "db.toml", "--at", "alpha"]).0 {
            assert_eq!(alpha.0.try_wait().unwrap(), None, "it runs");
        }
        let (is_done, text) = said(disk, &["promote", "db.toml", "--at", "alpha", "--force"]);
        assert!(is_done, "{text}");
        while std::os::unix::net::UnixStream::connect(disk.join("alpha.nbd")).is_err() {
            assert_eq!(alpha.0.try_wait().unwrap(), None, "it serves");
        }
        let (is_done, text) = said(disk, &["demote", "db.toml", "--at", "alpha"]);
        assert!(is_done, "{text}");
        let (is_done, text) = said(disk, &["promote", "db.toml", "--at", "alpha", "--force"]);
        assert!(is_done && alpha.0.try_wait().unwrap().is_none(), "{text}");
    }
}
