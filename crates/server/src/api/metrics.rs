//! Metrics for Prometheus.
//!
//! Who may read what: over the loopback everybody, numbers of the whole site only (a scraper on the machine needs
//! no secret, and they tell no more than a look at the machine does). With a token of an owner of the root,
//! from anywhere, numbers of the budgets below the root, too: names and spending of budgets are their owners' matter.
//! Other tokens get the numbers of the whole site.

use super::caller::{Caller, peer_of};
use super::document::Refusals;
use super::problem::Problem;
use super::{LocalDaemon, Shared};
use axum::extract::{FromRequestParts as _, State};
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use bursar_site::views::{BudgetView, HostView};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// How many budgets have series of their own; what lies beyond goes by `other`.
const BUDGETS_MAX: usize = 100;

/// Numbers of the site and, for owners of the root, of the budgets below the root, as Prometheus reads them.
#[utoipa::path(
    get, path = "/metrics", tag = "health", security((), ("token" = [])),
    responses((status = 200, description = "OpenMetrics text.", body = String, content_type = "application/openmetrics-text"), Refusals)
)]
pub(super) async fn metrics(
    State(shared): State<Shared>,
    mut parts: Parts,
) -> Result<Response, Problem> {
    let anonymous = !parts.headers.contains_key(header::AUTHORIZATION);
    let (hosts, budgets) = if anonymous && peer_of(&parts.extensions).is_loopback() {
        let look = |daemon: &mut LocalDaemon| daemon.site().host_views();
        (shared.daemon.with(look).await?, Vec::new())
    } else {
        let caller = Caller::from_request_parts(&mut parts, &shared).await?;
        caller
            .ask(|daemon, token| {
                let site = daemon.site();
                let operator = site.budgets.is_root_owner(&token.user);
                let budgets = if operator { site.budget_views(&token.user) } else { Vec::new() };
                Ok((site.host_views(), budgets))
            })
            .await?
    };
    let mut text = String::with_capacity(16 * 1024);
    write_all(&shared, &hosts, &budgets, &mut text)
        .map_err(|_| Problem::invalid("metrics cannot be written"))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

fn write_all(
    shared: &Shared,
    hosts: &[HostView],
    budgets: &[BudgetView],
    text: &mut String,
) -> fmt::Result {
    shared.metrics.write(text)?;
    write_queue(shared, text)?;
    write_hosts(hosts, text)?;
    if !budgets.is_empty() {
        write_budgets(budgets, text)?;
    }
    prometheus_client::encoding::text::encode_eof(text)
}

fn begin(text: &mut String, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(text, "# HELP bursar_{name} {help}.\n# TYPE bursar_{name} {kind}")
}

fn write_queue(shared: &Shared, text: &mut String) -> fmt::Result {
    use bursar_site::views::Standing;
    let counts = shared.hub.counts();
    begin(text, "workloads", "gauge", "Workloads that have not ended, by where they stand")?;
    let states = [
        (Standing::Waiting, "waiting"),
        (Standing::Queued, "queued"),
        (Standing::Held, "held"),
        (Standing::Starting, "starting"),
        (Standing::Protected, "protected"),
        (Standing::Interruptible, "interruptible"),
        (Standing::Preempting, "preempting"),
    ];
    for (standing, state) in states {
        for (unallocated, class) in [(false, "allocated"), (true, "unallocated")] {
            let count = counts.standings.get(&(standing, unallocated)).copied().unwrap_or(0);
            writeln!(text, "bursar_workloads{{state=\"{state}\",class=\"{class}\"}} {count}")?;
        }
    }
    begin(text, "preemptions", "counter", "Workloads told to leave since the process began")?;
    writeln!(text, "bursar_preemptions_total {}", counts.preemptions)
}

fn write_hosts(hosts: &[HostView], text: &mut String) -> fmt::Result {
    begin(text, "hosts", "gauge", "Hosts by their state")?;
    for state in ["up", "draining", "drained", "down"] {
        let count = hosts.iter().filter(|host| host.state == state).count();
        writeln!(text, "bursar_hosts{{state=\"{state}\"}} {count}")?;
    }
    let mut models: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for host in hosts.iter().filter(|host| host.state == "up" || host.state == "draining") {
        let (all, used) = models.entry(&host.model).or_default();
        *all += u64::from(host.gpus);
        *used += u64::from(host.used);
    }
    begin(text, "gpus_in_service", "gauge", "GPUs of hosts that are up or draining")?;
    for (model, (all, _)) in &models {
        writeln!(text, "bursar_gpus_in_service{{model=\"{}\"}} {all}", label(model))?;
    }
    begin(text, "gpus_occupied", "gauge", "GPUs that some workload has")?;
    for (model, (_, used)) in &models {
        writeln!(text, "bursar_gpus_occupied{{model=\"{}\"}} {used}", label(model))?;
    }
    let (all, used) = models.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    begin(text, "occupancy_ratio", "gauge", "Occupied GPUs of those in service")?;
    let ratio = if all == 0 { 0.0 } else { used as f64 / all as f64 };
    writeln!(text, "bursar_occupancy_ratio {ratio}")
}

/// A label's value as Prometheus reads it.
fn label(text: &str) -> String {
    let mut label = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => label.push_str("\\\\"),
            '"' => label.push_str("\\\""),
            c if crate::plain::obeyed(c) => label.push('?'),
            c => label.push(c),
        }
    }
    label
}

/// What is told of a budget.
#[derive(Default)]
struct Told {
    running_gpus: u64,
    waiting: u64,
    charged_gpu_ms: u128,
    protected_gpu_ms: u128,
    allocated_gpu_ms: u128,
}

/// A series of a budget: its name, what it says, and its value.
type Series = (&'static str, &'static str, fn(&Told) -> f64);

const SERIES: [Series; 5] = [
    ("budget_running_gpus", "GPUs that it is charged for now", |told| told.running_gpus as f64),
    ("budget_waiting", "Workloads that wait", |told| told.waiting as f64),
    ("budget_charged_gpu_seconds", "GPU-seconds charged within the lookback", |told| {
        told.charged_gpu_ms as f64 / 1e3
    }),
    ("budget_protected_gpu_seconds", "GPU-seconds that its contracts still protect", |told| {
        told.protected_gpu_ms as f64 / 1e3
    }),
    (
        "budget_allocated_gpu_seconds",
        "GPU-seconds that its share comes to over lookback and horizon",
        |told| told.allocated_gpu_ms as f64 / 1e3,
    ),
];

fn write_budgets(budgets: &[BudgetView], text: &mut String) -> fmt::Result {
    let top = budgets.iter().filter(|view| !view.path.is_empty() && !view.path.contains('/'));
    let mut told: BTreeMap<String, Told> = BTreeMap::new();
    for (at, view) in top.enumerate() {
        let name = if at < BUDGETS_MAX { label(&view.path) } else { "other".to_owned() };
        let one = told.entry(name).or_default();
        one.running_gpus += view.running_gpus;
        one.waiting += u64::from(view.waiting);
        one.charged_gpu_ms += view.charged_gpu_ms;
        one.protected_gpu_ms += view.protected_gpu_ms;
        one.allocated_gpu_ms += view.allocated_gpu_ms;
    }
    for (name, help, value) in SERIES {
        begin(text, name, "gauge", help)?;
        for (budget, told) in &told {
            writeln!(text, "bursar_{name}{{budget=\"{budget}\"}} {}", value(told))?;
        }
    }
    Ok(())
}
