//! The settings of a site as its operator wants them: some are for ever, some can be changed while it is up.

use bursar_site::record::SettingsDoc;
use bursar_site::{Body, Refused, Site};

/// From this many hosts on some are kept for debug work: in a smaller site one host is too much.
const DEBUG_FROM_HOSTS: usize = 32;

/// What the operator says about settings; what is left out is the default, or as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingsWanted {
    /// W.
    pub lookback_ms: Option<u64>,
    /// H.
    pub horizon_ms: Option<u64>,
    /// How long a preempted workload has at most to save and leave.
    pub grace_ms: Option<u64>,
    /// The margin of rule 6, in millionths.
    pub margin_ppm: Option<u64>,
    /// How many reservations may stand.
    pub reservations: Option<u32>,
    /// A.
    pub reservation_age_ms: Option<u64>,
    /// The last so many hosts are debug hosts.
    pub debug_hosts: Option<u32>,
    /// The contract of a workload that declares none.
    pub default_min_runtime_ms: Option<u64>,
    /// How long before its protection ends a workload is warned.
    pub warn_before_ms: Option<u64>,
    /// Where days and months of terms begin and end.
    pub time_zone: Option<String>,
}

fn span(ms: u64) -> String {
    bursar_site::declare::span_text(ms)
}

impl SettingsWanted {
    /// The settings of a new site with so many hosts.
    ///
    /// # Errors
    /// One line that names the setting, the value and the fix.
    pub fn for_a_new_site(&self, hosts: usize) -> Result<SettingsDoc, String> {
        let usual = SettingsDoc::default();
        let horizon_ms = self.horizon_ms.unwrap_or(usual.horizon_ms);
        let debug_hosts = if hosts < DEBUG_FROM_HOSTS { 0 } else { (hosts * 3 / 100).max(1) };
        let settings = SettingsDoc {
            lookback_ms: self.lookback_ms.unwrap_or(usual.lookback_ms),
            horizon_ms,
            grace_ms: self.grace_ms.unwrap_or(usual.grace_ms),
            margin_ppm: self.margin_ppm.unwrap_or(usual.margin_ppm),
            reservations: self.reservations.unwrap_or(usual.reservations),
            reservation_age_ms: self.reservation_age_ms.unwrap_or(horizon_ms / 2),
            debug_hosts: self.debug_hosts.unwrap_or(debug_hosts as u32),
            default_min_runtime_ms: self
                .default_min_runtime_ms
                .unwrap_or_else(|| usual.default_min_runtime_ms.min(horizon_ms)),
            warn_before_ms: self.warn_before_ms.unwrap_or(usual.warn_before_ms),
            time_zone: self.time_zone.clone().filter(|zone| zone != "UTC"),
        };
        if let Some(zone) = &settings.time_zone {
            bursar_site::terms::time_zone(zone)
                .map_err(|message| format!("settings.time_zone: {message}"))?;
        }
        for (name, ms) in [("lookback", settings.lookback_ms), ("horizon", settings.horizon_ms)] {
            if ms == 0 {
                return Err(format!("settings.{name}: 0 is not allowed; give a span such as 8h"));
            }
        }
        if !(1..=100_000_000).contains(&settings.margin_ppm) {
            return Err("settings.margin: it must be above 0 and at most 100, such as 0.05".into());
        }
        if settings.default_min_runtime_ms > horizon_ms {
            return Err(format!(
                "settings.default_min_runtime: {} is above the horizon; give at most {}",
                span(settings.default_min_runtime_ms),
                span(horizon_ms)
            ));
        }
        if settings.debug_hosts as usize >= hosts && settings.debug_hosts > 0 {
            return Err(format!(
                "settings.debug_hosts: {} leaves none of {hosts} host{} for anything else",
                settings.debug_hosts,
                if hosts == 1 { "" } else { "s" }
            ));
        }
        Ok(settings)
    }

