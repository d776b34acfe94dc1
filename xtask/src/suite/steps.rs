//! The steps of the suite, each in its short form.

use super::{behind, cargo_tests};
use crate::failure::{Outcome, Tally};
use crate::interop::samples::Spread;
use crate::peer::Against;
use crate::{
    bindings, bulk, check, compare, databases, demo, deps, failovers, flood, fuzz, group, guest,
    interop, kill9, latency, model, polling, siege, states, torture, workspace,
};

/// One step of the suite.
pub(super) struct SuiteStep {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) run: fn() -> Outcome,
    /// Whether nothing after it can be expected to work when it fails.
    pub(super) is_needed_by_all: bool,
    /// Whether `--quick` runs it.
    pub(super) is_quick: bool,
    pub(super) place: Place,
}

/// What may run while a step runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// One after the other, in the order of [`STEPS`].
    Front,
    /// Beside the steps in front, as it waits for peers and clocks more than it computes.
    Beside,
    /// When nothing else runs, as it measures.
    Alone,
}

const fn step(name: &'static str, about: &'static str, run: fn() -> Outcome) -> SuiteStep {
    let place = Place::Front;
    SuiteStep { name, about, run, is_needed_by_all: false, is_quick: false, place }
}

impl SuiteStep {
    const fn needed_by_all(self) -> Self {
        Self { is_needed_by_all: true, ..self }
    }

    const fn quick(self) -> Self {
        Self { is_quick: true, ..self }
    }

    const fn beside(self) -> Self {
        Self { place: Place::Beside, ..self }
    }

    const fn alone(self) -> Self {
        Self { place: Place::Alone, ..self }
    }
}

pub(super) fn names() -> Vec<&'static str> {
    STEPS.iter().map(|step| step.name).collect()
}

pub(super) const DEPS: &str = "deps";
pub(super) const FUZZ: &str = "fuzz";
pub(super) const GUEST: &str = "guest";
pub(super) const SIM: &str = "sim";
pub(super) const TESTS: &str = "tests";
pub(super) const TESTS_BUILD: &str = "tests-build";
/// The steps, quickest answer first; those that measure come last.
pub(super) const STEPS: [SuiteStep; 33] = [
    step(DEPS, "programs and Python packages the tests start", deps::run_while_building)
        .needed_by_all()
        .quick(),
    step("check", "formatting, lints, the rules of the house", check::run).quick(),
    step("build", "the product as it is shipped", || {
        workspace::landfast().map(|_| Tally::passed(""))
    })
    .needed_by_all()
    .quick(),
    step(TESTS_BUILD, "all tests, compiled", cargo_tests::build).quick(),
    step(TESTS, "cargo test, crash images included", cargo_tests::run).quick(),
    step("demo", "the README's first command", demo::run).quick(),
    step("smbclient", "100 files with Debian's smbclient, encrypted and signed", || {
        interop::smbclient::run(Against::Landfast, Spread::Short)
    }),
    step("smbtorture", "those of Samba's server tests that passed before", || {
        torture::run(&torture::Options::known())
    })
    .beside(),
    step("python", "smbprotocol and impacket", || interop::python::run(Against::Landfast)).quick(),
    step(
        "c",
        "liblandfast: its example compiled with cc and run, also with the address sanitizer",
        || bindings::c::run(false),
    ),
    step(
        "python-package",
        "the wheel in a clean environment: its tests, fsspec's, its guide's",
        || bindings::python::run(&bindings::python::Options::short()),
    ),
    step("pike", "the tests of pike-smb2", || interop::pike::run(Against::Landfast)).beside(),
    step("kerberos", "logons by ticket, with Debian's KDC", interop::kerberos::run).beside(),
    step("go", "go-smb2, signed and encrypted", || interop::go::run(Against::Landfast)),
    step(
        "nbd",
        "nbdinfo, nbdcopy, qemu-img, qemu-io and fio against served volumes",
        interop::nbd::run,
    ),
    step(
        "fuse",
        "ext4 and XFS on loop devices of volumes: filled, checked, read after SIGKILL",
        || interop::fuse::run(0),
    ),
    step("tshark", "a capture of SMB Direct and push, dissected", interop::capture::run),
    step("kill9", "SIGKILL in the middle of a stream of commits", || {
        kill9::run(&kill9::Options { rounds: 5 })
    })
    .quick(),
    step(
        "model",
        "clients that do anything, cut off and with the server killed, against a model",
        || model::run(&model::Options::short()),
    )
    .beside()
    .quick(),
    step("lockstep", "names, locks and leases, step by step beside smbd", || {
        states::lockstep(&states::Lockstep::short())
    })
    .beside(),
    step("caching", "clients that cache, lock, rename and delete the same files at once", || {
        states::caching(&states::Caching::short())
    })
    .beside()
    .quick(),
    step("group-sim", "a group of replicated volumes on virtual time, one seed a run", || {
        group::run(&group::Options::short())
    })
    .quick(),
    step(
        "failovers",
        "landfast demo replica; a replicated group as processes, its source killed under load",
        || failovers::run(&failovers::Options::short()),
    )
    .beside(),
    step(
        "databases",
        "landfast demo log; SQLite by two processes at once, with kills of clients and server",
        || databases::run(&databases::Options { seconds: 8, bench: false, rounds: 1 }),
    )
    .beside(),
    step("flood", "10,000 unfinished connections and one honest client", || {
        flood::run(&flood::Options::short())
    }),
    step("siege", "hostile clients at each limit of docs/limits.md, and one honest client", || {
        siege::run(&siege::Options::short())
    }),
    step(
        GUEST,
        "a Linux kernel: its SMB client, its software iWARP, its persistent memory",
        guest::short,
    ),
    step(SIM, "server and clients on virtual time, one seed a run", behind::simulation),
    step(FUZZ, "each fuzz target for a second and the tests of their bodies, instrumented", || {
        fuzz::run(&fuzz::Options::short())
    }),
    step(
        "latency",
        "ratios of push mode to the floor and to SMB (shown, not judged: a busy machine)",
        || latency::run(&latency::Options { rounds: 1, seconds: 0.5, assert: false }),
    )
    .alone(),
    step(
        "bulk",
        "bytes per second of the software iWARP next to iperf3 (shown, not judged)",
        || bulk::run(&bulk::Options::short()),
    )
    .alone(),
    step("polling", "what each way of waiting costs (shown, not judged)", || {
        polling::run(&polling::Options::short())
    })
    .alone(),
    step("compare-smbd", "4 KiB requests over TCP against Samba's smbd", || {
        compare::run(&compare::Options::short())
    })
    .alone(),
];
