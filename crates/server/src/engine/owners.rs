//! Whose a queue pair is: looked up for every event, so by index and without hashing.

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
    count: usize,
}

impl Owners {
    /// Notes whose a new queue pair is.
    pub(super) fn insert(&mut self, qp: QpId, owner: Owner) {
        let index = place(qp);
        if self.places.len() <= index {
            self.places.resize(index + 1, None);
        }
        self.count += usize::from(self.places[index].replace((qp.generation, owner)).is_none());
    }

    /// Whose it is; `None` for a queue pair that is gone.
    pub(super) fn of(&self, qp: QpId) -> Option<Owner> {
        let (generation, owner) = (*self.places.get(place(qp))?)?;
        (generation == qp.generation).then_some(owner)
    }

    /// The queue pair is gone.
    pub(super) fn remove(&mut self, qp: QpId) -> Option<Owner> {
        let owner = self.of(qp)?;
        self.places[place(qp)] = None;
        self.count -= 1;
        Some(owner)
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
}
