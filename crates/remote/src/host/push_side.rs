//! The push connections of one engine, and the deregistrations that wait for operations to end.
//!
//! A deregistration is answered when no operation touches the region any more: at once, when the
//! engine reports that the last operation has ended, or when the whole connection is gone.

use std::collections::HashMap;

use rdma::{Deregistration, Engine, QpId, RegisterError, Rkey};
use tokio::sync::oneshot;

use super::command::Command;
use super::handle::{HostError, PushConnection};

/// See the module.
#[derive(Debug)]
pub(super) struct PushSide {
    connections: HashMap<PushConnection, QpId>,
    last: u64,
    /// The difference between successive names: the number of threads, whose names must differ.
    step: u64,
    deregistering: Vec<Waiting<(QpId, Rkey)>>,
    disconnecting: Vec<Waiting<PushConnection>>,
}

/// A caller that waits for an end.
#[derive(Debug)]
struct Waiting<T> {
    what: T,
    reply: oneshot::Sender<()>,
}

impl PushSide {
    /// The push side of thread `index` of `count`.
    pub(super) fn new(index: usize, count: usize) -> Self {
        let number = |index| u64::try_from(index).expect("few threads");
        Self {
            connections: HashMap::new(),
            last: number(index),
            step: number(count),
            deregistering: Vec::new(),
            disconnecting: Vec::new(),
        }
    }

    /// A name for the next connection.
    pub(super) fn next_name(&mut self) -> PushConnection {
        self.last += self.step;
        PushConnection(self.last)
    }

    pub(super) fn add(&mut self, connection: PushConnection, qp: QpId) {
        self.connections.insert(connection, qp);
    }

    /// Carries out a command, or records the caller that waits for its end.
    pub(super) fn carry_out(&mut self, engine: &mut dyn Engine, command: Command) {
        match command {
            Command::Register { connection, medium, range, access, reply } => {
                let Some(&qp) = self.connections.get(&connection) else {
                    let _ = reply.send(Err(HostError::PeerGone));
                    return;
                };
                let outcome = engine.register(qp, medium, range, access);
                let outcome = outcome.map_err(|error| match error {
                    RegisterError::UnknownQp(_) => HostError::PeerGone,
                    other => HostError::Refused(other),
                });
                if let Err(Ok(unheard)) = reply.send(outcome) {
                    // No caller knows the region, so none uses it: it is gone at once.
                    let _ = engine.deregister(qp, unheard.rkey);
                }
            }
            Command::Deregister { connection, rkey, reply } => {
                if let Some(&qp) = self.connections.get(&connection) {
                    self.deregister(engine, (qp, rkey), reply);
                } else {
                    let _ = reply.send(());
                }
            }
            // The thread itself handles this command.
            Command::TakeOver { .. } => {}
            Command::Disconnect { connection, reply } => {
                if let Some(&qp) = self.connections.get(&connection) {
                    self.disconnecting.push(Waiting { what: connection, reply });
                    engine.disconnect(qp);
                } else {
                    let _ = reply.send(());
                }
            }
        }
    }

    fn deregister(
        &mut self,
        engine: &mut dyn Engine,
        what: (QpId, Rkey),
        reply: oneshot::Sender<()>,
    ) {
        let is_pending = match engine.deregister(what.0, what.1) {
            Ok(Deregistration::Done) => false,
            Ok(Deregistration::Pending) => true,
            // Another caller, or the peer by invalidating the region, was first: that end answers
            // this command too.
            Err(_) => self.deregistering.iter().any(|waiting| waiting.what == what),
        };
        if is_pending {
            self.deregistering.push(Waiting { what, reply });
        } else {
            let _ = reply.send(());
        }
    }

    /// Handles the end of the last operation on a region that was being deregistered.
    pub(super) fn deregistered(&mut self, qp: QpId, rkey: Rkey) {
        release(&mut self.deregistering, |what| *what == (qp, rkey));
    }

    /// Handles the end of a connection, and of everything registered for it.
    pub(super) fn gone(&mut self, connection: PushConnection, qp: QpId) {
        self.connections.remove(&connection);
        release(&mut self.deregistering, |what| what.0 == qp);
        release(&mut self.disconnecting, |what| *what == connection);
    }

    /// The names of all connections, which are over; this also answers callers that wait for an end.
    pub(super) fn into_connections(self) -> impl Iterator<Item = PushConnection> {
        self.connections.into_keys()
    }

    /// Ends all connections; each is gone when its event arrives.
    pub(super) fn disconnect_all(&self, engine: &mut dyn Engine) {
        self.connections.values().for_each(|qp| engine.disconnect(*qp));
    }
}

fn release<T>(waiting: &mut Vec<Waiting<T>>, is_over: impl Fn(&T) -> bool) {
    for over in waiting.extract_if(.., |waiting| is_over(&waiting.what)) {
        let _ = over.reply.send(());
    }
}
