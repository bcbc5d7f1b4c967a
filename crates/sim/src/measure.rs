//! The metrics of docs/metrics.md, gathered while the run goes on.

use crate::build::rate_step;
use crate::series::Sample;
use crate::summary::{BudgetSummary, GpuHours};
use bursar_core::state::Occupancy;
use bursar_core::{BudgetIx, State, TimeMs};
use bursar_scenario::Scenario;

pub(crate) const HOUR_MS: u64 = 3_600_000;

/// A live workload that would be charged, in the hour that runs.
#[derive(Clone, Copy, Debug)]
struct Live {
    workload: u32,
    from_ms: u64,
    remaining_ms: u64,
}

/// Integrals over time, and what was owed and delivered per leaf.
pub(crate) struct Measure {
    /// The span begins here: nothing before is integrated.
    from_ms: u64,
    /// Nothing is integrated past this moment.
    until_ms: u64,
    at_ms: u64,
    hour_start_ms: u64,
    gpus: Occupancy,
    integrals: [u128; 4],
    live: Vec<Live>,
    /// For each workload 1 + its place among the live ones.
    places: Vec<u32>,
    /// Demand of the hour that runs, per leaf place, in units.
    demand: Vec<u128>,
    owed: Vec<u128>,
    allocation_at_hour: Vec<u128>,
    /// Per leaf place what was charged, occupied unallocated and allocated before the span.
    before: Vec<[u128; 3]>,
    lost_in_span: u128,
    closed: bool,
}

impl Measure {
    pub(crate) fn new(scenario: &Scenario, state: &State, (from_ms, until_ms): (u64, u64)) -> Self {
        let leaves = state.tree.leaves().len();
        Self {
            from_ms,
            until_ms,
            at_ms: 0,
            hour_start_ms: from_ms,
            before: vec![[0; 3]; leaves],
            gpus: state.occupancy(),
            integrals: [0; 4],
            live: Vec::new(),
            places: vec![0; scenario.workloads.len()],
            demand: vec![0; leaves],
            owed: vec![0; leaves],
            allocation_at_hour: vec![0; leaves],
            lost_in_span: 0,
            closed: false,
        }
    }

    pub(crate) const fn until_ms(&self) -> u64 {
        self.until_ms
    }

    /// Whether a moment lies behind the begin of the span, or at it.
    pub(crate) const fn has_begun_by(&self, at_ms: u64) -> bool {
        at_ms >= self.from_ms
    }

    /// Where the span begins.
    pub(crate) const fn begin_ms(&self) -> u64 {
        self.from_ms
    }

    /// The run ends here, and the span with it.
    pub(crate) const fn end_at(&mut self, until_ms: u64) {
        self.until_ms = until_ms;
    }

    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    pub(crate) const fn gpus(&self) -> Occupancy {
        self.gpus
    }

