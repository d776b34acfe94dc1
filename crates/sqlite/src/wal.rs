//! The `-wal` file over the tail of a log.
//!
//! SQLite writes a head at offset 0 when it begins the file anew: all frames before are in the database by then, so
//! the log forgets them. In locking mode NORMAL the processes of one machine hand the log on: whoever writes owns it,
//! and the others read the file below, which has every commit before SQLite's shared memory names it:
//!
//! ```text
//!   owner, synchronous=NORMAL (no xSync)             reader of another process
//!   frames, last page of a transaction ---> committed, and in the file below
//!   shared memory: frames count          ----------> reads them in the file below
//!   lock of the writer given back
//! ```

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use logged::{Apply, Base, LocalBase, Logged, LoggedError, Members, Options, Side, SideState};

use crate::fault::Fault;
use crate::hold::{Hold, LOOK_EVERY};
use crate::params::Params;
use crate::share::Location;

/// The write-ahead log of one database, shared by all connections of this process.
#[derive(Debug)]
pub(crate) struct Wal {
    location: Location,
    members: Members,
    give_up_log: bool,
    pub(crate) fault: Fault,
    base: Mutex<Option<Arc<dyn Base>>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    owned: Option<Owned>,
    /// Connections of this process that hold the lock of the writer.
    writing: bool,
    frames: Frames,
    has_keeper: bool,
}

#[derive(Debug)]
struct Owned {
    // The file first: its log is closed before another process may open it.
    file: Logged,
    _lock: Option<std::fs::File>,
}

impl Wal {
    /// The write-ahead log of the database at `location`, which the URI gives a log.
    pub(crate) fn of(location: &Location, params: &Params) -> Option<Arc<Self>> {
        let members = params.members.clone()?;
        let mut known = lock(&KNOWN);
        let known = known.get_or_insert_default();
        known.retain(|_, wal| wal.strong_count() > 0);
        if let Some(wal) = known.get(&location.key()).and_then(Weak::upgrade) {
            return Some(wal);
        }
        let wal = Arc::new(Self {
            location: location.clone(),
            members,
            give_up_log: params.give_up_log,
            fault: Fault::new(params.fault, params.fault_stays),
            base: Mutex::default(),
            state: Mutex::default(),
        });
        known.insert(location.key(), Arc::downgrade(&wal));
        Some(wal)
    }

    /// Whether the last commits of the database are in a log.
    pub(crate) fn is_needed(location: &Location) -> Result<bool, WalError> {
        let side = match location {
            Location::Local(path) => match std::fs::File::open(Hold::beside(path).side()) {
                Ok(file) => Side::load(&LocalBase(file)).map_err(LoggedError::from)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(LoggedError::from(error).into()),
            },
            Location::Share(share) => match share.open_existing("-landfast")? {
                Some(file) => Side::load(&file).map_err(LoggedError::from)?,
                None => None,
            },
        };
        Ok(side.is_some_and(|side| side.state == SideState::InLog))
    }

    /// Opens the log, unless this process has it open. All that was committed is in the file below then.
    pub(crate) fn own(self: &Arc<Self>) -> Result<(), WalError> {
        self.owned(&mut lock(&self.state)).map(drop)
    }

