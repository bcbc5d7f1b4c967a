//! The budget tree and the exact fractions of it (rule 3).

use crate::terms::Term;
use crate::units::BudgetIx;
use crate::wide::Natural;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};

/// The common denominator of all fractions.
pub const FRACTION_ONE: u64 = 1 << 32;

/// One budget as declared.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BudgetNode {
    /// The path that names it, such as `program-a/a1`; empty for the root.
    pub path: String,
    /// The budget above; none for the root.
    pub parent: Option<BudgetIx>,
    /// Its weight among its siblings, in millionths. Zero means that it is never funded.
    pub share_micro: u64,
    /// A hard limit on all that it is ever charged, in units of the ledger.
    pub limit_units: Option<u128>,
    /// Hard limits between two moments, by series and moment. Those of a series do not overlap.
    pub terms: Vec<Term>,
}

impl BudgetNode {
    /// Whether it has any hard limit, now or at another time.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.limit_units.is_some() || !self.terms.is_empty()
    }
}

/// The tree, with what is derived from the shares.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Tree {
    nodes: Vec<BudgetNode>,
    children: Vec<Vec<BudgetIx>>,
    fractions: Vec<u64>,
    /// Leaves below each node, as a range of places in `leaves`.
    leaf_ranges: Vec<(u32, u32)>,
    leaves: Vec<BudgetIx>,
    /// For each node its place among the leaves, if it is one.
    leaf_places: Vec<Option<u32>>,
}

/// The exact fraction of a leaf: how many whole steps of the common denominator, and what is left.
#[derive(Debug)]
struct Unrounded {
    leaf: BudgetIx,
    floor: u64,
    /// The remainder, over `den`.
    rest: Natural,
    den: Natural,
}

impl Unrounded {
    /// The largest remainder first; ties: the larger fraction, then the order of the tree.
    fn order(&self, other: &Self) -> Ordering {
        (other.rest.times(&self.den).cmp(&self.rest.times(&other.den)))
            .then_with(|| (Reverse(self.floor), self.leaf).cmp(&(Reverse(other.floor), other.leaf)))
    }
}

impl Tree {
    /// Builds the tree. `nodes[0]` is the root, parents come before children, siblings are sorted by
    /// name: the edges guarantee this, and it is asserted.
    #[must_use]
    pub fn new(nodes: Vec<BudgetNode>) -> Self {
        assert!(!nodes.is_empty() && nodes[0].parent.is_none(), "the first budget is the root");
        let mut children = vec![Vec::new(); nodes.len()];
        for (index, node) in nodes.iter().enumerate().skip(1) {
            let parent = node.parent.expect("only the root has no parent");
            assert!(parent.at() < index, "parents come before children");
            children[parent.at()].push(BudgetIx(index as u32));
        }
        for siblings in &children {
            let sorted = siblings.is_sorted_by(|a, b| nodes[a.at()].path < nodes[b.at()].path);
            assert!(sorted, "siblings are sorted by name and have names of their own");
        }
        let count = nodes.len();
        let mut tree = Self {
            nodes,
            children,
            fractions: vec![0; count],
            leaf_ranges: vec![(0, 0); count],
            leaves: Vec::new(),
            leaf_places: vec![None; count],
        };
        tree.number_leaves(BudgetIx(0));
        tree.round_fractions();
        tree
    }

    fn number_leaves(&mut self, node: BudgetIx) {
        let from = self.leaves.len() as u32;
        if self.children[node.at()].is_empty() {
            self.leaf_places[node.at()] = Some(from);
            self.leaves.push(node);
        }
        for child in self.children[node.at()].clone() {
            self.number_leaves(child);
        }
        self.leaf_ranges[node.at()] = (from, self.leaves.len() as u32);
    }

    /// Changes one share; the fractions of the whole tree follow.
    pub fn set_share(&mut self, node: BudgetIx, share_micro: u64) {
        self.nodes[node.at()].share_micro = share_micro;
        self.round_fractions();
    }

    /// Rounds all leaves once, by largest remainder (ties: larger fraction, then the order of the tree), to
    /// the common denominator; a node's fraction is the sum of its leaves' (rule 3). All of it is exact: two
    /// remainders that are equal must not differ by how a path to them was rounded.
    fn round_fractions(&mut self) {
        let totals: Vec<u128> = (0..self.len()).map(|node| self.share_of_children(node)).collect();
        let mut leaves: Vec<Unrounded> =
            self.leaves.iter().map(|&leaf| self.unrounded(leaf, &totals)).collect();
        // What no leaf was given (a node all of whose children have share 0) stays unspent.
        let (num, den) = self.funded(&totals);
        let (floor, rest) = num.fraction_of(&den);
        let target = floor + u64::from(rest.plus(&rest) >= den);
        let floors: u64 = leaves.iter().map(|leaf| leaf.floor).sum();
        let mut left = target - floors;
        leaves.sort_by(Unrounded::order);
        self.fractions.fill(0);
        for Unrounded { leaf, floor, rest, .. } in leaves {
            let mut fraction = floor;
            if left > 0 && (floor > 0 || !rest.is_zero()) {
                fraction += 1;
                left -= 1;
            }
            let mut node = Some(leaf);
            while let Some(at) = node {
                self.fractions[at.at()] += fraction;
                node = self.nodes[at.at()].parent;
            }
        }
    }

