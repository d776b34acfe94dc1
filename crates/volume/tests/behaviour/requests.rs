//! Reads, writes, zeroes, states and growth.

use std::fs::{File, OpenOptions as FileOptions};
use std::path::Path;

use block::{BlockDevice, BlockError, State, Survives, Zeroing};
use volume::{Access, Format, Volume, VolumeError, check, create};

use crate::fixture::{EMULATED, SMALL, made, medium, open};

#[test]
fn a_volume_reads_what_was_written_and_zeroes_elsewhere() {
    for sector in [512, 4096] {
        let medium = made(1 << 20, Format { sector, ..SMALL });
        let step = usize::try_from(sector).unwrap();
        let volume = open(&medium);
        assert!(volume.geometry().is_atomic && volume.geometry().block == sector);
        let bytes: Vec<u8> = (0..3 * step).map(|at| u8::try_from(at % 251).unwrap()).collect();
        volume.write(u64::from(sector), &bytes, Survives::Placed).unwrap();
        drop(volume);
        let mut found = vec![1; 5 * step];
        open(&medium).read(0, &mut found).unwrap();
        assert_eq!(found[step..4 * step], bytes);
        assert!(found[..step].iter().chain(&found[4 * step..]).all(|byte| *byte == 0));
        assert!(check(&medium).unwrap().is_whole());
    }
}

#[test]
fn every_sector_can_be_written_many_times() {
    let medium = made(64 << 10, SMALL);
    let volume = open(&medium);
    let sectors = volume.geometry().size / 512;
    for round in 1..=9_u8 {
        for sector in 0..sectors {
            volume.write(sector * 512, &[round; 512], Survives::Durable).unwrap();
        }
    }
    let mut all = vec![0; usize::try_from(volume.geometry().size).unwrap()];
    volume.read(0, &mut all).unwrap();
    assert!(all.iter().all(|byte| *byte == 9));
    let report = check(&medium).unwrap();
    assert!(report.is_whole() && report.normal == sectors, "{report:?}");
}

#[test]
fn zeroed_sectors_read_as_zeroes_and_say_so() {
    let medium = made(64 << 10, SMALL);
    let volume = open(&medium);
    volume.write(0, &[7; 4096], Survives::Durable).unwrap();
    volume.write_zeroes(1024, 1024, Zeroing::MayFree, Survives::Durable).unwrap();
    let mut found = [1; 4096];
    volume.read(0, &mut found).unwrap();
    assert_eq!(found[1024..2048], [0; 1024]);
    assert_eq!(found[2048..], [7; 2048]);
    let (mut at, mut states) = (0, Vec::new());
    while at < volume.geometry().size {
        let extent = volume.status(at, volume.geometry().size - at).unwrap();
        states.push((extent.len, extent.state));
        at += extent.len;
    }
    let rest = volume.geometry().size - 4096;
    let expected =
        [(1024, State::Data), (1024, State::Zero), (2048, State::Data), (rest, State::Zero)];
    assert_eq!(states, expected);
}

#[test]
fn a_request_outside_of_the_volume_or_between_sectors_is_refused() {
    let volume = open(&made(64 << 10, SMALL));
    let size = volume.geometry().size;
    let no_room = BlockError::PeerNoRoom { offset: size, len: 512, size };
    assert_eq!(volume.write(size, &[0; 512], Survives::Durable), Err(no_room));
    let beyond = BlockError::PeerBeyondEnd { offset: size - 512, len: 1024, size };
    assert_eq!(volume.read(size - 512, &mut [0; 1024]), Err(beyond));
    let unaligned = BlockError::PeerUnaligned { offset: 1, len: 512, block: 512 };
    assert_eq!(volume.read(1, &mut [0; 512]), Err(unaligned));
}

#[test]
fn a_medium_that_is_no_volume_is_refused() {
    let foreign = Volume::open(medium(1 << 20), Access::ReadWrite).unwrap_err();
    assert_eq!(foreign, VolumeError::PeerForeign);
    let tiny = create(&medium(16 << 10), SMALL).unwrap_err();
    assert!(matches!(tiny, VolumeError::ConfigTooSmall { len: 16384, .. }), "{tiny}");
    let sector = create(&medium(1 << 20), Format { sector: 520, ..SMALL }).unwrap_err();
    assert_eq!(sector, VolumeError::ConfigSector { sector: 520 });
}

