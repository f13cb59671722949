//! How many processes of a kind may live at the same time: of one person, and of all together.
//!
//! A process whose file system hangs cannot be ended, so what a person has left hanging must neither grow nor keep others from theirs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The places that are taken, by user id.
#[derive(Debug, Clone)]
pub struct Places {
    each: usize,
    all: usize,
    taken: Arc<Mutex<HashMap<u32, usize>>>,
}

/// One place, given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    uid: u32,
}

impl Places {
    /// At most `each` for one user, and `all` for all of them.
    pub fn new(each: usize, all: usize) -> Self {
        Self { each, all, taken: Arc::default() }
    }

    /// A place for `uid`, if there is one.
    pub fn take(&self, uid: u32) -> Option<Place> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.values().sum::<usize>() >= self.all || taken.get(&uid).is_some_and(|count| *count >= self.each) {
            return None;
        }
        *taken.entry(uid).or_default() += 1;
        Some(Place { places: self.clone(), uid })
    }

    #[cfg(test)]
    pub(crate) fn are_free(&self) -> bool {
        self.taken.lock().unwrap().is_empty()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_all_places_gets_no_more_and_others_do() {
        let places = Places::new(2, 3);
        let taken = [places.take(2001).unwrap(), places.take(2001).unwrap()];
        assert!(places.take(2001).is_none());
        let others = places.take(2002).unwrap();
        assert!(places.take(2003).is_none(), "all together have three");
        drop(taken);
        assert!(places.take(2001).is_some() && places.take(2003).is_some());
        drop(others);
        assert!(places.are_free());
    }
}