    fn owned<'s>(self: &Arc<Self>, state: &'s mut State) -> Result<&'s mut Logged, WalError> {
        if state.owned.is_none() {
            state.owned = Some(self.take()?);
            if let Location::Local(path) = &self.location
                && !std::mem::replace(&mut state.has_keeper, true)
            {
                self.keep(Hold::beside(path))?;
            }
        }
        Ok(&mut state.owned.as_mut().expect("set above").file)
    }

    fn take(&self) -> Result<Owned, WalError> {
        match &self.location {
            Location::Local(path) => {
                let hold = Hold::beside(path);
                let lock = hold.take().map_err(LoggedError::from)?.ok_or(WalError::Busy)?;
                let base = self.base_anew()?;
                sync_directory_of(path).map_err(LoggedError::from)?;
                let side = LocalBase(hold.open(hold.side()).map_err(LoggedError::from)?);
                let options =
                    Options { apply: Apply::AtCommit, give_up_log: self.give_up_log, key: None };
                let file = Logged::open(base, Arc::new(side), &self.members, &options)?;
                Ok(Owned { file, _lock: Some(lock) })
            }
            // SQLite holds the database exclusively: there is no shared memory for its locks.
            Location::Share(share) => {
                let base = self.base_anew()?;
                let side = share.open("-landfast")?;
                let options =
                    Options { apply: Apply::Late, give_up_log: self.give_up_log, key: None };
                let file = Logged::open(base, Arc::new(side), &self.members, &options)?;
                Ok(Owned { file, _lock: None })
            }
        }
    }

    /// The file that has the name now: another process may have removed the one that this process used, and made it anew.
    fn base_anew(&self) -> Result<Arc<dyn Base>, WalError> {
        *lock(&self.base) = None;
        self.base()
    }

    fn base(&self) -> Result<Arc<dyn Base>, WalError> {
        let mut base = lock(&self.base);
        if let Some(base) = &*base {
            return Ok(Arc::clone(base));
        }
        let opened: Arc<dyn Base> = match &self.location {
            Location::Local(path) => {
                let wal = self.location.beside("-wal");
                let opened = Hold::beside(path).open(Path::new(&wal));
                Arc::new(LocalBase(opened.map_err(LoggedError::from)?))
            }
            Location::Share(share) => Arc::new(share.open("-wal")?),
        };
        *base = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Gives the log up between transactions when another process wants it.
    fn keep(self: &Arc<Self>, hold: Hold) -> Result<(), WalError> {
        let wal = Arc::downgrade(self);
        let keep = move || {
            loop {
                thread::sleep(LOOK_EVERY);
                if wal.strong_count() == 0 {
                    return;
                }
                // Held no longer than needed: the last connection that closes gives the log up.
                if hold.is_wanted()
                    && let Some(wal) = wal.upgrade()
                {
                    let mut state = lock(&wal.state);
                    let settled =
                        state.owned.as_ref().is_none_or(|owned| owned.file.is_committed());
                    if !state.writing && settled {
                        state.owned = None;
                        state.has_keeper = false;
                        return;
                    }
                }
            }
        };
        let spawned = thread::Builder::new().name("landfast-wal".into()).spawn(keep);
        spawned.map(drop).map_err(|error| LoggedError::from(error).into())
    }

    /// A connection has become the writer.
    pub(crate) fn begin(self: &Arc<Self>) -> Result<(), WalError> {
        let mut state = lock(&self.state);
        // A log that broke acknowledges nothing more, and the next opening has what it had acknowledged. Only between
        // transactions: one that has written a part must not go on in the log anew.
        if !state.writing && state.owned.as_ref().is_some_and(|owned| owned.file.is_broken()) {
            state.owned = None;
        }
        self.owned(&mut state)?;
        state.writing = true;
        Ok(())
    }

    /// The writer ends. What others may see is durable, whether or not SQLite asked for that.
    pub(crate) fn end(&self) -> Result<(), WalError> {
        let mut state = lock(&self.state);
        state.writing = false;
        match &mut state.owned {
            Some(owned) => Ok(owned.file.commit()?),
            None => Ok(()),
        }
    }

    pub(crate) fn read(self: &Arc<Self>, offset: u64, out: &mut [u8]) -> Result<usize, WalError> {
        let state = lock(&self.state);
        match &state.owned {
            Some(owned) => Ok(owned.file.read(offset, out)?),
            None => {
                drop(state);
                Ok(self.base()?.read(offset, out).map_err(LoggedError::from)?)
            }
        }
    }

    pub(crate) fn write(self: &Arc<Self>, offset: u64, bytes: &[u8]) -> Result<(), WalError> {
        let mut state = lock(&self.state);
        let file = self.owned(&mut state)?;
        if offset == 0 {
            return Ok(file.start_over(0, bytes)?);
        }
        file.write(offset, bytes)?;
        let mut page = [0; 4];
        file.read(PAGE_LEN_AT, &mut page)?;
        let ends = state.frames.end_transaction(offset, bytes, u32::from_be_bytes(page));
        // Without the lock nobody else is there who could read the file below: locking mode EXCLUSIVE.
        let is_shared = state.writing;
        match &mut state.owned {
            Some(owned) if ends && is_shared => Ok(owned.file.commit()?),
            _ => Ok(()),
        }
    }

    pub(crate) fn commit(&self) -> Result<(), WalError> {
        // Without the log this process has written nothing.
        match &mut lock(&self.state).owned {
            Some(owned) => Ok(owned.file.commit()?),
            None => Ok(()),
        }
    }

    pub(crate) fn set_len(self: &Arc<Self>, len: u64) -> Result<(), WalError> {
        let mut state = lock(&self.state);
        let file = self.owned(&mut state)?;
        file.set_len(len)?;
        Ok(file.commit()?)
    }

    pub(crate) fn len(&self) -> Result<u64, WalError> {
        match &lock(&self.state).owned {
            Some(owned) => Ok(owned.file.len()),
            None => Ok(self.base()?.len().map_err(LoggedError::from)?),
        }
    }

    /// SQLite deletes the file: the database has everything, and needs the log no more.
    pub(crate) fn remove(self: &Arc<Self>) -> Result<(), WalError> {
        let mut state = lock(&self.state);
        let file = self.owned(&mut state)?;
        // Whatever is left of the file after a crash says that it is empty.
        file.set_len(0)?;
        file.commit()?;
        let owned = state.owned.take().expect("owned above");
        owned.file.close()?;
        *lock(&self.base) = None;
        Ok(())
    }

    /// What a user may know.
    pub(crate) fn describe(&self) -> String {
        match &lock(&self.state).owned {
            Some(owned) => {
                let status = owned.file.status();
                let worths: Vec<String> = status
                    .log
                    .worths
                    .iter()
                    .map(|(number, worth)| format!("{number}: {worth}"))
                    .collect();
                let failed = match status.log.failed.len() {
                    0 => String::new(),
                    count => format!("; {count} members failed"),
                };
                format!("open here, members in sync {{{}}}{failed}", worths.join("; "))
            }
            None => "not open in this process now".into(),
        }
    }
}

