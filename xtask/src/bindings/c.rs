//! The C library as a stranger uses it: installed, found by pkg-config, its example compiled with cc and run against a server,
//! once more with the address sanitizer, and once linked statically.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::install;
use crate::failure::{Failure, Outcome, Tally};
use crate::landfast::Landfast;
use crate::peer::{PASSWORD, USER};
use crate::process::{Finished, Step, tail};
use crate::workspace;

/// Installs the library and runs its example.
pub(crate) fn run(is_long: bool) -> Outcome {
    let scratch = workspace::scratch()?;
    let prefix = scratch.path().join("prefix");
    install::install(&prefix, is_long)?;
    let files = workspace::scratch_on_tmpfs()?;
    let stored = workspace::scratch_on_tmpfs()?;
    let [meta, pieces] =
        ["meta", "pieces"].map(|name| stored.path().join(name).display().to_string());
    let options = ["--emulate-persistence", "--store", &pieces, "--store-meta", &meta];
    let server = Landfast::start(files.path(), &options)?;
    let mut tally = Tally::default();
    let mut ways = vec![("shared", PLAIN), ("sanitized", SANITIZED)];
    if is_long {
        ways.push(("static", PLAIN));
    }
    for (name, flags) in ways {
        let program = scratch.path().join(name);
        let is_static = name == "static";
        let compiled = compile(&prefix, flags, is_static, EXAMPLE, &program);
        let ran = compiled.and_then(|()| example(&program, &prefix, &server, name));
        tally.count(&format!("the example, {name}"), ran.map_err(|failure| failure.to_string()));
        let program = scratch.path().join(format!("store-{name}"));
        let compiled = compile(&prefix, flags, is_static, STORE_EXAMPLE, &program);
        let ran = compiled.and_then(|()| of_store(&program, &prefix, &meta, name));
        tally.count(&format!("the store, {name}"), ran.map_err(|failure| failure.to_string()));
    }
    if let Some(line) = server.panicked()? {
        tally.failed.push(format!("the server: {line}"));
    }
    tally.note = format!("{} builds of the examples", tally.passed);
    Ok(tally)
}

fn compile(
    prefix: &Path,
    flags: &[&str],
    is_static: bool,
    source: &str,
    program: &Path,
) -> Result<(), Failure> {
    let mut asked = Step::new("pkg-config");
    if is_static {
        asked = asked.arg("--static");
    }
    let found = asked
        .args(["--cflags", "--libs", "landfast"])
        .env("PKG_CONFIG_PATH", install::pkg_config(prefix).display().to_string())
        .output()?;
    let archive = prefix.join("lib/liblandfast.a");
    let found = found.split_whitespace().map(|word| match word {
        // The linker prefers the shared library.
        "-llandfast" if is_static => archive.display().to_string(),
        word => word.to_owned(),
    });
    Step::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g"])
        .args(flags)
        .arg(workspace::root().join(source))
        .args(found)
        .arg("-o")
        .arg(program)
        .run()
}

fn example(program: &Path, prefix: &Path, server: &Landfast, name: &str) -> Result<(), Failure> {
    let url = format!("smb://{USER}@{}/{}", server.address.smb, crate::peer::SHARE);
    let finished = Step::new(program)
        .args([url.as_str(), "example.dat", "--emulated"])
        .env("LD_LIBRARY_PATH", prefix.join("lib").display().to_string())
        .secret_env("LANDFAST_PASSWORD", PASSWORD)
        .limit(Duration::from_secs(60))
        .finish()?;
    let wanted = [
        "mapped: push by provider",
        "region: \"durable when this returns\"",
        "queue: 512 bytes of 'h'",
        "LANDFAST_STATUS_BAD_HANDLE",
        "cannot open no/such/file: the server answered CREATE with",
        "the argument `path` is null",
        "  example.dat: 1048576 bytes",
        "done",
    ];
    judged(&finished, &wanted, name)
}

/// A region of the daemon beside the shares, made, used, refused and freed.
fn of_store(program: &Path, prefix: &Path, meta: &str, name: &str) -> Result<(), Failure> {
    let finished = Step::new(program)
        .args([meta, "--volatile"])
        .env("LD_LIBRARY_PATH", prefix.join("lib").display().to_string())
        .limit(Duration::from_secs(60))
        .finish()?;
    let wanted = [
        "mapped: 4194304 bytes",
        "vectors: one two",
        "memories of spans overlap",
        "words: it was 5",
        "queue: 512 bytes of 'h', user data 77",
        "token: one",
        "LANDFAST_STATUS_BAD_HANDLE",
        "done",
    ];
    judged(&finished, &wanted, name)
}

fn judged(finished: &Finished, wanted: &[&str], name: &str) -> Result<(), Failure> {
    let printed = &finished.stdout;
    let missing: Vec<&&str> = wanted.iter().filter(|text| !printed.contains(**text)).collect();
    if finished.status.success() && missing.is_empty() {
        return Ok(());
    }
    let evidence = format!("{}{}", tail(printed), tail(&finished.stderr));
    Err(Failure::new(format!("{name}: {}, without {missing:?}{evidence}", finished.status)))
}

/// Where the example lies.
pub(crate) const EXAMPLE: &str = "crates/capi/examples/regions.c";
const STORE_EXAMPLE: &str = "crates/capi/examples/store.c";
const PLAIN: &[&str] = &[];
const SANITIZED: &[&str] = &["-fsanitize=address,undefined", "-fno-omit-frame-pointer"];

/// A prefix that later steps share, with the shared library only.
pub(crate) fn shared_prefix() -> Result<PathBuf, Failure> {
    let prefix = workspace::kept("liblandfast")?;
    install::install(&prefix, false)?;
    Ok(prefix)
}
