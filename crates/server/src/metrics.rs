//! What is measured while the daemon runs, in the words of Prometheus.
//!
//! Nothing here names a person, a workload or a token. Labels are bounded: routes are templates, statuses are
//! numbers that handlers give, methods are those that HTTP has. What belongs to budgets is not kept here but read
//! from the site when it is asked for (`api/metrics.rs`).

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A request as it is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

/// Everything that is measured.
pub struct Metrics {
    registry: Mutex<Registry>,
    begun: Instant,
    uptime: Gauge<f64, std::sync::atomic::AtomicU64>,
    rounds: Counter,
    failed_rounds: Counter,
    round_seconds: Histogram,
    plan_seconds: Histogram,
    records: Counter,
    append_seconds: Histogram,
    append_failures: Counter,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
}

/// From a tenth of a millisecond to a minute and a half.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.5, 15))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("bursar");
        let new = Self {
            begun: Instant::now(),
            uptime: Gauge::default(),
            rounds: Counter::default(),
            failed_rounds: Counter::default(),
            round_seconds: histogram(),
            plan_seconds: histogram(),
            records: Counter::default(),
            append_seconds: histogram(),
            append_failures: Counter::default(),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(histogram),
            registry: Mutex::new(Registry::default()),
        };
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The program", build);
        registry.register("uptime_seconds", "Since the process began", new.uptime.clone());
        registry.register("rounds", "Rounds of the daemon", new.rounds.clone());
        registry.register("failed_rounds", "Rounds that failed", new.failed_rounds.clone());
        registry.register("round_seconds", "How long rounds took", new.round_seconds.clone());
        registry.register("plan_seconds", "How long the core planned", new.plan_seconds.clone());
        registry.register("journal_records", "Records appended", new.records.clone());
        registry.register(
            "journal_append_seconds",
            "How long appends to the journal took, synced",
            new.append_seconds.clone(),
        );
        registry.register(
            "journal_append_failures",
            "Appends that failed",
            new.append_failures.clone(),
        );
        registry.register("http_requests", "Requests answered", new.requests.clone());
        registry.register(
            "http_request_seconds",
            "How long answers took to begin",
            new.request_seconds.clone(),
        );
        Self { registry: Mutex::new(registry), ..new }
    }
}

impl Metrics {
    /// A round is over.
    pub fn round(&self, took: Duration, plan_took: Duration, went_well: bool) {
        self.rounds.inc();
        self.round_seconds.observe(took.as_secs_f64());
        if went_well {
            self.plan_seconds.observe(plan_took.as_secs_f64());
        } else {
            self.failed_rounds.inc();
        }
    }

    /// Records were appended, or could not be.
    pub fn appended(&self, records: usize, took: Duration, went_well: bool) {
        self.append_seconds.observe(took.as_secs_f64());
        if went_well {
            self.records.inc_by(records as u64);
        } else {
            self.append_failures.inc();
        }
    }

    /// A request was answered.
    pub fn answered(&self, method: &axum::http::Method, route: &str, status: u16, took: Duration) {
        let method = match method.as_str() {
            "GET" => "GET",
            "HEAD" => "HEAD",
            "POST" => "POST",
            "PUT" => "PUT",
            "PATCH" => "PATCH",
            "DELETE" => "DELETE",
            // Anybody may make up methods; they do not make up series.
            _ => "other",
        };
        let labels = RequestLabels { method, route: route.to_owned(), status };
        self.requests.get_or_create(&labels).inc();
        let labels = RouteLabels { route: route.to_owned() };
        self.request_seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// All of it as text, without an end: more may follow.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, text: &mut String) -> std::fmt::Result {
        self.uptime.set(self.begun.elapsed().as_secs_f64());
        let registry = self.registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        prometheus_client::encoding::text::encode_registry(text, &registry)
    }
}
