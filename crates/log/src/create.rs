//! Makes a new log on the memory of its members.

use crate::error::LogError;
use crate::format::label::{CAPACITY_MIN, LABEL_LEN};
use crate::format::{ALIGNMENT, Label, LabelError, LogId, RING_START, SLOT_LEN};
use crate::lsn::{Generation, Lsn};
use crate::members::{MEMBERS_MAX, MemberSet};
use crate::options::CreateOptions;
use crate::scan::to_u64;
use crate::seal::Seal;
use crate::store::{Store, StoreError};
use pmem::DurabilityClass;

/// Writes the labels of a new log whose members are all `stores`, in this order.
pub(crate) fn create(
    stores: &mut [Box<dyn Store>],
    options: &CreateOptions,
) -> Result<(), LogError> {
    let label = label_for(stores, options)?;
    // All of them before any is changed.
    for (member, store) in stores.iter_mut().enumerate() {
        if !options.replace {
            check_empty(member, &mut **store)?;
        }
    }
    for (member, store) in stores.iter_mut().enumerate() {
        let failed = |cause| LogError::Store { member, cause };
        // A log that is replaced has a label in either slot: both go before the first new one comes.
        for slot in [0, SLOT_LEN] {
            write(&mut **store, slot, &[0; LABEL_LEN]).map_err(failed)?;
        }
        let number = u8::try_from(member).expect("at most MEMBERS_MAX");
        let label = Label { member: number, ..label.clone() };
        write(&mut **store, label.slot(), &label.emit()).map_err(failed)?;
    }
    Ok(())
}

/// Whether the memory holds nothing at all where the labels of a log lie.
///
/// # Errors
///
/// It cannot be read.
pub fn is_blank(store: &mut dyn Store) -> Result<bool, StoreError> {
    let mut head = [0; HEAD_LEN];
    if store.len() < RING_START {
        return Ok(true);
    }
    store.read(0, &mut head)?;
    Ok(head == [0; HEAD_LEN])
}

/// Whether the memory holds neither a log nor anything else where the labels of one lie.
pub(crate) fn check_empty(member: usize, store: &mut dyn Store) -> Result<(), LogError> {
    let failed = |cause| LogError::Store { member, cause };
    if newest_label(store).map_err(failed)? != Err(LabelError::NoLabel) {
        return Err(LogError::ConfigExists { member });
    }
    if is_blank(store).map_err(failed)? { Ok(()) } else { Err(LogError::ConfigNotEmpty { member }) }
}

fn label_for(stores: &[Box<dyn Store>], options: &CreateOptions) -> Result<Label, LogError> {
    let given = stores.len();
    let Some(shortest) =
        stores.iter().map(|store| store.len()).min().filter(|_| given <= MEMBERS_MAX)
    else {
        return Err(LogError::ConfigMembers { given, max: MEMBERS_MAX });
    };
    let max = shortest.saturating_sub(RING_START) / CAPACITY_MIN * CAPACITY_MIN;
    let capacity = options.capacity.unwrap_or(max);
    if !(CAPACITY_MIN..=max).contains(&capacity) || !capacity.is_multiple_of(CAPACITY_MIN) {
        return Err(LogError::ConfigCapacity { asked: capacity, max });
    }
    let members = u8::try_from(given).expect("at most MEMBERS_MAX");
    let least_in_sync =
        options.least_in_sync.unwrap_or(if members > 2 { members / 2 + 1 } else { 1 });
    if !(1..=members).contains(&least_in_sync) {
        return Err(LogError::ConfigLeastInSync { asked: least_in_sync, members });
    }
    let mut id = LogId::default();
    getrandom::fill(&mut id).map_err(|_| LogError::Host)?;
    let key_check = options.key.as_ref().map(|key| Seal::derive(key, &id)).transpose()?;
    Ok(Label {
        id,
        sequence: 1,
        generation: Generation(0),
        key_check: key_check.map(|seal| seal.check()),
        capacity,
        start: Lsn::FIRST,
        opened: Lsn::FIRST,
        unit: stores.iter().map(|store| unit_of(&**store)).max().unwrap_or(SECTOR),
        set_epoch: 1,
        in_sync: MemberSet::of(&(0..given).collect::<Vec<_>>()),
        members,
        member: 0,
        least_in_sync,
        settled: None,
    })
}

/// Commits end where no later one writes to the same unit: a cache line of memory; of a disk, a sector.
pub(crate) fn unit_of(store: &dyn Store) -> u32 {
    let is_on_disk = store.worth().class == DurabilityClass::Storage;
    if is_on_disk { SECTOR } else { u32::try_from(ALIGNMENT).expect("64") }
}

/// The label of a member that is in force.
pub(crate) fn newest_label(store: &mut dyn Store) -> Result<Result<Label, LabelError>, StoreError> {
    let newest = newest_of_any(store)?;
    Ok(newest.and_then(|label| match label.settled {
        None => Ok(label),
        Some(_) => Err(LabelError::Archive),
    }))
}

/// The label of an archive that is in force.
pub(crate) fn newest_archive(
    store: &mut dyn Store,
) -> Result<Result<Label, LabelError>, StoreError> {
    let newest = newest_of_any(store)?;
    Ok(newest.and_then(|label| match label.settled {
        Some(_) => Ok(label),
        None => Err(LabelError::Member),
    }))
}

fn newest_of_any(store: &mut dyn Store) -> Result<Result<Label, LabelError>, StoreError> {
    if store.len() < RING_START {
        return Ok(Err(LabelError::NoLabel));
    }
    let mut newest: Result<Label, _> = Err(LabelError::NoLabel);
    let mut unreadable = Ok(());
    for slot in [0, SLOT_LEN] {
        let mut bytes = [0; LABEL_LEN];
        // A copy that cannot be read costs as little as one that is damaged: nobody has built on one copy alone.
        if let Err(error) = store.read(slot, &mut bytes) {
            unreadable = Err(error);
            continue;
        }
        match (Label::parse(&bytes), &newest) {
            (Ok(label), Ok(known)) if label.sequence < known.sequence => {}
            (Ok(label), _) => newest = Ok(label),
            (Err(LabelError::NoLabel), _) | (Err(_), Ok(_)) => {}
            (Err(error), Err(_)) => newest = Err(error),
        }
    }
    if newest.is_err() {
        unreadable?;
    }
    let room = store.len() - RING_START;
    Ok(newest.and_then(
        |label| {
            if label.capacity <= room { Ok(label) } else { Err(LabelError::Nonsense) }
        },
    ))
}

pub(crate) fn write(store: &mut dyn Store, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
    store.place(offset, bytes)?;
    store.begin_commit(offset, to_u64(bytes.len()))?;
    store.end_commit()
}

/// Bytes before the ring.
pub(crate) const HEAD_LEN: usize = 8192;
const _: () = assert!(HEAD_LEN as u64 == RING_START);
/// The unit of disks whose writes do not tear: the smallest that any has.
const SECTOR: u32 = 512;
