//! One client: it knows every byte of a directory of its own, and visits the directories of other
//! clients.
//!
//! Every request goes through [`Client::ask`], which at random ends the connection while the request
//! is in flight: the connection is cut, or stays open and silent for good, as with a network cable
//! that was pulled. If the session has another connection, the request goes on over that. The client
//! finds out the result of an unanswered request as an application would: it logs on in the place of
//! its earlier session, reclaims durable opens, sends CREATE and LOCK again, and reads the rest. From
//! then on no earlier request takes effect any more: the files are as the client saw them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use smb::create::{CreateAction, CreateDisposition, LeaseState, OplockLevel};
use smb::{Command, CreateResponse, FileId, HeaderFlags, NtStatus};

use crate::ask::{Body, Kind, Wish};
use crate::channels::Channels;
use crate::link::Lost;
use crate::names;
use crate::public::{Public, Range};
use crate::random::Random;
use crate::wire::Machine;
use crate::worlds::{Change, Tree, Worlds};

/// An open that a client keeps between steps.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    pub(crate) id: FileId,
    pub(crate) wish: Wish,
    pub(crate) locks: Vec<Range>,
    /// LOCK requests sent so far.
    pub(crate) requests: u32,
}

impl Handle {
    /// The locks that other clients find taken whatever happens to the connection and the server:
    /// this client learns of the end of either later than others may.
    pub(crate) fn certain_locks(&self) -> Vec<Range> {
        if self.wish.kind == Kind::Persistent { self.locks.clone() } else { Vec::new() }
    }

    /// The lock sequence of the next request: bucket and number.
    pub(crate) fn next_sequence(&mut self) -> u32 {
        self.requests += 1;
        ((self.requests % 64 + 1) << 4) | (self.requests / 64 % 16)
    }
}

/// Counters of the steps and their outcomes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) changes: u64,
    pub(crate) cuts: u64,
    pub(crate) losses: u64,
    pub(crate) back_durable: u64,
    pub(crate) back_persistent: u64,
    pub(crate) back_locks: u64,
    pub(crate) given_up: u64,
    pub(crate) replays: u64,
    pub(crate) breaks: u64,
    pub(crate) compared: u64,
    pub(crate) locked_out: u64,
    pub(crate) moved_directories: u64,
    pub(crate) channels: u64,
    pub(crate) channels_cut: u64,
    pub(crate) repeated: u64,
    /// Connections over SMB Direct.
    pub(crate) direct: u64,
    /// READs and WRITEs whose data went by RDMA.
    pub(crate) by_rdma: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.changes += other.changes;
        self.cuts += other.cuts;
        self.losses += other.losses;
        self.back_durable += other.back_durable;
        self.back_persistent += other.back_persistent;
        self.back_locks += other.back_locks;
        self.given_up += other.given_up;
        self.replays += other.replays;
        self.breaks += other.breaks;
        self.compared += other.compared;
        self.locked_out += other.locked_out;
        self.moved_directories += other.moved_directories;
        self.channels += other.channels;
        self.channels_cut += other.channels_cut;
        self.repeated += other.repeated;
        self.direct += other.direct;
        self.by_rdma += other.by_rdma;
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Client<'a> {
    pub(crate) number: usize,
    pub(crate) clients: usize,
    pub(crate) random: Random,
    pub(crate) public: &'a Public,
    pub(crate) counts: Counts,
    /// Violations that the client found.
    pub(crate) faults: Vec<String>,
    /// The last steps of the client, with their times.
    history: VecDeque<String>,
    pub(crate) worlds: Worlds,
    pub(crate) handles: BTreeMap<String, Handle>,
    /// Files that are removed when a lost connection ends, or that are removed already.
    pub(crate) dying: BTreeSet<String>,
    /// A rename that was not answered.
    pub(crate) moving: Option<(String, String)>,
    /// A CREATE that was not answered.
    pub(crate) opening: Option<Wish>,
    /// A CLOSE that was not answered.
    pub(crate) closing: Option<String>,
    /// A LOCK that was not answered: its handle, its sequence, the range, take or release.
    pub(crate) locking: Option<(String, u32, Range, bool)>,
    /// The file that could not be looked at last, and the status.
    pub(crate) in_the_way: Option<(String, NtStatus)>,
    /// Connections are cut on purpose.
    pub(crate) cuts: bool,
    pub(crate) machine: Machine<'a>,
    /// The session of the latest requests.
    pub(crate) session: u64,
    pub(crate) channels: Channels,
}

impl<'a> Client<'a> {
    pub(crate) fn new(
        number: usize,
        clients: usize,
        random: Random,
        machine: Machine<'a>,
        public: &'a Public,
    ) -> Self {
        Self {
            number,
            clients,
            random,
            public,
            counts: Counts::default(),
            faults: Vec::new(),
            history: VecDeque::new(),
            worlds: Worlds::new(),
            handles: BTreeMap::new(),
            dying: BTreeSet::new(),
            moving: None,
            opening: None,
            closing: None,
            locking: None,
            in_the_way: None,
            cuts: true,
            machine,
            session: 0,
            channels: Channels::default(),
        }
    }

