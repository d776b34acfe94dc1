//! The records of the log, and the opens that result from reading all of them.
//!
//! ```text
//!  record    0         4            12      13
//!            +---------+------------+-------+-----------------------------------------+
//!            | length  | FNV-1a of  | kind  | opened: see `OpenNote`                  |
//!            | of kind | kind and   |       | moved: serial u64, path                 |
//!            | + body  | body       |       | closed: serial u64                      |
//!            |         |            |       | locks: serial u64, sequence u32, then   |
//!            |         |            |       |   offset u64, length u64, change u8 ... |
//!            |         |            |       | wish: serial u64, 1 on close + 2 of the name u8 |
//!            |         |            |       | boot: id of 16 bytes, of what follows   |
//!            |         |            |       | doubt: serial u64, its lease was broken |
//!            +---------+------------+-------+-----------------------------------------+
//! ```
//!
//! Little endian. The body of `opened` ends with the path in logs of servers that did not record which file of an inode
//! number was open, otherwise with the file's identity: 29 bytes, see `FileIdentity`. Behind that comes, where an instance of an
//! application has opened the file, which: 33 bytes, see `InstanceNote`. An older server ignores it. In `opened` the flavor of a server that
//! records broken leases has bit 7 set. Without it nobody knows what became of the lease: it is read as one of which nothing is held.

use std::collections::BTreeMap;
use std::io;

use crate::FileIdentity;

/// The facts that restore an open.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OpenNote {
    /// The boot of the machine in which it was opened; none in a log of an older server.
    pub boot: Option<BootId>,
    /// Its persistent id.
    pub serial: u64,
    /// The inode to which the path must lead.
    pub inode: u64,
    /// Distinguishes the file from a later one with the same inode number; none in a log of an older server.
    pub identity: Option<FileIdentity>,
    /// Access granted.
    pub access: u32,
    /// Options as FileModeInformation reports them.
    pub mode: u32,
    /// The action of its CREATE.
    pub action: u32,
    /// The time that its client has to reconnect, in milliseconds.
    pub timeout_ms: u32,
    /// Bits: uses read, write, delete; shares read, write, delete; write through; delete on close.
    pub flags: u8,
    /// 0 nothing or an oplock, 1 lease, 2 lease of version 2.
    pub flavor: u8,
    /// Caching granted.
    pub held: u8,
    /// Epoch of its lease.
    pub epoch: u16,
    /// Key of its lease.
    pub lease_key: [u8; 16],
    /// GUID of the client.
    pub client: [u8; 16],
    /// GUID of its CREATE.
    pub create_guid: [u8; 16],
    /// The user of the open.
    pub user: String,
    /// Path below the share, with slashes.
    pub path: String,
    /// The former path of the file, which is its present one if a rename was recorded and not done.
    pub earlier: Option<String>,
    /// Byte-range locks held, in the order they were taken.
    pub locks: Vec<LockNote>,
    /// The file's name is to be removed with the last open by that name.
    pub delete_pending: bool,
    /// The last LOCK request of each bucket of the open's lock sequence.
    pub sequences: BTreeMap<u32, u32>,
    /// The instance of an application that has opened the file; none in a log of an older server. Recorded only with the
    /// identity.
    pub instance: Option<InstanceNote>,
}

/// An instance of an application, which takes its files with it when it comes up on another machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InstanceNote {
    /// Names the application.
    pub id: [u8; 16],
    /// A later version, high and low part, wins over an earlier one.
    pub version: Option<(u64, u64)>,
}

impl InstanceNote {
    fn emit(&self, out: &mut Vec<u8>) {
        let (high, low) = self.version.unwrap_or_default();
        out.push(u8::from(self.version.is_some()));
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&high.to_le_bytes());
        out.extend_from_slice(&low.to_le_bytes());
    }

    fn parse(body: &mut &[u8]) -> Option<Self> {
        let [known] = take(body)?;
        let id = take(body)?;
        let version = (take_u64(body)?, take_u64(body)?);
        Some(Self { id, version: (known & 1 != 0).then_some(version) })
    }
}

