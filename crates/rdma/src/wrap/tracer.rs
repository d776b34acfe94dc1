//! A provider that reports its calls and events to `tracing`.
//!
//! Control calls and connection events at `debug`, work requests and completions at `trace`,
//! refusals at `debug`. With no subscriber interested the cost is a load per call.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use pmem::Medium;
use tracing::{debug, trace};

use crate::interface::{
    Access, ConnectionId, Deregistration, Engine, EngineConfig, EngineError, EngineStats, Event,
    Handover, LocalSlice, MemoryRegion, PostError, Provider, QpCapabilities, QpConfig, QpId,
    RegisterError, Rkey, Waker, WorkRequest,
};

/// See the module.
#[derive(Debug)]
pub struct Tracer<P> {
    inner: P,
}

impl<P: Provider> Tracer<P> {
    /// Traces the engines of `inner`.
    pub fn new(inner: P) -> Self {
        Self { inner }
    }
}

impl<P: Provider> Provider for Tracer<P> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn is_device(&self) -> bool {
        self.inner.is_device()
    }

    fn open_engine(&self, config: EngineConfig) -> Result<Box<dyn Engine>, EngineError> {
        debug!(provider = self.name(), ?config, "open engine");
        let inner = self.inner.open_engine(config)?;
        Ok(Box::new(TracedEngine { inner }))
    }
}

#[derive(Debug)]
struct TracedEngine {
    inner: Box<dyn Engine>,
}

impl Engine for TracedEngine {
    fn listen(&mut self, addr: SocketAddr) -> Result<SocketAddr, EngineError> {
        let result = self.inner.listen(addr);
        debug!(%addr, ?result, "listen");
        result
    }

    fn connect(
        &mut self,
        addr: SocketAddr,
        config: QpConfig,
        private_data: &[u8],
    ) -> Result<QpId, EngineError> {
        let result = self.inner.connect(addr, config, private_data);
        // Private data may hold a token: a log may have only its length.
        debug!(%addr, ?config, private_len = private_data.len(), ?result, "connect");
        result
    }

    fn accept(
        &mut self,
        request: ConnectionId,
        config: QpConfig,
        private_data: &[u8],
    ) -> Result<QpId, EngineError> {
        let result = self.inner.accept(request, config, private_data);
        debug!(%request, ?config, private_len = private_data.len(), ?result, "accept");
        result
    }

    fn reject(&mut self, request: ConnectionId, private_data: &[u8]) {
        debug!(%request, private_len = private_data.len(), "reject");
        self.inner.reject(request, private_data);
    }

    fn hand_over(&mut self, request: ConnectionId) -> Option<Handover> {
        let result = self.inner.hand_over(request);
        debug!(%request, ok = result.is_some(), "hand over");
        result
    }

    fn take_over(&mut self, handover: Handover) -> Option<ConnectionId> {
        let result = self.inner.take_over(handover);
        debug!(?result, "take over");
        result
    }

    fn register(
        &mut self,
        qp: QpId,
        medium: Arc<dyn Medium>,
        range: Range<u64>,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        let class = medium.class();
        let result = self.inner.register(qp, medium, range.clone(), access);
        // The key is a secret between two peers and does not belong in a log.
        debug!(%qp, ?range, ?access, %class, ok = result.is_ok(), "register");
        result
    }

    fn deregister(&mut self, qp: QpId, rkey: Rkey) -> Result<Deregistration, RegisterError> {
        let result = self.inner.deregister(qp, rkey);
        debug!(%qp, %rkey, ?result, "deregister");
        result
    }

    fn post_send(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError> {
        let (opcode, wr_id) = (request.operation.opcode(), request.wr_id);
        let result = self.inner.post_send(qp, request);
        trace!(%qp, wr_id, ?opcode, ?result, "post send");
        result
    }

    fn post_recv(&mut self, qp: QpId, wr_id: u64, buffer: LocalSlice) -> Result<(), PostError> {
        let result = self.inner.post_recv(qp, wr_id, buffer);
        trace!(%qp, wr_id, len = buffer.len, ?result, "post recv");
        result
    }

    fn disconnect(&mut self, qp: QpId) {
        debug!(%qp, "disconnect");
        self.inner.disconnect(qp);
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> usize {
        let before = events.len();
        let count = self.inner.poll(events);
        for event in events.iter().skip(before) {
            trace_event(event);
        }
        count
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        self.inner.wait(timeout);
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn capabilities(&self, qp: QpId) -> Option<QpCapabilities> {
        self.inner.capabilities(qp)
    }

    fn inline_max(&self) -> usize {
        self.inner.inline_max()
    }

    fn stats(&self) -> EngineStats {
        self.inner.stats()
    }
}

fn trace_event(event: &Event) {
    match event {
        Event::Completion(completion) => trace!(
            qp = %completion.qp,
            wr_id = completion.wr_id,
            opcode = ?completion.opcode,
            status = ?completion.status,
            len = completion.len,
            "completion"
        ),
        Event::ConnectRequest { id, peer, local, private_data } => {
            debug!(%id, %peer, %local, private_len = private_data.len(), "connect request");
        }
        Event::ConnectRequestGone { id } => debug!(%id, "connect request gone"),
        Event::Established { qp, private_data } => {
            debug!(%qp, private_len = private_data.len(), "established");
        }
        Event::ConnectFailed { qp, reason, .. } => debug!(%qp, ?reason, "connect failed"),
        Event::Deregistered { qp, rkey } => debug!(%qp, %rkey, "deregistered"),
        Event::Disconnected { qp, reason } => debug!(%qp, ?reason, "disconnected"),
    }
}
