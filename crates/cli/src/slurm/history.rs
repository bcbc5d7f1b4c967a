//! The history of a cluster: which rows of its accounting count, and how they are written.

use super::import::{BUDGET_COLUMN, FORMER, Span, moment};
use bursar_server::arrivals::AccountBudgets;
use bursar_site::Budgets;
use bursar_slurm::read::HistoryRow;
use bursar_trace::Trace;
use std::collections::{BTreeMap, BTreeSet};

/// A row, and the budget that its job is charged to.
#[derive(Debug)]
pub(super) struct Charged {
    row: HistoryRow,
    budget: String,
}

/// What was read, and how much of it was left out.
#[derive(Debug, Default)]
pub(super) struct History {
    /// By submission.
    pub(super) rows: Vec<Charged>,
    /// The budgets that they name.
    pub(super) charged: BTreeSet<String>,
    read: usize,
    elsewhen: usize,
    without_moment: usize,
    without_gpus: usize,
    waiting: usize,
    put_back: usize,
    /// Accounts that are no budgets, with the number of their jobs.
    without_budget: BTreeMap<String, usize>,
}

impl History {
    /// Those of the span that had GPUs, each with the budget of its account and user.
    pub(super) fn of(
        rows: Vec<HistoryRow>,
        span: Span,
        budgets: &Budgets,
        accounts: &AccountBudgets,
    ) -> Self {
        let is_leaf =
            |path: &String| budgets.get(path).is_some_and(|budget| budget.children.is_empty());
        let mut history = Self { read: rows.len(), ..Self::default() };
        for row in rows {
            let Some(submitted) = row.submitted else {
                history.without_moment += 1;
                continue;
            };
            if !(span.from_s..span.until_s).contains(&submitted) {
                history.elsewhen += 1;
            } else if row.gpus() == 0 {
                history.without_gpus += 1;
            } else if row.state.starts_with("PENDING") {
                history.waiting += 1;
            } else {
                let found = accounts.budget(budgets, &row.account, &row.user).ok();
                let budget = found.filter(is_leaf).unwrap_or_else(|| {
                    *history.without_budget.entry(row.account.clone()).or_default() += 1;
                    FORMER.to_owned()
                });
                history.put_back += usize::from(row.state.starts_with("REQUEUED"));
                history.charged.insert(budget.clone());
                history.rows.push(Charged { row, budget });
            }
        }
        history
    }

    /// Gives users and jobs made-up names: the same for the same, in the order in which they come. Gives the number of
    /// users whose names stay in those of budgets.
    pub(super) fn anonymise(&mut self) -> usize {
        let (mut users, mut jobs) = (BTreeMap::new(), BTreeMap::new());
        for Charged { row, .. } in &mut self.rows {
            row.user = made_up("user", &row.user, &mut users);
            row.name = made_up("job", &row.name, &mut jobs);
        }
        let names: BTreeSet<&str> = self.charged.iter().flat_map(|path| path.split('/')).collect();
        users.keys().filter(|user| names.contains(user.as_str())).count()
    }

