//! Checks, interop runs and measurements of the Landfast project.
//!
//! `cargo xtask test` does all of them in their short form and is what CI runs. Each is also a
//! command of its own; every program a command starts is printed as it could be typed by hand.

mod bindings;
mod bulk;
mod check;
mod clones;
mod compare;
mod databases;
mod demo;
mod deps;
mod failovers;
mod failure;
mod flood;
mod fuzz;
mod group;
mod guest;
mod interleavings;
mod interop;
mod kill9;
mod landfast;
mod latency;
mod libtest;
mod lookup;
mod machine;
mod model;
mod mutants;
mod nbd_bench;
mod nbd_server;
mod peer;
mod placement;
mod planted;
mod polling;
mod process;
mod realm;
mod redb_suite;
mod rights;
mod samba;
mod scale;
mod siege;
mod sim;
mod states;
mod suite;
mod torture;
mod verdict;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;
use crate::interop::samples::Spread;
use crate::peer::Against;

/// Checks, interop runs and measurements of the Landfast project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install what the tests need (as root), or say what to install.
    Deps,
    /// Formatting, lints, and the rules of the house no compiler knows.
    Check,
    /// The rules of the house alone: file lengths, layers, links, leftovers.
    Tidy,
    /// Run another implementation against a server.
    #[command(subcommand)]
    Interop(Interop),
    /// Compare requests, streams and small files over TCP with Samba's smbd.
    CompareSmbd(compare::Options),
    /// Ratios of push mode to the floor and to SMB, within one interleaved run.
    Latency(latency::Options),
    /// What the software iWARP moves over loopback, next to iperf3.
    Bulk(bulk::Options),
    /// What spinning, sleeping and adaptive polling cost, by queue depth and pause.
    Polling(polling::Options),
    /// Kill the server at random moments of a stream and look for lost commits.
    Kill9(kill9::Options),
    /// Hold thousands of unfinished connections open and look at memory and other clients.
    Flood(flood::Options),
    /// Drive a server to the limits of its ledger while an honest client works beside that.
    Siege(siege::Options),
    /// Clients that do anything against a model, with cut connections and a server that is killed.
    Model(model::Options),
    /// Ask our server and smbd the same, step by step: names, locks, leases.
    Lockstep(states::Lockstep),
    /// Clients at once on a few files: whoever caches is told of each change, and no two grants exclude each other.
    Caching(states::Caching),
    /// Server and clients on virtual time: one seed, one run, with what befalls them decided by the seed.
    Sim(sim::Options),
    /// A group of replicated volumes on virtual time: one seed, one run.
    GroupSim(group::Options),
    /// A group of replicated volumes as processes: the source is killed, paused, cut off and exchanged under load.
    Failovers(failovers::Options),
    /// Changes of single places, each of which a test of its crate must find (cargo-mutants).
    Mutants(mutants::Options),
    /// Faults planted in server, client and engine, which seeds of the simulator must find.
    MutantsSim(sim::mutants::Options),
    /// Faults planted in the core of replicated groups, which seeds of the group's simulator must find.
    MutantsGroup(group::mutants::Options),
    /// What threads share without a lock, under all orders in which they may run.
    Interleavings(interleavings::Options),
    /// Run a command, or a test, on a real Linux kernel in an emulated machine.
    Guest(guest::Options),
    /// Samba's tests of SMB2 servers, one by one, against ours or smbd.
    Smbtorture(torture::Options),
    /// Databases on the tail of a log: conflicting transactions of several processes, with kills; and what they cost.
    Databases(databases::Options),
    /// redb's own tests on our storage.
    RedbSuite(redb_suite::Options),
    /// The NBD server next to nbdkit's memory plugin, interleaved.
    NbdBench(nbd_bench::Options),
    /// How a store of many servers scales: a discrete-event model on measured costs.
    Scale(scale::Options),
    /// Who may do what, cell by cell, against a table typed from the specifications.
    Rights(rights::Options),
    /// Names in a directory of 100,000, found ignoring case.
    Lookup(lookup::Options),
    /// Shared extents, on an XFS in a file (as root).
    Clones,
    /// Install the C library: PREFIX/include, PREFIX/lib, pkg-config.
    InstallC(bindings::install::Options),
    /// The C library as a stranger uses it: shared, sanitized, static.
    C,
    /// Build the engine for fio, and have fio verify what it writes.
    FioEngine(bindings::fio::Options),
    /// Build the wheel of the Python package: target/wheels.
    Wheel,
    /// The tests of the Python package and the examples of its guide, from its wheel.
    PythonPackage(bindings::python::Options),
    /// Fuzz one target, or each in turn.
    Fuzz(fuzz::Options),
    /// Everything in its short form: what CI runs.
    Test(suite::Options),
}

