//! Volumes of mode block and Linux's BTT driver, in both directions: a volume that we made opens in the guest, one that
//! the guest's kernel made opens here, each after the power was cut in the middle of writes.
//!
//! The guest writes sectors of one number each, 64 of them in turn, and says each number once its write has returned.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::failure::{Failure, Outcome, Tally};
use crate::guest::machine::{Guest, Setup};
use crate::interop::report;
use crate::nbd_server::{NbdServer, Volume};
use crate::process::Step;
use crate::workspace;

/// Options of `cargo xtask guest btt`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// How often the power is cut, for each maker and size of sectors
    #[arg(long, default_value_t = 2)]
    pub(crate) cuts: u32,
}

/// Both makers, both sizes of sectors.
pub(crate) fn run(options: &Options) -> Outcome {
    let mut tally = Tally::default();
    for (whose, sector) in [("ours", 4096), ("theirs", 4096), ("ours", 512), ("theirs", 512)] {
        let scratch = workspace::scratch_on_tmpfs()?;
        let site = Site::make(scratch.path(), whose, sector)?;
        for cut in 0..options.cuts {
            site.life(cut, &mut tally)?;
        }
    }
    tally.note = format!("{} power cuts on each of four volumes", options.cuts);
    Ok(tally)
}

/// A medium that host and guest have in turn.
struct Site {
    whose: &'static str,
    sector: usize,
    /// The file that is the guest's persistent memory.
    memory: PathBuf,
    /// The directory that the guest sees, with the image.
    share: PathBuf,
    /// Where the host copies the volume to.
    copy: PathBuf,
}

impl Site {
    fn make(directory: &Path, whose: &'static str, sector: usize) -> Result<Self, Failure> {
        let share = directory.join("host");
        std::fs::create_dir(&share).map_err(Failure::io("creating", &share))?;
        let image: Vec<u8> = (0..IMAGE_LEN)
            .map(|at| u8::try_from((at % 251) ^ (at / 4096 % 4)).unwrap_or(0))
            .collect();
        let path = share.join("image");
        std::fs::write(&path, &image).map_err(Failure::io("writing", &path))?;
        let memory = directory.join("memory");
        if whose == "ours" {
            let sector = sector.to_string();
            let volume =
                Volume::create(&memory, "128M", &["--mode", "block", "--sector", &sector])?;
            let server = NbdServer::start(&volume)?;
            Step::new("nbdcopy").arg("--flush").arg(&path).arg(server.uri()).output()?;
        } else {
            let file = std::fs::File::create(&memory).map_err(Failure::io("creating", &memory))?;
            file.set_len(128 << 20).map_err(Failure::io("sizing", &memory))?;
        }
        Ok(Self { whose, sector, memory, share, copy: directory.join("copy") })
    }

    fn life(&self, cut: u32, tally: &mut Tally) -> Result<(), Failure> {
        let life = if cut == 0 { "new" } else { "again" };
        let name = format!("{}, sectors of {}, cut {cut}", self.whose, self.sector);
        let setup = Setup {
            persistent_memory: Some(self.memory.clone()),
            share: Some(self.share.clone()),
            ..Setup::default()
        };
        let script = format!("bash /tests/btt.sh {} {life} {}", self.whose, self.sector);
        let mut guest = Guest::start("btt", &setup, &script, LIMIT)?;
        guest.wait_for("streaming")?;
        let mut acknowledged = 0;
        for _ in 0..WRITES + cut {
            let said = guest.wait_for("wrote ")?;
            acknowledged = said.parse().unwrap_or(0);
        }
        tally.add(report::read(guest.said()));
        drop(guest.cut_power());
        let volume = Volume::at(&self.memory);
        tally.count(&format!("{name}: whole after the cut"), volume.check());
        let server = NbdServer::start(&volume)?;
        Step::new("nbdcopy").arg(server.uri()).arg(&self.copy).output()?;
        tally.count(
            &format!("{name}: image and numbers are there"),
            self.compare(acknowledged, life),
        );
        Ok(())
    }

    fn compare(&self, acknowledged: usize, life: &str) -> Result<(), String> {
        let read = |path: &Path| std::fs::read(path).map_err(|error| error.to_string());
        let (image, copy) = (read(&self.share.join("image"))?, read(&self.copy)?);
        if copy.get(..image.len()) != Some(&image[..]) {
            return Err("the image is another".to_owned());
        }
        let first = if life == "new" { 0 } else { AGAIN };
        for number in first.max(acknowledged.saturating_sub(SLOTS - 1)) + 1..=acknowledged {
            let at = image.len() + number % SLOTS * self.sector;
            let sector = copy.get(at..at + self.sector).ok_or("the volume is too short")?;
            let found = numbers(sector);
            // The write under way when the power was cut may be there.
            let is_right = [number, number + SLOTS].map(|number| number % 10_000_000);
            if !found.is_some_and(|found| is_right.contains(&found)) {
                return Err(format!("sector of write {number} has {found:?}"));
            }
        }
        Ok(())
    }
}

/// The number of a sector that repeats one, in lines of seven digits.
fn numbers(sector: &[u8]) -> Option<usize> {
    let (lines, _) = sector.as_chunks::<8>();
    let same = lines.iter().all(|line| *line == lines[0]);
    let text = std::str::from_utf8(&lines[0]).ok().filter(|_| same)?;
    text.trim_end().parse().ok()
}

const IMAGE_LEN: usize = 2 << 20;
/// Sectors that take turns.
const SLOTS: usize = 64;
/// Where the numbers of later lives begin.
const AGAIN: usize = 1_000_000;
/// Writes until the power is cut.
const WRITES: u32 = 90;
const LIMIT: Duration = Duration::from_secs(600);
