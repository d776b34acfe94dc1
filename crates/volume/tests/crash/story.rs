//! A story: a volume on a recorder, what was written to it, and what every crash must have left of that.
//!
//! Each thread writes sectors of its own, which lie between those of the other threads, so that two threads change the
//! two entries of one word of the map. Every version of a sector is a pattern that names sector and version in each
//! word, or zeroes.

use std::ops::AddAssign;
use std::sync::{Arc, Mutex};

use block::{BlockDevice, Survives, Zeroing};
use pmem::Medium;
use pmem::crash::{AckLog, Budget, CrashState, Log, Recorder, check as check_log};
use volume::{Access, Format, LayoutVersion, Volume, check, create};

/// What a story does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Decides everything but how threads meet.
    pub(crate) seed: u64,
    /// Writers at the same time.
    pub(crate) threads: usize,
    /// Writes and zeroings of each.
    pub(crate) steps: usize,
}

/// What was recorded.
#[derive(Debug)]
pub(crate) struct Story {
    log: Log,
    /// For each call that returned: the sector, and the number of its version.
    acks: AckLog<(usize, usize)>,
    /// The versions of each sector; number 0 is zeroes.
    versions: Vec<Vec<Vec<u8>>>,
    seed: u64,
}

/// What was checked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Crash states after which the volume was opened and read.
    pub(crate) states: u64,
    /// Those among them that were left by a crash of a recovery, or of a write after one.
    pub(crate) second_crashes: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.states += other.states;
        self.second_crashes += other.second_crashes;
    }
}

/// Makes a volume on `medium`, which writes to `recorder`, and writes to it.
pub(crate) fn tell(recorder: &Arc<Recorder>, medium: &Arc<dyn Medium>, plan: Plan) -> Story {
    let format =
        Format { lanes: LANES, version: LayoutVersion::V2_0, ..Format::linux(512, [5; 16]) };
    create(medium, format).unwrap();
    let volume = Volume::open(Arc::clone(medium), Access::ReadWrite).unwrap();
    let sectors = usize::try_from(volume.geometry().size).unwrap() / SECTOR;
    let state = Mutex::new((AckLog::new(), vec![vec![vec![0; SECTOR]]; sectors]));
    // The empty volume is there from here on.
    (0..sectors).for_each(|sector| state.lock().unwrap().0.note(recorder.position(), (sector, 0)));
    std::thread::scope(|scope| {
        for thread in 0..plan.threads {
            let (volume, state) = (&volume, &state);
            scope.spawn(move || {
                let mut numbers =
                    Numbers(plan.seed << 8 | u64::try_from(thread).unwrap() | 1 << 60);
                for _ in 0..plan.steps {
                    let sector = numbers.below(sectors / plan.threads) * plan.threads + thread;
                    step(recorder, volume, state, sector, numbers.below(4) == 0);
                }
            });
        }
    });
    let (acks, versions) = state.into_inner().unwrap();
    Story { log: recorder.log(), acks, versions, seed: plan.seed }
}

type State = Mutex<(AckLog<(usize, usize)>, Vec<Vec<Vec<u8>>>)>;

fn step(recorder: &Recorder, volume: &Volume, state: &State, sector: usize, zero: bool) {
    let version = state.lock().unwrap().1[sector].len();
    let bytes = if zero { vec![0; SECTOR] } else { pattern(sector, version) };
    state.lock().unwrap().1[sector].push(bytes.clone());
    let (at, len) = (u64::try_from(sector * SECTOR).unwrap(), u64::try_from(SECTOR).unwrap());
    let done = match zero {
        true => volume.write_zeroes(at, len, Zeroing::MayFree, Survives::Durable),
        false => volume.write(at, &bytes, Survives::Durable),
    };
    // A planted fault may have made the volume see damage in itself; its writes are not acknowledged then.
    if done.is_ok() {
        state.lock().unwrap().0.note(recorder.position(), (sector, version));
    }
}

