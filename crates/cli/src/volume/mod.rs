//! `landfast volume`: makes, shows, checks, repairs, grows, removes and serves disks; `shown` and `shared` are volumes as
//! files of shares, for `landfast serve`.

pub(crate) mod args;
mod create;
mod failure;
mod look;
mod marking;
mod opened;
mod serve;
mod settings;
mod shared;
mod shown;

pub(crate) use failure::{NbdFailure, VolumeFailure};
pub(crate) use opened::{lock, mode_of};
pub(crate) use serve::name_and_path;
pub(crate) use shared::SharedVolumes;

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
