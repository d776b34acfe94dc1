//! A witness in a file, for members on one machine.
//!
//! The seat is one line. It is replaced as a whole: a new file is written, made durable and renamed, while the file
//! `PATH.lock` is locked.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::Witness;
use super::error::{FileStep, WitnessError};
use super::seat::{Rule, SEAT_LEN_MAX, Seat, SeatError};
use crate::names::GroupId;

/// Keeps the seat of a group in a file.
#[derive(Debug)]
pub struct FileWitness {
    path: PathBuf,
    group: GroupId,
}

impl FileWitness {
    /// The witness of `group` in the file at `path`, which is made when the group begins.
    pub fn new(path: &Path, group: GroupId) -> Self {
        Self { path: path.to_owned(), group }
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(suffix);
        name.into()
    }

    fn failed(&self, step: FileStep) -> impl FnOnce(io::Error) -> WitnessError {
        let path = self.path.clone();
        move |cause| WitnessError::File { path, step, cause }
    }

    // A process that was stopped while it had the lock must not stop the others for ever.
    fn lock(&self) -> Result<File, WitnessError> {
        let path = self.beside(".lock");
        let lock = File::options().create(true).truncate(false).write(true).open(path);
        let lock = lock.map_err(self.failed(FileStep::Lock))?;
        let began = Instant::now();
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(lock),
                Err(rustix::io::Errno::WOULDBLOCK) if began.elapsed() < LOCK_TIME => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(errno) => return Err(self.failed(FileStep::Lock)(errno.into())),
            }
        }
    }

    // What is read may have been renamed by a process that was killed then: it is made durable before it counts.
    fn read(&self) -> Result<Option<Seat>, WitnessError> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(self.failed(FileStep::Read))?,
        };
        let mut bytes = Vec::new();
        let limit = u64::try_from(SEAT_LEN_MAX + 2).unwrap_or(u64::MAX);
        (&file).take(limit).read_to_end(&mut bytes).map_err(self.failed(FileStep::Read))?;
        let foreign =
            |cause| WitnessError::Foreign { place: self.path.display().to_string(), cause };
        let line = bytes.strip_suffix(b"\n").ok_or_else(|| foreign(SeatError::Foreign))?;
        let seat = Seat::parse(&self.group, line).map_err(foreign)?;
        file.sync_all()
            .and_then(|()| self.sync_directory())
            .map_err(self.failed(FileStep::Sync))?;
        Ok(Some(seat))
    }

    fn write(&self, seat: &Seat) -> Result<(), WitnessError> {
        let path = self.beside(".new");
        let write = || {
            let mut file = File::create(&path)?;
            writeln!(file, "{}", seat.emit(&self.group))?;
            file.sync_all()?;
            std::fs::rename(&path, &self.path)
        };
        write().map_err(self.failed(FileStep::Write))?;
        self.sync_directory().map_err(self.failed(FileStep::Sync))
    }

    fn sync_directory(&self) -> io::Result<()> {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or_else(|| Path::new(".")))?.sync_all()
    }
}

impl Witness for FileWitness {
    fn load(&self) -> Result<Option<Seat>, WitnessError> {
        let _lock = self.lock()?;
        self.read()
    }

    fn record(&self, rule: Rule, wanted: &Seat) -> Result<bool, WitnessError> {
        let _lock = self.lock()?;
        let recorded = self.read()?;
        if recorded.as_ref() == Some(wanted) {
            return Ok(true);
        }
        if !rule.allows(recorded.as_ref(), wanted) {
            return Ok(false);
        }
        self.write(wanted)?;
        Ok(true)
    }
}

