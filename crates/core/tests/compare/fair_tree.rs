//! Fair Tree gives what a real Slurm 22.05 computed for the same trees.
//!
//! The recordings lie beside the repository; without them that test says so and passes.

use bursar_core::compare::fair_tree::{Association, Kind, Shares, Ties, fair_tree_order};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// A tree with names, root's own user included as the daemon does.
struct Named {
    names: Vec<String>,
    tree: Vec<Association>,
}

impl Named {
    fn new() -> Self {
        let root = Association { parent: 0, shares: Shares::Of(1), kind: Kind::Account };
        let mut named = Self { names: vec!["root account".to_owned()], tree: vec![root] };
        named.add("root", 0, Shares::Of(1), Kind::User { usage: 0 });
        named
    }

    fn add(&mut self, name: &str, parent: usize, shares: Shares, kind: Kind) -> usize {
        self.names.push(name.to_owned());
        self.tree.push(Association { parent, shares, kind });
        self.tree.len() - 1
    }

    /// `["A", name, shares, children]` or `["U", user, shares, raw_usage]`.
    fn read(&mut self, parent: usize, children: &Value) {
        for child in children.as_array().expect("a list of associations") {
            let name = child[1].as_str().expect("a name");
            let shares = child[2].as_u64().map_or(Shares::Parent, Shares::Of);
            if child[0] == "U" {
                let usage = u128::from(child[3].as_u64().expect("a usage"));
                self.add(name, parent, shares, Kind::User { usage });
            } else {
                let account = self.add(name, parent, shares, Kind::Account);
                self.read(account, &child[3]);
            }
        }
    }

    /// Rank by user.
    fn ranks(&self, ties: Ties) -> BTreeMap<String, u32> {
        let ranks = fair_tree_order(&self.tree, ties);
        let named = self.names.iter().zip(ranks);
        named.filter_map(|(name, rank)| Some((name.clone(), rank?))).collect()
    }
}

#[test]
fn every_recorded_tree_gives_the_fair_share_of_the_daemon() {
    let recordings = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fairtree");
    let Ok(files) = fs::read_dir(&recordings) else {
        println!("skipped: {} is not here", recordings.display());
        return;
    };
    let paths = files.map(|file| file.expect("a file").path());
    let paths = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let mut trees = 0;
    for path in paths {
        let text = fs::read_to_string(&path).expect("a recording");
        let recording: Value = serde_json::from_str(&text).expect("json");
        let mut named = Named::new();
        named.read(0, &recording["tree"]);
        let ranks = named.ranks(Ties::AsDaemon);
        let users = recording["user_assocs"].as_u64().expect("a count") as usize;
        assert_eq!(ranks.len(), users, "{}", path.display());
        for row in recording["sshare"].as_array().expect("rows") {
            let user = row["user"].as_str().expect("a name");
            if !user.is_empty() {
                let ours = format!("{:.6}", f64::from(ranks[user]) / users as f64);
                assert_eq!(ours, row["fairshare"], "{user} in {}", path.display());
            }
        }
        trees += 1;
    }
    assert!(trees >= 10, "only {trees} recordings");
}

fn user(usage: u128) -> Kind {
    Kind::User { usage }
}

#[test]
fn the_manual_merges_tied_accounts_and_the_daemon_does_not() {
    let mut named = Named::new();
    for (account, usages) in [("a", [30, 70]), ("b", [90, 10])] {
        let at = named.add(account, 0, Shares::Of(1), Kind::Account);
        for (name, usage) in ["1", "2"].into_iter().zip(usages) {
            named.add(&format!("{account}{name}"), at, Shares::Of(1), user(usage));
        }
    }
    let order = |ties| {
        let mut order: Vec<(u32, String)> =
            named.ranks(ties).into_iter().map(|(name, rank)| (rank, name)).collect();
        order.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
        order.into_iter().map(|(rank, name)| format!("{name}={rank}")).collect::<Vec<_>>()
    };
    assert_eq!(order(Ties::AsManual), ["root=5", "b2=4", "a1=3", "a2=2", "b1=1"]);
    // b is not merged into a, but its first user shares the rank that was given last.
    assert_eq!(order(Ties::AsDaemon), ["root=5", "a1=4", "a2=3", "b2=3", "b1=1"]);
}

#[test]
fn ratios_equal_on_paper_are_a_tie_only_in_the_manual() {
    let mut named = Named::new();
    let account = named.add("a", 0, Shares::Of(1), Kind::Account);
    for (name, shares, usage) in [("x", 1, 100), ("y", 3, 300), ("z", 2, 50)] {
        named.add(name, account, Shares::Of(shares), user(usage));
    }
    let manual = named.ranks(Ties::AsManual);
    assert_eq!((manual["z"], manual["x"], manual["y"]), (3, 2, 2));
    // 1/6 as a double is a little below 1/6, 3/6 is exact.
    let daemon = named.ranks(Ties::AsDaemon);
    assert_eq!((daemon["z"], daemon["y"], daemon["x"]), (3, 2, 1));
}

#[test]
fn depth_first_all_of_a_less_used_account_comes_before_any_of_another() {
    let mut named = Named::new();
    let light = named.add("light", 0, Shares::Of(1), Kind::Account);
    let heavy = named.add("heavy", 0, Shares::Of(1), Kind::Account);
    named.add("heavy-none", heavy, Shares::Of(100), user(0));
    named.add("heavy-all", heavy, Shares::Of(1), user(1_000));
    named.add("light-most", light, Shares::Of(1), user(400));
    named.add("light-zero-shares", light, Shares::Of(0), user(0));
    let ranks = named.ranks(Ties::AsDaemon);
    let order = ["light-most", "light-zero-shares", "heavy-none", "heavy-all"].map(|n| ranks[n]);
    assert_eq!(order, [4, 3, 2, 1]);
}
