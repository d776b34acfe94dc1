//! The resource agent of Pacemaker, with real members: its meta-data, its exit codes, the sequence that Debian's ocf-tester
//! goes through, and a source that is killed.

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Output, Stdio};
    use std::time::{Duration, Instant};

    const LANDFAST: &str = env!("CARGO_BIN_EXE_landfast");
    const SUCCESS: i32 = 0;
    const ARGS: i32 = 2;
    const UNIMPLEMENTED: i32 = 3;
    const INSTALLED: i32 = 5;
    const CONFIGURED: i32 = 6;
    const NOT_RUNNING: i32 = 7;
    const RUNNING_PROMOTED: i32 = 8;

    fn agent() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/ocf/landfast-replica")
    }

    /// A group of two members on this machine, whose record is in a file.
    struct Group {
        directory: tempfile::TempDir,
    }

    impl Group {
        fn new() -> Self {
            let group = Self { directory: tempfile::tempdir().unwrap() };
            // Held until both are known, so that they differ.
            let listeners = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
            let at = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
            let member = |name: &str, index: usize| {
                format!("{name}={},{}", at[index], group.path(name).display())
            };
            let (alpha, beta) = (member("alpha", 0), member("beta", 1));
            drop(listeners);
            let file = group.file();
            let create = ["create", &file, "--volume", "data=16M", "--log-size", "64M"];
            group.landfast(&[&create[..], &["--member", &alpha, "--member", &beta]].concat());
            let written = std::fs::read_to_string(&file).unwrap();
            std::fs::write(&file, format!("witness_file = \"seat\"\n{written}")).unwrap();
            for member in ["alpha", "beta"] {
                group.landfast(&["prepare", &file, member]);
            }
            group
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn file(&self) -> String {
            self.path("db.toml").to_str().unwrap().to_owned()
        }

        fn landfast(&self, arguments: &[&str]) -> String {
            let output = Command::new(LANDFAST).arg("replica").args(arguments).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {output:?}");
            String::from_utf8(output.stdout).unwrap()
        }

        fn agent(&self, member: &str, action: &str) -> Command {
            let mut command = Command::new(agent());
            command
                .arg(action)
                .env("OCF_ROOT", "/nonexistent")
                .env("HA_RSCTMP", self.path("run"))
                .env("OCF_RESOURCE_INSTANCE", format!("db:{member}"))
                .env("OCF_RESKEY_program", LANDFAST)
                .env("OCF_RESKEY_file", self.file())
                .env("OCF_RESKEY_member", member)
                .env("OCF_RESKEY_options", "--emulate-persistence");
            command
        }

        fn run(&self, member: &str, action: &str) -> i32 {
            code(&mut self.agent(member, action))
        }

        /// The process that the agent started.
        fn pid(&self, member: &str) -> String {
            let pid = self.path(&format!("run/landfast-replica-db_{member}.pid"));
            std::fs::read_to_string(pid).unwrap().trim().to_owned()
        }

        fn waits_until(&self, member: &str, says: &str) {
            let began = Instant::now();
            loop {
                let output = Command::new(LANDFAST)
                    .args(["replica", "status", &self.file(), "--at", member, "--json"])
                    .output()
                    .unwrap();
                let said = String::from_utf8(output.stdout).unwrap().replace([' ', '\n'], "");
                if said.contains(says) {
                    return;
                }
                assert!(began.elapsed() < Duration::from_secs(60), "{member}: no {says} in {said}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    impl Drop for Group {
        fn drop(&mut self) {
            for member in ["alpha", "beta"] {
                let _ = self.agent(member, "stop").output();
            }
        }
    }

    // The files that the agent's processes write to are no pipes of ours, so the output ends with the agent.
    fn code(command: &mut Command) -> i32 {
        let output: Output = command.output().unwrap();
        output.status.code().unwrap_or_else(|| panic!("{output:?}"))
    }

    #[test]
    fn the_agent_is_clean_to_shellcheck() {
        let output = Command::new("shellcheck").args(["-s", "sh"]).arg(agent()).output();
        let output = output.expect("shellcheck is installed by `cargo xtask deps`");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    /// What Pacemaker's interface of resource agents, version 1.0, asks of meta-data.
    const RULES: &str = r#"
        <!ELEMENT resource-agent (version, longdesc, shortdesc, parameters?, actions)>
        <!ATTLIST resource-agent name CDATA #REQUIRED version CDATA #IMPLIED>
        <!ELEMENT version (#PCDATA)> <!ELEMENT longdesc (#PCDATA)> <!ELEMENT shortdesc (#PCDATA)>
        <!ATTLIST longdesc lang NMTOKEN #REQUIRED> <!ATTLIST shortdesc lang NMTOKEN #REQUIRED>
        <!ELEMENT parameters (parameter+)> <!ELEMENT parameter (longdesc, shortdesc, content)>
        <!ATTLIST parameter name CDATA #REQUIRED required (0|1) "0" unique (0|1) "0">
        <!ELEMENT content EMPTY>
        <!ATTLIST content type (string|integer|boolean) #REQUIRED default CDATA #IMPLIED>
        <!ELEMENT actions (action+)> <!ELEMENT action EMPTY>
        <!ATTLIST action
            name (start|stop|monitor|promote|demote|notify|meta-data|validate-all) #REQUIRED
            timeout CDATA #REQUIRED interval CDATA #IMPLIED depth CDATA #IMPLIED
            role (Promoted|Unpromoted) #IMPLIED>
    "#;

    #[test]
    fn the_meta_data_follow_the_rules_of_resource_agents() {
        let output = Command::new(agent()).arg("meta-data").output().unwrap();
        assert!(output.status.success());
        let mut rules = tempfile::NamedTempFile::new().unwrap();
        rules.write_all(RULES.as_bytes()).unwrap();
        let mut checks = Command::new("xmllint")
            .args(["--nonet", "--noout", "--dtdvalid"])
            .arg(rules.path())
            .arg("-")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("xmllint is installed by `cargo xtask deps`");
        checks.stdin.take().unwrap().write_all(&output.stdout).unwrap();
        let checked = checks.wait_with_output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        for action in ["start", "stop", "monitor", "promote", "demote", "notify"] {
            assert!(text.contains(&format!("<action name=\"{action}\"")), "{action}");
        }
    }

    #[test]
    fn a_group_that_is_not_there_has_the_exit_codes_of_ocf() {
        let directory = tempfile::tempdir().unwrap();
        let run = |action: &str, set: &[(&str, &str)]| {
            let mut command = Command::new(agent());
            command.arg(action).env("OCF_ROOT", "/nonexistent").env("HA_RSCTMP", directory.path());
            code(command.envs(set.iter().copied()))
        };
        let missing = directory.path().join("db.toml").to_str().unwrap().to_owned();
        let file = ("OCF_RESKEY_file", missing.as_str());
        let program = ("OCF_RESKEY_program", LANDFAST);
        let recurs = ("OCF_RESKEY_CRM_meta_interval", "10000");
        assert_eq!(run("meta-data", &[]), SUCCESS);
        assert_eq!(run("", &[]), ARGS);
        assert_eq!(run("migrate_to", &[file, program]), UNIMPLEMENTED);
        for action in ["start", "stop", "monitor", "promote", "demote", "validate-all"] {
            assert_eq!(run(action, &[program]), CONFIGURED, "{action} without a file");
        }
        for (without, set) in [
            ("the file", [file, program]),
            ("the program", [file, ("OCF_RESKEY_program", "/nonexistent/landfast")]),
        ] {
            for action in ["start", "promote", "demote", "validate-all"] {
                assert_eq!(run(action, &set), INSTALLED, "{action} without {without}");
            }
            assert_eq!(run("monitor", &[&set[..], &[recurs]].concat()), INSTALLED);
            assert_eq!(run("monitor", &set), NOT_RUNNING, "a probe without {without}");
            assert_eq!(run("stop", &set), SUCCESS, "what is not there has stopped");
        }
    }

    #[test]
    fn one_member_goes_through_the_sequence_of_ocf_tester() {
        let group = Group::new();
        let steps = [
            ("validate-all", SUCCESS),
            ("monitor", NOT_RUNNING),
            ("promote", NOT_RUNNING),
            ("demote", NOT_RUNNING),
            ("start", SUCCESS),
            ("monitor", SUCCESS),
            ("notify", SUCCESS),
            ("demote", SUCCESS),
            ("promote", SUCCESS),
            ("monitor", RUNNING_PROMOTED),
            ("demote", SUCCESS),
            ("demote", SUCCESS),
            ("monitor", SUCCESS),
            ("promote", SUCCESS),
            ("promote", SUCCESS),
            ("notify", SUCCESS),
            ("demote", SUCCESS),
            ("stop", SUCCESS),
            ("monitor", NOT_RUNNING),
            ("start", SUCCESS),
            ("start", SUCCESS),
            ("monitor", SUCCESS),
            ("promote", SUCCESS),
            // A source stops as well.
            ("stop", SUCCESS),
            ("stop", SUCCESS),
            ("monitor", NOT_RUNNING),
        ];
        for (at, (action, expected)) in steps.into_iter().enumerate() {
            let output = group.agent("alpha", action).output().unwrap();
            assert_eq!(output.status.code(), Some(expected), "step {at}, {action}: {output:?}");
        }
    }

    #[test]
    fn a_killed_source_is_not_running_and_the_member_in_sync_is_promoted() {
        let group = Group::new();
        for member in ["alpha", "beta"] {
            assert_eq!(group.run(member, "start"), SUCCESS);
        }
        assert_eq!(group.run("alpha", "promote"), SUCCESS);
        group.waits_until("alpha", "\"in_sync\":[\"alpha\",\"beta\"]");
        let killed = Command::new("kill").args(["-9", &group.pid("alpha")]).status().unwrap();
        assert!(killed.success());
        let began = Instant::now();
        while group.run("alpha", "monitor") != NOT_RUNNING {
            assert!(began.elapsed() < Duration::from_secs(60));
        }
        assert_eq!(group.run("beta", "promote"), SUCCESS);
        assert_eq!(group.run("beta", "monitor"), RUNNING_PROMOTED);
        // It comes back, and is no source, and in sync before long.
        assert_eq!(group.run("alpha", "start"), SUCCESS);
        assert_eq!(group.run("alpha", "monitor"), SUCCESS);
        group.waits_until("beta", "\"in_sync\":[\"alpha\",\"beta\"]");
        assert_eq!(group.run("alpha", "notify"), SUCCESS);
        // The part moves: Pacemaker demotes one and promotes the other.
        assert_eq!(group.run("beta", "demote"), SUCCESS);
        assert_eq!(group.run("alpha", "promote"), SUCCESS);
        assert_eq!(group.run("alpha", "monitor"), RUNNING_PROMOTED);
        assert_eq!(group.run("beta", "monitor"), SUCCESS);
    }

    #[test]
    fn a_source_that_was_killed_and_is_started_again_is_not_promoted() {
        let group = Group::new();
        assert_eq!(group.run("alpha", "start"), SUCCESS);
        assert_eq!(group.run("alpha", "promote"), SUCCESS);
        assert!(Command::new("kill").args(["-9", &group.pid("alpha")]).status().unwrap().success());
        let began = Instant::now();
        while group.run("alpha", "monitor") != NOT_RUNNING {
            assert!(began.elapsed() < Duration::from_secs(60));
        }
        assert_eq!(group.run("alpha", "start"), SUCCESS);
        assert_eq!(group.run("alpha", "monitor"), SUCCESS);
        assert_eq!(group.run("alpha", "promote"), SUCCESS);
    }

    #[test]
    fn a_member_that_does_not_start_is_told_with_what_it_said() {
        let group = Group::new();
        std::fs::remove_file(group.path("alpha/log")).unwrap();
        let output = group.agent("alpha", "start").output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("has not started") && said.contains("alpha/log"), "{said}");
        assert_eq!(group.run("alpha", "monitor"), NOT_RUNNING);
    }
}
