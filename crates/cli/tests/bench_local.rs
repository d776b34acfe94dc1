//! `landfast bench-local` in memory and on a disk.

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::{Command, Output};

    use serde_json::Value;

    fn run(directory: &Path, more: &[&str]) -> Output {
        let quick = ["-d", "0.01", "--rounds", "1", "--size", "32M"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfast"));
        command.arg("bench-local").arg(directory).args(quick).args(more).output().unwrap()
    }

    fn arms_of(report: &Value, row: &str) -> Vec<String> {
        let rows = report["rows"].as_array().unwrap();
        let row = rows.iter().find(|found| found["row"] == row).unwrap();
        let arms = row["arms"].as_array().unwrap().iter();
        arms.inspect(|arm| assert!(arm["per_second"].as_f64() > Some(0.0), "{arm}"))
            .map(|arm| arm["arm"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn all_arms_are_measured_and_nothing_is_left() {
        for (place, class) in [("/dev/shm", "volatile"), ("/var/tmp", "storage")] {
            let dir = tempfile::tempdir_in(place).unwrap();
            let output = run(dir.path(), &["-t", "1,2", "--json"]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(report["class"], class);
            assert_eq!(report["is_emulated"], class == "volatile");
            let missing = report["missing"].to_string();
            let all = [
                "mapped (dax)",
                "volume, mode block",
                "volume, mode file",
                "tail of a log",
                "pwrite, fdatasync",
                "O_DIRECT, O_DSYNC",
            ];
            // Not every tmpfs knows direct I/O: then the report says so.
            let wanted: Vec<&str> = all.into_iter().filter(|arm| !missing.contains(arm)).collect();
            assert!(wanted.len() >= 5, "{missing}");
            for row in [
                "durable writes of 4 KiB at random",
                "durable writes of 4 KiB at random, 2 threads",
            ] {
                assert_eq!(arms_of(&report, row), wanted);
            }
            let reads = arms_of(&report, "reads of 128 KiB in order");
            assert!(
                !reads.contains(&"tail of a log".to_owned()) && reads.len() + 1 == wanted.len()
            );
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn modes_are_chosen_and_a_directory_that_is_none_is_named() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let output = run(dir.path(), &["--mode", "log"]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("tail of a log") && !said.contains("volume"), "{said}");
        assert!(said.contains("as if it were persistent"), "{said}");
        let output = run(Path::new("/no/such/place"), &[]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(said.contains("/no/such/place") && said.contains("No such file"), "{said}");
    }
}
