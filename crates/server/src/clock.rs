//! The site's clock: milliseconds since the site was created, never backwards, and not moved by whoever
//! sets the wall clock.

use bursar_engine::Moment;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where the daemon gets its moments from.
pub trait Clock: Send {
    /// Milliseconds since the site was created.
    fn now_ms(&self) -> u64;

    /// The same moment by the wall clock, for people and for engines: milliseconds since 1970.
    fn unix_ms(&self, site_ms: u64) -> u64;

    /// The site's moment of what an engine saw; 0 for what was before the site.
    fn site_ms(&self, moment: Moment) -> u64;

    /// The latest moment before this boot of the machine at which the daemon is known to have run; none if the
    /// machine was not booted since.
    fn alive_before_boot_ms(&self) -> Option<u64> {
        None
    }

    /// The daemon lives: to be called after every round, from which a clock that keeps that takes what it needs.
    fn beat(&mut self) {}
}

/// What ties a site's moments to the clock of one boot of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Anchor {
    boot_id: String,
    /// `CLOCK_BOOTTIME` at some moment, in milliseconds …
    boot_ms: u64,
    /// … and the site's moment then.
    site_ms: u64,
}

/// How often it is kept that the daemon lives. What was charged to the machine while it was off is at most this.
const BEAT_EVERY_MS: u64 = 10_000;

/// What the wall clock may have advanced over a reboot before somebody has to look at it: a machine is seldom off
/// for longer, and the site's clock never goes back.
const JUMP_MAX_MS: u64 = 7 * 24 * 3_600_000;

/// The clock of this machine: `CLOCK_BOOTTIME`, which goes on while the machine sleeps and cannot be set. Over
/// a reboot the wall clock bridges, as well as it can.
#[derive(Clone, Debug)]
pub struct SystemClock {
    anchor: Anchor,
    dir: PathBuf,
    /// `CLOCK_BOOTTIME` when it was last kept that the daemon lives.
    beat_ms: u64,
    /// The site's moment when that was last kept under an earlier boot.
    alive_before_boot_ms: Option<u64>,
}

fn boot_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1000
        + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// The wall clock, milliseconds since 1970.
#[must_use]
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn anchor_path(dir: &Path) -> PathBuf {
    dir.join("clock.json")
}

impl SystemClock {
    /// The clock of a site whose data lies in `dir`, which was created at `created_unix_ms` and whose latest
    /// record is of `last_ms`. Keeps its anchor in the folder, so that a restart within one boot of the machine
    /// loses nothing.
    ///
    /// # Errors
    /// If the anchor cannot be written, or if the machine was booted and the wall clock is more than a week ahead
    /// of what was last kept, unless `jump` accepts that.
    pub fn open(dir: &Path, created_unix_ms: u64, last_ms: u64, jump: Jump) -> io::Result<Self> {
        let (id, boot) = (boot_id(), boot_ms());
        let read = fs::read_to_string(anchor_path(dir)).ok();
        let known = read.as_ref().and_then(|text| serde_json::from_str::<Anchor>(text).ok());
        let same_boot =
            |known: &&Anchor| !id.is_empty() && known.boot_id == id && known.boot_ms <= boot;
        let by_boot =
            known.as_ref().filter(same_boot).map(|known| known.site_ms + (boot - known.boot_ms));
        let kept_ms = known.map_or(last_ms, |known| known.site_ms.max(last_ms));
        let by_wall = wall_ms().saturating_sub(created_unix_ms);
        // Where nothing was kept, as in a folder that was just restored, there is nothing to compare with.
        let jumps =
            by_boot.is_none() && read.is_some() && by_wall > kept_ms.saturating_add(JUMP_MAX_MS);
        if jumps && jump == Jump::Refused {
            return Err(io::Error::other(format!(
                "the machine was booted, and its clock is {} days ahead of when this site was last up: set the clock right, or accept the jump, which cannot be taken back, with --accept-clock-jump",
                (by_wall - kept_ms) / 86_400_000
            )));
        }
        let site_ms = by_boot.unwrap_or_else(|| by_wall.max(kept_ms)).max(last_ms);
        let anchor = Anchor { boot_id: id, boot_ms: boot, site_ms };
        anchor.keep(dir, Sync::Yes)?;
        let alive_before_boot_ms = by_boot.is_none().then_some(kept_ms);
        Ok(Self { anchor, dir: dir.to_owned(), beat_ms: boot, alive_before_boot_ms })
    }
}

