//! Checks the promises of each class of medium, on real files.

mod common;
#[cfg(test)]
#[path = "../../../tests/skipped.rs"]
mod skipped;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::process::Command;
    use std::sync::Arc;

    use pmem::{
        AtomicOp, DurabilityClass, MapError, Medium, MediumError, OpenOptions, StoreGranularity,
        anonymous, anonymous_with, classify, is_in_memory, map_file,
    };

    use super::common::{storage_file, volatile_file};
    use super::skipped::skip;

    const LEN: u64 = 1 << 20;
    /// The environment variable with the directory of the mounts, for the child process.
    const PLACE: &str = "LANDFAST_TEST_MOUNTS";
    const EMULATED: OpenOptions = OpenOptions { emulate_persistence: true };

    fn open(file: &File) -> Arc<dyn Medium> {
        map_file(file, LEN, OpenOptions::default()).unwrap()
    }

    /// Every medium this machine can offer, with its name for the messages.
    fn every_medium() -> Vec<(&'static str, Arc<dyn Medium>)> {
        vec![
            ("tmpfs", open(&volatile_file(LEN))),
            ("emulated", map_file(&volatile_file(LEN), LEN, EMULATED).unwrap()),
            ("storage", open(&storage_file(LEN))),
            ("anonymous", anonymous(LEN).unwrap()),
        ]
    }

    #[test]
    fn a_file_gets_the_class_of_its_file_system() {
        assert_eq!(classify(&volatile_file(1)), Ok(DurabilityClass::Volatile));
        assert_eq!(classify(&storage_file(1)), Ok(DurabilityClass::Storage));
        assert_eq!(classify(&storage_file(0)), Ok(DurabilityClass::Storage));
        assert_eq!(open(&volatile_file(LEN)).class(), DurabilityClass::Volatile);
        assert_eq!(open(&storage_file(LEN)).class(), DurabilityClass::Storage);
        assert_eq!(open(&storage_file(LEN)).store_granularity(), StoreGranularity::Page);
    }

    /// Runs the script with mounts of its own, in an empty directory on the disk, and then a test of this program there.
    /// False: this machine lets nobody mount what the script wants.
    fn ran_there(script: &str, test: &str) -> bool {
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let script =
            format!(r#"cd "$1" && ({script}) >&2 || exit 77; exec "$2" --exact --ignored "$3""#);
        let mut child = Command::new("unshare");
        child.args(["--mount", "sh", "-c", &script, "sh"]).arg(place.path());
        child.arg(std::env::current_exe().unwrap()).arg(test).env(PLACE, place.path());
        match child.output() {
            Ok(output) if output.status.success() => true,
            Ok(output) if String::from_utf8_lossy(&output.stdout).contains("panicked") => {
                panic!("{}", String::from_utf8_lossy(&output.stdout));
            }
            _ => false,
        }
    }

    fn class_of(name: &str) -> DurabilityClass {
        let place = std::env::var_os(PLACE).unwrap();
        let path = Path::new(&place).join(name);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.unwrap();
        file.set_len(1).unwrap();
        let class = classify(&file).unwrap();
        assert_eq!(is_in_memory(&file), class == DurabilityClass::Volatile, "{name}");
        class
    }

    #[test]
    fn a_file_system_over_memory_has_the_class_of_memory() {
        const OVERLAYS: &str = "mkdir memory disk volatile over lower v w x w2 && mount -t tmpfs none memory \
            && mkdir memory/u memory/w && mount -t overlay -o lowerdir=$PWD/lower,upperdir=$PWD/memory/u,workdir=$PWD/memory/w none over \
            && mount -t overlay -o lowerdir=$PWD/lower,upperdir=$PWD/v,workdir=$PWD/w,volatile none volatile \
            && mount -t overlay -o lowerdir=$PWD/lower,upperdir=$PWD/x,workdir=$PWD/w2 none disk";
        const LOOP: &str = "mkdir memory over && mount -t tmpfs none memory && truncate -s 16M memory/image disk-image \
            && mkfs.ext4 -q -F memory/image && mount -o loop memory/image over \
            && mkdir disk && mkfs.ext4 -q -F disk-image && mount -o loop disk-image disk";
        for (script, child) in [
            (OVERLAYS, "tests::child_that_looks_at_overlays"),
            (LOOP, "tests::child_that_looks_at_loop_devices"),
        ] {
            if !ran_there(script, child) {
                skip(format!("{child}: no rights, or no such file systems"));
            }
        }
    }

    #[test]
    #[ignore = "looks at mounts; the test above makes them"]
    fn child_that_looks_at_overlays() {
        assert_eq!(class_of("over/file"), DurabilityClass::Volatile);
        assert_eq!(class_of("volatile/file"), DurabilityClass::Volatile, "its fsync does nothing");
        assert_eq!(class_of("disk/file"), DurabilityClass::Storage);
    }

    #[test]
    #[ignore = "looks at mounts; the test above makes them"]
    fn child_that_looks_at_loop_devices() {
        assert_eq!(class_of("over/file"), DurabilityClass::Volatile);
        assert_eq!(class_of("disk/file"), DurabilityClass::Storage);
    }

    #[test]
    fn a_null_device_and_a_directory_have_no_class() {
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        assert_eq!(classify(&null), Err(MapError::ConfigNotMappable));
        let folder = File::open("/dev/shm").unwrap();
        assert_eq!(classify(&folder), Err(MapError::ConfigNotMappable));
    }

    #[test]
    fn a_medium_longer_than_its_file_is_refused() {
        let wanted = Err(MapError::ConfigBeyondEnd { len: 101, size: 100 });
        for file in [volatile_file(100), storage_file(100)] {
            assert_eq!(map_file(&file, 101, OpenOptions::default()).map(|_| ()), wanted);
        }
    }

    #[test]
    fn placed_bytes_are_read_back_at_every_size_and_alignment() {
        for (name, medium) in every_medium() {
            for len in [0, 1, 7, 8, 63, 64, 255, 256, 257, 320, 4096, 65_537_usize] {
                for offset in [0, 1, 8, 61, 64, 65_530_u64] {
                    let bytes: Vec<u8> =
                        (0..len).map(|n| u8::try_from(n % 251).unwrap() ^ 0x5a).collect();
                    medium.place(offset + 64, &vec![0xee; len]).unwrap();
                    medium.place(offset, &bytes).unwrap();
                    let mut out = vec![0; len];
                    medium.read(offset, &mut out).unwrap();
                    assert!(out == bytes, "{name}: {len} bytes at {offset}");
                }
            }
        }
    }

    #[test]
    fn placed_bytes_are_visible_to_every_other_reader_of_the_file() {
        for file in [volatile_file(LEN), storage_file(LEN)] {
            open(&file).place(4090, b"across a page").unwrap();
            let mut out = [0; 13];
            file.read_exact_at(&mut out, 4090).unwrap();
            assert_eq!(&out, b"across a page");
        }
    }

    #[test]
    fn persist_on_volatile_memory_is_refused_and_emulated_only_on_request() {
        for medium in [open(&volatile_file(LEN)), anonymous(LEN).unwrap()] {
            assert_eq!(medium.persist(0, 1), Err(MediumError::VolatileRefused));
            assert_eq!(medium.try_persist(0, 1), Err(MediumError::VolatileRefused));
            assert!(!medium.is_emulated());
        }
        let emulated = map_file(&volatile_file(LEN), LEN, EMULATED).unwrap();
        for medium in [emulated, anonymous_with(LEN, EMULATED).unwrap()] {
            assert_eq!(medium.try_persist(0, LEN), Ok(()));
            assert!(medium.is_emulated());
            assert_eq!(medium.class(), DurabilityClass::Volatile, "it says what it is");
        }
    }

    #[test]
    fn storage_persists_only_where_it_may_wait() {
        let medium = map_file(&storage_file(LEN), LEN, EMULATED).unwrap();
        medium.place(0, b"durable").unwrap();
        assert_eq!(medium.try_persist(0, 7), Err(MediumError::WouldBlock));
        assert_eq!(medium.persist(0, 7), Ok(()));
        assert_eq!(medium.try_place(0, b"x"), Err(MediumError::WouldBlock));
        let op = AtomicOp::Store(1);
        assert_eq!(medium.try_atomic(0, op), Err(MediumError::WouldBlock));
        let mut out = [0; 7];
        assert_eq!(medium.try_read(0, &mut out), Ok(()), "just written, so it is cached");
        assert_eq!(&out, b"durable");
        assert!(!medium.is_emulated(), "there is nothing to emulate");
    }

    #[test]
    fn an_absent_chunk_is_not_touched_until_it_is_prepared() {
        let medium = open(&volatile_file(LEN));
        let mut out = [0; 8];
        assert_eq!(medium.try_place(70_000, b"x"), Err(MediumError::WouldBlock));
        assert_eq!(medium.try_read(70_000, &mut out), Err(MediumError::WouldBlock));
        medium.read(70_000, &mut out).unwrap();
        assert_eq!(medium.try_read(70_000, &mut out), Ok(()));
        assert_eq!(medium.try_place(70_000, b"x"), Err(MediumError::WouldBlock), "read only");
        medium.prepare(65_536, 65_536).unwrap();
        assert_eq!(medium.try_place(65_536, &[7; 65_536]), Ok(()));
        assert_eq!(medium.try_place(65_535, b"xx"), Err(MediumError::WouldBlock), "half absent");
        assert_eq!(medium.try_atomic(131_064, AtomicOp::Store(5)), Ok(0x0707_0707_0707_0707));
    }

    #[test]
    fn atomic_operations_replace_exactly_their_word() {
        for (name, medium) in every_medium() {
            medium.place(0, &[0; 24]).unwrap();
            let add = AtomicOp::FetchAdd { add: 5, mask: 0 };
            let swap = |compare| AtomicOp::CompareSwap {
                compare,
                compare_mask: u64::MAX,
                swap: u64::MAX,
                swap_mask: u64::MAX,
            };
            assert_eq!(medium.atomic(8, AtomicOp::Store(37)), Ok(0), "{name}");
            assert_eq!(medium.atomic(8, add), Ok(37), "{name}");
            assert_eq!(medium.atomic(8, swap(41)), Ok(42), "{name}");
            assert_eq!(medium.atomic(8, swap(42)), Ok(42), "{name}");
            let mut out = [1; 24];
            medium.read(0, &mut out).unwrap();
            assert_eq!(out, *b"\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0");
            let misaligned = Err(MediumError::Misaligned { offset: 12 });
            assert_eq!(medium.atomic(12, add), misaligned, "{name}");
        }
    }

    #[test]
    fn concurrent_additions_are_all_counted() {
        for (name, medium) in every_medium() {
            let add = AtomicOp::FetchAdd { add: 1, mask: 0 };
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..250 {
                            medium.atomic(64, add).unwrap();
                        }
                    });
                }
            });
            assert_eq!(medium.atomic(64, AtomicOp::Store(0)), Ok(1000), "{name}");
        }
    }

    #[test]
    fn storage_names_the_file_and_device_it_waits_for_and_memory_none() {
        let file = storage_file(LEN);
        let (one, same, other) = (open(&file), open(&file), open(&storage_file(LEN)));
        let backing = |medium: &Arc<dyn Medium>| medium.backing().unwrap();
        assert_eq!(backing(&one), backing(&same));
        assert_eq!(backing(&one).device, backing(&other).device);
        assert_ne!(backing(&one).file, backing(&other).file);
        assert_eq!(open(&volatile_file(LEN)).backing(), None);
        assert_eq!(anonymous(LEN).unwrap().backing(), None);
    }

    #[test]
    fn atomic_additions_through_two_media_of_one_storage_file_add_up() {
        let file = storage_file(LEN);
        let media = [open(&file), open(&file)];
        let add = AtomicOp::FetchAdd { add: 1, mask: 0 };
        std::thread::scope(|scope| {
            for medium in &media {
                scope.spawn(|| {
                    for _ in 0..250 {
                        medium.atomic(0, add).unwrap();
                    }
                });
            }
        });
        assert_eq!(media[0].atomic(0, AtomicOp::Store(0)), Ok(500));
    }

    #[test]
    fn no_operation_reaches_past_the_end_of_a_medium() {
        for (name, medium) in every_medium() {
            for (offset, len) in [(LEN, 1), (LEN - 1, 2), (u64::MAX, 1), (u64::MAX - 7, 8)] {
                let refused = MediumError::OutOfBounds { offset, len, limit: LEN };
                let mut bytes = vec![0; usize::try_from(len).unwrap()];
                assert_eq!(medium.try_place(offset, &bytes), Err(refused), "{name}");
                assert_eq!(medium.place(offset, &bytes), Err(refused), "{name}");
                assert_eq!(medium.try_read(offset, &mut bytes), Err(refused), "{name}");
                assert_eq!(medium.read(offset, &mut bytes), Err(refused), "{name}");
                assert_eq!(medium.try_persist(offset, len), Err(refused), "{name}");
                assert_eq!(medium.persist(offset, len), Err(refused), "{name}");
                assert_eq!(medium.prepare(offset, len), Err(refused), "{name}");
            }
            let refused = Err(MediumError::OutOfBounds { offset: LEN, len: 8, limit: LEN });
            assert_eq!(medium.atomic(LEN, AtomicOp::Store(1)), refused, "{name}");
            assert_eq!(medium.try_atomic(LEN, AtomicOp::Store(1)), refused, "{name}");
            assert_eq!(medium.place(LEN, &[]), Ok(()), "{name}: nothing fits anywhere");
        }
    }

    #[test]
    fn a_medium_of_a_file_opened_for_reading_refuses_placement() {
        for parent in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
            let named = tempfile::NamedTempFile::new_in(parent).unwrap();
            named.as_file().set_len(LEN).unwrap();
            named.as_file().write_all_at(b"here", 0).unwrap();
            let medium = open(&File::open(named.path()).unwrap());
            let mut out = [0; 4];
            medium.read(0, &mut out).unwrap();
            assert_eq!(&out, b"here");
            medium.prepare(0, LEN).unwrap();
            assert_eq!(medium.place(0, b"x"), Err(MediumError::ReadOnly));
            assert_eq!(medium.try_place(0, b"x"), Err(MediumError::ReadOnly));
            assert_eq!(medium.atomic(0, AtomicOp::Store(1)), Err(MediumError::ReadOnly));
        }
    }

    #[test]
    fn a_file_open_for_writing_only_is_refused() {
        let named = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        let file = File::options().write(true).open(named.path()).unwrap();
        let refused = map_file(&file, 0, OpenOptions::default()).map(|_| ());
        assert_eq!(refused, Err(MapError::ConfigNotReadable));
    }

    #[test]
    fn an_empty_medium_opens_and_holds_nothing() {
        for file in [volatile_file(0), storage_file(0)] {
            let medium = map_file(&file, 0, EMULATED).unwrap();
            assert!(medium.is_empty());
            assert_eq!(medium.place(0, &[]), Ok(()));
            assert_eq!(medium.read(0, &mut []), Ok(()));
            assert_eq!(medium.prepare(0, 0), Ok(()));
            assert_eq!(medium.persist(0, 0), Ok(()));
        }
    }

    #[test]
    fn a_terabyte_opens_like_a_page() {
        let file = volatile_file(1 << 40);
        let medium = map_file(&file, 1 << 40, OpenOptions::default()).unwrap();
        medium.place((1 << 40) - 3, b"end").unwrap();
        assert_eq!(medium.try_place((1 << 40) - 3, b"END"), Ok(()));
    }

    #[test]
    fn a_medium_in_memory_shows_its_memory_to_devices_and_storage_has_none() {
        for (name, medium) in every_medium() {
            let shown = medium.direct().map(|memory| (memory.len(), memory.is_empty()));
            let expected = (name != "storage").then_some((1 << 20, false));
            assert_eq!(shown, expected, "{name}");
        }
    }

    #[test]
    fn the_length_of_a_file_is_what_can_be_mapped_of_it() {
        for file in [volatile_file(4097), storage_file(4097)] {
            assert_eq!(pmem::length(&file), Ok(4097));
        }
    }

    #[test]
    fn anonymous_memory_is_there_at_once() {
        for medium in [anonymous(LEN).unwrap(), anonymous_with(LEN, EMULATED).unwrap()] {
            let bytes: Vec<u8> = (0..4096_u32).map(|n| n.to_le_bytes()[0]).collect();
            medium.try_place(61, &bytes).expect("nothing to wait for");
            let mut out = vec![0; 4096];
            medium.try_read(61, &mut out).unwrap();
            assert_eq!(out, bytes);
            assert_eq!(medium.try_atomic(8192, AtomicOp::Store(1)), Ok(0));
        }
    }
}
