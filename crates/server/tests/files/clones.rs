//! Shared extents, on a file system that has them: `cargo xtask clones` makes one and names it in
//! `LANDFAST_CLONES_DIR`. Without it there is nothing to test here.

use std::path::PathBuf;

use server::ShareConfig;
use smb::{ControlCode, FileId, NtStatus};

use crate::support::skipped::skip;
use crate::support::{Fixture, Wire};

fn on_a_file_system_that_clones() -> Option<(Fixture, tempfile::TempDir)> {
    let Some(dir) = std::env::var_os("LANDFAST_CLONES_DIR") else {
        skip("LANDFAST_CLONES_DIR names no file system that clones");
        return None;
    };
    let dir = tempfile::tempdir_in(PathBuf::from(dir)).unwrap();
    let share = ShareConfig::new("data", dir.path());
    let fixture = Fixture::start_with(|config| config.shares = vec![share]);
    Some((fixture, dir))
}

/// Where from, where to, how much.
#[derive(Clone, Copy)]
struct Asked {
    source: FileId,
    source_offset: u64,
    target_offset: u64,
    count: u64,
}

fn duplicate(wire: &mut Wire, target: FileId, asked: Asked) -> NtStatus {
    // MS-FSCC, FSCTL_DUPLICATE_EXTENTS_TO_FILE request.
    let FileId { persistent, volatile } = asked.source;
    let fields = [persistent, volatile, asked.source_offset, asked.target_offset, asked.count];
    let input: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).collect();
    wire.control(target, ControlCode::DUPLICATE_EXTENTS_TO_FILE, &input).0
}

#[test]
fn a_clone_takes_no_room_and_goes_its_own_way_when_it_is_written() {
    let Some((fixture, dir)) = on_a_file_system_that_clones() else { return };
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    std::fs::write(&one, vec![7; LEN]).unwrap();
    let file = std::fs::File::create(&two).unwrap();
    file.set_len(LEN as u64).unwrap();
    let mut wire = fixture.client(1);
    let (source, target) = (wire.open("one", |_| {}).id, wire.open("two", |_| {}).id);
    let free = || {
        rustix::fs::sync();
        let volume = rustix::fs::statvfs(dir.path()).unwrap();
        volume.f_bfree * volume.f_frsize
    };
    let before = free();
    let all = Asked { source, source_offset: 0, target_offset: 0, count: LEN as u64 };
    assert_eq!(duplicate(&mut wire, target, all), NtStatus::SUCCESS);
    let taken = before.saturating_sub(free());
    assert!(taken < LEN as u64 / 8, "{taken} bytes for a clone of {LEN}");
    assert!(std::fs::read(&two).unwrap().iter().all(|byte| *byte == 7));

    std::os::unix::fs::FileExt::write_all_at(&file, &[9; 4096], 8192).unwrap();
    assert!(std::fs::read(&one).unwrap().iter().all(|byte| *byte == 7));
    assert_eq!(std::fs::read(&two).unwrap()[8192], 9);

    let past = Asked { source_offset: 4096, ..all };
    assert_eq!(duplicate(&mut wire, target, past), NtStatus::NOT_SUPPORTED, "beyond the source");
    let own = Asked { source: target, target_offset: 4096, count: 8192, ..all };
    assert_eq!(duplicate(&mut wire, target, own), NtStatus::NOT_SUPPORTED, "it overlaps itself");
    let apart = Asked { target_offset: 8192, count: 8192, ..own };
    assert_eq!(duplicate(&mut wire, target, apart), NtStatus::SUCCESS);
    assert_eq!(std::fs::read(&two).unwrap()[8192], 7);
}

const LEN: usize = 16 << 20;
