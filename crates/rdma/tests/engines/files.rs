//! Operations on real files: flushed bytes are in the file, whatever its class.

mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::thread;
    use std::time::{Duration, Instant};

    use pmem::{DurabilityClass, OpenOptions, map_file};
    use rdma::{MemoryRegion, Operation, QpId};

    use crate::support::{End, Pair, bytes_of, flush, memory, pattern, write};

    const LEN: u64 = 1 << 20;

    /// A file of zeroes in `folder`, as a medium of the best class it can have.
    fn file(folder: &Path) -> (File, std::sync::Arc<dyn pmem::Medium>) {
        let file = tempfile::tempfile_in(folder).unwrap();
        (&file).write_all(&vec![0; usize::try_from(LEN).unwrap()]).unwrap();
        let options = OpenOptions { emulate_persistence: true };
        let medium = map_file(&file, LEN, options).unwrap();
        (file, medium)
    }

    fn write_flush_read(folder: &Path) -> DurabilityClass {
        let (file, medium) = file(folder);
        let mut pair = Pair::new();
        let region = pair.target(&medium);
        let here = memory(LEN);
        let local = pair.local(&here);
        let bytes = pattern(8, 50_000);
        let (rkey, base) = (region.rkey, region.remote_addr_base);
        pair.post(1, write(&bytes, region, 4000));
        pair.post(2, flush(rkey, base + 4000, 50_000));
        pair.post(3, Operation::AtomicWrite { rkey, remote_addr: base, value: 4000 });
        pair.post(4, flush(rkey, base, 8));
        pair.post(5, Operation::Read { local: local.slice(0, 54_000), rkey, remote_addr: base });
        for wr_id in 1..=5 {
            let completion = pair.completion();
            assert_eq!((completion.wr_id, completion.is_success()), (wr_id, true));
        }
        let mut stored = vec![0; 54_000];
        file.read_exact_at(&mut stored, 0).unwrap();
        assert_eq!(stored[..8], 4000_u64.to_le_bytes());
        assert_eq!(stored[4000..], bytes);
        assert_eq!(bytes_of(&*here, 0, 54_000), stored);
        medium.class()
    }

    #[test]
    fn a_file_on_disk_holds_what_was_flushed() {
        // Build machines have their target directory on a disk; on one that has it in memory, the
        // promise is that of the next test.
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        std::fs::create_dir_all(folder).unwrap();
        write_flush_read(folder);
    }

    #[test]
    fn a_file_in_memory_holds_what_was_flushed() {
        let shared = Path::new("/dev/shm");
        if shared.is_dir() {
            assert_eq!(write_flush_read(shared), DurabilityClass::Volatile);
        }
    }

    #[test]
    fn many_clients_of_one_file_share_its_persists() {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (file, medium) = file(folder);
        let mut pair = Pair::new();
        let mut regions: Vec<(QpId, MemoryRegion)> = Vec::new();
        for _ in 0..8 {
            let (client_qp, server_qp) = pair.another();
            let access = rdma::Access::PUSH;
            let region =
                pair.server.engine.register(server_qp, medium.clone(), 0..LEN, access).unwrap();
            regions.push((client_qp, region));
        }
        let Pair { mut client, mut server, .. } = pair;
        let (stop, server) = (
            server.engine.waker(),
            thread::spawn(move || {
                server.engine.wait(Some(Duration::from_secs(30)));
                server
            }),
        );
        let rounds = 20;
        for round in 0..rounds {
            for (slot, (qp, region)) in (0_u64..).zip(&regions) {
                let bytes = pattern(u8::try_from(round).unwrap(), 4096);
                let offset = 4096 * slot;
                client.post(*qp, round, write(&bytes, *region, offset));
                let addr = region.remote_addr_base + offset;
                client.post(*qp, round, flush(region.rkey, addr, 4096));
            }
            wait_for(&mut client, 2 * regions.len());
        }
        stop.wake();
        server.join().unwrap();
        let mut stored = vec![0; 8 * 4096];
        file.read_exact_at(&mut stored, 0).unwrap();
        let last = pattern(u8::try_from(rounds - 1).unwrap(), 4096);
        assert!(stored.chunks(4096).all(|page| page == last));
    }

    fn wait_for(client: &mut End, mut count: usize) {
        let start = Instant::now();
        while count > 0 {
            assert!(start.elapsed() < Duration::from_secs(30), "{count} never came");
            client.engine.wait(Some(Duration::from_secs(10)));
            client.engine.poll(&mut client.events);
            while let Some(completion) = client.completion() {
                assert!(completion.is_success());
                count -= 1;
            }
        }
    }
}
