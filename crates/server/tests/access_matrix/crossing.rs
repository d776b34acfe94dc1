//! What one session knows of another, and can do nothing with: ids of sessions, trees and opens, keys of copies and
//! leases, GUIDs of CREATEs.
//!
//! Spec: MS-SMB2 §3.3.5.2.9 to §3.3.5.2.11 (who is looked up), §3.3.5.5.3 (PreviousSessionId), §3.3.5.9.7 and
//! §3.3.5.9.12 (durable opens), §3.3.5.9.13 (AppInstanceId), §3.3.5.22.2 (leases).

use smb::create::{
    AccessMask, CreateDisposition, CreateRequest, CreateRequestContext, CreateResponseContext,
    DurableReconnectV2, DurableRequestV2, Lease, LeaseKey, LeaseState, LeaseVersion, OplockLevel,
};
use smb::{
    Command, Empty, FileId, Guid, LeaseBreakAck, LockElement, LockFlags, LockRequest, NtStatus,
};

use crate::disk::Look;
use crate::people::{Person, Share};
use crate::site::{ONE_MACHINE, PASSWORD, Site};
use crate::support::Wire;

/// A file of the owner's, its open, and what lay on the disk then.
struct Story {
    site: Site,
    owner: Wire,
    id: FileId,
    before: Look,
}

impl Story {
    fn begin(change: impl FnOnce(&mut CreateRequest<'_>)) -> Self {
        let site = Site::found();
        let _ = std::fs::remove_file(site.directory.join(Share::Plain.name()).join("story"));
        let mut owner = site.enter_from_one_machine(Person::Owner, Share::Plain);
        let opened = owner.open("story", change);
        assert_eq!(opened.status, NtStatus::SUCCESS);
        assert_eq!(owner.write(opened.id, b"what the owner wrote"), NtStatus::SUCCESS);
        let before = look(&site);
        Self { site, owner, id: opened.id, before }
    }

    /// Everybody but the owner, in the share where they may enter, all on the owner's client machine.
    fn others(&self) -> Vec<(Person, Wire)> {
        let people = Person::ALL.into_iter().filter(|person| *person != Person::Owner);
        people
            .map(|person| (person, self.site.enter_from_one_machine(person, Share::Plain)))
            .collect()
    }

    /// Nothing has happened, and the owner goes on.
    fn is_untouched(&mut self, by: Person) {
        assert_eq!(self.before.changes(&look(&self.site)), [], "{by:?}");
        assert_eq!(self.owner.read(self.id, 8).0, NtStatus::SUCCESS, "{by:?}");
        let again = self.owner.open("story", |open| open.disposition = CreateDisposition::OPEN);
        assert_eq!(again.status, NtStatus::SUCCESS, "{by:?}");
        self.owner.close(again.id);
    }
}

fn look(site: &Site) -> Look {
    Look::at(&site.directory.join(Share::Plain.name()))
}

#[test]
fn nobody_leaves_a_tree_of_another_session() {
    let mut story = Story::begin(|_| {});
    // Numbers of trees may begin anew in each session: the others have none of this number.
    for _ in 0..3 {
        assert_eq!(story.owner.enter(Share::ReadOnly.name()), NtStatus::SUCCESS);
    }
    for (person, mut wire) in story.others() {
        wire.tree = story.owner.tree;
        let (header, _) = wire.ask(Command::TREE_DISCONNECT, |out| Empty.emit(out));
        assert!(header.status.is_error(), "{person:?}");
        let root = story.owner.open("", |open| {
            open.disposition = CreateDisposition::OPEN;
            open.desired_access = AccessMask::READ_ATTRIBUTES;
        });
        assert_eq!(story.owner.close(root.id), NtStatus::SUCCESS, "{person:?}");
    }
}

#[test]
fn nobody_ends_or_uses_the_session_of_another_connection() {
    let mut story = Story::begin(|_| {});
    for (person, mut wire) in story.others() {
        wire.session = story.owner.session;
        wire.tree = story.owner.tree;
        for command in [Command::LOGOFF, Command::TREE_DISCONNECT, Command::ECHO] {
            let (header, _) = wire.ask(command, |out| Empty.emit(out));
            assert!(header.status.is_error() || command == Command::ECHO, "{person:?} {command:?}");
        }
        assert!(wire.write(story.id, b"x").is_error(), "{person:?}");
        assert!(wire.close(story.id).is_error(), "{person:?}");
        story.is_untouched(person);
    }
}

#[test]
fn nobody_authenticates_as_another_connections_session() {
    let mut story = Story::begin(|_| {});
    for person in Person::ALL {
        let mut wire = Wire::dial(story.site.address);
        wire.negotiate(ONE_MACHINE);
        wire.session = story.owner.session;
        assert!(wire.try_log_on_as(person.account(), PASSWORD).is_error(), "{person:?}");
        story.is_untouched(person);
    }
}

#[test]
fn nobody_ends_the_session_of_another_user_by_naming_it_as_previous() {
    let mut story = Story::begin(|_| {});
    for person in Person::ALL.into_iter().filter(|person| *person != Person::Owner) {
        let mut wire = Wire::dial(story.site.address);
        wire.negotiate(ONE_MACHINE);
        wire.previous = story.owner.session;
        let _ = wire.try_log_on_as(person.account(), PASSWORD);
        story.is_untouched(person);
    }
}

fn lease() -> Lease {
    let state = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
    let version = LeaseVersion::V2 { parent: None, epoch: 0 };
    Lease { key: LeaseKey([5; 16]), state, break_in_progress: false, version }
}

fn durable(open: &mut CreateRequest<'_>) {
    open.oplock_level = OplockLevel::LEASE;
    open.contexts.push(CreateRequestContext::Lease(lease()));
    let wish = DurableRequestV2 { timeout_ms: 60_000, persistent: false, create_guid: GUID };
    open.contexts.push(CreateRequestContext::DurableV2(wish));
}

#[test]
fn nobody_takes_back_a_durable_open_of_another_user() {
    let mut story = Story::begin(durable);
    let mut lost = Wire::dial(story.site.address);
    std::mem::swap(&mut lost, &mut story.owner);
    drop(lost);
    // On the machine that the owner was on.
    for person in Person::ALL.into_iter().filter(|person| *person != Person::Owner) {
        let mut wire = Wire::dial(story.site.address);
        wire.negotiate(ONE_MACHINE);
        wire.log_on_as(person.account(), PASSWORD);
        let _ = wire.enter(Share::Plain.name());
        for persistent in [false, true] {
            let taken = wire.open("story", |open| take_back(open, story.id, persistent));
            assert!(taken.status.is_error(), "{person:?}");
        }
        let taken = wire.open("story", |open| {
            open.oplock_level = OplockLevel::LEASE;
            open.contexts.push(CreateRequestContext::DurableReconnect(story.id));
            open.contexts.push(CreateRequestContext::Lease(lease()));
        });
        assert!(taken.status.is_error(), "{person:?}");
        assert_eq!(story.before.changes(&look(&story.site)), [], "{person:?}");
    }
    let mut owner = story.site.enter_from_one_machine(Person::Owner, Share::Plain);
    let taken = owner.open("story", |open| take_back(open, story.id, false));
    assert_eq!(taken.status, NtStatus::SUCCESS, "the owner gets it");
}

fn take_back(open: &mut CreateRequest<'_>, file_id: FileId, persistent: bool) {
    open.oplock_level = OplockLevel::LEASE;
    open.contexts.push(CreateRequestContext::Lease(lease()));
    let back = DurableReconnectV2 { file_id, create_guid: GUID, persistent };
    open.contexts.push(CreateRequestContext::DurableReconnectV2(back));
}

#[test]
fn nobody_closes_an_open_of_another_user_by_its_application_instance() {
    let named = |open: &mut CreateRequest<'_>, guid| {
        let wish = DurableRequestV2 { timeout_ms: 0, persistent: false, create_guid: Guid(guid) };
        open.contexts.push(CreateRequestContext::DurableV2(wish));
        open.contexts.push(CreateRequestContext::AppInstanceId(Guid([6; 16])));
    };
    let mut story = Story::begin(|open| named(open, [1; 16]));
    for (person, mut wire) in story.others() {
        let opened = wire.open("story", |open| {
            open.disposition = CreateDisposition::OPEN;
            open.desired_access = AccessMask::FILE_GENERIC_READ;
            named(open, [2; 16]);
        });
        if !opened.status.is_error() {
            wire.close(opened.id);
        }
        story.is_untouched(person);
    }
}

