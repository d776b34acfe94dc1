//! The process of one arm, with memory as bounded as the machine lets us bound it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::Failure;

/// A server that ends with this value.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    group: Option<PathBuf>,
    /// Of each serving thread.
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Server {
    pub(crate) fn start(
        arm: &str,
        path: &Path,
        len: u64,
        budget: u64,
        (wait, threads): (&str, usize),
    ) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        let served = if arm == "workers" { "push" } else { arm };
        if arm == "workers" {
            command.env("LANDFAST_NO_IO_URING", "1");
        }
        let mut child = command
            .args(["serve", served])
            .arg(path)
            .args([len.to_string(), budget.to_string(), wait.to_owned(), threads.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        // The control arms need no more than the page cache and some buffers.
        let is_flash = arm.starts_with("push") || arm == "workers";
        let group = bound(child.id(), budget + if is_flash { 64 << 20 } else { 16 << 20 });
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut server = Self { child, input, output, group, addresses: Vec::new() };
        // It waits for the word, so that it does nothing before it is bounded.
        server.tell("go")?;
        for _ in 0..threads {
            let address = server.line()?.parse()?;
            server.addresses.push(address);
        }
        Ok(server)
    }

    pub(crate) fn tell(&mut self, word: &str) -> Result<(), Failure> {
        Ok(writeln!(self.input, "{word}")?)
    }

    pub(crate) fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err("the server has ended".into());
        }
        Ok(line.trim().to_owned())
    }

    /// The serving thread of a connection.
    pub(crate) fn address(&self, connection: usize) -> SocketAddr {
        self.addresses[connection % self.addresses.len()]
    }

    /// CPU time of the process so far.
    pub(crate) fn cpu(&mut self) -> Result<Duration, Failure> {
        self.tell("cpu")?;
        Ok(Duration::from_nanos(self.line()?.parse()?))
    }

    pub(crate) fn stop(mut self) -> Result<(), Failure> {
        self.end();
        Ok(())
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(group) = self.group.take() {
            let _ = std::fs::remove_dir(group);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Puts a process into a memory cgroup, version 2 or 1.
fn bound(process: u32, bytes: u64) -> Option<PathBuf> {
    let name = format!("landfast-arms-{process}");
    for (root, file) in
        [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")]
    {
        let group = Path::new(root).join(&name);
        let made = std::fs::create_dir(&group)
            .and_then(|()| std::fs::write(group.join(file), bytes.to_string()))
            .and_then(|()| std::fs::write(group.join("cgroup.procs"), process.to_string()));
        match made {
            Ok(()) => return Some(group),
            Err(_) => drop(std::fs::remove_dir(&group)),
        }
    }
    eprintln!("no memory cgroup: the page cache of the control arms is not bounded");
    None
}