    /// Works until `end`, then closes and releases everything. Returns the content of its
    /// directory.
    pub(crate) fn run(mut self, end: Instant) -> (Self, Tree) {
        let mut goes_on = self.recover();
        while goes_on && Instant::now() < end && self.faults.len() < FAULTS_MAX {
            if let Err(lost) = self.step() {
                goes_on = self.lost(lost) && self.recover();
            }
        }
        self.cuts = false;
        while goes_on {
            match self.finish() {
                Ok(()) => break,
                Err(lost) => goes_on = self.lost(lost) && self.recover(),
            }
        }
        let tree = self.worlds.tree().clone();
        (self, tree)
    }

    /// Records a step, for the analysis of a violation.
    pub(crate) fn note(&mut self, what: fmt::Arguments<'_>) {
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        let at = self.machine.place.began.elapsed().as_micros();
        self.history.push_back(format!("{at:>12} {what}"));
    }

    /// A request was refused: a fault, but on a disk that may be full, where nothing has happened then.
    pub(crate) fn refused(&mut self, status: NtStatus, what: impl fmt::Display) {
        if !(self.machine.place.full && status == NtStatus::DISK_FULL) {
            self.fault(what);
        }
    }

    pub(crate) fn fault(&mut self, what: impl fmt::Display) {
        for done in self.history.drain(..) {
            eprintln!("  client {} {done}", self.number);
        }
        let fault = format!("client {}: {what}", self.number);
        eprintln!("FAULT {fault}");
        self.faults.push(fault);
    }

    /// A file, drawn at random.
    pub(crate) fn some_file(&mut self) -> String {
        self.random.pick_of(names::files(self.number))
    }

    /// A file or a stream, drawn at random.
    pub(crate) fn some_path(&mut self) -> String {
        let file = self.some_file();
        if self.has_streams() && self.random.one_in(4) { names::stream(&file) } else { file }
    }

    pub(crate) fn has_streams(&self) -> bool {
        self.machine.place.streams
    }

    /// Whether the directory of a path exists.
    pub(crate) fn has_parent(&self, path: &str) -> bool {
        names::parent(path).is_none_or(|parent| self.worlds.tree().contains_key(parent))
    }

    /// The paths that a change of these paths may affect.
    pub(crate) fn reached(&self, by: &[&str]) -> Vec<String> {
        let mut all = names::contents(self.number);
        all.retain(|path| {
            by.iter().any(|by| names::goes_with(by, path) || names::goes_with(path, by))
        });
        all
    }

    pub(crate) fn some_handle(&mut self) -> Option<(String, Handle)> {
        let at = self.random.below(self.handles.len().max(1));
        self.handles.iter().nth(at).map(|(path, handle)| (path.clone(), handle.clone()))
    }

    /// Sends a change of files, and applies it to the worlds.
    pub(crate) fn change(
        &mut self,
        change: &Change,
        command: Command,
        body: &Body<'_>,
    ) -> Result<NtStatus, Lost> {
        let paths = match change {
            Change::Rename { from, to } => self.reached(&[from, to]),
            Change::Write { path, .. } | Change::Resize { path, .. } => vec![path.clone()],
            Change::Empty { path } | Change::Remove { path } | Change::MakeDirectory { path } => {
                self.reached(&[path])
            }
        };
        self.hide(&paths);
        self.note(format_args!("{change}"));
        let repeated = self.counts.repeated;
        match self.ask_body(command, HeaderFlags::empty(), body) {
            Ok((header, _)) => {
                if header.status == NtStatus::SUCCESS {
                    self.counts.changes += 1;
                    self.worlds.apply(change);
                } else if self.counts.repeated > repeated {
                    // A visitor may have come in between: the server may have carried out the first copy and
                    // refused the second.
                    self.worlds.may_have(change);
                    self.settle()?;
                }
                self.publish(&paths);
                Ok(header.status)
            }
            Err(lost) => {
                self.worlds.may_have(change);
                Err(lost)
            }
        }
    }

    pub(crate) fn hide(&self, paths: &[String]) {
        for path in paths {
            self.public.change(path, |known| known.content = None);
        }
    }

    pub(crate) fn publish(&self, paths: &[String]) {
        for path in paths {
            let content = self.worlds.tree().get(path).cloned().map(Arc::new);
            let locks = self.handles.get(path).map(Handle::certain_locks);
            self.public.change(path, |known| {
                known.content = content;
                known.locks = locks.unwrap_or_default();
            });
        }
    }