/// One boot of the machine: written bytes that are not durable outlive the server, but not the boot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BootId(pub [u8; 16]);

impl BootId {
    /// The present boot of the machine.
    pub fn current() -> io::Result<Self> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let digits: String = text.trim().split('-').collect();
        let id = u128::from_str_radix(&digits, 16).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(Self(id.to_be_bytes()))
    }
}

/// A byte range that is locked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LockNote {
    /// Its first byte.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
    /// No other open may read the range either.
    pub exclusive: bool,
}

/// The change of one element of a LOCK request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LockChange {
    /// A lock was taken.
    Lock(LockNote),
    /// A lock was released.
    Unlock {
        /// Its first byte.
        offset: u64,
        /// Its bytes.
        length: u64,
    },
}

/// A request to delete, in the state of an open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WishNote {
    /// The file is deleted when this open ends.
    pub on_close: bool,
    /// The file's name is removed with the last open by it.
    pub of_name: bool,
}

impl OpenNote {
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        for value in [self.serial, self.inode] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        for value in [self.access, self.mode, self.action, self.timeout_ms] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&[self.flags, self.flavor | DOUBTS_FOLLOW, self.held]);
        out.extend_from_slice(&self.epoch.to_le_bytes());
        for guid in [self.lease_key, self.client, self.create_guid] {
            out.extend_from_slice(&guid);
        }
        put_text(out, &self.user);
        put_text(out, &self.path);
        if let Some(identity) = &self.identity {
            identity.emit(out);
            if let Some(instance) = &self.instance {
                instance.emit(out);
            }
        }
    }

    fn parse(body: &mut &[u8]) -> Option<Self> {
        let (serial, inode) = (take_u64(body)?, take_u64(body)?);
        let mut word = || Some(u32::from_le_bytes(take(body)?));
        let (access, mode, action, timeout_ms) = (word()?, word()?, word()?, word()?);
        let [flags, flavor, held] = take(body)?;
        let epoch = u16::from_le_bytes(take(body)?);
        let mut note = Self {
            boot: None,
            serial,
            inode,
            access,
            mode,
            action,
            timeout_ms,
            flags,
            flavor: flavor & !DOUBTS_FOLLOW,
            held,
            epoch,
            lease_key: take(body)?,
            client: take(body)?,
            create_guid: take(body)?,
            user: take_text(body)?,
            path: take_text(body)?,
            identity: FileIdentity::parse(body),
            earlier: None,
            locks: Vec::new(),
            delete_pending: false,
            sequences: BTreeMap::new(),
            instance: InstanceNote::parse(body),
        };
        if flavor & DOUBTS_FOLLOW == 0 {
            note.doubt();
        }
        Some(note)
    }

    /// The lease was broken: nothing of it comes back, and its epoch says that something has changed.
    pub(super) fn doubt(&mut self) {
        if self.held != 0 {
            self.held = 0;
            self.epoch = self.epoch.wrapping_add(1);
        }
    }

    pub(super) fn rename(&mut self, path: &str) {
        self.earlier = Some(std::mem::replace(&mut self.path, path.to_owned()));
    }

    pub(super) fn wish(&mut self, wish: WishNote) {
        self.flags =
            self.flags & !DELETE_ON_CLOSE | if wish.on_close { DELETE_ON_CLOSE } else { 0 };
        self.delete_pending = wish.of_name;
    }

    pub(super) fn wished(&self) -> WishNote {
        WishNote { on_close: self.flags & DELETE_ON_CLOSE != 0, of_name: self.delete_pending }
    }

    pub(super) fn change_locks(&mut self, sequence: u32, changes: &[LockChange]) {
        if BUCKETS.contains(&(sequence >> 4)) {
            self.sequences.insert(sequence >> 4, sequence);
        }
        for change in changes {
            match *change {
                LockChange::Lock(lock) => self.locks.push(lock),
                LockChange::Unlock { offset, length } => {
                    let is_it = |lock: &LockNote| (lock.offset, lock.length) == (offset, length);
                    if let Some(at) = self.locks.iter().position(is_it) {
                        self.locks.remove(at);
                    }
                }
            }
        }
    }

    // The minimal records that lead to this note.
    pub(super) fn records(&self) -> Vec<Vec<u8>> {
        let first = self.earlier.clone().unwrap_or_else(|| self.path.clone());
        let opened = Self { path: first, ..self.clone() };
        let mut records = vec![record(OPENED, |out| opened.emit(out))];
        if self.earlier.is_some() {
            records.push(moved(self.serial, &self.path));
        }
        if self.delete_pending {
            records.push(wished(self.serial, self.wished()));
        }
        if !self.locks.is_empty() {
            let all: Vec<_> = self.locks.iter().copied().map(LockChange::Lock).collect();
            records.push(locked(self.serial, 0, &all));
        }
        records.extend(self.sequences.values().map(|&done| locked(self.serial, done, &[])));
        records
    }
}