    /// GPUs change hands at the moment that was last advanced to.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Occupancy)) {
        change(&mut self.gpus);
    }

    pub(crate) fn lose(&mut self, at_ms: u64, gpu_ms: u128) {
        if self.has_begun_by(at_ms) && at_ms <= self.until_ms {
            self.lost_in_span += gpu_ms;
        }
    }

    /// Time passes up to `to_ms`, nothing having happened since the last call. `remaining` tells what a
    /// live workload still has to do.
    pub(crate) fn advance(
        &mut self,
        scenario: &Scenario,
        state: &State,
        to_ms: u64,
        remaining: &mut impl FnMut(u32, u64) -> u64,
        sample: &mut impl FnMut(u64),
    ) {
        let to_ms = to_ms.min(self.until_ms);
        if self.at_ms < self.from_ms {
            if to_ms < self.from_ms {
                self.at_ms = to_ms;
                return;
            }
            self.begin(state, remaining);
        }
        while self.hour_start_ms + HOUR_MS <= to_ms {
            let boundary = self.hour_start_ms + HOUR_MS;
            self.integrate(boundary);
            self.close_hour(scenario, state, boundary);
            sample(boundary);
            for live in &mut self.live {
                live.from_ms = boundary;
                live.remaining_ms = remaining(live.workload, boundary);
            }
        }
        self.integrate(to_ms);
    }

    /// The span begins: what came before only counts as having been.
    fn begin(&mut self, state: &State, remaining: &mut impl FnMut(u32, u64) -> u64) {
        let from = TimeMs(self.from_ms);
        self.at_ms = self.from_ms;
        for (place, &leaf) in state.tree.leaves().iter().enumerate() {
            let account = state.ledger.account(leaf);
            let allocated = account.allocation.total(from);
            self.allocation_at_hour[place] = allocated;
            self.before[place] =
                [account.charged.total(from), account.unallocated.total(from), allocated];
        }
        for live in &mut self.live {
            live.from_ms = self.from_ms;
            live.remaining_ms = remaining(live.workload, self.from_ms);
        }
    }

    fn integrate(&mut self, to_ms: u64) {
        let span = u128::from(to_ms.saturating_sub(self.at_ms));
        let Occupancy { allocated, unallocated, idle, out_of_service } = self.gpus;
        for (sum, gpus) in
            self.integrals.iter_mut().zip([allocated, unallocated, idle, out_of_service])
        {
            *sum += span * u128::from(gpus);
        }
        self.at_ms = self.at_ms.max(to_ms);
    }

    fn demand_of(scenario: &Scenario, live: Live, to_ms: u64) -> u128 {
        let span = to_ms.saturating_sub(live.from_ms).min(live.remaining_ms);
        let spec = &scenario.workloads[live.workload as usize];
        u128::from(span) * u128::from(spec.gpus) * u128::from(least_rate(scenario, spec.model))
    }

    fn leaf_place(scenario: &Scenario, state: &State, workload: u32) -> usize {
        let budget = scenario.workloads[workload as usize].budget;
        state.tree.leaf_place(BudgetIx(budget)).expect("scenarios name leaves")
    }

    fn close_hour(&mut self, scenario: &Scenario, state: &State, to_ms: u64) {
        for index in 0..self.live.len() {
            let live = self.live[index];
            let place = Self::leaf_place(scenario, state, live.workload);
            self.demand[place] += Self::demand_of(scenario, live, to_ms);
        }
        for (place, &leaf) in state.tree.leaves().iter().enumerate() {
            let allocated = state.ledger.account(leaf).allocation.total(TimeMs(to_ms));
            let of_hour = allocated - self.allocation_at_hour[place];
            self.allocation_at_hour[place] = allocated;
            self.owed[place] += of_hour.min(self.demand[place] << 32);
            self.demand[place] = 0;
        }
        self.hour_start_ms = to_ms;
    }

    /// A workload with a contract has entered the system.
    pub(crate) fn enter(&mut self, workload: u32, at_ms: u64, remaining_ms: u64) {
        if at_ms < self.until_ms {
            self.live.push(Live { workload, from_ms: at_ms, remaining_ms });
            self.places[workload as usize] = self.live.len() as u32;
        }
    }

    /// It has left for good.
    pub(crate) fn leave(&mut self, scenario: &Scenario, state: &State, workload: u32, at_ms: u64) {
        let Some(place) = self.places[workload as usize].checked_sub(1) else { return };
        self.places[workload as usize] = 0;
        let live = self.live.swap_remove(place as usize);
        if let Some(moved) = self.live.get(place as usize) {
            self.places[moved.workload as usize] = place + 1;
        }
        if self.has_begun_by(at_ms) && at_ms <= self.until_ms {
            let leaf = Self::leaf_place(scenario, state, workload);
            self.demand[leaf] += Self::demand_of(scenario, live, at_ms);
        }
    }

    /// Closes the last, partial hour. Must be called while the state is still that of the span's end.
    pub(crate) fn close(&mut self, scenario: &Scenario, state: &State) {
        self.closed = true;
        self.integrate(self.until_ms);
        if self.hour_start_ms < self.until_ms {
            self.close_hour(scenario, state, self.until_ms);
        }
    }

    /// Whether the four integrals add up to GPUs x time, exactly.
    pub(crate) fn is_conserved(&self, total_gpus: u64) -> bool {
        self.integrals.iter().sum::<u128>()
            == u128::from(total_gpus) * u128::from(self.until_ms - self.from_ms)
    }

    pub(crate) const fn occupied_gpu_ms(&self) -> u128 {
        self.integrals[0] + self.integrals[1]
    }

    pub(crate) fn gpu_hours(&self) -> GpuHours {
        let hours = |gpu_ms: u128| gpu_ms as f64 / HOUR_MS as f64;
        let [allocated, unallocated, idle, out_of_service] = self.integrals;
        GpuHours {
            allocated: hours(allocated),
            unallocated: hours(unallocated),
            idle: hours(idle),
            out_of_service: hours(out_of_service),
            total: hours(self.integrals.iter().sum()),
        }
    }

    pub(crate) const fn lost_in_span(&self) -> u128 {
        self.lost_in_span
    }

    /// Owed, delivered and allocated per leaf at the end of the span.
    pub(crate) fn budgets(&self, scenario: &Scenario, state: &State) -> Vec<BudgetSummary> {
        let at = TimeMs(self.until_ms);
        let to_hours = rate_step(scenario) as f64 / 1_000.0 / HOUR_MS as f64;
        const ONE: f64 = 4_294_967_296.0;
        let leaves = state.tree.leaves().iter().enumerate();
        leaves
            .map(|(place, &leaf)| {
                let account = state.ledger.account(leaf);
                let [charged, unallocated, allocation] = self.before[place];
                let owed = self.owed[place] as f64 / ONE * to_hours;
                let delivered = (account.charged.total(at) - charged) as f64 * to_hours;
                let unallocated = account.unallocated.total(at) - unallocated;
                let allocation = account.allocation.total(at) - allocation;
                BudgetSummary {
                    budget: state.tree.node(leaf).path.clone(),
                    fraction: state.tree.fraction(leaf) as f64 / ONE,
                    owed_gpu_hours: owed,
                    delivered_gpu_hours: delivered,
                    allocation_gpu_hours: allocation as f64 / ONE * to_hours,
                    unallocated_gpu_hours: unallocated as f64 * to_hours,
                    delivered_ratio: if owed > 0.0 { (delivered / owed).min(1.0) } else { 1.0 },
                }
            })
            .collect()
    }
}

