//! What goes wrong below reaches those who asked, and nobody else; nothing that failed is tried again into success.

#[cfg(test)]
mod support;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use flash::{FlashMedium, Pool, find, map_device, map_file};
    use pmem::{Medium, MediumError};

    use super::support::Faulty;

    const PAGE: usize = 4096;
    const LEN: u64 = 8 << 20;

    fn rig() -> (&'static Faulty, Arc<FlashMedium>) {
        let device = Faulty::new(LEN);
        let pool = Pool::new(1 << 20).unwrap();
        let share = pool.share(1 << 20).unwrap();
        (device, Arc::new(map_device(Box::new(device), &share).unwrap()))
    }

    fn at(page: u64) -> u64 {
        page * 4096
    }

    #[test]
    fn an_unreadable_page_is_an_error_of_those_who_asked_for_it() {
        let (device, medium) = rig();
        device.set(|faults| faults.reads.extend([7]));
        let mut out = [1; PAGE];
        assert_eq!(medium.read(at(7), &mut out), Err(MediumError::MediaIo(5)));
        assert_eq!(medium.place(at(7) + 1, b"part"), Err(MediumError::MediaIo(5)));
        assert_eq!(medium.read(at(8), &mut out), Ok(()));
        // A whole page needs no read.
        assert_eq!(medium.place(at(7), &[3; PAGE]), Ok(()));
        assert_eq!(medium.persist(at(7), 4096), Ok(()));
        assert_eq!(device.bytes(at(7), 1), [3]);
    }

    #[test]
    fn a_page_whose_write_back_failed_is_lost_and_its_neighbours_are_not() {
        let (device, medium) = rig();
        medium.place(at(1), &[1; PAGE]).unwrap();
        medium.place(at(40), &[2; PAGE]).unwrap();
        device.set(|faults| {
            faults.writes.insert(40);
            faults.errno = 28;
        });
        assert_eq!(medium.persist(at(40), 4096), Err(MediumError::MediaIo(28)));
        assert_eq!(medium.persist(at(1), 4096), Ok(()));
        // The disk has room again: what was lost stays lost.
        device.set(|faults| faults.writes.clear());
        let mut out = [0; PAGE];
        for _ in 0..2 {
            assert_eq!(medium.persist(at(40), 4096), Err(MediumError::MediaIo(28)));
            assert_eq!(medium.try_read(at(40), &mut out), Err(MediumError::WouldBlock));
            assert_eq!(medium.read(at(40), &mut out), Err(MediumError::MediaIo(28)));
            assert_eq!(medium.place(at(40), &[5; PAGE]), Err(MediumError::MediaIo(28)));
            assert_eq!(medium.place(at(40) + 9, &[5]), Err(MediumError::MediaIo(28)));
        }
        medium.read(at(1), &mut out).unwrap();
        assert_eq!((out[0], device.bytes(at(40), 1)), (1, vec![0]));
        assert_eq!(medium.file().stats().lost, 1);
        assert_eq!(medium.persist(0, LEN), Err(MediumError::MediaIo(28)), "the range has the page");
    }

    #[test]
    fn a_lost_page_stays_lost_after_its_frame_served_others() {
        let (device, medium) = rig();
        medium.place(at(0), &[1; PAGE]).unwrap();
        device.set(|faults| faults.writes.extend([0]));
        assert_eq!(medium.persist(0, 1), Err(MediumError::MediaIo(5)));
        let mut out = [0; PAGE];
        (1..LEN / 4096).for_each(|page| medium.read(at(page), &mut out).unwrap());
        assert_eq!(medium.read(at(0), &mut out), Err(MediumError::MediaIo(5)));
        assert_eq!(medium.place(at(0), &[5; PAGE]), Err(MediumError::MediaIo(5)));
    }

    #[test]
    fn a_page_of_a_hole_that_found_no_room_is_no_hole_again() {
        let (device, medium) = rig();
        device.set(|faults| {
            faults.is_sparse = true;
            faults.errno = 28;
            faults.writes.extend([2]);
        });
        medium.place(at(2), &[1; PAGE]).unwrap();
        assert_eq!(medium.persist(at(2), 4096), Err(MediumError::MediaIo(28)));
        let mut out = [0; PAGE];
        // Its frame is here, and then others': the file has a hole there all the time.
        for _ in 0..2 {
            assert_eq!(medium.read(at(1), &mut out), Ok(()), "a hole");
            assert_eq!(medium.read(at(2), &mut out), Err(MediumError::MediaIo(28)));
            assert_eq!(medium.try_read(at(2), &mut out), Err(MediumError::WouldBlock));
            assert_eq!(medium.place(at(2) + 8, b"part"), Err(MediumError::MediaIo(28)));
            (100..LEN / 4096).for_each(|page| medium.place(at(page), &[1; PAGE]).unwrap());
        }
    }

    #[test]
    fn a_read_that_looked_before_a_truncation_loses_no_page_behind_it() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.set_len(12_288).unwrap();
        let pool = Pool::new(1 << 20).unwrap();
        let medium = map_file(&file, 12_288, &pool.share(1 << 20).unwrap()).unwrap();
        let pages = find(&file).unwrap();
        pages.around(9000, u64::MAX, || file.set_len(9000).unwrap()).unwrap();
        // As a READ that asked for the length before, and reads now.
        pages.read_at(0, &mut [0; 12_288]).unwrap_err();
        medium.place(8200, b"near the end").unwrap();
        assert_eq!(medium.persist(8192, 100), Ok(()));
        assert_eq!(medium.place(9001, b"behind it"), Err(MediumError::Truncated));
    }

    #[test]
    fn more_lost_pages_than_are_remembered_end_every_flush_of_the_file() {
        let pages = 4096 + 200;
        let device = Faulty::new(pages * 4096);
        let pool = Pool::new(64 << 20).unwrap();
        let medium = map_device(Box::new(device), &pool.share(64 << 20).unwrap()).unwrap();
        // Pages that are written together are lost together: page 0 is in another transfer.
        device.set(|faults| faults.writes.extend(16..pages));
        (0..pages).for_each(|page| medium.place(at(page), &[1; PAGE]).unwrap());
        assert_eq!(medium.write_back(at(16), (pages - 16) * 4096), Err(MediumError::MediaIo(5)));
        // The thread that writes back may still be at some of them: it ends each.
        let ended = (0..1 << 16).any(|_| {
            thread::yield_now();
            medium.persist(0, 4096) == Err(MediumError::Poisoned)
        });
        assert!(ended, "page 0 is in the file, and no flush says so any more");
    }

    #[test]
    fn a_failed_flush_is_the_answer_to_every_later_persist() {
        let (device, medium) = rig();
        medium.place(0, b"abc").unwrap();
        device.set(|faults| faults.flush = true);
        assert_eq!(medium.persist(0, 3), Err(MediumError::Poisoned));
        device.set(|faults| faults.flush = false);
        assert_eq!(medium.persist(at(9), 3), Err(MediumError::Poisoned));
        assert_eq!(medium.try_persist(0, 3), Err(MediumError::Poisoned));
    }

    #[test]
    fn short_reads_and_writes_go_on_where_they_stopped() {
        let (device, medium) = rig();
        device.set(|faults| faults.short = Some(1000));
        medium.place(at(3) + 10, b"middle").unwrap();
        medium.persist(at(3), 4096).unwrap();
        assert_eq!(device.bytes(at(3) + 10, 6), b"middle");
        let mut out = [9; 3 * PAGE];
        medium.read(at(2), &mut out).unwrap();
        assert_eq!(&out[PAGE + 10..PAGE + 16], b"middle");
    }

    #[test]
    fn a_read_that_waits_for_its_page_delays_no_access_to_others() {
        let (device, medium) = rig();
        medium.place(at(1), &[1; PAGE]).unwrap();
        device.set(|faults| faults.is_held = true);
        let waiting = {
            let medium = Arc::clone(&medium);
            thread::spawn(move || medium.read(at(5), &mut [0; PAGE]))
        };
        device.until_held(1);
        let mut out = [0; PAGE];
        assert_eq!(medium.try_read(at(1), &mut out), Ok(()));
        assert_eq!(medium.try_place(at(1) + 8, b"x"), Ok(()));
        assert_eq!(medium.try_read(at(5), &mut out), Err(MediumError::WouldBlock));
        // Waiting forms of others wait for their own pages only.
        assert_eq!(medium.place(at(6), &[6; PAGE]), Ok(()));
        assert_eq!(medium.persist(at(6), 4096), Ok(()));
        assert!(!waiting.is_finished());
        device.set(|faults| faults.is_held = false);
        assert_eq!(waiting.join().unwrap(), Ok(()));
    }

    #[test]
    fn readers_of_one_missing_page_share_one_read() {
        let (device, medium) = rig();
        device.set(|faults| faults.is_held = true);
        let readers: Vec<_> = (0..8)
            .map(|_| {
                let medium = Arc::clone(&medium);
                thread::spawn(move || medium.read(at(5), &mut [0; PAGE]))
            })
            .collect();
        device.until_held(1);
        device.set(|faults| faults.is_held = false);
        assert!(readers.into_iter().all(|reader| reader.join().unwrap() == Ok(())));
        assert_eq!(device.faults.lock().unwrap().read_calls, 1);
    }

    #[test]
    fn a_placement_that_outruns_the_device_waits_for_it() {
        let (device, medium) = rig();
        // Eight times the budget: at no time is more than the budget in memory.
        for page in 0..LEN / 4096 {
            medium.place(at(page), &[u8::try_from(page % 251).unwrap(); PAGE]).unwrap();
        }
        medium.persist(0, LEN).unwrap();
        for page in 0..LEN / 4096 {
            assert_eq!(u64::from(device.bytes(at(page), 1)[0]), page % 251);
        }
        let stats = medium.file().stats();
        assert_eq!(stats.dirty, 0);
    }

    #[test]
    fn pages_without_a_frame_are_read_past_the_budget() {
        let (device, medium) = rig();
        // All frames are in use: half the budget may be dirty, so the rest is held by reads under way.
        device.set(|faults| faults.is_held = true);
        let frames = (1 << 20) / (4096 + 64);
        let readers: Vec<_> = (0..frames / 16 + 2)
            .map(|run| {
                let medium = Arc::clone(&medium);
                thread::spawn(move || medium.read(at(run * 16), &mut [0; 16 * PAGE]))
            })
            .collect();
        device.until_held(usize::try_from(frames / 16 + 2).unwrap());
        device.set(|faults| faults.is_held = false);
        assert!(readers.into_iter().all(|reader| reader.join().unwrap() == Ok(())));
    }
}