    fn share_of_children(&self, node: usize) -> u128 {
        let shares = self.children[node].iter().map(|child| self.nodes[child.at()].share_micro);
        shares.map(u128::from).sum()
    }

    /// The exact fraction of a leaf, given the sums of shares below each node.
    fn unrounded(&self, leaf: BudgetIx, totals: &[u128]) -> Unrounded {
        let (mut num, mut den) = (Natural::from(1), Natural::from(1));
        for node in self.path(leaf) {
            let Some(parent) = self.parent(node) else { break };
            num = num.times(&Natural::from(u128::from(self.node(node).share_micro)));
            den = den.times(&Natural::from(totals[parent.at()].max(1)));
        }
        let (floor, rest) = num.fraction_of(&den);
        Unrounded { leaf, den, floor, rest }
    }

    /// The exact fraction of all that some leaf is given.
    fn funded(&self, totals: &[u128]) -> (Natural, Natural) {
        let one = || (Natural::from(1), Natural::from(1));
        let mut funded: Vec<(Natural, Natural)> = (0..self.len()).map(|_| one()).collect();
        for index in (0..self.len()).rev() {
            if self.children[index].is_empty() {
                continue;
            }
            let (mut num, mut den) = (Natural::from(0), Natural::from(1));
            for child in &self.children[index] {
                let (child_num, child_den) = &funded[child.at()];
                let share = Natural::from(u128::from(self.nodes[child.at()].share_micro));
                num = num.times(child_den).plus(&share.times(child_num).times(&den));
                den = den.times(child_den);
            }
            den = den.times(&Natural::from(totals[index].max(1)));
            // Nearly always all of it is: numbers stay short.
            funded[index] = if num == den { one() } else { (num, den) };
        }
        funded.swap_remove(0)
    }

    /// How many budgets there are, the root included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Never: a tree has a root.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// A budget as declared.
    #[must_use]
    pub fn node(&self, node: BudgetIx) -> &BudgetNode {
        &self.nodes[node.at()]
    }

    /// The budget's fraction of everything, over 2^32.
    #[must_use]
    pub fn fraction(&self, node: BudgetIx) -> u64 {
        self.fractions[node.at()]
    }

    /// The budgets directly below, by name.
    #[must_use]
    pub fn children(&self, node: BudgetIx) -> &[BudgetIx] {
        &self.children[node.at()]
    }

    /// The budget above.
    #[must_use]
    pub fn parent(&self, node: BudgetIx) -> Option<BudgetIx> {
        self.nodes[node.at()].parent
    }

    /// All leaves, depth first.
    #[must_use]
    pub fn leaves(&self) -> &[BudgetIx] {
        &self.leaves
    }

    /// The places among the leaves that lie below `node` (itself, if it is a leaf).
    #[must_use]
    pub fn leaves_below(&self, node: BudgetIx) -> core::ops::Range<usize> {
        let (from, to) = self.leaf_ranges[node.at()];
        from as usize..to as usize
    }

    /// The place of a leaf among the leaves.
    #[must_use]
    pub fn leaf_place(&self, node: BudgetIx) -> Option<usize> {
        self.leaf_places[node.at()].map(|place| place as usize)
    }

