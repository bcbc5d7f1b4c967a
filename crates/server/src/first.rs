//! The owner's token: the first one, and one for an owner who has lost all of theirs.

use crate::api::{LocalDaemon, new_secret};
use crate::journal::Journal;
use bursar_site::{Body, Record, Site};
use bursar_store::Store;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The file that is there once a token was used.
const USED: &str = "token-was-used";

/// Where a secret is put before its token is journaled: a process that is killed in between has made no token that
/// nobody knows.
#[derive(Clone)]
pub struct KeepSecret(Arc<Keep>);

type Keep = dyn Fn(&str) -> Result<(), String> + Send + Sync;

impl KeepSecret {
    /// Puts it there by this.
    pub fn by(keep: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(keep))
    }
}

impl std::fmt::Debug for KeepSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeepSecret")
    }
}

/// Keeps that a token was used, once: from then on the first one is not made anew.
#[derive(Clone, Debug, Default)]
pub struct Used(Arc<Noted>);

#[derive(Debug, Default)]
struct Noted {
    path: Option<PathBuf>,
    is_kept: AtomicBool,
}

impl Used {
    /// In a data folder.
    #[must_use]
    pub fn within(data: &Path) -> Self {
        let path = data.join(USED);
        let is_kept = AtomicBool::new(path.exists());
        Self(Arc::new(Noted { path: Some(path), is_kept }))
    }

    /// A token was used.
    pub(crate) fn note(&self) {
        if let Some(path) = &self.0.path
            && !self.0.is_kept.swap(true, Ordering::Relaxed)
        {
            // If that fails, a site without any work has its first token made anew; nothing worse.
            let _ = std::fs::write(path, "");
        }
    }
}

/// The secret of the owner's first token, if one has to be made: in a new site, or where nobody can have seen the one
/// that was made, as its process was killed before it told. With what to say about that.
pub(crate) fn token(
    daemon: &mut LocalDaemon,
    data: &Path,
    keep: Option<&KeepSecret>,
) -> Result<Option<(String, Option<String>)>, String> {
    let text = |error: crate::Failure| error.to_string();
    let Some(owner) = daemon.site().budgets.owners.first().cloned() else { return Ok(None) };
    let unseen = never_used(daemon.site(), &owner, data);
    if daemon.site().tokens_of(&owner).next().is_some() && unseen.is_none() {
        return Ok(None);
    }
    let secret = new_secret().map_err(|error| error.to_string())?;
    if let Some(KeepSecret(keep)) = keep {
        keep(&secret)?;
    }
    let tokens = daemon.site().tokens_of(&owner).count();
    let name = if tokens == 0 {
        format!("{owner}-first")
    } else {
        format!("{owner}-first-{}", tokens + 1)
    };
    let told = unseen
        .as_ref()
        .map(|token| format!("token {token} was never used and is void; {name} takes its place"));
    let shown = secret.clone();
    let make = |site: &Site| {
        let issued = site.issue_token(&owner, &name, &owner, &secret, None, false)?;
        let void = unseen.iter().map(|token| site.revoke_token(&owner, token));
        let bodies = void.chain([Ok(issued)]).collect::<Result<Vec<Body>, _>>()?;
        Ok((bodies, ()))
    };
    daemon.ask_for(&owner, make).map_err(text)?;
    if keep.is_some() {
        // It lies where its owner finds it, used or not.
        Used::within(data).note();
    }
    Ok(Some((shown, told)))
}

/// The first token, if it is the only good one of a site in which nobody has done anything yet.
fn never_used(site: &Site, owner: &str, data: &Path) -> Option<String> {
    let mut good = site.tokens_of(owner).filter(|(_, good)| *good);
    let (token, _) = good.next()?;
    let alone = good.next().is_none() && token.token.starts_with(&format!("{owner}-first"));
    let untouched = site.works().next().is_none() && site.budgets.version == 1;
    (alone && untouched && !data.join(USED).exists()).then(|| token.token.clone())
}

/// What was made for an owner who has lost all tokens.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Whose it is.
    pub owner: String,
    /// How it is called.
    pub token: String,
}

/// Makes a token for the first owner of a site that is down. Whoever may write the journal may do that: they could
/// write anything into it.
///
/// # Errors
/// One sentence, if the site is up, is no site, is somebody else's, or cannot be written.
pub fn recover(data: &Path, keep: &KeepSecret) -> Result<Recovered, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let cannot = |error: io::Error| format!("{}: {error}", data.display());
    let folder = std::fs::metadata(data).map_err(cannot)?.uid();
    let me = rustix::process::geteuid().as_raw();
    if me != 0 && folder != me {
        return Err(format!("{} is user number {folder}'s: only they may do that", data.display()));
    }
    let mut store = Store::open(data).map_err(|error| text(&error))?;
    let (site, _) = crate::daemon::fold(&store).map_err(|error| text(&error))?;
    let owner = site.budgets.owners.first().cloned().ok_or("the site has no owner")?;
    let seq = site.seq() + 1;
    let token = format!("{owner}-recovered-{seq}");
    let secret = new_secret().map_err(|error| text(&error))?;
    let body = site
        .issue_token(&owner, &token, &owner, &secret, None, false)
        .map_err(|error| text(&error))?;
    (keep.0)(&secret)?;
    let actor = Some(format!("{owner}/recover"));
    let record = Record { seq, at_ms: site.now_ms(), actor, body };
    Journal::append(&mut store, &[record]).map_err(|error| text(&error))?;
    Ok(Recovered { owner, token })
}
