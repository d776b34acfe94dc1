//! Writers that go on whoever is the source: each has blocks of its own, and one request at a time.
//!
//! ```text
//!   work:   3 of 4 requests write 1 to 8 blocks, durable before the answer; 1 of 4 reads a block and judges it
//!   lost:   no answer, or ESHUTDOWN: the writes are in doubt; every member is tried in turn until one is the source
//!   check:  all blocks are read at the source and judged; then the writer rests until it is told to work
//! ```

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::client::{Client, Trouble};
use super::ledger::{BLOCK, Ledger};
use super::members::VOLUMES;
use super::random::Random;
use crate::failure::Failure;

/// The writers at work.
#[derive(Debug)]
pub(super) struct Load {
    shared: Arc<Shared>,
    writers: Vec<(Sender<Order>, JoinHandle<()>)>,
}

/// What the writers tell, and are told.
#[derive(Debug)]
pub(super) struct Shared {
    sockets: Vec<PathBuf>,
    began: Instant,
    /// Who is the source, as far as is known: tried first.
    source: AtomicUsize,
    /// Who was the source before, and is none any more: nobody waits for its answers. A writer that left a source would
    /// not know when what it had sent there is done.
    former: AtomicUsize,
    ends: AtomicBool,
    writes: AtomicU64,
    reads: AtomicU64,
    in_doubt: AtomicU64,
    /// The first write that another member than this one answered.
    first: Mutex<(usize, Option<(usize, Instant)>)>,
    faults: Mutex<Vec<String>>,
}

#[derive(Debug)]
enum Order {
    Work,
    Check(Sender<u64>),
}

/// What has been done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) writes: u64,
    pub(super) reads: u64,
    pub(super) in_doubt: u64,
}

impl Load {
    /// Starts the writers; they work.
    pub(super) fn start(sockets: Vec<PathBuf>, source: usize, seed: u64) -> Self {
        let shared = Arc::new(Shared {
            sockets,
            began: Instant::now(),
            source: AtomicUsize::new(source),
            former: AtomicUsize::new(usize::MAX),
            ends: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            in_doubt: AtomicU64::new(0),
            first: Mutex::new((source, None)),
            faults: Mutex::new(Vec::new()),
        });
        let writers = (0..WRITERS)
            .map(|number| {
                let (orders, taken) = channel();
                let writer = Writer {
                    number,
                    client: None,
                    ledger: Ledger::new(number, BLOCKS, shared.began),
                    random: Random::new(seed ^ (0x5851_f42d << 20) ^ number as u64),
                    shared: Arc::clone(&shared),
                };
                (orders, thread::spawn(move || writer.run(&taken)))
            })
            .collect();
        let load = Self { shared, writers };
        load.work();
        load
    }

    /// Has all writers work again.
    pub(super) fn work(&self) {
        self.writers.iter().for_each(|(orders, _)| drop(orders.send(Order::Work)));
    }

    /// Has all writers look for what they wrote, and rest. Gives the number of blocks that were read.
    pub(super) fn check(&self) -> Result<u64, Failure> {
        let (answers, checked) = channel();
        for (orders, _) in &self.writers {
            let _ = orders.send(Order::Check(answers.clone()));
        }
        drop(answers);
        let mut blocks = 0;
        for _ in &self.writers {
            let answer = checked.recv_timeout(CHECK_LIMIT);
            let fault = || self.fault().unwrap_or_else(|| "a writer does not end its check".into());
            blocks += answer.map_err(|_| Failure::new(fault()))?;
        }
        self.sound().map(|()| blocks)
    }

    /// Says that another member is the source now, which is certain.
    pub(super) fn source_is(&self, member: usize) {
        let former = self.shared.source.swap(member, Ordering::SeqCst);
        if former != member {
            self.shared.former.store(former, Ordering::SeqCst);
        }
    }

