//! The Python package as a stranger uses it: its wheel in a clean virtual environment, its tests against a server, and the
//! examples of its guide.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::failure::{Failure, Outcome, Tally};
use crate::landfast::Landfast;
use crate::peer::{PASSWORD, SHARE, USER};
use crate::process::{Step, tail};
use crate::workspace;

/// Options of `cargo xtask python-package`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Also pandas, pyarrow, Dask and mypy, and the wheel as maturin builds it
    #[arg(long)]
    long: bool,
    /// Also the sort of `landfast demo sort` on Ray
    #[arg(long)]
    ray: bool,
}

impl Options {
    /// What the suite runs.
    pub(crate) fn short() -> Self {
        Self { long: false, ray: false }
    }
}

/// Builds the wheel and says where it is.
pub(crate) fn wheel_only() -> Outcome {
    let wheel = wheel()?;
    println!("  {}", wheel.display());
    Ok(Tally::passed("built"))
}

/// Installs the wheel and runs tests and examples.
pub(crate) fn run(options: &Options) -> Outcome {
    let mut wheel = wheel()?;
    let python = environment(options)?;
    if options.long {
        wheel = by_maturin(&python)?;
    }
    pip(&python, &["--force-reinstall", "--no-deps"]).arg(&wheel).run()?;
    let mut tally = tests(&python)?;
    let examples = examples(&python);
    tally.count("the examples of docs/python.md", examples.map_err(|failure| failure.to_string()));
    if options.long {
        let typed = Step::new(&python)
            .args(["-m", "mypy", "--strict", "--ignore-missing-imports", "--allow-subclassing-any"])
            .args(["--no-warn-return-any", "-p", "landfast"])
            .dir(&workspace::kept("tmp")?)
            .run();
        tally.count("mypy", typed.map_err(|failure| failure.to_string()));
    }
    Ok(tally)
}

/// The wheel, made of what `cargo build` makes of the workspace: maturin would compile the dependencies once more.
fn wheel() -> Result<PathBuf, Failure> {
    let module = workspace::shipped()?.join("lib_landfast.so");
    let wheels = workspace::target().join("wheels");
    let made = Step::new("python3")
        .arg(workspace::root().join("python/wheel.py"))
        .arg(module)
        .arg(&wheels)
        .output()?;
    Ok(PathBuf::from(made.trim()))
}

fn by_maturin(python: &Path) -> Result<PathBuf, Failure> {
    let wheels = workspace::kept("maturin-wheels")?;
    let _ = fs::remove_dir_all(&wheels);
    Step::new(python)
        .args(["-m", "maturin", "build", "--release", "--manifest-path"])
        .arg(workspace::root().join("python/Cargo.toml"))
        .arg("--out")
        .arg(&wheels)
        .builds()
        .run()?;
    let entries = fs::read_dir(&wheels).map_err(Failure::io("listing", &wheels))?;
    let wheel = entries.filter_map(Result::ok).map(|entry| entry.path()).next();
    wheel.ok_or_else(|| Failure::new("maturin made no wheel"))
}

/// The interpreter of an environment with the packages that the tests need, and no package of ours.
fn environment(options: &Options) -> Result<PathBuf, Failure> {
    let (name, lists): (&str, &[&str]) = match (options.long, options.ray) {
        (_, true) => ("python-ray", &["requirements.txt", "requirements-ray.txt"]),
        (true, false) => ("python-long", &["requirements.txt", "requirements-long.txt"]),
        (false, false) => ("python-short", &["requirements.txt"]),
    };
    let venv = workspace::target().join(format!("{name}-venv"));
    let interpreter = venv.join("bin/python");
    let lists: Vec<_> =
        lists.iter().map(|list| workspace::root().join("python/tests").join(list)).collect();
    let mut wanted = Vec::new();
    for list in &lists {
        wanted.extend(fs::read(list).map_err(Failure::io("reading", list))?);
    }
    let stamp = venv.join("requirements.installed");
    if interpreter.exists() && fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(interpreter);
    }
    Step::new("python3").args(["-m", "venv", "--clear"]).arg(&venv).run()?;
    let mut install = pip(&interpreter, &[]);
    for list in &lists {
        install = install.arg("--requirement").arg(list);
    }
    install.run()?;
    fs::write(&stamp, wanted).map_err(Failure::io("writing", &stamp))?;
    Ok(interpreter)
}

