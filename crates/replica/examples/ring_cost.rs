//! What records in the ring of a member cost: `ring_cost FILE [MIB]`.
//!
//! Records of 4 KiB and of 128 KiB are placed, each durable before the next one; then a full ring is scanned.

use std::path::Path;
use std::time::Instant;

use replica::format::{Encoding, Geometry, Kind, Label, Record, header_sum, payload_sum};
use replica::ring::{CreateOptions, Ring};
use replica::{Epoch, EpochStart, GroupId, History, Lsn, MemberId};

const GROUP: GroupId = GroupId([7; 16]);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("ring_cost FILE [MIB]")?;
    let capacity = args.next().map_or(Ok(1024), |mib| mib.parse::<u64>())? << 20;
    let epoch = Epoch { number: 1, restart: 0, nonce: 1 };
    let begins = EpochStart { epoch, start: Lsn(0), is_forced: false, is_sealed: false };
    let history = History::new(vec![begins]).ok_or("no history")?;
    let label = Label { group: GROUP, member: MemberId(0), history, ..Label::default() };
    let options = CreateOptions {
        geometry: Geometry::new(capacity, 1),
        overwrite: true,
        fills: true,
        medium: pmem::OpenOptions { emulate_persistence: true },
    };
    let ring = Ring::create(Path::new(&path), &label, options)?;
    println!("{capacity} bytes of class {}", ring.medium().class());
    let mut next = (Lsn(0), 0);
    place(&ring, &mut next, 4096, 20_000, true)?;
    place(&ring, &mut next, 128 << 10, 1000, true)?;
    while next.0.plus(64 + (128 << 10)).0 <= capacity {
        place(&ring, &mut next, 128 << 10, 1, false)?;
    }
    ring.persist(Lsn(0), next.0)?;
    drop(ring);
    let begun = Instant::now();
    let ring = Ring::open(Path::new(&path), options.medium)?;
    let found = ring.scan(&ring.load_label()?)?;
    let seconds = begun.elapsed().as_secs_f64();
    let rate = found.end.0 as f64 / seconds / f64::from(1 << 30);
    println!("scan: {} records, {seconds:.3} s, {rate:.2} GiB/s", found.records.len());
    assert_eq!(found.end, next.0);
    Ok(())
}

fn place(
    ring: &Ring,
    next: &mut (Lsn, u32),
    len: u32,
    count: u32,
    persists: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let payload = vec![7; usize::try_from(len)?];
    let begun = Instant::now();
    let mut done = 0;
    for _ in 0..count {
        let (lsn, chain) = *next;
        if ring.capacity() - lsn.0 % ring.capacity() < 64 + u64::from(len) {
            break;
        }
        let record = Record {
            lsn,
            epoch: 1,
            chain,
            kind: Kind::Write,
            encoding: Encoding::Plain,
            volume: 0,
            stored: len,
            offset: 0,
            len: u64::from(len),
            time_ns: 0,
            committed: lsn,
        };
        let header = record.encode(&GROUP, payload_sum(&GROUP, lsn, &payload));
        ring.place(lsn, &header, &payload)?;
        *next = (record.end(), header_sum(&header));
        if persists {
            ring.persist(lsn, record.end())?;
        }
        done += 1;
    }
    if persists {
        let each = begun.elapsed().as_secs_f64() / f64::from(done) * 1e6;
        println!("{len} bytes, durable one by one: {each:.2} us");
    }
    Ok(())
}
