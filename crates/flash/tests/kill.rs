//! A process that is killed in the middle of its placements, ten times the budget, has lost nothing that was durable.

#[cfg(test)]
mod support;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::unix::fs::FileExt as _;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    use flash::{Pool, map_file};

    use super::support::Numbers;

    const BUDGET: u64 = 2 << 20;
    const PAGES: u64 = 10 * BUDGET / 4096;
    /// Names the file that the child writes; without it the child's test has nothing to do.
    const CHILD: &str = "LANDFAST_FLASH_CHILD";

    /// The bytes of a page in a round: no page of another number or round has them.
    fn page(number: u64, round: u64) -> Vec<u8> {
        Numbers::new(number * 1000 + round + 1).bytes(512).repeat(8)
    }

    /// Places rounds of all pages in random order, persists ranges, and says after each which are durable.
    fn write_until_killed(path: &Path) {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let share = Pool::new(BUDGET).unwrap().share(BUDGET).unwrap();
        let medium = map_file(&file, PAGES * 4096, &share).unwrap();
        let mut numbers = Numbers::new(u64::from(std::process::id()));
        let out = std::io::stdout();
        for round in 1..1000 {
            let mut first = 0;
            while first < PAGES {
                let count = (1 + numbers.below(64)).min(PAGES - first);
                for number in (first..first + count).rev() {
                    let bytes = page(number, round);
                    if medium.try_place(number * 4096, &bytes).is_err() {
                        medium.place(number * 4096, &bytes).unwrap();
                    }
                }
                medium.persist(first * 4096, count * 4096).unwrap();
                writeln!(&out, "durable {round} {}", first + count).unwrap();
                first += count;
            }
        }
    }

    #[test]
    fn the_child_of_the_test_below() {
        if let Some(path) = std::env::var_os(CHILD) {
            write_until_killed(&PathBuf::from(path));
        }
    }

    #[test]
    fn a_killed_process_has_lost_no_page_that_it_called_durable() {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = directory.path().join("region");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(PAGES * 4096).unwrap();
        for reports in [3, 40, 190] {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "tests::the_child_of_the_test_below", "--nocapture"])
                .env(CHILD, &path)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let durable = lines.map_while(Result::ok).filter_map(|line| {
                let mut words =
                    line.split(' ').skip_while(|word| !word.ends_with("durable")).skip(1);
                Some((words.next()?.parse::<u64>().ok()?, words.next()?.parse::<u64>().ok()?))
            });
            // kill -9 while it goes on; what it said before counts, and what it said meanwhile.
            let mut durable = durable.peekable();
            let last = durable.by_ref().take(reports).last();
            child.kill().unwrap();
            let last = durable.last().or(last).unwrap();
            child.wait().unwrap();
            verify(&file, last);
        }
    }

    /// Each page has a round, whole in each sector, that is no older than what was called durable.
    fn verify(file: &File, (round, pages): (u64, u64)) {
        for number in 0..PAGES {
            let mut found = vec![0; 4096];
            file.read_exact_at(&mut found, number * 4096).unwrap();
            let least = if number < pages { round } else { round - 1 };
            let rounds = (least..least + 3).map(|round| page(number, round));
            let is_new = rounds.clone().any(|expected| expected == found);
            // A write that the kill cut in two has sectors of two rounds.
            let is_mixed = found.chunks(512).enumerate().all(|(index, sector)| {
                rounds.clone().any(|page| &page[index * 512..(index + 1) * 512] == sector)
            });
            let was_never = least == 0 && found.iter().all(|byte| *byte == 0);
            assert!(
                is_new || is_mixed || was_never,
                "page {number}: not of round {least} or later"
            );
        }
    }
}
