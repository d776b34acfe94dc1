//! The output of commands, its destination, and the exit status: errors, help, listings, and a terminal that
//! closes.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

mod support;

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use support::{Fixture, names, program, said, signal, status_of, until};

#[test]
fn a_command_whose_reader_has_gone_ends_in_silence() {
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
fn errors_name_their_object_and_a_hint() {
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
fn an_rm_succeeds_only_when_the_name_is_gone() {
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
fn no_log_level_shows_data_from_which_passwords_can_be_guessed() {
    let fixture = Fixture::start();
    std::fs::write(fixture.local("b"), "two").unwrap();
    let output = fixture.run(&["-vvv", "put", "b", &fixture.url("b")]);
    assert!(output.status.success(), "{}", said(&output));
    // "NTLMSSP" of an AUTHENTICATE message, in hexadecimal and as text.
    let said = said(&output).to_uppercase();
    assert!(!said.contains("4E544C4D535350000300") && !said.contains("NTLMSSP\\0\\X03"));
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
fn a_command_started_without_standard_output_fails_if_it_would_write() {
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
    for target in ["/dev/stdout", "/proc/self/fd/1"] {
        let output = run(&["get", &file, target]);
        assert_eq!(output.status.code(), Some(1), "{target}");
        assert!(said(&output).contains("cannot write"), "{target}: {}", said(&output));
    }
    // A command that writes elsewhere succeeds.
    assert_eq!(run(&["get", &file, "here"]).status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(fixture.local("here")).unwrap(), "bytes");
    // Output to /dev/null is not missed.
    let silent = fixture.program(&["ls", &share]).stdout(Stdio::null()).status().unwrap();
    assert!(silent.success());
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
fn a_percentage_on_a_terminal_is_erased_before_an_error_is_printed() {
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
    // The command holds the terminal open, too, until it ends.
    let start =
        |mut get: Command| get.stdout(Stdio::piped()).stderr(terminal.unwrap()).spawn().unwrap();
    let mut get = start(fixture.program(&["get", &fixture.url("f"), "-"]));
    // More bytes than the pipe holds: the command blocks while it shows a percentage.
    let mut taken = vec![0; 3 << 20];
    get.stdout.as_mut().unwrap().read_exact(&mut taken).unwrap();
    signal(&get, Signal::INT);
    get.wait().unwrap();
    let mut shown = Vec::new();
    // Reading a terminal that no process writes to any more is an error.
    let _ = person.read_to_end(&mut shown);
    let shown = String::from_utf8_lossy(&shown).into_owned();
    let (before, after) = shown.split_once("landfast: stopped").unwrap();
    assert!(before.contains(" %") && before.ends_with("\r\u{1b}[K"), "{before:?} {after:?}");
}

#[test]
fn requested_help_goes_to_standard_output_with_url_placeholders() {
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

#[test]
fn a_name_that_could_be_either_of_two_is_refused() {
    let fixture = Fixture::start();
    for directory in ["d", "D"] {
        std::fs::create_dir(fixture.remote(directory)).unwrap();
    }
    for name in ["both", "Both", "One", "d/f"] {
        std::fs::write(fixture.remote(name), name).unwrap();
    }
    for command in ["rm", "get"] {
        let output = fixture.run(&[command, &fixture.url("BOTH")]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        assert!(said(&output).contains("by case alone"), "{command}: {}", said(&output));
    }
    assert_eq!(names(fixture.here.path()), [""; 0]);
    assert_eq!(names(fixture.share.path()), ["Both", "D", "One", "both", "d"]);
    for name in ["both", "ONE", "d/F"] {
        let output = fixture.run(&["rm", &fixture.url(name)]);
        assert!(output.status.success(), "{name}: {}", said(&output));
    }
    assert_eq!(names(fixture.share.path()), ["Both", "D", "d"]);
}

#[test]
fn put_refuses_a_name_that_could_be_either_of_two() {
    let fixture = Fixture::start();
    for directory in ["d", "D"] {
        std::fs::create_dir(fixture.remote(directory)).unwrap();
    }
    for name in ["Both", "both", "d/x", "D/x", "ı", "I"] {
        std::fs::write(fixture.remote(name), name).unwrap();
    }
    for directory in ["One", "Two", "two"] {
        std::fs::create_dir(fixture.remote(directory)).unwrap();
    }
    std::fs::write(fixture.local("n.txt"), "new").unwrap();
    let put = |name: &str| fixture.run(&["put", "n.txt", &fixture.url(name)]);
    for name in ["BOTH", "TWO/", "TWO", "TWO/x", "i"] {
        let output = put(name);
        assert_eq!(output.status.code(), Some(1), "{name}: {}", said(&output));
        assert!(said(&output).contains("by case alone"), "{name}: {}", said(&output));
    }
    for name in ["Both", "both", "d/x", "D/x", "ı", "I"] {
        assert_eq!(std::fs::read_to_string(fixture.remote(name)).unwrap(), name);
    }
    assert_eq!(names(&fixture.remote("Two")), [""; 0]);
    assert_eq!(names(&fixture.remote("two")), [""; 0]);
    for name in ["both", "d/x", "ONE/", "Two/x"] {
        assert!(put(name).status.success(), "{name}");
    }
    assert_eq!(std::fs::read_to_string(fixture.remote("Both")).unwrap(), "Both");
    assert_eq!(std::fs::read_to_string(fixture.remote("D/x")).unwrap(), "D/x");
}

#[test]
fn a_link_on_the_way_changes_nothing_of_a_name_that_could_be_either_of_two() {
    let fixture = Fixture::start();
    std::fs::create_dir_all(fixture.remote("deep/er")).unwrap();
    std::os::unix::fs::symlink("deep/er", fixture.remote("link")).unwrap();
    for name in ["Both", "both", "one"] {
        std::fs::write(fixture.remote("deep/er").join(name), name).unwrap();
    }
    for command in [&["rm"][..], &["get"], &["put", "n.txt"]] {
        std::fs::write(fixture.local("n.txt"), "new").unwrap();
        let output = fixture.run(&[command, &[&fixture.url("link/BOTH")]].concat());
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        assert!(said(&output).contains("by case alone"), "{command:?}: {}", said(&output));
    }
    for name in ["link/ONE", "LINK/both"] {
        let output = fixture.run(&["rm", &fixture.url(name)]);
        assert!(output.status.success(), "{name}: {}", said(&output));
    }
    assert_eq!(names(&fixture.remote("deep/er")), ["Both"]);
}
