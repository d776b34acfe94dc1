//! Whoever believes that it is in sync is waited for by a source that starts again.

use super::*;

const THIRD: Peer = Peer { member: MemberId(2), connection: 7 };

fn three() -> Config {
    let others = vec![(SOURCE.member, Mode::Sync), (THIRD.member, Mode::Sync)];
    Config { others, ..config() }
}

/// A source alone, of a group of three.
fn source_of_three() -> Core {
    let label =
        Label { history: history(), in_sync: MemberSet::of(ME), ..Core::first_label(&three()) };
    let dirty = vec![];
    let mut core = Core::new(three(), Found { label, entries: entries(2), dirty, claimed: Lsn(0) });
    let wish = Wish::Promote { nonce: 9, above: 0, was_in_sync: true, by_force: false };
    core.step(1, Event::Wanted(wish));
    let asked = core.step(2, Event::Revoked);
    begin(&mut core, &asked);
    core.step(4, Event::AppliedTo(Lsn(2 * LEN)));
    core
}

/// What the core does once a member that has everything follows.
fn joins(core: &mut Core, peer: Peer) -> Vec<Action> {
    core.step(5, Event::Dialed(peer));
    let told = core.step(6, Event::Said(peer, has_all(history(), Lsn(2 * LEN))));
    if !follows(&told) {
        core.step(7, Event::DirtyStored(peer.member, ordered_map(&told)));
    }
    core.step(8, Event::Said(peer, Message::Following))
}

fn told_set(actions: &[Action]) -> Vec<(Peer, u64, MemberSet)> {
    let told = |action: &Action| match action {
        Action::Send(peer, Message::InSync { version, members, .. }) => {
            Some((*peer, *version, *members))
        }
        _ => None,
    };
    actions.iter().filter_map(told).collect()
}

fn stored(actions: &[Action]) -> Option<Label> {
    actions.iter().find_map(|action| match action {
        Action::StoreLabel(label) => Some((**label).clone()),
        _ => None,
    })
}

#[test]
fn a_member_hears_that_it_is_in_sync_once_the_source_will_wait_for_it_after_a_crash() {
    let mut core = source();
    let peer = Peer { member: SOURCE.member, connection: 5 };
    let asked = joins(&mut core, peer);
    let taken = core.step(9, Event::Proposed { number: proposal(&asked), is_taken: true });
    assert_eq!(told_set(&taken), [], "a source that dies now waits for nobody");
    assert_eq!(stored(&taken).unwrap().in_sync, MemberSet(0b11));
    // Its connection is lost and made again before that is stored: nothing else tells it either.
    core.step(9, Event::Lost(peer));
    let peer = Peer { connection: 6, ..peer };
    core.step(9, Event::Dialed(peer));
    let mut told =
        core.step(9, Event::Said(peer, has_all(core.label().history.clone(), Lsn(2 * LEN))));
    told.extend(core.step(9, Event::Said(peer, Message::Following)));
    let follow = told.iter().find_map(|action| match action {
        Action::Send(_, Message::Follow { in_sync, .. }) => Some(*in_sync),
        _ => None,
    });
    assert_eq!(follow, Some(MemberSet::of(ME)), "{told:?}");
    assert_eq!(told_set(&told), [(peer, 1, MemberSet::of(ME))]);
    let told = core.step(10, Event::LabelStored(ordered_label(&taken)));
    assert_eq!(told_set(&told), [(peer, 2, MemberSet(0b11))]);
    assert_eq!(core.status().in_sync, MemberSet::of(ME), "its own label lacks it");
    core.step(11, Event::Said(peer, Message::Stored { version: 2 }));
    assert_eq!(core.status().in_sync, MemberSet(0b11));
}

#[test]
fn a_source_names_a_member_that_leaves_until_that_one_has_stored_that_it_did() {
    let (mut core, peer) = source_of_two();
    let asked = core.step(12, Event::Wanted(Wish::Suspend(peer.member)));
    let taken = core.step(13, Event::Proposed { number: proposal(&asked), is_taken: true });
    assert_eq!(told_set(&taken), [(peer, 3, MemberSet::of(ME))]);
    assert_eq!(stored(&taken), None, "it would not wait for a member that believes it is in sync");
    let knows = core.step(14, Event::Said(peer, Message::Stored { version: 3 }));
    assert_eq!(stored(&knows).unwrap().in_sync, MemberSet::of(ME));
    assert_eq!(core.status().in_sync, MemberSet(0b11));
    core.step(15, Event::LabelStored(ordered_label(&knows)));
    assert_eq!(core.status().in_sync, MemberSet::of(ME));
}

