//! `landfast-sim`: Landfast's programs on virtual time, under one scheduler. One seed, one run.
//!
//! ```text
//! landfast-sim run --seeds 0..1000        workers, a core each; prints the seeds that fail, made small
//! landfast-sim replay PLAN --trace FILE   one run, with all that happened in it
//! ```

#![forbid(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod auxiliary;
#[cfg(target_arch = "x86_64")]
mod calls;
#[cfg(target_arch = "x86_64")]
mod chance;
#[cfg(target_arch = "x86_64")]
mod command;
#[cfg(target_arch = "x86_64")]
mod disk;
#[cfg(target_arch = "x86_64")]
mod failure;
#[cfg(target_arch = "x86_64")]
mod files;
#[cfg(target_arch = "x86_64")]
mod lives;
#[cfg(target_arch = "x86_64")]
mod machine;
#[cfg(target_arch = "x86_64")]
mod net;
#[cfg(target_arch = "x86_64")]
mod plan;
#[cfg(target_arch = "x86_64")]
mod program;
#[cfg(target_arch = "x86_64")]
mod scenario;
#[cfg(target_arch = "x86_64")]
mod site;
#[cfg(target_arch = "x86_64")]
mod sockets;
#[cfg(target_arch = "x86_64")]
mod stage;
#[cfg(target_arch = "x86_64")]
mod trace;
#[cfg(target_arch = "x86_64")]
mod tracee;
#[cfg(target_arch = "x86_64")]
mod watch;

#[cfg(target_arch = "x86_64")]
fn main() -> std::process::ExitCode {
    command::main()
}

#[cfg(not(target_arch = "x86_64"))]
fn main() -> std::process::ExitCode {
    eprintln!("landfast-sim: knows the registers and calls of x86-64 alone");
    std::process::ExitCode::from(2)
}
