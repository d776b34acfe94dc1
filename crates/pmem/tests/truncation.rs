//! Files that shrink under a medium: every access to a lost page is an error, and nothing worse.

mod common;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pmem::{AtomicOp, Medium, MediumError, OpenOptions, map_file};

    use super::common::{storage_file, volatile_file};

    const LEN: u64 = 1 << 20;
    const EMULATED: OpenOptions = OpenOptions { emulate_persistence: true };

    /// A medium whose pages were all present when its file was cut to `left` bytes.
    fn cut(left: u64, options: OpenOptions) -> Arc<dyn Medium> {
        let file = volatile_file(LEN);
        let medium = map_file(&file, LEN, options).unwrap();
        medium.prepare(0, LEN).unwrap();
        file.set_len(left).unwrap();
        medium
    }

    #[test]
    fn a_read_of_lost_pages_is_an_error() {
        let medium = cut(4096, OpenOptions::default());
        let mut out = vec![1; 65_536];
        assert_eq!(medium.try_read(0, &mut out[..4096]), Ok(()));
        assert_eq!(medium.try_read(8192, &mut out[..8]), Err(MediumError::Truncated));
        assert_eq!(medium.read(0, &mut out), Err(MediumError::Truncated), "for good");
    }

    #[test]
    fn a_placement_on_lost_pages_is_an_error_and_never_durable() {
        for options in [OpenOptions::default(), EMULATED] {
            for (offset, len) in [(8192, 8), (3000, 4096), (4000, 65_536)] {
                let medium = cut(4096, options);
                let bytes = vec![7; len];
                assert_eq!(medium.try_place(offset, &bytes), Err(MediumError::Truncated));
                assert_eq!(medium.place(0, b"x"), Err(MediumError::Truncated), "for good");
                if options == EMULATED {
                    assert_eq!(medium.try_persist(0, 1), Err(MediumError::Truncated));
                }
            }
        }
    }

    #[test]
    fn an_atomic_operation_on_a_lost_page_is_an_error() {
        for options in [OpenOptions::default(), EMULATED] {
            let medium = cut(0, options);
            let op = AtomicOp::FetchAdd { add: 1, mask: 0 };
            assert_eq!(medium.try_atomic(4096, op), Err(MediumError::Truncated));
        }
    }

    #[test]
    fn an_access_to_pages_lost_before_their_fetch_is_an_error() {
        let file = volatile_file(LEN);
        let medium = map_file(&file, LEN, OpenOptions::default()).unwrap();
        file.set_len(4096).unwrap();
        assert_eq!(medium.place(8192, b"x"), Err(MediumError::Truncated));
        assert_eq!(medium.read(8192, &mut [0]), Err(MediumError::Truncated));
        assert_eq!(medium.prepare(8192, 1), Err(MediumError::Truncated));
    }

    #[test]
    fn a_broken_mapping_breaks_no_other_mapping() {
        let (broken, whole) = (cut(0, EMULATED), map_file(&volatile_file(LEN), LEN, EMULATED));
        let whole = whole.unwrap();
        assert_eq!(broken.try_place(0, b"x"), Err(MediumError::Truncated));
        assert_eq!(whole.place(0, b"x"), Ok(()));
        assert_eq!(whole.persist(0, 1), Ok(()));
    }

    #[test]
    fn a_reused_slot_of_the_table_starts_healthy() {
        for _ in 0..100 {
            let medium = cut(0, EMULATED);
            assert_eq!(medium.try_place(0, b"x"), Err(MediumError::Truncated));
            drop(medium);
            let whole = map_file(&volatile_file(LEN), LEN, EMULATED).unwrap();
            assert_eq!(whole.place(0, b"x"), Ok(()));
        }
    }

    #[test]
    fn truncation_while_many_threads_copy_is_an_error_for_each_of_them() {
        let file = volatile_file(LEN);
        let medium = map_file(&file, LEN, EMULATED).unwrap();
        medium.prepare(0, LEN).unwrap();
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4_u64)
                .map(|n| {
                    let medium = &medium;
                    let bytes = vec![7; 4096];
                    // Each thread copies until it meets the lost page; nothing else ends the loop.
                    let meet = move || loop {
                        if let Err(error) = medium.try_place(n * 65_536, &bytes) {
                            return error;
                        }
                    };
                    scope.spawn(meet)
                })
                .collect();
            file.set_len(0).unwrap();
            for writer in writers {
                assert_eq!(writer.join().unwrap(), MediumError::Truncated);
            }
        });
    }

    #[test]
    fn a_placement_does_not_extend_a_storage_file_that_shrank() {
        let file = storage_file(LEN);
        let medium = map_file(&file, LEN, OpenOptions::default()).unwrap();
        file.set_len(4096).unwrap();
        assert_eq!(medium.place(8192, b"x"), Err(MediumError::Truncated));
        assert_eq!(medium.read(4095, &mut [0; 2]), Err(MediumError::Truncated));
        assert_eq!(medium.atomic(8192, AtomicOp::Store(1)), Err(MediumError::Truncated));
        assert_eq!(medium.place(0, b"x"), Ok(()), "what is left still works");
        assert_eq!(file.metadata().unwrap().len(), 4096);
    }
}