#[test]
fn a_member_that_leaves_and_stores_nothing_is_waited_for_as_long_as_a_silent_one() {
    let (mut core, peer) = source_of_two();
    let asked = core.step(12, Event::Wanted(Wish::Suspend(peer.member)));
    core.step(13, Event::Proposed { number: proposal(&asked), is_taken: true });
    // It is heard, but its label is not stored.
    let later = 14 + config().silence_ns;
    core.step(later, Event::Said(peer, Message::Alive));
    let ends = core.step(later, Event::Tick);
    assert!(ends.contains(&Action::Disconnect(peer)), "{ends:?}");
    let left = core.step(later, Event::Lost(peer));
    assert_eq!(stored(&left).unwrap().in_sync, MemberSet::of(ME));
}

#[test]
fn a_source_takes_nobody_in_while_another_member_may_be_the_source() {
    let mut core = source_of_three();
    let first = Peer { member: SOURCE.member, connection: 5 };
    let asked = joins(&mut core, first);
    let taken = core.step(9, Event::Proposed { number: proposal(&asked), is_taken: true });
    core.step(10, Event::LabelStored(ordered_label(&taken)));
    core.step(11, Event::Said(first, Message::Stored { version: 2 }));
    assert_eq!(core.status().in_sync, MemberSet(0b11));
    let named = core.step(12, Event::Wanted(Wish::Reverse { to: first.member, nonce: 3 }));
    core.step(13, Event::LabelStored(ordered_label(&named)));
    assert!(core.has_handed_over());
    core.step(14, Event::Lost(first));
    assert_eq!(proposed(&joins(&mut core, THIRD)), None, "it lacks what the other one answers");
    let without = core.step(15, Event::Wanted(Wish::GoOnWithout(first.member)));
    assert!(proposed(&without).is_some(), "{without:?}");
}

#[test]
fn a_member_takes_the_place_of_another_in_two_steps() {
    let (mut core, peer) = source_of_two();
    core.config.others.push((THIRD.member, Mode::Sync));
    let members = |proposed: MemberSet, least| {
        let Role::Source(source) = &core.role else { unreachable!() };
        source.one_way(proposed, least)
    };
    let (me, swapped) = (MemberSet::of(ME), MemberSet::of(ME).with(THIRD.member));
    assert_eq!(members(swapped, 1), me, "nobody waits for who has left");
    assert_eq!(members(swapped, 2), MemberSet(0b111), "never fewer than the operator wants");
    assert_eq!(members(MemberSet(0b111), 2), MemberSet(0b111));
    assert_eq!(members(me, 1), me);
    assert_eq!(peer.member, SOURCE.member);
}

#[test]
fn a_member_that_leaves_while_it_begins_to_follow_is_waited_for_too() {
    let (mut core, peer) = source_of_two();
    let asked = core.step(12, Event::Lost(peer));
    assert_eq!(proposed(&asked), Some(MemberSet::of(ME)));
    // Before the witness answers it is back, and is told that it is in sync.
    let peer = Peer { connection: 6, ..peer };
    core.step(13, Event::Dialed(peer));
    let history = core.label().history.clone();
    let told = core.step(13, Event::Said(peer, has_all(history, Lsn(2 * LEN))));
    assert!(follows(&told), "{told:?}");
    let taken = core.step(14, Event::Proposed { number: proposal(&asked), is_taken: true });
    assert_eq!(stored(&taken), None, "it would not wait for a member that believes it is in sync");
    let told = core.step(15, Event::Said(peer, Message::Following));
    assert_eq!(told_set(&told), [(peer, 3, MemberSet::of(ME))]);
    let knows = core.step(16, Event::Said(peer, Message::Stored { version: 3 }));
    assert_eq!(stored(&knows).unwrap().in_sync, MemberSet::of(ME));
}