/// Whether a wall clock that is far ahead after a reboot is believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Jump {
    /// Not before somebody has looked at it.
    #[default]
    Refused,
    /// Somebody has.
    Accepted,
}

/// Whether what is written must be there after the power failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sync {
    Yes,
    No,
}

impl Anchor {
    fn keep(&self, dir: &Path, sync: Sync) -> io::Result<()> {
        let text = serde_json::to_string(self).map_err(io::Error::other)?;
        let temporary = dir.join("clock.json.new");
        let mut file = fs::File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        if sync == Sync::Yes {
            file.sync_all()?;
        }
        fs::rename(&temporary, anchor_path(dir))?;
        if sync == Sync::Yes { fs::File::open(dir)?.sync_all() } else { Ok(()) }
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        self.anchor.site_ms + boot_ms().saturating_sub(self.anchor.boot_ms)
    }

    fn unix_ms(&self, site_ms: u64) -> u64 {
        let now = self.now_ms();
        let wall = wall_ms();
        // Moments that are asked for may lie anywhere.
        if site_ms >= now {
            wall.saturating_add(site_ms - now)
        } else {
            wall.saturating_sub(now - site_ms)
        }
    }

    fn site_ms(&self, moment: Moment) -> u64 {
        let now = self.now_ms();
        // By the clock that nobody can set, as long as it is the same one.
        let age = match moment.boot_ms {
            Some(then) => boot_ms().saturating_sub(then),
            None => wall_ms().saturating_sub(moment.unix_ms),
        };
        now.saturating_sub(age)
    }

    fn alive_before_boot_ms(&self) -> Option<u64> {
        self.alive_before_boot_ms
    }

