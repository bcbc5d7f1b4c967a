//! What kind of account a name stands for on this machine.

/// What kind of account a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// This machine knows no such name.
    Unknown,
    /// It may do everything: its number is 0, whatever it is called.
    Root,
    /// It belongs to the system or to a service, not to a person.
    System,
    /// A person's, or anybody's who was given one as people are.
    Person,
}

/// Numbers below this are the system's, unless `/etc/login.defs` says otherwise.
const UID_MIN: u32 = 1_000;

/// `nobody` everywhere on Linux, whatever `UID_MIN` is.
const NOBODY: u32 = 65_534;

/// What kind of account this name stands for. Nothing is remembered: accounts come and go.
///
/// # Errors
/// If the accounts of this machine cannot be looked up now, which says nothing about the name.
pub fn account(name: &str) -> std::io::Result<Account> {
    #[cfg(target_os = "linux")]
    let uid = nix::unistd::User::from_name(name)?.map(|user| user.uid.as_raw());
    #[cfg(not(target_os = "linux"))]
    let uid: Option<u32> = {
        let _ = name;
        None
    };
    let defs = || std::fs::read_to_string("/etc/login.defs").unwrap_or_default();
    Ok(match uid {
        None => Account::Unknown,
        Some(0) => Account::Root,
        Some(NOBODY) => Account::System,
        Some(uid) if uid < uid_min(&defs()) => Account::System,
        Some(_) => Account::Person,
    })
}

fn uid_min(login_defs: &str) -> u32 {
    let said = login_defs.lines().find_map(|line| line.trim().strip_prefix("UID_MIN"));
    let said = said.filter(|rest| rest.starts_with([' ', '\t'])).map(str::trim);
    said.and_then(|text| text.parse().ok()).unwrap_or(UID_MIN)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_told_apart() {
        assert_eq!(account("root").unwrap(), Account::Root);
        assert_eq!(account("nobody").unwrap(), Account::System);
        assert_eq!(account("daemon").unwrap(), Account::System);
        assert_eq!(account("nobody-is-called-so").unwrap(), Account::Unknown);
        assert_eq!(uid_min("# UID_MIN 5\nUID_MIN\t\t 500\n"), 500);
        assert_eq!(uid_min("UID_MINIMUM 7\nSYS_UID_MIN 100\n"), UID_MIN);
    }
}
