//! Makes budgets of a history's users or groups, and contracts where it has none.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::{Error as DeError, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Place, TraceError, TraceErrorKind, clip, list_some};
use crate::job::{Trace, TraceJob};
use crate::names::Names;
use crate::values::parse_duration_ms;

/// How many names without a budget an error lists.
const UNMAPPED_LISTED_MAX: usize = 5;

/// Stands for the job's name in the budget of a rule.
const NAME: &str = "{}";

/// Stands for any run of characters in the pattern of a rule.
const ANY: char = '*';

/// The shortest min_runtime that is made up, so that a job of no length is still allocated (rule 1).
const MIN_RUNTIME_MS_LEAST: u64 = 1_000;

/// How a history's jobs get their budgets and contracts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// What of a job the rules look at.
    pub by: MapBy,
    /// The first rule that matches gives the budget.
    #[serde(default)]
    pub rules: Vec<MapRule>,
    /// The budget of all other jobs; `{}` in it stands for the name.
    #[serde(default)]
    pub default: Option<String>,
    /// Contracts for jobs that declare none.
    #[serde(default)]
    pub contract: ContractDefaults,
}

/// What of a job decides its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MapBy {
    /// The budget that the history names; it stays where no rule matches.
    Budget,
    /// Its user.
    User,
    /// Its account, virtual cluster, queue …
    Group,
}

impl fmt::Display for MapBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MapBy::Budget => "budget",
            MapBy::User => "user",
            MapBy::Group => "group",
        })
    }
}

impl FromStr for MapBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "budget" => Ok(MapBy::Budget),
            "user" => Ok(MapBy::User),
            "group" => Ok(MapBy::Group),
            other => Err(format!("'{}' is not one of budget, user and group", clip(other, 60))),
        }
    }
}

/// One rule; as text `pattern=budget/path`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapRule {
    /// A name, or one with `*` for any run of characters.
    pub pattern: String,
    /// The budget of jobs whose name matches; `{}` in it stands for the name.
    pub budget: String,
}

impl FromStr for MapRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((pattern, budget)) if !pattern.is_empty() && !budget.is_empty() => {
                Ok(MapRule { pattern: pattern.to_owned(), budget: budget.to_owned() })
            }
            Some(_) | None => {
                Err(format!("'{}' is not a rule such as 'ann*=program-a/a1'", clip(text, 60)))
            }
        }
    }
}

/// Contracts for jobs that declare none. The default: min_runtime = min(runtime, 1 h), resumable above 1 h.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ContractDefaults {
    /// How min_runtime follows from the runtime.
    pub min_runtime: MinRuntimeDefault,
    /// Jobs that ran longer are resumable.
    pub resumable_above: DurationMs,
    /// Time between checkpoints of resumable jobs.
    pub checkpoint_interval: Option<DurationMs>,
    /// Jobs that ran less declare this as their min_runtime, as a person does who asks for a debug
    /// run without knowing its length to the second.
    pub debug_below: Option<DurationMs>,
}

impl Default for ContractDefaults {
    fn default() -> Self {
        ContractDefaults {
            min_runtime: MinRuntimeDefault::default(),
            resumable_above: DurationMs::HOUR,
            checkpoint_interval: None,
            debug_below: None,
        }
    }
}

/// A min_runtime made of a runtime: `min(runtime, cap)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MinRuntimeDefault {
    /// The most; 0 makes all work unallocated.
    pub cap: DurationMs,
}

impl Default for MinRuntimeDefault {
    fn default() -> Self {
        MinRuntimeDefault { cap: DurationMs::HOUR }
    }
}

/// A duration in a file: seconds, or text such as `1h30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurationMs(pub u64);

impl DurationMs {
    const HOUR: DurationMs = DurationMs(3_600_000);
}

impl Serialize for DurationMs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{}ms", self.0))
    }
}

impl<'de> Deserialize<'de> for DurationMs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyForm;
        impl Visitor<'_> for AnyForm {
            type Value = DurationMs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration: seconds, or text such as 15m, 1h30m or 7d")
            }
            fn visit_str<E: DeError>(self, text: &str) -> Result<DurationMs, E> {
                parse_duration_ms(text).map(DurationMs).map_err(E::custom)
            }
            fn visit_u64<E: DeError>(self, seconds: u64) -> Result<DurationMs, E> {
                self.visit_str(&seconds.to_string())
            }
            fn visit_i64<E: DeError>(self, seconds: i64) -> Result<DurationMs, E> {
                self.visit_str(&seconds.to_string())
            }
            fn visit_f64<E: DeError>(self, seconds: f64) -> Result<DurationMs, E> {
                // The shortest decimal that means this number is what the file had.
                self.visit_str(&seconds.to_string())
            }
        }
        deserializer.deserialize_any(AnyForm)
    }
}

