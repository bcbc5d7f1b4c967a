//! Hosts: what is drained, what is lost.

use crate::world::{SAVES, World, key};
use bursar_engine::{Engine, HostFacts, Outcome};
use bursar_slurm_lab::{GPUS, Lab, skipped};

fn host(world: &mut World, name: &str) -> HostFacts {
    let hosts = world.engine().hosts().expect("hosts");
    hosts.into_iter().find(|host| host.name == name).expect("the host")
}

#[test]
fn hosts_are_seen_as_they_are() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::all_nodes());
    let hosts = world.engine().hosts().expect("hosts");
    let seen: Vec<_> =
        hosts.iter().map(|one| (&*one.name, one.gpus, &*one.model, one.healthy)).collect();
    assert_eq!(seen, ["n1", "n2", "n3", "n4"].map(|name| (name, GPUS, "h100", true)));
    // What an administrator drains takes no work, and we do not undo that.
    world.lab.ok(
        "svc",
        "scontrol",
        &["update", "NodeName=n2", "State=DRAIN", "Reason=a | disk, \"broken\""],
    );
    let drained = host(&mut world, "n2");
    assert!(drained.healthy && drained.closed.is_some() && !drained.cordoned);
    world.engine().cordon("n2", "a test").expect("cordon");
    assert!(host(&mut world, "n2").cordoned);
    world.engine().uncordon("n2").expect("uncordon");
    let drained = host(&mut world, "n2");
    assert!(drained.healthy && drained.closed.is_some() && !drained.cordoned);
    // Ours is no fault of the host's.
    world.engine().cordon("n3", "a test").expect("cordon");
    let cordoned = host(&mut world, "n3");
    assert!(cordoned.healthy && cordoned.cordoned);
    world.engine().uncordon("n3").expect("uncordon");
    world.lab.ok("svc", "scontrol", &["update", "NodeName=n4", "State=DOWN", "Reason=test"]);
    assert!(!host(&mut world, "n4").healthy);
    world.lab.ok("svc", "scontrol", &["update", "NodeName=n[2,4]", "State=RESUME"]);
    world.until("all hosts", |world| {
        let hosts = world.engine().hosts().expect("hosts");
        hosts
            .iter()
            .all(|host| host.healthy && host.closed.is_none() && !host.cordoned)
            .then_some(())
    });
}

#[test]
fn work_on_a_lost_host_is_lost_and_waits_again() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::one_node());
    let name = world.lab.hosts[0].clone();
    let resumable = world.sbatch("alice", &["--gpus=1", "--comment=resumable"], SAVES);
    let other = world.sbatch("alice", &["--gpus=1"], SAVES);
    for (attempt, job) in [(1, &resumable), (2, &other)] {
        let arrival = world.await_waiting(job);
        let mut order = crate::world::order(&key(attempt), &arrival.name, &[(&name, 1)]);
        order.resumable = attempt == 1;
        world.engine().start(&order).expect("start");
        world.await_running(&key(attempt));
    }
    world.see(&key(1));
    world.lab.ok(
        "svc",
        "scontrol",
        &["update", &format!("NodeName={name}"), "State=DOWN", "Reason=test"],
    );
    for attempt in [1, 2] {
        let exited = world.await_exit(&key(attempt));
        let Outcome::Lost { reason } = &exited.outcome else { panic!("{exited:?}") };
        assert!(reason.contains("NODE_FAIL"), "{reason}");
        let job = if attempt == 1 { &resumable } else { &other };
        let row = world.accounts(job)[0].clone();
        assert_eq!(
            (exited.started_at.map(|at| at.unix_ms), exited.ended_at.unix_ms),
            (Some(row.0 * 1000), row.1 * 1000)
        );
    }
    world.await_waiting(&resumable);
    assert_eq!(world.arrival(&other), None);
    assert_eq!(world.field(&resumable, "PriorityLong"), "0", "Slurm does not start it by itself");
}
