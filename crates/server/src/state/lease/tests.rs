use super::*;
use crate::access::Identity;

#[test]
fn who_is_silent_is_asked_a_second_time_once_however_many_wait() {
    let mut table = LeaseTable::new(TIMEOUT);
    let now = Instant::now();
    table.grant(client(1), Flavor::LeaseV2, RWH, true, 0, 1);
    assert_eq!(table.insist(), [], "nothing is owed");
    table.start_breaks(client(2), Intent::OpenAgainstSharing, now);
    let told: Vec<_> = table.insist().iter().map(|notice| notice.notify).collect();
    assert_eq!((told, table.insist()), (vec![1], vec![]));
}

const TIMEOUT: Duration = Duration::from_secs(35);
const RWH: Caching = Caching(7);
const RH: Caching = Caching(3);
const RW: Caching = Caching(5);

fn client(id: u8) -> Owner {
    Owner::Lease { client: [id; 16], key: [id; 16], user: Identity::user("user").mark() }
}

fn held_by_one(wanted: Caching) -> LeaseTable<u8> {
    let mut table = LeaseTable::new(TIMEOUT);
    let granted = table.grant(client(1), Flavor::LeaseV2, wanted, true, 0, 1);
    assert_eq!(granted.caching, wanted);
    table
}

#[test]
fn a_second_opener_breaks_write_caching_and_waits_for_the_answer() {
    let now = Instant::now();
    let mut table = held_by_one(RWH);
    let notices = table.start_breaks(client(2), Intent::Open, now);
    assert_eq!(notices.len(), 1);
    assert_eq!((notices[0].from, notices[0].to, notices[0].needs_answer), (RWH, RH, true));
    assert!(table.in_the_way(client(2), Intent::Open).eq([(client(1), now + TIMEOUT)]));
    assert!(table.start_breaks(client(2), Intent::Open, now).is_empty(), "told once");
    assert_eq!(table.acknowledge(client(1), RWH, now), Err(AcknowledgeError::KeepsTooMuch));
    assert_eq!(table.acknowledge(client(1), RH, now), Ok((RH, None)));
    assert!(!table.must_wait(client(2), Intent::Open));
    let granted = table.grant(client(2), Flavor::LeaseV2, RWH, false, 0, 2);
    assert_eq!(granted.caching, RH);
}

#[test]
fn read_caching_is_taken_without_waiting() {
    let now = Instant::now();
    let mut table = held_by_one(Caching::READ);
    let notices = table.start_breaks(client(2), Intent::Modify, now);
    assert_eq!((notices[0].to, notices[0].needs_answer), (Caching::NONE, false));
    assert!(!table.must_wait(client(2), Intent::Modify));
    assert_eq!(table.held(client(1)), Caching::NONE);
}

#[test]
fn silence_ends_at_the_deadline() {
    let now = Instant::now();
    let mut table = held_by_one(RW);
    table.start_breaks(client(2), Intent::Open, now);
    assert_eq!(table.expire(now + TIMEOUT - Duration::from_nanos(1)), []);
    assert_eq!(table.expire(now + TIMEOUT), [client(1)]);
    assert_eq!(table.held(client(1)), Caching::NONE);
    let late = table.acknowledge(client(1), Caching::READ, now);
    assert_eq!(late, Err(AcknowledgeError::NotBreaking));
}

#[test]
fn a_client_never_breaks_its_own_lease() {
    let mut table = held_by_one(RWH);
    assert!(table.start_breaks(client(1), Intent::Overwrite, Instant::now()).is_empty());
    let again = table.grant(client(1), Flavor::LeaseV2, RH, true, 0, 1);
    assert_eq!(again.caching, RWH, "asking for less does not narrow it");
    assert!(!table.close(client(1)));
    assert_eq!(table.held(client(1)), RWH, "one of its two opens is left");
    assert!(table.close(client(1)));
    assert_eq!(table.held(client(1)), Caching::NONE);
}

#[test]
fn oplocks_break_to_level_two() {
    let mut table = LeaseTable::new(TIMEOUT);
    let one = Owner::Open(OpenSerial(1));
    let two = Owner::Open(OpenSerial(2));
    assert_eq!(table.grant(one, Flavor::Oplock, RWH, true, 0, 1).caching, RWH);
    let notices = table.start_breaks(two, Intent::Open, Instant::now());
    assert_eq!(notices[0].to, Caching::READ);
    table.acknowledge(one, Caching::READ, Instant::now()).unwrap();
    let second = table.grant(two, Flavor::Oplock, RWH, false, 0, 2);
    assert_eq!(second.caching, Caching::READ, "two exclusive oplocks cannot be");
}

#[test]
fn more_wanted_during_a_break_follows_in_steps_and_all_wait_for_the_last() {
    let (now, mut table) = (Instant::now(), held_by_one(RWH));
    table.start_breaks(client(2), Intent::Open, now);
    assert!(table.start_breaks(client(3), Intent::Overwrite, now).is_empty(), "remembered");
    let (kept, next) = table.acknowledge(client(1), RH, now).unwrap();
    let next = next.expect("an overwriter wants it all");
    assert_eq!((kept, next.from, next.to, next.needs_answer), (RH, RH, Caching::READ, true));
    assert!(table.must_wait(client(2), Intent::Open));
    let (_, last) = table.acknowledge(client(1), Caching::READ, now).unwrap();
    let last = last.expect("and the rest");
    assert_eq!((last.to, last.needs_answer), (Caching::NONE, false));
    assert!(!table.must_wait(client(2), Intent::Open));
    assert!(!table.must_wait(client(3), Intent::Overwrite));
}