impl Mapping {
    /// Gives every job of `trace` a budget and a contract; on error `trace` is as it was.
    pub fn apply(&self, trace: &mut Trace) -> Result<(), TraceError> {
        let rules = Rules::of(self);
        let mut names = Names::default();
        let mut budgets: HashMap<Option<Arc<str>>, Option<Arc<str>>> = HashMap::new();
        let mut unmapped: BTreeSet<String> = BTreeSet::new();
        let mut without_name = 0u64;
        for job in &trace.jobs {
            let name = self.name_of(job);
            if budgets.contains_key(name) {
                without_name += u64::from(name.is_none());
                continue;
            }
            let budget = rules.budget_for(name.as_deref()).map(|budget| names.share(&budget));
            if budget.is_none() {
                match name {
                    Some(name) => drop(unmapped.insert(name.to_string())),
                    None => without_name += 1,
                }
            }
            budgets.insert(name.clone(), budget);
        }
        if !matches!(budgets.get(&None), Some(None)) {
            without_name = 0;
        }
        if !unmapped.is_empty() || without_name > 0 {
            return Err(self.unmapped(trace, &unmapped, without_name));
        }
        for job in &mut trace.jobs {
            if let Some(Some(budget)) = budgets.get(self.name_of(job)) {
                job.budget = Some(Arc::clone(budget));
            }
            self.contract.fill(job);
        }
        Ok(())
    }

    fn name_of<'a>(&self, job: &'a TraceJob) -> &'a Option<Arc<str>> {
        match self.by {
            MapBy::Budget => &job.budget,
            MapBy::User => &job.user,
            MapBy::Group => &job.group,
        }
    }

    fn unmapped(&self, trace: &Trace, names: &BTreeSet<String>, without_name: u64) -> TraceError {
        let mut parts = Vec::new();
        if !names.is_empty() {
            let listed = list_some(names.iter().map(String::as_str), UNMAPPED_LISTED_MAX);
            parts.push(format!("{} {listed}", self.by));
        }
        if without_name > 0 {
            parts.push(format!("the {without_name} jobs without a {}", self.by));
        }
        let kind = TraceErrorKind::Unmapped { what: parts.join(" and ") };
        TraceError::new(&trace.name, Place::File, kind)
    }
}

/// The rules of a mapping, found by name: there may be one for each of many users.
struct Rules<'a> {
    mapping: &'a Mapping,
    /// By name the first rule that is for it alone.
    exact: HashMap<&'a str, usize>,
    /// Rules with a `*`, in order.
    patterns: Vec<usize>,
}

impl<'a> Rules<'a> {
    fn of(mapping: &'a Mapping) -> Self {
        let (mut exact, mut patterns) = (HashMap::new(), Vec::new());
        for (index, rule) in mapping.rules.iter().enumerate() {
            if rule.pattern.contains(ANY) {
                patterns.push(index);
            } else {
                exact.entry(&*rule.pattern).or_insert(index);
            }
        }
        Rules { mapping, exact, patterns }
    }

    /// The first rule that matches.
    fn find(&self, name: &str) -> Option<&'a MapRule> {
        let rules = &self.mapping.rules;
        let exact = self.exact.get(name).copied();
        let mut earlier =
            self.patterns.iter().copied().take_while(|&at| exact.is_none_or(|exact| at < exact));
        let pattern = earlier.find(|&at| matches(&rules[at].pattern, name));
        pattern.or(exact).map(|at| &rules[at])
    }

    /// The budget of jobs with this name, if a rule or the default gives one.
    fn budget_for(&self, name: Option<&str>) -> Option<String> {
        let rule = name.and_then(|name| self.find(name)).map(|rule| &rule.budget);
        let kept = match self.mapping.by {
            MapBy::Budget => name,
            MapBy::User | MapBy::Group => None,
        };
        match (rule.or(self.mapping.default.as_ref().filter(|_| kept.is_none())), kept) {
            (Some(budget), _) => Some(budget.replace(NAME, &as_part(name))),
            (None, kept) => kept.map(str::to_owned),
        }
    }
}

impl ContractDefaults {
    /// Gives `job` the parts of a contract that it lacks.
    pub fn fill(&self, job: &mut TraceJob) {
        let runtime_ms = job.runtime_ms;
        let declared_ms = match self.debug_below {
            Some(debug) if runtime_ms < debug.0 => debug.0,
            Some(_) | None => runtime_ms.max(MIN_RUNTIME_MS_LEAST),
        };
        job.min_runtime_ms.get_or_insert(declared_ms.min(self.min_runtime.cap.0));
        let resumable = *job.resumable.get_or_insert(runtime_ms > self.resumable_above.0);
        if resumable && job.checkpoint_interval_ms.is_none() {
            job.checkpoint_interval_ms = self.checkpoint_interval.map(|interval| interval.0);
        }
    }
}

/// A name as one part of a budget path.
fn as_part(name: Option<&str>) -> String {
    name.unwrap_or("none").replace('/', "_")
}

