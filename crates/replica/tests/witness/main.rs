//! The witness in etcd, against Debian's etcd as real processes: one and three of them, killed, stopped, cut off.
//!
//! ```text
//!   servers   etcd processes, and etcdctl, a client that is not ours
//!   proxy     a way to etcd that can be cut, or swallow answers
//!   record    what is taken and refused; foreign values; rights and certificates
//!   faults    a killed leader, no majority, late requests, lost answers, members that race
//!   living    who is seen alive
//!   killed    many members as processes that are killed at any moment; the history in etcd is judged
//! ```
#![cfg(test)]

mod faults;
mod killed;
mod living;
mod proxy;
mod record;
mod servers;

use std::time::Duration;

use replica::witness::Seat;
use replica::witness::etcd::{Etcd, EtcdOptions};
use replica::{Epoch, GroupId, MemberId, MemberSet};

pub(crate) const GROUP: GroupId = GroupId([0x5e; 16]);

pub(crate) fn options(member: u8, endpoints: Vec<String>) -> EtcdOptions {
    let attempt = Duration::from_secs(1);
    EtcdOptions { attempt, ..EtcdOptions::new(GROUP, Some(MemberId(member)), endpoints) }
}

pub(crate) fn open(member: u8, endpoints: Vec<String>) -> Etcd {
    Etcd::open(options(member, endpoints)).unwrap()
}

/// A source that begins alone.
pub(crate) fn alone(number: u32, member: u8) -> Seat {
    let epoch = Epoch { number, restart: 0, nonce: u64::from(member) + 1000 };
    Seat::alone(epoch, MemberId(member))
}

/// The next version of a seat, with these in sync.
pub(crate) fn changed(seat: Seat, in_sync: u8) -> Seat {
    Seat { in_sync: MemberSet(in_sync), set_version: seat.set_version + 1, ..seat }
}