/// A member that is back, in sync still, as its source cannot leave it behind, on a connection of its own.
fn is_back(core: &mut Core, peer: Peer, is_consistent: bool) -> (Peer, Vec<Action>) {
    (core.config.has_witness, core.config.least_in_sync) = (true, 2);
    let told = core.step(12, Event::Lost(peer));
    assert!(told.contains(&Action::Tell(News::TooFewInSync)), "{told:?}");
    assert_eq!(proposed(&told), None);
    let peer = Peer { connection: 6, ..peer };
    core.step(13, Event::Dialed(peer));
    let history = core.label().history.clone();
    let Message::Here { history, end, applied, bound, recent, recent_from, .. } =
        has_all(history, Lsn(2 * LEN))
    else {
        unreachable!()
    };
    let here = Message::Here { history, end, applied, bound, is_consistent, recent, recent_from };
    let told = core.step(13, Event::Said(peer, here));
    (peer, told)
}

#[test]
fn who_was_away_in_sync_gets_copies_once_the_witness_says_who_is_the_source() {
    let (mut core, peer) = source_of_two();
    let (_, asked) = is_back(&mut core, peer, false);
    assert!(!follows(&asked), "it may be the source, and would be a mixture: {asked:?}");
    let state = core.status().others[0].1;
    assert!(!state.is_connected && state.is_here, "no promoter gives up because of that");
    assert_eq!(proposed(&asked), Some(MemberSet(0b11)));
    let told = core.step(14, Event::Proposed { number: proposal(&asked), is_taken: true });
    assert!(follows(&told), "{told:?}");
}

#[test]
fn who_was_away_in_sync_and_has_everything_follows_though_no_witness_answers() {
    let (mut core, peer) = source_of_two();
    let (_, told) = is_back(&mut core, peer, true);
    assert!(follows(&told), "{told:?}");
    assert_eq!(proposed(&told), None);
}

#[test]
fn a_member_that_joins_slowly_ends_where_a_change_waits_for_it_and_not_before() {
    let mut core = source();
    let peer = Peer { member: SOURCE.member, connection: 5 };
    let asked = joins(&mut core, peer);
    let taken = core.step(9, Event::Proposed { number: proposal(&asked), is_taken: true });
    core.step(10, Event::LabelStored(ordered_label(&taken)));
    let later = 11 + config().silence_ns;
    core.step(later, Event::Said(peer, Message::Alive));
    let told = core.step(later, Event::Tick);
    assert!(!told.contains(&Action::Disconnect(peer)), "it may take its time: {told:?}");
    core.step(later, Event::Wanted(Wish::Suspend(peer.member)));
    let ends = core.step(later, Event::Tick);
    assert!(ends.contains(&Action::Disconnect(peer)), "{ends:?}");
    let left = core.step(later, Event::Lost(peer));
    assert_eq!(proposed(&left), Some(MemberSet::of(ME)), "it counts, and is gone: {left:?}");
}

#[test]
fn a_source_that_is_demoted_while_a_member_joins_is_in_sync_only_if_that_one_was_not_told() {
    let demoted = |is_told: bool| {
        let mut core = source();
        let peer = Peer { member: SOURCE.member, connection: 5 };
        let asked = joins(&mut core, peer);
        let taken = core.step(9, Event::Proposed { number: proposal(&asked), is_taken: true });
        assert_eq!(core.label().in_sync, MemberSet(0b11));
        if is_told {
            core.step(10, Event::LabelStored(ordered_label(&taken)));
        }
        core.step(11, Event::Wanted(Wish::Demote));
        core.step(12, Event::Lost(peer));
        let told = core.step(13, Event::WritersStopped);
        assert!(!core.is_source());
        stored(&told).unwrap().in_sync
    };
    assert_eq!(demoted(false), MemberSet::of(ME), "it alone has what was answered, and knows that");
    assert_eq!(demoted(true), MemberSet::NONE, "the other one may be promoted, and answer");
}

#[test]
fn a_member_that_is_heard_is_not_silent_while_the_witness_takes_long() {
    let (mut core, peer) = source_of_two();
    let (peer, asked) = is_back(&mut core, peer, false);
    let later = 14 + config().silence_ns;
    core.step(later, Event::Said(peer, Message::Alive));
    let told = core.step(later, Event::Tick);
    assert!(!told.contains(&Action::Disconnect(peer)), "{told:?}");
    let told = core.step(later, Event::Proposed { number: proposal(&asked), is_taken: true });
    assert!(follows(&told), "{told:?}");
    let silent = core.step(later + config().silence_ns + 1, Event::Tick);
    assert!(silent.contains(&Action::Disconnect(peer)), "{silent:?}");
}
