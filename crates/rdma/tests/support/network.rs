//! A private network that a test can cut: peers on it vanish without a last packet.
//!
//! The test runs again as the only test of another process, in a network namespace whose one link it
//! takes down. If the host allows no namespace the test is left out, and prints a line past
//! libtest's capture: `cargo xtask test` counts those lines.

use std::env;
use std::process::Command;

use skipped::skip;

#[allow(clippy::duplicate_mod, reason = "a test file may have it from its own support too")]
#[path = "../../../../tests/skipped.rs"]
mod skipped;

/// Runs `work` in a network of its own. `test` is the name of the test, with its modules.
pub(crate) fn alone(test: &str, work: impl FnOnce(&Network)) {
    if env::var_os(INSIDE).is_some() {
        return work(&Network(()));
    }
    let inside = |program: &std::ffi::OsStr| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "sh", "-ec", UP, "sh"]);
        command.arg(program);
        command
    };
    let probe = inside("true".as_ref()).output();
    if !probe.as_ref().is_ok_and(|probe| probe.status.success()) {
        skip(format!("no network namespaces on this host: {probe:?}"));
        return;
    }
    let mut again = inside(env::current_exe().unwrap().as_os_str());
    again.args([test, "--exact", "--nocapture", "--test-threads", "1"]).env(INSIDE, "1");
    let output = again.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The network: one loopback.
#[derive(Debug)]
pub(crate) struct Network(());

impl Network {
    /// Cuts the network: no packet arrives any more.
    pub(crate) fn cut(&self) {
        Self::set("down");
    }

    /// Restores the network.
    pub(crate) fn mend(&self) {
        Self::set("up");
    }

    fn set(state: &str) {
        let status = Command::new("ip").args(["link", "set", "lo", state]).status();
        assert!(status.unwrap().success());
    }
}

/// Set in the second process.
const INSIDE: &str = "LANDFAST_OWN_NETWORK";
const UP: &str = "ip link set lo up; exec \"$@\"";
