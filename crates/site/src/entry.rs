//! Who enters the queue, and when: work that is held, waits for other work, or is of an array.

use crate::declare::{Element, When};
use crate::site::Site;
use crate::work::{Ending, Spell, Stage, Work};
use bursar_core::{Event, TimeMs};
use std::collections::VecDeque;

/// Whether a workload enters the queue.
enum Outlook {
    /// It does.
    Enters,
    /// Not yet.
    Stays,
    /// It never can.
    Unreachable,
}

impl Site {
    /// A workload enters the queue if it may by now; if it never can, it ends.
    pub(crate) fn release(&mut self, at: TimeMs, number: u64) -> Result<(), String> {
        self.settle(at, vec![number])
    }

    /// Lets those who may enter the queue by now, and ends those who never can, with all that follows from it.
    /// In a loop: chains of workloads that wait for each other may be long.
    fn settle(&mut self, at: TimeMs, first: Vec<u64>) -> Result<(), String> {
        let mut open = VecDeque::from(first);
        while let Some(number) = open.pop_front() {
            match self.outlook(&self.works[&number]) {
                Outlook::Stays => {}
                Outlook::Unreachable => open.extend(self.close(number, Ending::Unreachable)),
                Outlook::Enters => self.enter(at, number)?,
            }
        }
        Ok(())
    }

    /// A workload enters the queue once nobody holds it, all that it waits for have ended as they must, and its
    /// array has room; if one that it waits for has ended otherwise, it never can.
    fn outlook(&self, work: &Work) -> Outlook {
        if work.stage != Stage::Waits || work.held.is_some() {
            return Outlook::Stays;
        }
        let mut waits = false;
        for after in &work.declared.after {
            match self.works.get(&after.workload).map(|work| work.stage) {
                Some(Stage::Ended(Ending::Completed)) => {}
                Some(Stage::Ended(_)) if after.when == When::Any => {}
                Some(Stage::Ended(_)) | None => return Outlook::Unreachable,
                Some(Stage::Waits | Stage::Live(_)) => waits = true,
            }
        }
        if waits || !self.array_has_room(work) { Outlook::Stays } else { Outlook::Enters }
    }

    fn enter(&mut self, at: TimeMs, number: u64) -> Result<(), String> {
        let spec = self.spec(number, &self.works[&number].declared)?;
        let result = self.scheduler.apply(at, Event::Submitted(Box::new(spec)));
        let place = result.map_err(|refusal| refusal.to_string())?.expect("a place");
        let work = self.works.get_mut(&number).expect("it was just there");
        work.stage = Stage::Live(place);
        work.spells.push(Spell { from_ms: at.0, until_ms: None });
        self.places.insert(place, number);
        self.take_notices(at);
        Ok(())
    }

    /// Whether another element of a workload's array may be in the queue or run.
    fn array_has_room(&self, work: &Work) -> bool {
        let Some((element, most)) = work.declared.element.and_then(|e| Some((e, e.at_once?)))
        else {
            return true;
        };
        let live = self.elements(&element).filter(|one| matches!(one.stage, Stage::Live(_)));
        live.take(most as usize).count() < most as usize
    }

    /// All workloads of an array.
    pub fn elements(&self, of: &Element) -> impl Iterator<Item = &Work> {
        self.works.range(of.array..of.array + u64::from(of.size)).map(|(_, work)| work)
    }

    pub(crate) fn end(&mut self, at: TimeMs, number: u64, ending: Ending) -> Result<(), String> {
        let next = self.close(number, ending);
        self.settle(at, next)
    }

    /// A workload ends, or waits again if that was asked for. Returns whom that may concern.
    fn close(&mut self, number: u64, ending: Ending) -> Vec<u64> {
        let work = self.works.get_mut(&number).expect("a workload that ends exists");
        if work.requeue_by_ms.take().is_some() && !work.cancelled && ending != Ending::Completed {
            work.wait_again();
            return vec![number];
        }
        work.stage = Stage::Ended(ending);
        self.open.remove(&work.declared.user);
        let element = work.declared.element.filter(|element| element.at_once.is_some());
        let mut next = self.dependents.get(&number).cloned().unwrap_or_default();
        if let Some(element) = element {
            // What one element waits for, all do: if the first cannot enter, none can.
            let mut others = self.elements(&element);
            let waits = |one: &&Work| one.stage == Stage::Waits && one.held.is_none();
            next.extend(others.find(waits).map(|one| one.number));
        }
        next
    }
}