    /// As `sacct -P` prints it, with the budget beside the account.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "JobID|Submit|Start|End|ElapsedRaw|State|TimelimitRaw|User|Account|Partition|ReqTRES|AllocTRES|{BUDGET_COLUMN}|JobName\n"
        );
        let some = |at: Option<u64>| at.map_or_else(|| "Unknown".to_owned(), moment);
        for Charged { row, budget } in &self.rows {
            let fields = [
                &row.job,
                &some(row.submitted),
                &some(row.started),
                &some(row.ended),
                &row.elapsed_s,
                // Not by whom it was cancelled: that is a number of a user.
                row.state.split_whitespace().next().unwrap_or_default(),
                &row.limit_minutes,
                &row.user,
                &row.account,
                &row.partition,
                &row.asked.to_ascii_lowercase(),
                &row.had.to_ascii_lowercase(),
                budget,
                &row.name,
            ];
            text += &fields.map(field).join("|");
            text.push('\n');
        }
        text
    }

    /// What is to be told of it; so many jobs do not fit the cluster as it is.
    pub(super) fn told(&self, trace: &Trace, misfits: u64) -> Told {
        let gpu_ms = |job: &bursar_trace::TraceJob| f64::from(job.gpus) * job.runtime_ms as f64;
        let users: BTreeSet<&str> =
            trace.jobs.iter().filter_map(|job| job.user.as_deref()).collect();
        let without_gpus = self.without_gpus as u64 + trace.without_gpus;
        Told {
            rows: self.read,
            jobs: trace.jobs.len(),
            users: users.len(),
            gpu_hours: trace.jobs.iter().map(gpu_ms).sum::<f64>() / 3.6e6,
            counts: vec![
                ("without_gpus", without_gpus, "left out, without GPUs"),
                ("elsewhen", self.elsewhen as u64, "left out, submitted before or after"),
                (
                    "without_moment",
                    self.without_moment as u64,
                    "left out, without a moment of submission",
                ),
                ("waiting", self.waiting as u64, "left out, still waiting"),
                ("never_ran", trace.never_started, "left out, cancelled before they ran"),
                ("without_end", trace.unfinished, "left out, without an end"),
                (
                    "no_room",
                    misfits,
                    "in the history, but left out of simulations, as the cluster has no room for them now",
                ),
                (
                    "put_back",
                    self.put_back as u64,
                    "put back into the queue, each run counted as a job",
                ),
            ],
            notes: trace.notes.clone(),
            without_budget: self.without_budget.clone(),
        }
    }
}

/// What is told of a history.
pub(super) struct Told {
    rows: usize,
    jobs: usize,
    users: usize,
    gpu_hours: f64,
    /// By a name, and in words.
    counts: Vec<(&'static str, u64, &'static str)>,
    notes: Vec<String>,
    without_budget: BTreeMap<String, usize>,
}

impl Told {
    /// For programs.
    pub(super) fn json(&self) -> serde_json::Value {
        let counts: BTreeMap<_, _> =
            self.counts.iter().map(|(key, count, _)| (*key, *count)).collect();
        serde_json::json!({
            "rows": self.rows, "jobs": self.jobs, "users": self.users, "gpu_hours": self.gpu_hours,
            "counts": counts, "notes": self.notes, "accounts_without_budget": self.without_budget,
        })
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "  {} rows read, {} jobs of {} users, {:.1} GPU-hours\n",
            self.rows, self.jobs, self.users, self.gpu_hours
        );
        for (_, count, words) in self.counts.iter().filter(|(_, count, _)| *count > 0) {
            text += &format!("  {words}: {count}\n");
        }
        for told in &self.notes {
            text += &format!("  note: {told}\n");
        }
        if !self.without_budget.is_empty() {
            let named: Vec<String> = self
                .without_budget
                .iter()
                .map(|(account, jobs)| format!("{account} ({jobs})"))
                .collect();
            text += &format!(
                "  note: accounts without a budget, whose jobs go to {FORMER}, which has a share of 0: {}\n",
                named.join(", ")
            );
        }
        text
    }
}

/// A field of the history: what would end it is replaced.
fn field(text: &str) -> String {
    text.chars().map(|one| if one == '|' || one.is_control() { '_' } else { one }).collect()
}

