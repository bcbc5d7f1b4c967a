//! One shared copy of each name: a history of a million jobs has some hundred users.

use std::collections::HashSet;
use std::sync::Arc;

/// The names seen so far.
#[derive(Debug, Default)]
pub(crate) struct Names {
    seen: HashSet<Arc<str>>,
}

impl Names {
    /// The shared copy of `name`.
    pub(crate) fn share(&mut self, name: &str) -> Arc<str> {
        if let Some(shared) = self.seen.get(name) {
            return Arc::clone(shared);
        }
        let shared: Arc<str> = Arc::from(name);
        self.seen.insert(Arc::clone(&shared));
        shared
    }
}
