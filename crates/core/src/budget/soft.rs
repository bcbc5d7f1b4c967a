//! What idle and unallocated GPUs are enough for: all that a request can have while no side stands above its
//! own. Most requests are found blocked by this alone, so it is a table that only hosts and reservations
//! change, not the passing of time.

use super::BudgetPolicy;
use super::reach::PoolReach;
use crate::cluster::Ask;
use crate::state::{Settings, State};
use crate::units::SpanMs;
use alloc::vec::Vec;

/// The hosts of each pool by the GPUs that any allocated request may have on them, as hosts and
/// reservations stand.
#[derive(Clone, Debug, Default)]
pub(super) struct SoftHosts {
    /// The versions of the hosts and of the reservations.
    known: Option<(u64, u64)>,
    pools: Vec<SoftPool>,
}

#[derive(Clone, Debug, Default)]
struct SoftPool {
    /// By GPUs: how many hosts, neither debug hosts nor reserved, have as many.
    free: Vec<u32>,
    /// By GPUs: how many hosts that are reserved, and no debug hosts, have as many.
    reserved: Vec<u32>,
    /// The most that any debug host has that is not reserved.
    debug_free: u32,
    /// The most that any debug host has that is reserved.
    debug_reserved: u32,
    /// By GPUs: the longest contract on a single host that is not reserved, and the longest on one that is,
    /// if it took any.
    single: Vec<(SpanMs, SpanMs)>,
}

impl SoftPool {
    /// The longest contract that has room, if reserved hosts take contracts up to `on_reserved`; zero for none.
    #[inline]
    fn longest(&self, ask: Ask, on_reserved: SpanMs) -> SpanMs {
        if !ask.is_single() {
            let gpus = ask.gpus_per_host as usize;
            return if self.free[gpus] >= ask.hosts {
                SpanMs(u64::MAX)
            } else if self.free[gpus] + self.reserved[gpus] >= ask.hosts {
                on_reserved
            } else {
                SpanMs::ZERO
            };
        }
        let (free, reserved) = self.single[ask.single_gpus() as usize];
        free.max(on_reserved.min(reserved))
    }

    fn fill_single(&mut self) {
        let debug = |most: u32, gpus: u32| {
            if most >= gpus { Settings::DEBUG_RUNTIME_MAX } else { SpanMs::ZERO }
        };
        let (debug_free, debug_reserved) = (self.debug_free, self.debug_reserved);
        let by = |hosts: u32, debug: SpanMs| if hosts > 0 { SpanMs(u64::MAX) } else { debug };
        let counts = self.free.iter().zip(&self.reserved).zip(0u32..);
        self.single.clear();
        self.single.extend(counts.map(|((&free, &reserved), gpus)| {
            (by(free, debug(debug_free, gpus)), by(reserved, debug(debug_reserved, gpus)))
        }));
    }
}

impl SoftHosts {
    /// The same for all hosts, whoever reserved them.
    pub(super) fn reach(&self, pools: &mut Vec<PoolReach>) {
        pools.resize(self.pools.len(), PoolReach::default());
        for (soft, reach) in self.pools.iter().zip(pools) {
            reach.normal.clear();
            let both = soft.free.iter().zip(&soft.reserved);
            reach.normal.extend(both.map(|(free, reserved)| free + reserved));
            reach.debug = soft.debug_free.max(soft.debug_reserved);
        }
    }

    fn fill(&mut self, policy: &BudgetPolicy, state: &State) {
        let pools = state.cluster.pools();
        self.pools.resize(pools.len(), SoftPool::default());
        for (pool, soft) in pools.iter().zip(&mut self.pools) {
            for counts in [&mut soft.free, &mut soft.reserved] {
                counts.clear();
                counts.resize(pool.gpus_per_host as usize + 1, 0);
            }
            (soft.debug_free, soft.debug_reserved) = (0, 0);
            for (host, gpus) in pool.soft_hosts() {
                let is_reserved = policy.reserved[host.at()] > 0;
                if BudgetPolicy::is_debug_host(state, host) {
                    let most =
                        if is_reserved { &mut soft.debug_reserved } else { &mut soft.debug_free };
                    *most = gpus.max(*most);
                } else {
                    let counts = if is_reserved { &mut soft.reserved } else { &mut soft.free };
                    counts[gpus as usize] += 1;
                }
            }
            for counts in [&mut soft.free, &mut soft.reserved] {
                for gpus in (1..counts.len()).rev() {
                    counts[gpus - 1] += counts[gpus];
                }
            }
            soft.fill_single();
        }
    }
}

impl BudgetPolicy {
    /// The longest contract for which idle and unallocated GPUs could be enough, on whatever hosts it may
    /// use (rules 7 and 8); zero for none. Never less than what is true. Where it is enough for `contract`
    /// with all reservations where they are, or reservations make no difference to it, it is not asked whether
    /// they could make way for a longer one.
    pub(super) fn longest_on_soft(
        &self,
        state: &State,
        asks: &[(usize, Ask)],
        contract: SpanMs,
    ) -> SpanMs {
        let stay = self.longest_if_reserved_take(asks, self.longest_on_reserved(state));
        if contract <= stay || self.most_on_soft(asks) == stay {
            return stay;
        }
        let on_reserved = if (0..state.reservations.len()).any(|at| self.is_movable(state, at)) {
            SpanMs(u64::MAX)
        } else {
            self.longest_on_reserved(state)
        };
        self.longest_if_reserved_take(asks, on_reserved)
    }

    /// The same if all reservations made way: it takes no more than a look at a table.
    #[inline]
    pub(super) fn most_on_soft(&self, asks: &[(usize, Ask)]) -> SpanMs {
        self.longest_if_reserved_take(asks, SpanMs(u64::MAX))
    }

    #[inline]
    fn longest_if_reserved_take(&self, asks: &[(usize, Ask)], on_reserved: SpanMs) -> SpanMs {
        let each = asks.iter().map(|&(pool, ask)| self.soft.pools[pool].longest(ask, on_reserved));
        each.max().unwrap_or(SpanMs::ZERO)
    }

    /// The longest contract that any reserved host takes from others than its holder.
    fn longest_on_reserved(&self, state: &State) -> SpanMs {
        let until = state.reservations.iter().map(|reservation| reservation.until).max();
        until.map_or(SpanMs::ZERO, |until| until.since(state.now()) - state.settings.grace)
    }

    /// What is known of soft GPUs follows the hosts and the reservations.
    pub(super) fn refresh_soft(&mut self, state: &State) {
        let known = Some((state.cluster.version(), self.reserved_version));
        if self.soft.known != known {
            let mut soft = core::mem::take(&mut self.soft);
            soft.fill(self, state);
            soft.known = known;
            self.soft = soft;
        }
    }
}
