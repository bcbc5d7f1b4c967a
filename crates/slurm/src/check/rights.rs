//! Who the clients are run as, and what they may do.

use super::{Facts, Finding, Wanted};
use crate::read::Config;

/// Whether the caller is an Administrator of Slurm.
pub(super) fn rights(facts: &Facts, wanted: &Wanted, config: &Config, found: &mut Vec<Finding>) {
    const ABOUT: &str = "rights";
    const WHY: &str =
        "only an Administrator may release jobs of others, write AdminComment and drain nodes";
    let (uid, name) = match &facts.caller {
        Ok(caller) => caller,
        Err(said) => {
            found.push(Finding::missing(
                ABOUT,
                format!("who the clients are run as cannot be found out: {said}"),
                "slurm.run_by may ask for a password, or name somebody whom sudo does not know",
            ));
            return;
        }
    };
    let who = format!("Slurm is called as {name} (uid {uid})");
    if wanted.has_token {
        let found_out = format!("{who}, with a token (SLURM_JWT), whose user counts");
        found.push(Finding::advice(
            ABOUT,
            found_out,
            "the token's user must be an Administrator, which cannot be seen from here",
        ));
        return;
    }
    let slurm_user = user_number(config.get("SlurmUser").unwrap_or_default());
    if *uid == 0 || Some(*uid) == slurm_user {
        let as_what = if *uid == 0 { "root" } else { "SlurmUser" };
        found.push(Finding::good(ABOUT, format!("{who}; {as_what} may do everything")));
        return;
    }
    found.push(match &facts.level {
        Ok(Some(level)) if level == "Administrator" => {
            Finding::good(ABOUT, format!("{who}, an Administrator"))
        }
        Ok(Some(level)) => {
            let is = if level == "None" {
                "no Administrator".to_owned()
            } else {
                format!("{level} only")
            };
            Finding::missing(ABOUT, format!("{who}, {is}"), WHY)
                .command(format!("sacctmgr modify user {name} set AdminLevel=Administrator"))
        }
        Ok(None) => Finding::missing(ABOUT, format!("{who}, whom the accounts do not know"), WHY)
            .command(format!("sacctmgr add user {name} account=root AdminLevel=Administrator")),
        Err(said) => Finding::missing(
            ABOUT,
            format!("{who}; what they may do cannot be found out: {said}"),
            WHY,
        )
        .command(format!("sacctmgr show user {name}")),
    });
}

/// The number in `slurm(64030)`.
fn user_number(text: &str) -> Option<u32> {
    text.split_once('(')?.1.strip_suffix(')')?.parse().ok()
}
