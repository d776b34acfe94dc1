//! redb on logged files and in memory, against a model, with crashes.

#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use logged::{LocalBase, Logged, Members, Options, Place};
use pmem::LocalMemory;
use proptest::prelude::*;
use redb::{Builder, Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use redb_backend::{LoggedBackend, MemoryBackend};

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("t");

fn logged(dir: &Path) -> Database {
    let members = Members {
        places: vec![Place::Local(dir.join("log"))],
        len: 1 << 20,
        emulate_persistence: true,
        given_up: logged::MemberSet::default(),
    };
    let base = Arc::new(LocalBase::open(&dir.join("db")).unwrap());
    let side = Arc::new(LocalBase::open(&dir.join("side")).unwrap());
    let file = Logged::open(base, side, &members, &Options::default()).unwrap();
    Builder::new().create_with_backend(LoggedBackend::new(file)).unwrap()
}

fn in_memory(dir: &Path) -> Database {
    let path = dir.join("memory");
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap();
    file.set_len(32 << 20).unwrap();
    let emulated = pmem::OpenOptions { emulate_persistence: true };
    let medium = pmem::map_file(&file, 32 << 20, emulated).unwrap();
    let memory = LocalMemory::new(medium, 0..32 << 20).unwrap();
    Builder::new().create_with_backend(MemoryBackend::open(memory).unwrap()).unwrap()
}

fn contents(database: &Database) -> BTreeMap<u64, Vec<u8>> {
    let read = database.begin_read().unwrap();
    match read.open_table(TABLE) {
        Ok(table) => table
            .iter()
            .unwrap()
            .map(|row| row.unwrap())
            .map(|(key, value)| (key.value(), value.value().to_vec()))
            .collect(),
        Err(_) => BTreeMap::new(),
    }
}

/// What a program does; a crash forgets the process's state and keeps what it had given to files and log.
#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<(u64, Option<Vec<u8>>)>),
    Abort(u64),
    Crash,
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value = prop::option::of(prop::collection::vec(any::<u8>(), 0..3000));
    let commit = prop::collection::vec((0_u64..50, value), 1..12).prop_map(Step::Commit);
    prop::collection::vec(
        prop_oneof![8 => commit, 1 => (0_u64..50).prop_map(Step::Abort), 1 => Just(Step::Crash), 1 => Just(Step::Close)],
        1..40,
    )
}

fn run(open: fn(&Path) -> Database, steps: &[Step]) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut at = dir.path().to_owned();
    let mut database = open(&at);
    let mut model = BTreeMap::new();
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Commit(rows) => {
                let write = database.begin_write().unwrap();
                {
                    let mut table = write.open_table(TABLE).unwrap();
                    for (key, value) in rows {
                        match value {
                            Some(value) => {
                                table.insert(key, value.as_slice()).unwrap();
                                model.insert(*key, value.clone());
                            }
                            None => {
                                table.remove(key).unwrap();
                                model.remove(key);
                            }
                        }
                    }
                }
                write.commit().unwrap();
            }
            Step::Abort(key) => {
                let write = database.begin_write().unwrap();
                write.open_table(TABLE).unwrap().insert(key, &b"never"[..]).unwrap();
                write.abort().unwrap();
            }
            // The files as they are now are what a killed process leaves: the rest was in its memory.
            Step::Crash => {
                let image = dir.path().join(format!("image{number}"));
                std::fs::create_dir(&image).unwrap();
                for entry in std::fs::read_dir(&at).unwrap().map(Result::unwrap) {
                    if entry.file_type().unwrap().is_file() {
                        std::fs::copy(entry.path(), image.join(entry.file_name())).unwrap();
                    }
                }
                at = image;
                drop(database);
                database = open(&at);
            }
            Step::Close => {
                drop(database);
                database = open(&at);
            }
        }
        assert_eq!(contents(&database), model, "after step {number}");
    }
    assert!(database.check_integrity().unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn redb_on_a_logged_file_is_as_the_model_after_crashes(steps in steps()) {
        run(logged, &steps);
    }

    #[test]
    fn redb_in_memory_is_as_the_model_after_crashes(steps in steps()) {
        run(in_memory, &steps);
    }
}

fn image_of(directory: &Path) -> tempfile::TempDir {
    let image = tempfile::tempdir_in("/dev/shm").unwrap();
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), image.path().join(entry.file_name())).unwrap();
    }
    image
}

#[test]
fn a_crashed_database_is_its_destaged_file_and_the_tail_of_its_log() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let database = logged(dir.path());
    let mut model = BTreeMap::new();
    let mut written = 0;
    for number in 0..400_u64 {
        let value = vec![u8::try_from(number % 251).unwrap(); 9000];
        let write = database.begin_write().unwrap();
        write.open_table(TABLE).unwrap().insert(number % 40, value.as_slice()).unwrap();
        write.commit().unwrap();
        written += value.len();
        model.insert(number % 40, value);
        if number % 57 == 56 {
            let image = image_of(dir.path());
            let destaged = std::fs::metadata(image.path().join("db")).unwrap().len();
            assert!(number < 200 || destaged > 0, "nothing was destaged after {number}");
            let mut again = logged(image.path());
            assert_eq!(contents(&again), model, "after transaction {number}");
            assert!(again.check_integrity().unwrap());
        }
    }
    // More than the log holds: without the destaged file nothing would be left of it.
    assert!(written > 3 << 20);
}

#[test]
fn a_closed_database_needs_no_log_and_a_crashed_one_does() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let put = |database: &Database, key: u64| {
        let write = database.begin_write().unwrap();
        write.open_table(TABLE).unwrap().insert(key, &b"row"[..]).unwrap();
        write.commit().unwrap();
    };
    let database = logged(dir.path());
    put(&database, 1);
    drop(database);
    std::fs::remove_file(dir.path().join("log")).unwrap();
    let database = logged(dir.path());
    put(&database, 2);
    let image = tempfile::tempdir_in("/dev/shm").unwrap();
    for name in ["db", "side"] {
        std::fs::copy(dir.path().join(name), image.path().join(name)).unwrap();
    }
    let members = Members {
        places: vec![Place::Local(image.path().join("log"))],
        len: 1 << 20,
        emulate_persistence: true,
        given_up: logged::MemberSet::default(),
    };
    let base = Arc::new(LocalBase::open(&image.path().join("db")).unwrap());
    let side = Arc::new(LocalBase::open(&image.path().join("side")).unwrap());
    let refused = Logged::open(base, side, &members, &Options::default()).unwrap_err();
    assert!(refused.to_string().contains("a log that is not there"), "{refused}");
}
