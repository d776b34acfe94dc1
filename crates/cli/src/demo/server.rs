//! A server in a process of its own, to be measured and killed.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};

use super::child;
use crate::failure::Failure;

/// `landfast serve` as a child process, which ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// The address of SMB over TCP.
    pub(crate) smb: SocketAddr,
}

impl Server {
    /// Serves `directory` on free ports of loopback.
    pub(crate) fn start(directory: &Path, emulate_persistence: bool) -> Result<Self, Failure> {
        let mut command = child::command()?;
        command.arg("serve").arg("--share").arg(format!("{SHARE}={}", directory.display()));
        command.args(["--user", &format!("{USER}:{PASSWORD}")]);
        command.args(["--listen", "127.0.0.1:0", "--rdma-listen", "127.0.0.1:0"]);
        // A killed server leaves its socket behind.
        command.args(["--control", "off"]);
        if emulate_persistence {
            command.arg("--emulate-persistence");
        }
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Failure::system("cannot start the server"))?;
        let output = child.stdout.take().expect("the output was asked to be piped");
        let mut server = Self { child, smb: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(Failure::system("server's output"))?;
        server.smb = smb_address(&line).ok_or_else(|| Failure::Child {
            process: "the server",
            what: format!("said {line:?} instead of its addresses"),
        })?;
        Ok(server)
    }

    /// The URL of the share, or of a file in it.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("smb://{USER}:{PASSWORD}@{}/{SHARE}{path}", self.smb)
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end of a process that was killed.
    pub(crate) fn reap(&mut self) {
        // The process was killed, or has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.reap();
    }
}

/// Reads `listening smb=ADDR rdma=ADDR`.
fn smb_address(line: &str) -> Option<SocketAddr> {
    let fields = line.trim().strip_prefix("listening ")?;
    fields.split(' ').find_map(|field| field.strip_prefix("smb="))?.parse().ok()
}

const SHARE: &str = "demo";
const USER: &str = "demo";
// The server listens on loopback only, and ends with this process.
const PASSWORD: &str = "demo";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_parsed_from_the_first_line_of_the_server() {
        let line = "listening smb=127.0.0.1:4450 rdma=127.0.0.1:5445\n";
        assert_eq!(smb_address(line), Some("127.0.0.1:4450".parse().unwrap()));
        assert_eq!(smb_address("no"), None);
    }
}
