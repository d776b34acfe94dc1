//! Groups of running members: real links over loopback, rings and volumes in files, members that end and start again.
#![cfg(test)]

mod changes;
mod group;
mod healing;
mod losses;
mod outages;
mod points;
mod resizing;
mod roles;
mod strangers;
mod ways;
