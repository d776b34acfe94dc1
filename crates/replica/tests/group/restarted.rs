//! Members that start again: whether writes were answered without them in the meantime they cannot know.

use replica::core::{Denial, News, Wish};
use replica::{MemberId, MemberSet};

use crate::group::{Group, Plan};
use crate::settings::settings;

fn all() -> Plan {
    Plan { least_in_sync: 2, ..Plan::default() }
}

/// Asks a member to be the source, and waits for what it makes of that.
fn is_promoted(group: &Group, member: u8) -> bool {
    let is_denied = |news: &News| matches!(news, News::Denied(Denial::MayBeLeft));
    group.member(member).promote(false).unwrap();
    group.wait("it is the source, or says why not", || {
        group.status(member).is_source || group.has_told(member, is_denied)
    });
    !group.has_told(member, is_denied)
}

fn takes(group: &Group, member: u8, least_in_sync: u32) {
    let mut wanted = settings(group, member);
    wanted.tuning.least_in_sync = least_in_sync;
    group.member(member).configure(&wanted);
}

#[test]
fn a_member_that_has_started_again_is_asked_about_although_all_members_are_needed() {
    let mut group = Group::new(all());
    group.write(0, 0, 0, 3, 4096);
    group.stop(0);
    group.stop(1);
    group.start(1);
    assert!(!is_promoted(&group, 1));
    // The operator knows that it was in sync.
    group.member(1).promote_as(true, false).unwrap();
    group.wait("it is the source", || group.status(1).is_source);
    group.start(0);
    group.compare(1, 0);
}

#[test]
fn a_member_that_was_left_behind_before_least_in_sync_was_raised_is_asked_about() {
    let mut group = Group::new(Plan::default());
    group.stop(1);
    group.write(0, 0, 0, 7, 4096);
    takes(&group, 0, 2);
    group.stop(0);
    group.least_in_sync(2);
    group.start(1);
    assert!(!is_promoted(&group, 1));
    group.start(0);
    group.compare(0, 1);
}

#[test]
fn a_source_that_starts_again_hears_a_suspended_member_that_it_has_to_wait_for() {
    let mut group = Group::new(all());
    group.member(0).want(Wish::Suspend(MemberId(1)));
    group.wait("it is suspended", || group.status(0).others[0].1.is_suspended);
    assert!(group.member(0).is_kept());
    group.stop(0);
    group.start(0);
    group.wait("the source goes on", || group.status(0).is_ready);
    assert_eq!(group.status(0).in_sync, MemberSet(0b11));
    assert!(group.status(0).others[0].1.is_suspended);
    group.member(0).want(Wish::Resume(MemberId(1)));
    group.write(0, 0, 0, 7, 4096);
    group.compare(0, 1);
}
