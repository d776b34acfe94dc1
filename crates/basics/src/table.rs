//! A bounded table that reuses its places; a key of an earlier entry of a place is refused.
//!
//! A [`Key`] as one number, which a peer may see:
//!
//! ```text
//!  63             32 31              0
//!  +----------------+----------------+
//!  | generation     | index          |    generation counts the entries of the place, from 1
//!  +----------------+----------------+
//! ```

use thiserror::Error;

/// The place of an entry, and which of the entries of that place is meant.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Key {
    /// The number of the place.
    pub index: u32,
    /// The entry of the place, counted from 1.
    pub generation: u32,
}

/// Entries by [`Key`], at most `len_max` of them. A place that has had 2^32 - 1 entries is not used
/// again, so that no key ever names two entries.
#[derive(Debug)]
pub struct Table<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
    len: usize,
    len_max: u32,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    entry: Option<T>,
}

impl Key {
    /// The key as one number; no key is 0.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The key that [`to_bits`](Self::to_bits) made `bits` of. Every number is a key, though perhaps
    /// of no entry.
    pub fn from_bits(bits: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = bits.to_le_bytes();
        let (index, generation) = (u32::from_le_bytes([a, b, c, d]), [e, f, g, h]);
        Self { index, generation: u32::from_le_bytes(generation) }
    }
}

impl<T> Table<T> {
    /// An empty table for at most `len_max` entries.
    pub const fn new(len_max: u32) -> Self {
        Self { places: Vec::new(), free: Vec::new(), len: 0, len_max }
    }

    /// How many entries there are.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no entries.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether one more entry has no place.
    pub fn is_full(&self) -> bool {
        self.next_key().is_none()
    }

    /// The key that the next entry gets; `None` when the table is full.
    pub fn next_key(&self) -> Option<Key> {
        match self.free.last() {
            Some(&index) => {
                let place = self.places.get(index as usize)?;
                Some(Key { index, generation: place.generation })
            }
            None => {
                let index = u32::try_from(self.places.len()).ok()?;
                (index < self.len_max).then_some(Key { index, generation: FIRST })
            }
        }
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// [`Full`]: `entry` has no place, and is dropped.
    pub fn insert(&mut self, entry: T) -> Result<Key, Full> {
        self.insert_if(|_| Some(entry)).ok_or(Full { len_max: self.len_max })
    }

    /// Adds what `make` returns for its key; `None` when the table is full or `make` returns `None`.
    pub fn insert_if(&mut self, make: impl FnOnce(Key) -> Option<T>) -> Option<Key> {
        let key = self.next_key()?;
        let entry = make(key)?;
        if self.free.pop().is_none() {
            self.places.push(Place { generation: FIRST, entry: None });
        }
        self.places.get_mut(key.index as usize)?.entry = Some(entry);
        self.len += 1;
        Some(key)
    }

    /// The entry, unless it was removed or never was.
    pub fn get(&self, key: Key) -> Option<&T> {
        let place = self.places.get(key.index as usize)?;
        if place.generation == key.generation { place.entry.as_ref() } else { None }
    }

    /// As [`get`](Self::get).
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation == key.generation { place.entry.as_mut() } else { None }
    }

    /// The entry in a place, of whatever generation, with its key.
    pub fn at(&mut self, index: u32) -> Option<(Key, &mut T)> {
        let place = self.places.get_mut(index as usize)?;
        let key = Key { index, generation: place.generation };
        place.entry.as_mut().map(|entry| (key, entry))
    }

    /// Takes the entry out; its key is never valid again.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation != key.generation {
            return None;
        }
        let entry = place.entry.take()?;
        self.len -= 1;
        if let Some(next) = place.generation.checked_add(1) {
            place.generation = next;
            self.free.push(key.index);
        }
        Some(entry)
    }

    /// The keys of all entries, in the order of their places.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        let places = (0_u32..).zip(&self.places).filter(|(_, place)| place.entry.is_some());
        places.map(|(index, place)| Key { index, generation: place.generation })
    }

    /// All entries, in the order of their places.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|place| place.entry.as_ref())
    }

    /// As [`values`](Self::values).
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().filter_map(|place| place.entry.as_mut())
    }

    /// Takes all entries out.
    pub fn drain(&mut self) -> Vec<T> {
        self.take_if(|_| true)
    }

    /// Takes the entries out for which `is_wanted` is true.
    pub fn take_if(&mut self, is_wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let is_wanted = |key: &Key| self.get(*key).is_some_and(&is_wanted);
        let keys: Vec<Key> = self.keys().filter(is_wanted).collect();
        keys.into_iter().filter_map(|key| self.remove(key)).collect()
    }
}

/// The table holds as many entries as it may.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("the table of {len_max} entries is full")]
pub struct Full {
    len_max: u32,
}

/// The generation of the first entry of a place, so that no key is the number 0.
const FIRST: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_an_earlier_entry_is_refused() {
        let mut table = Table::new(1);
        let old = table.insert('a').unwrap();
        assert!(table.is_full());
        assert_eq!(table.insert('b'), Err(Full { len_max: 1 }));
        assert_eq!(table.remove(old), Some('a'));
        let new = table.insert('c').unwrap();
        assert_eq!(new.index, old.index, "the place is reused");
        assert_eq!((table.get(old), table.get(new)), (None, Some(&'c')));
        assert_eq!(table.get_mut(old), None);
        assert_eq!(table.remove(old), None);
        assert_eq!(table.at(0), Some((new, &mut 'c')));
        assert_eq!(table.at(1), None);
        assert_eq!(table.keys().collect::<Vec<_>>(), [new]);
    }

    #[test]
    fn an_entry_that_could_not_be_made_takes_no_place() {
        let mut table = Table::<char>::new(1);
        assert_eq!(table.insert_if(|_| None), None);
        assert_eq!((table.len(), table.is_full()), (0, false));
        let announced = table.next_key();
        assert!(announced.is_some());
        assert_eq!(table.insert_if(|_| Some('a')), announced);
        assert_eq!(table.next_key(), None);
    }

    #[test]
    fn a_place_is_not_used_again_once_its_generations_are_used_up() {
        let mut table = Table::new(1);
        let first = table.insert('a').unwrap();
        table.places[0].generation = u32::MAX;
        assert_eq!(table.get(first), None);
        let last = Key { index: 0, generation: u32::MAX };
        assert_eq!(table.remove(last), Some('a'));
        assert!(table.is_empty() && table.is_full());
    }

    #[test]
    fn invented_keys_name_no_entry() {
        let mut table = Table::new(8);
        let key = table.insert('a').unwrap();
        for bits in [0, 1, u64::MAX, 2 << 32, 1 << 32 | 1] {
            assert_eq!(table.get(Key::from_bits(bits)), None, "{bits:#x}");
        }
        assert_eq!(table.get(Key::from_bits(key.to_bits())), Some(&'a'));
    }

    #[test]
    fn entries_leave_in_the_order_of_their_places() {
        let mut table = Table::new(3);
        let keys = [1, 2, 3].map(|entry| table.insert(entry).unwrap());
        table.values_mut().for_each(|entry| *entry *= 10);
        assert_eq!(table.take_if(|entry| *entry != 20), [10, 30]);
        assert_eq!((table.len(), table.get(keys[1])), (1, Some(&20)));
        assert_eq!(table.drain(), [20]);
        assert_eq!(table.values().count(), 0);
        assert_eq!(table.insert(40).map(|key| key.index), Ok(1), "the place that was left last");
    }
}
