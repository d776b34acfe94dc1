//! What programs see of files: the kernel's dates and inode numbers differ from run to run, so they are replaced.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use crate::calls::WALL_START;
use crate::failure::Failure;
use crate::machine::{Machine, Until, Wait};
use crate::tracee::{Call, low_half};

impl Machine {
    /// Carries out a call that opens a file: there is none that tells how long the kernel let a thread compute.
    pub(crate) fn open(&mut self, number: usize, call: &Call) -> Result<(), Failure> {
        let at = call.argument(usize::from(call.number() == libc::SYS_openat));
        let tracee = &self.threads[number].tracee;
        if let Ok(path) = tracee.read::<{ SCHEDULE_STATISTICS.len() + 1 }>(at)
            && path[..path.len() - 1] == *SCHEDULE_STATISTICS
        {
            return self.answer(number, call, -i64::from(libc::ENOENT));
        }
        Ok(())
    }

    /// Carries out a call that looks at one file.
    ///
    /// Spec: Linux, `struct statx` and `struct stat` of x86-64.
    pub(crate) fn look(&mut self, number: usize, call: &Call) -> Result<(), Failure> {
        let answer = self.kernel(number, call)?;
        if answer == 0 {
            let (at, layout) = match call.number() {
                libc::SYS_statx => (call.argument(4), &STATX),
                libc::SYS_newfstatat => (call.argument(2), &STAT),
                _ => (call.argument(1), &STAT),
            };
            let tracee = self.threads[number].tracee.clone();
            let mut seen = tracee.read_vec(at, layout.len)?;
            let inode = self.shown_inode(word(&seen, layout.inode));
            seen[layout.inode..layout.inode + 8].copy_from_slice(&inode.to_le_bytes());
            for time in layout.times {
                // A date that a program has given is one of this run's clock, and stays.
                let seconds = word(&seen, *time).cast_signed();
                if seconds >= self.began && seconds < WALL_START.cast_signed() {
                    seen[*time..time + 8].copy_from_slice(&WALL_START.to_le_bytes());
                    seen[time + 8..time + 8 + layout.nanoseconds].fill(0);
                }
            }
            tracee.write(at, &seen)?;
        }
        self.restore(number, call, answer)
    }

    /// Carries out a call that lists a directory.
    ///
    /// Spec: Linux, `struct linux_dirent64`.
    pub(crate) fn list(&mut self, number: usize, call: &Call) -> Result<(), Failure> {
        let answer = self.kernel(number, call)?;
        if let Ok(len) = usize::try_from(answer)
            && len > 0
        {
            let tracee = self.threads[number].tracee.clone();
            let mut listed = tracee.read_vec(call.argument(1), len)?;
            let mut at = 0;
            while at + 19 <= len {
                let inode = self.shown_inode(word(&listed, at));
                listed[at..at + 8].copy_from_slice(&inode.to_le_bytes());
                at += usize::from(u16::from_le_bytes([listed[at + 16], listed[at + 17]])).max(19);
            }
            tracee.write(call.argument(1), &listed)?;
        }
        self.restore(number, call, answer)
    }

    /// Carries out a call that writes to a file: what it replaces is kept until a flush.
    pub(crate) fn write_file(&mut self, number: usize, call: &Call) -> Result<(), Failure> {
        self.is_stirred = true;
        if !self.programs[self.threads[number].program].has_disk
            || call.descriptor(0) <= libc::STDERR_FILENO
        {
            return Ok(());
        }
        let Some((inode, file)) = self.regular(number, call.descriptor(0))? else { return Ok(()) };
        let (program, tid) = (self.threads[number].program, self.threads[number].tracee.tid);
        let has_waited = self.programs[program].deadlines.remove(&tid).is_some();
        if !has_waited && let Some(takes) = self.disk.slow_write() {
            self.programs[program].deadlines.insert(tid, None);
            let (until, deadline) = (Until::Taken, Some(self.now + takes));
            self.wait(number, Wait { call: *call, until, deadline, late: 0 });
            return Ok(());
        }
        let len = usize::try_from(call.argument(2)).unwrap_or(0);
        let bytes = self.threads[number].tracee.read_vec(call.argument(1), len)?;
        let offset = match call.number() {
            libc::SYS_pwrite64 => call.argument(3),
            // Logs are opened to append.
            _ => file.metadata()?.len(),
        };
        if needs_room(&file.metadata()?, offset + len as u64) && self.disk.is_full(self.now) {
            return self.answer(number, call, -i64::from(libc::ENOSPC));
        }
        Ok(self.disk.writes(inode, &file, offset, bytes)?)
    }