/// A member that has the lock writes one line.
const LOCK_TIME: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{Epoch, MemberId, MemberSet};
    use std::sync::Barrier;

    const GROUP: GroupId = GroupId([3; 16]);

    fn first(member: u8) -> Seat {
        let epoch = Epoch { number: 1, restart: 0, nonce: u64::from(member) + 70 };
        Seat::alone(epoch, MemberId(member))
    }

    fn witness() -> (tempfile::TempDir, FileWitness) {
        let directory = tempfile::tempdir().unwrap();
        let witness = FileWitness::new(&directory.path().join("seat"), GROUP);
        (directory, witness)
    }

    #[test]
    fn a_seat_is_there_after_it_was_taken_and_may_be_asked_for_again() {
        let (_directory, witness) = witness();
        assert_eq!(witness.load().unwrap(), None);
        assert!(witness.propose(&first(0)).unwrap());
        assert!(witness.propose(&first(0)).unwrap());
        assert!(!witness.propose(&first(1)).unwrap());
        let both = Seat { in_sync: MemberSet(3), set_version: 2, ..first(0) };
        assert!(witness.propose(&both).unwrap());
        assert!(!witness.propose(&first(0)).unwrap());
        let again = FileWitness::new(&witness.path, GROUP);
        assert_eq!(again.load().unwrap(), Some(both));
    }

    #[test]
    fn a_member_that_is_not_in_sync_is_recorded_by_force_alone() {
        let (_directory, witness) = witness();
        assert!(witness.propose(&first(0)).unwrap());
        let epoch = Epoch { number: 2, restart: 0, nonce: 5 };
        let wanted = Seat::alone(epoch, MemberId(1));
        assert!(!witness.propose(&wanted).unwrap());
        assert!(witness.record(Rule::ByForce, &wanted).unwrap());
        assert_eq!(witness.load().unwrap(), Some(wanted));
    }

    #[test]
    fn what_is_no_seat_is_refused_with_its_place_and_stays() {
        let (_directory, witness) = witness();
        let other = FileWitness::new(&witness.path, GroupId([4; 16]));
        let sound = format!("{}\n", first(0).emit(&GROUP));
        for (content, says) in [
            ("", "not written by Landfast"),
            ("hello\n", "not written by Landfast"),
            (sound.trim_end(), "not written by Landfast"),
            (&sound.replace("source 0", "source 1"), "damaged"),
            (&sound.replace("seat 1", "seat 3"), "version is 3"),
            (&format!("{sound}{sound}"), "damaged"),
            (&"x".repeat(1 << 20), "not written by Landfast"),
        ] {
            std::fs::write(&witness.path, content).unwrap();
            for error in [witness.load().unwrap_err(), witness.propose(&first(0)).unwrap_err()] {
                let said = error.to_string();
                let path = witness.path.to_str().unwrap();
                assert!(said.contains(says) && said.contains(path), "{said}");
            }
            assert_eq!(std::fs::read(&witness.path).unwrap(), content.as_bytes());
        }
        std::fs::write(&witness.path, &sound).unwrap();
        let said = other.load().unwrap_err().to_string();
        assert!(said.contains("another group"), "{said}");
    }

    #[test]
    fn what_a_killed_process_left_of_a_new_file_is_in_nobodys_way() {
        let (directory, witness) = witness();
        assert!(witness.propose(&first(0)).unwrap());
        std::fs::write(directory.path().join("seat.new"), "landfast-se").unwrap();
        let both = Seat { in_sync: MemberSet(3), set_version: 2, ..first(0) };
        assert!(witness.propose(&both).unwrap());
        assert_eq!(witness.load().unwrap(), Some(both));
    }

    #[test]
    fn of_members_that_ask_at_once_one_has_the_epoch() {
        let (_directory, witness) = witness();
        assert!(witness.propose(&first(0)).unwrap());
        let all = MemberSet(0b1111);
        let mut recorded = first(0);
        for round in 2..40 {
            let wanted = Seat { in_sync: all, set_version: recorded.set_version + 1, ..recorded };
            assert!(witness.propose(&wanted).unwrap());
            let barrier = Barrier::new(4);
            let asks = |member: u8| {
                let epoch = Epoch { number: round, restart: 0, nonce: u64::from(member) };
                barrier.wait();
                witness.propose(&Seat::alone(epoch, MemberId(member))).unwrap()
            };
            let taken: Vec<bool> = std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..4).map(|member| scope.spawn(move || asks(member))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(taken.iter().filter(|taken| **taken).count(), 1, "{taken:?}");
            recorded = witness.load().unwrap().unwrap();
            assert!(taken[usize::from(recorded.source.0)]);
        }
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let witness = FileWitness::new(Path::new("/nonexistent/landfast/seat"), GROUP);
        let said = witness.load().unwrap_err().to_string();
        assert!(said.contains("/nonexistent/landfast/seat"), "{said}");
    }
}
