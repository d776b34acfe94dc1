//! What clients do to the bytes of a file that others cache or have locked.

use smb::create::AccessMask;
use smb::fsctl::{CopyChunk, CopyChunkRequest, FileLevelTrim, FileRange, ResumeKey, ZeroData};
use smb::info::{Allocation, Disposition, EndOfFile, FileInfoClass};
use smb::{Command, ControlCode, IoctlResponse, LockElement, LockFlags, LockRequest, NtStatus};

use crate::actor::{Actor, Held, LENGTH_MAX, LOCKED};
use crate::books::Lock;
use crate::support::{control, write};

impl Actor<'_> {
    /// One thing of those that clients do.
    pub(crate) fn step(&mut self) {
        let kind = self.random.below(24);
        if self.opens.is_empty() || (kind < 7 && self.opens.len() < OPENS_MAX) {
            return self.open();
        }
        let at = self.random.below(self.opens.len());
        match kind {
            0..9 => self.close(at),
            9 => self.name_anew(at),
            10 => self.wish(at),
            11 => drop(self.look_at_name(at)),
            12..14 => match self.cached_keys() {
                keys if keys.is_empty() => {}
                keys => {
                    let key = self.random.pick(&keys);
                    self.link.fence(&mut self.cached);
                    self.look_at_cache(key);
                }
            },
            14..17 => self.lock_or_unlock(at),
            _ if !self.opens[at].access.contains(AccessMask::WRITE_DATA) => {}
            kind => {
                self.change(at, |actor, open| actor.change_bytes(kind, open));
                self.read_locked_again(at);
            }
        }
    }

    fn change_bytes(&mut self, kind: usize, open: &Held) {
        let (offset, length) = (512 * self.random.below(16), 1 + self.random.below(4096));
        let begin = u64::try_from(offset).unwrap();
        let end = begin + u64::try_from(length).unwrap();
        let (what, status) = match kind {
            17..20 => {
                let bytes = self.random.bytes(length);
                let write = write(open.id, begin, &bytes);
                ("write", self.ask(Command::WRITE, |out| write.emit(out)).0)
            }
            20 if open.name == LOCKED => return,
            20 => {
                let mut buffer = Vec::new();
                let class = if self.random.one_in(2) {
                    EndOfFile { end_of_file: end }.emit(&mut buffer);
                    FileInfoClass::END_OF_FILE
                } else {
                    Allocation { allocation_size: end }.emit(&mut buffer);
                    FileInfoClass::ALLOCATION
                };
                ("size", self.set(open, class, &buffer))
            }
            21 => {
                let mut input = Vec::new();
                ZeroData { offset: begin, end }.emit(&mut input);
                ("zero", self.control(open, ControlCode::SET_ZERO_DATA, &input).0)
            }
            22 => {
                let ranges = vec![FileRange { offset: begin, length: end - begin }];
                let mut input = Vec::new();
                FileLevelTrim { key: 0, ranges }.emit(&mut input);
                ("trim", self.control(open, ControlCode::FILE_LEVEL_TRIM, &input).0)
            }
            _ => ("copy", self.copy(open, begin, length)),
        };
        self.note(&format!("{what} {} {:?} {begin}..{end}: {status}", open.name, open.body));
    }

    fn copy(&mut self, open: &Held, target_offset: u64, length: usize) -> NtStatus {
        let (status, key) = self.control(open, ControlCode::SRV_REQUEST_RESUME_KEY, &[]);
        if status.is_error() {
            return status;
        }
        let source = ResumeKey::parse(&key).expect("a resume key");
        let length = u32::try_from(length).unwrap();
        let chunks = vec![CopyChunk { source_offset: 0, target_offset, length }];
        let mut input = Vec::new();
        CopyChunkRequest { source, chunks }.emit(&mut input);
        self.control(open, ControlCode::SRV_COPYCHUNK, &input).0
    }

    fn control(&mut self, open: &Held, code: ControlCode, input: &[u8]) -> (NtStatus, Vec<u8>) {
        let request = control(open.id, code, input);
        let (status, pdu) = self.ask(Command::IOCTL, |out| request.emit(out));
        let output = IoctlResponse::parse(&pdu).map(|response| response.output.to_vec());
        (status, output.unwrap_or_default())
    }

    // Asks for the deletion, or takes that back.
    fn wish(&mut self, at: usize) {
        let open = self.opens[at].clone();
        if !open.access.contains(AccessMask::DELETE) {
            return;
        }
        let delete = !self.random.one_in(3);
        let mut buffer = Vec::new();
        Disposition { delete }.emit(&mut buffer);
        let status = self.set(&open, FileInfoClass::DISPOSITION, &buffer);
        self.note(&format!("delete {} {:?} {delete}: {status}", open.name, open.body));
    }

    // Gives back a lock that is held, or takes one.
    fn lock_or_unlock(&mut self, at: usize) {
        let open = self.opens[at].clone();
        if !open.access.contains(AccessMask::READ_DATA | AccessMask::WRITE_DATA) {
            return;
        }
        let asks_for_too_much = self.random.one_in(2);
        if let Some((begin, bytes)) = open.locked.last().filter(|_| asks_for_too_much) {
            // Others try to lock the range from now on.
            return self.ask_for_too_much(&open, *begin, bytes);
        }
        if let Some((begin, bytes)) = self.opens[at].locked.pop() {
            self.look_at_locked(&open, begin, &bytes);
            let end = begin + u64::try_from(bytes.len()).unwrap();
            self.cached.books().unlock(self.cached.client, open.id, begin, end);
            let status = self.lock(&open, begin, end, LockFlags::UNLOCK);
            self.note(&format!("unlock {} {begin}..{end}: {status}", open.name));
            if status.is_error() {
                self.fault(&format!("a lock that was granted is not given back: {status}"));
            }
            return;
        }
        let begin = u64::try_from(512 * self.random.below(16)).unwrap();
        let end = begin + u64::try_from(1 + self.random.below(2048)).unwrap();
        let is_exclusive = self.random.one_in(2);
        let kind = if is_exclusive { LockFlags::EXCLUSIVE } else { LockFlags::SHARED };
        let status = self.lock(&open, begin, end, kind | LockFlags::FAIL_IMMEDIATELY);
        self.note(&format!("lock {} {:?} {begin}..{end} {kind:?}: {status}", open.name, open.body));
        if status.is_error() {
            return;
        }
        let (client, id, body) = (self.cached.client, open.id, open.body.clone());
        self.cached.books().lock(Lock { id, client, body, begin, end, is_exclusive });
        let length = u32::try_from(end - begin).unwrap();
        let Some(bytes) = self.read(open.id, begin, length) else {
            return self.fault(&format!("{begin}..{end} of {} is locked and not read", open.name));
        };
        if open.name == LOCKED {
            self.opens[at].locked.push((begin, bytes));
        } else {
            self.cached.books().unlock(client, open.id, begin, end);
            self.lock(&open, begin, end, LockFlags::UNLOCK);
        }
    }

    // A LOCK that is refused for its second range, and may not give back what is held of the first.
    fn ask_for_too_much(&mut self, open: &Held, begin: u64, bytes: &[u8]) {
        let length = u64::try_from(bytes.len()).unwrap();
        let element = |kind: LockFlags| {
            let flags = kind | LockFlags::FAIL_IMMEDIATELY;
            LockElement { offset: begin, length, flags }
        };
        // A handle holds no second exclusive lock of what it has locked.
        let locks = vec![element(LockFlags::SHARED), element(LockFlags::EXCLUSIVE)];
        let request = LockRequest { lock_sequence: 0, file_id: open.id, locks };
        let (status, _) = self.ask(Command::LOCK, |out| request.emit(out));
        self.note(&format!("lock {} twice from {begin} on: {status}", open.name));
        if status != NtStatus::LOCK_NOT_GRANTED {
            self.fault(&format!("a lock is granted beside one that excludes it: {status}"));
        }
    }

    fn lock(&mut self, open: &Held, begin: u64, end: u64, flags: LockFlags) -> NtStatus {
        let locks = vec![LockElement { offset: begin, length: end - begin, flags }];
        let request = LockRequest { lock_sequence: 0, file_id: open.id, locks };
        self.ask(Command::LOCK, |out| request.emit(out)).0
    }

    // An exclusive lock keeps its own open from nothing.
    fn read_locked_again(&mut self, at: usize) {
        let Held { id, locked, .. } = self.opens[at].clone();
        let again = |(begin, bytes): (u64, Vec<u8>)| {
            let length = u32::try_from(bytes.len()).unwrap_or(LENGTH_MAX);
            Some((begin, self.read(id, begin, length)?))
        };
        let locked = locked.into_iter().filter_map(again).collect();
        self.opens[at].locked = locked;
    }

    /// Bytes that are locked are as they were when the lock was granted.
    pub(crate) fn look_at_locks(&mut self) {
        for open in self.opens.clone() {
            for (begin, bytes) in &open.locked {
                self.look_at_locked(&open, *begin, bytes);
            }
        }
    }

    fn look_at_locked(&mut self, open: &Held, begin: u64, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).unwrap_or(LENGTH_MAX);
        if self.read(open.id, begin, length).as_deref() != Some(bytes) {
            self.fault(&format!(
                "bytes from {begin} on of {} change while they are locked",
                open.name
            ));
        }
    }
}

/// Of a client at once.
const OPENS_MAX: usize = 6;
