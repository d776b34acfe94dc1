//! Stories of engines and their providers, over real sockets and rings, in one program: none looks at more than its own
//! engines. Programs beside it: what every provider passes, once for each of them by the name of the program
//! (`every_provider`, `over_shm`, `over_unix`); what only an adapter does, in the guest (`adapter`); an allocator that counts
//! (`allocations`); a process without descriptors (`descriptors`).
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod connections;
mod deferred;
mod files;
mod long_work;
mod lost;
mod operations;
mod protection;
mod schedule;
mod segments;
mod shm;
mod siw;
mod vanished;
mod waiting;
mod wrappers;
