//! What users submit while everything breaks: jobs of all kinds, each of which writes down when it ran.

use bursar_slurm_lab::Lab;
use rand::RngExt;
use rand::seq::IndexedRandom as _;
use rand_pcg::Pcg64Mcg;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A kind of job.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    args: &'static [&'static str],
    /// What it does; `say WORD` writes a mark.
    script: &'static str,
    /// How it ends if nobody and nothing ends it.
    pub(crate) ends: &'static str,
    pub(crate) resumable: bool,
    /// How many of its tasks may run at once, if it is an array; and how many there are.
    pub(crate) array: Option<(usize, usize)>,
}

/// Works for as long as it is told, a tenth of a second at a time; saves on a signal, and goes on from there.
const SAVES: &str = "step=$(cat $mark.saved 2>/dev/null || echo 0)
trap 'echo $step >$mark.saved; say saved; exit 3' USR1
while ((step < 40)); do sleep 0.1 9>&-; step=$((step + 1)); done
say done";

pub(crate) const KINDS: [Kind; 9] = [
    Kind {
        name: "short",
        args: &["--gpus=2", "--comment=min-runtime=1s"],
        script: "sleep 0.7 9>&-; say done",
        ends: "completed",
        resumable: false,
        array: None,
    },
    Kind {
        name: "fails",
        args: &["--gpus=1", "--comment=min-runtime=1s"],
        script: "sleep 0.3 9>&-; exit 4",
        ends: "failed",
        resumable: false,
        array: None,
    },
    Kind {
        name: "protected",
        args: &["--nodes=1", "--gpus=8", "--comment=min-runtime=20s"],
        script: "sleep 4 9>&-; say done",
        ends: "completed",
        resumable: false,
        array: None,
    },
    Kind {
        name: "resumable",
        args: &["--nodes=1", "--gpus=8", "--comment=min-runtime=1s;resumable"],
        script: SAVES,
        ends: "completed",
        resumable: true,
        array: None,
    },
    Kind {
        name: "interruptible",
        args: &["--nodes=1", "--gpus=6", "--comment=min-runtime=1s"],
        script: "sleep 5 9>&-; say done",
        ends: "completed",
        resumable: false,
        array: None,
    },
    Kind {
        name: "unallocated",
        args: &["--gpus=3"],
        script: "sleep 2 9>&-; say done",
        ends: "completed",
        resumable: false,
        array: None,
    },
    Kind {
        name: "fill-in",
        args: &["--nodes=1", "--gpus=5", "--comment=resumable"],
        script: SAVES,
        ends: "completed",
        resumable: true,
        array: None,
    },
    Kind {
        name: "gang",
        args: &["--nodes=2", "--gpus-per-node=8", "--comment=min-runtime=10s"],
        script: "sleep 2 9>&-; say done",
        ends: "completed",
        resumable: false,
        array: None,
    },
    Kind {
        name: "array",
        args: &["--array=0-3%2", "--gpus=1", "--comment=min-runtime=5s"],
        script: "sleep 1 9>&-; say done",
        ends: "completed",
        resumable: false,
        array: Some((2, 4)),
    },
];

/// A submission, as a seed has it.
pub(crate) struct Planned {
    /// Nobody else's, in all of Slurm.
    pub(crate) name: String,
    pub(crate) kind: &'static Kind,
    user: &'static str,
    at: Duration,
    cancel_after: Option<Duration>,
}

/// What became of it with its user.
pub(crate) struct Submitted {
    pub(crate) planned: Planned,
    /// What sbatch answered, if it accepted the job; it may have been accepted all the same.
    pub(crate) id: Option<String>,
    /// When sbatch began and ended, in milliseconds since 1970.
    pub(crate) at_ms: [u64; 2],
    /// When its user began and ended to cancel it.
    pub(crate) cancelled_ms: Option<[u64; 2]>,
}

/// How long users go on submitting.
pub(crate) const SUBMITTING: Duration = Duration::from_secs(8);

pub(crate) fn plan(random: &mut Pcg64Mcg, seed: u64) -> Vec<Planned> {
    let plan = |number: usize| {
        // One of each kind, and some more.
        let kind = KINDS.get(number).unwrap_or_else(|| KINDS.choose(random).expect("kinds"));
        let users = ["alice", "bob", "carol", "dave"];
        let user = *users.choose(random).expect("users");
        let at = Duration::from_millis(random.random_range(0..SUBMITTING.as_millis() as u64));
        let cancel_after = (random.random_range(0..10) < 2)
            .then(|| Duration::from_millis(random.random_range(0..5000)));
        let name = format!("f{seed}-{}-{number}-{}", std::process::id(), kind.name);
        Planned { name, kind, user, at, cancel_after }
    };
    (0..16).map(plan).collect()
}

/// Where jobs write down when they ran.
pub(crate) fn marks(lab: &Lab) -> PathBuf {
    let folder = lab.jobs().join("marks");
    fs::create_dir_all(&folder).expect("a folder");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("a folder for all");
    folder
}

impl Planned {
    /// What its user does, from this moment on.
    pub(crate) fn play(self, lab: &Lab, begun: Instant) -> Submitted {
        let path = marks(lab).join(format!("{}.sh", self.name));
        fs::write(&path, self.script(&marks(lab))).expect("a script");
        std::thread::sleep(self.at.saturating_sub(begun.elapsed()));
        let name = format!("--job-name={}", self.name);
        let mut args = vec!["--parsable", "--partition=main", "--output=/dev/null", &*name];
        args.extend(self.kind.args);
        args.push(path.to_str().expect("UTF-8"));
        let submitting_ms = now_ms();
        let output = lab.as_user(self.user, "sbatch", &args);
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let id = output.status.success().then_some(said);
        let at_ms = [submitting_ms, now_ms()];
        let mut cancelled_ms = None;
        if let Some(after) = self.cancel_after {
            std::thread::sleep(after);
            // By its name: its number may be another's by now.
            let from = now_ms();
            lab.as_user(self.user, "scancel", &[&*format!("--name={}", self.name)]);
            cancelled_ms = Some([from, now_ms()]);
        }
        Submitted { planned: self, id, at_ms, cancelled_ms }
    }

    /// Two runs at once would both want the lock; what a job starts does not hold it, so it is free when its script is gone.
    fn script(&self, marks: &Path) -> String {
        format!(
            "#!/bin/bash\nmark={}/{}${{SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}}\n\
             say() {{ echo \"$1 $(date +%s%3N) ${{SLURM_RESTART_COUNT:-0}}\" >>$mark; }}\n\
             exec 9>>$mark.lock\nflock -n 9 || say twice\nsay begin\n{}\n",
            marks.display(),
            self.name,
            self.kind.script
        )
    }
}

/// Something that a job wrote down.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) word: String,
    pub(crate) at_ms: u64,
}

pub(crate) fn marks_of(lab: &Lab, name: &str) -> Vec<Mark> {
    let text = fs::read_to_string(marks(lab).join(name)).unwrap_or_default();
    let mark = |line: &str| {
        let mut words = line.split(' ');
        Some(Mark { word: words.next()?.to_owned(), at_ms: words.next()?.parse().ok()? })
    };
    text.lines().filter_map(mark).collect()
}

pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.expect("a clock").as_millis()).expect("now")
}
