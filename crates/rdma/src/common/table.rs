//! A table that reuses its places and refuses the keys of earlier entries of a place.

/// Place and tenancy of an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Entries by [`Key`], at most `max` of them.
#[derive(Debug)]
pub(crate) struct Table<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
    max: u32,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    entry: Option<T>,
}

impl<T> Table<T> {
    pub(crate) fn new(max: u32) -> Self {
        Self { places: Vec::new(), free: Vec::new(), max }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty() && u32::try_from(self.places.len()).is_ok_and(|len| len >= self.max)
    }

    /// Puts in what `make` returns for its key; `None` when the table is full.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(Key) -> T) -> Option<Key> {
        self.insert_if(|key| Some(make(key)))
    }

    /// Puts in what `make` returns for its key; `None` when the table is full or `make` fails.
    pub(crate) fn insert_if(&mut self, make: impl FnOnce(Key) -> Option<T>) -> Option<Key> {
        if self.is_full() {
            return None;
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.places.len()).ok()?;
                self.places.push(Place { generation: 0, entry: None });
                index
            }
        };
        let place = self.places.get_mut(usize::try_from(index).ok()?)?;
        let key = Key { index, generation: place.generation };
        place.entry = make(key);
        if place.entry.is_none() {
            self.free.push(index);
            return None;
        }
        Some(key)
    }

    /// The keys of all entries.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> {
        let places = (0_u32..).zip(&self.places).filter(|(_, place)| place.entry.is_some());
        places.map(|(index, place)| Key { index, generation: place.generation })
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let place = self.places.get(usize::try_from(key.index).ok()?)?;
        if place.generation == key.generation { place.entry.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.places.get_mut(usize::try_from(key.index).ok()?)?;
        if place.generation == key.generation { place.entry.as_mut() } else { None }
    }

    /// The entry at `index`, of whatever generation, with its key.
    pub(crate) fn at(&mut self, index: u32) -> Option<(Key, &mut T)> {
        let place = self.places.get_mut(usize::try_from(index).ok()?)?;
        let key = Key { index, generation: place.generation };
        place.entry.as_mut().map(|entry| (key, entry))
    }

    /// Takes the entry out; its key is never valid again.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.places.get_mut(usize::try_from(key.index).ok()?)?;
        if place.generation != key.generation {
            return None;
        }
        let entry = place.entry.take()?;
        // After 2^32 entries in one place an old key would match again; no caller keeps a key that
        // long.
        place.generation = place.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_an_earlier_entry_is_refused() {
        let mut table = Table::new(1);
        let old = table.insert_with(|_| 'a').unwrap();
        assert!(table.is_full());
        assert_eq!(table.insert_with(|_| 'b'), None);
        assert_eq!(table.remove(old), Some('a'));
        let new = table.insert_with(|_| 'c').unwrap();
        assert_eq!(new.index, old.index);
        assert_eq!(table.get(old), None);
        assert_eq!(table.remove(old), None);
        assert_eq!(table.get(new), Some(&'c'));
        assert_eq!(table.len(), 1);
        assert_eq!(table.keys().collect::<Vec<_>>(), [new]);
    }

    #[test]
    fn an_entry_that_could_not_be_made_takes_no_place() {
        let mut table = Table::<char>::new(1);
        assert_eq!(table.insert_if(|_| None), None);
        assert_eq!((table.len(), table.is_full()), (0, false));
        assert!(table.insert_with(|_| 'a').is_some());
    }
}
