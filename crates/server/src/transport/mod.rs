//! The transports of SMB messages: TCP, and SMB Direct over RDMA.
//!
//! A transport owns one [`crate::dispatch::Connection`] per peer, feeds it whole frames and sends
//! its answers; later answers come through its [`Outbox`](crate::state::Outbox).

pub(crate) mod admission;
pub(crate) mod direct;
mod end;
mod input;
mod low_water;
mod out_queue;
mod output;
mod patience;
mod queue;
mod served;
mod spare_room;
pub(crate) mod tcp;
mod turn;
mod write_buffer;
