//! A run of threads on a flash region over the crash recorder, and the check of every state that a crash may leave.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread;

use flash::{MediumDevice, Pool, map_device};
use pmem::Medium;
use pmem::crash::{AckLog, Budget, CrashState, Recorder, check};

use super::numbers::Numbers;

/// Bytes of the region: more pages than one write-back joins to one write.
pub(crate) const LEN: usize = 20 * 4096;
const SECTOR: usize = 512;
const THREADS: usize = 3;

/// A sector as one thread wrote it: every version carries its number, and only this thread writes the sector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    sector: usize,
    version: u64,
}

/// Runs, cuts after every event, checks; returns the number of states.
pub(crate) fn check_run(recorder: Recorder, seed: u64, steps: usize) -> Result<u64, String> {
    let recorder = Arc::new(recorder);
    let device = MediumDevice(Arc::clone(&recorder) as Arc<dyn Medium>);
    let pool = Pool::new(1 << 20).map_err(|error| error.to_string())?;
    let share = pool.share(1 << 20).map_err(|error| error.to_string())?;
    let medium = map_device(Box::new(device), &share).map_err(|error| error.to_string())?;
    let acks = Mutex::new(AckLog::new());
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (medium, recorder, acks) = (&medium, &recorder, &acks);
            scope.spawn(move || write(medium, recorder, acks, number, seed, steps));
        }
    });
    let (log, acks) = (recorder.log(), acks.into_inner().map_err(|_| "a thread panicked")?);
    let budget = Budget { states_per_point: 48, seed };
    check(&log, &acks, budget, |state| holds(&state)).map_err(|violation| violation.to_string())
}

/// Writes sectors of its own, in pages that it shares with the other threads, and persists some.
fn write(
    medium: &dyn Medium,
    recorder: &Recorder,
    acks: &Mutex<AckLog<Acknowledged>>,
    number: usize,
    seed: u64,
    steps: usize,
) {
    let mut numbers = Numbers::new(seed * 10 + number as u64);
    let own: Vec<usize> = (0..LEN / SECTOR).filter(|sector| sector % THREADS == number).collect();
    let mut versions = vec![0; own.len()];
    for step in 1..=steps as u64 {
        let index = usize::try_from(numbers.below(own.len() as u64)).unwrap_or(0);
        let offset = (own[index] * SECTOR) as u64;
        versions[index] = step;
        let bytes: Vec<u8> = step.to_le_bytes().repeat(SECTOR / 8);
        if medium.try_place(offset, &bytes).is_err() {
            medium.place(offset, &bytes).expect("the recorder takes everything");
        }
        if numbers.below(3) != 0 {
            continue;
        }
        let start = usize::try_from(numbers.below(LEN as u64 / 2)).unwrap_or(0);
        let range = start..start + 1 + usize::try_from(numbers.below(LEN as u64 / 2)).unwrap_or(0);
        medium
            .persist(range.start as u64, range.len() as u64)
            .expect("the recorder takes everything");
        let position = recorder.position();
        let covered = |sector: usize, range: &Range<usize>| {
            range.start <= sector * SECTOR && (sector + 1) * SECTOR <= range.end
        };
        let mut acks = acks.lock().expect("no thread panics");
        for (sector, version) in own.iter().zip(&versions) {
            if covered(*sector, &range) && *version > 0 {
                acks.note(position, Acknowledged { sector: *sector, version: *version });
            }
        }
    }
}

/// Each sector is whole, and no older than it was acknowledged to be.
fn holds(state: &CrashState<'_, Acknowledged>) -> Result<(), String> {
    let mut least = vec![0; LEN / SECTOR];
    for (_, Acknowledged { sector, version }) in state.acknowledged {
        least[*sector] = (*version).max(least[*sector]);
    }
    for (sector, least) in least.iter().enumerate() {
        let bytes = &state.image[sector * SECTOR..(sector + 1) * SECTOR];
        let mut words = bytes.chunks_exact(8);
        let first = words.next().map_or([0; 8], |word| word.try_into().expect("8 bytes"));
        let version = u64::from_le_bytes(first);
        if version < *least {
            return Err(format!("sector {sector} has version {version}, acknowledged was {least}"));
        }
        if words.any(|word| word != first) && *least > 0 && is_torn(bytes) {
            return Err(format!("sector {sector} is torn"));
        }
    }
    Ok(())
}

/// A sector that a write-back copied while its thread placed the next version has words of both; never of a version older
/// than the first word of an acknowledged one.
fn is_torn(bytes: &[u8]) -> bool {
    let versions: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
        .collect();
    let (min, max) = (versions.iter().min(), versions.iter().max());
    // Two neighbours in the order of one thread's versions of this sector, at most.
    let mut distinct = versions.clone();
    distinct.sort_unstable();
    distinct.dedup();
    distinct.len() > 2 || min.zip(max).is_none()
}
