//! The engine: its owner's calls, and waiting.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use basics::{Key, Table};
use pmem::{DurabilityClass, Medium};

use super::connecting::{Request, Whose};
use super::connection::{Connection, Region, Stage};
use super::count::RegionCount;
use super::ring::INLINE_MAX;
use super::sys::cm::{ByName, Channel, CmId};
use super::sys::device::{Device, Features};
use super::sys::memory::{FlushAccess, Memory, Refusal, Wish};
use super::sys::news::Reader;
use super::sys::queue::{Announcements, Ended};
use crate::common::PollWindow;
use crate::common::poller::{Interest, Poller, host_io};
use crate::common::timers::{Due, Timers};
use crate::common::waiting::{self, Waiting};
use crate::interface::{
    Access, ConnectionId, Deregistration, Engine, EngineConfig, EngineError, EngineStats, Event,
    Handover, Lkey, LocalSlice, MemoryRegion, PeerOperations, PostError, QpCapabilities, QpConfig,
    QpId, RegisterError, Rkey, WakeReceiver, Waker, WorkRequest,
};

/// See the module. Fields are dropped in order: objects on a channel before the channel.
#[derive(Debug)]
pub(super) struct VerbsEngine {
    pub(super) config: EngineConfig,
    pub(super) qps: Table<Connection>,
    pub(super) requests: Table<Request>,
    pub(super) listeners: Vec<CmId>,
    /// Requests, the oldest first; some entries are of requests that are gone.
    pub(super) order: VecDeque<Key>,
    /// The owner of each identifier of the connection manager.
    pub(super) names: ByName<Whose>,
    /// Queue pairs with posted requests, and those whose answer is due in the next round.
    pub(super) busy: Vec<Key>,
    pub(super) answering: Vec<Key>,
    pub(super) devices: Vec<Known>,
    pub(super) channel: Arc<Channel>,
    pub(super) timers: Timers,
    pub(super) events: Vec<Event>,
    pub(super) ended: Vec<Ended>,
    pub(super) stats: EngineStats,
    regions: RegionCount,
    pub(super) poller: Poller,
    wake: WakeReceiver,
    window: PollWindow,
    looked: Instant,
    /// When the engine last asked the devices for events.
    pub(super) asked: Instant,
}

/// A device that some connection has used.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) device: Device,
    pub(super) features: Features,
    pub(super) announcements: Arc<Announcements>,
    pub(super) news: Arc<Reader>,
    /// The device reports no more events.
    pub(super) is_silent: bool,
}

impl VerbsEngine {
    pub(super) fn open(config: EngineConfig) -> Result<Self, EngineError> {
        if config.wire_hook.is_some() {
            return Err(EngineError::ConfigWireHook);
        }
        let channel = Arc::new(Channel::open()?);
        let poller = Poller::new()?;
        let wake = WakeReceiver::new()?;
        poller.add(&wake, WAKER, Interest::READ).map_err(host_io("epoll_ctl"))?;
        poller.add(&*channel, CHANNEL, Interest::READ).map_err(host_io("epoll_ctl"))?;
        let now = config.environment.clock.now();
        Ok(Self {
            qps: Table::new(config.qps_max),
            requests: Table::new(config.handshakes_max),
            listeners: Vec::new(),
            order: VecDeque::new(),
            names: ByName::new(),
            busy: Vec::new(),
            answering: Vec::new(),
            devices: Vec::new(),
            channel,
            timers: Timers::new(config.environment.clock.clone()),
            events: Vec::with_capacity(EVENTS_START),
            ended: Vec::with_capacity(EVENTS_START),
            stats: EngineStats::default(),
            regions: RegionCount::default(),
            poller,
            wake,
            window: PollWindow::new(config.polling),
            looked: now,
            asked: now,
            config,
        })
    }

    /// The engine's entry of a device; the first use of the device makes the entry.
    pub(super) fn known(&mut self, device: Device) -> Result<usize, EngineError> {
        if let Some(place) = self.devices.iter().position(|known| known.device == device) {
            return Ok(place);
        }
        let features = device.features()?;
        let announcements = Arc::new(Announcements::open(device)?);
        let news = Reader::open(device, self.wake.waker())?;
        let place = u64::try_from(self.devices.len()).expect("few devices");
        let added = self.poller.add(&*announcements, FIRST_DEVICE + place, Interest::READ);
        added.map_err(host_io("epoll_ctl"))?;
        let added = self.poller.add(&*news, NEWS | place, Interest::READ);
        added.map_err(host_io("epoll_ctl"))?;
        tracing::debug!(device = device.name(), ?features, "uses an RDMA device");
        self.devices.push(Known { device, features, announcements, news, is_silent: false });
        Ok(self.devices.len() - 1)
    }

