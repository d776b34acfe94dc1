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

use serde::{Deserialize, Serialize};

use crate::build::Binary;

/// One test of a program.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Test {
    /// Index of its program.
    pub(crate) binary: usize,
    pub(crate) name: String,
    took_ms: u64,
    pub(crate) reaches: Vec<u32>,
}

impl Test {
    pub(crate) fn took(&self) -> Duration {
        Duration::from_millis(self.took_ms)
    }
}

/// What is known of the tests of a program.
#[derive(Debug, Deserialize, Serialize)]
struct Examined {
    stamp: String,
    tests: Vec<Test>,
    failing: Vec<String>,
}

/// How a run of tests ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    Passed,
    Failed,
    /// It did not end in time, or took too much memory.
    Stopped,
}

/// Runs every test alone, twice: once to see what it reaches, once to see it pass. Programs that are as they were when
/// `stamp` was the same are not run again. The second part names tests that do not pass.
pub(crate) fn examine(
    binaries: &[Binary],
    scratch: &Path,
    stamp: &str,
    jobs: usize,
) -> Result<(Vec<Test>, Vec<String>), String> {
    let (mut tests, mut failing) = (Vec::new(), Vec::new());
    let kept = scratch.join("examined");
    fs::create_dir_all(&kept).map_err(|error| format!("{}: {error}", kept.display()))?;
    for (index, binary) in binaries.iter().enumerate() {
        let modified = fs::metadata(&binary.path).and_then(|metadata| metadata.modified());
        let stamp = format!("{stamp} {:?}", modified.ok());
        let file = kept.join(binary.path.file_name().unwrap_or_default()).with_extension("json");
        let known = fs::read_to_string(&file).ok();
        let known = known.and_then(|text| serde_json::from_str::<Examined>(&text).ok());
        let examined = match known.filter(|known| known.stamp == stamp) {
            Some(examined) => examined,
            None => {
                let examined = examine_one(index, binary, scratch, stamp, jobs)?;
                let text = serde_json::to_string(&examined).map_err(|error| error.to_string())?;
                fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
                examined
            }
        };
        tests.extend(examined.tests.into_iter().map(|test| Test { binary: index, ..test }));
        failing.extend(examined.failing);
    }
    Ok((tests, failing))
}

fn examine_one(
    index: usize,
    binary: &Binary,
    scratch: &Path,
    stamp: String,
    jobs: usize,
) -> Result<Examined, String> {
    let ignored = listed(binary, &["--ignored"])?;
    let mut names = listed(binary, &[])?;
    names.retain(|name| !ignored.contains(name));
    let begun = Instant::now();
    let next = AtomicUsize::new(0);
    let examined = Mutex::new(Examined { stamp, tests: Vec::new(), failing: Vec::new() });
    thread::scope(|scope| {
        for worker in 0..jobs {
            let (next, examined, names) = (&next, &examined, &names);
            let record = scratch.join(format!("reached-{worker}"));
            scope.spawn(move || {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = examine_test(index, binary, name, &record);
                    let mut examined = examined.lock().expect("no worker panics with it");
                    match found {
                        Some(test) => examined.tests.push(test),
                        None => examined.failing.push(format!("{} {name}", binary.package)),
                    }
                }
            });
        }
    });
    println!("  {}: {} tests, {:?}", binary.path.display(), names.len(), begun.elapsed());
    Ok(examined.into_inner().expect("no worker panics with it"))
}

fn listed(binary: &Binary, more: &[&str]) -> Result<Vec<String>, String> {
    let mut command = Command::new(&binary.path);
    let output =
        command.args(["--list", "--format", "terse"]).args(more).current_dir(&binary.dir).output();
    let output = output.map_err(|error| format!("{}: {error}", binary.path.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

fn examine_test(index: usize, binary: &Binary, name: &String, record: &Path) -> Option<Test> {
    let _ = fs::remove_file(record);
    // A test may fail for the record alone, such as one that counts descriptors.
    run(binary, &[name], Some(("LANDFAST_REACHED", &record.to_string_lossy())), EXAMINED_MAX);
    let begun = Instant::now();
    let mut end = run(binary, &[name], None, EXAMINED_MAX);
    let took_ms = begun.elapsed().as_millis();
    if end != End::Passed {
        end = run(binary, &[name], None, EXAMINED_MAX);
    }
    let record = fs::read(record).unwrap_or_default();
    let ids = record.chunks_exact(4).map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]]));
    let mut reaches: Vec<u32> = ids.collect();
    reaches.sort_unstable();
    reaches.dedup();
    let took_ms = u64::try_from(took_ms).unwrap_or(u64::MAX);
    (end == End::Passed).then(|| Test { binary: index, name: name.clone(), took_ms, reaches })
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
    // A trace takes forty times what a failing test takes, and on a busy machine longer than the limit.
    command.env("RUST_BACKTRACE", "0");
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
        list.sort_by_key(|index| tests[*index].took_ms);
    }
    reaching
}

/// How long a test may take when it is examined.
const EXAMINED_MAX: Duration = Duration::from_secs(240);
/// A weak claim to a processor.
const NICE: &str = "10";
/// What the tests of a process may hold; a mutant may well want all memory there is.
const MEMORY_MAX: u64 = 4 << 30;
