//! Single decisions, step by step. Whole groups run in `landfast-group-sim`.

mod epochs;
mod in_sync;
mod promotion;

use log::Lsn;

use super::{
    Action, Config, Congestion, Core, Denial, Denied, Draft, Entry, Event, Found, Mode, News, Role,
    Wish,
};
use crate::dirty::DirtyMap;
use crate::format::{Encoding, Extent, Kind, Label, Position};
use crate::message::{Message, Peer, Refusal};
use crate::names::{Epoch, EpochStart, GroupId, History, MemberId, MemberSet};

const ME: MemberId = MemberId(1);
const SOURCE: Peer = Peer { member: MemberId(0), connection: 1 };
const EPOCH: Epoch = Epoch { number: 1, restart: 0, nonce: 7 };
pub(super) const LEN: u64 = 128;

fn config() -> Config {
    Config {
        group: GroupId([1; 16]),
        me: ME,
        my_mode: Mode::Sync,
        others: vec![(SOURCE.member, Mode::Sync)],
        volumes: vec![1 << 20],
        capacity: 1 << 16,
        least_in_sync: 1,
        has_witness: false,
        congestion: Congestion::DirtyMap,
        window: 1 << 20,
        silence_ns: 1_000_000_000,
        read_lease_ns: 0,
        retention_ns: 0,
        copy_window: 1 << 20,
        seals: false,
        key_check: 0,
    }
}

fn history() -> History {
    History::new(vec![EpochStart {
        epoch: EPOCH,
        start: Lsn(0),
        is_forced: false,
        is_sealed: false,
    }])
    .unwrap()
}

/// Records of 64 bytes of payload each, which name nothing as committed.
fn entries(count: u64) -> Vec<Entry> {
    let extent = |number: u64| Extent { volume: 0, offset: number * 4096, len: 4096 };
    (0..count)
        .map(|number| Entry {
            lsn: Lsn(number * LEN),
            end: Lsn((number + 1) * LEN),
            sum: u32::try_from(number).unwrap() + 1,
            kind: Kind::Write,
            extent: Some(extent(number)),
            time_ns: number,
            committed: Lsn(0),
        })
        .collect()
}

/// A member that was a destination and has `count` records in its ring, none of them known to be committed.
fn member(count: u64) -> Core {
    let label =
        Label { history: history(), in_sync: MemberSet(0b11), ..Core::first_label(&config()) };
    let dirty = vec![(SOURCE.member, DirtyMap::clean(&config().volumes))];
    Core::new(config(), Found { label, entries: entries(count), dirty, claimed: Lsn(0) })
}

/// A write of so many bytes at the beginning of the first volume.
pub(super) fn draft(stored: u32) -> Draft {
    Draft {
        kind: Kind::Write,
        encoding: Encoding::Plain,
        stored,
        offset: 0,
        len: u64::from(stored),
        volume: 0,
        time_ns: 0,
    }
}

/// A member that has everything up to `end`, applied.
pub(super) fn has_all(history: History, end: Lsn) -> Message {
    Message::Here {
        history,
        end,
        applied: end,
        bound: end,
        is_consistent: true,
        recent: Vec::new(),
        recent_from: Lsn(0),
    }
}

fn hello() -> Message {
    let Config { group, volumes, capacity, .. } = config();
    Message::Hello { group, history: history(), volumes, capacity }
}

fn follow(from: Lsn, chain: u32, committed: Lsn) -> Message {
    Message::Follow {
        history: history(),
        from,
        chain,
        committed,
        in_sync: MemberSet(0b11),
        set_version: 3,
        with_copies: false,
        volumes: config().volumes,
    }
}

/// The sequence of the label that is to be stored.
pub(super) fn ordered_label(actions: &[Action]) -> u64 {
    let mut labels = actions.iter().filter_map(|action| match action {
        Action::StoreLabel(label) => Some(label.sequence),
        _ => None,
    });
    labels.next_back().expect("a label is to be stored")
}

fn applies(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Apply(..)))
}