pub(super) fn booted(boot: BootId) -> Vec<u8> {
    record(BOOT, |out| out.extend_from_slice(&boot.0))
}

pub(super) fn moved(serial: u64, path: &str) -> Vec<u8> {
    record(MOVED, |out| {
        out.extend_from_slice(&serial.to_le_bytes());
        put_text(out, path);
    })
}

pub(super) fn wished(serial: u64, wish: WishNote) -> Vec<u8> {
    record(WISH, |out| {
        out.extend_from_slice(&serial.to_le_bytes());
        out.push(u8::from(wish.on_close) | u8::from(wish.of_name) << 1);
    })
}

pub(super) fn doubted(serial: u64) -> Vec<u8> {
    record(DOUBT, |out| out.extend_from_slice(&serial.to_le_bytes()))
}

pub(super) fn locked(serial: u64, sequence: u32, changes: &[LockChange]) -> Vec<u8> {
    record(LOCKS, |out| {
        out.extend_from_slice(&serial.to_le_bytes());
        out.extend_from_slice(&sequence.to_le_bytes());
        for change in changes {
            let (offset, length, kind) = match *change {
                LockChange::Lock(lock) => {
                    (lock.offset, lock.length, if lock.exclusive { EXCLUSIVE } else { SHARED })
                }
                LockChange::Unlock { offset, length } => (offset, length, UNLOCK),
            };
            out.extend_from_slice(&offset.to_le_bytes());
            out.extend_from_slice(&length.to_le_bytes());
            out.push(kind);
        }
    })
}

fn parse_changes(body: &mut &[u8]) -> Option<Vec<LockChange>> {
    let mut changes = Vec::with_capacity(body.len() / 17);
    while !body.is_empty() {
        let (offset, length) = (take_u64(body)?, take_u64(body)?);
        changes.push(match take(body)? {
            [UNLOCK] => LockChange::Unlock { offset, length },
            [kind @ (SHARED | EXCLUSIVE)] => {
                LockChange::Lock(LockNote { offset, length, exclusive: kind == EXCLUSIVE })
            }
            _ => return None,
        });
    }
    Some(changes)
}

pub(super) fn record(kind: u8, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![0; HEAD];
    out.push(kind);
    body(&mut out);
    let len = u32::try_from(out.len() - HEAD).expect("a path and a name");
    let sum = fnv(&out[HEAD..]);
    out[..4].copy_from_slice(&len.to_le_bytes());
    out[4..HEAD].copy_from_slice(&sum.to_le_bytes());
    out
}