    /// What is wanted otherwise than a site was created with and is for ever: decisions in its journal depend
    /// on it, and would be others if they were planned again.
    #[must_use]
    pub fn cannot_change(&self, known: &SettingsDoc) -> Vec<String> {
        let spans = [
            ("lookback", self.lookback_ms, known.lookback_ms),
            ("horizon", self.horizon_ms, known.horizon_ms),
            ("grace", self.grace_ms, known.grace_ms),
            ("reservation_age", self.reservation_age_ms, known.reservation_age_ms),
        ];
        let spans = spans.map(|(name, wanted, known)| (name, wanted.map(span), span(known)));
        let margin = |ppm: u64| (ppm as f64 / 1e6).to_string();
        let numbers = [
            ("margin", self.margin_ppm.map(margin), margin(known.margin_ppm)),
            (
                "reservations",
                self.reservations.map(|n| n.to_string()),
                known.reservations.to_string(),
            ),
            ("debug_hosts", self.debug_hosts.map(|n| n.to_string()), known.debug_hosts.to_string()),
        ];
        let utc = || "UTC".to_owned();
        let zone = known.time_zone.clone().unwrap_or_else(utc);
        let zone = [("time_zone", self.time_zone.clone(), zone)];
        let all = spans.into_iter().chain(numbers).chain(zone);
        let differ = all.filter_map(|(name, wanted, known)| {
            wanted.filter(|wanted| *wanted != known).map(|wanted| (name, wanted, known))
        });
        let say = |(name, wanted, known)| {
            format!(
                "settings.{name}: {wanted} is wanted, but the site was created with {known}, on which its decisions depend: write {known}, or make a new site with another data folder"
            )
        };
        differ.map(say).collect()
    }

    /// The record that makes the site's settings what is wanted, as far as they can be changed; none if they
    /// are so.
    ///
    /// # Errors
    /// What the site says.
    pub fn change(&self, site: &Site) -> Result<Option<Body>, Refused> {
        let known = &site.created.settings;
        site.change_settings(
            self.default_min_runtime_ms.unwrap_or(known.default_min_runtime_ms),
            self.warn_before_ms.unwrap_or(known.warn_before_ms),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_depends_on_something_else_follows_it() {
        let wanted = SettingsWanted { horizon_ms: Some(30_000), ..SettingsWanted::default() };
        let made = wanted.for_a_new_site(2).expect("fine");
        assert_eq!((made.reservation_age_ms, made.default_min_runtime_ms), (15_000, 30_000));
        assert_eq!(SettingsWanted::default().for_a_new_site(1), Ok(SettingsDoc::default()));
        let many = SettingsWanted::default().for_a_new_site(100).expect("fine");
        assert_eq!(many.debug_hosts, 3);
    }

    #[test]
    fn what_cannot_be_is_named() {
        let base = SettingsWanted::default();
        for (wanted, part) in [
            (SettingsWanted { horizon_ms: Some(0), ..base.clone() }, "settings.horizon: 0"),
            (SettingsWanted { margin_ppm: Some(0), ..base.clone() }, "settings.margin"),
            (SettingsWanted { debug_hosts: Some(2), ..base.clone() }, "settings.debug_hosts: 2"),
            (
                SettingsWanted { default_min_runtime_ms: Some(36_000_000), ..base.clone() },
                "settings.default_min_runtime: 10h is above the horizon; give at most 8h",
            ),
        ] {
            let error = wanted.for_a_new_site(2).expect_err(part);
            assert!(error.starts_with(part), "{error}");
        }
    }

    #[test]
    fn what_is_for_ever_is_told_with_both_values() {
        let known = SettingsDoc::default();
        let same = SettingsWanted {
            lookback_ms: Some(known.lookback_ms),
            margin_ppm: Some(known.margin_ppm),
            warn_before_ms: Some(1),
            ..SettingsWanted::default()
        };
        assert_eq!(same.cannot_change(&known), [""; 0]);
        let other = SettingsWanted { margin_ppm: Some(100_000), horizon_ms: Some(1), ..same };
        let told = other.cannot_change(&known);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0]
                .starts_with("settings.horizon: 1ms is wanted, but the site was created with 8h")
        );
        assert!(told[1].starts_with("settings.margin: 0.1 is wanted"), "{told:?}");
    }
}