    /// Looks once at every source of events; `true` if one had an event.
    fn round(&mut self) -> bool {
        self.stats.polls += 1;
        let mut worked = self.answer_all();
        worked |= self.take_completions();
        worked |= self.take_news();
        let now = self.timers.now();
        if now.duration_since(self.looked) >= LOOK_EVERY {
            worked |= self.look(now);
        }
        worked
    }

    /// Looks at what costs system calls: connections, and deadlines.
    fn look(&mut self, now: Instant) -> bool {
        self.looked = now;
        self.stats.epoll_calls += 1;
        self.ask_devices(now);
        let mut worked = self.take_news();
        worked |= self.take_happenings();
        while let Some(due) = self.timers.pop(now) {
            self.fire(due);
            worked = true;
        }
        worked
    }

    fn may_sleep(&self) -> bool {
        self.wake.may_sleep(|| self.has_news_of_devices())
    }

    fn arm_all(&mut self) {
        for at in 0..self.busy.len() {
            if let Some(connection) = self.busy.get(at).and_then(|key| self.qps.get_mut(*key))
                && !connection.is_armed
            {
                // Arming fails only on the queue of a device that is gone.
                connection.is_armed = connection.queue.arm().is_ok();
            }
        }
    }

    fn take_announcements(&mut self, device: u64) {
        let known = usize::try_from(device).ok().and_then(|place| self.devices.get(place));
        let Some(announcements) = known.map(|known| Arc::clone(&known.announcements)) else {
            return;
        };
        while let Some(name) = announcements.take() {
            if let Ok(index) = u32::try_from(name)
                && let Some((_, connection)) = self.qps.at(index)
            {
                connection.is_armed = false;
            }
        }
    }

    fn register_memory(
        &self,
        qp: QpId,
        medium: &Arc<dyn Medium>,
        range: &Range<u64>,
        access: Access,
    ) -> Result<(Memory, PeerOperations, u64), RegisterError> {
        let connection = self.qps.get(key_of(qp)).ok_or(RegisterError::UnknownQp(qp))?;
        let known = self.devices.get(connection.device).ok_or(RegisterError::UnknownQp(qp))?;
        let features = known.features;
        // Drivers of iWARP use the address in this process as the remote address, whatever the call
        // asks for.
        let named = (!features.is_iwarp).then_some(range.start);
        let is_iwarp = features.is_iwarp;
        let wish = |flush| Wish { access, flush, on_demand: false, named, is_iwarp };
        let domain = connection.queue.domain();
        let register = |wish| Memory::register(domain, medium, range, wish);
        let (mut flush, mut outcome) = (None, Err(Refusal::NotMemory));
        for asked in flushes(features, medium.class(), access) {
            (flush, outcome) = (asked, register(wish(asked)));
            // A device that cannot persist these pages refuses the registration.
            if !matches!(outcome, Err(Refusal::Host(libc::EINVAL | libc::EOPNOTSUPP))) {
                break;
            }
        }
        let unpinnable = matches!(outcome, Err(Refusal::Host(libc::EOPNOTSUPP | libc::EFAULT)));
        if unpinnable && features.on_demand && !is_distrusted(known.device) {
            tracing::info!(device = known.device.name(), "pages are fetched on demand, not pinned");
            flush = None;
            outcome = register(Wish { on_demand: true, ..wish(None) });
        }
        let memory = outcome.map_err(|refusal| match refusal {
            Refusal::NotMemory => RegisterError::MediumNotMemory,
            Refusal::Host(errno) => RegisterError::HostPin { errno },
        })?;
        let mut offers = PeerOperations::empty();
        offers.set(PeerOperations::FLUSH, flush == Some(FlushAccess::Persistence));
        let writes = access.contains(Access::REMOTE_WRITE);
        offers.set(PeerOperations::ATOMIC_WRITE, features.atomic_write && writes);
        let base = memory.address();
        Ok((memory, offers, base))
    }
}