    /// Carries out a call that reserves blocks, which a full disk refuses.
    pub(crate) fn reserve(&mut self, number: usize, call: &Call) -> Result<(), Failure> {
        let frees = low_half(call.argument(1)) & libc::FALLOC_FL_PUNCH_HOLE != 0;
        if !frees
            && self.programs[self.threads[number].program].has_disk
            && let Some((_, file)) = self.regular(number, call.descriptor(0))?
            && needs_room(&file.metadata()?, call.argument(2).saturating_add(call.argument(3)))
            && self.disk.is_full(self.now)
        {
            return self.answer(number, call, -i64::from(libc::ENOSPC));
        }
        Ok(())
    }

    /// Carries out a flush, which takes its time and can fail.
    pub(crate) fn flush(&mut self, number: usize, call: &Call) -> Result<(), Failure> {
        let inode = self.regular(number, call.descriptor(0))?.map_or(0, |(inode, _)| inode);
        let flush = self.disk.begins_flush(self.now, inode);
        let late = flush.failure.map_or(0, |error| -i64::from(error));
        let deadline = Some(self.now + flush.takes);
        self.wait(number, Wait { call: *call, until: Until::Flushed(flush), deadline, late });
        Ok(())
    }

    /// Carries out a question for a file system: it is one on a disk, of constant fullness.
    ///
    /// Spec: Linux, `struct statfs` of x86-64.
    pub(crate) fn tell_file_system(&mut self, number: usize, call: &Call) -> Result<(), Failure> {
        let answer = self.kernel(number, call)?;
        if answer == 0 {
            let tracee = self.threads[number].tracee.clone();
            let mut seen: [u8; 64] = tracee.read(call.argument(1))?;
            if word(&seen, 0) == TMPFS {
                let shown = [EXT4, 4096, BLOCKS, BLOCKS / 2, BLOCKS / 2, BLOCKS, BLOCKS / 2, 7];
                for (at, word) in shown.iter().enumerate() {
                    seen[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
                }
                tracee.write(call.argument(1), &seen)?;
            }
        }
        self.restore(number, call, answer)
    }

    // A file of a program, opened once more: its own descriptor may be for writing alone.
    fn regular(&self, number: usize, fd: i32) -> Result<Option<(u64, File)>, Failure> {
        let program = &self.programs[self.threads[number].program];
        let Ok(file) =
            File::options().read(true).write(true).open(format!("/proc/{}/fd/{fd}", program.pid))
        else {
            return Ok(None);
        };
        let seen = file.metadata()?;
        Ok(seen.is_file().then(|| (seen.ino(), file)))
    }

    fn shown_inode(&mut self, inode: u64) -> u64 {
        let next = 100 + self.inodes.len() as u64;
        *self.inodes.entry(inode).or_insert(next)
    }
}

// A file whose blocks are all there takes bytes on a full disk too: that is what reserving them is for.
fn needs_room(seen: &fs::Metadata, end: u64) -> bool {
    seen.blocks() * 512 < seen.len().max(end)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

struct Layout {
    len: usize,
    inode: usize,
    times: &'static [usize],
    /// Bytes of a time's nanoseconds.
    nanoseconds: usize,
}

const STATX: Layout = Layout { len: 128, inode: 32, times: &[64, 80, 96, 112], nanoseconds: 4 };

const STAT: Layout = Layout { len: 144, inode: 8, times: &[72, 88, 104], nanoseconds: 8 };

const SCHEDULE_STATISTICS: &[u8] = b"/proc/thread-self/schedstat";

// Spec: Linux, include/uapi/linux/magic.h.
const TMPFS: u64 = 0x0102_1994;
const EXT4: u64 = 0xef53;

/// Blocks of the file system that programs see.
const BLOCKS: u64 = 1 << 24;
