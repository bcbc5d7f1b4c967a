//! Full disks and control groups.

use crate::subject::Local;
use bursar_engine::testkit::conformance::{Subject, Work, await_exit, await_running};
use bursar_engine::{AttemptKey, CgroupChoice, Engine, ErrorKind, LocalEngine, Outcome};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

fn key(attempt: u32) -> AttemptKey {
    AttemptKey::new("work", attempt).expect("a good key")
}

/// A small disk, mounted for a test.
struct SmallDisk {
    at: PathBuf,
}

impl SmallDisk {
    /// None where that may not be done.
    fn mount(at: &Path) -> Option<Self> {
        fs::create_dir_all(at).expect("a folder");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(at).output();
        let mounted = mount.is_ok_and(|mount| mount.status.success());
        if !mounted {
            eprintln!("nothing can be mounted: this test says nothing");
        }
        mounted.then(|| Self { at: at.to_owned() })
    }

    /// Takes what room there is.
    fn fill(&self) {
        let mut bytes = 1 << 16;
        let mut file = fs::File::create(self.at.join("filler")).expect("a file");
        while bytes > 0 {
            if std::io::Write::write_all(&mut file, &vec![0; bytes]).is_err() {
                bytes /= 2;
            }
        }
    }

    fn empty(&self) {
        fs::remove_file(self.at.join("filler")).expect("to empty it");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

#[test]
fn a_full_disk_stops_no_work_and_loses_no_end() {
    let folder = TempDir::new().expect("a folder");
    let Some(disk) = SmallDisk::mount(&folder.path().join("engine")) else { return };
    let mut local = Local::within(folder, |_| {});
    let script = "echo > \"$2\"; read x < \"$3\"; head -c $4 /dev/zero; echo > \"$2\"; read x < \"$3\"; \
                  echo end; exit 6";
    let mut order = local.script(&key(1), script, "3000000");
    order.log_bytes_max = 1 << 30;
    local.engine().start(&order).expect("start");
    await_running(&mut local, &key(1));
    disk.fill();
    local.release(&key(1));
    // It got rid of its output although there is no room for it.
    local.await_prepared(&key(1));
    // Nothing can be claimed now, and then nothing is.
    let next = local.order(&key(2), &Work::Exit(0));
    let refused = local.engine().start(&next).expect_err("no room");
    assert_eq!(refused.kind(), ErrorKind::Io, "{refused}");
    local.release(&key(1));
    let exited = await_exit(&mut local, &key(1));
    assert_eq!(exited.outcome, Outcome::Exit { code: 6 });
    let seen = local.engine().observe().expect("observe");
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(seen[0].notes.iter().any(|note| note.contains("dropped")), "{seen:?}");
    disk.empty();
    local.engine().start(&next).expect("start");
    assert_eq!(await_exit(&mut local, &key(2)).outcome, Outcome::Exit { code: 0 });
    assert_eq!(local.executions(&key(2)), 1);
    local.down();
    // Before the folder that it is mounted in goes.
    drop(disk);
}

/// Whether attempts get control groups here.
fn has_cgroups(local: &mut Local) -> bool {
    let without = local.engine().notes().iter().any(|note| note.contains("no control groups"));
    if without {
        eprintln!("no control groups here: this test says nothing");
    }
    !without
}

#[test]
fn with_a_control_group_nothing_escapes_a_dead_shim() {
    let mut local = Local::new();
    if !has_cgroups(&mut local) {
        return;
    }
    // In a session of its own, without parents, and without the mark in its environment.
    let script = r#"(env -i setsid sh -c 'echo > "$0"; exec sleep 100000' "$2" &); sleep 100000"#;
    let order = local.script(&key(1), script, "");
    local.engine().start(&order).expect("start");
    await_running(&mut local, &key(1));
    let state = fs::read_to_string(local.record(&key(1), "state.json")).expect("its state");
    let state: serde_json::Value = serde_json::from_str(&state).expect("its state");
    let group = PathBuf::from(state["cgroup"].as_str().expect("its group"));
    let grouped = fs::read_to_string(group.join("cgroup.procs")).expect("its processes");
    assert!(grouped.lines().count() >= 2, "{grouped}");
    local.kill_supervisor(&key(1));
    await_exit(&mut local, &key(1));
    for pid in grouped.lines() {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat} was left");
    }
    assert!(!group.exists());
}

#[test]
fn limits_that_are_not_enforced_are_told() {
    let mut local = Local::with(|options| options.cgroup = CgroupChoice::Off);
    let mut order = local.order(&key(1), &Work::Exit(0));
    order.memory_bytes = Some(1 << 30);
    order.cpus = Some(2);
    local.engine().start(&order).expect("start");
    await_exit(&mut local, &key(1));
    let seen = local.engine().observe().expect("observe");
    assert_eq!(
        seen[0].notes,
        ["limits of memory and processors are not enforced: no control groups"]
    );
}

#[test]
fn limits_are_written_into_the_group() {
    // No real groups: what is written where is seen, and that the work runs although it is in none.
    let folder = TempDir::new().expect("a folder");
    let groups = folder.path().join("groups");
    fs::create_dir(&groups).expect("a folder");
    let mut local = Local::within(folder, |options| options.cgroup = CgroupChoice::Under(groups));
    let mut order = local.order(&key(1), &Work::Exit(7));
    order.memory_bytes = Some(1 << 30);
    local.engine().start(&order).expect("start");
    assert_eq!(await_exit(&mut local, &key(1)).outcome, Outcome::Exit { code: 7 });
    let notes = local.engine().observe().expect("observe")[0].notes.clone();
    assert!(
        notes[0].starts_with("the limit of 1073741824 bytes of memory is not enforced"),
        "{notes:?}"
    );
    assert!(notes[1].starts_with("it is in no control group"), "{notes:?}");
}

#[test]
fn an_engine_without_a_folder_says_so() {
    let nowhere = LocalEngine::open(Path::new("/nonexistent/engine"), crate::subject::options());
    assert_eq!(nowhere.expect_err("nowhere").kind(), ErrorKind::Io);
}