/// The access for flushes to ask for, the best one first.
fn flushes(
    features: Features,
    class: DurabilityClass,
    access: Access,
) -> impl Iterator<Item = Option<FlushAccess>> {
    let persistence = features.flush
        && class == DurabilityClass::Pmem
        && access.contains(Access::FLUSH_PERSISTENCE);
    let visibility = features.flush && access.intersects(FLUSHES);
    let persistence = persistence.then_some(Some(FlushAccess::Persistence));
    let visibility = visibility.then_some(Some(FlushAccess::Visibility));
    persistence.into_iter().chain(visibility).chain([None])
}

const FLUSHES: Access = Access::FLUSH_VISIBILITY.union(Access::FLUSH_PERSISTENCE);

/// Whether on-demand paging of a device is known to lose bytes: rxe of Linux 7.2 places writes
/// longer than a packet wrongly in DAX files, and reports success.
fn is_distrusted(device: Device) -> bool {
    device.name().starts_with("rxe")
}

pub(super) fn key_of(QpId { index, generation }: QpId) -> Key {
    Key { index, generation }
}

pub(super) fn qp_of(Key { index, generation }: Key) -> QpId {
    QpId { index, generation }
}

impl Waiting for VerbsEngine {
    fn work(&mut self) -> bool {
        self.round()
    }

    fn has_news(&mut self) -> bool {
        !self.events.is_empty() || self.wake.take_call()
    }

    fn now(&self) -> Instant {
        self.timers.now()
    }

    fn window(&mut self) -> &mut PollWindow {
        &mut self.window
    }

    fn sleep(&mut self, since: Instant, left: Option<Duration>) {
        self.arm_all();
        // An armed queue does not announce completions that came before it was armed.
        if self.round() || !self.events.is_empty() || !self.may_sleep() {
            return;
        }
        let timeout = self.timers.within(left);
        self.stats.sleeps += 1;
        let count = self.poller.poll(timeout);
        let mut woken = false;
        for place in 0..count {
            match self.poller.ready(place).map(|ready| ready.token) {
                Some(WAKER) => woken = true,
                Some(CHANNEL) | None => {}
                Some(news) if news & NEWS != 0 => {
                    self.ask_device(usize::try_from(news ^ NEWS).unwrap_or(usize::MAX));
                }
                Some(device) => self.take_announcements(device - FIRST_DEVICE),
            }
        }
        self.wake.got_up(woken);
        self.stats.wakes += u64::from(count > 0);
        self.window.slept(self.timers.now() - since, count > 0);
        self.look(self.timers.now());
    }
}

impl Engine for VerbsEngine {
    fn listen(&mut self, addr: SocketAddr) -> Result<SocketAddr, EngineError> {
        let id = CmId::bound(&self.channel, addr)?;
        id.listen(BACKLOG)?;
        let local = id.local();
        self.listeners.push(id);
        Ok(local)
    }

    fn connect(
        &mut self,
        addr: SocketAddr,
        config: QpConfig,
        private_data: &[u8],
    ) -> Result<QpId, EngineError> {
        self.dial(addr, config, private_data)
    }

    fn accept(
        &mut self,
        request: ConnectionId,
        config: QpConfig,
        private_data: &[u8],
    ) -> Result<QpId, EngineError> {
        self.answer_yes(request, config, private_data)
    }

    fn reject(&mut self, request: ConnectionId, private_data: &[u8]) {
        self.answer_no(request, private_data);
    }

    fn hand_over(&mut self, request: ConnectionId) -> Option<Handover> {
        self.let_go(request)
    }

    fn take_over(&mut self, handover: Handover) -> Option<ConnectionId> {
        self.take_up(handover)
    }

    fn register(
        &mut self,
        qp: QpId,
        medium: Arc<dyn Medium>,
        range: Range<u64>,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        if self.qps.get(key_of(qp)).is_none() {
            return Err(RegisterError::UnknownQp(qp));
        }
        let Range { start, end } = range;
        if start >= end || end > medium.len() {
            return Err(RegisterError::ConfigRange { start, end, len: medium.len() });
        }
        let counted = self.regions.take(self.config.regions_max);
        let counted =
            counted.ok_or(RegisterError::RegionsExhausted { max: self.config.regions_max })?;
        let (memory, offers, base) = self.register_memory(qp, &medium, &range, access)?;
        let connection = self.qps.get_mut(key_of(qp)).ok_or(RegisterError::UnknownQp(qp))?;
        let (rkey, lkey, len) = (Rkey(memory.rkey()), Lkey(memory.lkey()), end - start);
        connection.regions.insert(rkey.0, Region { memory, len, access, _counted: counted });
        Ok(MemoryRegion { rkey, lkey, remote_addr_base: base, len, offers, unseen: true })
    }

