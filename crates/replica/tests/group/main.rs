//! Groups of running members: real links over loopback, rings and volumes in files, members that end and start again.
#![cfg(test)]

mod changes;
mod group;
mod healing;
mod losses;
mod outages;
mod points;
#[path = "../../src/wire/tests/proxy.rs"]
mod proxy;
mod resizing;
mod restarted;
mod roles;
mod sealed;
mod settings;
mod several;
mod strangers;
mod ways;
