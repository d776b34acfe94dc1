//! A process that keeps a snapshot while it changes the volume, killed at any moment: the snapshot is what the volume was, or
//! was never made.
//!
//! The process is this program again. A kill leaves what the process had placed in the page cache, so this shows that every
//! step leaves something that opens; what a loss of power leaves is shown by the crash images of `src/snapshot/tests.rs`.
#![cfg(test)]

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use block::{BlockDevice, FileDevice, Survives};
use replica::format::Extent;
use replica::snapshot::{Moment, SnapshotError, Snapshots, Source};
use replica::{GroupId, Lsn};

const SIZE: u64 = 4 << 20;
const PLACE: &str = "LANDFAST_TEST_SNAPSHOT_OF";
const TEST: &str = "a_killed_process_leaves_its_snapshot_whole";

fn volume(directory: &Path) -> Arc<dyn BlockDevice> {
    let path = directory.join("volume");
    let file = File::options().read(true).write(true).open(path).unwrap();
    Arc::new(FileDevice::new(file).unwrap())
}

fn snapshots(directory: &Path) -> Snapshots {
    let emulate = pmem::OpenOptions { emulate_persistence: true };
    Snapshots::open(&directory.join("snapshots"), emulate).unwrap()
}

fn bytes(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(SIZE).unwrap()];
    device.read(0, &mut bytes).unwrap();
    bytes
}

/// Makes snapshots, changes the volume under each, and drops it; says each step.
fn child(directory: &Path) -> ! {
    let (device, snapshots) = (volume(directory), snapshots(directory));
    for round in 0_u64.. {
        println!("step");
        let sources = [Source { device: Arc::clone(&device), file: None }];
        let moment = Moment {
            group: GroupId([1; 16]),
            at: Lsn(round),
            time_ns: 0,
            id: round,
            bytes_max: SIZE,
        };
        let snapshot = snapshots.keep("x", moment, &sources).unwrap();
        std::fs::write(directory.join("content"), round.to_le_bytes()).unwrap();
        for at in (0..SIZE).step_by(96 << 10) {
            println!("step");
            let at = at * 7 % SIZE;
            let len = (32 << 10).min(SIZE - at);
            snapshot.preserve_durably(&[Extent { volume: 0, offset: at, len }]).unwrap();
            let fill = u8::try_from(round % 200).unwrap() + 50;
            device.write(at, &vec![fill; usize::try_from(len).unwrap()], Survives::Placed).unwrap();
        }
        snapshots.drop("x").unwrap();
        // The next snapshot is of what is there now.
        std::fs::copy(directory.join("volume"), directory.join("next")).unwrap();
        std::fs::rename(directory.join("next"), directory.join(format!("first.{}", round + 1)))
            .unwrap();
    }
    unreachable!("killed before")
}

#[test]
fn a_killed_process_leaves_its_snapshot_whole() {
    if let Some(directory) = std::env::var_os(PLACE) {
        child(Path::new(&directory));
    }
    let mut found = 0;
    for steps in [1, 2, 3, 7, 20, 43, 44, 45, 46, 60, 88, 89, 90, 91, 130] {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        std::fs::create_dir(at.join("snapshots")).unwrap();
        let first: Vec<u8> = (0..SIZE).map(|at| (at / 512 + at % 251).to_le_bytes()[0]).collect();
        std::fs::write(at.join("volume"), &first).unwrap();
        std::fs::write(at.join("first.0"), &first).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([TEST, "--exact", "--nocapture"])
            .env(PLACE, at)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_step =
            |line: &std::io::Result<String>| line.as_ref().is_ok_and(|it| it.contains("step"));
        assert_eq!(said.filter(is_step).take(steps).count(), steps);
        child.kill().unwrap();
        child.wait().unwrap();
        match snapshots(at).get("x", &[volume(at)]) {
            Ok(snapshot) => {
                let round = snapshot.facts().at.0;
                let first = std::fs::read(at.join(format!("first.{round}"))).unwrap();
                assert!(bytes(&*snapshot.device(0).unwrap()) == first, "{steps} steps");
                found += 1;
            }
            Err(SnapshotError::ConfigUnknown(_)) => {}
            Err(error) => panic!("{steps} steps: {error}"),
        }
        snapshots(at).list().unwrap();
    }
    assert!(found > 5, "{found}");
}