/// True if `name` matches `pattern`, where `*` stands for any run of characters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once(ANY) else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let mut parts = rest.split(ANY);
    let Some(end) = parts.next_back() else { return true };
    for part in parts {
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ReadOptions, read};

    fn trace() -> Trace {
        let text = "id,submit,budget,gpus,runtime,user,group,min_runtime\n\
                    a,0,old,1,7200,ann,vc1,\nb,0,old,1,60,bob,vc2,30\nc,0,,1,0,,vc1,\n";
        read(text.as_bytes(), "t.csv", &ReadOptions::default()).unwrap()
    }

    fn mapping(json: &str) -> Mapping {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn rules_in_order_then_the_default() {
        let mut trace = trace();
        mapping(
            r#"{"by": "user", "default": "rest/{}", "rules": [{"pattern": "a*", "budget": "p/{}"}],
                "contract": {"min_runtime": {"cap": "30m"}, "checkpoint_interval": 600, "debug_below": "2m"}}"#,
        )
        .apply(&mut trace)
        .unwrap();
        let budgets: Vec<_> = trace.jobs.iter().map(|job| job.budget.as_deref()).collect();
        assert_eq!(budgets, [Some("p/ann"), Some("rest/bob"), Some("rest/none")]);
        let contract = |index: usize| {
            let job: &TraceJob = &trace.jobs[index];
            (job.min_runtime_ms, job.resumable, job.checkpoint_interval_ms)
        };
        assert_eq!(contract(0), (Some(1_800_000), Some(true), Some(600_000)));
        assert_eq!(contract(1), (Some(30_000), Some(false), None));
        assert_eq!(contract(2), (Some(120_000), Some(false), None));
    }

    #[test]
    fn the_first_rule_that_matches_wins_whether_it_is_a_pattern_or_a_name() {
        let mapping = mapping(
            r#"{"by": "user", "rules": [
                {"pattern": "ann", "budget": "1"}, {"pattern": "a*", "budget": "2"},
                {"pattern": "ann", "budget": "3"}, {"pattern": "abe", "budget": "4"},
                {"pattern": "bob", "budget": "5"}, {"pattern": "*", "budget": "6"},
                {"pattern": "eve", "budget": "7"}]}"#,
        );
        let rules = Rules::of(&mapping);
        for (name, budget) in [("ann", "1"), ("abe", "2"), ("bob", "5"), ("eve", "6"), ("", "6")] {
            assert_eq!(rules.budget_for(Some(name)).as_deref(), Some(budget), "{name}");
        }
        assert_eq!(rules.budget_for(None), None);
    }

    #[test]
    fn names_without_a_rule_are_an_error_that_changes_nothing() {
        let mut trace = trace();
        let before = trace.clone();
        let rules = mapping(r#"{"by": "group", "rules": [{"pattern": "vc1", "budget": "x"}]}"#);
        let error = rules.apply(&mut trace).unwrap_err().to_string();
        assert_eq!(
            error,
            "t.csv: no mapping rule covers group 'vc2'; add a rule for each, or a default budget"
        );
        assert_eq!(trace, before);
        let error = mapping(r#"{"by": "user"}"#).apply(&mut trace).unwrap_err().to_string();
        assert!(error.contains("user 'ann', 'bob' and the 1 jobs without a user"), "{error}");
    }

    #[test]
    fn a_named_budget_stays_unless_a_rule_says_otherwise() {
        let mut trace = trace();
        mapping(r#"{"by": "budget", "default": "d"}"#).apply(&mut trace).unwrap();
        let budgets: Vec<_> = trace.jobs.iter().map(|job| job.budget.as_deref()).collect();
        assert_eq!(budgets, [Some("old"), Some("old"), Some("d")]);
        assert_eq!(trace.jobs[2].min_runtime_ms, Some(1_000));
        assert_eq!(trace.jobs[0].min_runtime_ms, Some(3_600_000));
    }

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("ann", "ann", true),
            ("ann", "anna", false),
            ("*", "", true),
            ("a*", "ann", true),
            ("*n*n", "ann", true),
            ("a*n*n", "an", false),
            ("a*a", "a", false),
            ("**x", "yyx", true),
            ("é*", "éa", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
        assert!("=x".parse::<MapRule>().is_err() && "a=b/c".parse::<MapRule>().is_ok());
    }

    #[test]
    fn unknown_keys_and_bad_durations_are_refused() {
        assert!(serde_json::from_str::<Mapping>(r#"{"by": "user", "rulez": []}"#).is_err());
        assert!(serde_json::from_str::<DurationMs>("-1").is_err());
        assert!(serde_json::from_str::<DurationMs>("\"soon\"").is_err());
        assert_eq!(serde_json::from_str::<DurationMs>("1.5").unwrap(), DurationMs(1_500));
        let text = serde_json::to_string(&DurationMs(1_500)).unwrap();
        assert_eq!(serde_json::from_str::<DurationMs>(&text).unwrap(), DurationMs(1_500));
    }
}
