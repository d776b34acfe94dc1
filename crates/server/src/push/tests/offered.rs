//! What the answer to a CREATE says of push mode: docs/push-mode.md, "Create context".

use std::time::Duration;

use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, CreateRequestContext,
    CreateResponse, CreateResponseContext, Lease, LeaseState,
};
use smb::push::{
    Capabilities, Durability, PushGrant, PushRefusal, PushRequest, PushResponse, Refusal, Rights,
};

use super::rig::Rig;
use crate::config::PushPolicy;
use crate::push::mapping::REGION_LENGTH_MAX;

/// A directory of a disk file system.
const DISK: &str = "/var/tmp";
const MEMORY: &str = "/dev/shm";

async fn answer(
    rig: &Rig,
    change: impl FnOnce(&mut CreateRequest<'_>, &mut Lease, &mut PushRequest),
) -> PushResponse {
    let (how, context) = (CreateDisposition::OPEN_IF, CreateRequestContext::QueryOnDiskId);
    let pdu = rig.create_as("f", 1, how, context, change).await.unwrap();
    let contexts = CreateResponse::parse(&pdu).unwrap().contexts;
    let push = contexts.into_iter().find_map(|context| match context {
        CreateResponseContext::Push(push) => Some(push),
        _ => None,
    });
    push.unwrap()
}

async fn granted(
    rig: &Rig,
    change: impl FnOnce(&mut CreateRequest<'_>, &mut Lease, &mut PushRequest),
) -> PushGrant {
    match answer(rig, change).await {
        PushResponse::Granted(grant) => grant,
        PushResponse::Refused(why) => panic!("{why:?}"),
    }
}

async fn refused(
    rig: &Rig,
    change: impl FnOnce(&mut CreateRequest<'_>, &mut Lease, &mut PushRequest),
) -> PushRefusal {
    match answer(rig, change).await {
        PushResponse::Refused(why) => why,
        PushResponse::Granted(grant) => panic!("{grant:?}"),
    }
}

#[tokio::test]
async fn a_grant_names_what_the_server_and_the_file_allow() {
    let policy = PushPolicy {
        grace: Duration::from_millis(4_321),
        token_lifetime: Duration::from_millis(9_876),
        regions_per_open_max: 5,
        ..PushPolicy::default()
    };
    let rig = Rig::of(MEMORY, policy, |_| ());
    // Of rights that no version knows none is granted.
    let asked = Rights::READ | Rights::VERIFY | Rights::from_bits_retain(1 << 31);
    let grant = granted(&rig, |_, _, push| push.rights = asked).await;
    let all = Capabilities::FLUSH
        | Capabilities::VERIFY
        | Capabilities::ATOMIC_WRITE
        | Capabilities::ATOMIC
        | Capabilities::EMULATED_PERSISTENCE;
    assert_eq!(grant.capabilities, all);
    assert_eq!((grant.durability, grant.store_granularity), (Durability::VOLATILE, 1));
    assert_eq!((grant.regions_max, grant.region_length_max), (5, REGION_LENGTH_MAX));
    assert_eq!(grant.rights, Rights::READ | Rights::VERIFY);
    assert_eq!((grant.token_lifetime_ms, grant.recall_grace_ms), (9_876, 4_321));
    assert_eq!(grant.addresses, [rig.core.push.rdma_address().unwrap()]);
    assert_eq!(grant.same_host, None);
}

#[tokio::test]
async fn a_file_on_a_disk_is_offered_as_durable_storage_whatever_memory_emulates() {
    let rig = Rig::on(DISK, Duration::from_secs(3600));
    for durability in [Durability::ANY, Durability::VOLATILE, Durability::STORAGE] {
        let grant = granted(&rig, |_, _, push| {
            push.durability = durability;
            push.accept_emulated = false;
        });
        let grant = grant.await;
        assert_eq!((grant.durability, grant.store_granularity), (Durability::STORAGE, 4096));
        assert!(!grant.capabilities.contains(Capabilities::EMULATED_PERSISTENCE));
    }
    let why = refused(&rig, |_, _, push| push.durability = Durability::PMEM).await;
    assert_eq!(why.reason, Refusal::DURABILITY);
    assert_eq!((why.durability, why.is_emulated), (Durability::STORAGE, false));
}

#[tokio::test]
async fn memory_is_offered_as_durable_where_both_ends_agree_to_emulation_alone() {
    for (emulates, accepts) in [(true, true), (true, false), (false, true), (false, false)] {
        let configure = |share: &mut tree::ShareConfig| share.emulate_persistence = emulates;
        let rig = Rig::of(MEMORY, PushPolicy::default(), configure);
        let wish = |push: &mut PushRequest| {
            push.durability = Durability::STORAGE;
            push.accept_emulated = accepts;
        };
        if emulates && accepts {
            let grant = granted(&rig, |_, _, push| wish(push)).await;
            assert_eq!(grant.durability, Durability::VOLATILE, "what it is in truth");
            assert!(grant.capabilities.contains(Capabilities::EMULATED_PERSISTENCE));
        } else {
            let why = refused(&rig, |_, _, push| wish(push)).await;
            let told = (why.reason, why.durability, why.is_emulated);
            assert_eq!(told, (Refusal::DURABILITY, Durability::VOLATILE, emulates));
        }
        let grant = granted(&rig, |_, _, push| push.durability = Durability::VOLATILE).await;
        let is_emulated = grant.capabilities.contains(Capabilities::EMULATED_PERSISTENCE);
        assert_eq!(is_emulated, emulates);
    }
}

#[tokio::test]
async fn an_adapter_that_reaches_memory_alone_is_offered_for_no_file_on_a_disk() {
    let (disk, memory) = (Rig::on(DISK, Duration::from_secs(3600)), Rig::new());
    disk.engine.reach_memory_alone();
    memory.engine.reach_memory_alone();
    let why = refused(&disk, |_, _, _| ()).await;
    assert_eq!((why.reason, why.durability), (Refusal::SHARE_NOT_CAPABLE, Durability::STORAGE));
    granted(&memory, |_, _, _| ()).await;
}

#[tokio::test]
async fn push_needs_the_whole_lease_and_the_rights_to_read_and_to_write() {
    let rig = Rig::new();
    let all = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
    for missing in [LeaseState::WRITE, LeaseState::HANDLE] {
        let why = refused(&rig, |_, lease, _| lease.state = all - missing).await;
        assert_eq!(why.reason, Refusal::LEASE_REQUIRED, "without {missing:?}");
    }
    let attributes = AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
    for access in [AccessMask::READ_DATA, AccessMask::WRITE_DATA] {
        let rig = Rig::new();
        let why = refused(&rig, |request, _, _| request.desired_access = access | attributes).await;
        assert_eq!(why.reason, Refusal::ACCESS, "with {access:?}");
    }
    let rig = Rig::new();
    let both = AccessMask::READ_DATA | AccessMask::WRITE_DATA;
    granted(&rig, |request, _, _| request.desired_access = both).await;
}

#[tokio::test]
async fn a_directory_has_no_bytes_to_push() {
    let rig = Rig::new();
    let directory = |request: &mut CreateRequest<'_>| {
        request.options = CreateOptions::DIRECTORY_FILE;
    };
    let why = refused(&rig, |request, _, _| directory(request)).await;
    let told = (why.reason, why.durability, why.is_emulated);
    assert_eq!(told, (Refusal::NOT_A_FILE, Durability::ANY, false));
}

#[tokio::test]
async fn a_server_without_push_mode_says_so() {
    let policy = PushPolicy { enabled: false, ..PushPolicy::default() };
    let rig = Rig::of(MEMORY, policy, |_| ());
    assert_eq!(refused(&rig, |_, _, _| ()).await.reason, Refusal::DISABLED);
}