    fn deregister(&mut self, qp: QpId, rkey: Rkey) -> Result<Deregistration, RegisterError> {
        let connection = self.qps.get_mut(key_of(qp)).ok_or(RegisterError::UnknownQp(qp))?;
        let region = connection.regions.remove(&rkey.0);
        let region = region.ok_or(RegisterError::UnknownRegion(rkey))?;
        // After this call returns, the device no longer reaches the region.
        drop(region);
        Ok(Deregistration::Done)
    }

    fn post_send(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError> {
        self.post(qp, &request)
    }

    fn post_recv(&mut self, qp: QpId, wr_id: u64, buffer: LocalSlice) -> Result<(), PostError> {
        self.post_buffer(qp, wr_id, buffer)
    }

    fn disconnect(&mut self, qp: QpId) {
        self.say_goodbye(key_of(qp));
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> usize {
        if self.events.is_empty() {
            self.round();
        }
        let count = self.events.len();
        events.append(&mut self.events);
        count
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        waiting::wait(self, timeout);
    }

    fn waker(&self) -> Waker {
        self.wake.waker()
    }

    fn capabilities(&self, qp: QpId) -> Option<QpCapabilities> {
        let connection = self.qps.get(key_of(qp))?;
        matches!(connection.stage, Stage::Up).then_some(connection.capabilities)
    }

    fn inline_max(&self) -> usize {
        INLINE_MAX
    }

    fn stats(&self) -> EngineStats {
        self.stats
    }
}

impl VerbsEngine {
    /// Removes a connection from every list.
    pub(super) fn forget(&mut self, key: Key) -> Option<Connection> {
        let connection = self.qps.remove(key)?;
        self.names.remove(&connection.queue.id().name());
        self.busy.retain(|busy| *busy != key);
        self.answering.retain(|answering| *answering != key);
        if self.timers.len() > 2 * self.qps.len() + TIMERS_LOOSE {
            let (qps, requests) = (&self.qps, &self.requests);
            self.timers.retain(|due| match due {
                Due::Request { index, generation } => {
                    requests.get(Key { index, generation }).is_some()
                }
                Due::Accept { .. } | Due::Stall { .. } => false,
                Due::Dial { index, generation }
                | Due::Kick { index, generation }
                | Due::Linger { index, generation } => qps.get(Key { index, generation }).is_some(),
            });
        }
        Some(connection)
    }
}

impl Drop for VerbsEngine {
    fn drop(&mut self) {
        // The peers learn of the end now, and not from packets that nobody answers.
        for connection in self.qps.keys().filter_map(|key| self.qps.get(key)) {
            connection.queue.id().disconnect();
        }
    }
}

// Tokens of the poller.
const WAKER: u64 = 0;
const CHANNEL: u64 = 1;
const FIRST_DEVICE: u64 = 2;
/// With the place of a device: the events of that device.
const NEWS: u64 = 1 << 32;
/// The shortest time between two looks at connections and deadlines while an engine spins: each
/// look is a system call.
const LOOK_EVERY: Duration = Duration::from_micros(50);
/// Requests the kernel keeps until they are looked at.
const BACKLOG: i32 = 256;
const EVENTS_START: usize = 256;
/// Deadlines of ended connections that may stay in the heap.
const TIMERS_LOOSE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn features() -> Features {
        Features {
            is_iwarp: false,
            depth_max: 1,
            responder_max: 1,
            initiator_max: 1,
            flush: true,
            atomic_write: true,
            on_demand: false,
        }
    }

    #[test]
    fn persistence_is_asked_for_if_the_memory_has_it() {
        let ask = |class, access| flushes(features(), class, access).collect::<Vec<_>>();
        let (durable, visible) = (Some(FlushAccess::Persistence), Some(FlushAccess::Visibility));
        assert_eq!(ask(DurabilityClass::Pmem, Access::PUSH), [durable, visible, None]);
        assert_eq!(ask(DurabilityClass::Volatile, Access::PUSH), [visible, None]);
        assert_eq!(ask(DurabilityClass::Pmem, Access::LOCAL_WRITE), [None]);
        let plain = Features { flush: false, ..features() };
        let none: Vec<_> = flushes(plain, DurabilityClass::Pmem, Access::PUSH).collect();
        assert_eq!(none, [None]);
    }
}
