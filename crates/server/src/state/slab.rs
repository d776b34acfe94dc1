//! Generational ids: handles that can go stale but never mean something else.
//!
//! ```text
//!  63             32 31              0
//!  +----------------+----------------+
//!  | generation     | index          |    generation counts how often the slot was reused
//!  +----------------+----------------+
//! ```

use thiserror::Error;

/// A bounded table of `T` under generational ids.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    len_max: u32,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// An id of a [`Slab`]; the number a peer sees.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct SlabId(pub(crate) u64);

impl<T> Slab<T> {
    /// An empty table that never holds more than `len_max` values.
    pub(crate) fn new(len_max: u32) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), len_max }
    }

    /// Adds a value made from its own id.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(SlabId) -> T) -> Result<SlabId, Full> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let next = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
                if next >= self.len_max {
                    return Err(Full { len_max: self.len_max });
                }
                self.slots.push(Slot { generation: 1, value: None });
                next
            }
        };
        let slot = &mut self.slots[index as usize];
        let id = SlabId(u64::from(slot.generation) << 32 | u64::from(index));
        slot.value = Some(make(id));
        Ok(id)
    }

    /// Whether one more value has no room.
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() >= self.len_max as usize
    }

    /// The value, unless the id is stale or was never given out.
    pub(crate) fn get(&self, id: SlabId) -> Option<&T> {
        let slot = self.slots.get(index(id))?;
        if slot.generation != generation(id) { None } else { slot.value.as_ref() }
    }

    /// Takes the value out; its id is stale from now on.
    pub(crate) fn remove(&mut self, id: SlabId) -> Option<T> {
        let slot = self.slots.get_mut(index(id))?;
        if slot.generation != generation(id) {
            return None;
        }
        let value = slot.value.take()?;
        // A slot that ran through all generations is retired rather than reused.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.free.push(u32::try_from(index(id)).expect("it came from a u32"));
        }
        Some(value)
    }

    /// All values.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.values().count()
    }

    /// Takes everything out.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        self.take_if(|_| true)
    }

    /// Takes out what `wanted` says.
    pub(crate) fn take_if(&mut self, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let ids: Vec<SlabId> = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.value.as_ref().is_some_and(&wanted))
            .map(|(index, slot)| SlabId(u64::from(slot.generation) << 32 | index as u64))
            .collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }
}

fn index(id: SlabId) -> usize {
    let [a, b, c, d, ..] = id.0.to_le_bytes();
    u32::from_le_bytes([a, b, c, d]) as usize
}

fn generation(id: SlabId) -> u32 {
    let [.., a, b, c, d] = id.0.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The table holds as many values as it may.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("the table of {len_max} entries is full")]
pub(crate) struct Full {
    len_max: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_id_never_reaches_a_new_value() {
        let mut slab = Slab::new(8);
        let old = slab.insert_with(|_| "old").unwrap();
        assert_eq!(slab.remove(old), Some("old"));
        let new = slab.insert_with(|_| "new").unwrap();
        assert_eq!(index(old), index(new), "the slot is reused");
        assert_eq!((slab.get(old), slab.get(new)), (None, Some(&"new")));
        assert_eq!(slab.remove(old), None);
    }

    #[test]
    fn invented_ids_are_nothing() {
        let slab: Slab<u8> = Slab::new(8);
        for id in [0, 1, u64::MAX, 1 << 32] {
            assert_eq!(slab.get(SlabId(id)), None);
        }
    }

    #[test]
    fn the_bound_holds_and_draining_empties() {
        let mut slab = Slab::new(2);
        slab.insert_with(|_| 1).unwrap();
        slab.insert_with(|_| 2).unwrap();
        assert_eq!(slab.insert_with(|_| 3), Err(Full { len_max: 2 }));
        assert_eq!(slab.drain(), [1, 2]);
        assert_eq!(slab.len(), 0);
        slab.insert_with(|_| 4).unwrap();
    }
}