#[test]
fn what_a_source_says_is_committed_is_applied_only_once_the_label_says_so_even_if_the_source_is_lost()
 {
    let mut core = member(3);
    core.step(1, Event::Accepted(SOURCE));
    core.step(2, Event::Said(SOURCE, hello()));
    let end = Lsn(3 * LEN);
    let told = core.step(3, Event::Said(SOURCE, follow(end, 3, end)));
    let sequence = ordered_label(&told);
    assert!(!applies(&told), "before the label is stored");
    // A crash now finds the label from before, which knows of no committed record.
    let lost = core.step(4, Event::Lost(SOURCE));
    assert!(!applies(&lost), "the label is not stored yet");
    let stored = core.step(5, Event::LabelStored(sequence));
    assert!(applies(&stored), "{stored:?}");
}

#[test]
fn a_ring_begins_anew_only_when_what_was_applied_of_it_is_durable_in_the_volumes() {
    let again = Peer { connection: 2, ..SOURCE };
    let mut core = member(3);
    core.step(1, Event::Accepted(SOURCE));
    core.step(2, Event::Said(SOURCE, hello()));
    let end = Lsn(3 * LEN);
    let told = core.step(3, Event::Said(SOURCE, follow(end, 3, end)));
    core.step(4, Event::LabelStored(ordered_label(&told)));
    core.step(5, Event::AppliedTo(end));
    core.step(6, Event::Lost(SOURCE));
    core.step(7, Event::Accepted(again));
    core.step(8, Event::Said(again, hello()));
    // The source's ring begins behind a record that changes nothing: it has no copies to send.
    let from = Lsn(end.0 + LEN);
    let mut said = core.step(9, Event::Said(again, follow(from, 9, from)));
    let flushes = |actions: &[Action]| actions.contains(&Action::FlushVolumes(end));
    assert!(flushes(&said), "{said:?}");
    let begins_anew = |actions: &[Action]| {
        actions
            .iter()
            .any(|action| matches!(action, Action::StoreLabel(label) if label.start == from))
    };
    assert!(!begins_anew(&said));
    said = core.step(10, Event::VolumesDurable(end));
    assert!(!begins_anew(&said), "the label says first what is durable");
    said = core.step(11, Event::LabelStored(ordered_label(&said)));
    assert!(begins_anew(&said), "{said:?}");
}

#[test]
fn records_behind_the_end_or_of_another_connection_are_not_received() {
    let mut core = member(3);
    core.step(1, Event::Accepted(SOURCE));
    core.step(2, Event::Said(SOURCE, hello()));
    let end = Lsn(3 * LEN);
    let told = core.step(3, Event::Said(SOURCE, follow(end, 3, Lsn(0))));
    let sequence = ordered_label(&told);
    let next = end.plus(LEN);
    assert_eq!(core.may_receive(SOURCE, EPOCH, end, next), Err(Refusal::OutOfOrder), "too early");
    core.step(4, Event::LabelStored(sequence));
    let other = Peer { connection: 2, ..SOURCE };
    assert_eq!(core.may_receive(other, EPOCH, end, next), Err(Refusal::OutOfOrder));
    assert_eq!(core.may_receive(SOURCE, EPOCH, next, next.plus(LEN)), Err(Refusal::OutOfOrder));
    let late = Epoch { number: 2, ..EPOCH };
    assert_eq!(core.may_receive(SOURCE, late, end, next), Err(Refusal::OutOfOrder));
    assert_eq!(core.may_receive(SOURCE, EPOCH, end, next), Ok(3));
    assert_eq!(core.may_receive(SOURCE, EPOCH, end, next), Err(Refusal::OutOfOrder), "twice");
}

#[test]
fn a_source_of_an_older_epoch_is_refused() {
    let mut core = member(1);
    core.step(1, Event::Accepted(SOURCE));
    let Message::Hello { group, volumes, capacity, .. } = hello() else { unreachable!() };
    let old = Message::Hello { group, history: History::default(), volumes, capacity };
    let actions = core.step(2, Event::Said(SOURCE, old));
    let refusal = Message::Refused(Refusal::OldEpoch { newest: EPOCH });
    assert_eq!(actions, [Action::Send(SOURCE, refusal), Action::Disconnect(SOURCE)]);
}

