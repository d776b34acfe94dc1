//! Tests that every provider passes: run here over `soft`, again by `tests/over_*.rs` over the provider in the
//! name of the file, and in the guest over the kernel's rxe and siw (`cargo xtask guest verbs`).
//!
//! Not tested here: the code by which a refusal is reported, and operations that only `soft` has.
#![expect(clippy::tests_outside_test_module, reason = "the whole file is a test")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod connections;
mod durability;
mod moving;
mod protection;
mod queues;
#[path = "../support/mod.rs"]
mod support;
mod waiting;

use std::sync::Arc;

use pmem::Medium;
use rdma::{Access, ConnectFailure, EngineConfig, Event, LocalSlice, MemoryRegion, Operation};

use support::{End, Pair, memory, provider};

fn end(config: EngineConfig) -> End {
    End::open(&*provider(), config)
}

/// Reports the first bytes that differ, and not all of them.
fn same(found: &[u8], expected: impl AsRef<[u8]>) {
    let expected = expected.as_ref();
    assert_eq!(found.len(), expected.len());
    let differs = found.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(differs, None, "the first byte that differs");
}

/// Whether the device under test is known to break a rule (tests/guest/verbs.sh names them).
fn has_gap(name: &str) -> bool {
    std::env::var("LANDFAST_RDMA_GAPS").is_ok_and(|gaps| gaps.split(',').any(|gap| gap == name))
}

fn failed(end: &mut End) -> Option<(ConnectFailure, Vec<u8>)> {
    end.take(|event| match event {
        Event::ConnectFailed { reason, private_data, .. } => Some((*reason, private_data.clone())),
        _ => None,
    })
}

/// A region of the server's that the client may write and read.
fn target(pair: &mut Pair, medium: &Arc<dyn Medium>) -> MemoryRegion {
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let (qp, range) = (pair.server_qp, 0..medium.len());
    pair.server.engine.register(qp, Arc::clone(medium), range, access).unwrap()
}

fn read(local: LocalSlice, region: MemoryRegion, offset: u64) -> Operation<'static> {
    let remote_addr = region.remote_addr_base + offset;
    Operation::Read { local, rkey: region.rkey, remote_addr }
}

/// Returns when everything written before is placed: the answer to a read shows that (RFC 5040
/// §5.5; InfiniBand orders reads behind writes).
fn barrier(pair: &mut Pair, region: MemoryRegion) {
    let local = pair.local(&memory(4096)).slice(0, 1);
    pair.post(u64::MAX, read(local, region, 0));
    pair.until(|client, _| client.completion().filter(|done| done.wr_id == u64::MAX));
}

#[test]
fn the_provider_is_the_requested_one() {
    let asked = std::env::var("LANDFAST_RDMA_PROVIDER").unwrap_or_else(|_| "soft".into());
    let binary = env!("CARGO_CRATE_NAME");
    assert_eq!(provider().name(), binary.strip_prefix("over_").unwrap_or(&asked));
}