fn made_up(what: &str, name: &str, known: &mut BTreeMap<String, usize>) -> String {
    let number = known.len() + 1;
    let number = *known.entry(name.to_owned()).or_insert(number);
    format!("{what}-{number:04}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar_slurm::read::{Mark, read_history};
    use bursar_trace::{Format, ReadOptions};

    const SPAN: Span = Span { now_s: 3_000, from_s: 1_000, until_s: 2_000 };

    fn history(rows: &[&str]) -> History {
        let answer: String =
            rows.iter().map(|row| row.replace(',', "@@").replace('+', ",") + "@@\n").collect();
        let rows = read_history(answer.as_bytes(), &Mark::of("@@")).unwrap();
        let tree = "lab: {share: 1, children: {vision: {share: 1}, ml: {share: 1, children: {ann: {share: 1}}}}}";
        let budgets = Budgets::new(1, bursar_site::yaml::read(tree).unwrap(), Vec::new()).unwrap();
        let names = AccountBudgets(BTreeMap::from([("ml".to_owned(), "lab/ml".to_owned())]));
        History::of(rows, SPAN, &budgets, &names)
    }

    fn read(history: &History) -> Trace {
        let options = ReadOptions {
            format: Some(Format::Sacct),
            group_column: Some(BUDGET_COLUMN.to_owned()),
            ..ReadOptions::default()
        };
        bursar_trace::read(history.text().as_bytes(), "h", &options).unwrap()
    }

    const ROWS: [&str; 8] = [
        "1,1000,1010,1070,60,COMPLETED,90,ann,vision,gpu,gres/gpu=2,gres/gpu:H100=2+gres/gpu=2,a|b\u{1b}",
        "2,1001,1010,1070,60,REQUEUED,UNLIMITED,ann,ml,gpu,gres/gpu=1,gres/gpu=1,b",
        "2,1070,Unknown,Unknown,0,PENDING,90,ann,ml,gpu,gres/gpu=1,,b",
        "3,1002,1010,1070,60,CANCELLED by 7,90,bo,ml,gpu,gres/gpu=1,gres/gpu=1,b",
        "4,1003,1010,1070,60,COMPLETED,90,bo,gone,gpu,cpu=1,cpu=1,b",
        "5,999,1010,1070,60,COMPLETED,90,bo,vision,gpu,gres/gpu=1,gres/gpu=1,b",
        "6,Unknown,1010,1070,60,COMPLETED,90,bo,vision,gpu,gres/gpu=1,gres/gpu=1,b",
        "7,1004,1010,1070,60,RUNNING,90,bo,gone,gpu,gres/gpu=4,gres/gpu=4,c",
    ];

    #[test]
    fn each_row_counts_or_is_counted() {
        let history = history(&ROWS);
        let trace = read(&history);
        let shown: Vec<String> = trace
            .jobs
            .iter()
            .map(|job| {
                format!(
                    "{} {} {} {}",
                    job.id,
                    job.gpus,
                    job.runtime_ms,
                    job.group.as_deref().unwrap()
                )
            })
            .collect();
        // bo has no part of what ann has of ml, so that has no budget.
        let want = [
            "1 2 60000 lab_vision",
            "2 1 60000 lab_ml_ann",
            "3 1 60000 without-budget",
            "7 4 60000 without-budget",
        ];
        assert_eq!(shown.iter().map(|one| one.replace('/', "_")).collect::<Vec<_>>(), want);
        assert_eq!(trace.jobs[0].gpu_model.as_deref(), Some("h100"));
        let told = history.told(&trace, 1);
        assert_eq!(told.json()["counts"]["put_back"], 1);
        let told = told.text();
        for line in [
            "8 rows read, 4 jobs of 2 users, 0.1 GPU-hours",
            "without GPUs: 1",
            "before or after: 1",
            "without a moment of submission: 1",
            "still waiting: 1",
            "no room for them now: 1",
            "each run counted as a job: 1",
            "still running",
            "share of 0: gone (1), ml (1)",
        ] {
            assert!(told.contains(line), "{line}: {told}");
        }
    }

    #[test]
    fn made_up_names_hide_people_and_what_they_work_on() {
        let mut history = history(&ROWS);
        // ann's name is that of a budget.
        assert_eq!(history.anonymise(), 1);
        let text = history.text();
        assert!(text.lines().nth(1).unwrap().ends_with("|lab/vision|job-0001"), "{text}");
        assert!(text.contains("|user-0002|ml|") && !text.contains("|bo|"), "{text}");
        assert!(!text.contains("by 7") && !text.contains("a_b"), "{text}");
    }
}
