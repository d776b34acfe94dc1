//! A label knows so many epochs, and a record of an epoch that it does not know is none.

use super::*;
use crate::names::EPOCHS_MAX;

/// Epochs of one record each.
fn epochs(numbers: std::ops::Range<usize>) -> History {
    let begun = numbers.map(|number| EpochStart {
        epoch: Epoch { number: 1, restart: u32::try_from(number).unwrap(), nonce: 7 },
        start: Lsn(u64::try_from(number).unwrap() * LEN),
        is_forced: false,
        is_sealed: false,
    });
    History::new(begun.collect()).unwrap()
}

/// A member whose log has a record of each of so many epochs.
fn member_of_epochs(config: Config, count: usize) -> Core {
    let history = epochs(0..count);
    let records = u64::try_from(count).unwrap();
    let label = Label { history, in_sync: MemberSet(0b11), ..Core::first_label(&config) };
    let dirty = vec![(SOURCE.member, DirtyMap::clean(&config.volumes))];
    let found = Found { label, entries: entries(records), dirty, claimed: Lsn(0) };
    Core::new(config, found)
}

/// A source whose log has a record of each of so many epochs, and the step with which it was ready.
fn source_of_epochs(count: usize) -> (Core, Vec<Action>) {
    let records = u64::try_from(count).unwrap();
    let mut core = member_of_epochs(config(), count);
    let wish = Wish::Promote { nonce: 9, above: 0, was_in_sync: true, by_force: false };
    core.step(1, Event::Wanted(wish));
    let asked = core.step(2, Event::Revoked);
    begin(&mut core, &asked);
    let told = core.step(5, Event::AppliedTo(Lsn(records * LEN)));
    assert!(core.status().is_ready);
    (core, told)
}

fn flushes(told: &[Action]) -> bool {
    told.iter().any(|action| matches!(action, Action::FlushVolumes(_)))
}

#[test]
fn a_log_is_freed_long_before_its_label_forgets_an_epoch_of_its_records() {
    assert!(!flushes(&source_of_epochs(3).1), "there is much room");
    assert!(flushes(&source_of_epochs(EPOCHS_MAX / 4).1));
}

#[test]
fn no_record_is_admitted_whose_epoch_makes_the_label_forget_one_that_the_log_has() {
    let (mut core, told) = source_of_epochs(EPOCHS_MAX - 1);
    assert!(flushes(&told));
    assert_eq!(core.label().history.epochs().len(), EPOCHS_MAX);
    assert_eq!(core.submit(draft(64), |_| 0).unwrap_err(), Denied::NotNow);
    let end = core.status().end;
    let mut told = core.step(6, Event::VolumesDurable(end));
    let stores = |action: &Action| match action {
        Action::StoreDirty { member, number, .. } => Some((*member, *number)),
        _ => None,
    };
    for (member, number) in told.iter().filter_map(stores).collect::<Vec<_>>() {
        told.extend(core.step(7, Event::DirtyStored(member, number)));
    }
    let freed = core.step(8, Event::LabelStored(ordered_label(&told)));
    assert!(freed.contains(&Action::Room), "{freed:?}");
    core.submit(draft(64), |_| 0).unwrap();
}

/// A source of the epochs that `history` has tells a member with so many records that it goes on from their end.
fn is_told(core: &mut Core, now: u64, history: History, records: usize) -> Vec<Action> {
    let from = Lsn(u64::try_from(records).unwrap() * LEN);
    let Config { group, volumes, capacity, .. } = config();
    core.step(now, Event::Accepted(SOURCE));
    let hello =
        Message::Hello { group, history: history.clone(), volumes: volumes.clone(), capacity };
    core.step(now, Event::Said(SOURCE, hello));
    let follow = Message::Follow {
        history,
        from,
        chain: u32::try_from(records).unwrap(),
        committed: from,
        in_sync: MemberSet(0b11),
        set_version: 1,
        with_copies: false,
        volumes,
    };
    core.step(now, Event::Said(SOURCE, follow))
}

#[test]
fn a_member_applies_and_frees_its_records_before_it_forgets_their_epochs() {
    let retains = Config { retention_ns: 1_000_000_000_000, ..config() };
    let mut core = member_of_epochs(retains, 8);
    let told = is_told(&mut core, 1, epochs(2..9), 8);
    assert!(told.contains(&Action::Disconnect(SOURCE)), "{told:?}");
    assert_eq!(core.label().history, epochs(0..8));
    // It knows from the source that they are committed, notes that, and applies them however new they are.
    core.step(2, Event::Lost(SOURCE));
    let told = core.step(3, Event::Tick);
    let told = core.step(4, Event::LabelStored(ordered_label(&told)));
    assert!(told.contains(&Action::Apply(Lsn(0), Lsn(2 * LEN))), "{told:?}");
    core.step(5, Event::AppliedTo(Lsn(2 * LEN)));
    let told = is_told(&mut core, 6, epochs(2..9), 8);
    assert!(flushes(&told) && !told.contains(&Action::Disconnect(SOURCE)), "{told:?}");
    let told = core.step(7, Event::VolumesDurable(Lsn(2 * LEN)));
    assert_eq!(core.label().history, epochs(0..8), "they are not freed yet");
    core.step(8, Event::LabelStored(ordered_label(&told)));
    assert_eq!(core.label().history, epochs(2..9));
    assert_eq!(core.label().start, Lsn(2 * LEN));
}

#[test]
fn records_are_retained_no_longer_than_the_label_can_tell_their_epochs() {
    let retains = Config { retention_ns: 1_000_000_000_000, ..config() };
    let is_applied = |count: usize| {
        let mut core = member_of_epochs(retains.clone(), count);
        let told = is_told(&mut core, 1, epochs(0..count), count);
        let mut told = core.step(2, Event::LabelStored(ordered_label(&told)));
        told.extend(core.step(200_000_000, Event::Tick));
        let end = core.status().end;
        told.contains(&Action::Apply(Lsn(0), end))
    };
    assert!(!is_applied(EPOCHS_MAX / 4));
    assert!(is_applied(EPOCHS_MAX / 4 + 1));
}

#[test]
fn a_member_that_would_forget_an_epoch_of_its_records_by_a_promotion_is_not_promoted_yet() {
    let promoted = |count: usize| {
        let mut core = member_of_epochs(config(), count);
        let wish = Wish::Promote { nonce: 9, above: 0, was_in_sync: true, by_force: false };
        let told = core.step(1, Event::Wanted(wish));
        told.contains(&Action::Revoke)
    };
    assert!(promoted(EPOCHS_MAX - 1));
    assert!(!promoted(EPOCHS_MAX));
}
