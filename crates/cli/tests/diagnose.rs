//! `landfast diagnose` on places of each kind.

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::process::{Command, Output};

    use serde_json::Value;

    fn landfast(args: &[&str], path: &Path) -> Output {
        Command::new(env!("CARGO_BIN_EXE_landfast")).args(args).arg(path).output().unwrap()
    }

    fn diagnosis(path: &Path) -> Value {
        let output = landfast(&["diagnose", "--seconds", "0.05", "--json"], path);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    #[test]
    fn memory_is_volatile_and_measured_as_if_it_were_not() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let found = diagnosis(dir.path());
        assert_eq!((&found["class"], &found["file_system"]), (&"volatile".into(), &"tmpfs".into()));
        assert_eq!(found["dax"]["is_on"], false);
        assert_eq!(found["cost"]["is_emulated"], true);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
        let text = landfast(&["diagnose", "--seconds", "0"], dir.path());
        let text = String::from_utf8(text.stdout).unwrap();
        assert!(text.contains("ordinary memory") && text.contains("as if"), "{text}");
    }

    #[test]
    fn a_file_on_a_disk_is_left_as_it_is() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "as it is").unwrap();
        let found = diagnosis(&file);
        assert_eq!((&found["class"], &found["granularity"]), (&"storage".into(), &4096.into()));
        assert_eq!(found["cost"]["is_emulated"], false);
        assert!(found["cost"]["p50_ns"].as_u64() <= found["cost"]["p99_ns"].as_u64());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "as it is");
    }

    #[test]
    fn a_volume_is_called_one() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let volume = dir.path().join("disk0");
        let create = ["volume", "create", "--size", "32M", "--emulate-persistence"];
        assert!(landfast(&create, &volume).status.success());
        assert_eq!(diagnosis(&volume)["volume"], "block");
    }

    #[test]
    fn what_cannot_be_measured_is_said_to_be_so() {
        let found = diagnosis(Path::new("/dev/null"));
        assert_eq!((&found["class"], &found["kind"]), (&Value::Null, &"a character device".into()));
        assert!(found["cost"]["why"].is_string() && found["unclassified"].is_string());
        // Nobody makes a file in a directory of the kernel.
        let found = diagnosis(Path::new("/proc/self"));
        assert_eq!(found["cost"]["outcome"], "not_measured");
    }

    #[test]
    fn a_path_that_is_not_there_is_named() {
        let output = landfast(&["diagnose"], Path::new("/no/such/place"));
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("/no/such/place") && said.contains("No such file"), "{said}");
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o500)).unwrap();
        if !rustix::process::geteuid().is_root() {
            assert_eq!(diagnosis(dir.path())["cost"]["outcome"], "not_measured");
        }
    }
}
