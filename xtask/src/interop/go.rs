//! go-smb2, the SMB client of programs in Go, by a program of ours that prints one line a check.
//!
//! Go keeps what it downloads and builds below `target/interop-go`. Versions and checksums are in
//! `tests/interop/go/go.sum`; nothing else is taken.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::failure::{Failure, Outcome};
use crate::interop::report;
use crate::landfast::Landfast;
use crate::peer::{Against, PASSWORD, Peer, SEALED, SHARE, USER};
use crate::process::{Step, tail};
use crate::workspace;

/// All checks against one server, on a share for everybody and on one that requires encryption.
pub(crate) fn run(against: Against) -> Outcome {
    let client = build()?;
    let scratch = workspace::scratch()?;
    let mut peer = match against {
        Against::Smbd => Peer::start(against, scratch.path())?,
        Against::Landfast => {
            let config = scratch.path().join("landfast.toml");
            let path = scratch.path().join("served");
            fs::create_dir(&path).map_err(Failure::io("creating", &path))?;
            let text = format!(
                "[[share]]\nname = \"{SEALED}\"\npath = \"{}\"\nencrypt = true\n",
                path.display()
            );
            fs::write(&config, text).map_err(Failure::io("writing", &config))?;
            let config = config.display().to_string();
            Peer::Landfast(Landfast::start(&path, &["--config", &config])?)
        }
    };
    let finished = Step::new(client)
        .args(["-address", &peer.address().smb.to_string()])
        .args(["-share", SHARE, "-sealed", SEALED, "-user", USER])
        .secret_env("LANDFAST_PASSWORD", PASSWORD)
        .limit(Duration::from_secs(300))
        .tee()?;
    let mut tally = report::read(&finished.stdout);
    if !finished.status.success() && tally.failed.is_empty() {
        let evidence = format!("{}{}", finished.status, tail(&finished.stdout));
        tally.count("go-smb2", Err(evidence));
    }
    peer.still_runs()?;
    Ok(tally)
}

/// Builds the program of `tests/interop/go`; nothing is done when nothing has changed.
fn build() -> Result<PathBuf, Failure> {
    let target = workspace::target().join("interop-go");
    let program = target.join("client");
    let below = |name: &str| target.join(name).display().to_string();
    Step::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .dir(&workspace::root().join("tests/interop/go"))
        .env("GOPATH", below("path"))
        .env("GOCACHE", below("cache"))
        // No other compiler is fetched, no module that go.sum does not name, and what is there can
        // be removed.
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "-mod=readonly -modcacherw")
        .builds()
        .run()
        .map_err(|failure| failure.remedy("cargo xtask deps"))?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_the_client_needs_is_pinned_with_its_checksum() {
        let folder = workspace::root().join("tests/interop/go");
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        let (modules, sums) = (read("go.mod"), read("go.sum"));
        let wanted = modules.lines().filter_map(|line| {
            let line = line.trim().trim_start_matches("require ").trim_end_matches(" // indirect");
            let (module, version) = line.split_once(' ')?;
            version.starts_with('v').then(|| format!("{module} {version} h1:"))
        });
        let wanted: Vec<String> = wanted.collect();
        assert_eq!(wanted.len(), 3);
        for module in wanted {
            assert!(sums.contains(&module), "{module}");
        }
    }
}
