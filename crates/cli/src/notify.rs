//! Notifies a service manager: the server is ready, reads its config again, stops.
//!
//! Each state is a datagram to the unix socket that NOTIFY_SOCKET names; `@` at its beginning stands for an abstract
//! name. Without NOTIFY_SOCKET nothing is sent.
//!
//! Spec: sd_notify(3), systemd.service(5) `Type=notify`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};
use tracing::warn;

/// The server takes no more clients.
pub(crate) const STOPPING: &str = "STOPPING=1";

/// The server reads its config again; [`ready`] follows. The manager compares the time, of
/// CLOCK_MONOTONIC in microseconds, with the time of its request.
pub(crate) fn reloading() -> String {
    let now = clock_gettime(ClockId::Monotonic);
    format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1_000)
}

/// The server serves, with the config that it read last; `status` is a line for `systemctl status`.
pub(crate) fn ready(status: &str) -> String {
    format!("READY=1\nSTATUS={}", status.replace('\n', " "))
}

/// Sends a state to the manager, if there is one.
pub(crate) fn say(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
        return;
    };
    if let Err(error) = send(&name, state) {
        warn!(%error, state, "the service manager was not told");
    }
}

fn send(name: &OsStr, state: &str) -> io::Result<()> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not block the server.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_reaches_a_socket_with_a_path_or_an_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let unique = path.display().to_string();
        let abstract_name = SocketAddr::from_abstract_name(&unique).unwrap();
        let here = UnixDatagram::bind(&path).unwrap();
        let there = UnixDatagram::bind_addr(&abstract_name).unwrap();
        for (name, socket) in [(unique.clone(), &here), (format!("@{unique}"), &there)] {
            send(OsStr::new(&name), STOPPING).unwrap();
            let mut got = [0; 100];
            let len = socket.recv(&mut got).unwrap();
            assert_eq!(&got[..len], STOPPING.as_bytes());
        }
        send(OsStr::new("/nowhere"), STOPPING).unwrap_err();
    }
}
