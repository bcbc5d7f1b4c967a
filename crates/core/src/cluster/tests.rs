//! Placement on small clusters, by hand.

use super::*;

fn cluster(hosts: &[(u32, u32)]) -> Cluster {
    let specs: Vec<HostSpec> =
        hosts.iter().map(|&(gpus, domain)| HostSpec { gpus, model: ModelIx(0), domain }).collect();
    Cluster::new(&specs, vec![1])
}

fn occupy(cluster: &mut Cluster, id: u32, placement: &[(u32, u32)]) {
    let placement = placement.iter().map(|&(host, gpus)| (HostIx(host), gpus)).collect();
    cluster.occupy(WorkloadIx(id), &placement, true);
}

fn place(cluster: &Cluster, gpus: u32) -> Option<Vec<(u32, u32)>> {
    let (pool, ask) = cluster.asks(gpus, None, None).next()?;
    let placement = cluster.place_idle(pool, ask, |_| true)?;
    Some(placement.into_iter().map(|(host, gpus)| (host.0, gpus)).collect())
}

#[test]
fn the_fullest_host_that_fits_then_the_first_declared() {
    let mut cluster = cluster(&[(8, 0), (8, 0), (8, 0)]);
    assert_eq!(place(&cluster, 3), Some(vec![(0, 3)]));
    occupy(&mut cluster, 1, &[(1, 4)]);
    assert_eq!(place(&cluster, 3), Some(vec![(1, 3)]));
    assert_eq!(place(&cluster, 5), Some(vec![(0, 5)]));
}

#[test]
fn a_gang_takes_whole_hosts_and_one_partly_used() {
    let mut cluster = cluster(&[(4, 0); 4]);
    occupy(&mut cluster, 1, &[(0, 1)]);
    assert_eq!(place(&cluster, 10), Some(vec![(0, 2), (1, 4), (2, 4)]));
    occupy(&mut cluster, 2, &[(1, 1), (2, 1)]);
    assert_eq!(place(&cluster, 10), None);
}

#[test]
fn a_gang_keeps_to_few_domains_and_leaves_the_large_ones_whole() {
    let mut cluster =
        cluster(&[(8, 0), (8, 0), (8, 0), (8, 0), (8, 1), (8, 1), (8, 1), (8, 2), (8, 2)]);
    assert_eq!(place(&cluster, 16), Some(vec![(7, 8), (8, 8)]));
    assert_eq!(place(&cluster, 24), Some(vec![(4, 8), (5, 8), (6, 8)]));
    occupy(&mut cluster, 1, &[(7, 1)]);
    assert_eq!(place(&cluster, 40), Some(vec![(0, 8), (1, 8), (2, 8), (3, 8), (8, 8)]));
    assert_eq!(place(&cluster, 8 * 9), None);
}

#[test]
fn the_rest_of_a_gang_stays_near_it() {
    let mut cluster = cluster(&[(8, 0), (8, 0), (8, 1), (8, 1), (8, 1)]);
    occupy(&mut cluster, 1, &[(0, 2)]);
    assert_eq!(place(&cluster, 12), Some(vec![(0, 4), (1, 8)]));
    assert_eq!(place(&cluster, 20), Some(vec![(2, 8), (3, 8), (4, 4)]));
}

#[test]
fn what_fits_one_host_is_not_split_over_smaller_ones() {
    let cluster = cluster(&[(4, 0), (4, 0), (8, 0)]);
    assert_eq!(place(&cluster, 6), Some(vec![(2, 6)]));
    assert_eq!(cluster.asks(6, None, None).count(), 1);
    assert_eq!(cluster.asks(9, None, None).count(), 0);
    assert_eq!(cluster.largest_gang(None), 8);
}

#[test]
fn held_and_dying_gpus_are_not_idle() {
    let mut cluster = cluster(&[(8, 0)]);
    occupy(&mut cluster, 1, &[(0, 6)]);
    let six = vec![(HostIx(0), 6)];
    cluster.mark_dying(&six, true);
    let four = vec![(HostIx(0), 4)];
    assert_eq!(cluster.hold(&four), four);
    let host = |cluster: &Cluster| (cluster.hosts[0].idle(), cluster.hosts[0].idle_soon());
    assert_eq!(host(&cluster), (2, 4));
    cluster.vacate(WorkloadIx(1), &six, Was::Dying);
    cluster.serve(HostIx(0), 4);
    assert_eq!(host(&cluster), (4, 4));
    cluster.begin_start(&four);
    assert_eq!(host(&cluster), (4, 4));
    cluster.end_start(&four);
    cluster.occupy(WorkloadIx(2), &four, true);
    assert_eq!(host(&cluster), (4, 4));
    cluster.set_state(HostIx(0), HostState::Draining);
    assert_eq!(place(&cluster, 1), None);
}

#[test]
fn what_is_kept_for_one_is_not_given_to_another_who_awaits_more() {
    // 4 GPUs have come free for the first and are kept; a second awaits 2 of 4 that are dying.
    let mut cluster = cluster(&[(8, 0)]);
    occupy(&mut cluster, 1, &[(0, 4)]);
    let (four, two) = (vec![(HostIx(0), 4)], vec![(HostIx(0), 2)]);
    assert_eq!(cluster.hold(&four), vec![]);
    cluster.mark_dying(&four, true);
    assert_eq!(cluster.hold(&two), two);
    assert_eq!((cluster.hosts[0].idle(), cluster.hosts[0].idle_soon()), (0, 2));
    cluster.unhold(&two, &two);
    cluster.unhold(&four, &Placement::new());
    assert_eq!((cluster.hosts[0].idle(), cluster.hosts[0].idle_soon()), (4, 8));
}

#[test]
fn a_start_on_idle_gpus_does_not_count_on_those_who_leave() {
    let mut cluster = cluster(&[(8, 0)]);
    occupy(&mut cluster, 1, &[(0, 6)]);
    cluster.mark_dying(&vec![(HostIx(0), 6)], true);
    cluster.begin_start_on_idle(&vec![(HostIx(0), 2)]);
    assert_eq!((cluster.hosts[0].idle(), cluster.hosts[0].idle_soon()), (0, 6));
}