    fn beat(&mut self) {
        let boot_ms = boot_ms();
        if boot_ms.saturating_sub(self.beat_ms) < BEAT_EVERY_MS {
            return;
        }
        self.beat_ms = boot_ms;
        let anchor = Anchor { boot_ms, site_ms: self.now_ms(), ..self.anchor.clone() };
        if let Err(error) = anchor.keep(&self.dir, Sync::No) {
            tracing::warn!(%error, "it could not be kept that the daemon lives");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_within_one_boot_goes_on_where_it_was() {
        let dir = tempfile::tempdir().expect("a folder");
        let first = SystemClock::open(dir.path(), wall_ms(), 500, Jump::Refused).expect("a clock");
        assert!(first.now_ms() >= 500);
        // The wall clock was set back by a year meanwhile: it is not asked.
        let second = SystemClock::open(dir.path(), wall_ms() + 31_536_000_000, 0, Jump::Refused)
            .expect("a clock");
        assert!(second.now_ms() >= first.anchor.site_ms);
        assert!(second.anchor.site_ms - first.anchor.site_ms < 60_000);
    }

    #[test]
    fn another_boot_is_bridged_by_the_wall_clock_and_never_goes_back() {
        let dir = tempfile::tempdir().expect("a folder");
        let other = Anchor { boot_id: "another".into(), boot_ms: 5, site_ms: 77 };
        let text = serde_json::to_string(&other).expect("text");
        fs::write(anchor_path(dir.path()), text).expect("written");
        let hour_ago = wall_ms() - 3_600_000;
        let clock = SystemClock::open(dir.path(), hour_ago, 0, Jump::Refused).expect("a clock");
        assert!((3_600_000..3_700_000).contains(&clock.now_ms()));
        let ahead = SystemClock::open(
            tempfile::tempdir().expect("one").path(),
            hour_ago,
            9_000_000,
            Jump::Refused,
        );
        assert!(ahead.expect("a clock").now_ms() >= 9_000_000);
    }

    #[test]
    fn a_clock_that_is_far_ahead_after_a_boot_is_not_believed_by_itself() {
        const DAY: u64 = 86_400_000;
        let dir = tempfile::tempdir().expect("a folder");
        let kept = 3 * DAY;
        let other = Anchor { boot_id: "another".into(), boot_ms: 5, site_ms: kept };
        let created = wall_ms() - 20 * DAY;
        other.keep(dir.path(), Sync::Yes).expect("kept");
        let error = SystemClock::open(dir.path(), created, 1, Jump::Refused).expect_err("refused");
        assert!(error.to_string().contains("17 days ahead"), "{error}");
        assert!(error.to_string().contains("--accept-clock-jump"), "{error}");
        // Records that came after what was kept count, too.
        let clock = SystemClock::open(dir.path(), created, 14 * DAY, Jump::Refused).expect("fine");
        assert_eq!(clock.alive_before_boot_ms(), Some(14 * DAY));
        other.keep(dir.path(), Sync::Yes).expect("kept");
        let clock = SystemClock::open(dir.path(), created, 1, Jump::Accepted).expect("accepted");
        assert!(clock.now_ms() >= 20 * DAY);
        assert_eq!(clock.alive_before_boot_ms(), Some(kept));
    }

    #[test]
    fn it_is_kept_that_the_daemon_lives() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut clock = SystemClock::open(dir.path(), wall_ms(), 500, Jump::Refused).expect("one");
        let kept = || {
            let text = fs::read_to_string(anchor_path(dir.path())).expect("kept");
            serde_json::from_str::<Anchor>(&text).expect("an anchor").site_ms
        };
        let first = kept();
        clock.beat();
        assert_eq!(kept(), first, "not at every round");
        clock.beat_ms = clock.beat_ms.saturating_sub(BEAT_EVERY_MS);
        std::thread::sleep(std::time::Duration::from_millis(5));
        clock.beat();
        assert!(kept() > first);
        // A clock that was set back over a reboot does not take the site back before that.
        let ahead = Anchor { boot_id: "another".into(), boot_ms: 5, site_ms: 7_000_000 };
        ahead.keep(dir.path(), Sync::Yes).expect("kept");
        let clock = SystemClock::open(dir.path(), wall_ms(), 0, Jump::Refused).expect("one");
        assert!(clock.now_ms() >= 7_000_000);
    }

    #[test]
    fn moments_may_lie_anywhere() {
        let dir = tempfile::tempdir().expect("a folder");
        let clock = SystemClock::open(dir.path(), wall_ms(), 42, Jump::Refused).expect("a clock");
        assert_eq!(clock.unix_ms(u64::MAX), u64::MAX);
        assert!(clock.unix_ms(0) <= wall_ms());
    }

    #[test]
    fn what_an_engine_saw_is_a_moment_of_the_site() {
        let dir = tempfile::tempdir().expect("a folder");
        let clock =
            SystemClock::open(dir.path(), wall_ms(), 3_600_000, Jump::Refused).expect("a clock");
        // The wall clock says a year ago; the other one, which nobody can set, ten seconds.
        let boot = boot_ms();
        let unix_ms = wall_ms() - 31_536_000_000;
        let seen = clock.site_ms(Moment { unix_ms, boot_ms: Some(boot.saturating_sub(10_000)) });
        let ago = clock.now_ms() - seen;
        assert!((10_000.min(boot)..70_000).contains(&ago), "{ago}");
        // The machine was booted since: the wall clock bridges.
        let seen = clock.site_ms(Moment { unix_ms: wall_ms() - 20_000, boot_ms: None });
        assert!((20_000..80_000).contains(&(clock.now_ms() - seen)));
        assert_eq!(clock.site_ms(Moment { unix_ms: 0, boot_ms: None }), 0);
    }

    #[test]
    fn a_damaged_anchor_is_as_good_as_none() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(anchor_path(dir.path()), "{\"boot_id\": 3").expect("written");
        assert!(
            SystemClock::open(dir.path(), wall_ms(), 42, Jump::Refused).expect("a clock").now_ms()
                >= 42
        );
    }
}