    /// From now on the first write is waited for that another member answers.
    pub(super) fn watch(&self, but: usize) {
        *self.shared.first() = (but, None);
    }

    /// The first write since [`Self::watch`].
    pub(super) fn first(&self) -> Option<(usize, Instant)> {
        self.shared.first().1
    }

    /// Waits for it.
    pub(super) fn wait_for_first(&self) -> Result<(usize, Instant), Failure> {
        let began = Instant::now();
        while began.elapsed() < FIRST_LIMIT {
            if let Some(first) = self.first() {
                return Ok(first);
            }
            self.sound()?;
            thread::sleep(Duration::from_millis(1));
        }
        let seconds = FIRST_LIMIT.as_secs();
        Err(Failure::new(format!("no write is answered by another member after {seconds} s")))
    }

    /// Whether everything that was read could be there.
    pub(super) fn sound(&self) -> Result<(), Failure> {
        self.fault().map_or(Ok(()), |fault| Err(Failure::new(fault)))
    }

    fn fault(&self) -> Option<String> {
        let faults = self.shared.faults();
        (!faults.is_empty()).then(|| faults.join("\n    "))
    }

    pub(super) fn counts(&self) -> Counts {
        let Shared { writes, reads, in_doubt, .. } = &*self.shared;
        let [writes, reads, in_doubt] =
            [writes, reads, in_doubt].map(|count| count.load(Ordering::SeqCst));
        Counts { writes, reads, in_doubt }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        for (orders, thread) in self.writers.drain(..) {
            drop(orders);
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn first(&self) -> std::sync::MutexGuard<'_, (usize, Option<(usize, Instant)>)> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn faults(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::SeqCst)
    }

    fn leaves(&self, member: usize) -> bool {
        self.ends() || self.former.load(Ordering::SeqCst) == member
    }

    fn answered(&self, member: usize) {
        self.writes.fetch_add(1, Ordering::SeqCst);
        let mut first = self.first();
        if first.1.is_none() && first.0 != member {
            first.1 = Some((member, Instant::now()));
        }
    }
}

struct Writer {
    number: usize,
    /// A connection, and the member at its other end.
    client: Option<(usize, Client)>,
    ledger: Ledger,
    random: Random,
    shared: Arc<Shared>,
}

impl Writer {
    fn run(mut self, orders: &Receiver<Order>) {
        let mut works = false;
        loop {
            let order = match works {
                true => match orders.try_recv() {
                    Ok(order) => Some(order),
                    Err(TryRecvError::Empty) => None,
                    Err(TryRecvError::Disconnected) => return,
                },
                false => match orders.recv() {
                    Ok(order) => Some(order),
                    Err(_) => return,
                },
            };
            if self.shared.ends() {
                return;
            }
            match order {
                Some(Order::Work) => works = true,
                Some(Order::Check(answer)) => {
                    works = false;
                    let blocks = self.check();
                    let _ = answer.send(blocks);
                }
                None => self.operate(),
            }
        }
    }

    fn operate(&mut self) {
        let settles = self.client.is_none();
        let Some(member) = self.connect() else { return };
        match (settles, self.random.below(4)) {
            // A source that does not know yet that there is another one answers reads; a write it answers not.
            (true, _) => {
                if self.write(member) {
                    for at in self.ledger.in_doubt() {
                        self.read(member, at, 1);
                    }
                }
            }
            (false, 0) => {
                let at = self.random.index(self.ledger.len());
                self.read(member, at, 1);
            }
            (false, _) => {
                self.write(member);
            }
        }
    }

