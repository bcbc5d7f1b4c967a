//! From a world that breaks a property to a small one that still does.

use crate::world::{Work, World};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// What went wrong. Shrinking keeps the kind.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: String,
    pub(crate) detail: String,
}

impl Fault {
    pub(crate) fn new(kind: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: kind.into(), detail: detail.into() }
    }
}

pub(crate) type Property = fn(&World) -> Result<(), Fault>;

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The property, with a panic as one more fault.
pub(crate) fn check(property: Property, world: &World) -> Result<(), Fault> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let place =
                info.location().map_or(String::new(), |at| format!("{}:{}", at.file(), at.line()));
            let inside = std::thread::current().name() == Some("main") || place.contains("tests/");
            PANIC.with(|last| *last.borrow_mut() = format!("{place}: {info}"));
            if inside {
                before(info);
            }
        }));
    });
    catch_unwind(AssertUnwindSafe(|| property(world))).unwrap_or_else(|_| {
        let what = PANIC.with(|last| last.borrow().clone());
        let place = what.split(": ").next().unwrap_or_default().to_owned();
        Err(Fault::new(format!("panic at {place}"), what))
    })
}

/// Tries of one shrinking; each is one run of the property.
const TRIES_MAX: usize = 2_500;

struct Shrinker {
    property: Property,
    world: World,
    fault: Fault,
    tries: usize,
}

impl Shrinker {
    fn accept(&mut self, candidate: World) -> bool {
        if self.tries >= TRIES_MAX || candidate.scenario().is_err() {
            return false;
        }
        self.tries += 1;
        match check(self.property, &candidate) {
            Err(fault) if fault.kind == self.fault.kind => {
                self.world = candidate;
                self.fault = fault;
                true
            }
            _ => false,
        }
    }

    /// Leaves out entries of a list, many at a time first. Says whether any went.
    fn cut<T: Clone>(&mut self, list: fn(&mut World) -> &mut Vec<T>) -> bool {
        let mut any = false;
        let mut step = list(&mut self.world.clone()).len().max(1);
        loop {
            let mut at = 0;
            while at < list(&mut self.world).len() {
                let mut candidate = self.world.clone();
                let entries = list(&mut candidate);
                let to = (at + step).min(entries.len());
                entries.drain(at..to);
                if self.accept(candidate) {
                    any = true;
                } else {
                    at += step;
                }
            }
            if step == 1 {
                return any;
            }
            step /= 2;
        }
    }

    fn each_work(&mut self, change: fn(&mut Work)) -> bool {
        let mut any = false;
        for at in 0..self.world.works.len() {
            let mut candidate = self.world.clone();
            let before = format!("{:?}", candidate.works[at]);
            change(&mut candidate.works[at]);
            if format!("{:?}", candidate.works[at]) != before {
                any |= self.accept(candidate);
            }
        }
        any
    }

    fn setting(&mut self, change: fn(&mut World)) -> bool {
        let mut candidate = self.world.clone();
        let before = candidate.yaml();
        change(&mut candidate);
        candidate.yaml() != before && self.accept(candidate)
    }

    fn round(&mut self) -> bool {
        let mut any = self.cut(|world| &mut world.works);
        any |= self.cut(|world| &mut world.host_events);
        any |= self.cut(|world| &mut world.changes);
        any |= self.cut(|world| &mut world.hosts);
        any |= self.cut(|world| &mut world.budgets);
        let on_work: [fn(&mut Work); 17] = [
            |work| work.rank = 0,
            |work| work.max_runtime = None,
            |work| work.checkpoint = None,
            |work| work.on_signal = false,
            |work| work.save_time = 0,
            |work| work.grace = None,
            |work| work.startup = None,
            |work| work.status = "completed",
            |work| work.model = None,
            |work| work.shape = None,
            |work| work.resumable = true,
            |work| work.resumable = false,
            |work| work.submit = 0,
            |work| work.submit = work.submit.next_multiple_of(60),
            |work| work.min_runtime = work.min_runtime.next_multiple_of(60),
            |work| work.runtime = work.runtime.next_multiple_of(600),
            |work| work.gpus = 1,
        ];
        for change in on_work {
            any |= self.each_work(change);
        }
        let on_world: [fn(&mut World); 15] = [
            |world| world.settings.startup = 0,
            |world| world.settings.grace = 0,
            |world| world.settings.grace = 30,
            |world| world.settings.debug_hosts = 0,
            |world| world.settings.reservations = 0,
            |world| world.settings.reservations = 1,
            |world| world.settings.margin = "0.05",
            |world| world.settings.lookback = 3_600,
            |world| world.settings.horizon = 3_600,
            |world| world.rate_of_b = "2",
            |world| world.hosts.iter_mut().for_each(|host| host.domain = 1),
            |world| world.hosts.iter_mut().for_each(|host| host.model = "a"),
            |world| world.unlimit(),
            |world| world.budgets.iter_mut().for_each(|budget| budget.terms.clear()),
            |world| world.budgets.iter_mut().for_each(|budget| budget.share = budget.share.min(1)),
        ];
        for change in on_world {
            any |= self.setting(change);
        }
        any
    }
}

/// The smallest world found that breaks the property in the same way.
pub(crate) fn shrink(property: Property, world: World, fault: Fault) -> (World, Fault) {
    let mut shrinker = Shrinker { property, world, fault, tries: 0 };
    while shrinker.round() {}
    (shrinker.world, shrinker.fault)
}
