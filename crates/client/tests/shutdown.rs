//! A server that stops while a client pushes, over real sockets.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

#[path = "support/fixture.rs"]
mod fixture;

use std::time::Duration;

use client::{Path, RegionSettings};
use fixture::{Fixture, bytes_at, pushing};

const LEN: u64 = 64 * 1024;
/// Long enough that a test which waited for its end would fail.
const FOR_EVER: Duration = Duration::from_secs(3600);
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_server_that_stops_gets_its_regions_back_before_it_ends_connections() {
    let fixture = Fixture::start("/dev/shm", |config| {
        config.push.grace = FOR_EVER;
        config.limits.shutdown_grace = FOR_EVER;
    });
    let file = fixture.file(LEN);
    let client = fixture.client();
    let mut region = client.map("region", &pushing(), 0..LEN, RegionSettings::default()).unwrap();
    region.write_commit(0, &[0; 8]).unwrap();
    assert!(matches!(region.path(), Path::Push { .. }));
    let Fixture { running, runtime, share } = fixture;
    let writer = std::thread::spawn(move || {
        let mut committed = 0_u64;
        while region.write_commit(0, &(committed + 1).to_le_bytes()).is_ok() {
            committed += 1;
        }
        committed
    });
    let stopped = async { tokio::time::timeout(PATIENCE, running.shutdown()).await };
    runtime.block_on(stopped).expect("the client lets go though its grace would be long");
    let committed = writer.join().unwrap();
    let found = u64::from_le_bytes(bytes_at(&file, 0, 8).try_into().unwrap());
    assert!(found == committed || found == committed + 1, "{found} of {committed} commits");
    drop(share);
}
