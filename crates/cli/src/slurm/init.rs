//! `bursar slurm init`: a configuration and a tree of budgets for a cluster.

use super::{ask, clients, must_exist};
use crate::args::SlurmInitArgs;
use crate::failure::Failure;
use crate::output::{Output, finish_all};
use crate::shown::say;
use bursar_site::BudgetDoc;
use bursar_site::budgets::Share;
use bursar_slurm::client::SystemClients;
use bursar_slurm::read::{
    associations_call, config_call, coordinators_call, read_associations, read_config,
    read_coordinators,
};
use bursar_slurm::{PlannedBudget, PlannedTree, UserBudgets, plan_budgets};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Budgets by name, as files have them.
pub(super) type Tree = BTreeMap<String, BudgetDoc>;

pub(super) fn init(args: &SlurmInitArgs) -> Result<(), Failure> {
    let places = ["bursar.yaml", "budgets.yaml"].map(|name| args.out.join(name));
    must_be_free(&places, args.force)?;
    let clients = clients(&args.clients)?;
    let cluster = Cluster::ask(&clients)?;
    must_exist(&args.partitions, &clients, "--partition")?;
    let users = if args.users { UserBudgets::Each } else { UserBudgets::None };
    let planned = planned(&clients, &cluster.name, users)?;
    let owner = args.owner.as_deref();
    let tree = tree(&planned);
    bursar_site::Budgets::new(1, tree.clone(), owner.map(str::to_owned).into_iter().collect())
        .map_err(|refused| Failure::input(format!("Slurm's accounts: {refused}")))?;
    let config = config_text(args, &cluster, &planned)?;
    crate::config::parse(&config).map_err(Failure::fault)?;
    let budgets = budgets_text(&cluster, &planned, &tree)?;
    std::fs::create_dir_all(&args.out)
        .map_err(|error| Failure::input(format!("--out: {}: {error}", args.out.display())))?;
    let mut files = Vec::new();
    for (place, text) in places.iter().zip([config, budgets]) {
        let mut file = Output::create(place)?;
        file.write_all(text.as_bytes()).map_err(Failure::fault)?;
        files.push(file);
    }
    finish_all(files)?;
    let (budgets, leaves) = count(&planned.budgets);
    if args.json {
        let files = places.each_ref().map(|place| place.display().to_string());
        let answer = serde_json::json!({
            "cluster": cluster.name, "partitions": args.partitions, "budgets": budgets, "leaves": leaves,
            "accounts": planned.accounts, "notes": planned.notes, "files": files,
        });
        say(&format!("{answer:#}\n"));
    } else {
        say(&told(args, &cluster, &planned, &places[0]));
    }
    Ok(())
}

/// Refuses to write over what is there.
pub(super) fn must_be_free(places: &[PathBuf], force: bool) -> Result<(), Failure> {
    match places.iter().find(|place| !force && place.exists()) {
        None => Ok(()),
        Some(place) => Err(Failure::input(format!(
            "--out: {} is there already; give another folder, or --force to replace it",
            place.display()
        ))),
    }
}

/// What Slurm says of itself.
pub(super) struct Cluster {
    pub(super) name: String,
    /// Where slurmctld has its slurm.conf.
    conf: PathBuf,
}

impl Cluster {
    pub(super) fn ask(clients: &SystemClients) -> Result<Self, Failure> {
        let config = ask(clients, &config_call(), read_config)?;
        let conf = config.get("SLURM_CONF").unwrap_or("/etc/slurm/slurm.conf").into();
        Ok(Self { name: config.get("ClusterName").unwrap_or("cluster").to_owned(), conf })
    }
}

/// The tree that Slurm's accounts make.
pub(super) fn planned(
    clients: &SystemClients,
    cluster: &str,
    users: UserBudgets,
) -> Result<PlannedTree, Failure> {
    let associations = ask(clients, &associations_call(cluster), read_associations)?;
    let coordinators = ask(clients, &coordinators_call(), read_coordinators)?;
    plan_budgets(&associations, &coordinators, users).map_err(Failure::input)
}

/// The same as files have it.
pub(super) fn tree(planned: &PlannedTree) -> Tree {
    fn docs(budgets: &BTreeMap<String, PlannedBudget>) -> Tree {
        let doc = |budget: &PlannedBudget| BudgetDoc {
            terms: Vec::new(),
            share: Share(budget.share_micro),
            limit: None,
            owners: budget.owners.clone(),
            members: budget.members.clone(),
            children: docs(&budget.children),
        };
        budgets.iter().map(|(name, budget)| (name.clone(), doc(budget))).collect()
    }
    docs(&planned.budgets)
}