    /// The budget and all above it, root last.
    pub fn path(&self, node: BudgetIx) -> impl Iterator<Item = BudgetIx> + '_ {
        core::iter::successors(Some(node), |&at| self.nodes[at.at()].parent)
    }

    /// Where the paths of two leaves part: the budget on `a`'s side and the one on `b`'s side, directly
    /// below their closest common ancestor. None when they are one and the same.
    #[must_use]
    pub fn parting(&self, a: BudgetIx, b: BudgetIx) -> Option<(BudgetIx, BudgetIx)> {
        let place = self.leaf_ranges[b.at()].0;
        let below = |node: BudgetIx| {
            let (from, to) = self.leaf_ranges[node.at()];
            (from..to).contains(&place)
        };
        let mut side_a = a;
        if below(a) {
            return None;
        }
        let common = loop {
            let parent = self.parent(side_a)?;
            if below(parent) {
                break parent;
            }
            side_a = parent;
        };
        let side_b = self.children(common).iter().copied().find(|&child| below(child))?;
        Some((side_a, side_b))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use proptest::prelude::*;

    /// A tree from `(path, share)` rows; parents must be listed before children.
    pub(crate) fn tree(rows: &[(&str, u64)]) -> Tree {
        let mut nodes = vec![BudgetNode {
            path: String::new(),
            parent: None,
            share_micro: 1_000_000,
            limit_units: None,
            terms: Vec::new(),
        }];
        for (path, share) in rows {
            let parent = path.rfind('/').map_or(0, |cut| {
                nodes.iter().position(|node| node.path == path[..cut]).expect("parent first")
            });
            nodes.push(BudgetNode {
                path: (*path).to_owned(),
                parent: Some(BudgetIx(parent as u32)),
                share_micro: share * 1_000_000,
                limit_units: None,
                terms: Vec::new(),
            });
        }
        Tree::new(nodes)
    }

    #[test]
    fn thirds_add_up_to_one() {
        let tree = tree(&[("a", 2), ("b", 1)]);
        assert_eq!(tree.fraction(BudgetIx(1)), 2_863_311_531);
        assert_eq!(tree.fraction(BudgetIx(2)), 1_431_655_765);
        assert_eq!(tree.fraction(BudgetIx(0)), FRACTION_ONE);
    }

    #[test]
    fn equal_remainders_of_unlike_paths_tie() {
        // 1/3 and 2/3 x 7/8 = 7/12 leave a third of a step each: the larger fraction gets the step. Rounded on
        // the way down, 7/12 would seem to leave less.
        let tree = tree(&[("a", 1), ("b", 2), ("b/x", 1), ("b/y", 7)]);
        let fractions: Vec<u64> = tree.leaves().iter().map(|&leaf| tree.fraction(leaf)).collect();
        assert_eq!(fractions, [1_431_655_765, 357_913_941, 2_505_397_590]);
    }

    #[test]
    fn what_nobody_is_given_is_rounded_once() {
        // Nobody below b is given anything. a's 2/3 leave two thirds of a step, which is rounded up.
        let tree = tree(&[("a", 2), ("b", 1), ("b/x", 0)]);
        assert_eq!(tree.fraction(BudgetIx(1)), 2_863_311_531);
        assert_eq!(tree.fraction(BudgetIx(0)), 2_863_311_531);
    }

    #[test]
    fn a_path_multiplies() {
        let tree = tree(&[("p", 7), ("q", 3), ("p/a", 1), ("p/b", 1)]);
        let half_of_seven_tenths = tree.fraction(BudgetIx(3));
        assert!(half_of_seven_tenths.abs_diff(FRACTION_ONE * 35 / 100) <= 1);
    }

    #[test]
    fn share_zero_is_never_funded() {
        let tree = tree(&[("p", 1), ("q", 0), ("p/a", 0), ("p/b", 0), ("q/c", 5)]);
        assert!((1..6).all(|index| tree.fraction(BudgetIx(index)) == 0));
    }

    #[test]
    fn paths_part_below_the_common_ancestor() {
        let tree = tree(&[("p", 1), ("q", 1), ("p/a", 1), ("p/b", 1), ("q/c", 1)]);
        let [p, q, a, b, c] = [1, 2, 3, 4, 5].map(BudgetIx);
        assert_eq!(tree.parting(a, b), Some((a, b)));
        assert_eq!(tree.parting(a, c), Some((p, q)));
        assert_eq!(tree.parting(c, b), Some((q, p)));
        assert_eq!(tree.parting(a, a), None);
    }

    proptest! {
        #[test]
        fn fractions_always_add_up(shares in proptest::collection::vec(0u64..1000, 1..40)) {
            let names: Vec<String> =
                (0..shares.len()).map(|index| alloc::format!("b{index:03}")).collect();
            let rows: Vec<(&str, u64)> =
                names.iter().map(String::as_str).zip(shares.iter().copied()).collect();
            let tree = tree(&rows);
            let sum: u64 = tree.leaves().iter().map(|&leaf| tree.fraction(leaf)).sum();
            let total: u64 = shares.iter().sum();
            prop_assert_eq!(sum, if total == 0 { 0 } else { FRACTION_ONE });
            for (index, share) in shares.iter().enumerate() {
                let exact = FRACTION_ONE as u128 * u128::from(*share) / u128::from(total.max(1));
                let fraction = u128::from(tree.fraction(BudgetIx(index as u32 + 1)));
                prop_assert!(fraction == exact || fraction == exact + 1);
            }
        }
    }
}
