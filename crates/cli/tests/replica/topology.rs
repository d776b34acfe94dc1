//! `landfast replica test-topology`: what is measured between two members, before they are made.

use std::fs;

use super::{Running, create, landfast};

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
fn a_measurement_whose_files_cannot_be_written_ends_before_it_begins() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // Nobody would answer: whoever measured first would say that.
    create(disk.path(), ["127.0.0.1:0", "127.0.0.1:1"]);
    for option in ["--json", "--html"] {
        let words = ["test-topology", "db.toml", "alpha", "--seconds", "1", option, "none/such"];
        let refused = landfast(disk.path(), &words);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains("none/such"), "{said}");
    }
    // What was begun is not left.
    let left = fs::read_dir(disk.path()).unwrap().map(|it| it.unwrap().file_name());
    assert!(left.into_iter().all(|name| name.to_string_lossy().starts_with("db.toml")));
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
