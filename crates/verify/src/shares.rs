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
/// remainder (ties: the larger exact fraction, then the path), all others the sum of their leaves.
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
            .then_with(|| budgets[a.leaf].path.cmp(&budgets[b.leaf].path))
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