/// Crashes after every event, opens the volume, and compares.
pub(crate) fn check_story(story: &Story, states_per_point: u64) -> Result<Tally, String> {
    let budget = Budget { states_per_point, seed: story.seed };
    let (mut tally, mut number) = (Tally::default(), 0_u64);
    let checked = check_log(&story.log, &story.acks, budget, |state| {
        number += 1;
        let recovered = examine(story, &state, state.image)?;
        // Every crash could be followed by a second one; each sixteenth is.
        if let Some(recovered) = recovered.filter(|_| number % 16 == 0) {
            tally.second_crashes += crash_again(story, &state, &recovered)?;
        }
        Ok::<(), String>(())
    });
    tally.states = checked.map_err(|violation| violation.to_string())? + tally.second_crashes;
    Ok(tally)
}

/// Opens what a crash left and compares each sector; gives the recorder of the recovery and of one more write.
fn examine(
    story: &Story,
    state: &CrashState<'_, (usize, usize)>,
    image: &[u8],
) -> Result<Option<Arc<Recorder>>, String> {
    let recorder = Arc::new(Recorder::after_crash(&story.log, image.to_vec()));
    let medium = Arc::clone(&recorder) as Arc<dyn Medium>;
    let volume = match Volume::open(Arc::clone(&medium), Access::ReadWrite) {
        Ok(volume) => volume,
        // A crash while the volume was made leaves none.
        Err(_) if state.acknowledged.is_empty() => return Ok(None),
        Err(error) => return Err(format!("the volume does not open: {error}")),
    };
    if let Some(damage) = volume.damage().first().filter(|_| !state.acknowledged.is_empty()) {
        return Err(format!("the volume is damaged: {damage}"));
    }
    compare(story, state, &volume)?;
    let report = check(&medium).map_err(|error| error.to_string())?;
    if !report.is_whole() && !state.acknowledged.is_empty() {
        return Err(format!("the structure is damaged: {}", report.damage[0]));
    }
    Ok(Some(recorder))
}

fn compare(
    story: &Story,
    state: &CrashState<'_, (usize, usize)>,
    volume: &Volume,
) -> Result<(), String> {
    let mut bytes = vec![0; SECTOR];
    for (sector, versions) in story.versions.iter().enumerate() {
        let acknowledged = state.acknowledged.iter().filter(|(_, (of, _))| *of == sector);
        let least = acknowledged.map(|(_, (_, version))| *version).max().unwrap_or(0);
        let at = u64::try_from(sector * SECTOR).unwrap();
        volume.read(at, &mut bytes).map_err(|error| format!("sector {sector}: {error}"))?;
        if !versions[least..].contains(&bytes) {
            let found = versions.iter().position(|version| *version == bytes);
            return Err(match found {
                Some(old) => format!("sector {sector} has version {old}, {least} was acknowledged"),
                None => format!("sector {sector} is torn"),
            });
        }
    }
    Ok(())
}

/// Writes once more after the recovery, and crashes at every moment of both.
fn crash_again(
    story: &Story,
    state: &CrashState<'_, (usize, usize)>,
    recorder: &Arc<Recorder>,
) -> Result<u64, String> {
    // The volume of the recovery writes zeroes over the first sector, which may have them: version 0.
    let medium = Arc::clone(recorder) as Arc<dyn Medium>;
    let volume = Volume::open(medium, Access::ReadWrite).map_err(|error| error.to_string())?;
    let other = volume.geometry().size - u64::try_from(SECTOR).unwrap();
    let last = story.versions.len() - 1;
    let mut kept = vec![0; SECTOR];
    volume.read(other, &mut kept).map_err(|error| error.to_string())?;
    volume.write(other, &kept, Survives::Durable).map_err(|error| error.to_string())?;
    let none: AckLog<()> = AckLog::new();
    let budget = Budget { states_per_point: 3, seed: story.seed };
    check_log(&recorder.log(), &none, budget, |again| {
        examine(story, state, again.image)
            .map(drop)
            .map_err(|why| format!("after a second crash, with sector {last} written again: {why}"))
    })
    .map_err(|violation| violation.to_string())
}

/// Names sector and version in each word.
fn pattern(sector: usize, version: usize) -> Vec<u8> {
    let word = |at: usize| (sector << 48 | version << 16 | at).to_le_bytes();
    (0..SECTOR / 8).flat_map(word).collect()
}

/// Numbers that a seed decides (xorshift64*).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(number).unwrap() % bound
    }
}

/// Bytes of the medium: two info blocks, a page of data, one of map, one of flog, and the page that the split leaves.
pub(crate) const LEN: usize = 6 * 4096;
const LANES: u32 = 3;
const SECTOR: usize = 512;
