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

#[cfg(test)]
mod tests {
    use rdma::{EngineConfig, PollPolicy, Provider, SoftProvider};

    use super::*;

    const CONNECTION: PushConnection = PushConnection(1);
    const OTHER: PushConnection = PushConnection(2);
    const QP: QpId = QpId { index: 7, generation: 0 };
    const OTHER_QP: QpId = QpId { index: 8, generation: 0 };

    fn is_answered(answer: &mut oneshot::Receiver<()>) -> bool {
        answer.try_recv().is_ok()
    }

    #[test]
    fn the_connections_of_two_threads_have_different_names() {
        let (mut first, mut second) = (PushSide::new(0, 2), PushSide::new(1, 2));
        let names = [first.next_name(), first.next_name(), second.next_name(), second.next_name()];
        assert_eq!(names, [2, 4, 3, 5].map(PushConnection));
    }

    #[test]
    fn whoever_deregisters_what_another_is_ending_waits_for_that_end() {
        let config = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
        let mut engine = SoftProvider.open_engine(config).unwrap();
        let mut side = PushSide::new(0, 1);
        let (reply, mut first) = oneshot::channel();
        side.deregistering.push(Waiting { what: (QP, Rkey(1)), reply });
        // The engine knows neither any more.
        let (reply, mut same) = oneshot::channel();
        side.deregister(&mut *engine, (QP, Rkey(1)), reply);
        let (reply, mut another) = oneshot::channel();
        side.deregister(&mut *engine, (QP, Rkey(2)), reply);
        assert!(is_answered(&mut another), "nobody is ending it: it is over");
        assert!(!is_answered(&mut same) && !is_answered(&mut first));
        side.deregistered(OTHER_QP, Rkey(1));
        side.deregistered(QP, Rkey(2));
        assert!(!is_answered(&mut same) && !is_answered(&mut first));
        side.deregistered(QP, Rkey(1));
        assert!(is_answered(&mut same) && is_answered(&mut first));
    }

    #[test]
    fn the_end_of_a_connection_answers_whoever_waits_for_it_and_nobody_else() {
        let mut side = PushSide::new(0, 1);
        side.add(CONNECTION, QP);
        side.add(OTHER, OTHER_QP);
        let mut waiting = |connection, qp| {
            let ((ended, region), (gone, whole)) = (oneshot::channel(), oneshot::channel());
            side.deregistering.push(Waiting { what: (qp, Rkey(1)), reply: ended });
            side.disconnecting.push(Waiting { what: connection, reply: gone });
            [region, whole]
        };
        let (mut of_it, mut of_another) = (waiting(CONNECTION, QP), waiting(OTHER, OTHER_QP));
        side.gone(CONNECTION, QP);
        assert!(of_it.iter_mut().all(is_answered));
        assert!(!of_another.iter_mut().any(is_answered));
        assert_eq!(side.into_connections().collect::<Vec<_>>(), [OTHER]);
    }
}
