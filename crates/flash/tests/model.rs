//! Random accesses against a plain array, with a budget far below the file, on a device and on a real file.

#[cfg(test)]
mod support;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;
    use std::sync::Arc;
    use std::thread;

    use flash::{Pool, Share, map_device, map_file};
    use pmem::{AtomicOp, Medium, MediumError};

    use super::support::{Faulty, Numbers};

    const BUDGET: u64 = 1 << 20;

    fn share() -> Share {
        Pool::new(BUDGET).unwrap().share(BUDGET).unwrap()
    }

    fn file(len: u64) -> File {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.set_len(len).unwrap();
        file
    }

    #[expect(clippy::host_endian_bytes, reason = "a word in memory, not on a wire")]
    fn bytes_of(word: u64) -> [u8; 8] {
        word.to_ne_bytes()
    }

    /// Reads, placements, words and persists at random; the medium and the array stay equal.
    fn compare(medium: &dyn Medium, start: usize, len: usize, steps: usize, seed: u64) {
        let mut numbers = Numbers::new(seed);
        let mut expected = vec![0; len];
        medium.read(start as u64, &mut expected).unwrap();
        for _ in 0..steps {
            let most = [8, 600, 4096, 70_000][usize::try_from(numbers.below(4)).unwrap()];
            let size = 1 + usize::try_from(numbers.below(most)).unwrap();
            let at = usize::try_from(numbers.below((len - size) as u64)).unwrap();
            let offset = (start + at) as u64;
            match numbers.below(10) {
                0..=3 => {
                    let bytes = numbers.bytes(size);
                    if medium.try_place(offset, &bytes) != Ok(()) {
                        medium.place(offset, &bytes).unwrap();
                    }
                    expected[at..at + size].copy_from_slice(&bytes);
                }
                4 => {
                    let word = numbers.below(u64::MAX >> 1);
                    let (at, offset) = (at / 8 * 8, offset / 8 * 8);
                    medium.atomic(offset, AtomicOp::Store(word)).unwrap();
                    expected[at..at + 8].copy_from_slice(&bytes_of(word));
                }
                5 => medium.persist(offset, size as u64).unwrap(),
                _ => {
                    let mut out = vec![0; size];
                    match medium.try_read(offset, &mut out) {
                        Err(MediumError::WouldBlock) => medium.read(offset, &mut out).unwrap(),
                        other => other.unwrap(),
                    }
                    assert!(out == expected[at..at + size], "{size} bytes at {offset} differ");
                }
            }
        }
        let mut out = vec![0; len];
        medium.read(start as u64, &mut out).unwrap();
        assert!(out == expected);
    }

    #[test]
    fn random_accesses_far_beyond_the_budget_find_what_was_placed() {
        let medium = map_device(Box::new(Faulty::new(6 << 20)), &share()).unwrap();
        compare(&medium, 0, 6 << 20, 3000, 1);
    }

    #[test]
    fn a_sparse_file_reads_as_zeros_where_nothing_was_placed() {
        // No whole number of pages, and holes beside what is written.
        let len = (5 << 20) + 1234;
        let file = file(len);
        file.write_all_at(&[7; 9000], 1 << 20).unwrap();
        let medium = map_file(&file, len, &share()).unwrap();
        compare(&*medium, 0, usize::try_from(len).unwrap(), 2000, 2);
        medium.persist(0, len).unwrap();
        let mut placed = vec![0; usize::try_from(len).unwrap()];
        medium.read(0, &mut placed).unwrap();
        let mut below = placed.clone();
        file.read_exact_at(&mut below, 0).unwrap();
        assert!(below == placed, "the file has what was placed");
        assert_eq!(file.metadata().unwrap().len(), len, "write-back makes no file longer");
    }

    #[test]
    fn threads_that_share_a_pool_each_find_their_own_bytes() {
        let share = share();
        let file = file(8 << 20);
        let medium = map_file(&file, 8 << 20, &share).unwrap();
        thread::scope(|scope| {
            for part in 0..4 {
                // Off the boundaries of pages, so that neighbours share pages.
                let medium = Arc::clone(&medium);
                let start = part * (2 << 20) + if part == 0 { 0 } else { 8 * 100 };
                let end = if part == 3 { 8 << 20 } else { (part + 1) * (2 << 20) + 8 * 100 };
                scope.spawn(move || compare(&*medium, start, end - start, 700, part as u64 + 9));
            }
        });
    }

    #[test]
    fn a_truncated_file_is_named_to_those_who_reach_behind_its_end() {
        let file = file(1 << 20);
        file.write_all_at(&[1; 1 << 20], 0).unwrap();
        let medium = map_file(&file, 1 << 20, &share()).unwrap();
        medium.place(900_000, &[2; 100]).unwrap();
        medium.place(100, &[2; 100]).unwrap();
        file.set_len(500_000).unwrap();
        assert_eq!(medium.persist(100, 100), Ok(()));
        assert_eq!(medium.persist(900_000, 100), Err(MediumError::Truncated));
        assert_eq!(medium.read(800_000, &mut [0; 10]), Err(MediumError::Truncated));
        assert_eq!(medium.read(0, &mut [0; 10]), Ok(()));
        assert_eq!(file.metadata().unwrap().len(), 500_000, "it stays as short as it was made");
    }

    #[test]
    fn media_of_one_file_share_their_pages_and_leave_an_ordinary_file() {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = directory.path().join("f");
        let open =
            || File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let (one, other) = (open().unwrap(), open().unwrap());
        one.set_len(1 << 20).unwrap();
        let share = share();
        let first = map_file(&one, 1 << 20, &share).unwrap();
        let second = map_file(&other, 4096, &share).unwrap();
        first.place(10, b"shared").unwrap();
        let mut out = [0; 6];
        second.read(10, &mut out).unwrap();
        assert_eq!(&out, b"shared");
        assert!(flash::find(&one).is_some());
        drop((first, second));
        // The writer brings it to its end.
        while flash::find(&other).is_some() {
            thread::yield_now();
        }
        one.read_exact_at(&mut out, 10).unwrap();
        assert_eq!(&out, b"shared");
    }

    #[test]
    fn a_change_below_a_range_finds_its_bytes_and_leaves_none_of_them_in_memory() {
        let file = file(1 << 20);
        let share = share();
        let medium = map_file(&file, 1 << 20, &share).unwrap();
        medium.place(0, &[5; 8192]).unwrap();
        let used = flash::find(&file).unwrap();
        let found = used.around(0, 4096, || {
            let mut out = [0; 4096];
            file.read_exact_at(&mut out, 0).unwrap();
            file.write_all_at(&[6; 4096], 0).unwrap();
            out[0]
        });
        assert_eq!(found, Ok(5));
        let mut out = [0; 8192];
        medium.read(0, &mut out).unwrap();
        assert_eq!((out[0], out[4095], out[4096]), (6, 6, 5));
        used.write_at((1 << 20) - 2, b"longer", |end| {
            file.set_len(end).map_err(|_| MediumError::Truncated)
        })
        .unwrap();
        assert_eq!(file.metadata().unwrap().len(), (1 << 20) + 4);
    }

    #[test]
    fn a_sequential_reader_finds_its_pages_read_ahead() {
        let file = file(4 << 20);
        file.write_all_at(&vec![3; 4 << 20], 0).unwrap();
        let pool = Pool::new(16 << 20).unwrap();
        let medium = map_file(&file, 4 << 20, &pool.share(16 << 20).unwrap()).unwrap();
        let mut out = [0; 4096];
        for page in 0..1024 {
            medium.read(page * 4096, &mut out).unwrap();
            assert_eq!(out, [3; 4096]);
        }
        let stats = pool.stats();
        assert!(stats.ahead > 0, "{stats:?}");
        assert!(stats.fetched + stats.ahead <= 1024 + 16, "no page twice: {stats:?}");
    }

    #[test]
    fn the_smallest_share_takes_no_more_than_its_part_of_the_pool() {
        let pool = Pool::new(8 << 20).unwrap();
        let file = file(6 << 20);
        let medium = map_file(&file, 6 << 20, &pool.share(1 << 20).unwrap()).unwrap();
        for page in 0..6 * 256 {
            medium.place(page * 4096, &[1; 4096]).unwrap();
        }
        assert!(pool.stats().resident <= 1 << 20, "{:?}", pool.stats());
    }
}
