//! Control groups (cgroup v2), where one may have them: to end what an attempt left behind in one go, and
//! to limit memory and processors.

use super::CgroupChoice;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Below the group of the daemon: what holds the groups of attempts.
const HOLDER: &str = "bursar.work";

/// A daemon in a group of this name makes the groups of attempts beside it. A group that has limits for
/// its subgroups may hold no process itself, so the daemon must not be in the one that was given to it.
const SUPERVISOR: &str = "supervisor";

/// Length of the span in which processor time is counted, in microseconds; the kernel's default.
const CPU_PERIOD_US: u64 = 100_000;

/// The group below which attempts get theirs, if there can be one. Adds why not to `notes`.
pub(crate) fn holder(choice: &CgroupChoice, notes: &mut Vec<String>) -> Option<PathBuf> {
    let made = match choice {
        CgroupChoice::Off => return None,
        CgroupChoice::Under(folder) => Ok(folder.clone()),
        CgroupChoice::Own => own().map(|own| match own.file_name() {
            Some(name) if name == SUPERVISOR => own.parent().unwrap_or(&own).to_owned(),
            _ => own,
        }),
    };
    let made = made.and_then(|above| {
        let holder = above.join(HOLDER);
        // May fail where the daemon itself is in that group; groups without limits are still of use.
        pass_controllers_on(&above);
        match fs::create_dir(&holder) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        pass_controllers_on(&holder);
        // It may be another user's.
        rustix::fs::access(&holder, rustix::fs::Access::WRITE_OK)?;
        Ok(holder)
    });
    match made {
        Ok(holder) => Some(holder),
        Err(error) => {
            notes
                .push(format!("no control groups, so no limits of memory and processors: {error}"));
            None
        }
    }
}

fn pass_controllers_on(group: &Path) {
    for controller in ["memory", "cpu", "pids"] {
        let _ = write(group, "cgroup.subtree_control", &format!("+{controller}"));
    }
}

/// The group that this process is in.
fn own() -> io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    own_of(&mounts, &groups).ok_or_else(|| io::Error::other("cgroup v2 is not mounted"))
}

fn own_of(mounts: &str, groups: &str) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let (root, mount) = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        (after.split(' ').next() == Some("cgroup2")).then_some((fields.next()?, fields.next()?))
    })?;
    // In a container the mount may show a part of the tree only, below `root`.
    let group = format!("/{group}");
    let below = Path::new(&group).strip_prefix(root).ok()?;
    Some(Path::new(mount).join(below))
}

/// Makes the group of an attempt, limited as far as that can be done; gives what cannot.
pub(crate) fn create(
    group: &Path,
    memory_bytes: Option<u64>,
    cpus: Option<u32>,
) -> io::Result<Vec<String>> {
    fs::create_dir(group)?;
    let mut notes = Vec::new();
    if let Some(bytes) = memory_bytes {
        if let Err(error) = write(group, "memory.max", &bytes.to_string()) {
            notes.push(format!("the limit of {bytes} bytes of memory is not enforced: {error}"));
        }
        // Work of which a part was killed for memory is of no use.
        let _ = write(group, "memory.oom.group", "1");
    }
    if let Some(cpus) = cpus {
        let quota = u64::from(cpus) * CPU_PERIOD_US;
        if let Err(error) = write(group, "cpu.max", &format!("{quota} {CPU_PERIOD_US}")) {
            notes.push(format!("the limit of {cpus} processors is not enforced: {error}"));
        }
    }
    Ok(notes)
}

/// Moves a process into a group.
pub(crate) fn join(group: &Path, pid: i32) -> io::Result<()> {
    write(group, "cgroup.procs", &pid.to_string())
}

/// Kills all that is in a group.
pub(crate) fn kill(group: &Path) -> io::Result<()> {
    write(group, "cgroup.kill", "1")
}

/// The processes in a group. Empty if it is gone.
pub(crate) fn processes(group: &Path) -> Vec<i32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// How many processes of a group were killed since it had no more memory.
pub(crate) fn killed_for_memory(group: &Path) -> u64 {
    let text = fs::read_to_string(group.join("memory.events")).unwrap_or_default();
    let killed = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    killed.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Removes a group that is empty. One that work made subgroups in loses these first.
pub(crate) fn remove(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}

/// The files of a group are there from the beginning; elsewhere none is to be made.
fn write(group: &Path, name: &str, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(group.join(name))?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_below_its_mount() {
        let mounts = "24 1 0:22 / /proc rw - proc proc rw\n\
                      30 24 0:26 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";
        let own = |groups: &str| own_of(mounts, groups);
        assert_eq!(
            own("4:memory:/x\n0::/system.slice/bursar.service\n"),
            Some("/sys/fs/cgroup/unified/system.slice/bursar.service".into())
        );
        assert_eq!(own("0::/\n"), Some("/sys/fs/cgroup/unified/".into()));
        assert_eq!(own("4:memory:/x\n"), None);
        let mounts = "30 24 0:26 /docker/7 /sys/fs/cgroup ro - cgroup2 cgroup ro\n";
        assert_eq!(own_of(mounts, "0::/docker/7/a\n"), Some("/sys/fs/cgroup/a".into()));
        assert_eq!(own_of(mounts, "0::/elsewhere\n"), None);
        assert_eq!(own_of("", "0::/\n"), None);
    }

    #[test]
    fn limits_are_written_or_their_absence_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path().join("w.1");
        let notes = create(&group, Some(1 << 30), Some(4)).unwrap();
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].starts_with("the limit of 1073741824 bytes of memory is not enforced"));
        assert!(create(&group, None, None).is_err(), "a group is never shared");
        fs::write(group.join("memory.events"), "low 0\noom 1\noom_kill 3\n").unwrap();
        assert_eq!(killed_for_memory(&group), 3);
        fs::write(group.join("memory.max"), "").unwrap();
        write(&group, "memory.max", "5").unwrap();
        assert_eq!(fs::read_to_string(group.join("memory.max")).unwrap(), "5");
    }

    #[test]
    fn without_a_group_there_is_a_note() {
        let mut notes = Vec::new();
        let nowhere = CgroupChoice::Under("/nonexistent".into());
        assert_eq!(holder(&nowhere, &mut notes), None);
        assert_eq!(notes.len(), 1);
        assert_eq!(holder(&CgroupChoice::Off, &mut notes), None);
        assert_eq!(notes.len(), 1);
    }
}
