//! Many threads at once: no sector is torn, and no write is lost.

use std::thread;

use block::{BlockDevice, Survives};
use volume::{Format, check};

use crate::fixture::{SMALL, made, open};

/// A sector that names its version in each word.
fn stamped(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(64)
}

fn version_of(bytes: &[u8]) -> Option<u64> {
    let (words, _) = bytes.as_chunks::<8>();
    let first = words[0];
    words.iter().all(|word| *word == first).then(|| u64::from_le_bytes(first))
}

#[test]
fn readers_of_a_sector_that_is_written_all_the_time_see_whole_versions_in_order() {
    // Two lanes: each freed block is used again at once.
    let medium = made(64 << 10, Format { lanes: 2, ..SMALL });
    let volume = open(&medium);
    let last = 20_000;
    thread::scope(|scope| {
        scope.spawn(|| {
            for version in 1..=last {
                volume.write(0, &stamped(version), Survives::Durable).unwrap();
            }
        });
        for _ in 0..3 {
            scope.spawn(|| {
                let (mut bytes, mut before) = (vec![0; 512], 0);
                while before < last {
                    volume.read(0, &mut bytes).unwrap();
                    let version = version_of(&bytes).expect("a torn sector");
                    assert!(version >= before, "version {version} after {before}");
                    before = version;
                    thread::yield_now();
                }
            });
        }
    });
    assert!(check(&medium).unwrap().is_whole());
}

#[test]
fn writers_of_one_sector_leave_the_volume_whole() {
    let medium = made(64 << 10, SMALL);
    let volume = open(&medium);
    thread::scope(|scope| {
        for writer in 0..4_u64 {
            let volume = &volume;
            scope.spawn(move || {
                for version in 0..2000 {
                    let bytes = stamped(writer << 32 | version);
                    volume.write(version % 3 * 512, &bytes, Survives::Durable).unwrap();
                }
            });
        }
    });
    let mut bytes = vec![0; 512];
    for sector in 0..3 {
        volume.read(sector * 512, &mut bytes).unwrap();
        let version = version_of(&bytes).expect("a torn sector") & 0xffff_ffff;
        assert!(version >= 1997, "some writer's last version: {version}");
    }
    let report = check(&medium).unwrap();
    assert!(report.is_whole() && report.normal == 3, "{report:?}");
}

#[test]
fn writers_of_neighbouring_sectors_keep_each_others_map_entries() {
    let medium = made(64 << 10, SMALL);
    let volume = open(&medium);
    thread::scope(|scope| {
        for writer in 0..4_u64 {
            let volume = &volume;
            scope.spawn(move || {
                let mut bytes = vec![0; 512];
                for version in 1..2000 {
                    volume.write(writer * 512, &stamped(version), Survives::Durable).unwrap();
                    volume.read(writer * 512, &mut bytes).unwrap();
                    assert_eq!(version_of(&bytes), Some(version));
                }
            });
        }
    });
    assert!(check(&medium).unwrap().is_whole());
}
