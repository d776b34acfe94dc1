//! A group whose members run in this process.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use basics::Environment;
use block::{BlockDevice, BlockError, Extent, FileDevice, Survives, Zeroing};
use rdma::{PollPolicy, ProviderChoice};
use replica::core::{Config, Congestion, Core, MemberState, Mode, News, Status};
use replica::format::Geometry;
use replica::one_sided::OneSidedOptions;
use replica::ring::{CreateOptions, Ring};
use replica::runtime::{Member, Rpo, Setup, StartError};
use replica::wire::{Identity, LinkOptions, Listener, Policy};
use replica::witness::{FileWitness, NoWitness, Witness};
use replica::{GroupId, MemberId, MemberSet};

use crate::proxy::Proxy;

/// Bytes of each of the two volumes.
pub(crate) const SIZE: u64 = 4 << 20;
const VOLUMES: usize = 2;
pub(crate) const SECRET: &[u8] = b"a secret of all members";
const MAP: pmem::OpenOptions = pmem::OpenOptions { emulate_persistence: true };

/// What differs between the groups of the tests.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) members: u8,
    pub(crate) capacity: u64,
    pub(crate) mode: Mode,
    pub(crate) read_lease_ns: u64,
    pub(crate) retention_ns: u64,
    pub(crate) least_in_sync: u32,
    pub(crate) compression: Policy,
    pub(crate) rpo: Option<Rpo>,
    /// Whether a file records who is the source.
    pub(crate) has_witness: bool,
    /// Whether records go by one-sided operations.
    pub(crate) one_sided: Option<OneSidedOptions>,
    /// Connections of a link, which then go through proxies that a test may cut.
    pub(crate) connections: usize,
    /// Whether records are sealed.
    pub(crate) seals: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            members: 2,
            capacity: 1 << 20,
            mode: Mode::Sync,
            // A promotion waits for so long.
            read_lease_ns: 200_000_000,
            retention_ns: 0,
            least_in_sync: 1,
            compression: Policy::None,
            rpo: None,
            has_witness: false,
            one_sided: None,
            connections: 1,
            seals: false,
        }
    }
}

/// Engines that sleep: the tests of one machine run side by side.
pub(crate) fn one_sided() -> OneSidedOptions {
    OneSidedOptions {
        provider: ProviderChoice::Soft,
        listen: ([127, 0, 0, 1], 0).into(),
        addresses: Vec::new(),
        polling: PollPolicy::Block,
    }
}

/// The members, running or not.
pub(crate) struct Group {
    directory: tempfile::TempDir,
    plan: Plan,
    addresses: Vec<String>,
    /// Between the members and those who make links to them, where links have several connections.
    proxies: Vec<Proxy>,
    running: Vec<Option<Member>>,
    /// What of the volumes 0 of the members cannot be read.
    lost: Vec<Lost>,
    gates: Vec<Gated>,
    full: Vec<Arc<AtomicBool>>,
}

impl Group {
    /// A group whose member 0 is the source, and all others are in sync.
    pub(crate) fn new(plan: Plan) -> Self {
        let group = Self::stopped(plan);
        let mut group = group;
        (0..group.plan.members).for_each(|member| group.start(member));
        group.promote(0, true);
        group.wait_in_sync(0);
        group
    }

    /// Members that start from here on have this in their file.
    pub(crate) fn least_in_sync(&mut self, least_in_sync: u32) {
        self.plan.least_in_sync = least_in_sync;
    }

    /// Members that start from here on have this in their file.
    pub(crate) fn seals(&mut self, seals: bool) {
        self.plan.seals = seals;
    }

    /// A group whose member 0 is the source, and nobody waits for the others.
    pub(crate) fn asynchronous() -> Self {
        let mut group = Self::stopped(Plan { mode: Mode::Async, ..Plan::default() });
        (0..group.plan.members).for_each(|member| group.start(member));
        group.promote(0, true);
        group
    }

