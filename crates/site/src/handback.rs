//! The order in which work that waits is given back to the queue that it came from.

use crate::site::Site;
use crate::waiting::Rooms;
use crate::work::{Stage, Work};

impl Site {
    /// The names of all work in the engine's own queue that waits here, as it would start by what is known now: who has a
    /// reservation, then the order of rule 4, then unallocated work and what waits for something else, the oldest first.
    pub fn handback_order(&self) -> Vec<String> {
        let mut rooms = Rooms::default();
        let mut waiting: Vec<_> = self
            .arrivals()
            .filter(|work| !matches!(work.stage, Stage::Ended(_)) && !runs(work))
            .filter_map(|work| {
                let why = self.why_among(work, &mut rooms);
                let place = match why.as_ref().map(|why| (why.rule, why.ahead)) {
                    Some((7, _)) => (0, 0),
                    Some((_, Some(ahead))) => (1, ahead),
                    // It is about to start.
                    None => (0, 0),
                    Some(_) => (2, 0),
                };
                let name = &work.arrived.as_ref()?.name;
                Some(((place, work.submitted_ms, work.number), name.clone()))
            })
            .collect();
        waiting.sort();
        waiting.into_iter().map(|(_, name)| name).collect()
    }
}

fn runs(work: &Work) -> bool {
    work.latest().is_some_and(|attempt| attempt.started_ms.is_some() && attempt.ended_ms.is_none())
}