#[test]
fn a_note_is_right_for_the_lease_it_was_written_for_alone() {
    let now = Instant::now();
    let mut table = held_by_one(Caching::READ);
    let make_stale = |table: &mut LeaseTable<u8>| {
        assert!(table.note(client(1)).is_some_and(|noted| noted.caching == Caching::READ));
        table.start_breaks(client(2), Intent::Modify, now);
        assert!(table.must_wait(client(2), Intent::Modify));
        let begun = table.begin_notes(client(2));
        assert!(begun.keys().eq([&client(1)]), "{begun:?}");
        begun
    };
    let first = make_stale(&mut table);
    assert!(table.has_stale_note(client(1)));
    assert!(table.begin_notes(client(2)).is_empty(), "by one alone");
    // The holder closes, and opens again under the same key, before the first note is written.
    assert!(table.close(client(1)));
    assert!(!table.has_stale_note(client(1)));
    table.grant(client(1), Flavor::LeaseV2, Caching::READ, true, 0, 1);
    let second = make_stale(&mut table);
    table.notes_are_right(&first);
    assert!(table.must_wait(client(2), Intent::Modify), "the log says nothing of the second");
    table.notes_are_right(&second);
    assert!(!table.must_wait(client(2), Intent::Modify));
    // Nor does it matter for a later note of the same lease.
    table.grant(client(1), Flavor::LeaseV2, Caching::READ, true, 0, 1);
    let third = make_stale(&mut table);
    table.notes_are_right(&second);
    assert!(table.must_wait(client(2), Intent::Modify));
    table.notes_are_right(&third);
    assert!(!table.has_stale_note(client(1)));
}

#[test]
fn only_who_needs_handles_closed_waits_for_cached_handles() {
    let (now, mut table) = (Instant::now(), held_by_one(RH));
    let notices = table.start_breaks(client(2), Intent::Overwrite, now);
    assert_eq!((notices[0].to, notices[0].needs_answer), (Caching::NONE, true));
    assert!(!table.must_wait(client(2), Intent::Overwrite));
    assert!(table.must_wait(client(3), Intent::OpenAgainstSharing));
    assert!(table.must_wait(client(3), Intent::OpenToDelete));
}

#[test]
fn after_a_restart_one_holder_has_what_it_had_and_several_cache_no_writes() {
    let mut table: LeaseTable<u8> = LeaseTable::new(TIMEOUT);
    table.restore(client(1), Flavor::LeaseV2, RWH, 4);
    assert_eq!(table.held(client(1)), RWH);
    table.restore(client(2), Flavor::LeaseV2, RH, 1);
    assert_eq!((table.held(client(1)), table.held(client(2))), (RH, RH));
}

#[test]
fn cached_handles_and_oplocks_do_not_go_together() {
    let one = Owner::Open(OpenSerial(1));
    let mut table = held_by_one(RH);
    assert_eq!(table.grant(one, Flavor::Oplock, RWH, false, 0, 2).caching, Caching::NONE);
    let mut table = LeaseTable::new(TIMEOUT);
    assert_eq!(table.grant(one, Flavor::Oplock, Caching::READ, true, 0, 1).caching.0, 1);
    let lease = table.grant(client(2), Flavor::LeaseV2, RWH, false, 0, 2);
    assert_eq!(lease.caching, Caching::READ);
}

#[test]
fn a_lease_is_widened_to_what_was_asked_for_or_not_at_all() {
    let mut table = held_by_one(Caching::READ);
    table.grant(client(2), Flavor::LeaseV1, Caching::READ, false, 0, 2);
    let asked = table.grant(client(1), Flavor::LeaseV1, RWH, false, 0, 1);
    assert_eq!((asked.caching, asked.epoch, asked.flavor), (Caching::READ, 1, Flavor::LeaseV2));
    let asked = table.grant(client(1), Flavor::LeaseV1, RH, false, 0, 1);
    assert_eq!((asked.caching, asked.epoch), (RH, 2));
}

#[test]
fn level_two_ends_with_a_change_of_its_own_holder() {
    let (one, two) = (Owner::Open(OpenSerial(1)), Owner::Open(OpenSerial(2)));
    let mut table = LeaseTable::new(TIMEOUT);
    table.grant(one, Flavor::Oplock, Caching::READ, true, 0, 1);
    table.grant(two, Flavor::Oplock, Caching::READ, false, 0, 2);
    assert!(table.is_stale_after(one));
    assert_eq!(table.start_breaks(one, Intent::Modify, Instant::now()).len(), 2);
    assert!(!table.is_stale_after(one));
}

#[test]
fn reading_the_security_of_a_file_breaks_oplocks_and_no_leases() {
    let now = Instant::now();
    let mut table = held_by_one(RWH);
    assert!(table.start_breaks(client(2), Intent::LookAtSecurity, now).is_empty());
    let mut table = LeaseTable::new(TIMEOUT);
    table.grant(Owner::Open(OpenSerial(1)), Flavor::Oplock, RWH, true, 0, 1);
    assert_eq!(table.start_breaks(client(2), Intent::LookAtSecurity, now)[0].to.0, 1);
    assert!(table.must_wait(client(2), Intent::LookAtSecurity));
}

#[test]
fn an_unlink_takes_cached_handles_only() {
    let mut table = held_by_one(RWH);
    let notices = table.start_breaks(client(2), Intent::Unlink, Instant::now());
    assert_eq!(notices[0].to, RW);
    table.acknowledge(client(1), RW, Instant::now()).unwrap();
    assert!(table.start_breaks(client(2), Intent::Unlink, Instant::now()).is_empty());
}
