//! Members whose links have several connections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use block::Survives;
use replica::core::News;

use crate::group::{Group, Plan};

const CONNECTIONS: usize = 3;

fn stand(group: &Group) -> bool {
    group.member(0).report().connections.iter().all(|(_, count)| *count == CONNECTIONS)
}

#[test]
fn a_member_stays_in_sync_while_its_connections_are_cut_and_go_silent_one_by_one() {
    let plan = Plan { connections: CONNECTIONS, capacity: 8 << 20, ..Plan::default() };
    let group = Group::new(plan);
    group.wait("all connections stand", || stand(&group));
    let devices = group.devices(0);
    let stops = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..3_u64 {
            let (devices, stops) = (&devices, &stops);
            scope.spawn(move || {
                let rounds = (1..=255_u8).cycle().zip(0_u64..);
                for (fill, round) in rounds.take_while(|_| !stops.load(Ordering::SeqCst)) {
                    let len = [4096, 65_536, 262_144][usize::try_from(writer).unwrap()];
                    let at = (writer << 20) + round % 2 * len;
                    let bytes = vec![fill; usize::try_from(len).unwrap()];
                    devices[usize::from(fill % 2)].write(at, &bytes, Survives::Placed).unwrap();
                }
            });
        }
        for place in 0..CONNECTIONS {
            group.proxy(1).cut(place);
            group.wait("it is made again", || {
                stand(&group) && group.proxy(1).count() == CONNECTIONS
            });
        }
        group.proxy(1).hold(1);
        group.wait("another is made", || stand(&group) && group.proxy(1).count() == CONNECTIONS);
        stops.store(true, Ordering::SeqCst);
    });
    group.compare(0, 1);
    assert!(!group.has_told(0, |news| matches!(news, News::OutOfSync(_))));
}

#[test]
fn a_member_whose_connections_all_end_follows_again_from_the_log() {
    let group = Group::new(Plan { connections: CONNECTIONS, ..Plan::default() });
    group.write(0, 0, 0, 1, 4096);
    group.wait("all connections stand", || stand(&group));
    (0..CONNECTIONS).for_each(|_| group.proxy(1).cut(0));
    group.write(0, 0, 4096, 2, 4096);
    group.compare(0, 1);
}