/// The least rate of the models that a workload may run on, in units.
fn least_rate(scenario: &Scenario, model: Option<u32>) -> u64 {
    let step = rate_step(scenario);
    match model {
        Some(model) => scenario.models[model as usize].rate_milli / step,
        None => scenario.models.iter().map(|model| model.rate_milli / step).min().unwrap_or(1),
    }
}

/// A reading of everything that is drawn over time.
pub(crate) fn sample(scenario: &Scenario, state: &State, gpus: Occupancy, at_ms: u64) -> Sample {
    let at = TimeMs(at_ms);
    let to_gpu_ms = rate_step(scenario) as f64 / 1_000.0;
    const ONE: f64 = 4_294_967_296.0;
    let nodes = || (0..state.tree.len()).map(|index| BudgetIx(index as u32));
    let fragmented = state.cluster.hosts().iter().filter(|host| host.used > 0);
    Sample {
        at_ms,
        allocated_gpus: gpus.allocated,
        unallocated_gpus: gpus.unallocated,
        idle_gpus: gpus.idle,
        fragmented_gpus: fragmented.map(|host| u64::from(host.idle())).sum(),
        waiting_gpus: 0,
        charged: nodes()
            .map(|node| state.ledger.account(node).charged.total(at) as f64 * to_gpu_ms)
            .collect(),
        allocation: nodes()
            .map(|node| state.ledger.account(node).allocation.total(at) as f64 / ONE * to_gpu_ms)
            .collect(),
        usage_ratio: nodes()
            .map(|node| {
                let ratio = state.ledger.usage_ratio(node, at);
                if ratio.allocated == 0 { 0.0 } else { ratio.used as f64 / ratio.allocated as f64 }
            })
            .collect(),
    }
}
