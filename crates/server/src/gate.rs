//! How many of something each user may have at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A gate that lets each user in so many times.
#[derive(Clone, Debug)]
pub struct Gate {
    most: usize,
    inside: Arc<Mutex<HashMap<String, usize>>>,
}

/// A place behind the gate, given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    user: String,
    inside: Arc<Mutex<HashMap<String, usize>>>,
}

impl Gate {
    /// A gate for so many of each user.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, inside: Arc::default() }
    }

    /// Lets a user in, if they have not too many inside.
    #[must_use]
    pub fn enter(&self, user: &str) -> Option<Place> {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let count = inside.entry(user.to_owned()).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Place { user: user.to_owned(), inside: Arc::clone(&self.inside) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = inside.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                inside.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_so_many_places() {
        let gate = Gate::new(2);
        let first = gate.enter("ann").expect("one");
        let _second = gate.enter("ann").expect("two");
        assert!(gate.enter("ann").is_none());
        let _other = gate.enter("bob").expect("another's");
        drop(first);
        assert!(gate.enter("ann").is_some());
        drop(gate.enter("eve"));
        assert_eq!(gate.inside.lock().expect("whole").len(), 2, "who has none is not kept");
    }
}