fn file_of(path: &Path, len: u64) -> File {
    let file = FileOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let file = file.unwrap();
    if len > 0 {
        file.set_len(len).unwrap();
    }
    file
}

#[test]
fn a_volume_in_a_file_grows_while_it_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("volume");
    let file = file_of(&path, 16 << 20);
    let medium = pmem::map_file(&file, 16 << 20, EMULATED).unwrap();
    create(&medium, Format::linux(4096, [3; 16])).unwrap();
    drop(medium);
    let volume = Volume::open_file(file, EMULATED, Access::ReadWrite).unwrap();
    let before = volume.geometry().size;
    volume.write(before - 4096, &[1; 4096], Survives::Durable).unwrap();
    let after = volume.resize(before + (20 << 20)).unwrap();
    assert!(after >= before + (20 << 20), "{before} {after}");
    volume.write(before - 4096, &[2; 8192], Survives::Durable).unwrap();
    volume.write(after - 4096, &[3; 4096], Survives::Durable).unwrap();
    assert_eq!(volume.resize(before), Err(BlockError::ConfigFixedSize));
    drop(volume);
    let volume = Volume::open_file(file_of(&path, 0), EMULATED, Access::ReadWrite).unwrap();
    assert_eq!(volume.geometry().size, after);
    assert_eq!(volume.arena_facts().len(), 2);
    let mut found = [0; 8192];
    volume.read(before - 4096, &mut found).unwrap();
    assert_eq!(found, [2; 8192]);
    assert_eq!(volume.damage(), []);
}

#[test]
fn a_volume_that_has_grown_is_found_without_its_first_info_block() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("volume");
    let file = file_of(&path, 16 << 20);
    create(&pmem::map_file(&file, 16 << 20, EMULATED).unwrap(), SMALL).unwrap();
    let volume = Volume::open_file(file, EMULATED, Access::ReadWrite).unwrap();
    let (before, mut found) = (volume.geometry().size, [0; 1024]);
    volume.resize(before + (20 << 20)).unwrap();
    volume.resize(before + (60 << 20)).unwrap();
    let size = volume.geometry().size;
    volume.write(before - 512, &[5; 1024], Survives::Durable).unwrap();
    drop(volume);
    for broken in [vec![0xff; 1], vec![0; 4096]] {
        let file = file_of(&path, 0);
        let medium = pmem::map_file(&file, pmem::length(&file).unwrap(), EMULATED).unwrap();
        medium.place(4096, &broken).unwrap();
        let volume = open(&medium);
        assert_eq!(volume.geometry().size, size);
        volume.read(before - 512, &mut found).unwrap();
        assert_eq!(found, [5; 1024]);
        assert!(volume::repair(&medium).unwrap().is_whole());
        assert_eq!(open(&medium).damage(), []);
    }
}

#[test]
fn a_volume_in_use_cannot_be_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("volume");
    let file = file_of(&path, 16 << 20);
    create(&pmem::map_file(&file, 16 << 20, EMULATED).unwrap(), SMALL).unwrap();
    let volume = Volume::open_file(file, EMULATED, Access::ReadWrite).unwrap();
    let again = Volume::open_file(file_of(&path, 0), EMULATED, Access::ReadOnly);
    assert_eq!(again.unwrap_err(), VolumeError::ConfigInUse);
    drop(volume);
    Volume::open_file(file_of(&path, 0), EMULATED, Access::ReadOnly).unwrap();
}

#[test]
fn a_volume_opened_for_reading_changes_nothing() {
    let medium = made(64 << 10, SMALL);
    let volume = Volume::open(medium, Access::ReadOnly).unwrap();
    let refused = Err(BlockError::ConfigReadOnly);
    assert_eq!(volume.write(0, &[1; 512], Survives::Durable), refused);
    assert_eq!(volume.write_zeroes(0, 512, Zeroing::MayFree, Survives::Durable), refused);
    volume.read(0, &mut [0; 512]).unwrap();
}
