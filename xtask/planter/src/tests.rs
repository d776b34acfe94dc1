//! Tests one by one: which mutants each reaches, how long it takes, whether it passes.

use std::collections::HashMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::build::Binary;

/// One test of a program.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    /// Index of its program.
    pub(crate) binary: usize,
    pub(crate) name: String,
    pub(crate) took: Duration,
    pub(crate) reaches: Vec<u32>,
}

/// How a run of tests ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    Passed,
    Failed,
    /// It did not end in time, or took too much memory.
    Stopped,
}

/// Runs every test alone, twice: once to see what it reaches, once to see it pass.
/// The second part names those that do not.
pub(crate) fn examine(
    binaries: &[Binary],
    scratch: &Path,
    jobs: usize,
) -> Result<(Vec<Test>, Vec<String>), String> {
    let mut names = Vec::new();
    for (index, binary) in binaries.iter().enumerate() {
        let output = Command::new(&binary.path)
            .args(["--list", "--format", "terse"])
            .current_dir(&binary.dir)
            .output()
            .map_err(|error| format!("{}: {error}", binary.path.display()))?;
        let ignored = Command::new(&binary.path)
            .args(["--list", "--format", "terse", "--ignored"])
            .current_dir(&binary.dir)
            .output()
            .map_err(|error| format!("{}: {error}", binary.path.display()))?;
        let listed = |output: &[u8]| -> Vec<String> {
            let text = String::from_utf8_lossy(output);
            text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
        };
        let ignored = listed(&ignored.stdout);
        names.extend(
            listed(&output.stdout)
                .into_iter()
                .filter(|name| !ignored.contains(name))
                .map(|name| (index, name)),
        );
    }
    println!("  {} tests of {} programs, each alone", names.len(), binaries.len());
    let next = AtomicUsize::new(0);
    let found = Mutex::new((Vec::new(), Vec::new()));
    thread::scope(|scope| {
        for worker in 0..jobs {
            let (next, found, names) = (&next, &found, &names);
            scope.spawn(move || {
                let record = scratch.join(format!("reached-{worker}"));
                while let Some((index, name)) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let binary = &binaries[*index];
                    let _ = fs::remove_file(&record);
                    let path = record.to_string_lossy().into_owned();
                    let limit = Duration::from_secs(240);
                    run(binary, &[name], Some(("LANDFAST_REACHED", &path)), limit);
                    let begun = Instant::now();
                    let mut end = run(binary, &[name], None, limit);
                    let took = begun.elapsed();
                    if end != End::Passed {
                        end = run(binary, &[name], None, limit);
                    }
                    let mut reaches: Vec<u32> = fs::read(&record)
                        .unwrap_or_default()
                        .chunks_exact(4)
                        .map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]]))
                        .collect();
                    reaches.sort_unstable();
                    reaches.dedup();
                    let mut found = found.lock().expect("no worker panics with it");
                    if end == End::Passed {
                        found.0.push(Test { binary: *index, name: name.clone(), took, reaches });
                    } else {
                        found.1.push(format!("{} {name}", binary.package));
                    }
                }
            });
        }
    });
    Ok(found.into_inner().expect("no worker panics with it"))
}

/// Runs tests of one program in one process.
pub(crate) fn run(
    binary: &Binary,
    tests: &[&String],
    switch: Option<(&str, &str)>,
    limit: Duration,
) -> End {
    let mut command = Command::new("nice");
    command
        .args(["-n", NICE])
        .arg(&binary.path)
        .arg("--exact")
        .args(tests)
        .current_dir(&binary.dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command.env("LANDFAST_LOCK_ORDER", "panic").env("CARGO_MANIFEST_DIR", &binary.dir);
    command.env_remove("LANDFAST_MUTANT").env_remove("LANDFAST_REACHED");
    if let Some((name, value)) = switch {
        command.env(name, value);
    }
    let Ok(mut child) = command.spawn() else { return End::Stopped };
    let begun = Instant::now();
    let mut pause = Duration::from_millis(1);
    let end = loop {
        match child.try_wait() {
            Ok(Some(status)) => break if status.success() { End::Passed } else { End::Failed },
            Ok(None) if begun.elapsed() < limit && resident(&child) < MEMORY_MAX => {
                thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(50));
            }
            Ok(None) | Err(_) => break End::Stopped,
        }
    };
    // Also ends what the tests have started and left behind.
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    let _ = child.wait();
    end
}

fn resident(child: &Child) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/statm", child.id())).unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4_096
}

/// The tests that reach each mutant, the quickest first.
pub(crate) fn by_mutant(tests: &[Test]) -> HashMap<u32, Vec<usize>> {
    let mut reaching: HashMap<u32, Vec<usize>> = HashMap::new();
    for (index, test) in tests.iter().enumerate() {
        for id in &test.reaches {
            reaching.entry(*id).or_default().push(index);
        }
    }
    for list in reaching.values_mut() {
        list.sort_by_key(|index| tests[*index].took);
    }
    reaching
}

/// A weak claim to a processor.
const NICE: &str = "12";
/// What the tests of a process may hold; a mutant may well want all memory there is.
const MEMORY_MAX: u64 = 4 << 30;