#[test]
fn a_member_of_which_nothing_is_known_is_compared_whole() {
    let mut core = member(2);
    core.step(
        1,
        Event::Wanted(Wish::Promote { nonce: 9, above: 0, was_in_sync: true, by_force: false }),
    );
    core.step(2, Event::Revoked);
    let actions = core.step(3, Event::Proposed { number: 1, is_taken: true });
    let label = actions.iter().find_map(|action| match action {
        Action::StoreLabel(label) => Some(label.clone()),
        _ => None,
    });
    let label = label.expect("the epoch is stored first");
    assert_eq!(label.positions[0], Position::Unknown);
    core.step(4, Event::LabelStored(label.sequence));
    let peer = Peer { member: SOURCE.member, connection: 5 };
    let actions = core.step(5, Event::Dialed(peer));
    assert!(actions.iter().any(|it| matches!(it, Action::Send(_, Message::Hello { .. }))));
    let here = Message::Here {
        history: History::default(),
        end: Lsn(0),
        applied: Lsn(0),
        bound: Lsn(0),
        is_consistent: true,
        recent: Vec::new(),
        recent_from: Lsn(0),
    };
    let actions = core.step(6, Event::Said(peer, here));
    let map = actions.iter().find_map(|action| match action {
        Action::StoreDirty { number, map, .. } => Some((*number, map.bytes())),
        _ => None,
    });
    let (number, bytes) = map.expect("what it lacks is noted before it is told anything");
    assert_eq!(bytes, 1 << 20);
    let actions = core.step(7, Event::DirtyStored(SOURCE.member, number));
    let copies = actions
        .iter()
        .any(|action| matches!(action, Action::Send(_, Message::Follow { with_copies: true, .. })));
    assert!(copies, "{actions:?}");
}

/// A member that is the source, alone, since its label was stored.
fn source() -> Core {
    let mut core = member(2);
    core.step(
        1,
        Event::Wanted(Wish::Promote { nonce: 9, above: 0, was_in_sync: true, by_force: false }),
    );
    let asked = core.step(2, Event::Revoked);
    begin(&mut core, &asked);
    core.step(4, Event::AppliedTo(Lsn(2 * LEN)));
    core
}

pub(super) fn proposal(actions: &[Action]) -> u64 {
    let mut numbers = actions.iter().filter_map(|action| match action {
        Action::Propose { number, .. } => Some(*number),
        _ => None,
    });
    numbers.next_back().expect("the witness is asked")
}

fn begin(core: &mut Core, asked: &[Action]) {
    let told = core.step(3, Event::Proposed { number: proposal(asked), is_taken: true });
    core.step(4, Event::LabelStored(ordered_label(&told)));
}

/// Is no source any more, and asks to be one again.
fn promote_again(core: &mut Core) -> Vec<Action> {
    core.step(5, Event::Wanted(Wish::Demote));
    core.step(6, Event::WritersStopped);
    assert!(!core.is_source());
    core.step(
        7,
        Event::Wanted(Wish::Promote { nonce: 10, above: 0, was_in_sync: true, by_force: true }),
    );
    core.step(8, Event::Revoked)
}

fn here() -> Message {
    has_all(History::default(), Lsn(0))
}

pub(super) fn ordered_map(actions: &[Action]) -> u64 {
    let mut numbers = actions.iter().filter_map(|action| match action {
        Action::StoreDirty { number, .. } => Some(*number),
        _ => None,
    });
    numbers.next_back().expect("a map is to be stored")
}

fn follows(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Send(_, Message::Follow { .. })))
}

#[test]
fn a_map_that_was_stored_late_for_an_earlier_time_as_source_is_not_taken_for_a_later_one() {
    let mut core = source();
    let peer = Peer { member: SOURCE.member, connection: 5 };
    core.step(5, Event::Dialed(peer));
    let early = ordered_map(&core.step(5, Event::Said(peer, here())));
    core.step(5, Event::Wanted(Wish::Demote));
    core.step(5, Event::Lost(peer));
    let asked = promote_again(&mut core);
    // The disk was slow.
    core.step(9, Event::DirtyStored(peer.member, early));
    begin(&mut core, &asked);
    let peer = Peer { connection: 6, ..peer };
    core.step(10, Event::Dialed(peer));
    let told = core.step(10, Event::Said(peer, here()));
    assert!(!follows(&told), "{told:?}");
    let told = core.step(11, Event::DirtyStored(peer.member, ordered_map(&told)));
    assert!(follows(&told), "{told:?}");
}