/// Reads records until one is incomplete, and returns the resulting opens. Accepts every input.
pub fn replay(mut bytes: &[u8]) -> BTreeMap<u64, OpenNote> {
    let mut live = BTreeMap::new();
    let mut boot = None;
    while let Some((kind, mut body)) = next(&mut bytes) {
        match kind {
            OPENED => match OpenNote::parse(&mut body) {
                Some(note) if live.len() < OPENS_MAX => {
                    live.insert(note.serial, OpenNote { boot, ..note });
                }
                _ => break,
            },
            MOVED => {
                let (Some(serial), Some(path)) = (take_u64(&mut body), take_text(&mut body)) else {
                    break;
                };
                if let Some(note) = live.get_mut(&serial) {
                    note.rename(&path);
                }
            }
            LOCKS => {
                let (Some(serial), Some(sequence)) = (take_u64(&mut body), take(&mut body)) else {
                    break;
                };
                let Some(changes) = parse_changes(&mut body) else { break };
                if let Some(note) = live.get_mut(&serial) {
                    note.change_locks(u32::from_le_bytes(sequence), &changes);
                }
            }
            WISH => {
                let (Some(serial), Some([wish])) = (take_u64(&mut body), take(&mut body)) else {
                    break;
                };
                if let Some(note) = live.get_mut(&serial) {
                    note.wish(WishNote { on_close: wish & 1 != 0, of_name: wish & 2 != 0 });
                }
            }
            DOUBT => {
                let Some(serial) = take_u64(&mut body) else { break };
                if let Some(note) = live.get_mut(&serial) {
                    note.doubt();
                }
            }
            BOOT => {
                let Some(id) = take(&mut body) else { break };
                boot = Some(BootId(id));
            }
            CLOSED => {
                let Some(serial) = take_u64(&mut body) else { break };
                live.remove(&serial);
            }
            _ => break,
        }
    }
    live
}

/// A log of these opens, without its magic. Opens of no known boot come first.
pub fn records<'a>(notes: impl Iterator<Item = &'a OpenNote>) -> Vec<u8> {
    let mut notes: Vec<_> = notes.collect();
    notes.sort_by_key(|note| note.boot.map(|boot| boot.0));
    let mut out = Vec::new();
    let mut boot = None;
    for note in notes {
        if note.boot != boot {
            boot = note.boot;
            out.extend(boot.map(booted).unwrap_or_default());
        }
        out.extend(note.records().into_iter().flatten());
    }
    out
}

fn next<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let len = usize::try_from(u32::from_le_bytes(take(bytes)?)).ok()?;
    let sum = take_u64(bytes)?;
    let whole = bytes.get(..len)?;
    *bytes = &bytes[len..];
    let (kind, body) = whole.split_first()?;
    (fnv(whole) == sum).then_some((*kind, body))
}

// Against torn writes, not against attackers.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let len = u32::try_from(text.len()).expect("paths and names are far below 4 GiB");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn take_text(bytes: &mut &[u8]) -> Option<String> {
    let len = usize::try_from(u32::from_le_bytes(take(bytes)?)).ok()?;
    let text = bytes.get(..len)?;
    *bytes = &bytes[len..];
    String::from_utf8(text.to_vec()).ok()
}

fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    take(bytes).map(u64::from_le_bytes)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

const HEAD: usize = 12;
pub(super) const OPENED: u8 = 1;
const MOVED: u8 = 2;
pub(super) const CLOSED: u8 = 3;
const LOCKS: u8 = 4;
const BOOT: u8 = 5;
const WISH: u8 = 6;
const DOUBT: u8 = 7;
/// Among the flavors of an open: breaks of its lease are recorded.
const DOUBTS_FOLLOW: u8 = 1 << 7;
/// Delete on close, among the flags of an open.
pub const DELETE_ON_CLOSE: u8 = 1 << 7;
/// The change of an element of a record of locks.
const SHARED: u8 = 0;
const EXCLUSIVE: u8 = 1;
const UNLOCK: u8 = 2;
/// Buckets of an open's lock sequence: MS-SMB2 §2.2.26.
const BUCKETS: std::ops::RangeInclusive<u32> = 1..=64;
/// Persistent opens of one share.
pub(super) const OPENS_MAX: usize = 65_536;
