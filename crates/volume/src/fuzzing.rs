//! The doors for bytes that others made, for the fuzz targets.

use std::sync::Arc;

use block::{BlockDevice, Survives};
use pmem::{OpenOptions, anonymous_with};

use crate::flog_entry::{FlogEntry, GroupBytes, Halves};
use crate::info::{INFO_LEN, Info};
use crate::map_entry::MapEntry;
use crate::{Access, Format, LayoutVersion, Volume, check, create, repair};

/// An info block: what parses, emitted, parses to the same.
pub fn info(bytes: &[u8]) {
    let mut block = [0; INFO_LEN];
    let len = bytes.len().min(INFO_LEN);
    block[..len].copy_from_slice(&bytes[..len]);
    if let Ok(info) = Info::parse(&block, 0, u64::MAX / 2) {
        assert_eq!(Info::parse(&info.emit(), 0, u64::MAX / 2), Ok(info));
    }
}

/// A map entry and a flog group.
pub fn entries(bytes: &[u8]) {
    if let Some((raw, _)) = bytes.split_first_chunk::<4>() {
        let entry = MapEntry::parse(u32::from_le_bytes(*raw));
        assert_eq!(MapEntry::parse(entry.emit()), entry);
    }
    let Some((group, _)) = bytes.split_first_chunk::<64>() else { return };
    let group: &GroupBytes = group;
    if let Ok(halves) = Halves::of(std::iter::once(group))
        && let Some((_, entry)) = halves.newest(group)
    {
        let again = FlogEntry { ..entry }.emit();
        assert_eq!(again.len(), 16);
    }
}

/// A small volume with some bytes changed, each by three bytes of the input: its place, and its new value. The volume
/// opens or is refused, every sector is read or refused, and a repair leaves a volume that is whole.
pub fn damaged(bytes: &[u8]) {
    let Ok(medium) = anonymous_with(LEN, OpenOptions { emulate_persistence: true }) else { return };
    let format = Format { lanes: 3, version: LayoutVersion::V2_0, ..Format::linux(512, [1; 16]) };
    create(&medium, format).expect("memory takes a volume");
    use_all(&Volume::open(Arc::clone(&medium), Access::ReadWrite).expect("a new volume opens"));
    for change in bytes.as_chunks::<3>().0 {
        let at = u64::from(u16::from_le_bytes([change[0], change[1]])) % LEN;
        medium.place(at, &change[2..]).expect("memory takes a byte");
    }
    let _ = check(&medium);
    if let Ok(volume) = Volume::open(Arc::clone(&medium), Access::ReadWrite) {
        use_all(&volume);
    }
    if let Ok(report) = repair(&medium) {
        assert!(report.is_whole(), "{report:?}");
        let volume = Volume::open(medium, Access::ReadWrite).expect("a whole volume opens");
        assert_eq!(volume.damage(), []);
        use_all(&volume);
    }
}

fn use_all(volume: &Volume) {
    let geometry = volume.geometry();
    let step = u64::from(geometry.block);
    let mut sector = vec![7; usize::try_from(step).expect("4096 at most")];
    for at in (0..geometry.size).step_by(usize::try_from(step).expect("4096 at most")) {
        let _ = volume.read(at, &mut sector);
        let _ = volume.write(at, &sector, Survives::Durable);
        let extent = volume.status(at, geometry.size - at).expect("inside of the volume");
        assert!(extent.len > 0 && extent.len <= geometry.size - at);
    }
}

/// Bytes of the volume: six pages, of which each part has one or two.
const LEN: u64 = 6 * 4096;
