//! A push client whose machine is gone: the server ends its regions.

#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

#[path = "support/fixture.rs"]
mod fixture;
#[path = "../../rdma/tests/support/network.rs"]
mod network;

use std::time::{Duration, Instant};

use client::Path;
use fixture::{Fixture, bytes_at, pushing, settings};
use network::alone;

#[test]
fn the_regions_of_a_vanished_push_client_end() {
    alone("the_regions_of_a_vanished_push_client_end", |network| {
        let fixture = Fixture::start("/dev/shm", |config| {
            config.limits.silence_max = Some(Duration::from_secs(2));
        });
        let path = fixture.file(1 << 20);
        let client = fixture.client();
        let mut region = client.map("region", &pushing(), 0..(1 << 20), settings()).unwrap();
        assert!(matches!(region.path(), Path::Push { .. }));
        region.write_commit(0, b"kept").unwrap();
        network.cut();
        let deadline = Instant::now() + Duration::from_secs(40);
        loop {
            let status = fixture.running.status();
            let held = (status.connections, status.push_connections, status.regions, status.opens);
            if held == (0, 0, 0, 0) {
                break;
            }
            assert!(Instant::now() < deadline, "left over: {status:?}");
            std::thread::yield_now();
        }
        assert_eq!(bytes_at(&path, 0, 4), b"kept");
        network.mend();
    });
}
