//! An engine brings pages of a flash region itself: over a connection, with others that change the file meanwhile.

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::unix::fs::FileExt as _;
    use std::sync::Arc;

    use flash::{Pool, find, map_file};
    use pmem::Medium;
    use rdma::{
        Access, Engine, EngineConfig, Event, MemoryRegion, Operation, PollPolicy, Provider as _,
        QpConfig, QpId, SoftProvider, WorkRequest,
    };

    const PAGE: usize = 4096;

    /// Server and client, driven by one thread in turns.
    struct Pair {
        server: Box<dyn Engine>,
        client: Box<dyn Engine>,
        inbox: Arc<dyn Medium>,
        peers: Vec<Peer>,
    }

    struct Peer {
        far: QpId,
        near: QpId,
        local: MemoryRegion,
        region: MemoryRegion,
    }

    /// How a read of a peer ended.
    #[derive(Debug, Eq, PartialEq)]
    enum End {
        Read,
        Refused,
    }

    impl Pair {
        fn open(medium: &Arc<dyn Medium>, peers: usize) -> Self {
            let config = || EngineConfig { polling: PollPolicy::Spin, ..EngineConfig::default() };
            let mut server = SoftProvider.open_engine(config()).unwrap();
            let client = SoftProvider.open_engine(config()).unwrap();
            let address = server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
            let inbox = pmem::anonymous((peers * ROOM) as u64).unwrap();
            let mut pair = Self { server, client, inbox, peers: Vec::new() };
            for number in 0..peers as u64 {
                let near = pair.client.connect(address, QpConfig::default(), &[]).unwrap();
                let (mut far, mut is_up) = (None, false);
                while far.is_none() || !is_up {
                    for event in pair.turn(true) {
                        if let Event::ConnectRequest { id, .. } = event {
                            far = Some(pair.server.accept(id, QpConfig::default(), &[]).unwrap());
                        }
                    }
                    let came = pair.turn(false);
                    is_up |= came.iter().any(|event| matches!(event, Event::Established { .. }));
                }
                let (far, room) = (far.unwrap(), ROOM as u64);
                let range = number * room..(number + 1) * room;
                let inbox = Arc::clone(&pair.inbox);
                let local = pair.client.register(near, inbox, range, Access::LOCAL_WRITE).unwrap();
                let all = 0..medium.len();
                let medium = Arc::clone(medium);
                let region = pair.server.register(far, medium, all, Access::REMOTE_READ).unwrap();
                pair.peers.push(Peer { far, near, local, region });
            }
            pair
        }

        fn turn(&mut self, is_server: bool) -> Vec<Event> {
            let engine = if is_server { &mut self.server } else { &mut self.client };
            let mut events = Vec::new();
            engine.poll(&mut events);
            events
        }

        fn ask(&mut self, peer: usize, page: u64, pages: usize, room: usize) {
            let Peer { near, local, region, .. } = &self.peers[peer];
            let remote_addr = region.remote_addr_base + page * 4096;
            let len = u32::try_from(pages * PAGE).unwrap();
            let local = local.slice((room * PAGE) as u64, len);
            let read = Operation::Read { local, rkey: region.rkey, remote_addr };
            self.client.post_send(*near, WorkRequest::signaled(page, read)).unwrap();
        }

        /// Runs both until so many reads have ended; returns peer and end of each.
        fn until(&mut self, count: usize) -> Vec<(usize, End)> {
            let mut ends = Vec::new();
            while ends.len() < count {
                self.turn(true);
                for event in self.turn(false) {
                    let (qp, end) = match event {
                        Event::Completion(done) if done.is_success() => (done.qp, End::Read),
                        Event::Completion(done) => (done.qp, End::Refused),
                        _ => continue,
                    };
                    let peer = self.peers.iter().position(|peer| peer.near == qp).unwrap();
                    ends.push((peer, end));
                }
            }
            ends
        }

        fn page(&self, peer: usize, room: usize) -> u64 {
            let mut number = [0; 8];
            self.inbox.read((peer * ROOM + room * PAGE) as u64, &mut number).unwrap();
            u64::from_le_bytes(number)
        }
    }

    /// A file whose pages begin with their numbers, of which a budget holds an eighth.
    fn rig() -> (File, Arc<dyn Medium>) {
        let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
        let bytes: Vec<u8> = (0..PAGES)
            .flat_map(|page| page.to_le_bytes().into_iter().chain([7; PAGE - 8]))
            .collect();
        file.write_all(&bytes).unwrap();
        file.sync_all().unwrap();
        let pool = Pool::new(1 << 20).unwrap();
        let medium = map_file(&file, bytes.len() as u64, &pool.share(1 << 20).unwrap()).unwrap();
        // A first miss tells where the file has bytes.
        medium.read(0, &mut [0; PAGE]).unwrap();
        (file, medium)
    }

    #[test]
    fn misses_of_many_connections_each_bring_their_own_pages_in_order() {
        let (file, medium) = rig();
        let mut pair = Pair::open(&medium, PEERS);
        for round in 0..40 {
            for peer in 0..PEERS {
                // Some in turns ask for the same pages, so that one read serves several.
                let of = |place: usize| (round * 31 + peer / 2 * 257 + place * 97) as u64 % PAGES;
                (0..3).for_each(|place| pair.ask(peer, of(place), 1, place));
            }
            let ends = pair.until(PEERS * 3);
            assert!(ends.iter().all(|(_, end)| *end == End::Read), "{ends:?}");
            for peer in 0..PEERS {
                let of = |place: usize| (round * 31 + peer / 2 * 257 + place * 97) as u64 % PAGES;
                (0..3).for_each(|place| assert_eq!(pair.page(peer, place), of(place)));
            }
        }
        let stats = find(&file).unwrap().stats();
        let (engine, workers) = (stats.engine_fetches, pair.server.stats().deferred_operations);
        assert!(!stats.is_ring || engine > workers, "by the engine {engine}, by workers {workers}");
    }

    #[test]
    fn a_read_of_many_pages_comes_whole_through_a_small_budget() {
        let (_file, medium) = rig();
        let mut pair = Pair::open(&medium, 1);
        pair.ask(0, 100, 16, 0);
        assert_eq!(pair.until(1), [(0, End::Read)]);
        (0..16).for_each(|place| assert_eq!(pair.page(0, place), 100 + place as u64));
    }

    #[test]
    fn a_page_behind_a_foreign_truncation_ends_its_reader_alone() {
        let (file, medium) = rig();
        let mut pair = Pair::open(&medium, 2);
        file.set_len(PAGES / 2 * 4096).unwrap();
        pair.ask(0, PAGES - 1, 1, 0);
        pair.ask(1, 3, 1, 0);
        let mut ends = pair.until(2);
        ends.sort_by_key(|(peer, _)| *peer);
        assert_eq!(ends, [(0, End::Refused), (1, End::Read)]);
        assert_eq!(pair.page(1, 0), 3);
    }

    #[test]
    fn a_file_changes_below_while_an_engine_brings_its_pages() {
        let (file, medium) = rig();
        let mut pair = Pair::open(&medium, PEERS);
        for round in 0..20 {
            (0..PEERS).for_each(|peer| pair.ask(peer, (round * 8 + peer as u64) % PAGES, 1, 0));
            // Half of what is asked for is under way by now.
            pair.turn(false);
            pair.turn(true);
            let change = std::thread::spawn({
                let file = file.try_clone().unwrap();
                move || {
                    let page = round * 8 % PAGES;
                    let number = (page + 1_000_000).to_le_bytes();
                    let change = || file.write_all_at(&number, page * 4096).unwrap();
                    find(&file).unwrap().around(page * 4096, 4096, change).unwrap();
                }
            });
            let ends = pair.until(PEERS);
            assert!(ends.iter().all(|(_, end)| *end == End::Read));
            while !change.is_finished() {
                pair.turn(true);
            }
            change.join().unwrap();
            pair.ask(0, round * 8 % PAGES, 1, 0);
            pair.until(1);
            assert_eq!(pair.page(0, 0), round * 8 % PAGES + 1_000_000);
        }
    }

    #[test]
    fn an_engine_that_ends_leaves_no_page_on_its_way_for_ever() {
        let (file, medium) = rig();
        for round in 0..10 {
            let mut pair = Pair::open(&medium, 4);
            (0..4).for_each(|peer| pair.ask(peer, 40 + round * 16 + peer as u64, 1, 0));
            pair.turn(false);
            pair.turn(true);
            let far = pair.peers[0].far;
            pair.server.disconnect(far);
            drop(pair);
            // Waits for the pages, and then has the range to itself.
            find(&file).unwrap().around(0, PAGES * 4096, || ()).unwrap();
        }
        medium.read(40 * 4096, &mut [0; PAGE]).unwrap();
    }

    const PAGES: u64 = 2048;
    const PEERS: usize = 8;
    /// Bytes of each peer.
    const ROOM: usize = 16 * PAGE;
}
