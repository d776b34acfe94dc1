//! What all connections share.

use std::sync::Arc;

use basics::Clock;
use tokio::runtime::Handle;

use super::clients::Clients;
use super::counters::Counters;
use super::throttle::Throttle;
use super::waiting::WaitingRoom;
use crate::limits::Limits;
use crate::state::account::Accounts;
use crate::state::reactor::Reactor;

/// What all connections share: limits, what users hold, and who is there. `L` is a connection.
#[derive(Debug)]
pub(crate) struct Shared<L> {
    pub(crate) limits: Limits,
    pub(crate) counters: Counters,
    /// The resources that users and guests hold.
    pub(crate) accounts: Accounts,
    pub(crate) clients: Clients<L>,
    pub(crate) throttle: Arc<Throttle>,
    /// Connections without a session.
    pub(crate) waiting: WaitingRoom,
    /// Connections of guests.
    pub(crate) guests: WaitingRoom,
    /// Counts how long requests keep threads that others wait for.
    pub(crate) reactor: Arc<Reactor>,
    pub(crate) clock: Clock,
    pub(crate) runtime: Handle,
}

impl<L> Shared<L> {
    pub(crate) fn new(limits: Limits, clock: Clock, runtime: Handle) -> Self {
        Self {
            counters: Counters::default(),
            accounts: Accounts::new(&limits),
            limits,
            clients: Clients::default(),
            throttle: Arc::new(Throttle::new()),
            waiting: WaitingRoom::default(),
            guests: WaitingRoom::default(),
            reactor: Arc::new(Reactor::new(clock.clone())),
            clock,
            runtime,
        }
    }
}