#[test]
fn nobody_acknowledges_the_break_of_another_sessions_lease() {
    let mut story = Story::begin(|open| {
        open.oplock_level = OplockLevel::LEASE;
        open.contexts.push(CreateRequestContext::Lease(lease()));
    });
    // A break is under way: somebody else opens the file, and waits.
    let mut opener = story.site.enter(Person::Writer, Share::Plain, false);
    let waiting = opener.start_open("story", |open| open.disposition = CreateDisposition::OPEN);
    story.owner.notification();
    for (person, mut wire) in story.others() {
        let ack = LeaseBreakAck { lease_key: LeaseKey([5; 16]), state: LeaseState::READ };
        let (header, _) = wire.ask(Command::OPLOCK_BREAK, |out| ack.emit(out));
        assert!(header.status.is_error(), "{person:?}");
    }
    let ack = LeaseBreakAck {
        lease_key: LeaseKey([5; 16]),
        state: LeaseState::READ | LeaseState::HANDLE,
    };
    let (header, _) = story.owner.ask(Command::OPLOCK_BREAK, |out| ack.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS, "the holder does");
    let opened = opener.finish_open(waiting);
    assert_eq!(opened.status, NtStatus::SUCCESS);
    opener.close(opened.id);
    story.is_untouched(Person::Writer);
}

#[test]
fn a_lock_that_was_refused_is_in_nobodys_way() {
    let mut story = Story::begin(|_| {});
    for (person, mut wire) in story.others() {
        let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
        let lock = |file_id| {
            let locks = vec![LockElement { offset: 0, length: 8, flags }];
            LockRequest { lock_sequence: 0, file_id, locks }
        };
        let looked = wire.open("story", |open| {
            open.disposition = CreateDisposition::OPEN;
            open.desired_access = AccessMask::READ_ATTRIBUTES;
        });
        for id in [looked.id, story.id] {
            let (header, _) = wire.ask(Command::LOCK, |out| lock(id).emit(out));
            assert!(header.status.is_error(), "{person:?}");
        }
        story.is_untouched(person);
        if !looked.status.is_error() {
            wire.close(looked.id);
        }
    }
}

#[test]
fn an_answer_to_a_guest_promises_nothing_that_outlives_the_session() {
    let story = Story::begin(|_| {});
    let mut guest = story.site.enter(Person::Guest, Share::Plain, false);
    let opened = guest.open("story", |open| {
        durable(open);
        open.disposition = CreateDisposition::OPEN;
        open.desired_access = AccessMask::FILE_GENERIC_READ;
    });
    assert_eq!(opened.status, NtStatus::SUCCESS);
    let lasts = |context: &CreateResponseContext<'_>| {
        matches!(context, CreateResponseContext::Durable | CreateResponseContext::DurableV2 { .. })
    };
    assert!(!opened.response().contexts.iter().any(lasts));
}

const GUID: Guid = Guid([7; 16]);
