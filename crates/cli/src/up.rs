//! `bursar up`: a site on this machine.

use crate::args::UpArgs;
use crate::failure::Failure;
use crate::shown;
use bursar_server::up::{UpOptions, up as bring_up};
use bursar_site::BudgetDoc;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The hidden word that makes this program the supervisor of an attempt.
pub(crate) const SHIM: &str = "shim";

pub(crate) fn up(args: &UpArgs) -> Result<(), Failure> {
    let owner = args.owner.clone().or_else(|| std::env::var("USER").ok());
    let owner = owner.filter(|owner| !owner.is_empty()).unwrap_or_else(|| "root".into());
    let program = std::env::current_exe().map_err(Failure::fault)?;
    let program = program.to_str().ok_or_else(|| Failure::fault("its own path is no text"))?;
    let options = UpOptions {
        data: data_folder(args)?,
        listen: args.listen,
        virtual_gpus: args.virtual_gpus,
        owner: owner.clone(),
        name: "lab".into(),
        budgets: budgets(args, &owner)?,
        shim: vec![program.to_owned(), SHIM.to_owned()],
        limits: bursar_server::limits::Limits::default(),
    };
    logs(args);
    let site = bring_up(options).map_err(Failure::Fault)?;
    let mut text = format!("bursar is up at http://{}\n", site.address);
    for host in &site.hosts {
        text += &format!("  host {host}\n");
    }
    for note in &site.notes {
        text += &format!("  note: {note}\n");
    }
    if let Some(secret) = &site.first_secret {
        text += &format!(
            "\n{owner} owns all budgets. This token is shown once; only its hash is kept:\n\n  export BURSAR_TOKEN={secret}\n\nTry, in another terminal:\n\n  bursar run --gpus 1 --min-runtime 1m --follow -- sh -c 'echo hello; sleep 5'\n  bursar queue\n"
        );
    }
    shown::say(&text);
    site.serve(stopped()).map_err(Failure::Fault)
}

fn data_folder(args: &UpArgs) -> Result<PathBuf, Failure> {
    let default = || {
        let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
        let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
        data.or(home).map(|folder| folder.join("bursar"))
    };
    let found = args.data.clone().or_else(default);
    let found = found.ok_or_else(|| Failure::input("--data: where? HOME is not set"))?;
    std::path::absolute(&found).map_err(Failure::fault)
}

fn budgets(args: &UpArgs, owner: &str) -> Result<BTreeMap<String, BudgetDoc>, Failure> {
    let Some(file) = &args.budgets else {
        let whole = BudgetDoc {
            share: bursar_site::budgets::Share(1_000_000),
            members: vec![owner.to_owned()],
            ..BudgetDoc::default()
        };
        return Ok(BTreeMap::from([("main".to_owned(), whole)]));
    };
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|e| Failure::input(format!("{name}: {e}")))?;
    let tree = crate::live::read_tree(&text).map_err(|e| Failure::input(format!("{name}: {e}")))?;
    // What is wrong is said before anything is created.
    bursar_site::Budgets::new(1, tree.clone(), vec![owner.to_owned()])
        .map_err(|refused| Failure::input(format!("{name}: {refused}")))?;
    Ok(tree)
}

fn logs(args: &UpArgs) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("BURSAR_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Somebody set one up before: then theirs is used.
    let _ = if args.log_json { logs.json().try_init() } else { logs.try_init() };
}

async fn stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut term) = signal(SignalKind::terminate()) else { return };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = term.recv() => {}
    }
    tracing::info!("stopping; what runs, runs on");
}
