//! `landfast replica`: describes groups of replicated volumes, runs their members, and asks them.
//!
//! ```text
//!   group    the file that describes a group
//!   values   values of its keys
//!   prepare  makes the file, and a member's log and volumes
//!   serve    runs a member
//!   front    offers its volumes
//!   automatic  etcd, and who becomes the source by itself
//!   control  the socket by which a running member is asked, both ends
//!   views    the views that a running member shows
//!   ask      the commands that ask
//!   differences  what differs between two files of a group, and what can change while a member runs
//!   apply    has a member take another file
//!   edit     changes a key in the text of a file
//!   verify   waits for a comparison
//!   show     what a member says, as text
//!   topology  what two machines are good for, before
//! ```

mod apply;
pub(crate) mod args;
mod ask;
mod automatic;
mod control;
mod differences;
mod edit;
mod failure;
mod front;
mod group;
mod in_force;
mod prepare;
mod serve;
mod show;
mod topology;
mod values;
mod verify;
mod views;

pub(crate) use failure::ReplicaFailure;

use args::ReplicaCommand;

use crate::failure::Failure;

/// Does one thing with a group.
pub(crate) fn run(command: &ReplicaCommand) -> Result<(), Failure> {
    match command {
        ReplicaCommand::Create(create) => Ok(prepare::create(create)?),
        ReplicaCommand::Prepare(prepare) => Ok(prepare::prepare(prepare)?),
        ReplicaCommand::Add(add) => Ok(prepare::add(add)?),
        ReplicaCommand::Remove(remove) => Ok(prepare::remove(remove)?),
        ReplicaCommand::Serve(serve) => serve::run(serve),
        ReplicaCommand::Export(export) => prepare::export(export),
        ReplicaCommand::TestTopology(test) => topology::run(test),
        ReplicaCommand::Apply(options) => apply::run(options),
        ReplicaCommand::Set(options) => apply::set(options),
        ReplicaCommand::Verify(options) => verify::run(options),
        other => ask::run(other),
    }
}
