//! What regions take of the address space of the server.

use std::sync::{Mutex, MutexGuard, PoisonError};

use smb::push::{MapRequest, MapResponse, Rights};
use smb::{ControlCode, NtStatus};

use super::rig::{Opened, Rig};
use super::{PAGE, settle, unmap};
use crate::access::Identity;
use crate::limits::MAPPED_UNIT;
use crate::push::mapping::REGION_LENGTH_MAX;
use crate::state::Resource;

/// The longest region, for reading: it takes no blocks of a sparse file.
async fn map_longest(rig: &Rig, open: Opened) -> Result<MapResponse, NtStatus> {
    let request = MapRequest {
        rights: Rights::READ,
        push_connection_id: open.connection,
        file_offset: 0,
        length: REGION_LENGTH_MAX,
    };
    let code = ControlCode::MAP_REMOTE_REGION;
    let output = rig.control(open, code, |out| request.emit(out), 8192).await?;
    Ok(MapResponse::parse(&output).unwrap())
}

/// One of the tests that map much at a time: what one of them takes another one would measure.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of address space of this process.
fn address_space() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    pages * u64::try_from(rustix::param::page_size()).unwrap()
}

fn held(rig: &Rig) -> u64 {
    u64::try_from(rig.session().account.held(Resource::Mapped)).unwrap() * MAPPED_UNIT
}

#[test]
fn a_region_at_the_end_of_a_long_file_takes_address_space_for_itself_alone() {
    let _alone = alone();
    super::run(async {
        let rig = Rig::new();
        let open = rig.open("f", 1).await;
        rig.set_end(open, 1 << 46).await.unwrap();
        let before = address_space();
        let mapped = rig.map(open, (1 << 46) - PAGE, PAGE).await.unwrap();
        let grown = address_space().saturating_sub(before);
        assert!(grown < 1 << 40, "{grown}");
        assert_eq!(mapped.file_offset, (1 << 46) - PAGE);
        rig.engine.place(0, &[7; 64]);
        let mut file = std::fs::File::open(rig.dir.path().join("f")).unwrap();
        let mut bytes = [0; 64];
        std::io::Seek::seek(&mut file, std::io::SeekFrom::End(-4096)).unwrap();
        std::io::Read::read_exact(&mut file, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 64]);
    });
}

#[test]
fn regions_of_a_user_leave_address_space_to_the_server() {
    let _alone = alone();
    super::run(async {
        let rig = Rig::new();
        let open = rig.open("f", 1).await;
        rig.set_end(open, 1 << 46).await.unwrap();
        let mut mapped = Vec::new();
        let refused = loop {
            match map_longest(&rig, open).await {
                Ok(region) => mapped.push(region),
                Err(status) => break status,
            }
        };
        assert_eq!((refused, mapped.len()), (NtStatus::INSUFFICIENT_RESOURCES, 7));
        let limits = &rig.core.connections.limits;
        assert!(held(&rig) <= limits.user_mapped_max && limits.user_mapped_max < limits.mapped_max);
        let other = rig.core.connections.accounts.of(&Identity::user("other"));
        let units = usize::try_from(REGION_LENGTH_MAX / MAPPED_UNIT).unwrap();
        assert!(other.try_take(Resource::Mapped, units).is_some(), "it is in nobody else's way");
        rig.map(open, 0, PAGE).await.expect("a short one fits beside them");
        unmap(&rig, open, &mapped.pop().unwrap()).await.unwrap();
        settle().await;
        mapped.push(map_longest(&rig, open).await.expect("what was given back is there again"));
        rig.close(open.id).await;
        settle().await;
        assert_eq!(held(&rig), 0);
    });
}

#[test]
fn a_user_who_has_mapped_all_it_may_is_refused_one_more_page() {
    let _alone = alone();
    super::run(async {
        let rig = Rig::new();
        let open = rig.open("f", 1).await;
        rig.set_end(open, 1 << 46).await.unwrap();
        let account = &rig.session().account;
        let all =
            usize::try_from(rig.core.connections.limits.user_mapped_max / MAPPED_UNIT).unwrap();
        let taken = account.try_take(Resource::Mapped, all).unwrap();
        assert_eq!(rig.map(open, 0, PAGE).await.err(), Some(NtStatus::INSUFFICIENT_RESOURCES));
        drop(taken);
        rig.map(open, 0, PAGE).await.unwrap();
    });
}