    /// Sends the CREATE of a wish, and handles the answer.
    pub(crate) fn open(&mut self, wish: &Wish, again: bool) -> Result<NtStatus, Lost> {
        let flags = if again { HeaderFlags::REPLAY } else { HeaderFlags::empty() };
        let exists = self.worlds.tree().contains_key(&wish.path);
        let expected = match self.has_parent(&wish.path) {
            true => expected(wish.disposition, exists),
            false => Err(NtStatus::OBJECT_PATH_NOT_FOUND),
        };
        let paths = self.reached(&[&wish.path]);
        self.hide(&paths);
        self.opening = Some(wish.clone());
        self.note(format_args!("{wish:?}, again: {again}"));
        let request = wish.request();
        // The server knows no copy of a CREATE that is not durable.
        let repeats = wish.kind == Kind::Persistent && !names::is_stream(&wish.path);
        let body = Body::of(|out| request.emit(out));
        let asked = self.ask_repeatedly(Command::CREATE, flags, repeats, &body);
        let (header, pdu) = match asked {
            Ok(answer) => answer,
            Err(lost) => {
                if !again && expected.is_ok_and(|action| action != CreateAction::OPENED) {
                    self.worlds.may_have(&Change::Empty { path: wish.path.clone() });
                }
                return Err(lost);
            }
        };
        self.opening = None;
        if header.status != NtStatus::SUCCESS {
            let is_expected = again || expected == Err(header.status);
            if !is_expected && !MAY_REFUSE.contains(&header.status) {
                let what = format!("{wish:?}: {:?}, {expected:?} expected", header.status);
                self.refused(header.status, what);
            }
            if !again {
                self.publish(&paths);
            }
            return Ok(header.status);
        }
        let Ok(response) = CreateResponse::parse(&pdu) else {
            self.fault("an answer to CREATE that cannot be read");
            return Ok(header.status);
        };
        if !again && expected != Ok(response.action) {
            self.fault(format!("{wish:?}: {:?}, {expected:?} expected", response.action));
        }
        if response.action != CreateAction::OPENED {
            self.counts.changes += 1;
            self.worlds.apply(&Change::Empty { path: wish.path.clone() });
        }
        let granted = crate::recovery::granted(&response);
        // Streams do not outlive their connection.
        let is_kept = wish.kind == Kind::Persistent && !names::is_stream(&wish.path);
        if is_kept && granted != Kind::Persistent {
            self.fault(format!("{wish:?} is {granted:?}"));
        }
        let wish = Wish { kind: granted, ..wish.clone() };
        let handle = Handle { id: response.file_id, wish, locks: Vec::new(), requests: 0 };
        self.handles.insert(handle.wish.path.clone(), handle);
        if !again {
            self.publish(&paths);
        }
        Ok(header.status)
    }

    /// A new wish for a path.
    pub(crate) fn wish(&mut self, path: String) -> Wish {
        let kinds = [Kind::Plain, Kind::Durable, Kind::Persistent, Kind::Persistent];
        let (read, write, handle) = (LeaseState::READ, LeaseState::WRITE, LeaseState::HANDLE);
        let states = [read | write | handle, read | handle, read];
        let lease = self.random.one_in(2).then(|| (self.random.guid(), self.random.pick(&states)));
        let oplocks = [OplockLevel::BATCH, OplockLevel::EXCLUSIVE, OplockLevel::NONE];
        Wish {
            path,
            disposition: self.random.pick(&DISPOSITIONS),
            kind: self.random.pick(&kinds),
            guid: self.random.guid(),
            oplock: if lease.is_some() { OplockLevel::LEASE } else { self.random.pick(&oplocks) },
            lease,
        }
    }

    /// Closes the open streams of a file.
    pub(crate) fn close_streams(&mut self, file: &str) -> Result<(), Lost> {
        if names::is_stream(file) { Ok(()) } else { self.close(&names::stream(file)) }
    }

    fn finish(&mut self) -> Result<(), Lost> {
        while let Some(path) = self.handles.keys().next().cloned() {
            self.close(&path)?;
        }
        self.settle()?;
        self.log_off()
    }
}

/// The action that a CREATE must report, or the status that it must fail with.
fn expected(disposition: CreateDisposition, exists: bool) -> Result<CreateAction, NtStatus> {
    use CreateDisposition as D;
    match (disposition, exists) {
        (D::OPEN | D::OPEN_IF, true) => Ok(CreateAction::OPENED),
        (D::OPEN | D::OVERWRITE, false) => Err(NtStatus::OBJECT_NAME_NOT_FOUND),
        (D::CREATE, true) => Err(NtStatus::OBJECT_NAME_COLLISION),
        (D::OVERWRITE | D::OVERWRITE_IF, true) => Ok(CreateAction::OVERWRITTEN),
        (D::SUPERSEDE, true) => Ok(CreateAction::SUPERSEDED),
        _ => Ok(CreateAction::CREATED),
    }
}

const DISPOSITIONS: [CreateDisposition; 8] = [
    CreateDisposition::OPEN_IF,
    CreateDisposition::OPEN_IF,
    CreateDisposition::OPEN_IF,
    CreateDisposition::OPEN,
    CreateDisposition::CREATE,
    CreateDisposition::OVERWRITE,
    CreateDisposition::OVERWRITE_IF,
    CreateDisposition::SUPERSEDE,
];
/// Enough steps to show a file from one look to the next.
const HISTORY: usize = 400;
/// The statuses of a refusal for which a visitor may be the cause.
const MAY_REFUSE: [NtStatus; 2] = [NtStatus::SHARING_VIOLATION, NtStatus::FILE_LOCK_CONFLICT];
/// Further violations are most likely consequences of these.
const FAULTS_MAX: usize = 3;