fn pip(python: &Path, options: &[&str]) -> Step {
    Step::new(python)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
        .args(options)
        .limit(Duration::from_secs(300))
}

/// pytest over all tests of the package, in a directory from which no source of ours can be imported.
fn tests(python: &Path) -> Outcome {
    let server = workspace::landfast()?;
    let finished = Step::new(python)
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-rs"])
        .arg(workspace::root().join("python/tests"))
        .env("LANDFAST_SERVER", server.display().to_string())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .dir(&workspace::kept("tmp")?)
        .limit(Duration::from_secs(300))
        .tee()?;
    let mut tally = counted(&finished.stdout);
    if !finished.status.success() && tally.failed.is_empty() {
        tally.failed.push(format!("pytest ended with {}", finished.status));
    }
    Ok(tally)
}

/// Reads pytest's last line, such as `2 failed, 94 passed, 3 skipped in 4.1s`, and its lines of failures.
fn counted(output: &str) -> Tally {
    let mut tally = Tally::default();
    let failed = output
        .lines()
        .filter_map(|line| line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR ")));
    tally.failed = failed.map(|line| format!("pytest {line}")).collect();
    let last = output.lines().rev().find(|line| line.contains(" passed"));
    if let Some(last) = last {
        let words: Vec<&str> =
            last.split([' ', ',', '=']).filter(|word| !word.is_empty()).collect();
        let count = |name: &str| {
            let pair = words.windows(2).find(|pair| pair[1] == name);
            pair.and_then(|pair| pair[0].parse::<u32>().ok()).unwrap_or(0)
        };
        tally.passed = count("passed");
        tally.note = format!("{} tests of Python, {} left out", tally.passed, count("skipped"));
    }
    tally
}

/// Runs the blocks of docs/python.md that begin with ```python, in their order, as one program each.
fn examples(python: &Path) -> Result<(), Failure> {
    let path = workspace::root().join("docs/python.md");
    let guide = fs::read_to_string(&path).map_err(Failure::io("reading", &path))?;
    let files = workspace::scratch_on_tmpfs()?;
    let stored = workspace::scratch_on_tmpfs()?;
    let [meta, pieces] =
        ["meta", "pieces"].map(|name| stored.path().join(name).display().to_string());
    let options = ["--emulate-persistence", "--store", &pieces, "--store-meta", &meta];
    let server = Landfast::start(files.path(), &options)?;
    let scratch = workspace::scratch()?;
    for (number, block) in blocks(&guide).into_iter().enumerate() {
        // The guide speaks of a server as the README starts it.
        let text = block
            .replace(
                "smb://alice@127.0.0.1:4450/data",
                &format!("smb://{USER}@{}/{SHARE}", server.address.smb),
            )
            .replace(
                "landfast://alice@127.0.0.1:4450/data",
                &format!("landfast://{USER}@{}/{SHARE}", server.address.smb),
            );
        let text = text.replace("/tmp/store/meta", &meta);
        let program = scratch.path().join(format!("example_{number}.py"));
        fs::write(&program, text).map_err(Failure::io("writing", &program))?;
        let finished = Step::new(python)
            .arg(&program)
            .secret_env("LANDFAST_PASSWORD", PASSWORD)
            .limit(Duration::from_secs(60))
            .finish()?;
        if !finished.status.success() {
            let evidence = tail(&finished.stderr);
            return Err(Failure::new(format!("example {}{evidence}", number + 1)));
        }
    }
    Ok(())
}

fn blocks(guide: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = guide.lines();
    while let Some(line) = lines.next() {
        if line == "```python" {
            let block = lines.by_ref().take_while(|line| *line != "```");
            found.push(block.fold(String::new(), |text, line| text + line + "\n"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_pytest_is_counted() {
        let output =
            "....s\nFAILED a.py::b - AssertionError\n1 failed, 94 passed, 3 skipped in 4.10s\n";
        let tally = counted(output);
        assert_eq!((tally.passed, tally.failed.len()), (94, 1));
        assert_eq!(tally.note, "94 tests of Python, 3 left out");
    }

    #[test]
    fn the_examples_of_a_guide_are_its_blocks_of_python() {
        let guide = "text\n```python\na\nb\n```\n```sh\nno\n```\n```python\nc\n```\n";
        assert_eq!(blocks(guide), ["a\nb\n", "c\n"]);
    }
}
