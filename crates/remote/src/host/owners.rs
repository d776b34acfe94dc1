//! Maps queue pairs to their owners: looked up for every event, so by index and without hashing.
//!
//! An engine reuses the place of a queue pair as soon as that queue pair is gone, while its owner
//! may not know yet: a request that comes in the same poll as an end may be accepted before the end
//! is handled.

use basics::Key;
use rdma::QpId;

use super::handle::PushConnection;

/// The owner of a queue pair's events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Owner {
    Push(PushConnection),
    /// The handler, with its key of the connection.
    Handler(Key),
}

/// The owners of all queue pairs of one engine.
#[derive(Debug, Default)]
pub(super) struct Owners {
    places: Vec<Option<(u32, Owner)>>,
    /// Owners whose place another queue pair has taken, until their end is reported. Nearly always
    /// empty.
    displaced: Vec<(QpId, Owner)>,
    count: usize,
}

impl Owners {
    /// Records the owner of a new queue pair.
    pub(super) fn insert(&mut self, qp: QpId, owner: Owner) {
        let index = place(qp);
        if self.places.len() <= index {
            self.places.resize(index + 1, None);
        }
        let earlier = self.places[index].replace((qp.generation, owner));
        if let Some((generation, owner)) = earlier {
            self.displaced.push((QpId { generation, ..qp }, owner));
        }
        self.count += 1;
    }

    /// The owner; `None` for a queue pair that is gone.
    pub(super) fn of(&self, qp: QpId) -> Option<Owner> {
        match *self.places.get(place(qp))? {
            Some((generation, owner)) if generation == qp.generation => Some(owner),
            _ => Some(self.displaced[self.displaced(qp)?].1),
        }
    }

    /// Removes a queue pair that is gone.
    pub(super) fn remove(&mut self, qp: QpId) -> Option<Owner> {
        let owner = self.of(qp)?;
        match self.displaced(qp) {
            Some(at) => {
                self.displaced.swap_remove(at);
            }
            None => self.places[place(qp)] = None,
        }
        self.count -= 1;
        Some(owner)
    }

    fn displaced(&self, qp: QpId) -> Option<usize> {
        self.displaced.iter().position(|(displaced, _)| *displaced == qp)
    }

    /// Whether there is no queue pair.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many queue pairs there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }
}

fn place(qp: QpId) -> usize {
    usize::try_from(qp.index).expect("32 bits fit usize")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_in_a_reused_place_has_its_own_owner() {
        let mut owners = Owners::default();
        let (old, new) = (QpId { index: 3, generation: 1 }, QpId { index: 3, generation: 2 });
        owners.insert(old, Owner::Push(PushConnection(1)));
        assert_eq!(owners.remove(old), Some(Owner::Push(PushConnection(1))));
        owners.insert(new, Owner::Push(PushConnection(2)));
        assert_eq!(owners.of(old), None);
        assert_eq!(owners.remove(old), None);
        assert_eq!(owners.of(new), Some(Owner::Push(PushConnection(2))));
        assert!(!owners.is_empty());
    }

    #[test]
    fn a_displaced_owner_is_found_until_its_end_is_reported() {
        let mut owners = Owners::default();
        let (old, new) = (QpId { index: 3, generation: 1 }, QpId { index: 3, generation: 2 });
        owners.insert(old, Owner::Push(PushConnection(1)));
        owners.insert(new, Owner::Push(PushConnection(2)));
        assert_eq!((owners.of(old), owners.len()), (Some(Owner::Push(PushConnection(1))), 2));
        assert_eq!(owners.remove(old), Some(Owner::Push(PushConnection(1))));
        assert_eq!(owners.remove(old), None);
        assert_eq!(owners.remove(new), Some(Owner::Push(PushConnection(2))));
        assert!(owners.is_empty());
    }
}
