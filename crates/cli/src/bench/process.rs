//! CPU time and context switches of a process, read by another process.

use std::fs;
use std::net::{IpAddr, SocketAddr};

/// Counters of a whole process at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Time on a CPU, in nanoseconds, all threads.
    pub(crate) cpu_ns: u64,
    /// Time runnable but waiting for a CPU, in nanoseconds: noise of the machine.
    pub(crate) run_delay_ns: u64,
    /// Context switches, voluntary and not.
    pub(crate) switches: u64,
}

impl Usage {
    /// Reads the counters of every live thread of `pid`; zero for a process that cannot be read.
    ///
    /// `/proc/PID/task/TID/schedstat` counts in nanoseconds, where `stat` counts in ticks.
    pub(crate) fn of(pid: u32) -> Self {
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Self::default() };
        tasks.flatten().map(|task| Self::of_thread(&task.path())).fold(Self::default(), Self::plus)
    }

    fn of_thread(task: &std::path::Path) -> Self {
        let schedstat = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
        let mut fields = schedstat.split_whitespace().map(|field| field.parse().unwrap_or(0));
        let (cpu_ns, run_delay_ns) = (fields.next().unwrap_or(0), fields.next().unwrap_or(0));
        let status = fs::read_to_string(task.join("status")).unwrap_or_default();
        let switches = status
            .lines()
            .filter(|line| line.contains("ctxt_switches"))
            .filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok())
            .sum();
        Self { cpu_ns, run_delay_ns, switches }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns + other.cpu_ns,
            run_delay_ns: self.run_delay_ns + other.run_delay_ns,
            switches: self.switches + other.switches,
        }
    }

    /// The use since `earlier`. Threads that ended in between are not counted.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            run_delay_ns: self.run_delay_ns.saturating_sub(earlier.run_delay_ns),
            switches: self.switches.saturating_sub(earlier.switches),
        }
    }

    /// Adds another interval to this one.
    pub(crate) fn add(&mut self, other: Self) {
        *self = self.plus(other);
    }
}

/// The process that listens on `address`, if it runs on this machine and this process may look at
/// it.
pub(crate) fn listener(address: SocketAddr) -> Option<u32> {
    let table = if address.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
    let text = fs::read_to_string(table).ok()?;
    let inode = text.lines().skip(1).find_map(|line| listening_inode(line, address))?;
    let wanted = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?;
    processes.flatten().find_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let mut descriptors = fs::read_dir(process.path().join("fd")).ok()?.flatten();
        descriptors
            .any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.as_os_str() == wanted.as_str()))
            .then_some(pid)
    })
}

/// The inode of a line of `/proc/net/tcp` whose socket listens on the port of `address`, on that
/// address or on all.
fn listening_inode(line: &str, address: SocketAddr) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (host, port) = fields.get(1)?.split_once(':')?;
    if *fields.get(3)? != LISTEN || u16::from_str_radix(port, 16).ok()? != address.port() {
        return None;
    }
    let everywhere = host.bytes().all(|digit| digit == b'0');
    if let IpAddr::V4(ip) = address.ip()
        && !everywhere
        && u32::from_str_radix(host, 16).ok()?.swap_bytes() != u32::from(ip)
    {
        return None;
    }
    fields.get(9)?.parse().ok()
}

// TCP_LISTEN in /proc/net/tcp.
const LISTEN: &str = "0A";

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_listener_of_a_port_is_found() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(listener(socket.local_addr().unwrap()), Some(std::process::id()));
    }

    #[test]
    fn work_shows_in_the_counters() {
        // A process of its own: in this process threads of other tests end, and count no longer.
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let before = Usage::of(busy.id());
        let works = || Usage::of(busy.id()).since(before).cpu_ns > 0;
        let has_worked = (0..ATTEMPTS).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            works()
        });
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(has_worked);
    }

    /// Half a minute.
    const ATTEMPTS: usize = 30_000;
}
