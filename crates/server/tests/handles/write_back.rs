//! A disk that loses what it was given: no FLUSH of the file succeeds from then on, by whatever name the first one came.
//!
//! ```text
//!  small disk, full       a file that is an ext4: the blocks of f are a hole in it
//!  WRITE f ------------>  in memory
//!  FLUSH f:s ---------->  f is written back as well: EIO, which the kernel tells once
//!  room again
//!  FLUSH f ------------>  the pages are clean, and not on the disk
//! ```
//!
//! Needs root, loop devices, mkfs.ext4, filefrag and fallocate; else the test says so.

use std::io::Write as _;
use std::path::Path;
use std::process::Command as Program;

use smb::{Command, FileId, FlushRequest, NtStatus};

use crate::support::mounts::{has_own_mounts, mount, run};
use crate::support::skipped::skip;
use crate::support::{Fixture, Wire};

#[test]
fn a_failed_flush_of_a_stream_is_the_answer_to_each_flush_of_its_file() {
    const NAME: &str =
        "write_back::a_failed_flush_of_a_stream_is_the_answer_to_each_flush_of_its_file";
    let tools = [["mkfs.ext4", "-V"], ["filefrag", "-V"], ["fallocate", "-V"]];
    let has = |tool: &[&str; 2]| Program::new(tool[0]).arg(tool[1]).output().is_ok();
    let has_loop = Path::new("/dev/loop-control").exists();
    if !rustix::process::geteuid().is_root() || !has_loop || !tools.iter().all(has) {
        skip("needs root, loop devices, mkfs.ext4, filefrag and fallocate");
        return;
    }
    if !has_own_mounts(NAME) {
        return;
    }
    // The mounts end with the process that made them.
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    let (small, disk) = (scratch.path().join("small"), scratch.path().join("disk"));
    make_disk(&scratch.path().join("disk-of-small"), IMAGE + (24 << 20), &small);
    let image = small.join("image");
    make_disk(&image, IMAGE, &disk);
    let fixture = Fixture::start_with(|config| config.shares[0].path = disk.clone());
    let mut wire = fixture.client(1);
    for name in ["f", "f:s"] {
        let open = wire.open(name, |_| {});
        assert_eq!(wire.write(open.id, &[b'o'; LEN]), NtStatus::SUCCESS);
        assert_eq!(flush(&mut wire, open.id), NtStatus::SUCCESS);
        assert_eq!(wire.close(open.id), NtStatus::SUCCESS);
    }
    rustix::fs::sync();
    // All blocks of the image are there but those of `f`, and no more can be had.
    let at = first_block(&disk.join("f")) * 4096;
    run(Program::new("fallocate").args(["-l", &IMAGE.to_string()]).arg(&image));
    let (at, len) = (at.to_string(), LEN.to_string());
    run(Program::new("fallocate").args(["-p", "-o", &at, "-l", &len]).arg(&image));
    let filling = small.join("filling");
    let mut file = std::fs::File::create(&filling).unwrap();
    while file.write_all(&[b'x'; 4096]).is_ok() {}
    drop(file);
    let open = wire.open("f", |_| {});
    assert_eq!(wire.write(open.id, &[b'N'; LEN]), NtStatus::SUCCESS);
    assert_eq!(wire.close(open.id), NtStatus::SUCCESS);
    let stream = wire.open("f:s", |_| {});
    assert_ne!(flush(&mut wire, stream.id), NtStatus::SUCCESS, "the disk takes nothing");
    // The disk is well again; the bytes are gone.
    std::fs::remove_file(&filling).unwrap();
    for _ in 0..2 {
        let open = wire.open("f", |_| {});
        assert_ne!(flush(&mut wire, open.id), NtStatus::SUCCESS, "by its own name");
        assert_ne!(flush(&mut wire, stream.id), NtStatus::SUCCESS, "by that of its stream");
        assert_eq!(wire.close(open.id), NtStatus::SUCCESS);
    }
}

// An ext4 in a file of this length, mounted there.
fn make_disk(image: &Path, len: u64, at: &Path) {
    std::fs::File::create(image).unwrap().set_len(len).unwrap();
    let extended = "lazy_itable_init=0,nodiscard";
    run(Program::new("mkfs.ext4").args(["-q", "-F", "-b", "4096", "-E", extended]).arg(image));
    mount(&["-o", "loop,commit=300,nodiscard", image.to_str().unwrap()], at);
}

fn flush(wire: &mut Wire, file_id: FileId) -> NtStatus {
    wire.ask(Command::FLUSH, |out| FlushRequest { file_id }.emit(out)).0.status
}

// Of the disk, where a file of one extent begins.
fn first_block(path: &Path) -> u64 {
    let listed = Program::new("filefrag").args(["-v", "-b4096"]).arg(path).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let extents: Vec<_> = listed
        .lines()
        .filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()))
        .collect();
    assert_eq!(extents.len(), 1, "{listed}");
    let physical = extents[0].split(':').nth(2).unwrap();
    physical.split("..").next().unwrap().trim().parse().unwrap()
}

const IMAGE: u64 = 64 << 20;
const LEN: usize = 16 * 4096;
