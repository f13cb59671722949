//! How much of something each of many may have at once: connections of an address, streams of a person.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// As many places for each key as for any other. Cheap to clone.
#[derive(Clone)]
pub struct Places<K: Eq + Hash + Clone> {
    most: usize,
    taken: Arc<Mutex<HashMap<K, usize>>>,
}

/// A place that is taken until this is dropped.
pub struct Place<K: Eq + Hash + Clone> {
    places: Places<K>,
    key: K,
}

impl<K: Eq + Hash + Clone> Places<K> {
    /// At most `most` at once for each key.
    pub fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// Takes a place; none when all of this key's are taken.
    pub fn take(&self, key: K) -> Option<Place<K>> {
        let mut taken = self.lock();
        let count = taken.entry(key.clone()).or_insert(0);
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Place { places: self.clone(), key })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash + Clone> Drop for Place<K> {
    fn drop(&mut self) {
        // The last one out takes the key along: whoever was here once must not be remembered for good.
        if let Entry::Occupied(mut count) = self.places.lock().entry(self.key.clone()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl<K: Eq + Hash + Clone> fmt::Debug for Place<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_own_places_and_nobody_is_remembered() {
        let places = Places::new(2);
        let (first, second) = (places.take("a"), places.take("a"));
        assert!(first.is_some() && second.is_some());
        assert!(places.take("a").is_none());
        assert!(places.take("b").is_some(), "another's");
        drop(first);
        let third = places.take("a");
        assert!(third.is_some() && places.take("a").is_none());
        drop((second, third));
        assert!(places.lock().is_empty());
    }
}
