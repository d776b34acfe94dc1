//! `landfast replica` as a process.
#![cfg(test)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

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
