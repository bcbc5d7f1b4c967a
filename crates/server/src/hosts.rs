//! Hosts as the engine sees them, compared with the site's (rule 9): what fails is down, what its engine closes drains,
//! and what we drain is closed to others.

use bursar_engine::HostFacts;
use bursar_site::{Body, HostState, Site};

/// The records that follow from how the engine sees its hosts.
pub(crate) fn news(site: &Site, seen: &[HostFacts]) -> Vec<Body> {
    let news = seen.iter().enumerate().filter_map(|(near, facts)| {
        let (state, by_engine) = site.host_state(&facts.name, near)?;
        let host = facts.name.clone();
        match (state, &facts.closed) {
            (HostState::Up | HostState::Draining | HostState::Drained, closed)
                if !facts.healthy =>
            {
                let reason = closed.clone().unwrap_or_else(|| "it does not answer".into());
                Some(Body::HostDown { host, reason, by_engine: true })
            }
            (HostState::Up, Some(reason)) => {
                Some(Body::DrainStarted { host, reason: reason.clone(), by_engine: true })
            }
            // If it is back and closed, it is up for a moment, and drains at once.
            (HostState::Down, _) if facts.healthy && by_engine => Some(Body::HostUp { host }),
            (HostState::Draining | HostState::Drained, None) if by_engine => {
                Some(Body::HostUp { host })
            }
            _ => None,
        }
    });
    news.collect()
}

/// The hosts that are to be closed to others, with the reason, or opened to them, as the site has them.
pub(crate) fn cordons<'a>(
    site: &'a Site,
    seen: &'a [HostFacts],
) -> impl Iterator<Item = (&'a str, Option<&'a str>)> + 'a {
    seen.iter().enumerate().filter_map(|(near, facts)| {
        let (state, by_engine) = site.host_state(&facts.name, near)?;
        let wanted = matches!(state, HostState::Draining | HostState::Drained) && !by_engine;
        let why = wanted.then(|| site.host_reason(&facts.name).unwrap_or("drained"));
        (wanted != facts.cordoned).then_some((facts.name.as_str(), why))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar_site::record::{BudgetsChanged, Created, HostDoc, Record, SettingsDoc};
    use std::collections::BTreeMap;

    fn site() -> Site {
        let host =
            |name: &str| HostDoc { name: name.into(), gpus: 8, model: "h100".into(), domain: None };
        let created = Created {
            name: "test".into(),
            unix_ms: 0,
            settings: SettingsDoc::default(),
            hosts: vec![host("n1"), host("n2")],
            rates_milli: BTreeMap::new(),
            site_id: None,
        };
        let budgets = serde_json::from_str(r#"{"a": {"share": 1}}"#).expect("a tree");
        let change = BudgetsChanged::first(budgets, "boss", "first");
        let record = |seq, body| Record { seq, at_ms: 0, actor: None, body };
        let (first, second) =
            (record(1, Body::Created(created)), record(2, Body::BudgetsChanged(change)));
        Site::new(&first, &second).expect("a site")
    }

    fn facts(name: &str, healthy: bool, cordoned: bool, closed: Option<&str>) -> HostFacts {
        HostFacts {
            name: name.into(),
            gpus: 8,
            model: "h100".into(),
            healthy,
            cordoned,
            closed: closed.map(str::to_owned),
        }
    }

    /// Takes in what an engine sees; the kinds of the records that follow, until nothing does.
    fn take(site: &mut Site, seen: &[HostFacts]) -> Vec<&'static str> {
        let mut kinds = Vec::new();
        loop {
            let bodies = news(site, seen);
            if bodies.is_empty() {
                return kinds;
            }
            for body in bodies {
                kinds.push(body.kind());
                assert!(kinds.len() < 20, "{kinds:?}");
                let record = Record { seq: site.seq() + 1, at_ms: 0, actor: None, body };
                site.apply(&record).expect("it folds");
            }
        }
    }

    #[test]
    fn what_fails_is_down_until_it_is_back() {
        let mut site = site();
        let (well, ill) = (facts("n1", true, false, None), facts("n1", false, false, None));
        assert_eq!(take(&mut site, std::slice::from_ref(&well)), [] as [&str; 0]);
        assert_eq!(take(&mut site, std::slice::from_ref(&ill)), ["host_down"]);
        assert_eq!(take(&mut site, &[ill]), [] as [&str; 0]);
        assert_eq!(take(&mut site, &[well]), ["host_up"]);
    }

    #[test]
    fn what_the_engine_closes_drains_until_it_is_opened() {
        let mut site = site();
        let closed = facts("n2", true, false, Some("in Slurm: fans"));
        assert_eq!(take(&mut site, std::slice::from_ref(&closed)), ["drain_started"]);
        // That is no cordon of ours.
        assert_eq!(cordons(&site, std::slice::from_ref(&closed)).count(), 0);
        let down = facts("n2", false, false, Some("in Slurm: fans"));
        assert_eq!(take(&mut site, &[down]), ["host_down"]);
        assert_eq!(take(&mut site, &[closed]), ["host_up", "drain_started"]);
        assert_eq!(take(&mut site, &[facts("n2", true, false, None)]), ["host_up"]);
    }

    #[test]
    fn what_a_person_drains_is_closed_and_stays_so() {
        let mut site = site();
        let open = facts("n1", true, false, None);
        let body = site.drain("boss", "n1", "new fans").expect("an owner may");
        let record = Record { seq: site.seq() + 1, at_ms: 0, actor: Some("boss".into()), body };
        site.apply(&record).expect("it folds");
        assert_eq!(take(&mut site, std::slice::from_ref(&open)), [] as [&str; 0]);
        let open = [open];
        assert_eq!(cordons(&site, &open).collect::<Vec<_>>(), [("n1", Some("new fans"))]);
        let body = site.undrain("boss", "n1").expect("an owner may");
        let record = Record { seq: site.seq() + 1, at_ms: 0, actor: Some("boss".into()), body };
        site.apply(&record).expect("it folds");
        let closed = [facts("n1", true, true, None)];
        assert_eq!(cordons(&site, &closed).collect::<Vec<_>>(), [("n1", None)]);
    }
}
