//! Promotions, one after the other and past each other.

use super::*;

#[test]
fn a_member_that_is_promoted_waits_until_nothing_reaches_its_ring_any_more() {
    let mut core = member(2);
    let wish = Wish::Promote { nonce: 9, above: 0, was_in_sync: true, by_force: false };
    let actions = core.step(1, Event::Wanted(wish));
    assert_eq!(actions, [Action::Revoke]);
    assert!(!core.is_source() && core.status().is_promoting);
    let actions = core.step(2, Event::Revoked);
    assert!(matches!(actions[..], [Action::Propose { epoch: Epoch { number: 2, .. }, .. }]));
    assert!(core.is_source() && !core.status().is_ready);
}

#[test]
fn only_an_operator_promotes_past_the_witness() {
    for (my_mode, by_force) in
        [(Mode::SemiSync, false), (Mode::Sync, false), (Mode::SemiSync, true), (Mode::Sync, true)]
    {
        let config = Config { my_mode, has_witness: true, ..config() };
        let label =
            Label { history: history(), in_sync: MemberSet(0b11), ..Core::first_label(&config) };
        let dirty = vec![(SOURCE.member, DirtyMap::clean(&config.volumes))];
        let mut core =
            Core::new(config, Found { label, entries: entries(2), dirty, claimed: Lsn(0) });
        core.step(
            1,
            Event::Wanted(Wish::Promote { nonce: 9, above: 1, was_in_sync: true, by_force }),
        );
        core.step(2, Event::Revoked);
        assert!(core.is_source());
        assert_eq!(core.is_by_force(1), Some(by_force), "{my_mode:?}");
    }
}

#[test]
fn what_the_witness_says_to_an_earlier_promotion_begins_no_later_one() {
    let mut core = member(2);
    core.step(
        1,
        Event::Wanted(Wish::Promote { nonce: 9, above: 0, was_in_sync: true, by_force: false }),
    );
    let asked = core.step(2, Event::Revoked);
    let again = promote_again(&mut core);
    assert_ne!(proposal(&asked), proposal(&again));
    assert_eq!(core.is_by_force(proposal(&asked)), None);
    assert_eq!(core.is_by_force(proposal(&again)), Some(true));
    let late = core.step(9, Event::Proposed { number: proposal(&asked), is_taken: true });
    assert_eq!(late, []);
}

#[test]
fn a_label_of_an_earlier_promotion_begins_no_later_one() {
    let mut core = member(2);
    core.step(
        1,
        Event::Wanted(Wish::Promote { nonce: 9, above: 0, was_in_sync: true, by_force: false }),
    );
    let asked = core.step(2, Event::Revoked);
    let number = proposal(&asked);
    let early = ordered_label(&core.step(3, Event::Proposed { number, is_taken: true }));
    let again = promote_again(&mut core);
    let number = proposal(&again);
    let late = ordered_label(&core.step(9, Event::Proposed { number, is_taken: true }));
    let told = core.step(10, Event::LabelStored(early));
    let begins = |actions: &[Action]| {
        actions.iter().any(|action| matches!(action, Action::Tell(News::IsSource(_))))
    };
    assert!(!begins(&told), "{told:?}");
    assert!(begins(&core.step(11, Event::LabelStored(late))));
}

#[test]
fn a_member_that_holds_nothing_of_a_group_that_has_begun_is_promoted_by_force_alone() {
    let config = Config { has_witness: true, ..config() };
    let label = Core::first_label(&config);
    let dirty = vec![(SOURCE.member, DirtyMap::clean(&config.volumes))];
    let mut core = Core::new(config, Found { label, entries: Vec::new(), dirty, claimed: Lsn(0) });
    assert!(!core.status().may_be_source);
    let wish = |above, by_force| {
        Event::Wanted(Wish::Promote { nonce: 9, above, was_in_sync: true, by_force })
    };
    let denied = [Action::Tell(News::Denied(Denial::NotInSync))];
    assert_eq!(core.step(1, wish(3, false)), denied);
    assert_eq!(core.step(2, wish(0, false)), [Action::Revoke], "the group begins");
}

#[test]
fn a_source_that_was_alone_in_sync_is_promoted_again_without_force() {
    let mut core = source();
    core.step(5, Event::Wanted(Wish::Demote));
    core.step(6, Event::WritersStopped);
    assert!(!core.is_source());
    assert_eq!(core.status().in_sync, MemberSet::of(ME));
    let wish = Wish::Promote { nonce: 10, above: 0, was_in_sync: true, by_force: false };
    assert_eq!(core.step(7, Event::Wanted(wish)), [Action::Revoke]);
}

