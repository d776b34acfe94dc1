//! Views of two ext4 file systems at random points of what the kernel wrote to them: each view has the bytes of its point,
//! and after the recovery that a crash needs anyway, clean file systems that hold what was durable by then.
//!
//! ```text
//!   ext4, ext4 on loop devices on FUSE -> Traced -> records -> destination, which goes on applying
//!                                                        \-> view at an LSN -> FUSE -> e2fsck, debugfs
//! ```
//!
//! `LANDFAST_VIEW_LSNS=1000` takes a thousand points; without it there are twenty.
#![cfg(test)]

#[path = "../../../tests/skipped.rs"]
mod skipped;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use block::{BlockDevice, BlockError, Extent, FileDevice, Geometry, Survives, Zeroing};
use fuse::{Mounted, Options};
use replica::Lsn;
use replica::format::{Contents, Encoding, Kind, PAYLOAD_MAX, Record};
use replica::view::{Point, Records, RecordsError, Room, View, Views};

/// What a source would have in its ring.
#[derive(Debug, Default)]
struct Order {
    records: Mutex<Vec<(Record, Vec<u8>)>>,
}

impl Order {
    fn end(&self) -> Lsn {
        self.records.lock().unwrap().last().map_or(Lsn(0), |(record, _)| record.end())
    }

    /// The last end of a record that is not beyond `lsn`.
    fn end_below(&self, lsn: Lsn) -> Lsn {
        let records = self.records.lock().unwrap();
        let count = records.partition_point(|(record, _)| record.end() <= lsn);
        count.checked_sub(1).map_or(Lsn(0), |last| records[last].0.end())
    }

    /// Carries a change out and notes it, in one order for both.
    fn change(
        &self,
        (kind, volume, offset, len): (Kind, u8, u64, u64),
        bytes: &[u8],
        carry_out: impl FnOnce() -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let mut records = self.records.lock().unwrap();
        carry_out()?;
        let parts: Vec<&[u8]> = match bytes {
            [] => vec![bytes],
            _ => bytes.chunks(index(PAYLOAD_MAX.into())).collect(),
        };
        let mut at = offset;
        for part in parts {
            let lsn = records.last().map_or(Lsn(0), |(record, _)| record.end());
            let record = Record {
                lsn,
                epoch: 1,
                chain: 0,
                kind,
                encoding: Encoding::Plain,
                volume,
                stored: u32::try_from(part.len()).unwrap(),
                offset: at,
                len: if kind == Kind::Write { part.len() as u64 } else { len },
                time_ns: lsn.0,
                committed: Lsn(0),
            };
            at += part.len() as u64;
            records.push((record, part.to_vec()));
        }
        Ok(())
    }
}

impl Records for Order {
    fn kept(&self) -> Range<Lsn> {
        Lsn(0)..self.end()
    }
    fn record(&self, at: Lsn, payload: Option<&mut Vec<u8>>) -> Result<Record, RecordsError> {
        let records = self.records.lock().unwrap();
        let found = records.binary_search_by_key(&at, |(record, _)| record.lsn);
        let (record, bytes) = &records[found.map_err(|_| RecordsError::MediaDamaged { at })?];
        if let Some(payload) = payload {
            payload.clone_from(bytes);
        }
        Ok(*record)
    }
}

/// A volume whose changes are noted.
#[derive(Debug)]
struct Traced {
    device: FileDevice,
    volume: u8,
    order: Arc<Order>,
}

impl BlockDevice for Traced {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError> {
        self.device.read(offset, out)
    }
    fn write(&self, offset: u64, bytes: &[u8], survives: Survives) -> Result<(), BlockError> {
        let what = (Kind::Write, self.volume, offset, bytes.len() as u64);
        self.order.change(what, bytes, || self.device.write(offset, bytes, survives))
    }
    fn flush(&self) -> Result<(), BlockError> {
        self.device.flush()
    }
    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        zeroing: Zeroing,
        survives: Survives,
    ) -> Result<(), BlockError> {
        let kind = match zeroing {
            Zeroing::MayFree => Kind::Trim,
            Zeroing::KeepSpace => Kind::Zero,
        };
        let what = (kind, self.volume, offset, len);
        let carry_out = || self.device.write_zeroes(offset, len, zeroing, survives);
        self.order.change(what, &[], carry_out)
    }
    fn status(&self, offset: u64, len: u64) -> Result<Extent, BlockError> {
        self.device.status(offset, len)
    }
    fn resize(&self, size: u64) -> Result<u64, BlockError> {
        self.device.resize(size)
    }
}

