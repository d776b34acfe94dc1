//! Sparse files: only reserved or written pages take blocks, a range takes address space for itself, and a full file
//! system is an error.

mod common;
#[cfg(test)]
#[path = "../../../tests/skipped.rs"]
mod skipped;

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions as Options};
    use std::io::Write;
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::path::Path;
    use std::process::Command;

    use pmem::{AtomicOp, MediumError, OpenOptions, map_file, map_range};
    use rustix::fs::FallocateFlags;

    use super::common::volatile_file;
    use super::skipped::skip;

    const PAGE: u64 = 4096;
    const LEN: u64 = 128 << 10;
    const EMULATED: OpenOptions = OpenOptions { emulate_persistence: true };
    const NO_ROOM: MediumError = MediumError::MediaIo(libc::ENOSPC);
    /// The environment variable with the path of the small file system, for the child process.
    const ROOM: &str = "LANDFAST_TEST_SMALL_FILE_SYSTEM";

    fn reserve(file: &File, offset: u64, len: u64) {
        rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, offset, len).unwrap();
    }

    fn bytes_taken(file: &File) -> u64 {
        file.metadata().unwrap().blocks() * 512
    }

    #[test]
    fn a_placement_in_a_reserved_page_takes_no_other_page() {
        let file = volatile_file(LEN);
        reserve(&file, LEN - PAGE, PAGE);
        let medium = map_range(&file, LEN - PAGE..LEN, EMULATED).unwrap();
        medium.place(LEN - PAGE, &[7; 4096]).unwrap();
        medium.persist(LEN - PAGE, PAGE).unwrap();
        assert_eq!(bytes_taken(&file), PAGE);
        medium.try_place(LEN - PAGE, &[8; 4096]).expect("it is known to be there");
    }

    #[test]
    fn a_placement_before_the_mapped_range_is_out_of_bounds() {
        let file = volatile_file(LEN);
        reserve(&file, LEN - PAGE, PAGE);
        let medium = map_range(&file, LEN - PAGE..LEN, EMULATED).unwrap();
        assert_eq!(medium.len(), LEN);
        for (offset, len) in [(0, 1), (LEN - PAGE - 1, 2), (0, 0), (LEN, 1)] {
            let refused = MediumError::OutOfBounds { offset, len, limit: LEN };
            let mut bytes = vec![1; usize::try_from(len).unwrap()];
            assert_eq!(medium.place(offset, &bytes), Err(refused));
            assert_eq!(medium.try_place(offset, &bytes), Err(refused));
            assert_eq!(medium.try_place_part(offset, &bytes), Err(refused));
            assert_eq!(medium.read(offset, &mut bytes), Err(refused));
            assert_eq!(medium.try_read(offset, &mut bytes), Err(refused));
            assert_eq!(medium.persist(offset, len), Err(refused));
            assert_eq!(medium.persist_foreign(offset, len), Err(refused));
            assert_eq!(medium.prepare(offset, len), Err(refused));
        }
        let word = LEN - PAGE - 8;
        let refused = Err(MediumError::OutOfBounds { offset: word, len: 8, limit: LEN });
        assert_eq!(medium.atomic(word, AtomicOp::Store(1)), refused);
        assert_eq!(medium.try_atomic(word, AtomicOp::Store(1)), refused);
        assert_eq!(bytes_taken(&file), PAGE);
    }

    #[test]
    fn a_range_at_the_end_of_a_long_file_takes_address_space_for_itself_alone() {
        const LONG: u64 = 1 << 46;
        let file = volatile_file(LONG);
        let media: Vec<_> = (0..4)
            .map(|at| {
                let from = LONG - (at + 1) * PAGE - 7;
                let medium = map_range(&file, from..from + PAGE, EMULATED).unwrap();
                let byte = u8::try_from(at).unwrap() + 1;
                medium.place(from + 1, &[byte; 100]).unwrap();
                (from, byte, medium)
            })
            .collect();
        for (from, byte, medium) in media {
            let (mut read, mut through_file) = ([0; 100], [0; 100]);
            medium.read(from + 1, &mut read).unwrap();
            file.read_exact_at(&mut through_file, from + 1).unwrap();
            assert_eq!((read, through_file), ([byte; 100], [byte; 100]));
        }
    }

    #[test]
    fn a_full_file_system_refuses_holes_and_accepts_reserved_pages() {
        let folder = tempfile::tempdir().unwrap();
        let script = r#"mount -t tmpfs -o size=256k none "$1" && exec "$2" --exact --ignored "$3""#;
        let mut child = Command::new("unshare");
        child.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]);
        child.arg(folder.path()).arg(std::env::current_exe().unwrap());
        child.arg("tests::child_that_fills_a_small_file_system").env(ROOM, folder.path());
        match child.output() {
            Ok(output) if output.status.success() => {}
            Ok(output) if String::from_utf8_lossy(&output.stdout).contains("panicked") => {
                panic!("{}", String::from_utf8_lossy(&output.stdout));
            }
            // This machine lets the test mount no file system.
            _ => skip("unshare(1) and mount(8) cannot make a small file system"),
        }
    }

    #[test]
    #[ignore = "fills a file system; the test above runs it where it has one of its own"]
    fn child_that_fills_a_small_file_system() {
        let Some(folder) = std::env::var_os(ROOM) else { return };
        let folder = Path::new(&folder);
        let mut options = Options::new();
        options.read(true).write(true).create_new(true);
        let file = options.open(folder.join("file")).unwrap();
        file.set_len(LEN).unwrap();
        reserve(&file, LEN - PAGE, PAGE);
        let mut filler = File::create(folder.join("filler")).unwrap();
        while filler.write_all(&[1; 4096]).is_ok() {}
        let outside = MediumError::OutOfBounds { offset: 0, len: PAGE, limit: LEN };
        for (medium, refused) in [
            (map_file(&file, LEN, EMULATED).unwrap(), NO_ROOM),
            (map_range(&file, LEN - PAGE..LEN, EMULATED).unwrap(), outside),
        ] {
            assert_eq!(medium.place(LEN - PAGE, &[7; 4096]), Ok(()));
            assert_eq!(medium.place(0, &[7; 4096]), Err(refused), "a hole");
            assert_eq!(medium.place(LEN - PAGE, &[8; 4096]), Ok(()), "the error is not for good");
            assert_eq!(medium.persist(LEN - PAGE, PAGE), Ok(()));
        }
    }
}
