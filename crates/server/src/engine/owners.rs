//! Whose a queue pair is: looked up for every event, so by index and without hashing.
//!
//! An engine gives the place of a queue pair away as soon as that is gone, which its owner may have
//! to hear yet: a request that comes in the same poll as an end may be accepted before the end is
//! dealt with.

use rdma::QpId;

use super::handle::PushConnection;
use crate::transport::direct::DirectId;

/// Whose events these are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Owner {
    Push(PushConnection),
    Direct(DirectId),
}

/// The owners of all queue pairs of one engine.
#[derive(Debug, Default)]
pub(super) struct Owners {
    places: Vec<Option<(u32, Owner)>>,
    /// Those whose place another one has, until they are told of their end. Hardly ever any.
    displaced: Vec<(QpId, Owner)>,
    count: usize,
}

impl Owners {
    /// Notes whose a new queue pair is.
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

    /// Whose it is; `None` for a queue pair that is gone.
    pub(super) fn of(&self, qp: QpId) -> Option<Owner> {
        match *self.places.get(place(qp))? {
            Some((generation, owner)) if generation == qp.generation => Some(owner),
            _ => Some(self.displaced[self.displaced(qp)?].1),
        }
    }

    /// The queue pair is gone.
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

    /// Whether there is no queue pair at all.
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
    fn a_queue_pair_that_took_anothers_place_is_not_mistaken_for_it() {
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
    fn one_whose_place_is_taken_before_it_hears_of_its_end_is_found() {
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
