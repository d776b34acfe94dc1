//! A label knows so many epochs, and a record of an epoch that it does not know is none.

use super::*;
use crate::names::EPOCHS_MAX;

/// A source whose log has a record of each of so many epochs, and the step with which it was ready.
fn source_of_epochs(count: usize) -> (Core, Vec<Action>) {
    let begun = (0..count).map(|number| EpochStart {
        epoch: Epoch { number: 1, restart: u32::try_from(number).unwrap(), nonce: 7 },
        start: Lsn(u64::try_from(number).unwrap() * LEN),
        is_forced: false,
        is_sealed: false,
    });
    let history = History::new(begun.collect()).unwrap();
    let records = u64::try_from(count).unwrap();
    let label = Label { history, in_sync: MemberSet(0b11), ..Core::first_label(&config()) };
    let dirty = vec![(SOURCE.member, DirtyMap::clean(&config().volumes))];
    let found = Found { label, entries: entries(records), dirty, claimed: Lsn(0) };
    let mut core = Core::new(config(), found);
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