    /// A group of which nobody runs.
    pub(crate) fn stopped(plan: Plan) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Ports that are free now; nobody else in this test's machine asks for the same ones soon.
        let listeners: Vec<Listener> =
            (0..plan.members).map(|_| Listener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses = listeners.iter().map(|it| it.local_addr().to_string()).collect();
        let proxied = listeners.iter().filter(|_| plan.connections > 1);
        let proxies = proxied.map(|it| Proxy::to(it.local_addr())).collect();
        let running = (0..plan.members).map(|_| None).collect();
        let lost = (0..plan.members).map(|_| Lost::default()).collect();
        let gates = (0..plan.members).map(|_| Gated::default()).collect();
        let full = (0..plan.members).map(|_| Arc::default()).collect();
        let group = Self { directory, plan, addresses, proxies, running, lost, gates, full };
        for member in 0..group.plan.members {
            group.make(member);
        }
        group
    }

    /// Makes what a member keeps, anew.
    pub(crate) fn make(&self, member: u8) {
        let path = self.directory.path().join(member.to_string());
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("kept")).unwrap();
        for volume in 0..VOLUMES {
            File::create(path.join(format!("volume-{volume}"))).unwrap().set_len(SIZE).unwrap();
        }
        let options = CreateOptions {
            geometry: Geometry::new(self.plan.capacity, 2),
            overwrite: false,
            fills: false,
            medium: MAP,
        };
        let label = Core::first_label(&self.config(member));
        Ring::create(&path.join("ring"), &label, options).unwrap();
    }

    pub(crate) fn config(&self, me: u8) -> Config {
        Config {
            group: GroupId(*b"a group of tests"),
            me: MemberId(me),
            my_mode: self.plan.mode,
            others: (0..self.plan.members)
                .filter(|other| *other != me)
                .map(|other| (MemberId(other), self.plan.mode))
                .collect(),
            volumes: vec![SIZE; VOLUMES],
            capacity: self.plan.capacity,
            least_in_sync: self.plan.least_in_sync,
            has_witness: self.plan.has_witness,
            congestion: Congestion::DirtyMap,
            window: 4 << 20,
            silence_ns: 2_000_000_000,
            read_lease_ns: self.plan.read_lease_ns,
            retention_ns: self.plan.retention_ns,
            copy_window: 4 << 20,
            seals: self.plan.seals,
            key_check: 0,
        }
    }

    pub(crate) fn start(&mut self, member: u8) {
        self.start_with(member, SECRET);
    }

    pub(crate) fn start_with(&mut self, member: u8, secret: &[u8]) {
        let started = self.try_start(member, self.config(member), secret).unwrap();
        self.running[usize::from(member)] = Some(started);
    }

    fn identity(&self, member: u8, secret: &[u8]) -> Identity {
        let all = (0..self.plan.members).fold(MemberSet::NONE, |all, it| all.with(MemberId(it)));
        Identity::from_secret(self.config(member).group, MemberId(member), all, secret).unwrap()
    }

    pub(crate) fn try_start(
        &self,
        member: u8,
        config: Config,
        secret: &[u8],
    ) -> Result<Member, StartError> {
        let path = self.directory.path().join(member.to_string());
        let identity = self.identity(member, secret);
        let mut volumes: Vec<_> = (0..VOLUMES).map(|it| self.file(member, it)).collect();
        let lost = Arc::clone(&self.lost[usize::from(member)]);
        let gate = Arc::clone(&self.gates[usize::from(member)]);
        let is_full = Arc::clone(&self.full[usize::from(member)]);
        volumes[0] = Arc::new(Failing { below: Arc::clone(&volumes[0]), lost, gate, is_full });
        let addresses = (0..)
            .map(MemberId)
            .zip(self.addresses.iter().map(|address| vec![address.clone()]))
            .map(|(member, address)| match self.proxies.get(usize::from(member.0)) {
                Some(proxy) => (member, vec![proxy.address().to_string()]),
                None => (member, address),
            })
            .collect();
        let setup = Setup {
            config,
            ring: Ring::open(&path.join("ring"), MAP).unwrap(),
            volumes,
            directory: path.join("kept"),
            map: MAP,
            identity,
            addresses,
            links: LinkOptions { connections: self.plan.connections, ..LinkOptions::default() },
            one_sided: self.plan.one_sided.clone(),
            listener: Listener::bind(&self.addresses[usize::from(member)]).unwrap(),
            witness: self.witness(),
            compression: self.plan.compression,
            rpo: self.plan.rpo,
            environment: Environment::host(),
        };
        Member::start(setup)
    }

    fn witness(&self) -> Arc<dyn Witness> {
        let group = self.config(0).group;
        match self.plan.has_witness {
            true => Arc::new(FileWitness::new(&self.room().join("witness"), group)),
            false => Arc::new(NoWitness),
        }
    }

    /// A sector of a member's first volume cannot be read any more, until it is written.
    pub(crate) fn lose(&self, member: u8, sector: u64) {
        self.lost[usize::from(member)].lock().unwrap().insert(sector);
    }

    /// [`Group::lose`]; the write that mends it waits until the gate is open.
    pub(crate) fn lose_slowly(&self, member: u8, sector: u64) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        *self.gates[usize::from(member)].lock().unwrap() = Some(Arc::clone(&gate));
        self.lose(member, sector);
        gate
    }

    /// A member's first volume cannot be longer, or can.
    pub(crate) fn is_full(&self, member: u8, is_full: bool) {
        self.full[usize::from(member)].store(is_full, Ordering::SeqCst);
    }

    /// What carries the connections to a member.
    pub(crate) fn proxy(&self, member: u8) -> &Proxy {
        &self.proxies[usize::from(member)]
    }

    /// Whether all sectors of a member's first volume can be read.
    pub(crate) fn is_whole(&self, member: u8) -> bool {
        self.lost[usize::from(member)].lock().unwrap().is_empty()
    }

    /// Ends a member; what it had not made durable is lost as far as a kill loses it.
    pub(crate) fn stop(&mut self, member: u8) {
        self.running[usize::from(member)] = None;
    }

    /// The volume's file of a member.
    pub(crate) fn file(&self, member: u8, volume: usize) -> Arc<dyn BlockDevice> {
        let path = self.path(member, volume);
        let file = File::options().read(true).write(true).open(path).unwrap();
        Arc::new(FileDevice::new(file).unwrap())
    }

    fn path(&self, member: u8, volume: usize) -> std::path::PathBuf {
        self.directory.path().join(member.to_string()).join(format!("volume-{volume}"))
    }

    pub(crate) fn room(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn member(&self, member: u8) -> &Member {
        self.running[usize::from(member)].as_ref().expect("the member runs")
    }

    pub(crate) fn status(&self, member: u8) -> Status {
        self.member(member).report().status
    }

    pub(crate) fn promote(&self, member: u8, by_force: bool) {
        if !by_force {
            // A source that ended a moment ago is still one that lives.
            self.wait("the source is gone from there", || self.status(member).follows.is_none());
        }
        self.member(member).promote(by_force).unwrap();
        self.wait("the member is the source", || {
            let status = self.status(member);
            status.is_source && status.is_ready
        });
    }

    /// The volumes of a member as devices.
    pub(crate) fn devices(&self, member: u8) -> Vec<Arc<dyn BlockDevice>> {
        self.member(member).devices()
    }

    pub(crate) fn write(&self, member: u8, volume: usize, offset: u64, fill: u8, len: usize) {
        let device = &self.devices(member)[volume];
        device.write(offset, &vec![fill; len], Survives::Durable).unwrap();
    }

    /// Waits until something is so: a minute at most, on a machine however busy.
    pub(crate) fn wait(&self, what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..6000 {
            if is_so() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let all: Vec<_> = (0..self.plan.members)
            .filter_map(|member| self.running[usize::from(member)].as_ref())
            .map(|member| (member.report(), member.events(0)))
            .collect();
        panic!("it does not come to this: {what}; {all:#?}");
    }

    /// Waits until all running members are in sync with the source.
    pub(crate) fn wait_in_sync(&self, source: u8) {
        self.wait("all running members are in sync", || self.is_in_sync(source));
    }

    /// Whether all running members are in sync with the source.
    pub(crate) fn is_in_sync(&self, source: u8) -> bool {
        let running = (0..self.plan.members).filter(|it| self.running[usize::from(*it)].is_some());
        let all = running.fold(MemberSet::NONE, |all, member| all.with(MemberId(member)));
        let source_id = MemberId(source);
        // A source that has not noticed yet that a member has started again takes it for in sync.
        let others = all.without(source_id);
        let follow = others.iter().all(|it| self.status(it.0).follows == Some(source_id));
        let status = self.status(source);
        let streams = |(member, other): &(MemberId, MemberState)| {
            !others.contains(*member) || (other.is_connected && !other.is_copying)
        };
        // Who takes devices before the source is ready has those of a member that is none.
        let is_there = follow && status.is_ready && status.in_sync == all;
        is_there && status.others.iter().all(streams)
    }

    /// Waits until a member has applied everything, and compares its volumes with the source's.
    pub(crate) fn compare(&self, source: u8, member: u8) {
        self.wait_in_sync(source);
        self.wait("everything is applied", || {
            let status = self.status(member);
            status.applied >= self.status(source).end && status.is_consistent
        });
        for volume in 0..VOLUMES {
            let ours = std::fs::read(self.path(source, volume)).unwrap();
            let theirs = std::fs::read(self.path(member, volume)).unwrap();
            let differs = (0..).zip(ours.iter().zip(&theirs)).find(|(_, (a, b))| a != b);
            assert!(
                differs.is_none() && ours.len() == theirs.len(),
                "volume {volume} of member {member} differs: {differs:?}"
            );
        }
    }

    /// Whether a member has told of something.
    pub(crate) fn has_told(&self, member: u8, is_it: impl Fn(&News) -> bool) -> bool {
        self.member(member).events(0).iter().any(|noted| is_it(&noted.news))
    }
}

/// Sectors of 512 bytes.
type Lost = Arc<Mutex<BTreeSet<u64>>>;
type Gated = Arc<Mutex<Option<Arc<Gate>>>>;

/// Where a write waits until the test lets it go on.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_reached: AtomicBool,
    is_open: Mutex<bool>,
    opens: Condvar,
}