/// Follows the writes of frames: a frame is a head of 24 bytes, which says whether it is the last of a transaction, and
/// a page. Heads alone, one after the other, are written when the sums of frames change before a transaction ends.
#[derive(Debug, Default)]
struct Frames {
    /// The last write was a head.
    was_head: bool,
    /// Where the last frame of the transaction ends.
    end: Option<u64>,
}

impl Frames {
    /// Whether a transaction is complete with this write.
    fn end_transaction(&mut self, offset: u64, bytes: &[u8], page_len: u32) -> bool {
        if bytes.len() == FRAME_HEAD_LEN {
            let ends = bytes[4..8] != [0; 4];
            let is_again = std::mem::replace(&mut self.was_head, true);
            self.end = ends.then(|| offset + FRAME_HEAD_LEN as u64 + u64::from(page_len));
            return ends && is_again;
        }
        self.was_head = false;
        let end = offset + bytes.len() as u64;
        self.end.take_if(|wanted| *wanted <= end).is_some()
    }
}

const FRAME_HEAD_LEN: usize = 24;
/// Where the head of the file has the length of a page.
const PAGE_LEN_AT: u64 = 8;

fn sync_directory_of(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    std::fs::File::open(parent.map_or_else(|| PathBuf::from("."), Path::to_owned))?.sync_all()
}

/// The write-ahead logs that are open in this process, by the names of their databases.
static KNOWN: Mutex<Option<HashMap<String, Weak<Wal>>>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a write-ahead log cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WalError {
    /// Another process of this machine has the log and does not give it up.
    #[error("another process does not give the log up")]
    Busy,
    /// The log, or the file below.
    #[error(transparent)]
    Logged(#[from] LoggedError),
    /// The share.
    #[error(transparent)]
    Share(#[from] client::ClientError),
}

impl WalError {
    /// Whether the caller should try again.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Self::Busy | Self::Logged(LoggedError::Member(log::LocalStoreError::InUse)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(ends: bool) -> [u8; FRAME_HEAD_LEN] {
        let mut head = [1; FRAME_HEAD_LEN];
        head[4..8].fill(u8::from(ends));
        head
    }

    #[test]
    fn the_log_is_taken_over_with_the_file_that_has_the_name_now() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let of = |database: &str| {
            let path = dir.path().join(database);
            let member = dir.path().join("app.log");
            let places = vec![member.to_str().unwrap().parse().unwrap()];
            let members = Members {
                places,
                len: 1 << 20,
                emulate_persistence: true,
                given_up: logged::MemberSet::default(),
            };
            let params = Params {
                members: Some(members),
                give_up_log: false,
                fault: None,
                fault_stays: false,
            };
            Wal::of(&Location::Local(path), &params).unwrap()
        };
        let give_up = |wal: &Wal| lock(&wal.state).owned = None;
        let begin = |wal: &Arc<Wal>, byte| {
            wal.write(0, &[byte; 32]).unwrap();
            wal.commit().unwrap();
        };
        // Two names of one database are as two processes.
        let (ours, theirs) = (of("app.db"), of("./app.db"));
        begin(&ours, 1);
        give_up(&ours);
        begin(&theirs, 2);
        theirs.remove().unwrap();
        let name = dir.path().join("app.db-wal");
        std::fs::remove_file(&name).unwrap();
        begin(&theirs, 3);
        give_up(&theirs);
        ours.write(32, &[4; 24]).unwrap();
        ours.commit().unwrap();
        assert_eq!(std::fs::read(&name).unwrap(), [[3; 32].as_slice(), &[4; 24]].concat());
    }

    #[test]
    fn a_transaction_is_complete_with_the_last_page_or_the_last_sum() {
        let mut frames = Frames::default();
        let mut write = |offset, bytes: &[u8]| frames.end_transaction(offset, bytes, 512);
        assert!(!write(32, &head(false)));
        assert!(!write(56, &[7; 512]));
        assert!(!write(568, &head(true)));
        assert!(write(592, &[7; 512]));
        // A page in two pieces, as at the end of a sector.
        assert!(!write(1104, &head(true)));
        assert!(!write(1128, &[7; 500]));
        assert!(write(1628, &[7; 12]));
        // Sums that change: the pages are there.
        assert!(!write(568, &head(false)));
        assert!(write(1104, &head(true)));
        // A new transaction in the same place.
        assert!(!write(32, &head(false)));
        assert!(!write(56, &[7; 512]));
    }
}