    fn write(&mut self, member: usize) -> bool {
        let count = if self.random.below(5) == 0 { self.random.index(8) + 1 } else { 1 };
        let at = self.random.index(self.ledger.len() - count);
        let mut bytes = vec![0; count * BLOCK];
        for (at, bytes) in (at..).zip(bytes.chunks_mut(BLOCK)) {
            self.ledger.begin(at, member, bytes);
        }
        let (offset, shared) = (self.offset(at), Arc::clone(&self.shared));
        let Some((_, client)) = &mut self.client else { return false };
        let done = client.write(offset, &bytes, &|| shared.leaves(member));
        for at in at..at + count {
            match done {
                Ok(()) => self.ledger.answered(at, member),
                Err(_) => self.ledger.doubts(at, member),
            }
        }
        match done {
            Ok(()) => self.shared.answered(member),
            Err(trouble) => {
                self.shared.in_doubt.fetch_add(1, Ordering::SeqCst);
                self.lose(trouble);
            }
        }
        done.is_ok()
    }

    /// Reads blocks and judges them; whether there was an answer.
    fn read(&mut self, member: usize, at: usize, count: usize) -> bool {
        let mut bytes = vec![0; count * BLOCK];
        let (offset, shared) = (self.offset(at), Arc::clone(&self.shared));
        let Some((_, client)) = &mut self.client else { return false };
        if let Err(trouble) = client.read(offset, &mut bytes, &|| shared.leaves(member)) {
            self.lose(trouble);
            return false;
        }
        self.shared.reads.fetch_add(1, Ordering::SeqCst);
        for (at, found) in (at..).zip(bytes.chunks(BLOCK)) {
            if let Err(fault) = self.ledger.judge(at, member, found) {
                self.shared.faults().push(fault);
            }
        }
        true
    }

    fn check(&mut self) -> u64 {
        let (mut at, all) = (0, self.ledger.len());
        while at < all && !self.shared.ends() {
            let count = (all - at).min(CHECKED);
            if let Some(member) = self.connect()
                && self.read(member, at, count)
            {
                at += count;
            }
        }
        at as u64
    }

    // What a server that is not the source says is ESHUTDOWN; any other error is a fault of its own.
    fn lose(&mut self, trouble: Trouble) {
        if let Some((member, _)) = self.client.take()
            && let Trouble::Refused(error) = trouble
            && error != ESHUTDOWN
        {
            let fault = format!("member {member} answers a request with error {error}");
            self.shared.faults().push(fault);
        }
    }

    /// Connects to the member that is the source, unless that is done; tries them in turn.
    fn connect(&mut self) -> Option<usize> {
        let export = VOLUMES[self.number % VOLUMES.len()].0;
        if let Some((member, _)) = &self.client {
            return Some(*member);
        }
        while !self.shared.ends() {
            let first = self.shared.source.load(Ordering::SeqCst);
            let count = self.shared.sockets.len();
            for member in (first..first + count).map(|it| it % count) {
                let path = &self.shared.sockets[member];
                let Ok(mut client) = Client::connect(path, export, AGREE_LIMIT) else { continue };
                if client.flush(AGREE_LIMIT).is_ok() {
                    self.client = Some((member, client));
                    return Some(member);
                }
            }
            thread::sleep(TRY_EVERY);
        }
        None
    }

    fn offset(&self, at: usize) -> u64 {
        ((self.number / VOLUMES.len() * BLOCKS + at) * BLOCK) as u64
    }
}

/// Where nobody writes but who runs the rounds: behind the blocks of the writers.
pub(super) const FREE: u64 = (WRITERS.div_ceil(VOLUMES.len()) * BLOCKS * BLOCK) as u64;
const WRITERS: usize = 6;
/// Blocks of one writer.
const BLOCKS: usize = 512;
/// Blocks that one request reads when all are looked for.
const CHECKED: usize = 64;
pub(super) const ESHUTDOWN: u32 = 108;
/// How long a server may take to agree on an export, and to make durable what it has answered.
const AGREE_LIMIT: Duration = Duration::from_millis(250);
/// Between two rounds over the members.
const TRY_EVERY: Duration = Duration::from_millis(4);
const FIRST_LIMIT: Duration = Duration::from_secs(60);
const CHECK_LIMIT: Duration = Duration::from_secs(60);
