//! `landfast volume`: makes, shows, checks, repairs, grows, removes and serves disks.

pub(crate) mod args;
mod create;
mod failure;
mod look;
mod opened;
mod serve;

pub(crate) use failure::{NbdFailure, VolumeFailure};
pub(crate) use opened::{lock, mode_of};

use args::VolumeCommand;

use crate::failure::Failure;

/// Does one thing with volumes.
pub(crate) fn run(command: &VolumeCommand) -> Result<(), Failure> {
    match command {
        VolumeCommand::Create(create) => create::run(create),
        VolumeCommand::Info(one) => look::info(one),
        VolumeCommand::Check(one) => look::check(one),
        VolumeCommand::Repair(one) => look::repair(one),
        VolumeCommand::List(list) => look::list(list),
        VolumeCommand::Resize(resize) => create::resize(resize),
        VolumeCommand::Remove(remove) => create::remove(remove),
        VolumeCommand::Serve(serve) => serve::run(serve),
    }
}
