//! Budgets of regions, a faster directory below the memory, and devices that hang beside devices that work.

#[cfg(test)]
mod support;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use flash::{FlashMedium, Pool, Tier, map_device};
    use pmem::Medium as _;

    use super::support::{Faulty, On};

    const PAGE: usize = 4096;
    const MIB: u64 = 1 << 20;

    fn at(page: u64) -> u64 {
        page * 4096
    }

    fn read_all(medium: &FlashMedium, pages: std::ops::Range<u64>) {
        pages.for_each(|page| medium.read(at(page), &mut [0; PAGE]).unwrap());
    }

    #[test]
    fn a_region_with_a_budget_leaves_the_memory_of_its_share_to_others() {
        let pool = Pool::new(8 * MIB).unwrap();
        let share = pool.share(8 * MIB).unwrap().with_region_budget(MIB).unwrap();
        let of = |pages: u64| map_device(Box::new(Faulty::new(at(pages))), &share).unwrap();
        let (small, large) = (of(200), of(4000));
        read_all(&small, 0..200);
        // Used twice, so that only the budget keeps the large one away.
        (0..2).for_each(|_| read_all(&large, 0..4000));
        assert!(pool.stats().resident <= MIB + at(200), "{:?}", pool.stats());
        let mut out = [0; PAGE];
        assert!((0..200).all(|page| small.try_read(at(page), &mut out).is_ok()));
        // A share without such a budget gives one file all of it.
        let share = pool.share(8 * MIB).unwrap();
        let large = map_device(Box::new(Faulty::new(at(4000))), &share).unwrap();
        read_all(&large, 0..4000);
        assert!(pool.stats().resident > 7 * MIB, "{:?}", pool.stats());
    }

    #[test]
    fn regions_with_budgets_take_no_more_than_their_share_together() {
        let pool = Pool::new(8 * MIB).unwrap();
        let share = pool.share(2 * MIB).unwrap().with_region_budget(MIB).unwrap();
        let media: Vec<_> =
            (0..5).map(|_| map_device(Box::new(Faulty::new(at(600))), &share).unwrap()).collect();
        for medium in &media {
            read_all(medium, 0..600);
            assert!(pool.stats().resident <= 2 * MIB, "{:?}", pool.stats());
        }
        let _ = pool.share(2 * MIB).unwrap().with_region_budget(4096).unwrap_err();
    }

    #[test]
    fn pages_that_left_the_memory_come_from_the_tier_and_writes_end_them_there() {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let tier = Tier::open(directory.path(), 8 * MIB).unwrap();
        let pool = Pool::new(MIB).unwrap();
        let share = pool.share(MIB).unwrap().with_tier(Arc::clone(&tier));
        let device = Faulty::new(at(1000));
        let medium = map_device(Box::new(device), &share).unwrap();
        for page in 0..1000 {
            let byte = u8::try_from(page % 251).unwrap();
            medium.place(at(page), &[byte; PAGE]).unwrap();
        }
        medium.persist(0, at(1000)).unwrap();
        let check = |page: u64, byte: u64| {
            let mut out = [0; PAGE];
            medium.read(at(page), &mut out).unwrap();
            assert!(out.iter().all(|it| u64::from(*it) == byte), "page {page}: {}", out[0]);
        };
        // What the thread of the tier had no time for is offered again with the next read.
        while tier.stats().used < 3 * MIB {
            (0..1000).for_each(|page| check(page, page % 251));
        }
        let (from_tier, calls) =
            (medium.file().stats().from_tier, device.faults.lock().unwrap().read_calls);
        (0..1000).for_each(|page| check(page, page % 251));
        let stats = medium.file().stats();
        assert!(stats.from_tier > from_tier, "{stats:?}");
        assert!(device.faults.lock().unwrap().read_calls - calls < 1000);
        for page in (0..1000).step_by(3) {
            medium.place(at(page), &[252; PAGE]).unwrap();
        }
        medium.persist(0, at(1000)).unwrap();
        for _ in 0..3 {
            (0..1000).for_each(|page| check(page, if page % 3 == 0 { 252 } else { page % 251 }));
        }
        medium.file().around(at(10), at(5), || device.zero(at(10), 5 * PAGE)).unwrap();
        (10..15).for_each(|page| check(page, 0));
        drop(medium);
        // The threads that read ahead and write back may look at the file still; it is gone once they have. Without an end
        // where something is left of it.
        while tier.stats().used > 0 {
            thread::yield_now();
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "it has no name");
    }

    #[test]
    fn a_tier_that_fails_or_is_full_costs_no_byte() {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        // Far smaller than the file: each page has to take the slot of another.
        let tier = Tier::open(directory.path(), MIB).unwrap();
        let pool = Pool::new(MIB).unwrap();
        let share = pool.share(MIB).unwrap().with_tier(Arc::clone(&tier));
        let device = Faulty::new(at(2000));
        let medium = Arc::new(map_device(Box::new(device), &share).unwrap());
        // Writers and readers of one page at a time, of which the bytes are one number.
        let workers: Vec<_> = (0..4_u64)
            .map(|worker| {
                let medium = Arc::clone(&medium);
                thread::spawn(move || {
                    let mut newest = vec![0_u8; 500];
                    let mut random = worker * 2 + 1;
                    for _ in 0..6000 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1442);
                        let own = usize::try_from((random >> 33) % 500).unwrap();
                        let page = at(u64::try_from(own).unwrap() * 4 + worker);
                        if random >> 62 == 0 {
                            newest[own] = newest[own].wrapping_add(1);
                            medium.place(page, &[newest[own]; PAGE]).unwrap();
                        } else {
                            let mut out = [0; PAGE];
                            medium.read(page, &mut out).unwrap();
                            assert!(out.iter().all(|byte| *byte == newest[own]));
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert!(tier.stats().used <= MIB && tier.stats().filled > 256, "{:?}", tier.stats());
        let _ = Tier::open(directory.path(), 4096).unwrap_err();
        let _ = Tier::open(std::path::Path::new("/nowhere"), MIB).unwrap_err();
    }

    #[test]
    fn a_device_that_hangs_keeps_no_placement_of_another_from_its_device() {
        let pool = Pool::new(4 * MIB).unwrap();
        let share = pool.share(4 * MIB).unwrap();
        let hanging = Faulty::new(at(2000));
        let working = Faulty::new(at(4000));
        let map = |device, number| map_device(Box::new(On(device, number)), &share).unwrap();
        let (stuck, medium) = (Arc::new(map(hanging, 1)), map(working, 2));
        hanging.set(|faults| faults.writes_are_held = true);
        let writer = {
            let stuck = Arc::clone(&stuck);
            // Until half of the budget is dirty for it; then it waits.
            thread::spawn(move || {
                (0..2000).for_each(|page| stuck.place(at(page), &[1; PAGE]).unwrap());
            })
        };
        while pool.stats().waits == 0 {
            thread::yield_now();
        }
        // Ten times what is left for it, and nobody flushes.
        for page in 0..4000 {
            medium.place(at(page), &[2; PAGE]).unwrap();
        }
        read_all(&medium, 0..4000);
        while medium.file().stats().dirty > 0 {
            thread::yield_now();
        }
        assert_eq!(working.bytes(at(3999), 2), [2, 2]);
        assert!(!writer.is_finished() && stuck.file().stats().dirty > MIB);
        hanging.set(|faults| faults.writes_are_held = false);
        writer.join().unwrap();
        stuck.persist(0, at(2000)).unwrap();
        assert_eq!(hanging.bytes(at(1999), 1), [1]);
    }
}