#[derive(Debug, Subcommand)]
enum Interop {
    /// Put, list and get 100 files with Debian's smbclient, encrypted and signed.
    Smbclient {
        /// Fewer bytes: about 350 MiB instead of 1.2 GiB.
        #[arg(long)]
        short: bool,
        /// Whose server.
        #[arg(long, default_value = "landfast")]
        against: Against,
    },
    /// Log in, list, write, read, rename and delete with smbprotocol and impacket.
    Python {
        /// Whose server.
        #[arg(long, default_value = "landfast")]
        against: Against,
    },
    /// Log in, list, write, read, copy, rename and delete with go-smb2, signed and encrypted.
    Go {
        /// Whose server.
        #[arg(long, default_value = "landfast")]
        against: Against,
    },
    /// Log on by Kerberos ticket, with a KDC of Debian's, by smbclient, smbprotocol and impacket.
    Kerberos,
    /// ext4 and XFS on loop devices of volumes: made, filled, checked, and read after SIGKILL.
    Fuse {
        /// Operations of fsx on each file system; cargo builds fsx-rs for them.
        #[arg(long, default_value_t = 0)]
        operations: u32,
    },
    /// libnbd's, QEMU's and fio's NBD clients against volumes of each kind, TLS and SIGKILL included.
    Nbd,
    /// PostgreSQL with pg_wal on a volume of ours (a loop device; as root): pgbench, and crashes.
    Postgres {
        /// Use this mount instead of making a volume.
        #[arg(long)]
        mount: Option<std::path::PathBuf>,
    },
    /// The tests of pike-smb2, each with a time limit.
    Pike {
        /// Whose server.
        #[arg(long, default_value = "landfast")]
        against: Against,
    },
    /// Capture SMB Direct and push traffic and have tshark dissect it.
    Tshark {
        /// Read this capture instead of making one.
        #[arg(long)]
        read: Option<std::path::PathBuf>,
    },
}

fn main() -> ExitCode {
    carry_out(&Arguments::parse().task).unwrap_or_else(|failure| {
        eprintln!("failed: {failure}");
        ExitCode::FAILURE
    })
}

fn carry_out(task: &Task) -> Result<ExitCode, Failure> {
    let tally = match task {
        Task::Guest(options) => return guest::run(options),
        Task::Deps => deps::run(),
        Task::Check => check::run(),
        Task::Tidy => check::tidy(),
        Task::Interop(Interop::Smbclient { short, against }) => {
            let spread = if *short { Spread::Short } else { Spread::Full };
            interop::smbclient::run(*against, spread)
        }
        Task::Interop(Interop::Python { against }) => interop::python::run(*against),
        Task::Interop(Interop::Go { against }) => interop::go::run(*against),
        Task::Interop(Interop::Kerberos) => interop::kerberos::run(),
        Task::Interop(Interop::Nbd) => interop::nbd::run(),
        Task::Interop(Interop::Fuse { operations }) => interop::fuse::run(*operations),
        Task::Interop(Interop::Postgres { mount }) => databases::postgres(mount.as_deref()),
        Task::Interop(Interop::Pike { against }) => interop::pike::run(*against),
        Task::Interop(Interop::Tshark { read: None }) => interop::capture::run(),
        Task::Interop(Interop::Tshark { read: Some(path) }) => interop::capture::read(path),
        Task::CompareSmbd(options) => compare::run(options),
        Task::Latency(options) => latency::run(options),
        Task::Bulk(options) => bulk::run(options),
        Task::Polling(options) => polling::run(options),
        Task::Kill9(options) => kill9::run(options),
        Task::Flood(options) => flood::run(options),
        Task::Siege(options) => siege::run(options),
        Task::Model(options) => model::run(options),
        Task::Lockstep(options) => states::lockstep(options),
        Task::Caching(options) => states::caching(options),
        Task::Sim(options) => sim::run(options),
        Task::GroupSim(options) => group::run(options),
        Task::Failovers(options) => failovers::run(options),
        Task::Mutants(options) => mutants::run(options),
        Task::MutantsSim(options) => sim::mutants::run(options),
        Task::MutantsGroup(options) => group::mutants::run(options),
        Task::Interleavings(options) => interleavings::run(options),
        Task::Smbtorture(options) => torture::run(options),
        Task::Databases(options) => databases::run(options),
        Task::RedbSuite(options) => redb_suite::run(options),
        Task::NbdBench(options) => nbd_bench::run(options),
        Task::Scale(options) => scale::run(options),
        Task::Rights(options) => rights::run(options),
        Task::Lookup(options) => lookup::run(options),
        Task::Clones => clones::run(),
        Task::InstallC(options) => bindings::install::run(options),
        Task::C => bindings::c::run(true),
        Task::FioEngine(options) => bindings::fio::run(options),
        Task::Wheel => bindings::python::wheel_only(),
        Task::PythonPackage(options) => bindings::python::run(options),
        Task::Fuzz(options) => fuzz::run(options),
        Task::Test(options) => suite::run(options),
    }?;
    Ok(verdict::conclude(&tally))
}