#[test]
fn a_source_whose_storage_failed_is_followed_by_nobody_so_that_another_can_be_promoted() {
    let mut core = source();
    core.step(5, Event::StorageFailed);
    let peer = Peer { member: SOURCE.member, connection: 5 };
    assert_eq!(core.step(6, Event::Dialed(peer)), [Action::Disconnect(peer)]);
}

#[test]
fn a_copy_that_is_not_of_the_source_has_no_turn() {
    let mut core = member(3);
    core.step(1, Event::Accepted(SOURCE));
    core.step(2, Event::Said(SOURCE, hello()));
    let told = core.step(3, Event::Said(SOURCE, follow(Lsn(3 * LEN), 3, Lsn(0))));
    assert!(!core.may_receive_copy(SOURCE, EPOCH), "too early");
    core.step(4, Event::LabelStored(ordered_label(&told)));
    assert!(core.may_receive_copy(SOURCE, EPOCH));
    let other = Peer { member: MemberId(2), connection: 2 };
    assert!(!core.may_receive_copy(other, EPOCH));
    assert!(!core.may_receive_copy(SOURCE, Epoch { nonce: 8, ..EPOCH }));
}

#[test]
fn a_member_that_was_taken_out_of_the_group_is_not_waited_for() {
    let in_sync = MemberSet(0b11).with(MemberId(4));
    let label =
        Label { history: history(), in_sync, is_source: true, ..Core::first_label(&config()) };
    let dirty = vec![(SOURCE.member, DirtyMap::clean(&config().volumes))];
    let mut core =
        Core::new(config(), Found { label, entries: Vec::new(), dirty, claimed: Lsn(0) });
    let asked = core.resume_as_source(1, 9, Epoch::default());
    begin(&mut core, &asked);
    core.step(5, Event::Wanted(Wish::GoOnWithout(SOURCE.member)));
    assert!(core.status().is_ready, "{:?}", core.status());
    assert_eq!(core.status().in_sync, MemberSet(0b11));
}

#[test]
fn a_record_for_which_the_ring_may_never_have_room_is_refused() {
    let mut core = source();
    let len = config().capacity / 2;
    let longest = u32::try_from(len - 64).unwrap();
    assert_eq!(core.submit(draft(longest + 64), |_| 0).unwrap_err(), Denied::TooLong);
    core.submit(draft(longest), |_| 0).unwrap();
}

/// A source, and a member in sync with it.
pub(super) fn source_of_two() -> (Core, Peer) {
    let (mut core, peer) = (source(), Peer { member: SOURCE.member, connection: 5 });
    core.step(5, Event::Dialed(peer));
    let told = core.step(6, Event::Said(peer, has_all(history(), Lsn(2 * LEN))));
    if !follows(&told) {
        let number = ordered_map(&told);
        assert!(follows(&core.step(7, Event::DirtyStored(peer.member, number))));
    }
    let asked = core.step(8, Event::Said(peer, Message::Following));
    let number = proposal(&asked);
    let told = core.step(9, Event::Proposed { number, is_taken: true });
    core.step(10, Event::LabelStored(ordered_label(&told)));
    let version = core.label().set_version;
    core.step(11, Event::Said(peer, Message::Stored { version }));
    assert_eq!(core.status().in_sync, MemberSet(0b11));
    (core, peer)
}