impl Gate {
    pub(crate) fn is_reached(&self) -> bool {
        self.is_reached.load(Ordering::SeqCst)
    }

    pub(crate) fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opens.notify_all();
    }

    fn pass(&self) {
        self.is_reached.store(true, Ordering::SeqCst);
        let mut is_open = self.is_open.lock().unwrap();
        while !*is_open {
            is_open = self.opens.wait(is_open).unwrap();
        }
    }
}

/// A disk that cannot read some of its sectors, and takes others in their place once they are written.
#[derive(Debug)]
struct Failing {
    below: Arc<dyn BlockDevice>,
    lost: Lost,
    gate: Gated,
    /// It cannot be longer.
    is_full: Arc<AtomicBool>,
}

impl Failing {
    fn sectors(offset: u64, len: u64) -> std::ops::Range<u64> {
        offset / 512..(offset + len) / 512
    }

    fn writes(&self, offset: u64, len: u64) {
        let sectors = Self::sectors(offset, len);
        self.lost.lock().unwrap().retain(|sector| !sectors.contains(sector));
    }
}

impl BlockDevice for Failing {
    fn geometry(&self) -> block::Geometry {
        self.below.geometry()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError> {
        let sectors = Self::sectors(offset, out.len() as u64);
        match self.lost.lock().unwrap().range(sectors).next() {
            Some(_) => Err(BlockError::MediaIo(5)),
            None => self.below.read(offset, out),
        }
    }

    fn write(&self, offset: u64, bytes: &[u8], survives: Survives) -> Result<(), BlockError> {
        // The first write to what is lost.
        let sectors = Self::sectors(offset, bytes.len() as u64);
        let is_lost = self.lost.lock().unwrap().range(sectors).next().is_some();
        let gate = if is_lost { self.gate.lock().unwrap().take() } else { None };
        if let Some(gate) = gate {
            gate.pass();
        }
        self.writes(offset, bytes.len() as u64);
        self.below.write(offset, bytes, survives)
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.below.flush()
    }

    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        zeroing: Zeroing,
        survives: Survives,
    ) -> Result<(), BlockError> {
        self.writes(offset, len);
        self.below.write_zeroes(offset, len, zeroing, survives)
    }

    fn status(&self, offset: u64, len: u64) -> Result<Extent, BlockError> {
        self.below.status(offset, len)
    }

    fn resize(&self, size: u64) -> Result<u64, BlockError> {
        if self.is_full.load(Ordering::SeqCst) {
            return Err(BlockError::MediaFull);
        }
        self.below.resize(size)
    }
}
