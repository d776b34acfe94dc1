//! What a program's process does before it is that program: it lets itself be traced, and names the calls that need no stop.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::personality::{self, Persona};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, TimeStampCounterReadability};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use crate::failure::Failure;

/// Becomes the program `words`, traced by the parent. Returns only on failure.
///
/// The parent sees a stop by SIGSTOP first, before any filter holds, and tells the kernel there what it wants to see.
pub(crate) fn become_traced(words: &[OsString]) -> Failure {
    let [program, arguments @ ..] = words else {
        return Failure::Usage("no program is named".into());
    };
    let prepared = prepare();
    if let Err(failure) = prepared {
        return failure;
    }
    Failure::io("starting", program, Command::new(program).args(arguments).exec())
}

fn prepare() -> Result<(), Failure> {
    same_everywhere()?;
    // Addresses are part of what a run reads: hash tables and allocators are ordered by them.
    personality::set(personality::get()? | Persona::ADDR_NO_RANDOMIZE)?;
    ptrace::traceme()?;
    raise(Signal::SIGSTOP)?;
    let refused =
        |error: &dyn std::fmt::Display| Failure::Kernel(io::Error::other(error.to_string()));
    let filter = filter().map_err(|error| refused(&error))?;
    seccompiler::apply_filter(&filter).map_err(|error| refused(&error))
}

// What a process inherits from whoever started this one, and what a host limits.
fn same_everywhere() -> Result<(), Failure> {
    let own = PathBuf::from("/proc/self/fd");
    let listed = fs::read_dir(&own).map_err(|error| Failure::io("listing", &own, error))?;
    let numbers = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let inherited: Vec<i32> = numbers.filter(|fd| *fd > libc::STDERR_FILENO).collect();
    for fd in inherited {
        // One of them was the list itself.
        let _ = nix::unistd::close(fd);
    }
    // A program that reads the processor's counter is stopped, and gets this run's time.
    rustix::process::set_time_stamp_counter_readability(TimeStampCounterReadability::RaiseSIGSEGV)?;
    std::env::set_current_dir("/")?;
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    for (resource, limit) in LIMITS {
        let (current, maximum) = (Some(limit), Some(limit));
        rustix::process::setrlimit(resource, Rlimit { current, maximum })?;
    }
    Ok(())
}

/// The stack is part of the layout of a program's addresses. A host may allow less than these; then it says so.
const LIMITS: [(Resource, u64); 3] =
    [(Resource::Nofile, 1024), (Resource::Stack, 8 << 20), (Resource::Core, 0)];

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let untraced: BTreeMap<i64, Vec<_>> = UNTRACED.iter().map(|call| (*call, Vec::new())).collect();
    let filter = SeccompFilter::new(
        untraced,
        SeccompAction::Trace(0),
        SeccompAction::Allow,
        TargetArch::x86_64,
    )?;
    filter.try_into()
}

/// Calls that neither wait nor tell a program anything that differs from run to run. Whatever is not here stops the
/// program, so a call that nobody has thought of is seen.
const UNTRACED: &[i64] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_brk,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_execve,
    libc::SYS_faccessat2,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_getcwd,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getuid,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_umask,
];