#[test]
fn a_member_whose_ring_has_no_room_for_the_next_record_is_told_what_is_committed() {
    let (mut core, peer) = source_of_two();
    let longest = u32::try_from(config().capacity / 2 - 64).unwrap();
    let (kept, mut now) = (Lsn(2 * LEN), 12);
    let mut step = |core: &mut Core, event| {
        now += 1;
        core.step(now, event)
    };
    let durable = |to| Message::Durable { placed: to, to, applied: kept, start: kept };
    step(&mut core, Event::Said(peer, durable(kept)));
    core.submit(draft(64), |_| 0).unwrap();
    let long = core.status().end;
    core.submit(draft(longest), |_| 0).unwrap();
    let end = core.status().end;
    step(&mut core, Event::Placed(kept));
    step(&mut core, Event::Placed(long));
    step(&mut core, Event::RingDurable(end));
    step(&mut core, Event::Shipped(peer, end));
    step(&mut core, Event::Said(peer, durable(end)));
    assert_eq!(core.status().committed, end);
    // Here it is applied, durable and forgotten: there is room.
    step(&mut core, Event::Applied(kept));
    step(&mut core, Event::Applied(long));
    for to in [kept, end] {
        let told = step(&mut core, Event::VolumesDurable(to));
        step(&mut core, Event::LabelStored(ordered_label(&told)));
    }
    assert_eq!(core.status().start, end);
    core.submit(draft(longest), |_| 0).unwrap();
    let next = core.status().end;
    assert!(next > kept.plus(config().capacity), "it has no room there");
    // What fills the ring up to where it begins again is sent, and the record behind that is not.
    let lap = Lsn(config().capacity);
    step(&mut core, Event::Placed(end));
    step(&mut core, Event::Placed(lap));
    step(&mut core, Event::RingDurable(lap));
    step(&mut core, Event::Shipped(peer, lap));
    let mut told = step(&mut core, Event::Said(peer, durable(lap)));
    assert_eq!(core.status().committed, lap);
    told.extend(core.step(100_000_000, Event::Tick));
    let is_told = |action: &Action| matches!(action, Action::Send(_, Message::Committed { to, .. }) if *to == lap);
    assert!(told.iter().any(is_told), "{told:?}");
}

#[test]
fn nobody_reads_after_a_hand_over_without_an_answer_until_the_operator_says_that_it_was_none() {
    let (mut core, peer) = source_of_two();
    let told = core.step(12, Event::Wanted(Wish::Reverse { to: peer.member, nonce: 3 }));
    let takes_over = |it: &Action| matches!(it, Action::Send(_, Message::TakeOver { .. }));
    assert!(!told.iter().any(takes_over) && !core.has_handed_over(), "the label names it first");
    let told = core.step(12, Event::LabelStored(ordered_label(&told)));
    assert!(told.iter().any(takes_over) && core.has_handed_over());
    assert_eq!(core.label().handed_to, Some(peer.member));
    let later = 13 + config().silence_ns * 2;
    let told = core.step(later, Event::Tick);
    assert!(told.contains(&Action::Tell(News::Denied(Denial::NotTakenOver))), "{told:?}");
    assert!(core.has_handed_over(), "it may have taken over all the same");
    core.step(later + 1, Event::Lost(peer));
    assert_eq!(core.label().handed_to, Some(peer.member));
    core.step(later + 2, Event::Wanted(Wish::GoOnWithout(peer.member)));
    assert!(!core.has_handed_over());
    assert_eq!(core.label().handed_to, None);
}

#[test]
fn records_that_operations_placed_are_taken_in_before_a_connection_is_lost() {
    let mut core = member(3);
    core.step(1, Event::Accepted(SOURCE));
    core.step(2, Event::Said(SOURCE, hello()));
    let end = Lsn(3 * LEN);
    assert_eq!(core.may_adopt(SOURCE), None, "nothing can have come");
    let told = core.step(3, Event::Said(SOURCE, follow(end, 3, Lsn(0))));
    core.step(4, Event::LabelStored(ordered_label(&told)));
    assert_eq!(core.may_adopt(Peer { connection: 2, ..SOURCE }), None);
    assert_eq!(core.may_adopt(SOURCE), Some((end, 3)));
    let entries = entries(5).split_off(3);
    let committed = Lsn(0);
    let received = Event::Received { peer: SOURCE, entries, committed, are_durable: true };
    let told = core.step(5, received);
    assert!(!told.iter().any(|it| matches!(it, Action::Persist(_))), "{told:?}");
    core.step(6, Event::Lost(SOURCE));
    let status = core.status();
    assert_eq!((status.end, status.durable), (Lsn(5 * LEN), Lsn(5 * LEN)));
}

/// A destination whose ring has two records, though others behind them say that a third was committed.
fn torn(my_mode: Mode, in_sync: MemberSet, committed: Lsn) -> (Config, Found) {
    let config = Config { my_mode, ..config() };
    let label = Label { history: history(), in_sync, committed, ..Core::first_label(&config) };
    let dirty = vec![(SOURCE.member, DirtyMap::clean(&config.volumes))];
    (config, Found { label, entries: entries(2), dirty, claimed: Lsn(3 * LEN) })
}

