//! Reads of clocks and random numbers beside the environment (crate `basics`).
//!
//! The rule looks at the crates that have an environment, without their tests: a file `tests.rs`, a directory
//! `tests`, and the module `tests` that ends a file. Timers and tasks are not among the reads yet.

use std::path::Path;

use crate::check::texts::Texts;

/// Reads that no exception allows, and exceptions without a read.
pub(super) fn reads(texts: &Texts) -> Vec<String> {
    reads_but(texts, &EXCEPTIONS)
}

fn reads_but(texts: &Texts, exceptions: &[Exception]) -> Vec<String> {
    let mut found = Vec::new();
    let mut met = vec![false; exceptions.len()];
    let is_in = |path: &Path| CRATES.iter().any(|of| path.starts_with(of));
    for (path, text) in texts.with_extension("rs").filter(|(path, _)| is_in(path)) {
        for (number, line) in code(path, text) {
            let Some(read) = READS.iter().find(|read| line.contains(**read)) else { continue };
            let is_it = |one: &Exception| Path::new(one.file) == path && one.read == *read;
            match exceptions.iter().position(is_it) {
                Some(index) => met[index] = true,
                None => found.push(format!(
                    "{}:{number}: {read}: an environment (of Core, of EngineConfig) has clocks and random numbers",
                    path.display()
                )),
            }
        }
    }
    let unused = exceptions.iter().zip(met).filter(|(_, met)| !met);
    found.extend(unused.map(|(one, _)| {
        format!("{}: the exception for {} has no read ({})", one.file, one.read, one.reason)
    }));
    found
}

/// The numbered lines of production code, without those that are comments.
pub(super) fn code<'t>(path: &Path, text: &'t str) -> impl Iterator<Item = (usize, &'t str)> {
    let is_test = path.components().any(|part| {
        matches!(part.as_os_str().to_str(), Some("tests" | "tests.rs" | "examples" | "benches"))
    });
    let lines = (1..).zip(text.lines()).filter(move |_| !is_test);
    let lines = lines.take_while(|(_, line)| !line.ends_with("mod tests {"));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// A read that stays where it is.
struct Exception {
    file: &'static str,
    read: &'static str,
    reason: &'static str,
}

/// The crates that have an environment.
const CRATES: [&str; 4] =
    ["crates/rdma/src", "crates/remote/src", "crates/server/src", "crates/tree/src"];
/// How clocks and random numbers are read.
const READS: [&str; 6] =
    ["Instant::now", "SystemTime::now", ".elapsed()", "getrandom", "RandomState::new", "OsRng"];
const EXCEPTIONS: [Exception; 8] = [
    Exception {
        file: "crates/rdma/src/common/poll_window.rs",
        read: "Instant::now",
        reason: "the wait of loops that are compared with an engine; no engine uses it",
    },
    Exception {
        file: "crates/rdma/src/common/poll_window.rs",
        read: ".elapsed()",
        reason: "as above",
    },
    Exception {
        file: "crates/rdma/src/soft/socket/unix.rs",
        read: "getrandom",
        reason: "which port is free at the host, as TCP finds it out for itself",
    },
    Exception {
        file: "crates/tree/src/disk_clock.rs",
        read: "SystemTime::now",
        reason: "the kernel gives inodes their times by this clock",
    },
    Exception {
        file: "crates/server/src/users/change.rs",
        read: "Instant::now",
        reason: "a command line that changes users waits for another process; no server runs in it",
    },
    Exception {
        file: "crates/server/src/fuzzing.rs",
        read: "Instant::now",
        reason: "the fuzz targets wait for a server as its peers do",
    },
    Exception {
        file: "crates/server/src/state/making/mod.rs",
        read: "RandomState::new",
        reason: "which names share a counter; std takes a key from nobody",
    },
    Exception {
        file: "crates/server/src/connections/throttle.rs",
        read: "RandomState::new",
        reason: "names as hashes that no client can bring together; std takes a key from nobody",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str, exceptions: &[Exception]) -> Vec<String> {
        reads_but(&Texts(vec![(path.into(), text.to_owned())]), exceptions)
    }

    #[test]
    fn a_read_is_found_with_its_line_and_none_in_a_comment_or_a_test() {
        let text =
            "// Instant::now\nlet a = Instant::now();\n#[cfg(test)]\nmod tests {\nOsRng\n}\n";
        let faults = found("crates/server/src/a.rs", text, &[]);
        assert!(faults.len() == 1 && faults[0].contains("a.rs:2: Instant::now"), "{faults:?}");
        assert_eq!(found("crates/server/src/push/tests/a.rs", text, &[]), [""; 0]);
        assert_eq!(found("crates/server/src/tests.rs", text, &[]), [""; 0]);
        assert_eq!(found("crates/basics/src/a.rs", text, &[]), [""; 0]);
    }

    #[test]
    fn an_exception_allows_one_read_of_one_file_and_must_be_needed() {
        let of_a = || Exception { file: "crates/server/src/a.rs", read: "OsRng", reason: "why" };
        assert_eq!(found("crates/server/src/a.rs", "OsRng", &[of_a()]), [""; 0]);
        assert_eq!(found("crates/server/src/a.rs", "x.elapsed()", &[of_a()]).len(), 2);
        assert_eq!(found("crates/server/src/b.rs", "OsRng", &[of_a()]).len(), 2);
    }
}