#[test]
fn a_source_that_has_met_a_newer_one_is_in_sync_no_more_whatever_an_operator_wished_before() {
    let mut core = source();
    core.step(5, Event::Wanted(Wish::Demote));
    let newer = Epoch { number: 9, ..EPOCH };
    let start = EpochStart { epoch: newer, start: Lsn(0), is_forced: false, is_sealed: false };
    let Message::Hello { group, volumes, capacity, .. } = hello() else { unreachable!() };
    let history = History::new(vec![start]).unwrap();
    core.step(6, Event::Said(SOURCE, Message::Hello { group, history, volumes, capacity }));
    core.step(7, Event::WritersStopped);
    assert!(!core.is_source());
    assert_eq!(core.status().in_sync, MemberSet::NONE);
}

#[test]
fn of_two_sources_of_one_rank_the_one_with_the_greater_nonce_leads() {
    for (nonce, leads) in [(8, true), (6, false)] {
        let mut core = member(1);
        core.step(1, Event::Accepted(SOURCE));
        let epoch = Epoch { nonce, ..EPOCH };
        let history = History::new(vec![EpochStart {
            epoch,
            start: Lsn(0),
            is_forced: false,
            is_sealed: false,
        }]);
        let Message::Hello { group, volumes, capacity, .. } = hello() else { unreachable!() };
        let hello = Message::Hello { group, history: history.unwrap(), volumes, capacity };
        let actions = core.step(2, Event::Said(SOURCE, hello));
        let is_answered = |it: &Action| matches!(it, Action::Send(_, Message::Here { .. }));
        let refusal = Message::Refused(Refusal::OldEpoch { newest: EPOCH });
        assert_eq!(actions.iter().any(is_answered), leads, "{actions:?}");
        assert_eq!(actions.contains(&Action::Send(SOURCE, refusal)), !leads);
    }
}

#[test]
fn a_source_says_for_whom_it_waits_and_is_not_promoted_meanwhile() {
    let label = Label {
        history: history(),
        in_sync: MemberSet(0b11),
        is_source: true,
        ..Core::first_label(&config())
    };
    let dirty = vec![(SOURCE.member, DirtyMap::clean(&config().volumes))];
    let found = Found { label, entries: entries(0), dirty, claimed: Lsn(0) };
    let mut core = Core::new(config(), found);
    let asked = core.resume_as_source(1, 8, Epoch::default());
    let taken = core.step(3, Event::Proposed { number: proposal(&asked), is_taken: true });
    let begun = core.step(4, Event::LabelStored(ordered_label(&taken)));
    let told = |actions: &[Action]| actions.contains(&Action::Tell(News::WaitsFor(SOURCE.member)));
    assert!(told(&begun), "{begun:?}");
    assert_eq!(core.status().waits_for, MemberSet::of(SOURCE.member));
    let wish = Wish::Promote { nonce: 9, above: 0, was_in_sync: false, by_force: false };
    let actions = core.step(5, Event::Wanted(wish));
    let denied = Action::Tell(News::Denied(Denial::Unheard(SOURCE.member)));
    assert!(actions.contains(&denied), "{actions:?}");
    assert!(!told(&actions), "once is enough");
    core.step(6, Event::Wanted(Wish::GoOnWithout(SOURCE.member)));
    assert_eq!(core.status().waits_for, MemberSet::NONE);
}

#[test]
fn a_member_that_cannot_take_over_is_heard_of_anew_by_its_source() {
    let mut core = member(3);
    core.step(1, Event::Accepted(SOURCE));
    core.step(2, Event::Said(SOURCE, hello()));
    let end = Lsn(3 * LEN);
    let told = core.step(3, Event::Said(SOURCE, follow(end, 3, Lsn(0))));
    core.step(4, Event::LabelStored(ordered_label(&told)));
    let next = Epoch { number: 2, restart: 0, nonce: 3 };
    let takes_over = Message::TakeOver { epoch: EPOCH, end: Lsn(4 * LEN), next };
    let told = core.step(5, Event::Said(SOURCE, takes_over));
    assert_eq!(told, [Action::Disconnect(SOURCE)], "it lacks a record");
    let told = core.step(6, Event::Lost(SOURCE));
    assert!(!told.contains(&Action::Revoke), "{told:?}");
}

#[test]
fn a_source_alone_in_sync_that_is_demoted_before_it_has_begun_stays_the_one_that_has_all() {
    let alone = MemberSet::of(ME);
    let label = Label {
        history: history(),
        in_sync: alone,
        is_source: true,
        ..Core::first_label(&config())
    };
    let dirty = vec![(SOURCE.member, DirtyMap::clean(&config().volumes))];
    let mut core =
        Core::new(config(), Found { label, entries: Vec::new(), dirty, claimed: Lsn(0) });
    core.resume_as_source(1, 9, Epoch::default());
    // The witness does not answer yet.
    core.step(2, Event::Wanted(Wish::Demote));
    core.step(3, Event::WritersStopped);
    assert!(!core.is_source());
    assert_eq!(core.label().in_sync, alone);
}
