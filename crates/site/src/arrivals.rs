//! Work that comes through the engine's own queue ([ADR 11](../../../docs/adr/0011-work-of-another-queue.md)).

use crate::declare::WorkloadDoc;
use crate::error::{Refused, RefusedKind};
use crate::plain::printable;
use crate::record::{Arrived, Body, Submitted};
use crate::site::Site;
use crate::work::{Stage, Work};
use bursar_core::{HostIx, Placement, TimeMs, WorkloadIx};

/// An arrival as a site takes it in.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// What the engine calls it.
    pub arrived: Arrived,
    /// What it declares.
    pub doc: WorkloadDoc,
    /// Whose it is.
    pub user: String,
    /// Whether the engine has seen to it that this user may use that budget. Else the site does.
    pub may_charge: bool,
    /// Why it cannot be started yet, if it cannot.
    pub not_yet: Option<String>,
}

impl Site {
    /// The workload that an arrival is.
    #[must_use]
    pub fn arrival(&self, name: &str) -> Option<&Work> {
        self.arrivals.get(name).and_then(|number| self.works.get(number))
    }

    /// Takes an arrival in as the workload of this number, the next one that is free.
    ///
    /// # Errors
    /// If it could never run here, or names a budget that is none, or not its user's.
    pub fn take_in(&self, number: u64, incoming: Incoming) -> Result<Body, Refused> {
        let Incoming { arrived, doc, user, may_charge, not_yet } = incoming;
        let declared = doc.accept(&user, &self.created.settings)?.declared;
        if !may_charge && !self.budgets.is_member(&user, &declared.budget) {
            return Err(Refused::forbidden(format!(
                "budget: there is no budget '{}' that {} may submit to",
                printable(&declared.budget),
                printable(&user)
            )));
        }
        self.check_fit(&declared)?;
        Ok(Body::Submitted(Box::new(Submitted {
            workload: number,
            declared,
            idempotency_key: None,
            held: not_yet,
            arrived: Some(arrived),
            sent_sha256: None,
        })))
    }

    /// What was put back into its own queue after it had ended here waits again.
    ///
    /// # Errors
    /// If the budgets or hosts are others by now, and it could never run.
    pub fn comes_again(&self, number: u64) -> Result<Body, Refused> {
        self.check_fit(&self.arrived(number)?.declared)?;
        Ok(Body::Requeued { workload: number })
    }

    /// What waited in its own queue for something else may enter ours.
    ///
    /// # Errors
    /// As for [`Site::comes_again`].
    pub fn is_ready(&self, number: u64) -> Result<Body, Refused> {
        self.check_fit(&self.arrived(number)?.declared)?;
        Ok(Body::Released { workload: number })
    }

    /// What waits stays out of our queue, or is told anew why it does: until a moment, or until its engine says that it is
    /// ready.
    ///
    /// # Errors
    /// If it did not come through the engine's own queue, or does not wait.
    pub fn hold_back(
        &self,
        number: u64,
        why: String,
        until_ms: Option<u64>,
    ) -> Result<Body, Refused> {
        let work = self.arrived(number)?;
        if matches!(work.stage, Stage::Ended(_)) || work.has_open_attempt() {
            return Err(Refused::conflict(format!("workload {number} does not wait")));
        }
        Ok(Body::HeldBack { workload: number, why, until_ms })
    }

    /// Folds [`Body::HeldBack`]: it leaves the core's queue, and when it enters it again it comes as a new one.
    pub(crate) fn fold_held_back(
        &mut self,
        at: TimeMs,
        number: u64,
        why: &str,
        until_ms: Option<u64>,
    ) -> Result<(), String> {
        let work = self.works.get_mut(&number).ok_or_else(|| format!("no workload {number}"))?;
        if matches!(work.stage, Stage::Ended(_)) || work.has_open_attempt() {
            return Err(format!("workload {number} does not wait"));
        }
        (work.held, work.held_until_ms) = (Some(why.to_owned()), until_ms);
        if let Stage::Live(place) = work.stage {
            work.wait_again();
            self.places.remove(&place);
            self.event(at, bursar_core::Event::Cancelled(place))?;
        }
        Ok(())
    }

    fn arrived(&self, number: u64) -> Result<&Work, Refused> {
        let found = self.works.get(&number).filter(|work| work.arrived.is_some());
        found.ok_or_else(|| Refused::not_found(format!("no workload {number} came from a queue")))
    }

    /// Workloads that came through the engine's own queue, whatever became of them.
    pub fn arrivals(&self) -> impl Iterator<Item = &Work> {
        self.arrivals.values().filter_map(|number| self.works.get(number))
    }

    /// A workload that waits was found running: where, and since when.
    ///
    /// # Errors
    /// If it cannot run there by the site's books, or does not wait.
    pub fn found(
        &self,
        number: u64,
        placement: &[(String, u32)],
        since_ms: u64,
    ) -> Result<Body, Refused> {
        let conflict = |why: String| Refused { kind: RefusedKind::Conflict, message: why };
        let (place, hosts) = self.found_place(number, placement).map_err(conflict)?;
        let state = self.scheduler.state();
        state.check_found(place, &hosts).map_err(|refusal| conflict(refusal.to_string()))?;
        let placement = placement.to_vec();
        Ok(Body::Found { workload: number, placement, since_ms: since_ms.min(self.now_ms()) })
    }

    fn found_place(
        &self,
        number: u64,
        placement: &[(String, u32)],
    ) -> Result<(WorkloadIx, Placement), String> {
        let work = self.works.get(&number).ok_or_else(|| format!("no workload {number}"))?;
        let Stage::Live(place) = work.stage else {
            return Err(format!("workload {number} is not in the queue"));
        };
        let hosts: Option<Vec<(HostIx, u32)>> = placement
            .iter()
            .map(|(name, gpus)| self.host_index(name).map(|host| (host, *gpus)))
            .collect();
        let hosts = hosts.ok_or_else(|| {
            let names: Vec<&str> = placement.iter().map(|(name, _)| name.as_str()).collect();
            format!("it runs on hosts that are not of this site: {}", names.join(", "))
        })?;
        Ok((place, hosts))
    }

    /// Folds [`Body::Found`]: an attempt that nobody decided.
    pub(crate) fn fold_found(
        &mut self,
        at: TimeMs,
        number: u64,
        placement: &[(String, u32)],
        since_ms: u64,
    ) -> Result<(), String> {
        let (place, hosts) = self.found_place(number, placement)?;
        self.event(at, bursar_core::Event::Found(place, hosts, TimeMs(since_ms)))
    }
}