#[test]
fn an_asynchronous_member_that_lost_what_was_not_durable_there_is_not_damaged() {
    let (all, other) = (MemberSet(0b11), MemberSet(0b01));
    for (mode, in_sync, committed, is_damaged) in [
        (Mode::Async, other, Lsn(0), false),
        (Mode::Sync, other, Lsn(0), false),
        (Mode::SemiSync, all, Lsn(0), false),
        (Mode::Sync, all, Lsn(0), true),
        // A label names what was durable.
        (Mode::Async, other, Lsn(3 * LEN), true),
    ] {
        let (config, found) = torn(mode, in_sync, committed);
        assert_eq!(found.is_damaged(&config), is_damaged, "{mode:?} {in_sync} {committed}");
    }
}

#[test]
fn what_a_member_may_have_applied_and_lost_stays_known_until_it_has_come_again() {
    let (config, found) = torn(Mode::Async, MemberSet(0b01), Lsn(0));
    let mut core = Core::new(config, found);
    assert_eq!(core.bound(), Some(Lsn(3 * LEN)));
    core.step(1, Event::Accepted(SOURCE));
    core.step(2, Event::Said(SOURCE, hello()));
    let told = core.step(3, Event::Said(SOURCE, follow(Lsn(2 * LEN), 2, Lsn(2 * LEN))));
    core.step(4, Event::LabelStored(ordered_label(&told)));
    assert_eq!(core.label().bound, Lsn(3 * LEN), "the source may be another one soon");
    assert!(!core.is_consistent());
}

fn proposed(actions: &[Action]) -> Option<MemberSet> {
    actions.iter().find_map(|action| match action {
        Action::Propose { in_sync, .. } => Some(*in_sync),
        _ => None,
    })
}

#[test]
fn a_suspended_member_without_which_too_few_are_in_sync_is_sent_to_until_it_leaves() {
    let (mut core, peer) = source_of_two();
    let has = Lsn(2 * LEN);
    let says = Message::Durable { placed: has, to: has, applied: has, start: Lsn(0) };
    core.step(11, Event::Said(peer, says));
    core.config.least_in_sync = 2;
    let suspended = core.step(12, Event::Wanted(Wish::Suspend(peer.member)));
    let ends = |actions: &[Action]| actions.contains(&Action::Disconnect(peer));
    let waits = |actions: &[Action]| actions.contains(&Action::Tell(News::TooFewInSync));
    assert!(!ends(&suspended) && !waits(&suspended), "{suspended:?}");
    assert!(!core.is_suspended(peer.member), "it is dialed where its connection is lost");
    assert!(core.status().others[0].1.is_suspended);
    let admitted = core.submit(draft(64), |_| 77).unwrap();
    let end = admitted.record.end();
    let placed = core.step(13, Event::Placed(admitted.record.lsn));
    let ships = |action: &Action| matches!(action, Action::Ship { to, .. } if *to == end);
    assert!(placed.iter().any(ships), "{placed:?}");
    core.step(14, Event::RingDurable(end));
    core.step(15, Event::Shipped(peer, end));
    let says = Message::Durable { placed: end, to: end, applied: has, start: Lsn(0) };
    let told = core.step(16, Event::Said(peer, says));
    assert!(told.contains(&Action::Committed(end)), "{told:?}");
    // Nobody is waited for any more: it leaves, is told so, and hears nothing from then on.
    core.config.least_in_sync = 1;
    let asked = core.step(17, Event::Tick);
    assert_eq!(proposed(&asked), Some(MemberSet::of(ME)), "{asked:?}");
    let taken = core.step(18, Event::Proposed { number: proposal(&asked), is_taken: true });
    assert!(!ends(&taken), "it is told first: {taken:?}");
    let version = core.label().set_version + 1;
    let knows = core.step(19, Event::Said(peer, Message::Stored { version }));
    let left = core.step(19, Event::LabelStored(ordered_label(&knows)));
    assert!(ends(&left), "{left:?}");
    core.step(20, Event::Lost(peer));
    assert!(core.is_suspended(peer.member));
}
