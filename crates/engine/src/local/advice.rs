//! What can be said before a start about what would fail at it: here, on this machine.

use std::path::Path;

/// What an attempt would need of this machine and does not find, a sentence for each. `user` is for whom it would
/// run, where that is somebody else than this process's own; then folders are not looked into, since what this
/// process may see is not theirs to know.
#[must_use]
pub fn local_advice(workdir: Option<&str>, user: Option<&str>, cpus: Option<u32>) -> Vec<String> {
    let mut advice = Vec::new();
    if let Some(workdir) = workdir.filter(|_| user.is_none()).filter(|at| !Path::new(at).is_dir()) {
        advice.push(format!(
            "workdir: {workdir} is no folder on this machine; it cannot start before there is one"
        ));
    }
    if let Some(user) = user.filter(|user| matches!(nix::unistd::User::from_name(user), Ok(None))) {
        advice.push(format!(
            "user: this machine has no user '{user}'; it cannot start before there is one"
        ));
    }
    let has = std::thread::available_parallelism().map_or(u32::MAX, |n| n.get() as u32);
    if let Some(cpus) = cpus.filter(|&cpus| cpus > has) {
        advice.push(format!(
            "cpus: {cpus} is above the {has} of this machine; it gets no more than these"
        ));
    }
    advice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_fail_is_told() {
        assert_eq!(local_advice(Some("/"), None, Some(1)), Vec::<String>::new());
        let told = local_advice(Some("/no/such/folder"), None, Some(1_000_000));
        assert!(told[0].starts_with("workdir: /no/such/folder"), "{told:?}");
        assert!(told[1].starts_with("cpus: 1000000"), "{told:?}");
        let told = local_advice(Some("/no/such/folder"), Some("nobody-here"), None);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("'nobody-here'"), "{told:?}");
    }
}
