//! Rule 3: what fraction of everything a budget holds, over 2^32.

use bursar_scenario::Scenario;
use num_bigint::BigUint;
use std::cmp::Ordering;

/// The common denominator of all fractions.
pub(crate) const WHOLE: u64 = 1 << 32;

/// A leaf's exact fraction, cut into what fits 2^-32 and the rest.
struct Exact {
    leaf: usize,
    num: BigUint,
    den: BigUint,
    floor: u64,
    /// The remainder, over `den`.
    rest: BigUint,
}

/// The fraction of every budget under these shares, as counts of 2^-32: leaves rounded by largest
/// remainder (ties: the larger exact fraction, then the order of the tree), all others the sum of their leaves.
pub(crate) fn fractions(scenario: &Scenario, share_micro: &[u64]) -> Vec<u64> {
    let budgets = &scenario.budgets;
    let mut siblings = vec![0u128; budgets.len()];
    for (index, budget) in budgets.iter().enumerate() {
        if let Some(parent) = budget.parent {
            siblings[parent] += u128::from(share_micro[index]);
        }
    }
    let zero = BigUint::from(0u32);
    let mut leaves: Vec<Exact> = Vec::new();
    for leaf in (0..budgets.len()).filter(|&index| budgets[index].is_leaf) {
        let (mut num, mut den) = (BigUint::from(1u32), BigUint::from(1u32));
        let mut node = leaf;
        while let Some(parent) = budgets[node].parent {
            num *= share_micro[node];
            den *= siblings[parent].max(1);
            node = parent;
        }
        let scaled = &num * WHOLE;
        let floor = u64::try_from(&scaled / &den).unwrap_or(WHOLE);
        let rest = &scaled % &den;
        leaves.push(Exact { leaf, num, den, floor, rest });
    }

    // Everything, less what lies under budgets all of whose children have share 0.
    let (mut sum_num, mut sum_den) = (zero.clone(), BigUint::from(1u32));
    for exact in &leaves {
        sum_num = sum_num * &exact.den + &exact.num * &sum_den;
        sum_den *= &exact.den;
        // Keeps the numbers short in the usual case.
        if sum_num == sum_den {
            (sum_num, sum_den) = (BigUint::from(1u32), BigUint::from(1u32));
        }
    }
    let doubled = sum_num * (2 * WHOLE) + &sum_den;
    let target = u64::try_from(doubled / (sum_den * 2u32)).unwrap_or(WHOLE);
    let floors: u64 = leaves.iter().map(|exact| exact.floor).sum();
    let mut left = target.saturating_sub(floors);

    let larger = |a: (&BigUint, &BigUint), b: (&BigUint, &BigUint)| (b.0 * a.1).cmp(&(a.0 * b.1));
    leaves.sort_by(|a, b| {
        larger((&a.rest, &a.den), (&b.rest, &b.den))
            .then_with(|| larger((&a.num, &a.den), (&b.num, &b.den)))
            .then_with(|| a.leaf.cmp(&b.leaf))
    });
    let mut fractions = vec![0u64; budgets.len()];
    for exact in &leaves {
        let mut fraction = exact.floor;
        if left > 0 && exact.num.cmp(&zero) == Ordering::Greater {
            fraction += 1;
            left -= 1;
        }
        let mut node = Some(exact.leaf);
        while let Some(at) = node {
            fractions[at] += fraction;
            node = budgets[at].parent;
        }
    }
    fractions
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The fractions of all budgets; `leaf` is one that work can be charged to.
    fn of(leaf: &str, budgets: &str) -> Vec<(String, u64)> {
        let text = format!(
            "cluster: {{hosts: [{{count: 1, gpus: 1, model: m}}]}}\nbudgets: {budgets}\nworkloads:\n  \
             - {{id: w, submit: 0s, budget: {leaf}, gpus: 1, runtime: 1h}}"
        );
        let scenario = bursar_scenario::load_str(&text, Path::new(""), "test", &[]).expect("good");
        let shares: Vec<u64> = scenario.budgets.iter().map(|budget| budget.share_micro).collect();
        let paths = scenario.budgets.iter().map(|budget| budget.path.clone());
        paths.zip(fractions(&scenario, &shares)).collect()
    }

    #[test]
    fn the_largest_remainder_gets_what_is_left() {
        let third = WHOLE / 3;
        let thirds = of("a", "{c: {share: 1}, a: {share: 1}, b: {share: 1}}");
        let thirds: Vec<u64> = thirds.into_iter().map(|(_, fraction)| fraction).collect();
        // A tie of remainders and of fractions: the first in the tree.
        assert_eq!(thirds, [WHOLE, third + 1, third, third]);
        // 5/7 has the remainder 6/7 of a step, 2/7 only 1/7.
        let sevenths = of("a", "{a: {share: 2}, b: {share: 5}}");
        assert_eq!(sevenths[2], ("b".into(), WHOLE * 5 / 7 + 1));
    }

    #[test]
    fn a_node_is_the_sum_of_its_leaves_and_nothing_is_lost() {
        let all = of(
            "q/x",
            "{p: {share: 0.3, children: {x: {share: 1}, y: {share: 2}, z: {share: 0}}}, \
             q: {share: 0.7, children: {x: {share: 3}, y: {share: 4}}}}",
        );
        let fraction = |path: &str| all.iter().find(|budget| budget.0 == path).expect("there").1;
        assert_eq!(fraction(""), WHOLE);
        assert_eq!(fraction("p"), fraction("p/x") + fraction("p/y"));
        assert_eq!(fraction("p/z"), 0);
        assert_eq!(fraction("q") + fraction("p"), WHOLE);
        assert!(fraction("q/y").abs_diff(WHOLE * 4 / 10) <= 1);
    }

    #[test]
    fn what_nobody_below_is_funded_for_goes_to_nobody() {
        let all = of("q", "{p: {share: 1, children: {x: {share: 0}}}, q: {share: 1}}");
        let fractions: Vec<u64> = all.into_iter().map(|(_, fraction)| fraction).collect();
        assert_eq!(fractions, [WHOLE / 2, 0, 0, WHOLE / 2]);
    }
}
