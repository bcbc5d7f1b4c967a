//! Which signals of Unix stand for what an engine says to work.

use std::fmt;
use std::str::FromStr;

/// A signal of Unix that may be sent to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnixSignal {
    /// `SIGTERM`
    Term,
    /// `SIGINT`
    Int,
    /// `SIGHUP`
    Hup,
    /// `SIGQUIT`
    Quit,
    /// `SIGUSR1`
    Usr1,
    /// `SIGUSR2`
    Usr2,
}

impl UnixSignal {
    const ALL: [Self; 6] = [Self::Term, Self::Int, Self::Hup, Self::Quit, Self::Usr1, Self::Usr2];

    /// Its name, as in `SIGTERM`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Term => "SIGTERM",
            Self::Int => "SIGINT",
            Self::Hup => "SIGHUP",
            Self::Quit => "SIGQUIT",
            Self::Usr1 => "SIGUSR1",
            Self::Usr2 => "SIGUSR2",
        }
    }

    #[cfg(target_os = "linux")]
    pub(crate) const fn system(self) -> rustix::process::Signal {
        use rustix::process::Signal;
        match self {
            Self::Term => Signal::TERM,
            Self::Int => Signal::INT,
            Self::Hup => Signal::HUP,
            Self::Quit => Signal::QUIT,
            Self::Usr1 => Signal::USR1,
            Self::Usr2 => Signal::USR2,
        }
    }
}

impl fmt::Display for UnixSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for UnixSignal {
    type Err = crate::Error;

    /// Reads `SIGTERM` or `TERM`, in capitals or not. Anything else is `Invalid`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = text.to_ascii_uppercase();
        let name = name.strip_prefix("SIG").unwrap_or(&name);
        let found =
            Self::ALL.into_iter().find(|signal| signal.name().strip_prefix("SIG") == Some(name));
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            crate::Error::invalid(format!(
                "no such signal '{}'; one of {known}",
                text.escape_debug()
            ))
        })
    }
}

/// Who of an attempt's processes gets the checkpoint signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignalScope {
    /// The process group of the work: the command and what it started, unless that made a group of its
    /// own. What `train.sh` runs gets the signal although the shell does not pass it on.
    #[default]
    Group,
    /// The command alone, as in a pod of Kubernetes. It must pass the signal on itself.
    Leader,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_by_name() {
        assert_eq!("SIGUSR1".parse::<UnixSignal>().unwrap(), UnixSignal::Usr1);
        assert_eq!("term".parse::<UnixSignal>().unwrap(), UnixSignal::Term);
        for bad in ["", "SIG", "KILL", "9", "SIGSIGTERM"] {
            assert!(bad.parse::<UnixSignal>().is_err(), "{bad}");
        }
    }
}
