//! Chooses the cores on which the ends of a measurement run.
//!
//! Without placement the scheduler puts a client and a server on one machine sometimes on one core,
//! sometimes on two, and that alone changes a round trip over loopback severalfold. Two machines
//! never share a core; [`Placement::Apart`] imitates two machines.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::args::Placement;
use crate::failure::Failure;

/// Processes that are bound to cores until this value is dropped.
///
/// If the benchmark is killed before, the server stays bound.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    before: Vec<(Pid, CpuSet)>,
    /// A description for the report.
    pub(crate) description: String,
}

impl Placed {
    /// Puts this process on the client's cores, and `servers` (process ids) on the server's.
    ///
    /// Threads that a process starts later inherit the cores of their parent.
    pub(crate) fn put(placement: Placement, servers: &[Option<u32>]) -> Result<Self, Failure> {
        if placement == Placement::Free {
            let description = "client and server where the scheduler puts them (--placement)";
            return Ok(Self { before: Vec::new(), description: description.into() });
        }
        let failed = || Failure::system("cannot learn which cores may be used");
        let allowed = sched_getaffinity(None).map_err(|errno| failed()(errno.into()))?;
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
        let (for_server, for_client) = split(placement, &cores).ok_or_else(|| {
            let value = format!("{placement:?}").to_lowercase();
            Failure::ConfigValue { what: "--placement", value, why: "needs two cores" }
        })?;
        let description =
            format!("client on {}, server on {}", named(for_client), named(for_server));
        let mut placed = Self { before: Vec::new(), description };
        let distinct: BTreeSet<Option<u32>> = servers.iter().copied().collect();
        for server in distinct {
            let pid = server.ok_or(Failure::ConfigMissing(
                "--placement moves a server of this machine and this user only, and none listens \
                 at that address; leave it away, or place both ends with taskset",
            ))?;
            placed.pin(pid, for_server)?;
        }
        placed.pin(std::process::id(), for_client)?;
        Ok(placed)
    }

    fn pin(&mut self, pid: u32, cores: &[usize]) -> Result<(), Failure> {
        let mut set = CpuSet::new();
        cores.iter().for_each(|core| set.set(*core));
        for thread in threads(pid) {
            let Ok(before) = sched_getaffinity(Some(thread)) else { continue };
            let pinned = sched_setaffinity(Some(thread), &set);
            pinned.map_err(|errno| {
                Failure::system("cannot place a process on its cores")(errno.into())
            })?;
            self.before.push((thread, before));
        }
        Ok(())
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        for (thread, before) in &self.before {
            // A thread that has ended needs no cores.
            let _ = sched_setaffinity(Some(*thread), before);
        }
    }
}

/// The server's cores and the client's.
fn split(placement: Placement, cores: &[usize]) -> Option<(&[usize], &[usize])> {
    match placement {
        Placement::Free => Some((cores, cores)),
        Placement::Together => cores.get(..1).map(|one| (one, one)),
        Placement::Apart if cores.len() < 2 => None,
        Placement::Apart => Some(cores.split_at(cores.len() / 2)),
    }
}

fn named(cores: &[usize]) -> String {
    let list: Vec<String> = cores.iter().map(usize::to_string).collect();
    format!("{} {}", if list.len() == 1 { "core" } else { "cores" }, list.join(","))
}

fn threads(pid: u32) -> Vec<Pid> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    tasks
        .flatten()
        .filter_map(|task| Pid::from_raw(task.file_name().to_str()?.parse().ok()?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placement_apart_shares_no_core_and_together_shares_one() {
        let cores = [0, 2, 3];
        assert_eq!(split(Placement::Apart, &cores), Some((&cores[..1], &cores[1..])));
        assert_eq!(split(Placement::Together, &cores), Some((&cores[..1], &cores[..1])));
        assert_eq!(split(Placement::Apart, &cores[..1]), None);
    }

    #[test]
    fn a_placed_process_gets_its_cores_back() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let before = sched_getaffinity(pid).unwrap();
        let mut placed = Placed::default();
        let core = (0..CpuSet::MAX_CPU).find(|core| before.is_set(*core)).unwrap();
        placed.pin(child.id(), &[core]).unwrap();
        assert_eq!(sched_getaffinity(pid).unwrap().count(), 1);
        drop(placed);
        assert_eq!(sched_getaffinity(pid).unwrap(), before);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
