//! A real Linux kernel as peer, in an emulated machine.
//!
//! A stock Debian kernel boots under QEMU with siw, rxe, cifs.ko and, if asked, emulated persistent
//! memory. It takes some seconds, no root and no device of the machine's; see docs/testing.md.

mod adapter;
mod btt;
mod cache;
mod cifs;
mod dax;
mod image;
mod kernel;
mod machine;
mod media;
mod nbd;
mod packages;
mod programs;
mod short;
mod siw;
mod siw_peer;
mod ublk;
mod user;
mod verbs;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::guest::machine::{Guest, How, Setup};
use crate::process::quoted;
use crate::verdict;

pub(crate) use cache::fsx;
pub(crate) use short::{begin, short};

/// Options of `cargo xtask guest`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    test: Option<Test>,
    /// Seconds until the guest is killed
    #[arg(long, default_value_t = 300)]
    limit: u64,
    /// A directory that the guest sees as /host
    #[arg(long, value_name = "DIR")]
    share: Option<PathBuf>,
    /// A file that becomes the machine's persistent memory
    #[arg(long, value_name = "FILE")]
    pmem: Option<PathBuf>,
    /// A loopback port that leads into the guest; may be given several times
    #[arg(long = "forward", value_name = "PORT")]
    forwarded: Vec<u16>,
    /// Where to write the guest's network traffic, for tshark
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// What to run there, as root; `landfast` is there too. Its exit status is ours; 124 says that
    /// the time was over, 125 that the guest died
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// The tests that need a kernel.
#[derive(Clone, Debug, Subcommand)]
enum Test {
    /// The kernel's SMB client against our server
    Cifs(cifs::Options),
    /// Programs that use files as programs do, on the kernel's mount of our server: a build, fsx
    User(user::Options),
    /// The kernel's software iWARP against our provider, both roles
    Siw(siw::Options),
    /// Our server on DAX file systems, and a power cut
    Dax(dax::Options),
    /// Volumes of mode block and the kernel's BTT driver, in both directions, and power cuts
    Btt(btt::Options),
    /// The kernel's NBD client on our volumes
    Nbd(nbd::Options),
    /// Volumes as the kernel's disks by ublk, whose server is killed
    Ublk(ublk::Options),
    /// Our provider verbs over the kernel's software devices
    Verbs(verbs::Options),
}

/// Runs a command, or one of the tests.
pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let tally = match &options.test {
        None => return command(options),
        Some(Test::Cifs(options)) => cifs::run(options),
        Some(Test::User(options)) => user::run(options),
        Some(Test::Siw(options)) => siw::run(options),
        Some(Test::Dax(options)) => dax::run(options),
        Some(Test::Btt(options)) => btt::run(options),
        Some(Test::Nbd(options)) => nbd::run(options),
        Some(Test::Ublk(options)) => ublk::run(options),
        Some(Test::Verbs(options)) => verbs::run(options),
    }?;
    Ok(verdict::conclude(&tally))
}

fn command(options: &Options) -> Result<ExitCode, Failure> {
    let setup = Setup {
        share: options.share.clone(),
        persistent_memory: options.pmem.clone(),
        forwarded: options.forwarded.clone(),
        capture: options.pcap.clone(),
        ..Setup::default()
    };
    let words: Vec<_> = options.command.iter().map(|word| quoted(word)).collect();
    let limit = Duration::from_secs(options.limit);
    let guest = Guest::start("command", &setup, &words.join(" "), limit)?;
    let ended = guest.finish_by(|line| println!("{line}"));
    Ok(match ended.how {
        How::Exited(status) => u8::try_from(status).unwrap_or(u8::MAX).into(),
        How::TimedOut => {
            eprintln!("failed: the guest was killed after {} s", options.limit);
            TIMED_OUT.into()
        }
        How::Died => {
            ended.succeeded("died").map_or_else(|failure| eprintln!("failed: {failure}"), drop);
            DIED.into()
        }
    })
}

/// As timeout(1) has it.
const TIMED_OUT: u8 = 124;
/// As timeout(1) has it when it fails itself.
const DIED: u8 = 125;
