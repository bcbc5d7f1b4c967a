//! The two clocks of an observation.

use crate::observation::Moment;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

/// Now.
pub(crate) fn now() -> Moment {
    Moment { unix_ms: unix_ms(), boot_ms: Some(boot_ms()) }
}

/// When the machine was booted: the latest moment at which anything of an earlier boot can have run.
pub(crate) fn boot() -> Moment {
    Moment { unix_ms: unix_ms().saturating_sub(boot_ms()), boot_ms: Some(0) }
}

pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn boot_ms() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let ms = time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000);
    u64::try_from(ms).unwrap_or(0)
}

/// What tells this boot of the machine from any other.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// A name that nothing else has.
pub(crate) fn unique() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}
