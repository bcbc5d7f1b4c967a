//! What work does in a [`FakeWorld`](super::FakeWorld), as told by its command.

/// What a command does in virtual time.
///
/// A command whose program is `fake` says it, in words such as `run_ms=5000 exit=3`:
///
/// | word | meaning |
/// |---|---|
/// | `run_ms=N` | ends by itself after so many milliseconds; without it, never |
/// | `exit=N` | with this exit code; 0 by default |
/// | `killed_by=N` | by this signal instead |
/// | `save_ms=N` | leaves so many milliseconds after the checkpoint signal; 0 by default |
/// | `saved_exit=N` | with this exit code; by default the signal ends it |
/// | `warned_exit=N` | ends with this exit code upon the warning; without it, the warning does nothing |
/// | `stubborn` | does not leave upon the checkpoint signal |
/// | `print=N` | writes so many bytes when it starts: `0123456789` over and over |
/// | `fails=REASON` | cannot be started |
///
/// Any other program runs until it is told to leave, and leaves at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeWork {
    /// After how many milliseconds it ends by itself.
    pub run_ms: Option<u64>,
    /// With which exit code.
    pub exit: i32,
    /// By which signal it ends instead.
    pub killed_by: Option<i32>,
    /// What it does upon the checkpoint signal.
    pub on_checkpoint: OnCheckpoint,
    /// With which exit code it ends upon the warning, if it does.
    pub warned_exit: Option<i32>,
    /// How many bytes it writes.
    pub print_bytes: u64,
    /// Why it cannot be started, if it cannot.
    pub fails: Option<String>,
}

/// What fake work does upon the checkpoint signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCheckpoint {
    /// It leaves.
    Leave {
        /// After how many milliseconds.
        save_ms: u64,
        /// With which exit code; without one, the signal ends it.
        exit: Option<i32>,
    },
    /// Nothing.
    Ignore,
}

impl FakeWork {
    /// Reads a command. Words that are not known are as if the program was not found.
    pub fn of(command: &[String]) -> Self {
        let mut work = Self {
            run_ms: None,
            exit: 0,
            killed_by: None,
            on_checkpoint: OnCheckpoint::Leave { save_ms: 0, exit: None },
            warned_exit: None,
            print_bytes: 0,
            fails: None,
        };
        let words = command.split_first().filter(|(program, _)| *program == "fake");
        for word in words.into_iter().flat_map(|(_, words)| words) {
            if work.read(word).is_none() {
                work.fails = Some(format!("command not found: fake {word}"));
            }
        }
        work
    }

    fn read(&mut self, word: &str) -> Option<()> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match (name, &mut self.on_checkpoint) {
            ("run_ms", _) => self.run_ms = Some(value.parse().ok()?),
            ("exit", _) => self.exit = value.parse().ok()?,
            ("killed_by", _) => self.killed_by = Some(value.parse().ok()?),
            ("save_ms", OnCheckpoint::Leave { save_ms, .. }) => *save_ms = value.parse().ok()?,
            ("saved_exit", OnCheckpoint::Leave { exit, .. }) => *exit = Some(value.parse().ok()?),
            ("warned_exit", _) => self.warned_exit = Some(value.parse().ok()?),
            ("stubborn", on_checkpoint) => *on_checkpoint = OnCheckpoint::Ignore,
            ("print", _) => self.print_bytes = value.parse().ok()?,
            ("fails", _) => self.fails = Some(value.to_owned()),
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(text: &str) -> FakeWork {
        FakeWork::of(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn commands_say_what_they_do() {
        let told = work("fake run_ms=5 exit=3 save_ms=7 saved_exit=0 print=9");
        assert_eq!((told.run_ms, told.exit, told.print_bytes), (Some(5), 3, 9));
        assert_eq!(told.on_checkpoint, OnCheckpoint::Leave { save_ms: 7, exit: Some(0) });
        assert_eq!(work("fake stubborn").on_checkpoint, OnCheckpoint::Ignore);
        assert_eq!(work("./train.sh run_ms=5").run_ms, None);
        assert!(work("fake run=5").fails.is_some());
        assert!(work("fake run_ms=x").fails.is_some());
    }
}