fn run(program: &str, arguments: &[&OsStr]) -> Option<Output> {
    Command::new(program).args(arguments).output().ok()
}

fn succeeds(program: &str, arguments: &[&OsStr]) -> bool {
    run(program, arguments).is_some_and(|output| output.status.success())
}

fn device(path: &Path) -> FileDevice {
    FileDevice::new(File::options().read(true).write(true).open(path).unwrap()).unwrap()
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap()
}

fn contents(number: u64) -> Vec<u8> {
    let len = 1 + number * 7919 % 60_000;
    (0..len).map(|at| (at * 31 + number * 17 + at / 251).to_le_bytes()[0]).collect()
}

/// From when on a file has to be there, and until when.
#[derive(Clone, Copy, Debug)]
struct Life {
    durable: Lsn,
    removed: Lsn,
}

/// What the work on the file systems did: the files of each volume by number.
type Lives = [BTreeMap<u64, Life>; 2];

fn fsync(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

/// Each file is written to the first file system, made durable, and only then written to the second.
fn work(mounts: &[PathBuf; 2], order: &Order) -> Lives {
    let mut lives = Lives::default();
    for number in 0..FILES {
        for (mount, lives) in mounts.iter().zip(&mut lives) {
            let directory = mount.join(format!("d{}", number % 3));
            if number < 3 {
                fs::create_dir(&directory).unwrap();
                fsync(mount);
            }
            let (new, path) = (directory.join("new"), directory.join(format!("f{number}")));
            let mut file = File::create(&new).unwrap();
            for part in contents(number).chunks(9000) {
                file.write_all(part).unwrap();
            }
            file.sync_all().unwrap();
            fs::rename(&new, &path).unwrap();
            fsync(&directory);
            lives.insert(number, Life { durable: order.end(), removed: Lsn(u64::MAX) });
            if let Some(old) = number.checked_sub(9).filter(|old| old % 2 == 0) {
                lives.get_mut(&old).unwrap().removed = order.end();
                fs::remove_file(mount.join(format!("d{}/f{old}", old % 3))).unwrap();
                // The space is trimmed with the next transaction.
                rustix::fs::syncfs(File::open(mount).unwrap()).unwrap();
            }
        }
    }
    lives
}

/// Two ext4 images as they were before the kernel wrote, and what it wrote; `None`, and said so, where that cannot be made.
fn trace(directory: &Path) -> Option<([PathBuf; 2], Arc<Order>, Lives)> {
    if !rustix::process::geteuid().is_root() {
        skipped::skip("only root may mount");
        return None;
    }
    let order = Arc::new(Order::default());
    let images = ["one", "two"].map(|name| directory.join(name));
    for (image, block) in images.iter().zip(["1024", "4096"]) {
        File::create(image).unwrap().set_len(IMAGE_LEN).unwrap();
        let arguments: [&OsStr; 5] =
            ["-q".as_ref(), "-F".as_ref(), "-b".as_ref(), block.as_ref(), image.as_os_str()];
        if !succeeds("mkfs.ext4", &arguments) {
            skipped::skip("there is no mkfs.ext4");
            return None;
        }
    }
    let first = ["one.first", "two.first"].map(|name| directory.join(name));
    for (image, first) in images.iter().zip(&first) {
        fs::copy(image, first).unwrap();
    }
    let traced = (0..).zip(&images).map(|(volume, image)| -> (String, Arc<dyn BlockDevice>) {
        let order = Arc::clone(&order);
        (format!("v{volume}"), Arc::new(Traced { device: device(image), volume, order }))
    });
    let served = directory.join("served");
    fs::create_dir(&served).unwrap();
    let mut served = match Mounted::new(traced.collect(), &served, Options { loops: true }) {
        Ok(served) => served,
        Err(error) => {
            skipped::skip(error);
            return None;
        }
    };
    let mounts = ["m0", "m1"].map(|name| directory.join(name));
    for (at, device) in mounts.iter().zip(served.loops()) {
        fs::create_dir(at).unwrap();
        let arguments: [&OsStr; 6] = [
            "-t".as_ref(),
            "ext4".as_ref(),
            "-o".as_ref(),
            "discard".as_ref(),
            device.as_os_str(),
            at.as_os_str(),
        ];
        assert!(succeeds("mount", &arguments), "{}", device.display());
    }
    let worked = std::panic::catch_unwind(|| work(&mounts, &order));
    for at in &mounts {
        assert!(succeeds("umount", &[at.as_os_str()]));
    }
    while !served.try_end().unwrap() {
        std::thread::yield_now();
    }
    Some((first, order, worked.unwrap()))
}

/// Applies records to images in memory.
struct Model {
    images: [Vec<u8>; 2],
    at: usize,
}

impl Model {
    fn advance(&mut self, order: &Order, to: Lsn) {
        for (record, bytes) in &order.records.lock().unwrap()[self.at..] {
            if record.lsn >= to {
                break;
            }
            let image = &mut self.images[usize::from(record.volume)];
            let range = index(record.offset)..index(record.offset + record.len);
            match record.kind {
                Kind::Write => image[range].copy_from_slice(bytes),
                _ => image[range].fill(0),
            }
            self.at += 1;
        }
    }
}

/// Applies the order to a destination's volumes, up to what `until` allows.
fn destination(views: &Views, volumes: &[Arc<dyn BlockDevice>], order: &Order, until: &AtomicU64) {
    let (end, mut at, mut payload) = (order.end(), Lsn(0), Vec::new());
    while at < end {
        if at.0 >= until.load(Ordering::Acquire) {
            std::thread::yield_now();
            continue;
        }
        let record = order.record(at, Some(&mut payload)).unwrap();
        let applying = views.apply(record.end());
        applying.changes(record.changes().unwrap());
        let (volume, offset) = (&volumes[usize::from(record.volume)], record.offset);
        match record.kind {
            Kind::Write => volume.write(offset, &payload, Survives::Placed).unwrap(),
            _ => volume.trim(offset, record.len, Survives::Placed).unwrap(),
        }
        applying.done();
        at = record.end();
    }
}

/// Whether a volume has these bytes.
fn holds(device: &dyn BlockDevice, image: &[u8]) -> bool {
    let mut piece = vec![1; 1 << 20];
    let size = index(device.geometry().size);
    size == image.len()
        && image.chunks(piece.len()).zip((0_u64..).step_by(piece.len())).all(|(wanted, at)| {
            let found = &mut piece[..wanted.len()];
            device.read(at, found).unwrap();
            found == wanted
        })
}

/// Serves the view as files, has each recovered and checked, and looks for what has to be in them.
fn check_file_systems(view: &View, lives: &Lives, directory: &Path) {
    let served = directory.join("view");
    fs::create_dir_all(&served).unwrap();
    let devices = (0..).zip(view.volumes()).map(|(number, volume)| {
        let device: Arc<dyn BlockDevice> = Arc::<replica::overlay::Overlay>::clone(volume);
        (format!("v{number}"), device)
    });
    let mut mounted = Mounted::new(devices.collect(), &served, Options::default()).unwrap();
    let mut found = Vec::new();
    for (path, lives) in mounted.paths().iter().zip(lives) {
        // 1: what a crash leaves to be done was done.
        let recovered = run("e2fsck", &["-p".as_ref(), path.as_os_str()]).unwrap();
        let code = recovered.status.code();
        assert!(matches!(code, Some(0 | 1)), "{}: {recovered:?}", view.at());
        let clean = run("e2fsck", &["-fn".as_ref(), path.as_os_str()]).unwrap();
        assert!(clean.status.success(), "{}: {clean:?}", view.at());
        let out = tempfile::tempdir_in(directory).unwrap();
        let command = format!("rdump / {}", out.path().display());
        let dumped = run("debugfs", &["-R".as_ref(), command.as_ref(), path.as_os_str()]).unwrap();
        assert!(dumped.status.success(), "{dumped:?}");
        let file = |number: u64| fs::read(out.path().join(format!("d{}/f{number}", number % 3)));
        for (number, life) in lives {
            if life.durable <= view.at() && view.at() <= life.removed {
                let is_there = file(*number).is_ok_and(|bytes| bytes == contents(*number));
                assert!(is_there, "{}: file {number}, {life:?}", view.at());
            }
        }
        let there: Vec<u64> = (0..FILES).filter(|number| file(*number).is_ok()).collect();
        found.push(there);
    }
    // The second volume never has a file that the first one has not had before.
    for number in &found[1] {
        let is_removed = lives[0][number].removed < view.at();
        assert!(is_removed || found[0].contains(number), "{}: file {number}", view.at());
    }
    while !mounted.try_end().unwrap() {
        std::thread::yield_now();
    }
}

#[test]
fn views_of_two_file_systems_are_clean_and_exact_at_random_points() {
    let directory = tempfile::tempdir().unwrap();
    let Some((first, order, lives)) = trace(directory.path()) else { return };
    let count = std::env::var("LANDFAST_VIEW_LSNS").map_or(20, |text| text.parse().unwrap());
    let end = order.end();
    let mut random = 0x5eed_u64;
    let mut points: Vec<Lsn> = std::iter::repeat_with(|| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Lsn((random >> 20) % (end.0 + 1))
    })
    .take(count)
    .collect();
    points.sort_unstable();
    let mut model = Model { images: first.clone().map(|path| fs::read(path).unwrap()), at: 0 };
    let volumes: Vec<Arc<dyn BlockDevice>> =
        first.iter().map(|path| -> Arc<dyn BlockDevice> { Arc::new(device(path)) }).collect();
    let views = Views::new(volumes.clone(), Lsn(0), Lsn(0), Contents::Consistent);
    let room = Room { directory: directory.path(), bytes_max: 2 * IMAGE_LEN };
    let until = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| destination(&views, &volumes, &order, &until));
        // However this ends, the destination does.
        let _all = Unbound(&until);
        let mut earlier: Option<(View, [Vec<u8>; 2])> = None;
        let nexts = points.iter().skip(1).map(|next| order.end_below(*next));
        for (point, next) in points.iter().zip(nexts.chain([Lsn(u64::MAX)])) {
            let at = Point::Lsn(*point);
            let (view, untouched) =
                (views.open(&*order, &at, room).unwrap(), views.open(&*order, &at, room).unwrap());
            assert!(view.at() <= *point);
            model.advance(&order, view.at());
            // From here on the destination passes the point, up to the next one.
            until.store(next.0, Ordering::Release);
            let is_exact = |view: &View, images: &[Vec<u8>; 2]| {
                view.volumes().iter().zip(images).all(|(one, image)| holds(&**one, image))
            };
            assert!(is_exact(&view, &model.images), "{point}");
            check_file_systems(&view, &lives, directory.path());
            assert!(is_exact(&untouched, &model.images), "{point}, later");
            if let Some((view, images)) = &earlier {
                assert!(is_exact(view, images), "{}, much later", view.at());
            }
            earlier = Some((untouched, model.images.clone()));
        }
    });
    assert_eq!(views.applied(), end);
    model.advance(&order, end);
    assert!(volumes.iter().zip(&model.images).all(|(volume, image)| holds(&**volume, image)));
}

/// Lets the destination go on to the end.
struct Unbound<'a>(&'a AtomicU64);

impl Drop for Unbound<'_> {
    fn drop(&mut self) {
        self.0.store(u64::MAX, Ordering::Release);
    }
}

const FILES: u64 = 48;
const IMAGE_LEN: u64 = 32 << 20;
