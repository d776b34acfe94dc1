//! The seam to a protocol whose connections are no push connections: it shares the engine threads.
//!
//! A thread knows the type of its handler, so the calls cost nothing. The rules of the threads hold for a
//! handler too.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use basics::Key;
use rdma::{DisconnectReason, Engine, QpId, WorkCompletion};

use super::request::Request;

/// Serves the connections of one engine that are no push connections.
pub trait Handler: Debug + Send + 'static {
    /// Answers a connection request; returns the queue pair, and the handler's key of the connection for
    /// the calls below. `None`: the handler has rejected the request.
    fn accept(
        &mut self,
        engine: &mut dyn Engine,
        request: &Request,
        now: Instant,
    ) -> Option<(QpId, Key)>;

    /// The queue pair is established: the peer may be sent to.
    fn established(&mut self, engine: &mut dyn Engine, connection: Key, now: Instant);

    /// A work request of a connection has ended.
    fn completed(
        &mut self,
        engine: &mut dyn Engine,
        connection: Key,
        completion: &WorkCompletion,
        now: Instant,
    );

    /// A queue pair is gone.
    fn disconnected(&mut self, connection: Key, reason: DisconnectReason);

    /// Does the work that no event of the engine causes, and posts what the events have left to post; `true` if
    /// there was some. Called once in each turn, after the events.
    fn turn(&mut self, engine: &mut dyn Engine, now: Instant) -> bool;

    /// How long the engine may wait before the next [`Handler::turn`]; `None`: until an event.
    fn patience(&self, now: Instant) -> Option<Duration>;

    /// Ends all connections; each is gone when [`Handler::disconnected`] is called.
    fn disconnect_all(&mut self, engine: &mut dyn Engine);

    /// A bug has panicked and ends the thread. Called first, before any connection ends.
    fn note_panic(&self) {
        tracing::error!("a bug: an engine thread panicked, and takes no more connections");
    }

    /// Ends the connections without the engine, which is gone with every queue pair: the thread has
    /// panicked.
    fn abandon(self);
}

/// The handler of a program that has push connections only: all other peers are rejected.
#[derive(Clone, Copy, Debug, Default)]
pub struct PushOnly;

impl Handler for PushOnly {
    fn accept(
        &mut self,
        engine: &mut dyn Engine,
        request: &Request,
        _now: Instant,
    ) -> Option<(QpId, Key)> {
        engine.reject(request.id, &[]);
        None
    }

    fn established(&mut self, _engine: &mut dyn Engine, _connection: Key, _now: Instant) {}

    fn completed(
        &mut self,
        _engine: &mut dyn Engine,
        _connection: Key,
        _completion: &WorkCompletion,
        _now: Instant,
    ) {
    }

    fn disconnected(&mut self, _connection: Key, _reason: DisconnectReason) {}

    fn turn(&mut self, _engine: &mut dyn Engine, _now: Instant) -> bool {
        false
    }

    fn patience(&self, _now: Instant) -> Option<Duration> {
        None
    }

    fn disconnect_all(&mut self, _engine: &mut dyn Engine) {}

    fn abandon(self) {}
}
