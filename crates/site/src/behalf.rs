//! For whom work may run: for oneself, or for somebody else whose budgets vouch for them.

use crate::budgets::Budgets;
use crate::error::Refused;
use crate::site::Site;
use crate::work::Work;

impl Budgets {
    /// Whether a person belongs to a budget (as member or owner of it, or of one above it) by the word of
    /// somebody other than `by`: what an owner divides they could write anybody into.
    fn vouches_for(&self, person: &str, path: &str, by: &str) -> bool {
        if self.is_root_owner(person) {
            return true;
        }
        let free = self.is_root_owner(by);
        // Lists of a budget are written by whoever owns one above it.
        let mut by_owns_above = false;
        for budget in self.on_the_way(path) {
            let named = budget.owners.iter().chain(&budget.members).any(|name| name == person);
            if named && (free || !by_owns_above) {
                return true;
            }
            by_owns_above |= budget.owners.iter().any(|owner| owner == by);
        }
        false
    }
}

impl Site {
    /// Whether `user` may have work run for `person` on a budget. Whoever it is for must belong to the budget, by
    /// the word of somebody else where it is not the root's owner who asks.
    pub(crate) fn check_for_whom(
        &self,
        user: &str,
        person: &str,
        budget: &str,
    ) -> Result<(), Refused> {
        if person == user {
            return Ok(());
        }
        if !self.budgets.is_owner(user, budget) {
            return Err(Refused::forbidden(format!(
                "user: only an owner of '{budget}' may submit for somebody else"
            )));
        }
        if self.budgets.vouches_for(person, budget, user) {
            return Ok(());
        }
        if self.budgets.is_member(person, budget) {
            return Err(Refused::forbidden(format!(
                "user: they belong to '{budget}' only by lists that you write yourself; they submit themselves, or an owner further up does it"
            )));
        }
        Err(Refused::forbidden(format!(
            "user: you may submit for members of '{budget}' and of budgets above it, and they are none"
        )))
    }

    /// Whether a workload that was accepted before may run from now on, or once more: its user may have left the
    /// budget since.
    pub(crate) fn check_still_member(&self, work: &Work) -> Result<(), Refused> {
        let (person, budget) = (&work.declared.user, &work.declared.budget);
        if self.budgets.is_member(person, budget) {
            return Ok(());
        }
        Err(Refused::forbidden(format!(
            "workload {}: '{person}' is no member of '{budget}' any more",
            work.number
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_a_list_does_not_vouch_by_it() {
        let text = "
a: {share: 2, owners: [ann], members: [pat], children: {a1: {share: 1, owners: [lea], members: [max]}}}
b: {share: 1, members: [bob]}
";
        let tree = serde_saphyr::from_str(text).expect("a tree");
        let lab = Budgets::new(1, tree, vec!["boss".into()]).expect("budgets");
        for (person, by, vouched) in [
            ("max", "lea", true),
            // Ann writes the lists of a1, and not those of a.
            ("max", "ann", false),
            ("pat", "ann", true),
            ("pat", "lea", true),
            ("max", "boss", true),
            ("bob", "lea", false),
            ("bob", "boss", false),
            ("root", "boss", false),
            ("boss", "lea", true),
        ] {
            assert_eq!(lab.vouches_for(person, "a/a1", by), vouched, "{person} by {by}");
        }
    }
}