fn budgets_text(cluster: &Cluster, planned: &PlannedTree, tree: &Tree) -> Result<String, Failure> {
    let mut text = format!(
        "# Budgets of the accounts of Slurm's cluster {}, made by `bursar slurm init`. A share is a weight among siblings, here the\n\
         # account's Fairshare; 0 is never funded, so its work runs on idle GPUs alone. Owners divide what they hold (coordinators);\n\
         # members may submit (users). Slurm's own limits (GrpTRES, MaxJobs …) stay in force beside these.\n",
        cluster.name
    );
    for note in &planned.notes {
        text += &format!("#\n# {}\n", crate::shown::one_line(note));
    }
    text.push('\n');
    Ok(text + &yaml(tree)?)
}

pub(super) fn yaml(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_saphyr::to_string(value).map_err(Failure::fault)
}

/// A value on one line, as YAML takes it; JSON is YAML.
fn inline(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(Failure::fault)
}

fn config_text(
    args: &SlurmInitArgs,
    cluster: &Cluster,
    planned: &PlannedTree,
) -> Result<String, Failure> {
    let mut text = format!(
        "# Bursar's configuration for the cluster {} of Slurm, made by `bursar slurm init`. docs/configuration.md has every key.\n\
         # Check the cluster with `bursar slurm check --config FILE`, then: bursar up --config FILE\n\n\
         name: {}\n\n\
         # Where the journal and all else is kept; ~/.local/share/bursar as it is.\n\
         #data: /var/lib/bursar\n\n\
         # Who owns the root of the tree: may divide all, and operate the cluster.\n",
        cluster.name,
        inline(&cluster.name)?
    );
    text += &match &args.owner {
        Some(owner) => format!("owner: {}\n", inline(owner)?),
        None => {
            "# Whoever starts the site first, unless it is said here.\n#owner: ops\n".to_owned()
        }
    };
    text += "\n# The first tree. Once the site is there: bursar budget export, import\nbudgets: budgets.yaml\n\nslurm:\n";
    text += &format!(
        "  # Look, and change nothing in Slurm. `govern` when you are ready: docs/slurm.md.\n  mode: watch\n  # Jobs of these partitions alone are Bursar's business.\n  partitions: {}\n",
        inline(&args.partitions)?
    );
    if planned.accounts.is_empty() {
        text += "  # Every account has the name of its budget; where one has not, name it here.\n  #accounts: {ml: lab/vision}\n";
    } else {
        text += "  # Accounts whose name does not lead to their budget.\n  accounts:\n";
        for (account, path) in &planned.accounts {
            text += &format!("    {}: {}\n", inline(account)?, inline(path)?);
        }
    }
    if let Some(conf) = &args.clients.conf {
        let conf = std::path::absolute(conf).map_err(Failure::fault)?;
        text += &format!("  conf: {}\n", inline(&conf)?);
    }
    let folder = cluster.conf.parent().unwrap_or(Path::new("/etc/slurm"));
    let (mark, why) = if folder.is_dir() { ("", "") } else { ("#", " It is not on this machine.") };
    text += &format!(
        "  # The folder of slurm.conf, where the gate in slurmctld looks for its table.{why}\n  {mark}gate: {}\n",
        inline(&folder)?
    );
    let run_by = args.clients.run_by();
    text += "  # By what Slurm's clients are run: as an Administrator of Slurm.\n";
    text += &match run_by.is_empty() {
        true => "  #run_by: [sudo, -n, -u, slurm]\n".to_owned(),
        false => format!("  run_by: {}\n", inline(&run_by)?),
    };
    Ok(text)
}

/// How many budgets there are, and how many leaves.
fn count(budgets: &BTreeMap<String, PlannedBudget>) -> (usize, usize) {
    budgets.values().fold((0, 0), |(all, leaves), budget| {
        let (below, leaves_below) = count(&budget.children);
        let leaf = usize::from(budget.children.is_empty());
        (all + 1 + below, leaves + leaf + leaves_below)
    })
}

/// What a person is told.
fn told(args: &SlurmInitArgs, cluster: &Cluster, planned: &PlannedTree, config: &Path) -> String {
    let (all, leaves) = count(&planned.budgets);
    let mut text = format!(
        "cluster {}: {all} budgets of its accounts, {leaves} of them leaves, for partition {}\n",
        cluster.name,
        args.partitions.join(", ")
    );
    for note in &planned.notes {
        text += &format!("  note: {note}\n");
    }
    let others = planned.accounts.len();
    if others > 0 {
        text += &format!(
            "  note: slurm.accounts names the budgets of {others} accounts whose name does not lead there\n"
        );
    }
    let config = config.display();
    text += &format!(
        "\nNext:\n\n  bursar slurm check --config {config}\n  bursar up --config {config}\n"
    );
    text
}
