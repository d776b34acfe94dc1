//! A volume and `landfast volume serve`, for steps that bring NBD clients.

use crate::failure::Failure;
use crate::landfast::announced;
use crate::peer::free_port;
use crate::process::{Running, Step};
use crate::workspace;
use std::path::{Path, PathBuf};

/// A volume's file.
#[derive(Debug)]
pub(crate) struct Volume {
    path: PathBuf,
}

impl Volume {
    /// Makes a volume; in memory it is treated as if it were durable.
    pub(crate) fn create(path: &Path, size: &str, more: &[&str]) -> Result<Self, Failure> {
        let step = Step::new(workspace::landfast()?).args(["volume", "create"]).arg(path);
        step.args(["--size", size, "--emulate-persistence"]).args(more).output()?;
        Ok(Self { path: path.to_owned() })
    }

    /// A volume that is there.
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Checks the volume; one of mode file has nothing to check.
    pub(crate) fn check(&self) -> Result<(), String> {
        let checked = || -> Result<(), Failure> {
            let landfast = workspace::landfast()?;
            let info = Step::new(&landfast).args(["volume", "info"]).arg(&self.path).output()?;
            if info.contains("mode file") {
                return Ok(());
            }
            Step::new(&landfast).args(["volume", "check"]).arg(&self.path).output().map(drop)
        };
        checked().map_err(|failure| failure.to_string())
    }
}

/// A server of one volume, on a unix socket or, with TLS, on a port of this machine.
#[derive(Debug)]
pub(crate) struct NbdServer {
    running: Running,
    socket: PathBuf,
    /// The port, if it has one.
    pub(crate) port: u16,
}

impl NbdServer {
    /// Serves on a unix socket beside the volume.
    pub(crate) fn start(volume: &Volume) -> Result<Self, Failure> {
        Self::start_with(volume, 0, &[], None)
    }

    /// Serves on a port, to everybody on this machine.
    pub(crate) fn start_tcp(volume: &Volume) -> Result<Self, Failure> {
        let port = free_port()?;
        Self::start_with(volume, port, &[&format!("--listen=127.0.0.1:{port}"), "--anybody"], None)
    }

    /// Serves on a port, to clients with a certificate of `authority`.
    pub(crate) fn start_tls(
        volume: &Volume,
        certificate: &Path,
        key: &Path,
        authority: &Path,
    ) -> Result<Self, Failure> {
        let port = free_port()?;
        let listen = format!("--listen=127.0.0.1:{port}");
        let files =
            [("--tls-certificate", certificate), ("--tls-key", key), ("--tls-clients", authority)];
        let files: Vec<String> =
            files.iter().map(|(option, path)| format!("{option}={}", path.display())).collect();
        let mut args = vec![listen.as_str()];
        args.extend(files.iter().map(String::as_str));
        Self::start_with(volume, port, &args, None)
    }

    /// Serves on a unix socket, on one core alone.
    pub(crate) fn start_on(volume: &Volume, core: usize) -> Result<Self, Failure> {
        Self::start_with(volume, 0, &[], Some(core))
    }

    fn start_with(
        volume: &Volume,
        port: u16,
        args: &[&str],
        core: Option<usize>,
    ) -> Result<Self, Failure> {
        let socket = volume.path.with_extension("sock");
        let log = volume.path.with_extension("log");
        let step = Step::new(workspace::landfast()?).args(["volume", "serve"]);
        let step = step.arg(format!("disk={}", volume.path.display()));
        let step = step.arg("--unix").arg(&socket).arg("--emulate-persistence").args(args);
        let step = if let Some(core) = core { step.on_core(core) } else { step };
        let mut running = step.serve(&log, true)?;
        announced(&mut running, &log, |line| line.starts_with("serving ").then_some(()))?;
        Ok(Self { running, socket, port })
    }

    /// What clients are given to find the volume.
    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///disk?socket={}", self.socket.display())
    }

    /// Ends the server at once.
    pub(crate) fn kill(&mut self) {
        self.running.kill();
    }
}
